/* rnn_cudnn.c: all layers of a recurrent network at once, by cuDNN. Rows are grouped by time step, which
 * is cuDNN's packed layout. Weights are separate tensors of the user: they are copied to where cuDNN
 * wants them, and their gradients back into one row of all weights.
 *
 * family: rnn_cudnn */
#include "dnn_plan.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/args_rnn.h>

#include "cudnn_rnn.h"

/* ---- The library -------------------------------------------------------------------------------*/

static const cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, result, params) {#symbol, offsetof(cuda_cudnn_rnn, member)},
    CUDNN_RNN_LIST(SYMBOL)
#undef SYMBOL
};
static cuda_cudnn_rnn rnn;
static bool is_there;

static void find_library(void) {
    static const int versions[] = {9, 0};
    void *library = cuda_open_library("libcudnn", versions);
    is_there =
        library && !cuda_find_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &rnn);
}

/* cuDNN may be had, is wanted, and may be used: its sums may differ from run to run. */
static bool is_usable(const tn_call *call) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!cuda_dnn_wanted() || cuda_option_value(CUDA_DETERMINISTIC) ||
        cuda_option_value(CUDA_CUDNN_DETERMINISTIC) || (call->flags & TN_CALL_DETERMINISTIC))
        return false;
    pthread_once(&once, find_library);
    return is_there;
}

/* ---- A network's descriptors -------------------------------------------------------------------*/

typedef struct network {
    int32_t mode, layers, directions, features, hidden, projected; /* 0: no projection */
    bool has_biases;
    tn_ints sizes; /* rows of each step */
    int32_t dtype;
} network;

/* After the first failure nothing more is done; `status` keeps it. */
typedef struct session {
    const network *n;
    cudnnHandle_t handle;
    int status;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t h, c, matrix, bias;
    size_t weight_bytes, work_bytes, reserve_bytes;
} session;

#define DO(s, what)                                                                                \
    do {                                                                                           \
        if ((s)->status == CUDNN_OK) (s)->status = (what);                                         \
    } while (0)

static int32_t width_of(const network *n) { return n->projected ? n->projected : n->hidden; }

static unsigned math_of(int32_t dtype) {
    if (dtype == TN_F16 || dtype == TN_BF16) return CUDNN_MATH_TENSOR_CORES;
    return dtype == TN_F32 && !cuda_option_value(CUDA_CUDNN_TF32) ? CUDNN_MATH_FMA
                                                                  : CUDNN_MATH_DEFAULT;
}

/* Of states: layers and directions, samples, width. */
static void describe_states(session *s, int32_t width, cudnnTensorDescriptor_t *ret) {
    int samples = (int)s->n->sizes.v[0];
    const int sizes[] = {s->n->layers * s->n->directions, samples, width};
    const int strides[] = {samples * width, width, 1};
    DO(s, rnn.create_tensor(ret));
    DO(s, rnn.set_tensor(*ret, (unsigned)cuda_dnn_type(s->n->dtype), 3, sizes, strides));
}

static void describe_rows(session *s, const int *lengths, int32_t width,
                          cudnnRNNDataDescriptor_t *ret) {
    DO(s, rnn.create_data(ret));
    DO(s, rnn.set_data(*ret, (unsigned)cuda_dnn_type(s->n->dtype), CUDNN_RNN_PACKED,
                       (int)s->n->sizes.n, (int)s->n->sizes.v[0], width, lengths, NULL));
}

static void describe_network(session *s) {
    const network *n = s->n;
    unsigned type = (unsigned)cuda_dnn_type(n->dtype);
    DO(s, rnn.create_dropout(&s->dropout));
    DO(s, rnn.set_dropout(s->dropout, s->handle, 0, NULL, 0, 0));
    DO(s, rnn.create_rnn(&s->rnn));
    DO(s, rnn.set_rnn(s->rnn, CUDNN_RNN_STANDARD, (unsigned)n->mode,
                      n->has_biases ? CUDNN_RNN_WITH_BIASES : CUDNN_RNN_WITHOUT_BIAS,
                      n->directions == 2 ? CUDNN_RNN_BOTH_WAYS : CUDNN_RNN_ONE_WAY,
                      CUDNN_RNN_MULTIPLIES_INPUT, type, n->dtype == TN_F64 ? CUDNN_F64 : CUDNN_F32,
                      math_of(n->dtype), n->features, n->hidden, width_of(n), n->layers, s->dropout,
                      0));
}

