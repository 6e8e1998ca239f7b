/* loss.cu: negative log likelihood and cross entropy with classes as targets, of one floating type.
 *
 * types: float */
#include "device.h"

#include "args_loss.h"
#include "rows.h"
#include "scalar.h"

/* Loss and weight of some rows. */
struct loss_pair {
    double loss, weight;
};
struct loss_add {
    CUDA_MEMBER loss_pair operator()(loss_pair p, loss_pair q) const {
        return {p.loss + q.loss, p.weight + q.weight};
    }
};
struct loss_most {
    CUDA_MEMBER A operator()(A a, A b) const { return f_maximum(a, b); }
};

/* Class 0 of a row. */
TMPL_INLINE const T *loss_row(const cuda_loss_args &a, int64_t row) {
    int64_t sample = row / a.positions, position = row - sample * a.positions;
    return (const T *)a.x + sample * a.x_stride[0] + position * a.x_stride[2];
}

/* Whether a row's target counts; one that is no class is reported and does not. */
TMPL_INLINE bool loss_counts(const cuda_loss_args &a, int64_t t) {
    if (t == a.ignore) return false;
    if (t >= 0 && t < a.classes) return true;
    cuda_report(a.fault, a.op, t, a.classes);
    return false;
}

TMPL_INLINE A loss_weight(const cuda_loss_args &a, int64_t t) {
    return a.weight ? LOAD(((const T *)a.weight)[t]) : (A)1;
}

/* Takes in the losses of the block's first `width` threads. */
TMPL_INLINE void loss_sum_up(const cuda_loss_args &a, loss_pair *room, loss_pair mine) {
    loss_pair sum = rows_join(room, mine, a.width, 1, (int)threadIdx.x, loss_add());
    if (threadIdx.x > 0) return;
    a.partial[2 * (int64_t)blockIdx.x] = sum.loss;
    a.partial[2 * (int64_t)blockIdx.x + 1] = sum.weight;
}

/* One row per thread. */
KERNEL(TN_(nll_rows), cuda_loss_args) {
    SHARED(loss_pair, room, CUDA_BLOCK);
    int64_t row = cuda_thread();
    loss_pair mine = {0, 0};
    if (row < a.rows) {
        int64_t t = a.target[row];
        A loss = 0;
        if (loss_counts(a, t)) {
            A weight = loss_weight(a, t);
            loss = -weight * LOAD(loss_row(a, row)[t * a.x_stride[1]]);
            mine = {(double)loss, (double)weight};
        }
        if (a.reduction == CUDA_LOSS_NONE) ((T *)a.y)[row] = STORE(loss);
    }
    loss_sum_up(a, room, mine);
}

/* `width` rows side by side, several lanes each. */
KERNEL(TN_(entropy_rows), cuda_loss_args) {
    SHARED(A, room, CUDA_BLOCK);
    SHARED(loss_pair, sums, CUDA_BLOCK);
    int lane = (int)threadIdx.x / a.width, lanes = (int)blockDim.x / a.width;
    int64_t row = (int64_t)blockIdx.x * a.width + (int)threadIdx.x % a.width;
    int64_t n = row < a.rows ? a.classes : 0, step = a.x_stride[1];
    const T *x = loss_row(a, row < a.rows ? row : 0);
    A most = -(A)INFINITY, sum = 0;
    for (int64_t i = lane; i < n; i += lanes) most = f_maximum(LOAD(x[i * step]), most);
    most = rows_join(room, most, lanes, a.width, lane, loss_most());
    for (int64_t i = lane; i < n; i += lanes) sum += M_(exp)(LOAD(x[i * step]) - most);
    sum = rows_join(room, sum, lanes, a.width, lane, rows_sum<A>());
    loss_pair mine = {0, 0};
    if (lane == 0 && row < a.rows) {
        A log_sum = most == -(A)INFINITY ? most : M_(log)(sum), loss = 0;
        int64_t t = a.target[row];
        if (loss_counts(a, t)) {
            loss = log_sum - (LOAD(x[t * step]) - most);
            mine = {(double)loss, 1};
        }
        ((A *)a.most)[row] = most;
        ((A *)a.log_sum)[row] = log_sum;
        if (a.reduction == CUDA_LOSS_NONE) ((T *)a.y)[row] = STORE(loss);
    }
    loss_sum_up(a, sums, mine);
}

TMPL_INLINE A loss_total(const cuda_loss_args &a, const void *total) {
    return a.wide ? *(const A *)total : LOAD(*(const T *)total);
}

/* One block: adds up what the blocks found. */
KERNEL(TN_(loss_finish), cuda_loss_args) {
    SHARED(loss_pair, room, CUDA_BLOCK);
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    loss_pair sum = {0, 0};
    for (int64_t i = lane; i < a.parts; i += lanes)
        sum = loss_add()(sum, {a.partial[2 * i], a.partial[2 * i + 1]});
    sum = rows_join(room, sum, lanes, 1, lane, loss_add());
    if (lane > 0) return;
    if (a.total && a.wide) *(A *)a.total = (A)sum.weight;
    if (a.total && !a.wide) *(T *)a.total = STORE((A)sum.weight);
    if (a.reduction == CUDA_LOSS_NONE) return;
    double weight = a.given ? (double)loss_total(a, a.given) : sum.weight;
    A y = (A)(a.reduction == CUDA_LOSS_MEAN ? sum.loss / weight : sum.loss);
    *(T *)a.y = STORE(y);
}

/* ---- Gradients: one element per thread ---------------------------------------------------------*/

typedef struct loss_element {
    int64_t i, row, of_class, target;
} loss_element;

TMPL_INLINE bool loss_find(const cuda_loss_args &a, loss_element *ret) {
    int64_t i = cuda_thread(), plane = a.classes * a.positions;
    if (i >= a.rows * a.classes) return false;
    int64_t sample = a.narrow ? (int64_t)((uint32_t)i / (uint32_t)plane) : i / plane;
    int64_t rest = i - sample * plane;
    int64_t of_class =
        a.narrow ? (int64_t)((uint32_t)rest / (uint32_t)a.positions) : rest / a.positions;
    int64_t row = sample * a.positions + rest - of_class * a.positions;
    *ret = {i, row, of_class, a.target[row]};
    return true;
}

/* The gradient of a row's loss. */
TMPL_INLINE A loss_grad(const cuda_loss_args &a, int64_t row) {
    A g = LOAD(((const T *)a.grad)[a.reduction == CUDA_LOSS_NONE ? row : 0]);
    return a.reduction == CUDA_LOSS_MEAN ? g / loss_total(a, a.given) : g;
}

KERNEL(TN_(nll_backward), cuda_loss_args) {
    loss_element e;
    if (!loss_find(a, &e)) return;
    bool hit = e.of_class == e.target && e.target != a.ignore;
    ((T *)a.out)[e.i] = STORE(hit ? -loss_weight(a, e.target) * loss_grad(a, e.row) : (A)0);
}

/* gx = (exp(x - most - log_sum) - [class is the target]) * g */
KERNEL(TN_(entropy_backward), cuda_loss_args) {
    loss_element e;
    if (!loss_find(a, &e)) return;
    A x = LOAD(loss_row(a, e.row)[e.of_class * a.x_stride[1]]);
    A below = x - ((const A *)a.most)[e.row];
    A v = M_(exp)(below - ((const A *)a.log_sum)[e.row]) - (A)(e.of_class == e.target);
    ((T *)a.out)[e.i] = STORE(e.target == a.ignore ? (A)0 : v * loss_grad(a, e.row));
}
