/* gemm_bf16.c: products of bfloat16 matrices with the processor's own instruction, which adds the
 * products of two pairs to a float: twice the rate of float, and half the memory.
 *
 * Note [Panels]
 * Pairs of elements that follow each other along the sum stand together in 32 bits. A is packed in strips
 * of ROWS rows and B in panels of COLS columns, pair after pair, with zeros where the matrix ends. A tile
 * of sums stays in registers while a strip and a panel pass by, DEEP pairs at a time. A product of
 * few rows with a matrix whose columns are packed in memory reads that matrix as it is, once.
 * Every sum runs over its pairs in one order, whatever the grid of tiles is. */
#include <string.h>

#include "copy.h"
#include "cpu_priv.h"
#include "gemm_priv.h"

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum { ROWS = 8, VECTORS = 3, LANES = 16, COLS = VECTORS * LANES };
enum { DEEP = 512, BLOCK_STRIPS = 12, BLOCK_PANELS = 4, BLOCK_COLS = BLOCK_PANELS * COLS };
enum { FEW = 8, TOGETHER = 4 }; /* rows of a product without packing, columns at once */

typedef struct job {
    const gemm_args *g;
    uint32_t *a, *b; /* packed: (entry, strip, pair, ROWS), (entry, panel, pair, COLS) */
    int64_t pairs, strips, panels, row_blocks, col_blocks;
} job;

/* ---- Packing -----------------------------------------------------------------------------------*/

/* Lines [first, first + n) of a matrix whose element (line, k) stands at line * ls + k * ks, as
 * (pair, width); lines past n are zeros. */
static void pack_pairs(const uint16_t *from, int64_t ls, int64_t ks, int64_t k, int64_t n,
                       int64_t width, uint32_t *to) {
    int64_t whole = k / 2;
    if (n < width) memset(to, 0, (size_t)((k + 1) / 2 * width) * sizeof *to);
    if (ks == 1) {
        cpu_gather_tile(to, width * 4, from, ls * 2, whole, n, 4);
    } else {
        for (int64_t p = 0; p < whole; p++) {
            const uint16_t *x = from + 2 * p * ks, *y = x + ks;
            uint32_t *row = to + p * width;
            if (ls == 1) {
                for (int64_t i = 0; i < n; i++) row[i] = x[i] | (uint32_t)y[i] << 16;
            } else {
                for (int64_t i = 0; i < n; i++) row[i] = x[i * ls] | (uint32_t)y[i * ls] << 16;
            }
        }
    }
    if (k % 2)
        for (int64_t i = 0; i < n; i++) to[whole * width + i] = from[i * ls + (k - 1) * ks];
}

static tn_status pack_strips(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    for (int64_t s = begin; s < end; s++) {
        int64_t e = s / j->strips, i = s % j->strips * ROWS, n = g->m - i < ROWS ? g->m - i : ROWS;
        const uint16_t *a = (const uint16_t *)g->a.data + e * g->a.bs + i * g->a.rs;
        pack_pairs(a, g->a.rs, g->a.cs, g->k, n, ROWS, j->a + s * j->pairs * ROWS);
    }
    return TN_OK;
}

static tn_status pack_panels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    for (int64_t s = begin; s < end; s++) {
        int64_t e = s / j->panels, c = s % j->panels * COLS, n = g->n - c < COLS ? g->n - c : COLS;
        const uint16_t *b = (const uint16_t *)g->b.data + e * g->b.bs + c * g->b.cs;
        pack_pairs(b, g->b.cs, g->b.rs, g->k, n, COLS, j->b + s * j->pairs * COLS);
    }
    return TN_OK;
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

