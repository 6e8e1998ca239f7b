/* fused.c: what level 2 adds: softmax and its kin, sums along a dimension, layer norm, linear layers,
 * convolutions, embeddings, sorting. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/op_args.h>

static double at(const sim_view *v, const int64_t *index) {
    return sim_load(v->dtype, sim_at(v, index));
}

static void put(const sim_view *v, const int64_t *index, double x) {
    sim_store(v->dtype, sim_at(v, index), x);
}

static tn_status one_input(const tn_call *call, void (*run)(sim_work *w), const tn_view *input,
                           int64_t dim, const tn_view *out) {
    if (out->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run);
    if (!w) return TN_E_MEMORY;
    sim_give(w, out);
    sim_give(w, input);
    w->whole[0] = dim;
    return sim_go(call, w);
}

/* ---- Along one dimension -----------------------------------------------------------------------*/

/* Calls line(w, index) for every line of view 0 along dimension `dim`, whose index there is 0. */
static void each_line(sim_work *w, void (*line)(sim_work *w, int64_t *index, int64_t dim)) {
    const sim_view *out = &w->view[0];
    int64_t dim = w->whole[0], index[SIM_DIMS] = {0}, shape[SIM_DIMS];
    memcpy(shape, out->shape, sizeof shape);
    if (out->ndim > 0) shape[dim] = 1;
    do line(w, index, dim);
    while (sim_next(shape, out->ndim, index));
}

static int64_t length(const sim_view *v, int64_t dim) { return v->ndim > 0 ? v->shape[dim] : 1; }

static double log_of_sum(const sim_view *in, int64_t *index, int64_t dim) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < length(in, dim); i++) {
        index[dim] = i;
        most = fmax(most, at(in, index));
    }
    for (int64_t i = 0; i < length(in, dim); i++) {
        index[dim] = i;
        sum += exp(at(in, index) - most);
    }
    return most + log(sum);
}

static void softmax_line(sim_work *w, int64_t *index, int64_t dim) {
    double sum = log_of_sum(&w->view[1], index, dim);
    for (int64_t i = 0; i < length(&w->view[0], dim); i++) {
        index[dim] = i;
        put(&w->view[0], index, exp(at(&w->view[1], index) - sum));
    }
    index[dim] = 0;
}

static void log_softmax_line(sim_work *w, int64_t *index, int64_t dim) {
    double sum = log_of_sum(&w->view[1], index, dim);
    for (int64_t i = 0; i < length(&w->view[0], dim); i++) {
        index[dim] = i;
        put(&w->view[0], index, at(&w->view[1], index) - sum);
    }
    index[dim] = 0;
}

static void cumsum_line(sim_work *w, int64_t *index, int64_t dim) {
    const sim_view *out = &w->view[0], *in = &w->view[1];
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t i = 0; i < length(out, dim); i++) {
        index[dim] = i;
        if (sim_is_float(out->dtype))
            put(out, index, sum += at(in, index));
        else
            sim_store_whole(
                out->dtype, sim_at(out, index),
                (int64_t)(whole += (uint64_t)sim_load_whole(in->dtype, sim_at(in, index))));
    }
    index[dim] = 0;
}

static void run_softmax(sim_work *w) { each_line(w, softmax_line); }
static void run_log_softmax(sim_work *w) { each_line(w, log_softmax_line); }
static void run_cumsum(sim_work *w) { each_line(w, cumsum_line); }

static tn_status launch_softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    return one_input(call, run_softmax, a->input, a->dim, a->out);
}

static tn_status launch_log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    return one_input(call, run_log_softmax, a->input, a->dim, a->out);
}

static tn_status launch_cumsum(const tn_call *call, const void *args) {
    const tn_cumsum_args *a = args;
    return one_input(call, run_cumsum, a->input, a->dim, a->out);
}

/* ---- sort --------------------------------------------------------------------------------------*/

typedef struct item {
    double key;
    int64_t place;
} item;

/* not-a-number counts as larger than all; equal keys keep their order. */
static int ascending(const void *left, const void *right) {
    const item *a = left, *b = right;
    bool nan_a = a->key != a->key, nan_b = b->key != b->key;
    if (nan_a != nan_b) return nan_a ? 1 : -1;
    if (a->key < b->key) return -1;
    if (a->key > b->key) return 1;
    return a->place < b->place ? -1 : 1;
}

static int descending(const void *left, const void *right) {
    const item *a = left, *b = right;
    bool nan_a = a->key != a->key, nan_b = b->key != b->key;
    if (nan_a != nan_b) return nan_a ? -1 : 1;
    if (a->key > b->key) return -1;
    if (a->key < b->key) return 1;
    return a->place < b->place ? -1 : 1;
}

