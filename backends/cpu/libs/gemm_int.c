/* gemm_int.c: integer matrix products, and the row copies and conversions that every matrix product
 * packs with. Integers wrap modulo 2^bits, as their sums and products do elsewhere. */
#include <string.h>

#include "common/tmpl.h"
#include "cpu_priv.h"
#include "gemm_priv.h"
#include "half.h"

int64_t gemm_item(int32_t dtype) {
    switch (dtype) {
#define ITEM_CASE(ID, slot, name, bytes, dl, cat, ctype)                                           \
    case TN_##ID: return bytes;
        TN_DTYPE_LIST(ITEM_CASE)
#undef ITEM_CASE
    default: return 1;
    }
}

void gemm_copy_row(int64_t item, const char *src, int64_t ss, char *dst, int64_t ds, int64_t n) {
    if (item == 4) {
        for (int64_t i = 0; i < n; i++) memcpy(dst + 4 * i * ds, src + 4 * i * ss, 4);
    } else if (item == 8) {
        for (int64_t i = 0; i < n; i++) memcpy(dst + 8 * i * ds, src + 8 * i * ss, 8);
    } else {
        size_t bytes = (size_t)item;
        for (int64_t i = 0; i < n; i++) {
            memcpy(dst + item * i * ds, src + item * i * ss, bytes);
        }
    }
}

static const cpu_half *half = &cpu_half_baseline;

void gemm_half_init(cpu_isa isa) {
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
    if (isa == CPU_ISA_AVX2) half = &cpu_half_avx2;
    if (isa == CPU_ISA_AVX512) half = &cpu_half_avx512;
#endif
    (void)isa;
}

void gemm_convert_row(int32_t from, const char *src, int64_t ss, int32_t to, char *dst, int64_t ds,
                      int64_t n) {
    const uint16_t *hs = (const uint16_t *)(const void *)src;
    uint16_t *hd = (uint16_t *)(void *)dst;
    const float *fs = (const float *)(const void *)src;
    float *fd = (float *)(void *)dst;
    bool packed = ss == 1 && ds == 1;
    if (from == to) {
        gemm_copy_row(gemm_item(to), src, ss, dst, ds, n);
    } else if (from == TN_F32 && packed) {
        half->narrow(hd, fs, n, to);
    } else if (packed) {
        half->widen(fd, hs, n, from);
    } else if (from == TN_BF16) {
        for (int64_t i = 0; i < n; i++) fd[i * ds] = tmpl_from_bf16(hs[i * ss]);
    } else if (from == TN_F16) {
        for (int64_t i = 0; i < n; i++) fd[i * ds] = tmpl_from_f16(hs[i * ss]);
    } else if (to == TN_BF16) {
        for (int64_t i = 0; i < n; i++) hd[i * ds] = tmpl_to_bf16(fs[i * ss]);
    } else {
        for (int64_t i = 0; i < n; i++) hd[i * ds] = tmpl_to_f16(fs[i * ss]);
    }
}

#define INT_T uint8_t
#define INT_U uint32_t
#define INT_NAME row_u8
#include "gemm_int_tmpl.h"
#define INT_T int8_t
#define INT_U uint64_t
#define INT_NAME row_i8
#include "gemm_int_tmpl.h"
#define INT_T int16_t
#define INT_U uint64_t
#define INT_NAME row_i16
#include "gemm_int_tmpl.h"
#define INT_T int32_t
#define INT_U uint32_t
#define INT_NAME row_i32
#include "gemm_int_tmpl.h"
#define INT_T int64_t
#define INT_U uint64_t
#define INT_NAME row_i64
#include "gemm_int_tmpl.h"

/* Rows [begin, end) of all batch entries. */
static tn_status run_rows(void *arg, int64_t begin, int64_t end) {
    const gemm_args *g = arg;
    uint64_t bytes;
    void *acc;
    tn_status st = cpu_room(g->n, sizeof(uint64_t), &bytes, &acc);
    if (st) return st;
    for (int64_t r = begin; r < end; r++) {
        int64_t e = r / g->m, i = r % g->m;
        switch (g->dtype) {
        case TN_BOOL:
        case TN_U8: row_u8(g, e, i, acc); break;
        case TN_I8: row_i8(g, e, i, acc); break;
        case TN_I16: row_i16(g, e, i, acc); break;
        case TN_I32: row_i32(g, e, i, acc); break;
        default: row_i64(g, e, i, acc); break;
        }
    }
    cpu_free(NULL, 0, acc, bytes);
    return TN_OK;
}

tn_status cpu_gemm_int(const gemm_args *g) {
    double per_row = (double)g->n * (double)(g->k + 1);
    int64_t grain = per_row < 2e4 ? 1 + (int64_t)(2e4 / per_row) : 1;
    return cpu_parallel(g->batch * g->m, grain, run_rows, (void *)(uintptr_t)g);
}