/* How many steps each sample has. */
static int *lengths_of(tn_ints sizes) {
    int64_t samples = sizes.v[0], t = sizes.n;
    int *lengths = calloc((size_t)samples, sizeof *lengths);
    for (int64_t b = 0; lengths && b < samples; b++) {
        while (sizes.v[t - 1] <= b) t--;
        lengths[b] = (int)t;
    }
    return lengths;
}

static void open_session(session *s, const network *n, cudnnHandle_t handle, bool train) {
    memset(s, 0, sizeof *s);
    s->n = n;
    s->handle = handle;
    int *lengths = lengths_of(n->sizes);
    s->status = handle && lengths ? CUDNN_OK : CUDNN_BAD_PARAM;
    describe_network(s);
    describe_rows(s, lengths, n->features, &s->x);
    describe_rows(s, lengths, width_of(n) * n->directions, &s->y);
    describe_states(s, width_of(n), &s->h);
    describe_states(s, n->hidden, &s->c);
    DO(s, rnn.create_tensor(&s->matrix));
    DO(s, rnn.create_tensor(&s->bias));
    DO(s, rnn.weight_size(handle, s->rnn, &s->weight_bytes));
    DO(s,
       rnn.temporary_sizes(handle, s->rnn, train ? CUDNN_RNN_FOR_GRADIENTS : CUDNN_RNN_FOR_RESULTS,
                           s->x, &s->work_bytes, &s->reserve_bytes));
    free(lengths);
}

static void close_session(session *s) {
    if (s->rnn) rnn.destroy_rnn(s->rnn);
    if (s->dropout) rnn.destroy_dropout(s->dropout);
    if (s->x) rnn.destroy_data(s->x);
    if (s->y) rnn.destroy_data(s->y);
    const cudnnTensorDescriptor_t tensors[] = {s->h, s->c, s->matrix, s->bias};
    for (int i = 0; i < 4; i++)
        if (tensors[i]) rnn.destroy_tensor(tensors[i]);
}

static tn_status fail(const tn_call *call, const session *s) {
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: cuDNN returned error %d (%s)",
                           call->device_index, call->op->name, s->status,
                           cuda_dnn_wanted() ? cuda_dnn_wanted()->error_text(s->status) : "");
}

/* ---- Weights -----------------------------------------------------------------------------------*/

/* By mode. */
static const int32_t gate_counts[] = {1, 1, 4, 3};

/* Copies between weights and cuDNN's space of them. `row` is the row of all gradients, or NULL: then
 * weights are copied into the space. Neighbours are copied together. */
typedef struct transfer {
    const tn_call *call;
    cuda_device *d;
    session *s;
    char *space, *row;
    tn_views params;
    int64_t item;   /* bytes of an element */
    int64_t before; /* elements of the weights before the current one */
    int64_t at;     /* the current one's number */
    const char *data;
    const char *from; /* the copy that is yet to be made */
    char *to;
    size_t bytes;
} transfer;

static tn_status flush(transfer *t) {
    if (t->bytes == 0) return TN_OK;
    cuda_count(t->d, CUDA_BYTES_WITHIN, t->bytes);
    CUresult r = cuda.copy_within((CUdeviceptr)(uintptr_t)t->to, (CUdeviceptr)(uintptr_t)t->from,
                                  t->bytes, t->call->stream);
    t->bytes = 0;
    return r == CUDA_OK ? TN_OK : cuda_fail(t->d, r, "copying weights");
}

/* Elements [begin, begin + n) of the current weight, whose place in the space is `place`. */
static tn_status move(transfer *t, int64_t begin, int64_t n, char *place) {
    const char *from = t->row ? place : t->data + begin * t->item;
    char *to = t->row ? t->row + (t->before + begin) * t->item : place;
    tn_status st = TN_OK;
    if (!place) {
        t->s->status = CUDNN_BAD_PARAM;
        return fail(t->call, t->s);
    }
    if (t->bytes == 0 || from != t->from + t->bytes || to != t->to + t->bytes) {
        st = flush(t);
        t->from = from;
        t->to = to;
    }
    t->bytes += (size_t)(n * t->item);
    return st;
}

/* The next weight, which has `gates` equal parts: those are the linear layers from `linear` on. */
static tn_status move_weight(transfer *t, int32_t layer, int32_t linear, int32_t gates,
                             bool is_bias) {
    const tn_view *w = t->params.v[t->at];
    int64_t n = w->numel / gates;
    const void *packed = NULL;
    tn_status st = t->row ? TN_OK : cuda_packed(t->call, w, &packed);
    t->data = packed;
    for (int32_t k = 0; k < gates && st == TN_OK; k++) {
        void *matrix = NULL, *bias = NULL;
        session *s = t->s;
        DO(s, rnn.weight_place(s->handle, s->rnn, layer, s->weight_bytes, t->space, linear + k,
                               s->matrix, &matrix, s->bias, &bias));
        if (s->status != CUDNN_OK) return fail(t->call, s);
        st = move(t, k * n, n, is_bias ? bias : matrix);
    }
    t->before += w->numel;
    t->at++;
    return st;
}

