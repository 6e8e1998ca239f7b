/* composites.h: kernels for operators of the table that are composites, as a vendor would write them: for float32
 * in ordinary strides. Each counts its calls. The plugin that includes this registers `rows`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/op_args.h>
#include <tenon/plugin.h>

enum { GELU, ATTENTION, CAT, DIV, LAYER_NORM, SPLIT, PUT, ENTROPY, DROPOUT, NEVER, KINDS };
static int64_t calls[KINDS];
TN_PLUGIN_EXPORT int64_t calls_of(int kind) { return calls[kind]; }

/* Element i of a view in row-major order, wherever it lies. */
static char *at(const tn_view *v, int64_t i) {
    int64_t offset = 0;
    for (int d = v->ndim; d-- > 0; i /= v->shape[d]) offset += i % v->shape[d] * v->strides[d];
    return (char *)v->data + offset * tn_view_itemsize(v);
}
static float get(const tn_view *v, int64_t i) { return *(const float *)at(v, i); }
static void set(const tn_view *v, int64_t i, double x) { *(float *)at(v, i) = (float)x; }
static tn_status wrong(const tn_call *call) {
    return call->host->fail(TN_E_STATE, -1, "an argument is not what was promised");
}

static tn_status gelu(const tn_call *call, const void *args) {
    const tn_gelu_args *a = args;
    if (strcmp(a->approximate, "none") != 0) return TN_DECLINE;
    if (tn_view_dtype(a->input) != TN_F32 || tn_view_dtype(a->out) != TN_F32) return wrong(call);
    calls[GELU]++;
    for (int64_t i = 0; i < a->out->numel; i++) {
        double x = get(a->input, i);
        set(a->out, i, x * 0.5 * (1 + erf(x * sqrt(0.5))));
    }
    return TN_OK;
}

static tn_status divide(const tn_call *call, const void *args) {
    const tn_div_args *a = args;
    int64_t n = a->out->numel;
    if (tn_view_dtype(a->input) != TN_F32 || tn_view_dtype(a->other) != TN_F32 || a->plan)
        return wrong(call);
    if (a->rounding_mode || a->input->numel != n || (a->other->numel != n && a->other->numel != 1))
        return TN_DECLINE;
    calls[DIV]++;
    for (int64_t i = 0; i < n; i++)
        set(a->out, i, get(a->input, i) / get(a->other, a->other->numel == n ? i : 0));
    return TN_OK;
}

/* Of vectors. */
static tn_status join(const tn_call *call, const void *args) {
    const tn_cat_args *a = args;
    int64_t at_ = 0;
    for (int64_t k = 0; k < a->tensors.n; k++)
        if (a->tensors.v[k]->ndim != 1) return TN_DECLINE;
    calls[CAT]++;
    for (int64_t k = 0; k < a->tensors.n; k++) {
        if (tn_view_dtype(a->tensors.v[k]) != TN_F32) return wrong(call);
        for (int64_t i = 0; i < a->tensors.v[k]->numel; i++)
            set(a->out, at_++, get(a->tensors.v[k], i));
    }
    return at_ == a->out->numel ? TN_OK : wrong(call);
}

/* softmax(q k^T / sqrt(d) + mask) v, with a mask of bools. */
static tn_status attend(const tn_call *call, const void *args) {
    const tn_scaled_dot_product_attention_args *a = args;
    const tn_view *q = a->query, *k = a->key, *m = a->attn_mask;
    int64_t d, rows, keys, width, groups = 1;
    if (a->is_causal || a->scale.has || a->dropout_p != 0 || a->enable_gqa || q->ndim < 2)
        return TN_DECLINE;
    if (k->ndim != q->ndim || a->value->ndim != q->ndim) return TN_DECLINE;
    d = q->shape[q->ndim - 1], rows = q->shape[q->ndim - 2], keys = k->shape[q->ndim - 2];
    width = a->value->shape[q->ndim - 1];
    if (m && (tn_view_dtype(m) != TN_BOOL || m->numel != rows * keys)) return TN_DECLINE;
    for (int i = 0; i + 2 < q->ndim; i++) groups *= q->shape[i];
    calls[ATTENTION]++;
    double *weight = malloc(sizeof *weight * (size_t)(keys + 1));
    if (!weight) return call->host->fail(TN_E_MEMORY, -1, "no room");
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t c = 0; c < keys; c++) {
                double dot = 0;
                for (int64_t i = 0; i < d; i++)
                    dot += (double)get(q, (g * rows + r) * d + i) * get(k, (g * keys + c) * d + i);
                weight[c] = m && !*at(m, r * keys + c) ? 0 : exp(dot / sqrt((double)d));
                sum += weight[c];
            }
            for (int64_t i = 0; i < width; i++) {
                double out = 0;
                for (int64_t c = 0; c < keys; c++)
                    out += weight[c] / sum * get(a->value, (g * keys + c) * width + i);
                set(a->out, (g * rows + r) * width + i, out);
            }
        }
    free(weight);
    return TN_OK;
}

