/* plugin.c: the entry of the CPU plugin: registers device slot 0 and the kernels of the instruction
 * set in use. A family of kernels is one line in one of the lists below. */
#include <string.h>

#include "copy.h"
#include "cpu_priv.h"
#include "gemm.h"

#define CPU_BASE_FAMILIES(X) X(copy) X(index) X(join) X(linalg) X(random_index)
#define CPU_ISA_FAMILIES(X) X(random) X(random_int)
#define CPU_DTYPE_FAMILIES(X) X(map) X(cast) X(embedding) X(pad) X(reduce) X(scan)
#define CPU_ONCE_FAMILIES(X) X(indexed)
#define CPU_ORDERED_FAMILIES(X) X(extreme)
#define CPU_SORTED_FAMILIES(X) X(order)
#define CPU_LAPACK_FAMILIES(X) X(lapack)
#define CPU_FLOAT_FAMILIES(X)                                                                      \
    X(attention)                                                                                   \
    X(batch_norm) X(conv) X(layer_norm) X(loss) X(optim) X(pool) X(rnn) X(softmax) X(upsample)

/* Types compiled for every instruction set, and those for baseline only. CPU_ONCE_FAMILIES are
 * compiled for baseline in all types, CPU_SORTED_FAMILIES in all but the complex ones, and
 * CPU_ORDERED_FAMILIES as CPU_DTYPE_FAMILIES without the complex types; CPU_LAPACK_FAMILIES exist
 * for f32 and f64, baseline only. */
#define FLOAT_TYPES(X, family, isa)                                                                \
    X(family, f16, isa) X(family, bf16, isa) X(family, f32, isa) X(family, f64, isa)
#define WIDE_TYPES(X, family, isa)                                                                 \
    X(family, u8, isa) X(family, i32, isa) X(family, i64, isa) FLOAT_TYPES(X, family, isa)
#define BASE_TYPES(X, family)                                                                      \
    X(family, b8, baseline)                                                                        \
    X(family, i8, baseline)                                                                        \
    X(family, i16, baseline) X(family, c64, baseline) X(family, c128, baseline)
#define ORDERED_BASE_TYPES(X, family)                                                              \
    X(family, b8, baseline) X(family, i8, baseline) X(family, i16, baseline)
#define ORDERED_TYPES(X, family) ORDERED_BASE_TYPES(X, family) WIDE_TYPES(X, family, baseline)
#define LAPACK_TYPES(X, family) X(family, f32, baseline) X(family, f64, baseline)
#define ONCE_TYPES(X, family) BASE_TYPES(X, family) WIDE_TYPES(X, family, baseline)

const tn_host *cpu_host;

/* ---- Rows --------------------------------------------------------------------------------------*/

#define DECLARE_BASE(family) extern const cpu_rows cpu_##family##_rows;
#define DECLARE_ISA(family, isa) extern const cpu_rows cpu_##family##_rows_##isa;
#define DECLARE_DTYPE(family, dtype, isa) extern const cpu_rows cpu_##family##_rows_##dtype##_##isa;
#define ADDRESS_BASE(family) &cpu_##family##_rows,
#define ADDRESS_ISA(family, isa) &cpu_##family##_rows_##isa,
#define ADDRESS_DTYPE(family, dtype, isa) &cpu_##family##_rows_##dtype##_##isa,

#define DECLARE_EVERY_ISA(family) CPU_EVERY_ISA(DECLARE_ISA, family)
#define DECLARE_EVERY_DTYPE(family)                                                                \
    BASE_TYPES(DECLARE_DTYPE, family) CPU_EVERY_WIDE(WIDE_TYPES, DECLARE_DTYPE, family)
#define DECLARE_EVERY_FLOAT(family) CPU_EVERY_WIDE(FLOAT_TYPES, DECLARE_DTYPE, family)
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#define CPU_EVERY_ISA(X, family) X(family, baseline) X(family, avx2) X(family, avx512)
#define CPU_EVERY_WIDE(TYPES, X, family)                                                           \
    TYPES(X, family, baseline) TYPES(X, family, avx2) TYPES(X, family, avx512)
#else
#define CPU_EVERY_ISA(X, family) X(family, baseline)
#define CPU_EVERY_WIDE(TYPES, X, family) TYPES(X, family, baseline)
#endif

CPU_BASE_FAMILIES(DECLARE_BASE)
CPU_ISA_FAMILIES(DECLARE_EVERY_ISA)
CPU_DTYPE_FAMILIES(DECLARE_EVERY_DTYPE)
CPU_FLOAT_FAMILIES(DECLARE_EVERY_FLOAT)
#define DECLARE_ONCE(family) ONCE_TYPES(DECLARE_DTYPE, family)
#define DECLARE_ORDERED(family)                                                                    \
    ORDERED_BASE_TYPES(DECLARE_DTYPE, family) CPU_EVERY_WIDE(WIDE_TYPES, DECLARE_DTYPE, family)
#define DECLARE_SORTED(family) ORDERED_TYPES(DECLARE_DTYPE, family)
CPU_ONCE_FAMILIES(DECLARE_ONCE)
CPU_ORDERED_FAMILIES(DECLARE_ORDERED)
CPU_SORTED_FAMILIES(DECLARE_SORTED)
#define DECLARE_LAPACK(family) LAPACK_TYPES(DECLARE_DTYPE, family)
CPU_LAPACK_FAMILIES(DECLARE_LAPACK)