static tn_status move_weights(transfer *t) {
    const network *n = t->s->n;
    int32_t gates = gate_counts[n->mode];
    tn_status st = TN_OK;
    for (int32_t i = 0; i < n->layers * n->directions && st == TN_OK; i++) {
        st = move_weight(t, i, 0, gates, false);
        if (st == TN_OK) st = move_weight(t, i, gates, gates, false);
        if (st == TN_OK && n->has_biases) st = move_weight(t, i, 0, gates, true);
        if (st == TN_OK && n->has_biases) st = move_weight(t, i, gates, gates, true);
        if (st == TN_OK && n->projected) st = move_weight(t, i, 2 * gates, 1, false);
    }
    return st == TN_OK ? flush(t) : st;
}

static tn_status scratch(const tn_call *call, size_t bytes, void **ret) {
    *ret = NULL;
    return bytes ? room_scratch(call, 1, bytes, ret) : TN_OK;
}

static tn_status zeros(const tn_call *call, size_t bytes, void **ret) {
    tn_status st = scratch(call, (bytes + 7) / 8 * 8, ret);
    tn_view v = {.data = *ret, .numel = (int64_t)((bytes + 7) / 8), .dl_bits = 64};
    return st == TN_OK && bytes ? cuda_zero(call, &v) : st;
}

/* Room for the weights as cuDNN has them, and the weights in it. */
static tn_status load_weights(const tn_call *call, cuda_device *d, session *s, tn_views params,
                              int64_t item, void **ret_space) {
    tn_status st = zeros(call, s->weight_bytes, ret_space);
    transfer t = {
        .call = call, .d = d, .s = s, .space = *ret_space, .params = params, .item = item};
    return st == TN_OK ? move_weights(&t) : st;
}

/* ---- The operators -----------------------------------------------------------------------------*/

/* What the arguments of all three operators have in common. */
#define READ_OPTIONS(n, call, a)                                                                   \
    ((n)->mode = (int32_t)(a)->mode, (n)->layers = (int32_t)(a)->num_layers,                       \
     (n)->directions = (a)->bidirectional ? 2 : 1, (n)->has_biases = (a)->has_biases != 0,         \
     (n)->features = (int32_t)(a)->input->shape[1], (n)->sizes = (a)->sizes,                       \
     (n)->dtype = (call)->dtype)

static bool fits_int(int64_t v) { return v <= INT_MAX; }

static tn_status room(const tn_call *call, const void *args) {
    const tn__rnn_room_args *a = args;
    int64_t *ret = a->room->data;
    network n = {.hidden = (int32_t)a->hidden, .projected = (int32_t)a->proj};
    cuda_device *d = NULL;
    session s;
    READ_OPTIONS(&n, call, a);
    *ret = -1;
    if (!fits_int(a->input->numel) || !fits_int(a->hidden * 8) ||
        !fits_int(a->input->shape[0] * a->hidden * 2) || a->input->shape[1] == 0 ||
        !is_usable(call))
        return TN_OK;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    cuda_dnn_lock();
    open_session(&s, &n, cuda_cudnn_handle(d, call->stream), a->train != 0);
    if (s.status == CUDNN_OK) *ret = a->train ? (int64_t)s.reserve_bytes + !s.reserve_bytes : 0;
    close_session(&s);
    cuda_dnn_unlock();
    return TN_OK;
}

static int32_t hidden_of(const tn_view *h0, const tn_view *c0) {
    return (int32_t)(c0 ? c0 : h0)->shape[2];
}
static int32_t projected_of(const tn_view *h0, const tn_view *c0) {
    return c0 && c0->shape[2] != h0->shape[2] ? (int32_t)h0->shape[2] : 0;
}

