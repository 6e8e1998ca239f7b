/* conv_cudnn.c: convolutions by cuDNN. A plan is searched for once per sizes and kept, in memory and, as
 * text, in a file: cuDNN's heuristics propose engines, of which the first is taken that computes as we
 * promise, or with `benchmark` the fastest. Where none serves, our own kernels do. */
#include "conv.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnn.h"

enum {
    PLACES = 4096,   /* in the table of plans; a quarter stays free, and plans stay for good, since
                          * recorded graphs may hold them */
    CANDIDATES = 16, /* configurations that are looked at */
    NOTES = 16,      /* of an engine */
    WORKSPACE_MIB = 1024 /* what a plan may take at most */
};

/* ---- Which convolution -------------------------------------------------------------------------*/

/* Everything that a plan depends on but the device; compared as bytes. */
typedef struct conv_key {
    int32_t kind, dtype, tf32, deterministic, benchmark, alignment;
    int64_t dims; /* of windows: 2 or 3 */
    int64_t x[5], w[5], y[5], stride[3], pad[3], dilation[3];
} conv_key;

typedef struct conv_plan {
    conv_key key;
    int32_t device;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none */
    int64_t workspace;
    cuda_dnn_build parts; /* what the plan was made of */
} conv_plan;

static conv_plan *plans[PLACES];
static int nplans;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Images and channels, then the last `dims` of three dimensions. */
static void put_sizes(int64_t *to, int64_t dims, int64_t n, int64_t channels, const int64_t *size) {
    to[0] = n;
    to[1] = channels;
    memcpy(to + 2, size + 3 - dims, (size_t)dims * sizeof *to);
}

