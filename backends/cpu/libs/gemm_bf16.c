/* gemm_bf16.c: products of bfloat16 matrices with the processor's own instructions: those that add
 * the products of two pairs to a float, or those that multiply tiles (gemm_bf16_units.c).
 *
 * Note [Panels]
 * Pairs of elements that follow each other along the sum stand together in 32 bits. A is packed in strips
 * of rows and B in panels of columns, pair after pair, with zeros where the matrix ends; a strip for
 * tiles holds a row's next pairs side by side. Sums stay in registers while a strip and a panel
 * pass by, some hundred pairs at a time. A product of few rows with a matrix whose columns are packed in
 * memory reads that matrix as it is, once.
 * Every sum runs over its pairs in one order, whatever the grid of blocks is. */
#include <string.h>

#include "copy.h"
#include "cpu_priv.h"
#include "gemm_bf16.h"
#include "gemm_priv.h"

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum { TURNED = BF16_TURNED, LINE = 16, MAX_ROWS = 32, MAX_COLS = 256 };
enum { FEW = 8, TOGETHER = 4 }; /* rows of a product without packing, columns at once */

typedef struct job {
    const gemm_args *g;
    const bf16_unit *unit;
    uint32_t *a, *b; /* packed: (entry, strip, pair, row), (entry, panel, pair, column) or NULL */
    int64_t pairs, strips, panels, row_blocks, col_blocks;
} job;

static int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Packing -----------------------------------------------------------------------------------*/

/* The next n lines of a matrix whose element (line, k) stands at line * ls + k * ks, as (pair, width);
 * lines past n are zeros. */
BF16 static void pack_pairs(const uint16_t *from, int64_t ls, int64_t ks, int64_t k, int64_t n,
                            int64_t width, uint32_t *to) {
    int64_t whole = k / 2;
    if (n < width) memset(to, 0, (size_t)((k + 1) / 2 * width) * sizeof *to);
    if (ks == 1) {
        cpu_gather_tile(to, width * 4, from, ls * 2, whole, n, 4);
    } else {
        for (int64_t p = 0; p < whole; p++) {
            const uint16_t *x = from + 2 * p * ks, *y = x + ks;
            uint32_t *row = to + p * width;
            if (ls == 1 && n % TURNED == 0) {
                for (int64_t i = 0; i < n; i += TURNED)
                    for (int64_t l = i; l < i + TURNED; l++) row[l] = x[l] | (uint32_t)y[l] << 16;
            } else {
                for (int64_t i = 0; i < n; i++) row[i] = x[i * ls] | (uint32_t)y[i * ls] << 16;
            }
        }
    }
    if (k % 2)
        for (int64_t i = 0; i < n; i++) to[whole * width + i] = from[i * ls + (k - 1) * ks];
}

/* The same as (block of TURNED pairs, line, pair of the block). */
static void pack_turned(const uint16_t *from, int64_t ls, int64_t ks, int64_t k, int64_t n,
                        int64_t width, uint32_t *to) {
    for (int64_t at = 0; at < k; at += 2 * TURNED, from += 2 * TURNED * ks, to += TURNED * width) {
        int64_t here = smaller(2 * TURNED, k - at);
        if (n < width || here < 2 * TURNED) memset(to, 0, (size_t)(TURNED * width) * sizeof *to);
        if (ks != 1) {
            uint32_t pairs[TURNED * MAX_ROWS];
            pack_pairs(from, ls, ks, here, n, width, pairs);
            cpu_gather_tile(to, TURNED * 4, pairs, width * 4, n, (here + 1) / 2, 4);
        } else if (here == 2 * TURNED) {
            for (int64_t i = 0; i < n; i++)
                memcpy(to + i * TURNED, from + i * ls, TURNED * sizeof *to);
        } else {
            for (int64_t i = 0; i < n; i++)
                memcpy(to + i * TURNED, from + i * ls, (size_t)here * sizeof *from);
        }
    }
}

static void pack_strip(const bf16_unit *u, const uint16_t *a, int64_t rs, int64_t cs, int64_t k,
                       int64_t n, uint32_t *to) {
    if (u->turned)
        pack_turned(a, rs, cs, k, n, u->rows, to);
    else
        pack_pairs(a, rs, cs, k, n, u->rows, to);
}

