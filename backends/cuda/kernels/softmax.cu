/* softmax.cu: softmax and its kin, of one floating type.
 *
 * types: float */
#include "device.h"

#include "rows.h"
#include "scalar.h"

/* ---- Rows: `width` columns of threads, one row each --------------------------------------------*/

typedef struct softmax_row {
    int lane, lanes, width;
    bool any;       /* there is such a row */
    const T *x, *y; /* element 0 */
    T *out;
    int64_t sx, sy, so; /* from element to element */
} softmax_row;

TMPL_INLINE softmax_row softmax_find(const cuda_rows_args &a, int out) {
    softmax_row r;
    r.width = a.width;
    r.lanes = (int)blockDim.x / a.width;
    r.lane = (int)threadIdx.x / a.width;
    int64_t row = (int64_t)blockIdx.x * a.width + (int)threadIdx.x % a.width;
    r.any = row < a.rows;
    r.x = (const T *)rows_data(a, row, 0);
    r.y = (const T *)rows_data(a, row, 1);
    r.out = (T *)rows_data(a, row, out);
    r.sx = a.step[0] / (int64_t)sizeof(T);
    r.sy = a.step[1] / (int64_t)sizeof(T);
    r.so = a.step[out] / (int64_t)sizeof(T);
    return r;
}

struct softmax_most {
    CUDA_MEMBER A operator()(A a, A b) const { return f_maximum(a, b); }
};

/* ---- Softmax -----------------------------------------------------------------------------------*/

template <typename F> TMPL_INLINE void softmax_rows(const cuda_rows_args &a, F finish) {
    SHARED(A, room, CUDA_BLOCK);
    softmax_row r = softmax_find(a, 1);
    A most = -(A)INFINITY, sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        most = f_maximum(LOAD(r.x[i * r.sx]), most);
    most = rows_join(room, most, r.lanes, r.width, r.lane, softmax_most());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        sum += M_(exp)(LOAD(r.x[i * r.sx]) - most);
    sum = rows_join(room, sum, r.lanes, r.width, r.lane, rows_sum<A>());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        r.out[i * r.so] = STORE(finish(LOAD(r.x[i * r.sx]) - most, sum));
}

struct softmax_finish {
    CUDA_MEMBER A operator()(A x, A sum) const { return M_(exp)(x) / sum; }
};
struct log_softmax_finish {
    CUDA_MEMBER A operator()(A x, A sum) const { return x - M_(log)(sum); }
};
KERNEL(TN_(softmax), cuda_rows_args) { softmax_rows(a, softmax_finish()); }
KERNEL(TN_(log_softmax), cuda_rows_args) { softmax_rows(a, log_softmax_finish()); }

/* (g - sum(g * y)) * y */
KERNEL(TN_(softmax_backward), cuda_rows_args) {
    SHARED(A, room, CUDA_BLOCK);
    softmax_row r = softmax_find(a, 2);
    A sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        sum += LOAD(r.x[i * r.sx]) * LOAD(r.y[i * r.sy]);
    sum = rows_join(room, sum, r.lanes, r.width, r.lane, rows_sum<A>());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        r.out[i * r.so] = STORE((LOAD(r.x[i * r.sx]) - sum) * LOAD(r.y[i * r.sy]));
}

/* g - exp(y) * sum(g) */
KERNEL(TN_(log_softmax_backward), cuda_rows_args) {
    SHARED(A, room, CUDA_BLOCK);
    softmax_row r = softmax_find(a, 2);
    A sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes) sum += LOAD(r.x[i * r.sx]);
    sum = rows_join(room, sum, r.lanes, r.width, r.lane, rows_sum<A>());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        r.out[i * r.so] = STORE(LOAD(r.x[i * r.sx]) - M_(exp)(LOAD(r.y[i * r.sy])) * sum);
}