static tn_status run_forward(const tn_call *call, cuda_device *d, session *s,
                             const tn__rnn_layers_args *a) {
    void *weights = NULL, *work = NULL;
    bool train = a->room > 0;
    tn_status st = load_weights(call, d, s, a->params, tn_view_itemsize(a->input), &weights);
    if (st == TN_OK) st = scratch(call, s->work_bytes, &work);
    if (st != TN_OK) return st;
    cuda_count(d, CUDA_LIBRARY_CALLS, 1);
    DO(s,
       rnn.forward(s->handle, s->rnn, train ? CUDNN_RNN_FOR_GRADIENTS : CUDNN_RNN_FOR_RESULTS, NULL,
                   s->x, a->input->data, s->y, a->y->data, s->h, a->h0->data, a->h->data, s->c,
                   a->c0 ? a->c0->data : NULL, a->c0 ? a->c->data : NULL, s->weight_bytes, weights,
                   s->work_bytes, work, (size_t)a->room, train ? a->reserve->data : NULL));
    return s->status == CUDNN_OK ? TN_OK : fail(call, s);
}

static tn_status forward(const tn_call *call, const void *args) {
    const tn__rnn_layers_args *a = args;
    network n = {.hidden = hidden_of(a->h0, a->c0), .projected = projected_of(a->h0, a->c0)};
    cuda_device *d = NULL;
    session s;
    READ_OPTIONS(&n, call, a);
    if (!is_usable(call)) return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    cuda_dnn_lock();
    open_session(&s, &n, cuda_cudnn_handle(d, call->stream), a->room > 0);
    st = s.status == CUDNN_OK ? run_forward(call, d, &s, a) : fail(call, &s);
    close_session(&s);
    cuda_dnn_unlock();
    return st;
}

static const void *data_of(const tn_view *v) { return v ? v->data : NULL; }

static tn_status run_backward(const tn_call *call, cuda_device *d, session *s,
                              const tn__rnn_layers_backward_args *a) {
    const tn_view *y = a->kept.v[0], *reserve = a->kept.v[1];
    void *weights = NULL, *work = NULL, *grads = NULL, *kept = NULL;
    int64_t item = tn_view_itemsize(a->input);
    tn_status st = load_weights(call, d, s, a->params, item, &weights);
    if (st == TN_OK) st = scratch(call, s->work_bytes, &work);
    if (st == TN_OK) st = zeros(call, s->weight_bytes, &grads);
    if (st == TN_OK) st = scratch(call, (size_t)reserve->numel, &kept);
    if (st != TN_OK) return st;
    /* cuDNN writes to what it kept, and there may be another pass. */
    size_t bytes = (size_t)reserve->numel;
    CUresult r = cuda.copy_within((CUdeviceptr)(uintptr_t)kept,
                                  (CUdeviceptr)(uintptr_t)reserve->data, bytes, call->stream);
    if (r != CUDA_OK) return cuda_fail(d, r, "copying what the network kept");
    cuda_count(d, CUDA_BYTES_WITHIN, bytes);
    cuda_count(d, CUDA_LIBRARY_CALLS, 2);
    DO(s, rnn.backward_data(s->handle, s->rnn, NULL, s->y, y->data, a->grad_y->data, s->x,
                            a->grad_input->data, s->h, a->h0->data, data_of(a->grad_h),
                            a->grad_h0->data, s->c, data_of(a->c0), data_of(a->grad_c),
                            a->c0 ? a->grad_c0->data : NULL, s->weight_bytes, weights,
                            s->work_bytes, work, bytes, kept));
    DO(s, rnn.backward_weights(s->handle, s->rnn, CUDNN_RNN_ADD, NULL, s->x, a->input->data, s->h,
                               a->h0->data, s->y, y->data, s->weight_bytes, grads, s->work_bytes,
                               work, bytes, kept));
    if (s->status != CUDNN_OK) return fail(call, s);
    transfer t = {.call = call,
                  .d = d,
                  .s = s,
                  .space = grads,
                  .row = a->grad_params->data,
                  .params = a->params,
                  .item = item};
    return move_weights(&t);
}

static tn_status backward(const tn_call *call, const void *args) {
    const tn__rnn_layers_backward_args *a = args;
    network n = {.hidden = hidden_of(a->h0, a->c0), .projected = projected_of(a->h0, a->c0)};
    cuda_device *d = NULL;
    session s;
    READ_OPTIONS(&n, call, a);
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    cuda_dnn_lock();
    open_session(&s, &n, cuda_cudnn_handle(d, call->stream), true);
    st = s.status == CUDNN_OK ? run_backward(call, d, &s, a) : fail(call, &s);
    close_session(&s);
    cuda_dnn_unlock();
    return st;
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_rnn_room, room),
    CUDA_FLOAT_ROWS(_rnn_layers, forward),
    CUDA_FLOAT_ROWS(_rnn_layers_backward, backward),
};
const cuda_rows cuda_rnn_cudnn_rows = CUDA_ROWS_OF(rows);
