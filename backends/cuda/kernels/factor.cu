/* factor.cu: LU and Cholesky factors of matrices, a few columns at a time, and triangular systems, for one
 * element type. Between these steps core's host side multiplies matrices. A matrix is stored by rows.
 *
 * types: f32 f64 c64 c128 */
#include "join_lanes.h"
#include "planes.h"

#include "args_factor.h"
#include "scalar.h"

/* ---- LU ----------------------------------------------------------------------------------------*/

/* A row's number, as wide as RA: without gaps in what follows. */
#if TMPL_DTYPE == TMPL_F64 || TMPL_DTYPE == TMPL_C128
typedef int64_t factor_row;
#else
typedef int32_t factor_row;
#endif

/* The largest element of a column, the first of equal ones. */
typedef struct factor_best {
    RA size;
    factor_row at;
} factor_best;

TMPL_INLINE factor_best lanes_swap(factor_best x, int by) {
    factor_best other = {lanes_swap(x.size, by), lanes_swap(x.at, by)};
    return other;
}

struct factor_larger {
    CUDA_MEMBER factor_best operator()(factor_best x, factor_best y) const {
        return x.size > y.size || (x.size == y.size && x.at < y.at) ? x : y;
    }
};

/* What LAPACK compares; NaN is the largest. */
TMPL_INLINE RA factor_size(A x) {
#if TMPL_IS_COMPLEX
    RA size = fabs(x.re) + fabs(x.im);
#else
    RA size = f_abs(x);
#endif
    return size != size ? (RA)INFINITY : size;
}

/* A block factors the columns of one matrix, with exchanges of rows within them. */
KERNEL(TN_(factor_panel), cuda_factor_args) {
    SHARED(factor_best, room, CUDA_BLOCK / 32);
    T *m = (T *)a.a + blockIdx.x * a.rows * a.columns;
    int32_t *pivots = a.pivots + blockIdx.x * a.least, *info = a.info + blockIdx.x;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    int64_t column = a.first + lane;
    if (a.first == 0 && threadIdx.x == 0) *info = 0;
    for (int64_t j = a.first; j < a.first + a.width; j++) {
        factor_best best = {-1, INT32_MAX};
        for (int64_t r = j + threadIdx.x; r < a.rows; r += blockDim.x) {
            RA size = factor_size(LOAD(m[r * a.columns + j]));
            if (size > best.size) best.size = size, best.at = (factor_row)r;
        }
        best = lanes_join_row(room, best, (int)blockDim.x, factor_larger());
        T *top = m + j * a.columns, *other = m + best.at * a.columns;
        if (threadIdx.x == 0) {
            pivots[j] = (int32_t)best.at + 1;
            if (best.size == 0 && *info == 0) *info = (int32_t)(j + 1);
        }
        if ((int64_t)threadIdx.x < a.width && other != top) {
            T x = top[column];
            top[column] = other[column];
            other[column] = x;
        }
        __syncthreads();
        bool mine = lane < a.width && column > j;
        A pivot = LOAD(top[j]), above = mine ? LOAD(top[column]) : pivot;
        for (int64_t r = j + 1 + warp; r < a.rows && best.size != 0; r += warps) {
            T *row = m + r * a.columns;
            A factor = f_true_divide(LOAD(row[j]), pivot);
            __syncwarp(0xffffffffu);
            if (mine) row[column] = STORE(LOAD(row[column]) - f_mul(factor, above));
            if (column == j) row[j] = STORE(factor);
        }
        __syncthreads();
    }
}

/* The other columns, one to a thread: rows are exchanged, and those on the right are divided by the lower
 * factor. */