static tn_status pack_strips(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    int64_t rows = j->unit->rows;
    for (int64_t s = begin; s < end; s++) {
        int64_t e = s / j->strips, i = s % j->strips * rows, n = smaller(rows, g->m - i);
        const uint16_t *a = (const uint16_t *)g->a.data + e * g->a.bs + i * g->a.rs;
        pack_strip(j->unit, a, g->a.rs, g->a.cs, g->k, n, j->a + s * j->pairs * rows);
    }
    return TN_OK;
}

/* pack_pairs with zeros up to so many pairs. */
static void pack_padded(const uint16_t *from, int64_t ls, int64_t ks, int64_t k, int64_t n,
                        int64_t width, int64_t pairs, uint32_t *to) {
    int64_t packed = (k + 1) / 2 * width;
    pack_pairs(from, ls, ks, k, n, width, to);
    memset(to + packed, 0, (size_t)(pairs * width - packed) * sizeof *to);
}

/* Panel p of an entry from pair `first` on, as the product reads it. */
static void pack_panel(const job *j, int64_t e, int64_t p, int64_t first, int64_t pairs,
                       uint32_t *to) {
    const gemm_args *g = j->g;
    int64_t cols = j->unit->cols, c = p * cols, n = smaller(cols, g->n - c);
    int64_t k = smaller(2 * pairs, g->k - 2 * first);
    const uint16_t *b =
        (const uint16_t *)g->b.data + e * g->b.bs + c * g->b.cs + 2 * first * g->b.rs;
    pack_padded(b, g->b.cs, g->b.rs, k, n, cols, pairs, to);
}

static tn_status pack_panels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t s = begin; s < end; s++)
        pack_panel(j, s / j->panels, s % j->panels, 0, j->pairs,
                   j->b + s * j->pairs * j->unit->cols);
    return TN_OK;
}

/* ---- Packing for kernels that run their own blocks ---------------------------------------------*/

/* Lanes 0 to n of 32 and of 16. */
static __mmask32 lanes_32(int64_t n) {
    return n <= 0 ? 0 : n >= 32 ? ~(__mmask32)0 : (__mmask32)((UINT32_C(1) << n) - 1);
}

static __mmask16 lanes_16(int64_t n) { return (__mmask16)lanes_32(n > 16 ? 16 : n); }

BF16 static inline void pair_vector(const uint16_t *x, const uint16_t *y, __mmask16 here,
                                    uint32_t *to) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, x));
    if (y) {
        __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, y));
        low = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
    _mm512_mask_storeu_epi32(to, here, low);
}

BF16 void cpu_bf16_pairs(const uint16_t *x, const uint16_t *y, int64_t n, uint32_t *to) {
    for (int64_t i = 0; i < n; i += LINE)
        pair_vector(x + i, y ? y + i : NULL, lanes_16(n - i), to + i);
}

BF16 void cpu_bf16_pair_lines(const uint16_t *x, int64_t ls, int64_t n, int64_t cs,
                              int64_t channels, int64_t size, uint32_t *to, int64_t ld) {
    for (int64_t c = 0; c < channels; c += 2, to += size) {
        const uint16_t *from = x + c * cs, *next = c + 1 < channels ? from + cs : NULL;
        for (int64_t i = 0; i < size; i += LINE) {
            __mmask16 here = lanes_16(size - i);
            for (int64_t l = 0; l < n; l++)
                pair_vector(from + l * ls + i, next ? next + l * ls + i : NULL, here,
                            to + l * ld + i);
        }
    }
}

void cpu_bf16_strip(const bf16_unit *u, const uint16_t *from, int64_t ls, int64_t k, int64_t n,
                    uint32_t *to) {
    pack_strip(u, from, ls, 1, k, n, to);
}

void cpu_bf16_panel(const uint16_t *from, int64_t ls, int64_t k, int64_t n, int64_t width,
                    int64_t pairs, uint32_t *to) {
    pack_padded(from, ls, 1, k, n, width, pairs, to);
}

BF16 void cpu_bf16_runs(const uint16_t *x, const bf16_run *run, int64_t runs, const int64_t *line,
                        int64_t lines, int64_t ld, uint16_t *to) {
    __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32,
                                    30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (const bf16_run *r = run; r < run + runs; r++) {
        __mmask32 here = lanes_32(r->n), a = lanes_32(2 * r->n - 1), b = lanes_32(2 * r->n - 33);
        for (int64_t l = 0; l < lines; l++) {
            const uint16_t *from = x + line[l] + r->from;
            uint16_t *dst = to + l * ld + r->at;
            if (r->step == 1) {
                _mm512_mask_storeu_epi16(dst, here, _mm512_maskz_loadu_epi16(here, from));
            } else if (r->step == 2) {
                __m512i first = _mm512_maskz_loadu_epi16(a, from);
                __m512i next = _mm512_maskz_loadu_epi16(b, from + 32);
                _mm512_mask_storeu_epi16(dst, here, _mm512_permutex2var_epi16(first, even, next));
            } else {
                for (int64_t i = 0; i < r->n; i++) dst[i] = from[i * r->step];
            }
        }
    }
}

