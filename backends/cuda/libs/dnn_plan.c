/* dnn_plan.c: plans of cuDNN. A plan is searched for once per key and kept, in memory and, as text, in a
 * file: cuDNN's heuristics propose engines, of which the first is taken that computes as we promise, or
 * with `benchmark` the fastest. */
#include "dnn_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLACES = 4096,   /* in the table of plans; a quarter stays free, and plans stay for good, since
                          * recorded graphs may hold them */
    CANDIDATES = 16, /* configurations that are looked at */
    NOTES = 16,      /* of an engine */
    WORKSPACE_MIB = 1024, /* what a plan may take at most */
    MOST_OPERANDS = 16
};

typedef struct dnn_plan {
    cuda_dnn_key *key; /* with what follows it, `bytes` in all */
    size_t bytes;
    int32_t device;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none */
    int64_t workspace;
    cuda_dnn_build parts; /* what the plan was made of */
} dnn_plan;

static dnn_plan *plans[PLACES];
static int nplans;

const cuda_cudnn *cuda_dnn_wanted(void) {
    return cuda_option_value(CUDA_CUDNN) ? cuda_cudnn_open() : NULL;
}

cuda_dnn_key cuda_dnn_key_of(const tn_call *call, unsigned operation) {
    return (cuda_dnn_key){.operation = (int32_t)operation,
                          .dtype = call->dtype,
                          .tf32 = cuda_option_value(CUDA_CUDNN_TF32) != 0,
                          .deterministic = cuda_option_value(CUDA_CUDNN_DETERMINISTIC) != 0 ||
                                           cuda_option_value(CUDA_DETERMINISTIC) != 0 ||
                                           (call->flags & TN_CALL_DETERMINISTIC) != 0};
}

int32_t cuda_dnn_alignment(const void *const *data, int n) {
    int32_t alignment = 16;
    for (int i = 0; i < n; i++)
        while ((uintptr_t)data[i] % (uintptr_t)alignment) alignment /= 2;
    return alignment;
}

/* ---- Engines -----------------------------------------------------------------------------------*/

