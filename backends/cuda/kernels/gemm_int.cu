/* gemm_int.cu: products of integer matrices of one element type. Sums wrap, as integers do elsewhere, so
 * their order does not matter.
 *
 * types: int */
#include "device.h"

#include "args_gemm.h"

/* Wide enough to be multiplied without a sign, and no wider: results are the low bits. */
#if TMPL_DTYPE == TMPL_I64
typedef uint64_t gemm_word;
#else
typedef uint32_t gemm_word;
#endif

TMPL_INLINE gemm_word gemm_load(const cuda_gemm_matrix &m, int64_t batch, int64_t row,
                                int64_t column) {
    const T *data = (const T *)m.data + batch * m.batch;
    return (gemm_word)data[row * m.row + column * m.column];
}

TMPL_INLINE void gemm_store(const cuda_gemm_args &a, int64_t batch, int64_t row, int64_t column,
                            gemm_word sum) {
    gemm_word x = (gemm_word)a.alpha * sum;
    if (a.beta) x += (gemm_word)a.beta * gemm_load(a.init, batch, row, column);
    ((T *)a.c.data)[batch * a.c.batch + row * a.c.row + column * a.c.column] = (T)x;
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

/* Lines of shared memory are one longer than a tile, so that threads meet in no bank when they write
 * down a column. */
enum { GEMM_LINE = GEMM_TILE + 1, GEMM_ROOM = GEMM_DEEP * GEMM_LINE };

/* Products `deep` .. deep + GEMM_DEEP of a tile of lines that begins at `first`; 0 beyond the matrix.
 * A line is a row of a, or a column of b. */
TMPL_INLINE void gemm_fill(const cuda_gemm_matrix &m, bool by_rows, int64_t batch, int64_t first,
                           int64_t lines, int64_t deep, int64_t end, gemm_word *room) {
    bool along = (by_rows ? m.column : m.row) == 1; /* neighbouring threads read neighbours */
#pragma unroll
    for (int i = 0; i < GEMM_TILE * GEMM_DEEP / CUDA_BLOCK; i++) {
        int at = i * CUDA_BLOCK + (int)threadIdx.x;
        int line = along ? at / GEMM_DEEP : at % GEMM_TILE;
        int k = along ? at % GEMM_DEEP : at / GEMM_TILE;
        int64_t x = first + line, y = deep + k;
        gemm_word v = 0;
        if (x < lines && y < end)
            v = by_rows ? gemm_load(m, batch, x, y) : gemm_load(m, batch, y, x);
        room[k * GEMM_LINE + line] = v;
    }
}

KERNEL(TN_(gemm_tiles), cuda_gemm_args) {
    SHARED(gemm_word, left, GEMM_ROOM);
    SHARED(gemm_word, right, GEMM_ROOM);
    int64_t across = (a.columns + GEMM_TILE - 1) / GEMM_TILE;
    int64_t down = (a.rows + GEMM_TILE - 1) / GEMM_TILE, tile = blockIdx.x;
    int64_t batch = tile / (across * down), in_batch = tile - batch * across * down;
    int64_t row = in_batch / across * GEMM_TILE, column = in_batch % across * GEMM_TILE;
    int x = (int)threadIdx.x % GEMM_SIDE, y = (int)threadIdx.x / GEMM_SIDE;
    gemm_word sum[GEMM_EACH][GEMM_EACH] = {{0}};
    for (int64_t deep = 0; deep < a.deep; deep += GEMM_DEEP) {
        gemm_fill(a.a, true, batch, row, a.rows, deep, a.deep, left);
        gemm_fill(a.b, false, batch, column, a.columns, deep, a.deep, right);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < GEMM_DEEP; k++)
#pragma unroll
            for (int i = 0; i < GEMM_EACH; i++)
#pragma unroll
                for (int j = 0; j < GEMM_EACH; j++)
                    sum[i][j] += left[k * GEMM_LINE + y + i * GEMM_SIDE] *
                                 right[k * GEMM_LINE + x + j * GEMM_SIDE];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < GEMM_EACH; i++)
#pragma unroll
        for (int j = 0; j < GEMM_EACH; j++) {
            int64_t r = row + y + i * GEMM_SIDE, c = column + x + j * GEMM_SIDE;
            if (r < a.rows && c < a.columns) gemm_store(a, batch, r, c, sum[i][j]);
        }
}

/* ---- Few results of many products --------------------------------------------------------------*/

/* Which result, counted over the batch. */
TMPL_INLINE void gemm_find(const cuda_gemm_args &a, int64_t result, int64_t *ret_batch,
                           int64_t *ret_row, int64_t *ret_column) {
    int64_t line = result / a.columns;
    *ret_column = result - line * a.columns;
    *ret_batch = line / a.rows;
    *ret_row = line - *ret_batch * a.rows;
}

/* The sum of what the threads of the block bring, known to thread 0. */
TMPL_INLINE gemm_word gemm_join(gemm_word mine) {
    SHARED(gemm_word, room, CUDA_BLOCK);
    int lane = (int)threadIdx.x;
    room[lane] = mine;
    __syncthreads();
    for (int n = (int)blockDim.x / 2; n > 0; n /= 2) {
        if (lane < n) room[lane] += room[lane + n];
        __syncthreads();
    }
    return room[0];
}

/* A block for each part of a result. */
KERNEL(TN_(gemm_sums), cuda_gemm_args) {
    int64_t result = blockIdx.x / a.parts, part = blockIdx.x - result * a.parts;
    int64_t batch, row, column, end = (part + 1) * a.span;
    gemm_word sum = 0;
    gemm_find(a, result, &batch, &row, &column);
    if (end > a.deep) end = a.deep;
    for (int64_t k = part * a.span + (int)threadIdx.x; k < end; k += (int)blockDim.x)
        sum += gemm_load(a.a, batch, row, k) * gemm_load(a.b, batch, k, column);
    sum = gemm_join(sum);
    if (threadIdx.x > 0) return;
    if (a.parts > 1)
        a.partial[blockIdx.x] = sum;
    else
        gemm_store(a, batch, row, column, sum);
}

/* A block for each result: its parts. */
KERNEL(TN_(gemm_finish), cuda_gemm_args) {
    int64_t batch, row, column;
    gemm_word sum = 0;
    gemm_find(a, blockIdx.x, &batch, &row, &column);
    for (int64_t i = (int)threadIdx.x; i < a.parts; i += (int)blockDim.x)
        sum += (gemm_word)a.partial[(int64_t)blockIdx.x * a.parts + i];
    sum = gemm_join(sum);
    if (threadIdx.x == 0) gemm_store(a, batch, row, column, sum);
}
