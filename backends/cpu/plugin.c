/* plugin.c: the entry of the CPU plugin: registers device slot 0 and the kernels of the instruction
 * set in use. */
#define TN_ABI_TARGET 0 /* an older core does not ask for what came later */

#include <stdio.h>
#include <string.h>

#include "copy.h"
#include "cpu_priv.h"
#include "cpu_rows_list.h"
#include "gemm.h"
#include "locks.h"
#include "map.h"

/* ---- Rows --------------------------------------------------------------------------------------*/

enum { SET_ANY = KERNEL_SET_ANY };
enum { SET_BASELINE = CPU_ISA_BASELINE, SET_AVX2 = CPU_ISA_AVX2, SET_AVX512 = CPU_ISA_AVX512 };

#define DECLARE(rows, set) extern const cpu_rows rows;
#define FAMILY(rows, set) {#rows, SET_##set, &rows},
CPU_ROWS_LIST(DECLARE)
const kernel_family kernel_families[] = {CPU_ROWS_LIST(FAMILY){NULL, 0, NULL}};

/* ---- The device --------------------------------------------------------------------------------
 * Memory of the CPU is the host's: every transfer is a copy of bytes. */

static tn_status copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset, const void *src,
                         uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    return cpu_copy_bytes((char *)dst + dst_offset, src, bytes);
}

static tn_status copy_out(void *ctx, int32_t device, void *dst, const void *src,
                          uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    return cpu_copy_bytes(dst, (const char *)src + src_offset, bytes);
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
    if (strcmp(iface, "tn.codegen/2") == 0) return &cpu_codegen_iface;
    return NULL;
}

static const char *describe(void *ctx, int32_t device) {
    static CPU_TLS char text[160];
    (void)ctx;
    (void)device;
    snprintf(text, sizeof text, "tenon-cpu, %s, %d thread%s, BLAS %s", cpu_isa_name(cpu_isa_pick()),
             (int)cpu_threads_get(), cpu_threads_get() == 1 ? "" : "s", cpu_blas_core());
    return text;
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
        .describe = describe,
        .query = query,
    };
    cpu_host = host;
    cpu_locks_init();
    cpu_blas_init();
    cpu_blas_warn();
    cpu_copy_init(cpu_isa_pick());
    tn_status st = host->register_device(txn, &desc, &slot);
    if (st != TN_OK) return st;
    return kernel_families_register(host, txn, slot, (int32_t)cpu_isa_pick());
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    cpu_host = host;
    return tn_plugin_fill(ret_plugin, "tenon-cpu", "0.1.0",
                          "kernels, memory and threads of the CPU", activate);
}
