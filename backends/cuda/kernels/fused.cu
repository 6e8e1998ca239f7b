/* fused.cu: kernels of one floating type that do the work of several operators: softmax and its kin,
 * cross entropy, optimizer steps. */
#include "device.h"

#include "rows.h"
#include "scalar.h"

/* ---- Rows: `width` columns of threads, one row each --------------------------------------------*/

typedef struct fused_row {
    int lane, lanes, width;
    bool any;       /* there is such a row */
    const T *x, *y; /* element 0 */
    T *out;
    int64_t sx, sy, so; /* from element to element */
} fused_row;

TMPL_INLINE fused_row fused_find(const cuda_rows_args &a, int out) {
    fused_row r;
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

struct fused_most {
    CUDA_MEMBER A operator()(A a, A b) const { return f_maximum(a, b); }
};

/* ---- Softmax -----------------------------------------------------------------------------------*/

template <typename F> TMPL_INLINE void softmax_rows(const cuda_rows_args &a, F finish) {
    SHARED(A, room, CUDA_BLOCK);
    fused_row r = fused_find(a, 1);
    A most = -(A)INFINITY, sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        most = f_maximum(LOAD(r.x[i * r.sx]), most);
    most = rows_join(room, most, r.lanes, r.width, r.lane, fused_most());
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
    fused_row r = fused_find(a, 2);
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
    fused_row r = fused_find(a, 2);
    A sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes) sum += LOAD(r.x[i * r.sx]);
    sum = rows_join(room, sum, r.lanes, r.width, r.lane, rows_sum<A>());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        r.out[i * r.so] = STORE(LOAD(r.x[i * r.sx]) - M_(exp)(LOAD(r.y[i * r.sy])) * sum);
}

/* ---- Cross entropy -----------------------------------------------------------------------------*/

/* One block per row: the row's logsumexp and loss. */
KERNEL(TN_(entropy_rows), cuda_entropy_args) {
    SHARED(A, room, CUDA_BLOCK);
    int64_t row = blockIdx.x, t = a.target[row * a.target_step];
    const T *x = (const T *)a.x + row * a.x_row;
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    A most = -(A)INFINITY, sum = 0;
    for (int64_t i = lane; i < a.n; i += lanes) most = f_maximum(LOAD(x[i * a.x_column]), most);
    most = rows_join(room, most, lanes, 1, lane, fused_most());
    for (int64_t i = lane; i < a.n; i += lanes) sum += M_(exp)(LOAD(x[i * a.x_column]) - most);
    sum = rows_join(room, sum, lanes, 1, lane, rows_sum<A>());
    if (lane > 0) return;
    A lse = most == -(A)INFINITY ? most : most + M_(log)(sum), loss = 0;
    bool used = t != a.ignore, fits = t >= 0 && t < a.n;
    if (used && !fits) cuda_report(a.fault, a.op, t, a.n);
    if (used && fits) loss = lse - LOAD(x[t * a.x_column]);
    ((A *)a.lse)[row] = lse;
    a.parts[row] = (double)loss;
    if (a.reduction == CUDA_LOSS_NONE) ((T *)a.y)[row] = STORE(loss);
}

/* One block: adds the rows up. */
KERNEL(TN_(entropy_finish), cuda_entropy_args) {
    SHARED(double, room, CUDA_BLOCK);
    double loss = 0, count = 0;
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    for (int64_t i = lane; i < a.rows; i += lanes) {
        loss += a.parts[i];
        count += a.target[i * a.target_step] != a.ignore;
    }
    loss = rows_join(room, loss, lanes, 1, lane, rows_sum<double>());
    count = rows_join(room, count, lanes, 1, lane, rows_sum<double>());
    if (lane > 0) return;
    *(A *)a.count = (A)count;
    if (a.reduction == CUDA_LOSS_NONE) return;
    A y = (A)(a.reduction == CUDA_LOSS_MEAN ? loss / count : loss);
    *(T *)a.y = STORE(y);
}

/* gx = (exp(x - lse) - [class is the target]) * g */
KERNEL(TN_(entropy_backward), cuda_entropy_args) {
    int64_t i = cuda_thread();
    if (i >= a.rows * a.n) return;
    int64_t row = i / a.n, column = i - row * a.n, t = a.target[row * a.target_step];
    A g = LOAD(((const T *)a.grad)[row * a.grad_step]);
    if (a.reduction == CUDA_LOSS_MEAN) g = g / *(const A *)a.count;
    A x = LOAD(((const T *)a.x)[row * a.x_row + column * a.x_column]);
    A v = (M_(exp)(x - ((const A *)a.lse)[row]) - (A)(column == t)) * g;
    ((T *)a.out)[i] = STORE(t == a.ignore ? (A)0 : v);
}
