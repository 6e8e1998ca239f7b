/* gemm_half.c: products of half precision matrices of which one is small: few rows of activations by
 * a large weight. A copy of the weight in f32 would be written to memory and read again for a
 * handful of multiplications; here panels of it become f32 in the second cache and are used at
 * once. Sums are kept in f32 and rounded once. */
#include <string.h>

#include "blas.h"
#include "cpu_priv.h"
#include "gemm_priv.h"

/* Elements of a panel, its longest side along the sum, and columns where rows of B are packed. */
enum { PANEL = 1 << 16, DEEP = 1 << 12, WIDE = 1 << 8 };

typedef struct job {
    const gemm_args *g; /* alpha, beta and C */
    gemm_mat a;         /* packed f32, by rows or by columns */
    int across;         /* B's columns are packed, not its rows */
    int64_t kb, nb;     /* sizes of a panel */
    int64_t panels;     /* by columns */
} job;

/* Rows [k0, k0 + k) and columns [j0, j0 + n) of B, as n packed columns or k packed rows. */
static void take_panel(const job *j, const uint16_t *b, int64_t k0, int64_t k, int64_t j0,
                       int64_t n, float *to) {
    const gemm_mat *m = &j->g->b;
    int64_t lines = j->across ? n : k, length = j->across ? k : n;
    int64_t down = j->across ? m->cs : m->rs, along = j->across ? m->rs : m->cs;
    const uint16_t *from = b + k0 * m->rs + j0 * m->cs;
    for (int64_t i = 0; i < lines; i++) {
        cpu_row_convert(j->g->dtype, (const char *)(from + i * down), along, TN_F32,
                        (char *)(to + i * length), 1, length);
    }
}

/* sum (m, n) += alpha * a (m, k) @ panel */
static void add_panel(const job *j, int64_t m, int64_t n, int64_t k, const float *a,
                      const float *panel, float *sum) {
    float alpha = (float)j->g->alpha.re;
    int64_t ld = j->across ? k : n;
    if (m == 1) {
        int trans = j->across ? BLAS_PLAIN : BLAS_TRANS;
        BLAS(cblas_sgemv)
        (BLAS_ROWS, trans, (int)(j->across ? n : k), (int)(j->across ? k : n), alpha, panel,
         (int)ld, a, 1, 1.0f, sum, 1);
    } else {
        int ta = j->a.cs != 1;
        int64_t lda = ta ? j->a.cs : j->a.rs;
        cpu_sgemm(ta, j->across, m, n, k, alpha, a, lda, panel, ld, 1.0f, sum, n);
    }
}

/* What the sums start from: beta * C, zero where beta is. */
static void take_init(const gemm_args *g, int64_t e, int64_t j0, int64_t n, float *sum) {
    gemm_mat from = g->init;
    float beta = (float)g->beta.re;
    if (!from.data) from = (gemm_mat){g->c, g->c_rs, g->c_cs, g->c_bs};
    if (beta == 0.0f) {
        memset(sum, 0, (size_t)(g->m * n) * sizeof *sum);
        return;
    }
    for (int64_t i = 0; i < g->m; i++) {
        const uint16_t *row =
            (const uint16_t *)from.data + e * from.bs + i * from.rs + j0 * from.cs;
        cpu_row_convert(g->dtype, (const char *)row, from.cs, TN_F32, (char *)(sum + i * n), 1, n);
        for (int64_t c = 0; c < n; c++) sum[i * n + c] *= beta;
    }
}

static tn_status run_panels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    uint64_t bytes;
    void *room;
    tn_status st =
        cpu_blas_room(room_mul(room_add(j->kb, g->m), j->nb), sizeof(float), &bytes, &room);
    if (st) return st;
    float *panel = room, *sum = panel + j->kb * j->nb;
    for (int64_t t = begin; t < end && st == TN_OK; t++) {
        int64_t e = t / j->panels, j0 = t % j->panels * j->nb;
        int64_t n = g->n - j0 < j->nb ? g->n - j0 : j->nb;
        const float *a = (const float *)j->a.data + e * j->a.bs;
        const uint16_t *b = (const uint16_t *)g->b.data + e * g->b.bs;
        take_init(g, e, j0, n, sum);
        for (int64_t k0 = 0; k0 < g->k && st == TN_OK; k0 += j->kb) {
            int64_t k = g->k - k0 < j->kb ? g->k - k0 : j->kb;
            take_panel(j, b, k0, k, j0, n, panel);
            add_panel(j, g->m, n, k, a + k0 * j->a.cs, panel, sum);
            st = cpu_poll();
        }
        for (int64_t i = 0; i < g->m; i++) {
            uint16_t *row = (uint16_t *)g->c + e * g->c_bs + i * g->c_rs + j0 * g->c_cs;
            cpu_row_convert(TN_F32, (const char *)(sum + i * n), 1, g->dtype, (char *)row, g->c_cs,
                            n);
        }
    }
    cpu_blas_room_end(room, bytes);
    return st;
}

tn_status cpu_gemm_half(const gemm_args *g, const gemm_mat *a) {
    job j = {.g = g, .a = *a, .across = gemm_across(&g->b, g->k, g->n)};
    if (j.across) {
        j.kb = g->k < DEEP ? g->k : DEEP;
        j.nb = PANEL / (j.kb > 0 ? j.kb : 1);
    } else {
        j.nb = WIDE;
        j.kb = PANEL / j.nb;
    }
    if (j.nb > g->n) j.nb = g->n;
    if (j.kb > g->k) j.kb = g->k;
    j.panels = (g->n + j.nb - 1) / j.nb;
    double work = (double)j.nb * (double)(g->k + 1) * (double)(g->m + 8);
    return cpu_parallel(g->batch * j.panels, 1 + (int64_t)(2e5 / work), run_panels, &j);
}