#define BASE_DTYPE_ROWS(family) BASE_TYPES(ADDRESS_DTYPE, family)
#define ONCE_ROWS(family) ONCE_TYPES(ADDRESS_DTYPE, family)
#define ORDERED_BASE_ROWS(family) ORDERED_BASE_TYPES(ADDRESS_DTYPE, family)
#define SORTED_ROWS(family) ORDERED_TYPES(ADDRESS_DTYPE, family)
#define LAPACK_ROWS(family) LAPACK_TYPES(ADDRESS_DTYPE, family)
static const cpu_rows *const common_rows[] = {
    CPU_BASE_FAMILIES(ADDRESS_BASE) CPU_DTYPE_FAMILIES(BASE_DTYPE_ROWS) CPU_ONCE_FAMILIES(ONCE_ROWS)
        CPU_ORDERED_FAMILIES(ORDERED_BASE_ROWS) CPU_SORTED_FAMILIES(SORTED_ROWS)
            CPU_LAPACK_FAMILIES(LAPACK_ROWS)};

#define BASELINE_ROWS(family) ADDRESS_ISA(family, baseline)
#define BASELINE_DTYPE_ROWS(family) WIDE_TYPES(ADDRESS_DTYPE, family, baseline)
#define BASELINE_FLOAT_ROWS(family) FLOAT_TYPES(ADDRESS_DTYPE, family, baseline)
static const cpu_rows *const baseline_rows[] = {
    CPU_ISA_FAMILIES(BASELINE_ROWS) CPU_DTYPE_FAMILIES(BASELINE_DTYPE_ROWS)
        CPU_ORDERED_FAMILIES(BASELINE_DTYPE_ROWS) CPU_FLOAT_FAMILIES(BASELINE_FLOAT_ROWS)};

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#define AVX2_ROWS(family) ADDRESS_ISA(family, avx2)
#define AVX2_DTYPE_ROWS(family) WIDE_TYPES(ADDRESS_DTYPE, family, avx2)
#define AVX2_FLOAT_ROWS(family) FLOAT_TYPES(ADDRESS_DTYPE, family, avx2)
static const cpu_rows *const avx2_rows[] = {CPU_ISA_FAMILIES(AVX2_ROWS) CPU_DTYPE_FAMILIES(
    AVX2_DTYPE_ROWS) CPU_ORDERED_FAMILIES(AVX2_DTYPE_ROWS) CPU_FLOAT_FAMILIES(AVX2_FLOAT_ROWS)};

#define AVX512_ROWS(family) ADDRESS_ISA(family, avx512)
#define AVX512_DTYPE_ROWS(family) WIDE_TYPES(ADDRESS_DTYPE, family, avx512)
#define AVX512_FLOAT_ROWS(family) FLOAT_TYPES(ADDRESS_DTYPE, family, avx512)
static const cpu_rows *const avx512_rows[] = {
    CPU_ISA_FAMILIES(AVX512_ROWS) CPU_DTYPE_FAMILIES(AVX512_DTYPE_ROWS)
        CPU_ORDERED_FAMILIES(AVX512_DTYPE_ROWS) CPU_FLOAT_FAMILIES(AVX512_FLOAT_ROWS)};
#endif

static tn_status add_rows(tn_txn *txn, int32_t slot, const cpu_rows *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tn_status st = cpu_host->register_kernels(txn, slot, list[i]->rows,
                                                  (uint32_t)sizeof(tn_kernel_row), list[i]->n);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}
#define ADD_ROWS(list) add_rows(txn, slot, list, sizeof(list) / sizeof((list)[0]))

static tn_status add_kernels(tn_txn *txn, int32_t slot) {
    tn_status st = ADD_ROWS(common_rows);
    if (st != TN_OK) return st;
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
    cpu_isa isa = cpu_isa_pick();
    if (isa == CPU_ISA_AVX512) return ADD_ROWS(avx512_rows);
    if (isa == CPU_ISA_AVX2) return ADD_ROWS(avx2_rows);
#endif
    return ADD_ROWS(baseline_rows);
}

/* ---- The device --------------------------------------------------------------------------------
 * Memory of the CPU is the host's: every transfer is a copy of bytes. */

static tn_status copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset, const void *src,
                         uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    cpu_copy_bytes((char *)dst + dst_offset, src, bytes);
    return TN_OK;
}

static tn_status copy_out(void *ctx, int32_t device, void *dst, const void *src,
                          uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    cpu_copy_bytes(dst, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                             const void *src, uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    memmove((char *)dst + dst_offset, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status sync_nothing(void *ctx, int32_t device) {
    (void)ctx;
    (void)device;
    return TN_OK;
}

static const void *query(void *ctx, const char *iface) {
    (void)ctx;
    if (strcmp(iface, "tn.memory/1") == 0) return &cpu_memory_iface;
    if (strcmp(iface, "tn.threads/1") == 0) return &cpu_threads_iface;
    return NULL;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    int32_t slot;
    const tn_device_desc desc = {
        .struct_size = sizeof desc,
        .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST,
        .name = "cpu",
        .dl_device = 1,
        .count = 1,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .copy_within = copy_within,
        .sync = sync_nothing,
        .describe = cpu_describe,
        .query = query,
    };
    cpu_host = host;
    cpu_warn_environment();
    cpu_blas_init();
    cpu_copy_init(cpu_isa_pick());
    tn_status st = host->register_device(txn, &desc, &slot);
    if (st != TN_OK) return st;
    return add_kernels(txn, slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    cpu_host = host;
    return tn_plugin_fill(ret_plugin, "tenon-cpu", "0.1.0",
                          "kernels, memory and threads of the CPU", activate);
}