static void make_key(const tn_call *call, cuda_device *d, cuda_conv_kind kind, const cuda_conv *c,
                     const void *const *data, conv_key *ret_key) {
    conv_key *k = ret_key;
    memset(k, 0, sizeof *k);
    k->kind = (int32_t)kind;
    k->dtype = call->dtype;
    k->tf32 = cuda_option_value(CUDA_CUDNN_TF32) != 0;
    k->deterministic = cuda_option_value(CUDA_CUDNN_DETERMINISTIC) != 0 ||
                       cuda_option_value(CUDA_DETERMINISTIC) != 0 ||
                       (call->flags & TN_CALL_DETERMINISTIC) != 0;
    /* Timing waits, which a stream that is recorded must not. */
    k->benchmark = cuda_option_value(CUDA_CUDNN_BENCHMARK) != 0 && atomic_load(&d->captures) == 0;
    k->alignment = 16;
    for (int i = 0; i < 3; i++)
        while ((uintptr_t)data[i] % (uintptr_t)k->alignment) k->alignment /= 2;
    k->dims = c->x->ndim == 5 ? 3 : 2; /* engines take no single dimension */
    int64_t first = 3 - k->dims;
    size_t bytes = (size_t)k->dims * sizeof(int64_t);
    put_sizes(k->x, k->dims, c->images, c->groups * c->ci, c->s.in);
    put_sizes(k->w, k->dims, c->groups * c->co, c->ci, c->s.window);
    put_sizes(k->y, k->dims, c->images, c->groups * c->co, c->s.out);
    memcpy(k->stride, c->s.stride + first, bytes);
    memcpy(k->pad, c->s.pad + first, bytes);
    memcpy(k->dilation, c->s.dilation + first, bytes);
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

/* Of the three operations: type and the first of its attributes, in the order of cudnn.h's list. */
static const struct {
    unsigned type, alpha, beta, conv, w, x, y;
} operations[] = {
    [CUDA_CONV_FORWARD] = {CUDNN_FORWARD, CUDNN_FORWARD_ALPHA, CUDNN_FORWARD_BETA,
                           CUDNN_FORWARD_CONV, CUDNN_FORWARD_W, CUDNN_FORWARD_X, CUDNN_FORWARD_Y},
    [CUDA_CONV_INPUT] = {CUDNN_INPUT, CUDNN_INPUT_ALPHA, CUDNN_INPUT_BETA, CUDNN_INPUT_CONV,
                         CUDNN_INPUT_W, CUDNN_INPUT_X, CUDNN_INPUT_Y},
    [CUDA_CONV_WEIGHT] = {CUDNN_WEIGHT, CUDNN_WEIGHT_ALPHA, CUDNN_WEIGHT_BETA, CUDNN_WEIGHT_CONV,
                          CUDNN_WEIGHT_W, CUDNN_WEIGHT_X, CUDNN_WEIGHT_Y},
};

static int32_t data_type(int32_t dtype) {
    switch (dtype) {
    case TN_F16: return CUDNN_F16;
    case TN_BF16: return CUDNN_BF16;
    case TN_F64: return CUDNN_F64;
    default: return CUDNN_F32;
    }
}

static cudnnBackendDescriptor_t make_tensor(cuda_dnn_build *b, const conv_key *k, int64_t id,
                                            const int64_t *sizes) {
    int64_t strides[5], n = k->dims + 2, size = 1, alignment = k->alignment;
    int32_t type = data_type(k->dtype);
    cudnnBackendDescriptor_t t = cuda_dnn_make(b, CUDNN_TENSOR);
    for (int64_t d = n - 1; d >= 0; size *= sizes[d--]) strides[d] = size;
    cuda_dnn_set(b, t, CUDNN_TENSOR_TYPE, CUDNN_IS_DATA_TYPE, 1, &type);
    cuda_dnn_set(b, t, CUDNN_TENSOR_SIZES, CUDNN_IS_INT64, n, sizes);
    cuda_dnn_set(b, t, CUDNN_TENSOR_STRIDES, CUDNN_IS_INT64, n, strides);
    cuda_dnn_set(b, t, CUDNN_TENSOR_ID, CUDNN_IS_INT64, 1, &id);
    cuda_dnn_set(b, t, CUDNN_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, &alignment);
    cuda_dnn_finish(b, t);
    return t;
}

static cudnnBackendDescriptor_t make_convolution(cuda_dnn_build *b, const conv_key *k) {
    int32_t compute = k->dtype == TN_F64 ? CUDNN_F64 : CUDNN_F32, mode = CUDNN_CORRELATION;
    cudnnBackendDescriptor_t c = cuda_dnn_make(b, CUDNN_CONV);
    cuda_dnn_set(b, c, CUDNN_CONV_COMPUTE, CUDNN_IS_DATA_TYPE, 1, &compute);
    cuda_dnn_set(b, c, CUDNN_CONV_MODE, CUDNN_IS_MODE, 1, &mode);
    cuda_dnn_set(b, c, CUDNN_CONV_DIMS, CUDNN_IS_INT64, 1, &k->dims);
    cuda_dnn_set(b, c, CUDNN_CONV_DILATION, CUDNN_IS_INT64, k->dims, k->dilation);
    cuda_dnn_set(b, c, CUDNN_CONV_STRIDE, CUDNN_IS_INT64, k->dims, k->stride);
    cuda_dnn_set(b, c, CUDNN_CONV_PAD_BEFORE, CUDNN_IS_INT64, k->dims, k->pad);
    cuda_dnn_set(b, c, CUDNN_CONV_PAD_AFTER, CUDNN_IS_INT64, k->dims, k->pad);
    cuda_dnn_finish(b, c);
    return c;
}

enum { ID_X = 1, ID_W, ID_Y };

/* A graph of one operation: what is made = 1 * convolution + 0 * what is there. */
static cudnnBackendDescriptor_t make_graph(cuda_dnn_build *b, const conv_key *k,
                                           cudnnHandle_t handle) {
    const double alpha = 1, beta = 0;
    const float alpha32 = 1, beta32 = 0;
    bool wide = k->dtype == TN_F64;
    unsigned number = wide ? CUDNN_IS_DOUBLE : CUDNN_IS_FLOAT;
    cudnnBackendDescriptor_t x = make_tensor(b, k, ID_X, k->x), w = make_tensor(b, k, ID_W, k->w),
                             y = make_tensor(b, k, ID_Y, k->y), c = make_convolution(b, k),
                             op = cuda_dnn_make(b, operations[k->kind].type),
                             graph = cuda_dnn_make(b, CUDNN_GRAPH);
    cuda_dnn_link(b, op, operations[k->kind].conv, c);
    cuda_dnn_link(b, op, operations[k->kind].x, x);
    cuda_dnn_link(b, op, operations[k->kind].w, w);
    cuda_dnn_link(b, op, operations[k->kind].y, y);
    cuda_dnn_set(b, op, operations[k->kind].alpha, number, 1,
                 wide ? (const void *)&alpha : &alpha32);
    cuda_dnn_set(b, op, operations[k->kind].beta, number, 1, wide ? (const void *)&beta : &beta32);
    cuda_dnn_finish(b, op);
    cuda_dnn_link(b, graph, CUDNN_GRAPH_OPS, op);
    cuda_dnn_set(b, graph, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, &handle);
    cuda_dnn_finish(b, graph);
    return graph;
}

/* ---- Plans -------------------------------------------------------------------------------------*/

/* Adds a finalized plan to p: from a configuration, or from the text of an earlier one. */
static bool make_plan(conv_plan *p, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                      const char *text, int64_t length) {
    cuda_dnn_build *b = &p->parts;
    cudnnBackendDescriptor_t d = cuda_dnn_make(b, CUDNN_PLAN);
    cuda_dnn_set(b, d, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE, 1, &handle);
    if (config)
        cuda_dnn_link(b, d, CUDNN_PLAN_CONFIG, config);
    else
        cuda_dnn_set(b, d, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR, length, text);
    cuda_dnn_finish(b, d);
    p->workspace = 0;
    cuda_dnn_get(b, d, CUDNN_PLAN_WORKSPACE, CUDNN_IS_INT64, 1, &p->workspace);
    bool fine =
        b->status == CUDNN_OK && p->workspace >= 0 && p->workspace <= (int64_t)WORKSPACE_MIB << 20;
    p->plan = fine ? d : NULL;
    return fine;
}

/* Whether an engine computes as we promise: sums in float32 at least, operands as they are. */
static bool suits(cuda_dnn_build *b, const conv_key *k, cudnnBackendDescriptor_t config) {
    int32_t notes[NOTES];
    cudnnBackendDescriptor_t engine = cuda_dnn_make(b, CUDNN_ENGINE);
    cuda_dnn_get(b, config, CUDNN_CONFIG_ENGINE, CUDNN_IS_DESCRIPTOR, 1, &engine);
    int64_t n = cuda_dnn_get(b, engine, CUDNN_ENGINE_NOTES, CUDNN_IS_NOTE, NOTES, notes);
    bool fine = b->status == CUDNN_OK;
    for (int64_t i = 0; i < n && i < NOTES; i++)
        fine &= notes[i] != CUDNN_NARROWED && notes[i] != CUDNN_NARROW_SUMS &&
                (notes[i] != CUDNN_NONDETERMINISTIC || !k->deterministic) &&
                (notes[i] != CUDNN_TENSOR_CORE || k->dtype != TN_F32 || k->tf32);
    return fine;
}

/* One call's way through cuDNN; the lock is held. */
typedef struct attempt {
    const tn_call *call;
    const void *const *data;
    cudnnHandle_t handle;
    void *workspace;
    int64_t room;       /* bytes of the workspace */
    CUevent start, end; /* of a benchmark */
} attempt;

/* One workspace serves all plans of the call: they run one after the other. */
static bool make_room(attempt *a, int64_t bytes) {
    void *workspace = NULL;
    if (bytes <= a->room) return true;
    if (a->call->host->scratch(a->call, (uint64_t)bytes, &workspace) != TN_OK) return false;
    a->workspace = workspace;
    a->room = bytes;
    return true;
}

/* Runs a plan on the handle's stream. */
static int execute(const conv_plan *p, const attempt *a) {
    const int64_t ids[] = {ID_X, ID_W, ID_Y};
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    cudnnBackendDescriptor_t pack = cuda_dnn_make(&b, CUDNN_PACK);
    cuda_dnn_set(&b, pack, CUDNN_PACK_IDS, CUDNN_IS_INT64, 3, ids);
    cuda_dnn_set(&b, pack, CUDNN_PACK_DATA, CUDNN_IS_POINTER, 3, a->data);
    cuda_dnn_set(&b, pack, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER, 1, &a->workspace);
    cuda_dnn_finish(&b, pack);
    if (b.status == CUDNN_OK) b.status = b.api->execute(a->handle, p->plan, pack);
    cuda_dnn_drop(&b, 0);
    return b.status;
}

/* Milliseconds of a plan's second run; false where it fails. Waits. */
static bool measure(attempt *a, const conv_plan *p, float *ret_ms) {
    void *stream = a->call->stream;
    return make_room(a, p->workspace) && execute(p, a) == CUDNN_OK &&
           cuda.event_record(a->start, stream) == CUDA_OK && execute(p, a) == CUDNN_OK &&
           cuda.event_record(a->end, stream) == CUDA_OK && cuda.event_sync(a->end) == CUDA_OK &&
           cuda.event_elapsed(ret_ms, a->start, a->end) == CUDA_OK;
}

/* The configurations that cuDNN proposes; how many. */
static int64_t propose(cuda_dnn_build *b, cudnnBackendDescriptor_t graph, int32_t mode,
                       cudnnBackendDescriptor_t *ret_configs) {
    cudnnBackendDescriptor_t search = cuda_dnn_make(b, CUDNN_SEARCH);
    cuda_dnn_link(b, search, CUDNN_SEARCH_GRAPH, graph);
    cuda_dnn_set(b, search, CUDNN_SEARCH_MODE, CUDNN_IS_HEURISTIC, 1, &mode);
    cuda_dnn_finish(b, search);
    for (int i = 0; i < CANDIDATES; i++) ret_configs[i] = cuda_dnn_make(b, CUDNN_CONFIG);
    int64_t n =
        cuda_dnn_get(b, search, CUDNN_SEARCH_RESULTS, CUDNN_IS_DESCRIPTOR, CANDIDATES, ret_configs);
    return n < CANDIDATES ? n : CANDIDATES;
}

/* Of the configurations in b the first that has a plan, which p gets, or the fastest; or NULL. */
static cudnnBackendDescriptor_t choose(attempt *a, conv_plan *p, cuda_dnn_build *b,
                                       const cudnnBackendDescriptor_t *configs, int64_t n) {
    cudnnBackendDescriptor_t best = NULL;
    int proposed = b->n, made = p->parts.n, left = cuda_option_value(CUDA_CUDNN_BENCHMARK_LIMIT);
    if (left <= 0) left = CANDIDATES;
    float ms = 0, least = 0;
    for (int64_t i = 0; i < n && left > 0; i++) {
        bool fine = suits(b, &p->key, configs[i]) && make_plan(p, a->handle, configs[i], NULL, 0);
        if (fine && !p->key.benchmark) return configs[i];
        if (fine && measure(a, p, &ms)) {
            if (!best || ms < least) {
                best = configs[i];
                least = ms;
            }
            left--;
        }
        b->status = p->parts.status = CUDNN_OK; /* this engine's own failure */
        cuda_dnn_drop(b, proposed);
        cuda_dnn_drop(&p->parts, made);
    }
    p->plan = NULL;
    if (best && make_plan(p, a->handle, best, NULL, 0)) return best;
    p->parts.status = CUDNN_OK;
    cuda_dnn_drop(&p->parts, made);
    return NULL;
}

/* p gets a plan of one mode, if there is one, and the configuration that it needs: the others are
 * large. */
static bool search_mode(attempt *a, conv_plan *p, cudnnBackendDescriptor_t graph, int32_t mode) {
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    cudnnBackendDescriptor_t configs[CANDIDATES];
    int64_t n = propose(&b, graph, mode, configs);
    cudnnBackendDescriptor_t best = choose(a, p, &b, configs, n);
    if (best) cuda_dnn_move(&b, best, &p->parts);
    cuda_dnn_drop(&b, 0);
    return best != NULL;
}

static void search(attempt *a, conv_plan *p) {
    cudnnBackendDescriptor_t graph = make_graph(&p->parts, &p->key, a->handle);
    if (p->parts.status == CUDNN_OK && !search_mode(a, p, graph, CUDNN_HEURISTIC))
        search_mode(a, p, graph, CUDNN_LAST_RESORT);
}

/* ---- The file of a plan: its key and its text --------------------------------------------------*/

static bool find_file(const conv_plan *p, const cuda_device *d, char ret_path[CUDA_CACHE_PATH]) {
    char file[120];
    uint64_t h = cuda_cache_hash(CUDA_CACHE_SEED, &p->key, sizeof p->key);
    snprintf(file, sizeof file, "%016llx_sm_%d%d_%d_cudnn_%d.plan", (unsigned long long)h, d->major,
             d->minor, d->processors, (int)p->parts.api->version());
    return cuda_cache_path(file, ret_path);
}

static bool load(const attempt *a, conv_plan *p, const char *path) {
    void *data = NULL;
    size_t bytes = 0, head = sizeof p->key;
    if (!cuda_cache_read(path, &data, &bytes)) return false;
    bool fine = bytes > head && memcmp(data, &p->key, head) == 0 &&
                make_plan(p, a->handle, NULL, (const char *)data + head, (int64_t)(bytes - head));
    free(data);
    if (fine) return true;
    p->parts.status = CUDNN_OK;
    cuda_dnn_drop(&p->parts, 0);
    return false;
}

/* Without a word where it does not work: the plan is searched for again then. */
static void save(conv_plan *p, const char *path) {
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    int64_t n = cuda_dnn_get(&b, p->plan, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR, 0, NULL);
    size_t head = sizeof p->key;
    char *data = n > 0 ? malloc(head + (size_t)n) : NULL;
    if (!data) return;
    memcpy(data, &p->key, head);
    if (cuda_dnn_get(&b, p->plan, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR, n, data + head) == n)
        cuda_cache_write(path, data, head + (size_t)n);
    free(data);
}

/* ---- The plans in memory -----------------------------------------------------------------------*/

/* Where the plan of that key is, or may be put. */
static conv_plan **find_place(const conv_key *k, int32_t device) {
    uint64_t h = cuda_cache_hash(CUDA_CACHE_SEED + (uint64_t)device, k, sizeof *k);
    int i = (int)(h % PLACES);
    while (plans[i] && (plans[i]->device != device || memcmp(&plans[i]->key, k, sizeof *k) != 0))
        i = (i + 1) % PLACES;
    return &plans[i];
}

static void start_events(attempt *a) {
    if (cuda.event_create(&a->start, 0) != CUDA_OK) a->start = NULL;
    if (cuda.event_create(&a->end, 0) != CUDA_OK) a->end = NULL;
}
static void end_events(const attempt *a) {
    if (a->start) cuda.event_destroy(a->start);
    if (a->end) cuda.event_destroy(a->end);
}

/* NULL: no room. */
static conv_plan *find_plan(attempt *a, const cuda_cudnn *api, const cuda_device *d,
                            const conv_key *k) {
    char path[CUDA_CACHE_PATH];
    conv_plan **place = find_place(k, d->index);
    if (*place) return *place;
    conv_plan *p = nplans < PLACES / 4 * 3 ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    *place = p;
    nplans++;
    p->key = *k;
    p->device = d->index;
    p->parts.api = api;
    bool kept = find_file(p, d, path);
    if (kept && load(a, p, path)) return p;
    if (k->benchmark) start_events(a);
    search(a, p);
    if (k->benchmark) end_events(a);
    if (p->plan && kept) save(p, path);
    return p;
}

/* ---- A convolution -----------------------------------------------------------------------------*/

/* Lock held. A plan that does not run is not tried again. */
static tn_status run(const tn_call *call, const cuda_cudnn *api, cuda_device *d, const conv_key *k,
                     const void *const *data) {
    attempt a = {.call = call, .data = data, .handle = cuda_cudnn_handle(d, call->stream)};
    conv_plan *p = a.handle ? find_plan(&a, api, d, k) : NULL;
    if (!p || !p->plan || !make_room(&a, p->workspace)) return TN_DECLINE;
    cuda_count(d, CUDA_LIBRARY_CALLS, 1);
    int r = execute(p, &a);
    if (r == CUDNN_OK) return TN_OK;
    p->plan = NULL;
    if (r < CUDNN_EXECUTION) return TN_DECLINE;
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: cuDNN returned error %d (%s)", d->index,
                           call->op->name, r, api->error_text(r));
}

/* Engines know no empty tensors, and not all count beyond 32 bits. */
static bool takes(const cuda_conv *c) {
    return c->x->numel > 0 && c->w->numel > 0 && c->x->numel <= INT32_MAX &&
           c->y->numel <= INT32_MAX;
}

tn_status cuda_conv_by_cudnn(const tn_call *call, cuda_conv_kind kind, const cuda_conv *c) {
    const tn_view *const views[] = {c->x, c->w, c->y};
    const void *data[3];
    conv_key key;
    cuda_device *d = NULL;
    const cuda_cudnn *api = cuda_option_value(CUDA_CUDNN) ? cuda_cudnn_open() : NULL;
    if (!api || !takes(c)) return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    for (int i = 0; i < 3 && st == TN_OK; i++) {
        void *packed = NULL;
        st = cuda_conv_packed(call, views[i], &packed);
        data[i] = packed;
    }
    if (st != TN_OK) return st;
    make_key(call, d, kind, c, data, &key);
    pthread_mutex_lock(&lock);
    st = run(call, api, d, &key, data);
    pthread_mutex_unlock(&lock);
    return st == TN_OK ? cuda_conv_add_bias(call, c, views[kind == CUDA_CONV_FORWARD ? 2 : 0]) : st;
}