KERNEL(TN_(factor_columns), cuda_factor_args) {
    int64_t i = cuda_thread(), others = a.columns - a.width;
    if (i >= a.count * others) return;
    int64_t c = planes_cut(&i, others);
    if (c >= a.first) c += a.width;
    T *m = (T *)a.a + i * a.rows * a.columns, *top = m + a.first * a.columns;
    const int32_t *pivots = a.pivots + i * a.least + a.first;
    for (int r = 0; r < a.width; r++) {
        T *x = top + r * a.columns + c, *y = m + (pivots[r] - 1) * a.columns + c, t = *x;
        *x = *y;
        *y = t;
    }
    if (c < a.first) return;
    A x[CUDA_FACTOR_WIDTH];
#pragma unroll
    for (int r = 0; r < CUDA_FACTOR_WIDTH; r++) {
        if (r >= a.width) continue;
        x[r] = LOAD(top[r * a.columns + c]);
#pragma unroll
        for (int s = 0; s < r; s++)
            x[r] = x[r] - f_mul(LOAD(top[r * a.columns + a.first + s]), x[s]);
        top[r * a.columns + c] = STORE(x[r]);
    }
}

/* The exchanges as an order of rows: a block for each matrix, of which one thread exchanges. */
KERNEL(TN_(factor_order), cuda_factor_args) {
    SHARED(int32_t, near, CUDA_FACTOR_ORDER);
    const int32_t *pivots = a.pivots + blockIdx.x * a.least;
    int64_t *order = a.order + blockIdx.x * a.rows;
    bool fits = a.rows <= CUDA_FACTOR_ORDER;
    for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) {
        if (fits)
            near[r] = (int32_t)r;
        else
            order[r] = r;
    }
    __syncthreads();
    for (int64_t r = 0; r < a.least && threadIdx.x == 0; r++) {
        int64_t other = (int64_t)pivots[r] - 1;
        if (other < 0 || other >= a.rows) {
            cuda_report(a.fault, a.op, pivots[r], a.rows + 1);
            break;
        }
        int64_t here = fits ? near[r] : order[r], there = fits ? near[other] : order[other];
        if (fits) {
            near[r] = (int32_t)there;
            near[other] = (int32_t)here;
        } else {
            order[r] = there;
            order[other] = here;
        }
    }
    __syncthreads();
    for (int64_t r = threadIdx.x; r < a.rows && fits; r += blockDim.x) order[r] = near[r];
}

/* Right sides in that order. */
KERNEL(TN_(factor_gather), cuda_factor_args) {
    int64_t i = cuda_thread(), at = i;
    if (i >= a.count * a.rows * a.right) return;
    int64_t column = planes_cut(&at, a.right), row = planes_cut(&at, a.rows);
    int64_t from = a.order[at * a.rows + row];
    const T *x = (const T *)a.from;
    ((T *)a.b)[i] = x ? x[(at * a.rows + from) * a.right + column] : STORE((A)(RA)(from == column));
}

struct factor_sum {
    CUDA_MEMBER int operator()(int x, int y) const { return x + y; }
};

/* Determinants: the sign of the exchanges times the diagonal, in its order. */
KERNEL(TN_(factor_determinant), cuda_factor_args) {
    SHARED(A, part, CUDA_BLOCK);
    SHARED(RA, part_log, CUDA_BLOCK);
    SHARED(int, room, CUDA_BLOCK / 32);
    const T *m = (const T *)a.a + blockIdx.x * a.rows * a.rows;
    const int32_t *pivots = a.pivots + blockIdx.x * a.rows;
    int flips = 0, me = (int)threadIdx.x;
    for (int64_t i = me; i < a.rows; i += blockDim.x) flips += pivots[i] != i + 1;
    flips = lanes_join_row(room, flips, (int)blockDim.x, factor_sum());
    A product = (A)(RA)(flips % 2 ? -1 : 1);
    RA sum = 0;
    for (int64_t first = 0; first < a.rows; first += blockDim.x) {
        int64_t i = first + me, left = a.rows - first;
        if (i < a.rows) {
            A x = LOAD(m[i * (a.rows + 1)]);
            RA size = a.log ? (RA)f_abs(x) : (RA)0;
            part[me] = size > 0 ? f_true_divide(x, (A)size) : x;
            part_log[me] = a.log ? (RA)log((double)size) : (RA)0;
        }
        __syncthreads();
        for (int64_t k = 0; k < left && k < blockDim.x && me == 0; k++) {
            product = f_mul(product, part[k]);
            sum += part_log[k];
        }
        __syncthreads();
    }
    if (me > 0) return;
    ((T *)a.sign)[blockIdx.x] = STORE(product);
    if (a.log) ((RA *)a.log)[blockIdx.x] = sum;
}

