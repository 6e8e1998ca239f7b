/* attention_cudnn.c: attention of half precision by cuDNN. Its fused engines are found by the graph of
 * operations that computes the same step by step, so this is that graph, forward and backward. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "dnn_plan.h"

enum {
    OLDEST = 91002,          /* versions before have errors in these engines */
    OLDEST_ANY_KEYS = 91501, /* versions before want a multiple of 128 keys going backward */
    LEAST_MAJOR = 8,         /* of GPUs */
    LEAST_UNORDERED = 10,    /* of GPUs whose gradients differ from run to run in the last bits */
    WIDEST = 128,            /* columns of a head */
    GROUP = 8,               /* elements that are loaded at once */
    MOST_OPERATIONS = 32
};

/* The operands of both graphs, by their numbers in cuDNN; those from GRAD on go backward. */
enum { Q = 1, K, V, Y, LSE, SCALE, LOW, GRAD, GRAD_Q, GRAD_K, GRAD_V, DELTA, ONE, SUM_Q, OPERANDS };

/* Images, heads, rows, columns. */
typedef struct layout {
    int64_t size[4], stride[4];
} layout;

/* Everything that a plan depends on but the device. */
typedef struct attention_key {
    cuda_dnn_key all;
    int64_t backward, causal;
    layout of[OPERANDS];
} attention_key;

/* ---- The graph ---------------------------------------------------------------------------------*/

typedef cudnnBackendDescriptor_t tensor;

typedef struct sketch {
    cuda_dnn_build *b;
    const attention_key *k;
    int64_t tensors; /* that have a number */
    int n;
    cudnnBackendDescriptor_t operations[MOST_OPERATIONS];
} sketch;

static bool is_by_value(int64_t id) { return id == SCALE || id == LOW || id == ONE; }
static bool is_float(int64_t id) {
    return is_by_value(id) || id == LSE || id == DELTA || id == SUM_Q;
}

static tensor make_tensor(sketch *s, int64_t id, int32_t type, const layout *of) {
    cuda_dnn_tensor t = {.id = id,
                         .dims = 4,
                         .alignment = s->k->all.alignment,
                         .type = type,
                         .passing = id >= OPERANDS,
                         .by_value = is_by_value(id)};
    memcpy(t.size, of->size, sizeof of->size);
    memcpy(t.stride, of->stride, sizeof of->stride);
    return cuda_dnn_make_tensor(s->b, &t);
}

static int32_t type_of(const sketch *s, int64_t id) {
    return is_float(id) ? CUDNN_F32 : cuda_dnn_type(s->k->all.dtype);
}

static tensor operand(sketch *s, int64_t id) {
    return make_tensor(s, id, type_of(s, id), &s->k->of[id]);
}

/* Rows and columns change places, in memory they stay. */
static layout turned(const layout *of) {
    layout t = *of;
    t.size[2] = of->size[3];
    t.size[3] = of->size[2];
    t.stride[2] = of->stride[3];
    t.stride[3] = of->stride[2];
    return t;
}

static tensor turned_operand(sketch *s, int64_t id) {
    layout t = turned(&s->k->of[id]);
    return make_tensor(s, id, type_of(s, id), &t);
}

static layout packed(int64_t images, int64_t heads, int64_t rows, int64_t columns) {
    return (layout){{images, heads, rows, columns},
                    {heads * rows * columns, rows * columns, columns, 1}};
}

/* What passes between operations. */
static tensor passing(sketch *s, int32_t type, layout of) {
    return make_tensor(s, OPERANDS + s->tensors++, type, &of);
}

/* An entry for each score, and one for each query. */
static layout of_scores(const sketch *s) {
    const int64_t *q = s->k->of[Q].size;
    return packed(q[0], q[1], q[2], s->k->of[K].size[2]);
}
static tensor scores(sketch *s, int32_t type) { return passing(s, type, of_scores(s)); }
static tensor per_query(sketch *s) { return passing(s, CUDNN_F32, s->k->of[LSE]); }

static cudnnBackendDescriptor_t add(sketch *s, unsigned type) {
    cudnnBackendDescriptor_t op = cuda_dnn_make(s->b, type);
    if (s->n == MOST_OPERATIONS)
        s->b->status = CUDNN_BAD_PARAM;
    else
        s->operations[s->n++] = op;
    return op;
}

