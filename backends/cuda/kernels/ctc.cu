/* ctc.cu: connectionist temporal classification, for one element type. A block has a sample and goes from
 * step to step, its threads beside each other along the places of the target; the gradient of each step
 * is a block's. Names are those of the CPU's ctc_tmpl.c, and so is what is reported.
 *
 * types: f32 f64 */
#include "join_lanes.h"

#include "args_ctc.h"
#include "ctc.h"

/* A sample's target and times; no steps and no labels where something is out of range. */
typedef struct ctc_sample {
    int64_t index, start, labels, steps;
    bool valid;
} ctc_sample;

struct ctc_sum {
    CUDA_MEMBER uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

struct ctc_join {
    CUDA_MEMBER A operator()(A a, A b) const { return ctc_plus(a, b, CTC_NEVER); }
};

/* Where a sample's labels begin, for all threads of its block. */
TMPL_INLINE int64_t ctc_start(const cuda_ctc_args &a, int64_t sample) {
    SHARED(uint64_t, room, CUDA_BLOCK / 32);
    uint64_t before = 0;
    if (a.row) return sample * a.row;
    for (int64_t i = threadIdx.x; i < sample; i += blockDim.x) before += (uint64_t)a.lengths[i];
    return (int64_t)lanes_join_row(room, before, (int)blockDim.x, ctc_sum());
}

/* Looks at a block's sample and reports what is out of range. */
TMPL_INLINE ctc_sample ctc_look(const cuda_ctc_args &a, int64_t sample) {
    SHARED(int, wrong, 1);
    ctc_sample s = {sample, ctc_start(a, sample), a.lengths[sample], a.times[sample], true};
    int64_t end = a.row ? s.start + a.row : a.labels, most = a.width / 2;
    bool first = threadIdx.x == 0;
    if (s.start < 0 || s.start > end) most = -1;
    if (end - s.start < most) most = end - s.start;
    if (s.steps < 0 || s.steps > a.steps) {
        if (first) cuda_report(a.fault, a.op, s.steps, a.steps + 1);
        s.valid = false;
    }
    if (s.labels < 0 || s.labels > most) {
        if (first) cuda_report(a.fault, a.op, s.labels, most + 1);
        s.valid = false;
    }
    if (!s.valid) s.labels = 0;
    if (first) wrong[0] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < s.labels; i += blockDim.x) {
        int64_t label = a.targets[s.start + i];
        if (label >= 0 && label < a.classes) continue;
        cuda_report(a.fault, a.op, label, a.classes);
        atomicExch(&wrong[0], 1);
    }
    __syncthreads();
    if (wrong[0]) s.valid = false;
    if (!s.valid) s.labels = s.steps = 0;
    return s;
}

TMPL_INLINE int64_t ctc_label(const cuda_ctc_args &a, const ctc_sample &s, int64_t place) {
    return place & 1 ? a.targets[s.start + place / 2] : a.blank;
}

/* Whether a place may follow the one two before: labels that differ need no blank in between. */
TMPL_INLINE bool ctc_skips(const cuda_ctc_args &a, const ctc_sample &s, int64_t place) {
    return place > 1 && (place & 1) && ctc_label(a, s, place) != ctc_label(a, s, place - 2);
}

TMPL_INLINE A ctc_log_prob(const cuda_ctc_args &a, const ctc_sample &s, int64_t t, int64_t label) {
    return LOAD(((const T *)a.x)[(t * a.batch + s.index) * a.classes + label]);
}

KERNEL(TN_(ctc_forward), cuda_ctc_args) {
    ctc_sample s = ctc_look(a, blockIdx.x);
    int64_t places = 2 * s.labels + 1;
    T *alpha = (T *)a.alpha + s.index * a.steps * a.width, *loss = (T *)a.loss + s.index;
    for (int64_t t = 0; t < a.steps; t++) {
        const T *last = alpha + (t - 1) * a.width;
        for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
            A sum = t == 0 && i < 2 ? (A)0 : CTC_NEVER;
            bool reached = t < s.steps && i < places;
            if (reached && t > 0) {
                A one = i > 0 ? LOAD(last[i - 1]) : CTC_NEVER;
                A two = ctc_skips(a, s, i) ? LOAD(last[i - 2]) : CTC_NEVER;
                sum = ctc_plus(LOAD(last[i]), one, two);
            }
            if (reached && (t > 0 || i < 2)) sum += ctc_log_prob(a, s, t, ctc_label(a, s, i));
            alpha[t * a.width + i] = STORE(reached ? sum : CTC_NEVER);
        }
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    A total = places == 1 ? (A)0 : CTC_NEVER;
    if (s.steps > 0) {
        const T *end = alpha + (s.steps - 1) * a.width;
        total = LOAD(end[places - 1]);
        if (places > 1) total = ctc_plus(total, LOAD(end[places - 2]), CTC_NEVER);
    }
    *loss = STORE(s.valid ? 0 - total : CTC_NEVER - CTC_NEVER);
}