struct factor_less {
    CUDA_MEMBER RA operator()(RA x, RA y) const { return x < y ? x : y; }
};
struct factor_more {
    CUDA_MEMBER RA operator()(RA x, RA y) const { return x > y ? x : y; }
};

/* 1 for a matrix whose factors say too little of its cofactors, else 0. */
KERNEL(TN_(factor_condition), cuda_factor_args) {
    SHARED(RA, room, CUDA_BLOCK / 32);
    SHARED(RA, other_room, CUDA_BLOCK / 32);
    const T *m = (const T *)a.a + blockIdx.x * a.rows * a.rows;
    const RA epsilon = (RA)(sizeof(RA) == 8 ? 0x1p-52 : 0x1p-23);
    RA low = (RA)INFINITY, high = 0;
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) {
        RA size = (RA)f_abs(LOAD(m[i * (a.rows + 1)]));
        low = size < low ? size : low;
        high = size > high ? size : high;
    }
    low = lanes_join_row(room, low, (int)blockDim.x, factor_less());
    high = lanes_join_row(other_room, high, (int)blockDim.x, factor_more());
    if (threadIdx.x == 0) a.info[blockIdx.x] = !(low > high * 64 * (RA)a.rows * epsilon);
}

/* The transposed inverse times the determinant. */
KERNEL(TN_(factor_cofactors), cuda_factor_args) {
    int64_t i = cuda_thread(), at = i;
    if (i >= a.count * a.rows * a.rows) return;
    int64_t c = planes_cut(&at, a.rows), r = planes_cut(&at, a.rows);
    A x = LOAD(((const T *)a.from)[(at * a.rows + c) * a.rows + r]);
    ((T *)a.b)[i] = STORE(f_mul(x, LOAD(((const T *)a.sign)[at])));
}

/* Infinity where a matrix has no inverse. */
KERNEL(TN_(factor_refuse), cuda_factor_args) {
    int64_t i = cuda_thread();
    if (i >= a.count * a.rows * a.rows) return;
    if (a.info[i / (a.rows * a.rows)] > 0) ((T *)a.b)[i] = STORE((A)(RA)INFINITY);
}

/* ---- Triangular systems ------------------------------------------------------------------------*/

/* Rows first .. of each right side, one to a thread. */
template <bool UPPER> TMPL_INLINE void factor_solve(const cuda_factor_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.count * a.right) return;
    int64_t c = planes_cut(&i, a.right);
    const T *m = (const T *)a.a + i * a.rows * a.rows + a.first * (a.rows + 1);
    T *b = (T *)a.b + (i * a.rows + a.first) * a.right + c;
    A x[CUDA_FACTOR_WIDTH];
#pragma unroll
    for (int t = 0; t < CUDA_FACTOR_WIDTH; t++) {
        int r = UPPER ? CUDA_FACTOR_WIDTH - 1 - t : t;
        if (r >= a.width) continue;
        x[r] = LOAD(b[r * a.right]);
#pragma unroll
        for (int u = 0; u < t; u++) {
            int s = UPPER ? CUDA_FACTOR_WIDTH - 1 - u : u;
            if (s < a.width) x[r] = x[r] - f_mul(LOAD(m[r * a.rows + s]), x[s]);
        }
        if (!a.unit) x[r] = f_true_divide(x[r], LOAD(m[r * a.rows + r]));
        b[r * a.right] = STORE(x[r]);
    }
}