/* The formula of a pointwise operation; `axis` is that of CUDNN_MAP_INDEX. */
static cudnnBackendDescriptor_t formula(sketch *s, int32_t mode, int32_t compute, int64_t axis) {
    cudnnBackendDescriptor_t f = cuda_dnn_make(s->b, CUDNN_MAP);
    cuda_dnn_set(s->b, f, CUDNN_MAP_MODE, CUDNN_IS_MAP, 1, &mode);
    cuda_dnn_set(s->b, f, CUDNN_MAP_COMPUTE, CUDNN_IS_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_MAP_INDEX) cuda_dnn_set(s->b, f, CUDNN_MAP_AXIS, CUDNN_IS_INT64, 1, &axis);
    cuda_dnn_finish(s->b, f);
    return f;
}

/* y = f(x, other), or f(x) without the other one; returns y, as do those that follow. */
static tensor map(sketch *s, int32_t mode, tensor x, tensor other, tensor y) {
    int32_t compute = mode == CUDNN_MAP_GE ? CUDNN_BOOL : CUDNN_F32;
    cudnnBackendDescriptor_t f = formula(s, mode, compute, 0), op = add(s, CUDNN_MAP_OP);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_MAP, f);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_X, x);
    if (other) cuda_dnn_link(s->b, op, CUDNN_MAP_OP_B, other);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_Y, y);
    cuda_dnn_finish(s->b, op);
    return y;
}

/* Of each score the number of its row or column. */
static tensor indices(sketch *s, tensor x, int64_t axis) {
    tensor y = scores(s, CUDNN_I32);
    cudnnBackendDescriptor_t f = formula(s, CUDNN_MAP_INDEX, CUDNN_F32, axis),
                             op = add(s, CUDNN_MAP_OP);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_MAP, f);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_X, x);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_Y, y);
    cuda_dnn_finish(s->b, op);
    return y;
}

/* The scores, -inf where a query may not look at the key. */
static tensor causal(sketch *s, tensor x) {
    tensor row = indices(s, x, 2), column = indices(s, x, 3), y = scores(s, CUDNN_F32),
           seen = map(s, CUDNN_MAP_GE, row, column, scores(s, CUDNN_BOOL));
    cudnnBackendDescriptor_t f = formula(s, CUDNN_MAP_SELECT, CUDNN_F32, 0),
                             op = add(s, CUDNN_MAP_OP);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_MAP, f);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_X, x);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_B, operand(s, LOW));
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_T, seen);
    cuda_dnn_link(s->b, op, CUDNN_MAP_OP_Y, y);
    cuda_dnn_finish(s->b, op);
    return y;
}

static tensor multiply(sketch *s, tensor a, tensor b, tensor c) {
    const int32_t compute = CUDNN_F32;
    cudnnBackendDescriptor_t product = cuda_dnn_make(s->b, CUDNN_PRODUCT),
                             op = add(s, CUDNN_PRODUCT_OP);
    cuda_dnn_set(s->b, product, CUDNN_PRODUCT_COMPUTE, CUDNN_IS_DATA_TYPE, 1, &compute);
    cuda_dnn_finish(s->b, product);
    cuda_dnn_link(s->b, op, CUDNN_PRODUCT_OP_PRODUCT, product);
    cuda_dnn_link(s->b, op, CUDNN_PRODUCT_OP_A, a);
    cuda_dnn_link(s->b, op, CUDNN_PRODUCT_OP_B, b);
    cuda_dnn_link(s->b, op, CUDNN_PRODUCT_OP_C, c);
    cuda_dnn_finish(s->b, op);
    return c;
}

