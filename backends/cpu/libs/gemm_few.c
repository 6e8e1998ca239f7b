/* gemm_few.c: products of few rows by a matrix, as layers make of a small batch and recurrent networks at
 * every step. A BLAS copies the matrix into panels first, which takes as long as a few rows'
 * multiplications; here it is read as it lies, once from memory.
 *
 * Where its columns are packed, as those of a layer's weight, a row and a column are multiplied vector by
 * vector along the sum; where its rows are, each element of a row of A meets whole vectors of B's row. A tile
 * of sums stays in registers meanwhile. Each sum runs in an order that follows from the sizes
 * alone. The limit is the rate of multiply-adds, or for less than some four rows that of memory. */
#include "caches.h"
#include "copy.h"
#include "cpu_priv.h"
#include "gemm_priv.h"
#include "gemm_tiles.h"

/* Rows at most of narrow tiles along rows, and of wide ones by a B that the second cache does not keep;
 * columns and length of the sum at least. */
enum { FEW_NARROW = 8, FEW_FAR = 23, FEW_SIDE = 16 };
enum { SMALL = 1 << 16 }; /* elements of a B that OpenBLAS's kernels for AVX-512 read as it lies */

typedef struct job {
    const gemm_args *g;
    gemm_columns_fn run;
    int64_t width, groups; /* columns of a group, groups of an entry */
} job;

static tn_status run_groups(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    cpu_stretch s = {.n = end - begin, .cost = room_mul3(g->m, g->k, j->width) / 8};
    while (cpu_next_stretch(&s)) {
        for (int64_t t = begin + s.begin; t < begin + s.end; t++) {
            int64_t at = t % j->groups * j->width, left = g->n - at;
            j->run(g, t / j->groups, at, left < j->width ? left : j->width);
        }
    }
    return s.st;
}

static bool has_dots(const gemm_args *g) { return g->b.rs == 1 && g->b.cs >= g->k; }

/* Where these tiles were faster than OpenBLAS, measured on Zen 4. Its kernels for AVX-512 do not pack what is
 * small. The sums across vectors at the end of a dot must be few beside the dot. Narrow tiles
 * would read rows of B, each in a page of its own, too often, and so would many rows by a large B. */
bool cpu_gemm_has_few(const gemm_args *g) {
    const gemm_tiles *tiles = cpu_gemm_tiles(g->dtype);
    if (!tiles || g->m < 2 || g->m > TILE_MOST || g->n < FEW_SIDE || g->k < FEW_SIDE) return false;
    bool wide = tiles->block;
    bool small = room_mul(g->n, g->k) <= SMALL && room_mul3(g->m, g->n, g->k) <= 8 * SMALL;
    if (wide && small) return false;
    if (has_dots(g)) return g->a.cs == 1 && 4 * g->m < g->k;
    double bytes = (double)g->n * (double)g->k * (double)cpu_row_item(g->dtype);
    if (wide && g->m > FEW_FAR && bytes > (double)cpu_os_l2_bytes() / 2) return false;
    return g->b.cs == 1 && (wide || g->m <= FEW_NARROW);
}

tn_status cpu_gemm_few(const gemm_args *g) {
    const gemm_tiles *tiles = cpu_gemm_tiles(g->dtype);
    bool dots = has_dots(g);
    job j = {.g = g, .run = dots ? tiles->dot_columns : tiles->row_columns};
    j.width = dots ? TILE_DOT_COLS : TILE_VECTORS * tiles->lanes;
    j.groups = (g->n + j.width - 1) / j.width;
    double work = (double)g->m * (double)g->k * (double)j.width;
    return cpu_parallel(room_mul(g->batch, j.groups), 1 + (int64_t)(2e5 / work), run_groups, &j);
}