/* Declines always, as a kernel does that fits no call of the test. */
static tn_status normalize(const tn_call *call, const void *args) {
    (void)call, (void)args;
    calls[LAYER_NORM]++;
    return TN_DECLINE;
}

static tn_status pieces(const tn_call *call, const void *args) {
    const tn_unsafe_split_args *a = args;
    int64_t from = 0;
    if (a->tensor->ndim != 1) return TN_DECLINE;
    calls[SPLIT]++;
    for (int64_t k = 0; k < a->out.n; k++)
        for (int64_t i = 0; i < a->out.v[k]->numel; i++)
            set(a->out.v[k], i, get(a->tensor, from++));
    return from == a->tensor->numel ? TN_OK : wrong(call);
}

/* In place, one list of places. */
static tn_status put(const tn_call *call, const void *args) {
    const tn_index_put__args *a = args;
    if (a->indices.n != 1 || a->self->ndim != 1 || a->accumulate) return TN_DECLINE;
    if (tn_view_dtype(a->indices.v[0]) != TN_I64 || tn_view_dtype(a->values) != TN_F32)
        return wrong(call);
    calls[PUT]++;
    for (int64_t i = 0; i < a->indices.v[0]->numel; i++)
        set(a->out, *(const int64_t *)at(a->indices.v[0], i),
            get(a->values, a->values->numel == 1 ? 0 : i));
    return TN_OK;
}

/* The mean of -log softmax(input)[target]. */
static tn_status entropy(const tn_call *call, const void *args) {
    const tn_cross_entropy_args *a = args;
    double loss = 0;
    if (a->input->ndim != 2 || strcmp(a->reduction, "mean") != 0 || a->weight) return TN_DECLINE;
    if (tn_view_dtype(a->target) != TN_I64) return wrong(call);
    calls[ENTROPY]++;
    int64_t rows = a->input->shape[0], classes = a->input->shape[1];
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += exp((double)get(a->input, r * classes + c));
        int64_t right = *(const int64_t *)at(a->target, r);
        loss += log(sum) - get(a->input, r * classes + right);
    }
    set(a->out, 0, loss / (double)rows);
    return TN_OK;
}

/* Draws nothing: the test only asks where it runs. */
static tn_status drop(const tn_call *call, const void *args) {
    const tn_dropout_args *a = args;
    (void)call;
    calls[DROPOUT]++;
    for (int64_t i = 0; i < a->out->numel; i++) set(a->out, i, get(a->input, i));
    return TN_OK;
}

static tn_status never(const tn_call *call, const void *args) {
    (void)args;
    calls[NEVER]++;
    return wrong(call);
}

static const tn_kernel_row rows[] = {
    {.op = "gelu", .sig = TN_SIG_gelu, .fn = gelu, .dtype = TN_F32},
    {.op = "div", .sig = TN_SIG_div, .fn = divide, .dtype = TN_F32},
    {.op = "cat", .sig = TN_SIG_cat, .fn = join, .dtype = TN_F32},
    {.op = "scaled_dot_product_attention",
     .sig = TN_SIG_scaled_dot_product_attention,
     .fn = attend,
     .dtype = TN_F32},
    {.op = "layer_norm", .sig = TN_SIG_layer_norm, .fn = normalize, .dtype = TN_F32},
    {.op = "unsafe_split", .sig = TN_SIG_unsafe_split, .fn = pieces, .dtype = TN_F32},
    {.op = "index_put_", .sig = TN_SIG_index_put_, .fn = put, .dtype = TN_F32},
    {.op = "cross_entropy", .sig = TN_SIG_cross_entropy, .fn = entropy, .dtype = TN_F32},
    {.op = "dropout", .sig = TN_SIG_dropout, .fn = drop, .dtype = TN_F32},
    {.op = "atleast_1d", .sig = TN_SIG_atleast_1d, .fn = never, .dtype = TN_F32},
    {.op = "masked_select", .sig = TN_SIG_masked_select, .fn = never, .dtype = TN_F32},
    {.op = "zeros", .sig = TN_SIG_zeros, .fn = never, .dtype = TN_DTYPE_ANY},
};