/* beta of all steps. */
KERNEL(TN_(ctc_beta), cuda_ctc_args) {
    ctc_sample s = ctc_look(a, blockIdx.x);
    int64_t places = 2 * s.labels + 1;
    A *beta = (A *)a.beta + s.index * a.steps * a.width;
    if (threadIdx.x == 0) a.start[s.index] = s.valid ? s.start : -1;
    for (int64_t t = s.steps - 1; t >= 0; t--) {
        const A *next = beta + (t + 1) * a.width;
        for (int64_t i = threadIdx.x; i < places; i += blockDim.x) {
            A sum = i >= places - 2 ? (A)0 : CTC_NEVER;
            if (t + 1 < s.steps) {
                A one = i + 1 < places ? next[i + 1] : CTC_NEVER;
                bool skips = i + 2 < places && ctc_skips(a, s, i + 2);
                sum = ctc_plus(next[i], one, skips ? next[i + 2] : CTC_NEVER);
            }
            beta[t * a.width + i] = sum + ctc_log_prob(a, s, t, ctc_label(a, s, i));
        }
        __syncthreads();
    }
}

/* The paths of a step that go through a label which is not the blank, from its first place in the
 * target on; false at its other places. */
TMPL_INLINE bool ctc_paths(const cuda_ctc_args &a, const ctc_sample &s, const T *alpha,
                           const A *beta, int64_t k, A *ret_sum) {
    const int64_t *labels = a.targets + s.start;
    if (labels[k] == a.blank) return false;
    for (int64_t i = 0; i < k; i++)
        if (labels[i] == labels[k]) return false;
    *ret_sum = CTC_NEVER;
    for (int64_t i = k; i < s.labels; i++)
        if (labels[i] == labels[k])
            *ret_sum = ctc_plus(*ret_sum, LOAD(alpha[2 * i + 1]) + beta[2 * i + 1], CTC_NEVER);
    return true;
}

/* A block for each step of each sample. */
KERNEL(TN_(ctc_backward), cuda_ctc_args) {
    SHARED(A, room, CUDA_BLOCK / 32);
    int64_t sample = blockIdx.x % a.batch, t = blockIdx.x / a.batch;
    ctc_sample s = {sample, a.start[sample], a.lengths[sample], a.times[sample], true};
    A loss = LOAD(((const T *)a.loss)[sample]), g = LOAD(((const T *)a.grad)[sample]), sum;
    T *y = (T *)a.y + (t * a.batch + sample) * a.classes;
    bool valid = s.start >= 0, counts = valid && t < s.steps;
    if (loss == -CTC_NEVER && a.zero_infinity) counts = false;
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
        A nothing = valid ? (A)0 : CTC_NEVER - CTC_NEVER;
        A p = counts ? ctc_log_prob(a, s, t, c) : (A)0;
        y[c] = STORE(counts ? ctc_slope(CTC_NEVER, loss, p, g) : nothing);
    }
    if (!counts) return;
    int64_t row = (sample * a.steps + t) * a.width;
    const T *alpha = (const T *)a.alpha + row;
    const A *beta = (const A *)a.beta + row;
    A blank = CTC_NEVER;
    for (int64_t i = threadIdx.x; i < 2 * s.labels + 1; i += blockDim.x)
        if (ctc_label(a, s, i) == a.blank)
            blank = ctc_plus(blank, LOAD(alpha[i]) + beta[i], CTC_NEVER);
    blank = lanes_join_row(room, blank, (int)blockDim.x, ctc_join());
    __syncthreads();
    for (int64_t k = threadIdx.x; k < s.labels; k += blockDim.x) {
        int64_t label = a.targets[s.start + k];
        if (ctc_paths(a, s, alpha, beta, k, &sum))
            y[label] = STORE(ctc_slope(sum, loss, ctc_log_prob(a, s, t, label), g));
    }
    if (threadIdx.x == 0)
        y[a.blank] = STORE(ctc_slope(blank, loss, ctc_log_prob(a, s, t, a.blank), g));
}
