/* gemm_int.c: products of integer matrices, which cuBLAS has not: host side of kernels/gemm_int.cu. */
#include "gemm.h"

#include "kernels/args/args_gemm.h"

static cuda_real_kernels tiles = CUDA_REAL_KERNELS(gemm_int, gemm_tiles),
                         sums = CUDA_REAL_KERNELS(gemm_int, gemm_sums),
                         finishes = CUDA_REAL_KERNELS(gemm_int, gemm_finish);

static cuda_gemm_matrix matrix_of(const cuda_matrix *m) {
    return (cuda_gemm_matrix){m->data, m->row, m->column, m->batch};
}

/* Whether a block should add up each result by itself: a tile of a single row or column would be idle
 * for the most part, and neighbouring threads read neighbours. */
static bool is_narrow(const cuda_matrix *a, const cuda_matrix *b) {
    bool packed = a->column == 1 && b->row == 1;
    return (a->rows == 1 && b->columns == 1) || (packed && (a->rows == 1 || b->columns == 1));
}

static tn_status run_sums(const tn_call *call, cuda_gemm_args *a, int64_t results) {
    void *partial = NULL;
    tn_status st = TN_OK;
    int64_t parts = cuda_parts(a->deep, CUDA_BLOCK, results);
    a->span = (a->deep + parts - 1) / parts;
    a->parts = a->deep ? (a->deep + a->span - 1) / a->span : 1;
    if (a->parts > 1)
        st = room_scratch(call, room_mul(results, a->parts), sizeof *a->partial, &partial);
    a->partial = partial;
    if (st == TN_OK)
        st = cuda_launch(call, &sums[call->dtype], results * a->parts,
                         cuda_rows_threads(a->span, 1), a);
    if (st != TN_OK || a->parts == 1) return st;
    return cuda_launch(call, &finishes[call->dtype], results, cuda_rows_threads(a->parts, 1), a);
}

tn_status cuda_gemm_int(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                        const cuda_matrix *c, const cuda_matrix *init, int64_t n, int64_t alpha,
                        int64_t beta) {
    cuda_gemm_args g = {.a = matrix_of(a),
                        .b = matrix_of(b),
                        .c = matrix_of(c),
                        .rows = c->rows,
                        .columns = c->columns,
                        .deep = a->columns,
                        .parts = 1,
                        .alpha = alpha,
                        .beta = init ? beta : 0};
    if (init) g.init = matrix_of(init);
    if (c->rows == 0 || c->columns == 0 || n == 0) return TN_OK;
    if (is_narrow(a, b)) return run_sums(call, &g, n * c->rows * c->columns);
    int64_t across = (c->columns + GEMM_TILE - 1) / GEMM_TILE;
    int64_t down = (c->rows + GEMM_TILE - 1) / GEMM_TILE;
    return cuda_launch(call, &tiles[call->dtype], n * across * down, CUDA_BLOCK, &g);
}