/* sum (ROWS, BLOCK_COLS apart) += strip @ panel over so many pairs. */
BF16 static void add_tile(const uint32_t *a, const uint32_t *b, int64_t pairs, float *sum) {
    __m512 c[ROWS][VECTORS];
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            c[i][v] = _mm512_loadu_ps(sum + i * BLOCK_COLS + v * LANES);
    for (int64_t p = 0; p < pairs; p++, a += ROWS, b += COLS) {
        __m512i y[VECTORS];
        for (int v = 0; v < VECTORS; v++) y[v] = _mm512_loadu_si512(b + v * LANES);
        for (int i = 0; i < ROWS; i++) {
            __m512i x = _mm512_set1_epi32((int)a[i]);
            for (int v = 0; v < VECTORS; v++)
                c[i][v] = _mm512_dpbf16_ps(c[i][v], (__m512bh)x, (__m512bh)y[v]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            _mm512_storeu_ps(sum + i * BLOCK_COLS + v * LANES, c[i][v]);
}

/* A row of the result: alpha * sum + beta * what was there. */
static void finish_row(const gemm_args *g, int64_t e, int64_t i, int64_t c, int64_t n, float *sum) {
    float alpha = (float)g->alpha.re, beta = (float)g->beta.re;
    gemm_mat from = g->init;
    if (!from.data) from = (gemm_mat){g->c, g->c_rs, g->c_cs, g->c_bs};
    if (alpha != 1.0f)
        for (int64_t k = 0; k < n; k++) sum[k] *= alpha;
    if (beta != 0.0f) {
        float old[BLOCK_COLS];
        const uint16_t *row = (const uint16_t *)from.data + e * from.bs + i * from.rs + c * from.cs;
        cpu_row_convert(g->dtype, (const char *)row, from.cs, TN_F32, (char *)old, 1, n);
        for (int64_t k = 0; k < n; k++) sum[k] += beta * old[k];
    }
    uint16_t *to = (uint16_t *)g->c + e * g->c_bs + i * g->c_rs + c * g->c_cs;
    cpu_row_convert(TN_F32, (const char *)sum, 1, g->dtype, (char *)to, g->c_cs, n);
}

static void run_block(const job *j, int64_t e, int64_t s0, int64_t p0, float *sum) {
    const gemm_args *g = j->g;
    int64_t s1 = s0 + BLOCK_STRIPS < j->strips ? s0 + BLOCK_STRIPS : j->strips;
    int64_t p1 = p0 + BLOCK_PANELS < j->panels ? p0 + BLOCK_PANELS : j->panels;
    const uint32_t *a = j->a + (g->a.bs ? e : 0) * j->strips * j->pairs * ROWS;
    const uint32_t *b = j->b + (g->b.bs ? e : 0) * j->panels * j->pairs * COLS;
    memset(sum, 0, sizeof *sum * BLOCK_STRIPS * ROWS * BLOCK_COLS);
    for (int64_t k = 0; k < j->pairs; k += DEEP) {
        int64_t n = j->pairs - k < DEEP ? j->pairs - k : DEEP;
        for (int64_t p = p0; p < p1; p++)
            for (int64_t s = s0; s < s1; s++)
                add_tile(a + (s * j->pairs + k) * ROWS, b + (p * j->pairs + k) * COLS, n,
                         sum + (s - s0) * ROWS * BLOCK_COLS + (p - p0) * COLS);
    }
    int64_t c = p0 * COLS, n = g->n - c < BLOCK_COLS ? g->n - c : BLOCK_COLS;
    for (int64_t i = s0 * ROWS; i < s1 * ROWS && i < g->m; i++)
        finish_row(g, e, i, c, n, sum + (i - s0 * ROWS) * BLOCK_COLS);
}

static tn_status run_blocks(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t blocks = j->row_blocks * j->col_blocks;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(BLOCK_STRIPS * ROWS * BLOCK_COLS, sizeof(float), &bytes, &room);
    if (st) return st;
    for (int64_t t = begin; t < end && st == TN_OK; t++) {
        int64_t e = t / blocks, block = t % blocks;
        run_block(j, e, block % j->row_blocks * BLOCK_STRIPS, block / j->row_blocks * BLOCK_PANELS,
                  room);
        if (j->pairs > 1 << 14) st = cpu_poll();
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* ---- Few rows ----------------------------------------------------------------------------------*/

/* sum (m, TOGETHER) = a @ columns, whose elements are packed along the sum. */
BF16 static void few_rows(const uint16_t *a, int64_t as, int64_t m, const uint16_t *b, int64_t bs,
                          int64_t n, int64_t k, float sum[FEW][TOGETHER]) {
    __m512 c[FEW][TOGETHER];
    for (int i = 0; i < FEW; i++)
        for (int l = 0; l < TOGETHER; l++) c[i][l] = _mm512_setzero_ps();
    for (int64_t at = 0; at < k; at += 32) {
        __mmask32 here = k - at < 32 ? (__mmask32)((UINT32_C(1) << (k - at)) - 1) : ~(__mmask32)0;
        __m512i y[TOGETHER];
        for (int l = 0; l < TOGETHER; l++)
            y[l] = _mm512_maskz_loadu_epi16(here, b + (l < n ? l : 0) * bs + at);
        for (int64_t i = 0; i < m; i++) {
            __m512i x = _mm512_maskz_loadu_epi16(here, a + i * as + at);
            for (int l = 0; l < TOGETHER; l++)
                c[i][l] = _mm512_dpbf16_ps(c[i][l], (__m512bh)x, (__m512bh)y[l]);
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int l = 0; l < TOGETHER; l++) sum[i][l] = _mm512_reduce_add_ps(c[i][l]);
}

static tn_status run_few(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    for (int64_t t = begin; t < end; t++) {
        int64_t e = t / j->col_blocks, c = t % j->col_blocks * TOGETHER;
        int64_t n = g->n - c < TOGETHER ? g->n - c : TOGETHER;
        const uint16_t *a = (const uint16_t *)g->a.data + e * g->a.bs;
        const uint16_t *b = (const uint16_t *)g->b.data + e * g->b.bs + c * g->b.cs;
        float sum[FEW][TOGETHER];
        few_rows(a, g->a.rs, g->m, b, g->b.cs, n, g->k, sum);
        for (int64_t i = 0; i < g->m; i++) finish_row(g, e, i, c, n, sum[i]);
    }
    return TN_OK;
}

/* ---- The product -------------------------------------------------------------------------------*/

static bool has_instruction(void) {
    static int known; /* 0: not asked; the answer is always the same, so a race does no harm */
    int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (has == 0) {
        bool here = cpu_isa_pick() == CPU_ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
        has = here ? 1 : -1;
        __atomic_store_n(&known, has, __ATOMIC_RELAXED);
    }
    return has > 0;
}

bool cpu_gemm_has_bf16(const gemm_args *g) {
    return g->dtype == TN_BF16 && g->k > 0 && has_instruction();
}

tn_status cpu_gemm_bf16(const tn_call *call, const gemm_args *g) {
    job j = {.g = g, .pairs = (g->k + 1) / 2};
    if (g->m <= FEW && g->b.rs == 1 && g->a.cs == 1) {
        j.col_blocks = (g->n + TOGETHER - 1) / TOGETHER;
        int64_t work = g->k * (TOGETHER + g->m);
        return cpu_parallel(room_mul(g->batch, j.col_blocks), 1 + 131072 / work, run_few, &j);
    }
    j.strips = (g->m + ROWS - 1) / ROWS;
    j.panels = (g->n + COLS - 1) / COLS;
    j.row_blocks = (j.strips + BLOCK_STRIPS - 1) / BLOCK_STRIPS;
    j.col_blocks = (j.panels + BLOCK_PANELS - 1) / BLOCK_PANELS;
    int64_t as = room_mul(g->a.bs ? g->batch : 1, j.strips);
    int64_t bs = room_mul(g->b.bs ? g->batch : 1, j.panels);
    void *a, *b;
    tn_status st = room_scratch(call, room_mul3(as, j.pairs, ROWS), sizeof *j.a, &a);
    if (!st) st = room_scratch(call, room_mul3(bs, j.pairs, COLS), sizeof *j.b, &b);
    if (st) return st;
    j.a = a;
    j.b = b;
    st = cpu_parallel(as, 1 + 16384 / (j.pairs * ROWS), pack_strips, &j);
    if (!st) st = cpu_parallel(bs, 1 + 16384 / (j.pairs * COLS), pack_panels, &j);
    if (st) return st;
    int64_t tile = j.pairs * ROWS * BLOCK_STRIPS;
    return cpu_parallel(room_mul3(g->batch, j.row_blocks, j.col_blocks), 1 + 4096 / tile,
                        run_blocks, &j);
}
#else
bool cpu_gemm_has_bf16(const gemm_args *g) {
    (void)g;
    return false;
}

tn_status cpu_gemm_bf16(const tn_call *call, const gemm_args *g) {
    (void)g;
    return call->host->fail(TN_E_UNSUPPORTED, 0, "no instruction for bfloat16");
}
#endif
