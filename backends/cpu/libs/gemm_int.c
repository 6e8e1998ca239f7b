/* gemm_int.c: integer matrix products. Integers wrap modulo 2^bits, as their sums and products do
 * elsewhere. */
#include <string.h>

#include "common/tmpl.h"
#include "cpu_priv.h"
#include "gemm_priv.h"

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
    for (int64_t r = begin; r < end && st == TN_OK; r++) {
        int64_t e = r / g->m, i = r % g->m;
        switch (g->dtype) {
        case TN_BOOL:
        case TN_U8: st = row_u8(g, e, i, acc); break;
        case TN_I8: st = row_i8(g, e, i, acc); break;
        case TN_I16: st = row_i16(g, e, i, acc); break;
        case TN_I32: st = row_i32(g, e, i, acc); break;
        default: st = row_i64(g, e, i, acc); break;
        }
    }
    cpu_free(NULL, 0, acc, bytes);
    return st;
}

tn_status cpu_gemm_int(const gemm_args *g) {
    double per_row = (double)g->n * (double)(g->k + 1);
    int64_t grain = per_row < 2e4 ? 1 + (int64_t)(2e4 / per_row) : 1;
    return cpu_parallel(g->batch * g->m, grain, run_rows, (void *)(uintptr_t)g);
}
