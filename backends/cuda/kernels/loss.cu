/* loss.cu: negative log likelihood and cross entropy with classes as targets, of one floating type.
 *
 * types: float */
#include "device.h"

#include "args_loss.h"
#include "packs.h"

/* Loss and weight of some rows. */
struct loss_pair {
    double loss, weight;
};
struct loss_add {
    CUDA_MEMBER loss_pair operator()(loss_pair p, loss_pair q) const {
        return {p.loss + q.loss, p.weight + q.weight};
    }
};
/* Class 0 of a row. */
TMPL_INLINE const T *loss_row(const cuda_loss_args &a, int64_t row) {
    int64_t sample = a.positions == 1 ? row : row / a.positions;
    int64_t position = row - sample * a.positions;
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

/* Takes in the losses of the block's first `count` threads. */
TMPL_INLINE void loss_sum_up(const cuda_loss_args &a, loss_pair *room, loss_pair mine, int count) {
    loss_pair sum = rows_join(room, mine, count, 1, (int)threadIdx.x, loss_add());
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
    loss_sum_up(a, room, mine, a.width);
}

/* Keeps what a row's classes come to, by one thread; the row's loss. */
TMPL_INLINE loss_pair entropy_row(const cuda_loss_args &a, int64_t row, const packs_online &o) {
    loss_pair mine = {0, 0};
    A log_sum = o.most == -(A)INFINITY ? o.most : M_(log)(o.sum), loss = 0;
    int64_t t = a.target[row];
    if (loss_counts(a, t)) {
        loss = log_sum - (LOAD(loss_row(a, row)[t * a.x_stride[1]]) - o.most);
        mine = {(double)loss, 1};
    }
    ((A *)a.most)[row] = o.most;
    ((A *)a.log_sum)[row] = log_sum;
    if (a.reduction == CUDA_LOSS_NONE) ((T *)a.y)[row] = STORE(loss);
    return mine;
}

/* `width` rows side by side, several lanes each. */
KERNEL(TN_(entropy_rows), cuda_loss_args) {
    SHARED(A, room, CUDA_BLOCK);
    SHARED(loss_pair, sums, CUDA_BLOCK);
    int lane = (int)threadIdx.x / a.width, lanes = (int)blockDim.x / a.width;
    int64_t row = (int64_t)blockIdx.x * a.width + (int)threadIdx.x % a.width;
    bool any = row < a.rows;
    packs_online o = packs_column_online(room, loss_row(a, any ? row : 0), any ? a.classes : 0,
                                         a.x_stride[1], lane, lanes, a.width);
    loss_pair mine = {0, 0};
    if (lane == 0 && any) mine = entropy_row(a, row, o);
    loss_sum_up(a, sums, mine, a.width);
}

template <int W> TMPL_INLINE packs_online entropy_read(const cuda_loss_args &a, int64_t row) {
    const T *x = loss_row(a, row < a.rows ? row : 0);
    return packs_read_online<W>(packs_find<W>(x, row < a.rows ? a.classes : 0, a.lanes), x);
}

/* Rows whose classes lie side by side, `lanes` threads each. */
KERNEL(TN_(entropy_packed), cuda_loss_args) {
    SHARED(A, room, PACK_WARPS);
    SHARED(loss_pair, sums, CUDA_BLOCK);
    int64_t row = (int64_t)blockIdx.x * a.width + (int)threadIdx.x / a.lanes;
    packs_online o = a.whole ? entropy_read<PACK>(a, row) : entropy_read<1>(a, row);
    o = packs_join_online(room, o, a.lanes);
    loss_pair mine = {0, 0};
    if ((int)threadIdx.x % a.lanes == 0 && row < a.rows) mine = entropy_row(a, row, o);
    loss_sum_up(a, sums, mine, a.width > 1 ? CUDA_BLOCK : 1);
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

/* ---- Gradients ---------------------------------------------------------------------------------*/

/* A row, of which a thread takes the classes first, first + groups, ... : neighbouring threads have
 * neighbouring elements. */
typedef struct loss_part {
    int64_t row, first;
    int64_t out, step; /* of the first class, and from class to class */
    int64_t target;
} loss_part;

TMPL_INLINE bool loss_find(const cuda_loss_args &a, loss_part *ret) {
    int64_t i = cuda_thread(), plane = a.groups * a.positions;
    if (i >= a.rows * a.groups) return false;
    int64_t sample = a.narrow ? (int64_t)((uint32_t)i / (uint32_t)plane) : i / plane;
    int64_t rest = i - sample * plane;
    int64_t first =
        a.narrow ? (int64_t)((uint32_t)rest / (uint32_t)a.positions) : rest / a.positions;
    int64_t row = sample * a.positions + rest - first * a.positions;
    *ret = {row, first, sample * a.classes * a.positions + rest, plane, a.target[row]};
    return true;
}

/* The gradient of a row's loss. */
TMPL_INLINE A loss_grad(const cuda_loss_args &a, int64_t row) {
    A g = LOAD(((const T *)a.grad)[a.reduction == CUDA_LOSS_NONE ? row : 0]);
    return a.reduction == CUDA_LOSS_MEAN ? g / loss_total(a, a.given) : g;
}

KERNEL(TN_(nll_backward), cuda_loss_args) {
    loss_part p;
    if (!loss_find(a, &p)) return;
    T *out = (T *)a.out + p.out;
    for (int64_t i = p.first; i < a.classes; i += a.groups, out += p.step) {
        bool hit = i == p.target && p.target != a.ignore;
        *out = STORE(hit ? -loss_weight(a, p.target) * loss_grad(a, p.row) : (A)0);
    }
}

/* gx = (exp(x - most - log_sum) - [class is the target]) * g */
typedef struct entropy_grad {
    A most, log_sum, g;
} entropy_grad;

TMPL_INLINE entropy_grad entropy_find(const cuda_loss_args &a, int64_t row) {
    return {((const A *)a.most)[row], ((const A *)a.log_sum)[row], loss_grad(a, row)};
}
TMPL_INLINE A entropy_share(const entropy_grad &e, A x) {
    return M_(exp)((x - e.most) - e.log_sum);
}
TMPL_INLINE T entropy_of(const entropy_grad &e, A x, bool hit) {
    return STORE((entropy_share(e, x) - (A)hit) * e.g);
}

KERNEL(TN_(entropy_backward), cuda_loss_args) {
    loss_part p;
    if (!loss_find(a, &p)) return;
    const T *x = loss_row(a, p.row);
    T *out = (T *)a.out + p.out;
    entropy_grad e = entropy_find(a, p.row);
    for (int64_t i = p.first; i < a.classes; i += a.groups, out += p.step) {
        A v = LOAD(x[i * a.x_stride[1]]);
        *out = p.target == a.ignore ? STORE((A)0) : entropy_of(e, v, i == p.target);
    }
}

/* Rows that lie alike in x and out, `lanes` threads each, in `parts` parts of `groups` packs. */
KERNEL(TN_(entropy_backward_packed), cuda_loss_args) {
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t row = (int64_t)(blockIdx.x / (unsigned)a.parts) * a.width + (int)threadIdx.x / a.lanes;
    if (row >= a.rows) return;
    const T *x = loss_row(a, row);
    T *out = (T *)a.out + row * a.classes;
    packs_row r = packs_find<PACK>(x, a.classes, a.lanes);
    int64_t begin = part * a.groups + r.lane, end = (part + 1) * a.groups, t = a.target[row];
    bool edge = part == 0 && r.edge >= 0;
    if (part + 1 == a.parts || end > r.count) end = r.count;
    packs_of<PACK> *to = packs_out<PACK>(r, out);
    if (t == a.ignore) {
        packs_of<PACK> none = {};
        for (int64_t i = begin; i < end; i += a.lanes) to[i] = none;
        if (edge) out[r.edge] = STORE((A)0);
        return;
    }
    entropy_grad e = entropy_find(a, row);
    if (edge) out[r.edge] = entropy_of(e, LOAD(x[r.edge]), r.edge == t);
    const packs_of<PACK> *const in[] = {packs_in<PACK>(r, x)};
    packs_write<PACK>(to, in, begin, end, a.lanes, [&](const packs_of<PACK> *p, int j) {
        return entropy_of(e, LOAD(p[0].of[j]), false);
    });
    /* The target's element once more, by the lane that has written its pack. */
    int64_t hit = t < r.head ? -1 : (t - r.head) / PACK, from = hit - begin;
    if (hit >= begin && hit < end && from % a.lanes == 0) out[t] = entropy_of(e, LOAD(x[t]), true);
}