/* Along the dimensions that y has not. */
static tensor reduce(sketch *s, int32_t mode, tensor x, tensor y) {
    const int32_t compute = CUDNN_F32;
    cudnnBackendDescriptor_t reduction = cuda_dnn_make(s->b, CUDNN_REDUCTION),
                             op = add(s, CUDNN_REDUCTION_OP);
    cuda_dnn_set(s->b, reduction, CUDNN_REDUCTION_MODE, CUDNN_IS_REDUCTION, 1, &mode);
    cuda_dnn_set(s->b, reduction, CUDNN_REDUCTION_COMPUTE, CUDNN_IS_DATA_TYPE, 1, &compute);
    cuda_dnn_finish(s->b, reduction);
    cuda_dnn_link(s->b, op, CUDNN_REDUCTION_OP_REDUCTION, reduction);
    cuda_dnn_link(s->b, op, CUDNN_REDUCTION_OP_X, x);
    cuda_dnn_link(s->b, op, CUDNN_REDUCTION_OP_Y, y);
    cuda_dnn_finish(s->b, op);
    return y;
}

/* x with another layout. */
static tensor reshape(sketch *s, tensor x, tensor y) {
    cudnnBackendDescriptor_t op = add(s, CUDNN_RESHAPE_OP);
    cuda_dnn_link(s->b, op, CUDNN_RESHAPE_OP_X, x);
    cuda_dnn_link(s->b, op, CUDNN_RESHAPE_OP_Y, y);
    cuda_dnn_finish(s->b, op);
    return y;
}

/* ---- Forward: y = softmax(q k^T * scale) v -----------------------------------------------------*/

static void forward_graph(sketch *s) {
    int32_t half = cuda_dnn_type(s->k->all.dtype);
    tensor lse = operand(s, LSE);
    tensor x = multiply(s, operand(s, Q), turned_operand(s, K), scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_MUL, x, operand(s, SCALE), scores(s, CUDNN_F32));
    if (s->k->causal) x = causal(s, x);
    tensor most = reduce(s, CUDNN_REDUCE_MOST, x, per_query(s));
    x = map(s, CUDNN_MAP_SUB, x, most, scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_EXP, x, NULL, scores(s, CUDNN_F32));
    tensor sum = reduce(s, CUDNN_REDUCE_SUM, x, per_query(s));
    map(s, CUDNN_MAP_ADD, most, map(s, CUDNN_MAP_LOG, sum, NULL, per_query(s)), lse);
    x = map(s, CUDNN_MAP_DIV, x, sum, scores(s, half));
    multiply(s, x, operand(s, V), operand(s, Y));
}

/* ---- Backward: p = exp(score - lse), ds = p * (grad v^T - delta) * scale; then
 * grad_v = p^T grad, grad_k = ds^T q, grad_q = ds k ----------------------------------------------*/

/* Scores^T times rows of the queries; heads that share keys are added up. */
static void multiply_turned(sketch *s, tensor x, tensor rows, int64_t id) {
    const layout all = of_scores(s), *of = &s->k->of[id];
    int32_t half = cuda_dnn_type(s->k->all.dtype);
    tensor y = operand(s, id);
    x = reshape(s, x, passing(s, half, turned(&all)));
    if (of->size[1] == all.size[1]) {
        multiply(s, x, rows, y);
        return;
    }
    layout full = packed(all.size[0], all.size[1], of->size[2], of->size[3]);
    reduce(s, CUDNN_REDUCE_SUM, multiply(s, x, rows, passing(s, half, full)), y);
}

static void backward_graph(sketch *s) {
    const layout *q = &s->k->of[Q], *v = &s->k->of[V], *k = &s->k->of[K];
    tensor grad = operand(s, GRAD), keys = turned_operand(s, K), queries = operand(s, Q),
           scale = operand(s, SCALE), delta = operand(s, DELTA);
    layout rows = packed(q->size[0], q->size[1], q->size[2], v->size[3]);
    tensor x = map(s, CUDNN_MAP_MUL, grad, operand(s, Y), passing(s, CUDNN_F32, rows));
    x = reduce(s, CUDNN_REDUCE_SUM, x, per_query(s));
    map(s, CUDNN_MAP_MUL, x, operand(s, ONE), delta);
    x = multiply(s, queries, keys, scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_MUL, x, scale, scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_SUB, x, operand(s, LSE), scores(s, CUDNN_F32));
    if (s->k->causal) x = causal(s, x);
    tensor p = map(s, CUDNN_MAP_EXP, x, NULL, scores(s, CUDNN_F32));
    multiply_turned(s, p, grad, GRAD_V);
    x = multiply(s, grad, turned_operand(s, V), scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_SUB, x, delta, scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_MUL, x, p, scores(s, CUDNN_F32));
    x = map(s, CUDNN_MAP_MUL, x, scale, scores(s, CUDNN_F32));
    multiply_turned(s, x, queries, GRAD_K);
    tensor rows_of_k = reshape(s, keys, passing(s, cuda_dnn_type(s->k->all.dtype), *k));
    if (s->k->all.deterministic) {
        multiply(s, x, rows_of_k, operand(s, GRAD_Q));
        return;
    }
    tensor sum = multiply(s, x, rows_of_k, operand(s, SUM_Q));
    map(s, CUDNN_MAP_COPY, sum, NULL, operand(s, GRAD_Q));
}