KERNEL(TN_(factor_lower), cuda_factor_args) { factor_solve<false>(a); }
KERNEL(TN_(factor_upper), cuda_factor_args) { factor_solve<true>(a); }

/* ---- Cholesky ----------------------------------------------------------------------------------*/

/* A block has a matrix: the square on the diagonal in shared memory, then the rows below it, one to a
 * thread. */
KERNEL(TN_(factor_cholesky), cuda_factor_args) {
    SHARED(A, square, CUDA_FACTOR_WIDTH * CUDA_FACTOR_WIDTH);
    T *m = (T *)a.a + blockIdx.x * a.rows * a.rows + a.first * (a.rows + 1);
    int32_t *info = a.info + blockIdx.x;
    int w = (int)a.width, me = (int)threadIdx.x;
    if (a.first == 0 && me == 0) *info = 0;
    for (int i = me; i < w * w; i += (int)blockDim.x)
        square[i] = i % w <= i / w ? LOAD(m[i / w * a.rows + i % w]) : (A)(RA)0;
    __syncthreads();
    if (*info != 0) return;
    for (int j = 0; j < w; j++) {
#if TMPL_IS_COMPLEX
        RA pivot = square[j * w + j].re;
#else
        RA pivot = square[j * w + j];
#endif
        __syncthreads();
        if (!(pivot > 0)) { /* the same for all threads */
            if (me == 0) *info = (int32_t)(a.first + j + 1);
            return;
        }
        RA root = sqrt(pivot);
        for (int r = j + me; r < w; r += (int)blockDim.x)
            square[r * w + j] = r == j ? (A)root : f_true_divide(square[r * w + j], (A)root);
        __syncthreads();
        for (int i = me; i < w * w; i += (int)blockDim.x) {
            int r = i / w, c = i % w;
            if (c <= j || c > r) continue;
            A other = f_conj_physical(square[c * w + j]);
            square[i] = square[i] - f_mul(square[r * w + j], other);
        }
        __syncthreads();
    }
    for (int i = me; i < w * w; i += (int)blockDim.x)
        if (i % w <= i / w) m[i / w * a.rows + i % w] = STORE(square[i]);
    for (int64_t r = w + me; r < a.rows - a.first; r += blockDim.x) {
        T *row = m + r * a.rows;
        A x[CUDA_FACTOR_WIDTH];
#pragma unroll
        for (int c = 0; c < CUDA_FACTOR_WIDTH; c++) {
            if (c >= w) continue;
            x[c] = LOAD(row[c]);
#pragma unroll
            for (int s = 0; s < c; s++)
                x[c] = x[c] - f_mul(x[s], f_conj_physical(square[c * w + s]));
            x[c] = f_true_divide(x[c], square[c * w + c]);
            row[c] = STORE(x[c]);
        }
    }
}

/* The rows below, conjugate and packed: what they are multiplied by. */
KERNEL(TN_(factor_conjugate), cuda_factor_args) {
    int64_t i = cuda_thread(), at = i, below = a.rows - a.first - a.width;
    if (i >= a.count * below * a.width) return;
    int64_t c = planes_cut(&at, a.width), r = planes_cut(&at, below) + a.first + a.width;
    const T *m = (const T *)a.a + at * a.rows * a.rows;
    ((T *)a.b)[i] = STORE(f_conj_physical(LOAD(m[r * a.rows + a.first + c])));
}

/* Zeros above the diagonal. */
KERNEL(TN_(factor_clear), cuda_factor_args) {
    int64_t i = cuda_thread(), at = i;
    if (i >= a.count * a.rows * a.rows) return;
    int64_t c = planes_cut(&at, a.rows), r = planes_cut(&at, a.rows);
    if (c > r) ((T *)a.a)[i] = STORE((A)(RA)0);
}
