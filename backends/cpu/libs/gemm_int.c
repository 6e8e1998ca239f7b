/* gemm_int.c: integer matrix products. Integers wrap modulo 2^bits, as their sums and products do
 * elsewhere.
 *
 * isa: each */
#include <string.h>

#include "common/tmpl.h"
#include "cpu_priv.h"
#include "gemm_priv.h"

#if defined(__AVX512F__)
#define INT_BYTES 64
#elif defined(__AVX2__)
#define INT_BYTES 32
#else
#define INT_BYTES 16
#endif

enum {
    VECTORS = 4, /* of a row of a panel */
    ABREAST = 2, /* rows of A that pass a panel together */
    BAND = 64,   /* rows of A of an item */
    STRIP = 8    /* rows of B that are packed together */
};

/* Rows [i, i + m) and columns [j, j + n) of entry e. */
typedef struct part {
    int64_t e, i, m, j, n;
} part;

#define INT_T uint8_t
#define INT_U uint32_t
#define INT_(name) name##_u8
#include "gemm_int_tmpl.h"
#define INT_T int8_t
#define INT_U uint32_t
#define INT_(name) name##_i8
#include "gemm_int_tmpl.h"
#define INT_T int16_t
#define INT_U uint32_t
#define INT_(name) name##_i16
#include "gemm_int_tmpl.h"
#define INT_T int32_t
#define INT_U uint32_t
#define INT_(name) name##_i32
#include "gemm_int_tmpl.h"
#define INT_T int64_t
#define INT_U uint64_t
#define INT_(name) name##_i64
#include "gemm_int_tmpl.h"

static int64_t columns_of(int32_t dtype) { return dtype == TN_I64 ? columns_i64 : columns_i32; }

/* Items: bands of rows within columns of a panel within entries. */
static tn_status run_parts(void *arg, int64_t begin, int64_t end) {
    const gemm_args *g = arg;
    int64_t wide = columns_of(g->dtype), bands = (g->m + BAND - 1) / BAND;
    int64_t panels = (g->n + wide - 1) / wide;
    tn_status st = TN_OK;
    for (int64_t item = begin; item < end && st == TN_OK; item++) {
        part p = {.e = item / bands / panels,
                  .i = item % bands * BAND,
                  .j = item / bands % panels * wide};
        p.m = g->m - p.i < BAND ? g->m - p.i : BAND;
        p.n = g->n - p.j < wide ? g->n - p.j : wide;
        switch (g->dtype) {
        case TN_BOOL:
        case TN_U8: st = part_u8(g, &p); break;
        case TN_I8: st = part_i8(g, &p); break;
        case TN_I16: st = part_i16(g, &p); break;
        case TN_I32: st = part_i32(g, &p); break;
        default: st = part_i64(g, &p); break;
        }
    }
    return st;
}

tn_status ISA_(cpu_gemm_int)(const gemm_args *g) {
    int64_t wide = columns_of(g->dtype), bands = (g->m + BAND - 1) / BAND;
    int64_t items = g->batch * ((g->n + wide - 1) / wide) * bands;
    double cost = (double)(g->m < BAND ? g->m : BAND) * (double)(g->n < wide ? g->n : wide) *
                  (double)(g->k + 1);
    int64_t grain = cost < 2e4 ? 1 + (int64_t)(2e4 / cost) : 1;
    return cpu_parallel(items, grain, run_parts, (void *)(uintptr_t)g);
}