static cudnnBackendDescriptor_t describe(cuda_dnn_build *b, const cuda_dnn_key *key,
                                         cudnnHandle_t handle) {
    sketch s = {.b = b, .k = (const attention_key *)key};
    (s.k->backward ? backward_graph : forward_graph)(&s);
    return cuda_dnn_make_graph(b, handle, s.operations, s.n);
}

/* ---- What cuDNN takes --------------------------------------------------------------------------*/

/* Rows that are packed and lie on multiples of 16 bytes, all of them within what 32 bits count; strides
 * of single entries say nothing. */
static bool read_layout(const tn_view *v, layout *ret) {
    bool fine = (uintptr_t)v->data % 16 == 0 && v->strides[3] == 1;
    int64_t extent = v->shape[3];
    ret->size[3] = v->shape[3];
    ret->stride[3] = 1;
    for (int d = 2; d >= 0; d--) {
        ret->size[d] = v->shape[d];
        ret->stride[d] = v->shape[d] > 1 ? v->strides[d] : extent;
        fine &= ret->stride[d] > 0 && ret->stride[d] % GROUP == 0;
        extent = ret->stride[d] * v->shape[d];
    }
    return fine && extent <= INT32_MAX;
}

/* One call; `call` and the key's direction are set first. */
typedef struct attention_call {
    const tn_call *call;
    cuda_device *d;
    attention_key key;
    float scale, low, one;
    const void *data[OPERANDS];
} attention_call;

/* A result: TN_DECLINE where engines cannot write it. */
static tn_status put_result(attention_call *a, int64_t id, const tn_view *v) {
    a->data[id] = v->data;
    return read_layout(v, &a->key.of[id]) ? TN_OK : TN_DECLINE;
}

/* What is read: as it lies, or a packed copy where engines cannot load that. */
static tn_status put(attention_call *a, int64_t id, const tn_view *v) {
    if (put_result(a, id, v) == TN_OK) return TN_OK;
    a->key.of[id] = packed(v->shape[0], v->shape[1], v->shape[2], v->shape[3]);
    tn_status st = cuda_packed(a->call, v, &a->data[id]);
    return st == TN_OK && (uintptr_t)a->data[id] % 16 != 0 ? TN_DECLINE : st;
}

/* A single query is not: each number of keys, of which a text that grows has many, would need a plan,
 * and to make one takes much longer. */
static bool is_wanted(const attention_call *a, const tn_view *q, const tn_view *mask) {
    const cuda_cudnn *api = cuda_option_value(CUDA_CUDNN_SDP) ? cuda_dnn_wanted() : NULL;
    bool half = a->call->dtype == TN_F16 || a->call->dtype == TN_BF16;
    return half && !mask && q->shape[2] > 1 && api && (int32_t)api->version() >= OLDEST;
}

static bool has_widths(const tn_view *q, const tn_view *v) {
    return q->shape[3] <= WIDEST && q->shape[3] % GROUP == 0 && v->shape[3] <= WIDEST &&
           v->shape[3] % GROUP == 0;
}