static void sort_line(sim_work *w, int64_t *index, int64_t dim) {
    const sim_view *values = &w->view[0], *places = &w->view[1], *in = &w->view[2];
    int64_t n = length(in, dim);
    item *items = calloc((size_t)n, sizeof *items);
    if (!items) {
        sim_work_fail(w, "'%s' has no memory for a line of %lld", w->op, (long long)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        index[dim] = i;
        items[i] = (item){at(in, index), i};
    }
    qsort(items, (size_t)n, sizeof *items, w->whole[1] ? descending : ascending);
    for (int64_t i = 0; i < n; i++) {
        index[dim] = i;
        put(values, index, items[i].key);
        sim_store_whole(TN_I64, sim_at(places, index), items[i].place);
    }
    index[dim] = 0;
    free(items);
}

static void run_sort(sim_work *w) { each_line(w, sort_line); }

static tn_status launch_sort(const tn_call *call, const void *args) {
    const tn_sort_args *a = args;
    if (a->values->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_sort);
    if (!w) return TN_E_MEMORY;
    w->whole[0] = a->dim;
    w->whole[1] = a->descending;
    sim_give(w, a->values);
    sim_give(w, a->indices);
    sim_give(w, a->input);
    return sim_go(call, w);
}

/* ---- Layers ------------------------------------------------------------------------------------*/

/* out (.., m) = input (.., k) @ weight (m, k) + bias (m) */
static void run_linear(sim_work *w) {
    const sim_view *out = &w->view[0], *in = &w->view[1], *weight = &w->view[2];
    const sim_view *bias = w->noperands > 3 ? &w->view[3] : NULL;
    int32_t last = in->ndim - 1;
    int64_t index[SIM_DIMS] = {0}, from[SIM_DIMS];
    do {
        int64_t row[2] = {weight->ndim > 1 ? index[last] : 0, 0};
        double sum = bias ? at(bias, row) : 0;
        memcpy(from, index, sizeof from);
        for (row[1] = 0; row[1] < in->shape[last]; row[1]++) {
            from[last] = row[1];
            sum += at(in, from) * at(weight, row);
        }
        put(out, index, sum);
    } while (sim_next(out->shape, out->ndim, index));
}

static tn_status launch_linear(const tn_call *call, const void *args) {
    const tn_linear_args *a = args;
    if (a->weight->ndim != 2 || a->input->ndim < 1) return TN_DECLINE;
    if (a->out->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_linear);
    if (!w) return TN_E_MEMORY;
    sim_give(w, a->out);
    sim_give(w, a->input);
    sim_give(w, a->weight);
    if (a->bias) sim_give(w, a->bias);
    return sim_go(call, w);
}

/* x is (rows, n) and packed; y like x, mean and rstd one number per row. */
static void run_layer_norm(sim_work *w) {
    const sim_view *y = &w->view[0], *mean = &w->view[1], *rstd = &w->view[2], *x = &w->view[3];
    const sim_view *weight = w->whole[0] ? &w->view[w->whole[0]] : NULL;
    const sim_view *bias = w->whole[1] ? &w->view[w->whole[1]] : NULL;
    int64_t n = w->whole[2], size = x->itemsize;
    for (int64_t row = 0; row < mean->numel; row++) {
        const unsigned char *in = x->data + row * n * size;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) sum += sim_load(x->dtype, in + i * size);
        for (int64_t i = 0; i < n; i++) {
            double d = sim_load(x->dtype, in + i * size) - sum / (double)n;
            squares += d * d;
        }
        double scale = 1 / sqrt(squares / (double)n + w->real[0]);
        sim_store(mean->dtype, mean->data + row * mean->itemsize, sum / (double)n);
        sim_store(rstd->dtype, rstd->data + row * rstd->itemsize, scale);
        for (int64_t i = 0; i < n; i++) {
            double v = (sim_load(x->dtype, in + i * size) - sum / (double)n) * scale;
            if (weight) v *= sim_load(weight->dtype, weight->data + i * weight->itemsize);
            if (bias) v += sim_load(bias->dtype, bias->data + i * bias->itemsize);
            sim_store(y->dtype, y->data + (row * n + i) * y->itemsize, v);
        }
    }
}

static tn_status launch_layer_norm(const tn_call *call, const void *args) {
    const tn_native_layer_norm_args *a = args;
    if (a->y->numel == 0) return TN_DECLINE;
    sim_work *w = sim_launch(call, run_layer_norm);
    if (!w) return TN_E_MEMORY;
    w->real[0] = a->eps;
    w->whole[2] = 1;
    for (int64_t i = 0; i < a->normalized_shape.n; i++) w->whole[2] *= a->normalized_shape.v[i];
    sim_give(w, a->y);
    sim_give(w, a->mean);
    sim_give(w, a->rstd);
    sim_give(w, a->input);
    if (a->weight) w->whole[0] = sim_give(w, a->weight) - w->view;
    if (a->bias) w->whole[1] = sim_give(w, a->bias) - w->view;
    return sim_go(call, w);
}