BF16 void cpu_bf16_runs_of_pairs(const uint32_t *x, const bf16_run *run, int64_t runs,
                                 const int64_t *line, int64_t lines, int64_t ld, uint32_t *to) {
    __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (const bf16_run *r = run; r < run + runs; r++) {
        __mmask16 here = lanes_16(r->n), a = lanes_16(2 * r->n - 1), b = lanes_16(2 * r->n - 17);
        for (int64_t l = 0; l < lines; l++) {
            const uint32_t *from = x + line[l] + r->from;
            uint32_t *dst = to + l * ld + r->at;
            if (r->step == 1) {
                _mm512_mask_storeu_epi32(dst, here, _mm512_maskz_loadu_epi32(here, from));
            } else if (r->step == 2) {
                __m512i first = _mm512_maskz_loadu_epi32(a, from);
                __m512i next = _mm512_maskz_loadu_epi32(b, from + 16);
                _mm512_mask_storeu_epi32(dst, here, _mm512_permutex2var_epi32(first, even, next));
            } else {
                for (int64_t i = 0; i < r->n; i++) dst[i] = from[i * r->step];
            }
        }
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------*/

/* A row of the result: alpha * sum + beta * what was there. */
static void finish_row(const gemm_args *g, int64_t e, int64_t i, int64_t c, int64_t n, float *sum) {
    float alpha = (float)g->alpha.re, beta = (float)g->beta.re;
    gemm_mat from = g->init;
    if (!from.data) from = (gemm_mat){g->c, g->c_rs, g->c_cs, g->c_bs};
    if (alpha != 1.0f)
        for (int64_t k = 0; k < n; k++) sum[k] *= alpha;
    if (beta != 0.0f) {
        float old[MAX_COLS];
        const uint16_t *row = (const uint16_t *)from.data + e * from.bs + i * from.rs + c * from.cs;
        cpu_row_convert(g->dtype, (const char *)row, from.cs, TN_F32, (char *)old, 1, n);
        for (int64_t k = 0; k < n; k++) sum[k] += beta * old[k];
    }
    uint16_t *to = (uint16_t *)g->c + e * g->c_bs + i * g->c_rs + c * g->c_cs;
    cpu_row_convert(TN_F32, (const char *)sum, 1, g->dtype, (char *)to, g->c_cs, n);
}

/* Between rows of a block's sums: not a power of two, so that they do not share a set of the cache. */
static int64_t block_ld(const bf16_unit *u) { return u->block_panels * u->cols + LINE; }

/* Sums of a block, and its panels where no other block of rows reads them. */
typedef struct block_room {
    float *sum;
    uint32_t *panels;
} block_room;

static void run_block(const job *j, int64_t e, int64_t s0, int64_t p0, block_room room) {
    const gemm_args *g = j->g;
    const bf16_unit *u = j->unit;
    int64_t s1 = smaller(s0 + u->block_strips, j->strips);
    int64_t p1 = smaller(p0 + u->block_panels, j->panels);
    int64_t ld = block_ld(u);
    const uint32_t *a = j->a + (g->a.bs ? e : 0) * j->strips * j->pairs * u->rows;
    const uint32_t *b =
        j->b ? j->b + ((g->b.bs ? e : 0) * j->panels + p0) * j->pairs * u->cols : NULL;
    bf16_add add = {.ld = ld};
    for (int64_t k = 0; k < j->pairs; k += u->deep) {
        add.pairs = smaller(u->deep, j->pairs - k);
        add.first = k == 0;
        int64_t next = (b ? j->pairs : add.pairs) * u->cols;
        for (int64_t p = p0; !b && p < p1; p++)
            pack_panel(j, e, p, k, add.pairs, room.panels + (p - p0) * next);
        for (int64_t p = p0; p < p1; p++) {
            add.b = (b ? b + k * u->cols : room.panels) + (p - p0) * next;
            add.cols = g->n - p * u->cols;
            for (int64_t s = s0; s < s1; s++) {
                add.a = a + (s * j->pairs + k) * u->rows;
                add.rows = g->m - s * u->rows;
                add.sum = room.sum + (s - s0) * u->rows * ld + (p - p0) * u->cols;
                u->add(&add);
            }
        }
    }
    int64_t c = p0 * u->cols, n = smaller(u->block_panels * u->cols, g->n - c);
    for (int64_t i = s0 * u->rows; i < s1 * u->rows && i < g->m; i++)
        finish_row(g, e, i, c, n, room.sum + (i - s0 * u->rows) * ld);
}

static tn_status run_blocks(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const bf16_unit *u = j->unit;
    int64_t blocks = j->row_blocks * j->col_blocks;
    int64_t sums = room_mul3(u->block_strips, u->rows, block_ld(u));
    int64_t packed = j->b ? 0 : room_mul3(u->block_panels, u->cols, u->deep);
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(sums + packed, sizeof(float), &bytes, &room);
    if (st) return st;
    block_room at = {room, (uint32_t *)room + sums};
    if (u->begin) u->begin();
    for (int64_t t = begin; t < end && st == TN_OK; t++) {
        int64_t e = t / blocks, block = t % blocks;
        run_block(j, e, block % j->row_blocks * u->block_strips,
                  block / j->row_blocks * u->block_panels, at);
        if (j->pairs > 1 << 14) st = cpu_poll();
    }
    if (u->end) u->end();
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
        int64_t n = smaller(TOGETHER, g->n - c);
        const uint16_t *a = (const uint16_t *)g->a.data + e * g->a.bs;
        const uint16_t *b = (const uint16_t *)g->b.data + e * g->b.bs + c * g->b.cs;
        float sum[FEW][TOGETHER];
        few_rows(a, g->a.rs, g->m, b, g->b.cs, n, g->k, sum);
        for (int64_t i = 0; i < g->m; i++) finish_row(g, e, i, c, n, sum[i]);
    }
    return TN_OK;
}

/* ---- A product of kernels that run their own tiles ---------------------------------------------*/

bool cpu_has_bf16_tiles(void) {
    const bf16_unit *u = cpu_bf16_unit();
    return u && u->turned;
}

int64_t cpu_bf16_product_room(int64_t m, int64_t n, int64_t k) {
    const bf16_unit *u = cpu_bf16_unit();
    int64_t pairs = whole((k + 1) / 2, u->step), tile = room_mul(u->rows, u->cols);
    int64_t packed =
        room_add(room_mul(whole(m, u->rows), pairs), room_mul(whole(n, u->cols), pairs));
    return room_add(packed, tile);
}

/* One tile of it, of whose sums add->rows by add->cols are wanted at `to`. */
static void product_tile(const bf16_unit *u, bf16_add *add, float *tile, float *to, int64_t c_rs,
                         bool more) {
    bool direct = add->rows == u->rows && add->cols == u->cols;
    add->sum = direct ? to : tile;
    add->ld = direct ? c_rs : u->cols;
    add->first = !direct || !more;
    u->add(add);
    for (int64_t r = 0; !direct && r < add->rows; r++)
        for (int64_t q = 0; q < add->cols; q++)
            to[r * c_rs + q] = (more ? to[r * c_rs + q] : 0) + tile[r * u->cols + q];
}

void cpu_bf16_product(const bf16_product *p, float *room) {
    const bf16_unit *u = cpu_bf16_unit();
    int64_t pairs = whole((p->k + 1) / 2, u->step);
    uint32_t *strip = (uint32_t *)(void *)room, *panels = strip + pairs * u->rows;
    float *tile = room + pairs * (u->rows + whole(p->n, u->cols));
    bf16_add add = {.a = strip, .pairs = pairs};
    for (int64_t c = 0; c < p->n; c += u->cols)
        pack_padded(p->b + c * p->b_cs, p->b_cs, p->b_rs, p->k, smaller(u->cols, p->n - c), u->cols,
                    pairs, panels + c * pairs);
    if (u->begin) u->begin();
    for (int64_t part = 0; part < p->parts; part++)
        for (int64_t i = 0; i < p->m; i += u->rows) {
            add.rows = smaller(u->rows, p->m - i);
            pack_strip(u, p->a + part * p->part + i * p->a_rs, p->a_rs, p->a_cs, p->k, add.rows,
                       strip);
            for (int64_t c = 0; c < p->n; c += u->cols) {
                add.cols = smaller(u->cols, p->n - c);
                add.b = panels + c * pairs;
                product_tile(u, &add, tile, p->c + i * p->c_rs + c, p->c_rs, p->add || part > 0);
            }
        }
    if (u->end) u->end();
}

/* ---- The product -------------------------------------------------------------------------------*/

bool cpu_gemm_has_bf16(const gemm_args *g) {
    return g->dtype == TN_BF16 && g->k > 0 && cpu_bf16_unit() != NULL;
}

tn_status cpu_gemm_bf16(const tn_call *call, const gemm_args *g) {
    job j = {.g = g, .unit = cpu_bf16_unit(), .pairs = (g->k + 1) / 2};
    if (g->m <= FEW && g->b.rs == 1 && g->a.cs == 1) {
        j.col_blocks = (g->n + TOGETHER - 1) / TOGETHER;
        int64_t work = g->k * (TOGETHER + g->m);
        return cpu_parallel(room_mul(g->batch, j.col_blocks), 1 + 131072 / work, run_few, &j);
    }
    const bf16_unit *u = j.unit;
    j.pairs = whole(j.pairs, u->step);
    j.strips = (g->m + u->rows - 1) / u->rows;
    j.panels = (g->n + u->cols - 1) / u->cols;
    j.row_blocks = (j.strips + u->block_strips - 1) / u->block_strips;
    j.col_blocks = (j.panels + u->block_panels - 1) / u->block_panels;
    int64_t as = room_mul(g->a.bs ? g->batch : 1, j.strips);
    int64_t bs = room_mul(g->b.bs ? g->batch : 1, j.panels);
    bool shared = j.row_blocks > 1 || (g->batch > 1 && !g->b.bs);
    void *a, *b = NULL;
    tn_status st = room_scratch(call, room_mul3(as, j.pairs, u->rows), sizeof *j.a, &a);
    if (!st && shared) st = room_scratch(call, room_mul3(bs, j.pairs, u->cols), sizeof *j.b, &b);
    if (st) return st;
    j.a = a;
    j.b = b;
    st = cpu_parallel(as, 1 + 16384 / (j.pairs * u->rows), pack_strips, &j);
    if (!st && shared) st = cpu_parallel(bs, 1 + 16384 / (j.pairs * u->cols), pack_panels, &j);
    if (st) return st;
    int64_t block = j.pairs * u->rows * u->block_strips;
    return cpu_parallel(room_mul3(g->batch, j.row_blocks, j.col_blocks), 1 + 4096 / block,
                        run_blocks, &j);
}
#else
/* No unit, no caller. */
void cpu_bf16_pairs(const uint16_t *x, const uint16_t *y, int64_t n, uint32_t *to) {
    (void)x, (void)y, (void)n, (void)to;
}

void cpu_bf16_pair_lines(const uint16_t *x, int64_t ls, int64_t n, int64_t cs, int64_t channels,
                         int64_t size, uint32_t *to, int64_t ld) {
    (void)x, (void)ls, (void)n, (void)cs, (void)channels, (void)size, (void)to, (void)ld;
}

void cpu_bf16_strip(const bf16_unit *u, const uint16_t *from, int64_t ls, int64_t k, int64_t n,
                    uint32_t *to) {
    (void)u, (void)from, (void)ls, (void)k, (void)n, (void)to;
}

void cpu_bf16_panel(const uint16_t *from, int64_t ls, int64_t k, int64_t n, int64_t width,
                    int64_t pairs, uint32_t *to) {
    (void)from, (void)ls, (void)k, (void)n, (void)width, (void)pairs, (void)to;
}

void cpu_bf16_runs(const uint16_t *x, const bf16_run *run, int64_t runs, const int64_t *line,
                   int64_t lines, int64_t ld, uint16_t *to) {
    (void)x, (void)run, (void)runs, (void)line, (void)lines, (void)ld, (void)to;
}

void cpu_bf16_runs_of_pairs(const uint32_t *x, const bf16_run *run, int64_t runs,
                            const int64_t *line, int64_t lines, int64_t ld, uint32_t *to) {
    (void)x, (void)run, (void)runs, (void)line, (void)lines, (void)ld, (void)to;
}

bool cpu_has_bf16_tiles(void) { return false; }

int64_t cpu_bf16_product_room(int64_t m, int64_t n, int64_t k) {
    (void)m, (void)n, (void)k;
    return 0;
}

void cpu_bf16_product(const bf16_product *p, float *room) { (void)p, (void)room; }

bool cpu_gemm_has_bf16(const gemm_args *g) {
    (void)g;
    return false;
}

tn_status cpu_gemm_bf16(const tn_call *call, const gemm_args *g) {
    (void)g;
    return call->host->fail(TN_E_UNSUPPORTED, 0, "no instruction for bfloat16");
}
#endif