/* TN_DECLINE: engines have no way for these. */
static tn_status start(attention_call *a, const tn_view *q, const tn_view *k, const tn_view *v,
                       const tn_view *lse, bool is_causal, double scale) {
    bool fine = q->numel > 0 && q->numel <= INT32_MAX && v->numel > 0 && v->numel <= INT32_MAX &&
                k->numel <= INT32_MAX && has_widths(q, v) && tn_view_is_contiguous(lse) &&
                (uintptr_t)lse->data % 16 == 0;
    tn_status st = fine ? cuda_enter(a->call->device_index, &a->d) : TN_DECLINE;
    if (st == TN_OK && a->d->major < LEAST_MAJOR) st = TN_DECLINE;
    a->key.all = cuda_dnn_key_of(a->call, CUDNN_PRODUCT_OP);
    a->key.all.alignment = 16;
    a->key.causal = is_causal;
    a->key.of[LSE] = packed(q->shape[0], q->shape[1], q->shape[2], 1);
    a->key.of[SCALE] = a->key.of[LOW] = a->key.of[ONE] = packed(1, 1, 1, 1);
    a->scale = (float)scale;
    a->low = -INFINITY;
    a->one = 1;
    a->data[LSE] = lse->data;
    a->data[SCALE] = &a->scale;
    a->data[LOW] = is_causal ? &a->low : NULL;
    if (st == TN_OK) st = put(a, Q, q);
    if (st == TN_OK) st = put(a, K, k);
    return st == TN_OK ? put(a, V, v) : st;
}

static tn_status run(attention_call *a) {
    const cuda_dnn_problem problem = {.key = &a->key.all,
                                      .bytes = sizeof a->key,
                                      .describe = describe,
                                      .data = a->data + 1,
                                      .operands = OPERANDS - 1};
    return cuda_dnn_run(a->call, a->d, &problem);
}

tn_status cuda_attention_by_cudnn(const tn_call *call, const tn__flash_attention_args *in) {
    attention_call a;
    memset(&a, 0, sizeof a);
    a.call = call;
    if (!is_wanted(&a, in->query, in->attn_mask)) return TN_DECLINE;
    tn_status st = put_result(&a, Y, in->y);
    if (st == TN_OK)
        st = start(&a, in->query, in->key, in->value, in->lse, in->is_causal != 0, in->scale);
    return st == TN_OK ? run(&a) : st;
}

/* Float numbers in scratch memory. */
static tn_status put_scratch(attention_call *a, int64_t id, layout of) {
    void *data = NULL;
    int64_t n = room_mul(of.size[0], of.stride[0]);
    tn_status st = room_scratch(a->call, n, sizeof(float), &data);
    a->key.of[id] = of;
    a->data[id] = data;
    return st;
}

/* The results, and what takes the query's gradient while it is added up. */
static tn_status put_gradients(attention_call *a, const tn__flash_attention_backward_args *in) {
    const int64_t *q = in->query->shape;
    a->data[ONE] = &a->one;
    tn_status st = put_result(a, GRAD_Q, in->grad_query);
    if (st == TN_OK) st = put_result(a, GRAD_K, in->grad_key);
    if (st == TN_OK) st = put_result(a, GRAD_V, in->grad_value);
    if (st == TN_OK) st = put(a, Y, in->y);
    if (st == TN_OK) st = put(a, GRAD, in->grad);
    if (st == TN_OK) st = put_scratch(a, DELTA, a->key.of[LSE]);
    if (st == TN_OK && !a->key.all.deterministic)
        st = put_scratch(a, SUM_Q, packed(q[0], q[1], q[2], q[3]));
    return st;
}

tn_status cuda_attention_backward_by_cudnn(const tn_call *call,
                                           const tn__flash_attention_backward_args *in) {
    attention_call a;
    memset(&a, 0, sizeof a);
    a.call = call;
    a.key.backward = 1;
    if (!is_wanted(&a, in->query, in->attn_mask)) return TN_DECLINE;
    if (in->key->shape[2] % 128 != 0 && cuda_cudnn_version() < OLDEST_ANY_KEYS) return TN_DECLINE;
    tn_status st = start(&a, in->query, in->key, in->value, in->lse, in->is_causal != 0, in->scale);
    if (st == TN_OK && a.key.all.deterministic && a.d->major >= LEAST_UNORDERED) st = TN_DECLINE;
    if (st == TN_OK) st = put_gradients(&a, in);
    return st == TN_OK ? run(&a) : st;
}