/* One result of a convolution over two dimensions. */
static double conv_at(const sim_work *w, const int64_t *to) {
    const sim_view *out = &w->view[0], *in = &w->view[1], *weight = &w->view[2];
    const int64_t *stride = &w->whole[0], *padding = &w->whole[2], *dilation = &w->whole[4];
    int64_t groups = w->whole[6], per_group = weight->shape[1];
    int64_t first = to[1] / (out->shape[1] / groups) * per_group;
    double sum = w->noperands > 3 ? at(&w->view[3], &to[1]) : 0;
    int64_t k[4] = {to[1], 0, 0, 0}, from[4] = {to[0], 0, 0, 0};
    do {
        from[1] = first + k[1];
        from[2] = to[2] * stride[0] - padding[0] + k[2] * dilation[0];
        from[3] = to[3] * stride[1] - padding[1] + k[3] * dilation[1];
        if (from[2] < 0 || from[2] >= in->shape[2] || from[3] < 0 || from[3] >= in->shape[3])
            continue;
        sum += at(in, from) * at(weight, k);
    } while (sim_next(weight->shape + 1, 3, k + 1));
    return sum;
}

static void run_conv(sim_work *w) {
    const sim_view *out = &w->view[0];
    int64_t to[4] = {0};
    do put(out, to, conv_at(w, to));
    while (sim_next(out->shape, 4, to));
}

static tn_status launch_conv(const tn_call *call, const void *args) {
    const tn__conv_args *a = args;
    if (a->out->ndim != 4 || a->out->numel == 0 || a->weight->numel == 0) return TN_DECLINE;
    if (a->stride.n != 2 || a->padding.n != 2 || a->dilation.n != 2) return TN_DECLINE;
    sim_work *w = sim_launch(call, run_conv);
    if (!w) return TN_E_MEMORY;
    for (int i = 0; i < 2; i++) {
        w->whole[0 + i] = a->stride.v[i];
        w->whole[2 + i] = a->padding.v[i];
        w->whole[4 + i] = a->dilation.v[i];
    }
    w->whole[6] = a->groups;
    sim_give(w, a->out);
    sim_give(w, a->input);
    sim_give(w, a->weight);
    if (a->bias) sim_give(w, a->bias);
    return sim_go(call, w);
}

/* out[.., j] = weight[indices[..], j] */
static void run_embedding(sim_work *w) {
    const sim_view *out = &w->view[0], *weight = &w->view[1], *indices = &w->view[2];
    int64_t index[SIM_DIMS] = {0}, from[2];
    do {
        from[0] = sim_load_whole(indices->dtype, sim_at(indices, index));
        from[1] = index[out->ndim - 1];
        if (from[0] < 0 || from[0] >= weight->shape[0]) {
            sim_work_fail(w, "'%s': index %lld is out of range for size %lld", w->op,
                          (long long)from[0], (long long)weight->shape[0]);
            return;
        }
        put(out, index, at(weight, from));
    } while (sim_next(out->shape, out->ndim, index));
}

static tn_status launch_embedding(const tn_call *call, const void *args) {
    const tn_embedding_args *a = args;
    int32_t index = tn_view_dtype(a->indices);
    if (a->weight->ndim != 2 || (index != TN_I64 && index != TN_I32)) return TN_DECLINE;
    if (a->out->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_embedding);
    if (!w) return TN_E_MEMORY;
    sim_give(w, a->out);
    sim_give(w, a->weight);
    sim_give(w, a->indices);
    return sim_go(call, w);
}

void sim_register_fused(sim_registrar *r) {
    sim_register_floats(r, "softmax", TN_SIG_softmax, launch_softmax, NULL);
    sim_register_floats(r, "log_softmax", TN_SIG_log_softmax, launch_log_softmax, NULL);
    sim_register_floats(r, "cumsum", TN_SIG_cumsum, launch_cumsum, NULL);
    sim_register(r, "cumsum", TN_SIG_cumsum, launch_cumsum, NULL, TN_I64);
    sim_register_floats(r, "sort", TN_SIG_sort, launch_sort, NULL);
    sim_register_floats(r, "linear", TN_SIG_linear, launch_linear, NULL);
    sim_register_floats(r, "native_layer_norm", TN_SIG_native_layer_norm, launch_layer_norm, NULL);
    sim_register_floats(r, "_conv", TN_SIG__conv, launch_conv, NULL);
    sim_register_floats(r, "embedding", TN_SIG_embedding, launch_embedding, NULL);
}