/* Adds a finalized plan to p: from a configuration, or from the text of an earlier one. */
static bool make_plan(dnn_plan *p, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
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
static bool suits(cuda_dnn_build *b, const cuda_dnn_key *k, cudnnBackendDescriptor_t config) {
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
    const cuda_dnn_problem *problem;
    cudnnHandle_t handle;
    void *workspace;
    int64_t room;       /* bytes of the workspace */
    CUevent start, end; /* of a benchmark */
} attempt;

/* One workspace serves all plans of the call: they run one after the other. */
static bool make_room(attempt *a, int64_t bytes) {
    void *workspace = NULL;
    if (bytes <= a->room) return true;
    if (room_scratch(a->call, bytes, 1, &workspace) != TN_OK) return false;
    a->workspace = workspace;
    a->room = bytes;
    return true;
}

/* Runs a plan on the handle's stream. */
static int execute(const dnn_plan *p, const attempt *a) {
    int64_t ids[MOST_OPERANDS], n = 0;
    const void *data[MOST_OPERANDS];
    for (int i = 0; i < a->problem->operands; i++) {
        if (!a->problem->data[i]) continue;
        ids[n] = i + 1;
        data[n++] = a->problem->data[i];
    }
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    cudnnBackendDescriptor_t pack = cuda_dnn_make(&b, CUDNN_PACK);
    cuda_dnn_set(&b, pack, CUDNN_PACK_IDS, CUDNN_IS_INT64, n, ids);
    cuda_dnn_set(&b, pack, CUDNN_PACK_DATA, CUDNN_IS_POINTER, n, data);
    cuda_dnn_set(&b, pack, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER, 1, &a->workspace);
    cuda_dnn_finish(&b, pack);
    if (b.status == CUDNN_OK) b.status = b.api->execute(a->handle, p->plan, pack);
    cuda_dnn_drop(&b, 0);
    return b.status;
}

/* Milliseconds of a plan's second run; false where it fails. Waits. */
static bool measure(attempt *a, const dnn_plan *p, float *ret_ms) {
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
static cudnnBackendDescriptor_t choose(attempt *a, dnn_plan *p, cuda_dnn_build *b,
                                       const cudnnBackendDescriptor_t *configs, int64_t n) {
    cudnnBackendDescriptor_t best = NULL;
    int proposed = b->n, made = p->parts.n, left = cuda_option_value(CUDA_CUDNN_BENCHMARK_LIMIT);
    if (left <= 0) left = CANDIDATES;
    float ms = 0, least = 0;
    for (int64_t i = 0; i < n && left > 0; i++) {
        bool fine = suits(b, p->key, configs[i]) && make_plan(p, a->handle, configs[i], NULL, 0);
        if (fine && !p->key->benchmark) return configs[i];
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
static bool search_mode(attempt *a, dnn_plan *p, cudnnBackendDescriptor_t graph, int32_t mode) {
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    cudnnBackendDescriptor_t configs[CANDIDATES];
    int64_t n = propose(&b, graph, mode, configs);
    cudnnBackendDescriptor_t best = choose(a, p, &b, configs, n);
    if (best) cuda_dnn_move(&b, best, &p->parts);
    cuda_dnn_drop(&b, 0);
    return best != NULL;
}

static void search(attempt *a, dnn_plan *p) {
    cudnnBackendDescriptor_t graph = a->problem->describe(&p->parts, p->key, a->handle);
    if (p->parts.status == CUDNN_OK && !search_mode(a, p, graph, CUDNN_HEURISTIC))
        search_mode(a, p, graph, CUDNN_LAST_RESORT);
}

/* ---- The file of a plan: its key and its text --------------------------------------------------*/

static bool find_file(const dnn_plan *p, const cuda_device *d, char ret_path[CUDA_CACHE_PATH]) {
    char file[120];
    uint64_t h = cuda_cache_hash(CUDA_CACHE_SEED, p->key, p->bytes);
    snprintf(file, sizeof file, "%016llx_sm_%d%d_%d_cudnn_%d.plan", (unsigned long long)h, d->major,
             d->minor, d->processors, (int)p->parts.api->version());
    return cuda_cache_path(file, ret_path);
}

static bool load(const attempt *a, dnn_plan *p, const char *path) {
    void *data = NULL;
    size_t bytes = 0, head = p->bytes;
    if (!cuda_cache_read(path, &data, &bytes)) return false;
    bool fine = bytes > head && memcmp(data, p->key, head) == 0 &&
                make_plan(p, a->handle, NULL, (const char *)data + head, (int64_t)(bytes - head));
    free(data);
    if (fine) return true;
    p->parts.status = CUDNN_OK;
    cuda_dnn_drop(&p->parts, 0);
    return false;
}

/* Without a word where it does not work: the plan is searched for again then. */
static void save(dnn_plan *p, const char *path) {
    cuda_dnn_build b = {.api = p->parts.api, .status = CUDNN_OK};
    int64_t n = cuda_dnn_get(&b, p->plan, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR, 0, NULL);
    size_t head = p->bytes;
    char *data = n > 0 ? malloc(head + (size_t)n) : NULL;
    if (!data) return;
    memcpy(data, p->key, head);
    if (cuda_dnn_get(&b, p->plan, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR, n, data + head) == n)
        cuda_cache_write(path, data, head + (size_t)n);
    free(data);
}

/* ---- The plans in memory -----------------------------------------------------------------------*/

static bool is_plan_of(const dnn_plan *p, const cuda_dnn_problem *problem, int32_t device) {
    return p->device == device && p->bytes == problem->bytes &&
           memcmp(p->key, problem->key, problem->bytes) == 0;
}

/* Where the plan of that key is, or may be put. */
static dnn_plan **find_place(const cuda_dnn_problem *problem, int32_t device) {
    uint64_t h = cuda_cache_hash(CUDA_CACHE_SEED + (uint64_t)device, problem->key, problem->bytes);
    int i = (int)(h % PLACES);
    while (plans[i] && !is_plan_of(plans[i], problem, device)) i = (i + 1) % PLACES;
    return &plans[i];
}

/* A plan that is yet to be made; its key lies behind it. */
static dnn_plan *new_plan(const cuda_dnn_problem *problem, const cuda_cudnn *api, int32_t device) {
    dnn_plan *p = nplans < PLACES / 4 * 3 ? calloc(1, sizeof *p + problem->bytes) : NULL;
    if (!p) return NULL;
    p->key = (cuda_dnn_key *)(p + 1);
    p->bytes = problem->bytes;
    memcpy(p->key, problem->key, problem->bytes);
    p->device = device;
    p->parts.api = api;
    return p;
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
static dnn_plan *find_plan(attempt *a, const cuda_cudnn *api, const cuda_device *d) {
    char path[CUDA_CACHE_PATH];
    dnn_plan **place = find_place(a->problem, d->index);
    if (*place) return *place;
    dnn_plan *p = new_plan(a->problem, api, d->index);
    if (!p) return NULL;
    *place = p;
    nplans++;
    bool kept = find_file(p, d, path);
    if (kept && load(a, p, path)) return p;
    if (p->key->benchmark) start_events(a);
    search(a, p);
    if (p->key->benchmark) end_events(a);
    if (p->plan && kept) save(p, path);
    return p;
}

/* ---- Running -----------------------------------------------------------------------------------*/

/* Lock held. A plan that does not run is not tried again. */
static tn_status run(const tn_call *call, const cuda_cudnn *api, cuda_device *d,
                     const cuda_dnn_problem *problem) {
    attempt a = {.call = call, .problem = problem, .handle = cuda_cudnn_handle(d, call->stream)};
    dnn_plan *p = a.handle ? find_plan(&a, api, d) : NULL;
    if (!p || !p->plan || !make_room(&a, p->workspace)) return TN_DECLINE;
    cuda_count(d, CUDA_LIBRARY_CALLS, 1);
    int r = execute(p, &a);
    if (r == CUDNN_OK) return TN_OK;
    p->plan = NULL;
    if (r < CUDNN_EXECUTION) return TN_DECLINE;
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: cuDNN returned error %d (%s)", d->index,
                           call->op->name, r, api->error_text(r));
}

tn_status cuda_dnn_run(const tn_call *call, cuda_device *d, const cuda_dnn_problem *problem) {
    const cuda_cudnn *api = cuda_dnn_wanted();
    if (!api || problem->operands > MOST_OPERANDS) return TN_DECLINE;
    cuda_dnn_lock();
    tn_status st = run(call, api, d, problem);
    cuda_dnn_unlock();
    return st;
}
