/* cudnn.c: the stand-in for cuDNN's backend interface. Descriptors keep whatever is set; a plan reads the
 * convolution out of them, checks it, and execution computes it plainly. Engines differ in what they
 * promise, so that a caller's choice can be seen. TENON_CUDNN_HOST makes it misbehave:
 * "old", "no-handle", "no-engine", "unsupported", "broken". */
#include "../../backends/cuda/cudnn.h"

#include <stdio.h>
#include <stdlib.h>

#include "number.h"
#include "queue.h"

enum {
    ATTRIBUTES = 16,
    ENGINES = 4,
    ENGINE_UNSUPPORTED = 3,
    ENGINE_FALLBACK = 9,
    WORKSPACE = 4096
};

static bool is_asked(const char *what) {
    const char *text = getenv("TENON_CUDNN_HOST");
    return text && strcmp(text, what) == 0;
}

/* ---- What a test may ask -----------------------------------------------------------------------*/

static struct {
    const char *name;
    long n;
} counts[] = {{"search", 0}, {"plan", 0}, {"text", 0}, {"execute", 0}, {"engine", 0}, {"alive", 0}};
enum { SEARCHES, PLANS, TEXTS, EXECUTIONS, LAST_ENGINE, ALIVE };

long cudnnHostCount(const char *what);
long cudnnHostCount(const char *what) {
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (strcmp(counts[i].name, what) == 0) return counts[i].n;
    return -1;
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

/* A convolution, all numbers: so it can be written as text and read back. */
typedef struct problem {
    int64_t kind, type, compute, dims, engine;
    int64_t x[5], w[5], y[5], x_at[5], w_at[5], y_at[5];
    int64_t stride[3], pad[3], after[3], dilation[3], id[3], alignment;
} problem;
enum { NUMBERS = sizeof(problem) / sizeof(int64_t) };

typedef struct attribute {
    unsigned name, type;
    int64_t n;
    void *data;
} attribute;

typedef struct descriptor {
    unsigned type;
    bool finalized;
    int n;
    attribute a[ATTRIBUTES];
    int64_t engine;
    problem p; /* of a plan */
} descriptor;

struct cudnnContext {
    CUstream stream;
};

size_t cudnnGetVersion(void) { return is_asked("old") ? 8907 : 92800; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_EXECUTION ? "the harness was asked to fail" : "an error";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *ret_handle) {
    if (is_asked("no-handle")) return 1001;
    *ret_handle = calloc(1, sizeof **ret_handle);
    return *ret_handle ? CUDNN_OK : 1001;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudnnStream stream) {
    handle->stream = stream;
    return CUDNN_OK;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *ret_descriptor) {
    descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_BAD_PARAM;
    d->type = type;
    counts[ALIVE].n++;
    *ret_descriptor = d;
    return CUDNN_OK;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t of) {
    descriptor *d = of;
    for (int i = 0; i < d->n; i++) free(d->a[i].data);
    counts[ALIVE].n--;
    memset(d, 0xee, sizeof *d);
    free(d);
    return CUDNN_OK;
}

static size_t element_bytes(unsigned type) {
    switch (type) {
    case CUDNN_IS_CHAR: return 1;
    case CUDNN_IS_DATA_TYPE:
    case CUDNN_IS_MODE:
    case CUDNN_IS_HEURISTIC:
    case CUDNN_IS_NOTE:
    case CUDNN_IS_FLOAT: return 4;
    default: return 8;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *elements) {
    descriptor *d = of;
    if (d->finalized || d->n == ATTRIBUTES || n < 1 || !elements) return CUDNN_BAD_PARAM;
    attribute *a = &d->a[d->n++];
    *a = (attribute){name, type, n, malloc((size_t)n * element_bytes(type))};
    memcpy(a->data, elements, (size_t)n * element_bytes(type));
    return CUDNN_OK;
}

static const attribute *find(const descriptor *d, unsigned name, unsigned type) {
    for (int i = 0; i < d->n; i++)
        if (d->a[i].name == name && d->a[i].type == type) return &d->a[i];
    return NULL;
}

/* A finalized descriptor that is an attribute. */
static const descriptor *linked(const descriptor *d, unsigned name, unsigned of_type) {
    const attribute *a = d ? find(d, name, CUDNN_IS_DESCRIPTOR) : NULL;
    const descriptor *to = a ? *(descriptor **)a->data : NULL;
    return to && to->finalized && to->type == of_type ? to : NULL;
}

static bool copy_numbers(const descriptor *d, unsigned name, int64_t n, int64_t *to) {
    const attribute *a = find(d, name, CUDNN_IS_INT64);
    if (!a || a->n != n) return false;
    memcpy(to, a->data, (size_t)n * sizeof *to);
    return true;
}

static bool copy_code(const descriptor *d, unsigned name, unsigned type, int64_t *to) {
    const attribute *a = find(d, name, type);
    if (!a || a->n != 1) return false;
    *to = *(int32_t *)a->data;
    return true;
}

/* ---- Reading a convolution ---------------------------------------------------------------------*/

static bool read_tensor(const descriptor *op, unsigned name, problem *p, int which, int64_t *sizes,
                        int64_t *strides) {
    const descriptor *t = linked(op, name, CUDNN_TENSOR);
    int64_t type = -1;
    if (!t || !copy_numbers(t, CUDNN_TENSOR_SIZES, p->dims + 2, sizes) ||
        !copy_numbers(t, CUDNN_TENSOR_STRIDES, p->dims + 2, strides) ||
        !copy_numbers(t, CUDNN_TENSOR_ID, 1, &p->id[which]) ||
        !copy_numbers(t, CUDNN_TENSOR_ALIGNMENT, 1, &p->alignment) ||
        !copy_code(t, CUDNN_TENSOR_TYPE, CUDNN_IS_DATA_TYPE, &type))
        return false;
    bool same = which == 0 || type == p->type;
    p->type = type;
    for (int64_t d = 0; d < p->dims + 2; d++) same &= sizes[d] > 0 && strides[d] > 0;
    return same;
}

static bool read_convolution(const descriptor *c, problem *p) {
    int64_t mode = -1;
    return c && copy_numbers(c, CUDNN_CONV_DIMS, 1, &p->dims) && p->dims >= 2 && p->dims <= 3 &&
           copy_numbers(c, CUDNN_CONV_STRIDE, p->dims, p->stride) &&
           copy_numbers(c, CUDNN_CONV_DILATION, p->dims, p->dilation) &&
           copy_numbers(c, CUDNN_CONV_PAD_BEFORE, p->dims, p->pad) &&
           copy_numbers(c, CUDNN_CONV_PAD_AFTER, p->dims, p->after) &&
           copy_code(c, CUDNN_CONV_COMPUTE, CUDNN_IS_DATA_TYPE, &p->compute) &&
           copy_code(c, CUDNN_CONV_MODE, CUDNN_IS_MODE, &mode) && mode == CUDNN_CORRELATION;
}

static bool sizes_fit(const problem *p) {
    bool fit = p->x[0] == p->y[0] && p->w[0] == p->y[1] && p->x[1] % p->w[1] == 0 &&
               p->w[0] % (p->x[1] / p->w[1]) == 0;
    for (int64_t d = 0; d < p->dims; d++) {
        int64_t span = p->x[d + 2] + p->pad[d] + p->after[d] - p->dilation[d] * (p->w[d + 2] - 1);
        fit &= span > 0 && (span - 1) / p->stride[d] + 1 == p->y[d + 2];
    }
    return fit && (p->compute == CUDNN_F64) == (p->type == CUDNN_F64);
}

static bool is_number(const descriptor *op, unsigned name, bool wide, double want) {
    const attribute *a = find(op, name, wide ? CUDNN_IS_DOUBLE : CUDNN_IS_FLOAT);
    if (!a) return false;
    return (wide ? *(double *)a->data : (double)*(float *)a->data) == want;
}

static bool read_operation(const descriptor *op, problem *p) {
    unsigned alpha = op->type == CUDNN_FORWARD ? CUDNN_FORWARD_ALPHA
                     : op->type == CUDNN_INPUT ? CUDNN_INPUT_ALPHA
                                               : CUDNN_WEIGHT_ALPHA;
    p->kind = op->type;
    return read_convolution(linked(op, alpha + 2, CUDNN_CONV), p) &&
           read_tensor(op, alpha + 4, p, 0, p->x, p->x_at) &&
           read_tensor(op, alpha + 3, p, 1, p->w, p->w_at) &&
           read_tensor(op, alpha + 5, p, 2, p->y, p->y_at) && sizes_fit(p) &&
           is_number(op, alpha, p->type == CUDNN_F64, 1) &&
           is_number(op, alpha + 1, p->type == CUDNN_F64, 0);
}

static cudnnStatus_t plan_from_config(descriptor *d) {
    const descriptor *config = linked(d, CUDNN_PLAN_CONFIG, CUDNN_CONFIG);
    if (!config || config->engine == ENGINE_UNSUPPORTED) return CUDNN_UNSUPPORTED;
    d->p = config->p;
    d->p.engine = config->engine;
    counts[PLANS].n++;
    return CUDNN_OK;
}

static cudnnStatus_t plan_from_text(descriptor *d, const attribute *text) {
    char copy[4096], *at = copy;
    if (text->n >= (int64_t)sizeof copy) return CUDNN_BAD_PARAM;
    memcpy(copy, text->data, (size_t)text->n);
    copy[text->n] = '\0';
    for (int i = 0; i < NUMBERS; i++) {
        char *end;
        ((int64_t *)&d->p)[i] = strtoll(at, &end, 10);
        if (end == at) return CUDNN_BAD_PARAM;
        at = end;
    }
    counts[TEXTS].n++;
    return CUDNN_OK;
}

static cudnnStatus_t finalize_graph(const descriptor *d) {
    const attribute *ops = find(d, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR);
    return ops && ops->n == 1 && (*(descriptor **)ops->data)->finalized &&
                   find(d, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE)
               ? CUDNN_OK
               : CUDNN_BAD_PARAM;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t of) {
    descriptor *d = of;
    const attribute *text = find(d, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR);
    cudnnStatus_t st = CUDNN_OK;
    switch (d->type) {
    case CUDNN_FORWARD:
    case CUDNN_INPUT:
    case CUDNN_WEIGHT: st = read_operation(d, &d->p) ? CUDNN_OK : CUDNN_BAD_PARAM; break;
    case CUDNN_GRAPH: st = finalize_graph(d); break;
    case CUDNN_PLAN:
        if (!find(d, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE)) return CUDNN_BAD_PARAM;
        st = text ? plan_from_text(d, text) : plan_from_config(d);
        break;
    case CUDNN_SEARCH:
        if (!linked(d, CUDNN_SEARCH_GRAPH, CUDNN_GRAPH)) return CUDNN_BAD_PARAM;
        counts[SEARCHES].n++;
        break;
    default: break;
    }
    d->finalized = st == CUDNN_OK;
    return st;
}

/* ---- What can be asked of descriptors ----------------------------------------------------------*/

static cudnnStatus_t get_results(const descriptor *search, int64_t room, int64_t *ret_n,
                                 descriptor **configs) {
    const descriptor *graph = linked(search, CUDNN_SEARCH_GRAPH, CUDNN_GRAPH);
    const attribute *ops = find(graph, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR);
    int64_t mode = -1;
    copy_code(search, CUDNN_SEARCH_MODE, CUDNN_IS_HEURISTIC, &mode);
    bool last = mode == CUDNN_LAST_RESORT;
    *ret_n = is_asked("no-engine") ? 0 : last ? 1 : is_asked("fallback") ? 0 : ENGINES;
    for (int64_t i = 0; i < *ret_n && i < room; i++) {
        configs[i]->p = (*(descriptor **)ops->data)->p;
        configs[i]->engine = last ? ENGINE_FALLBACK : i;
        configs[i]->finalized = true;
    }
    return CUDNN_OK;
}

static cudnnStatus_t get_notes(const descriptor *engine, int64_t room, int64_t *ret_n,
                               int32_t *notes) {
    *ret_n = 0;
    if (engine->engine <= 1 && room > 1) notes[(*ret_n)++] = CUDNN_TENSOR_CORE;
    if (engine->engine == 0 && room > 1) notes[(*ret_n)++] = CUDNN_NONDETERMINISTIC;
    return CUDNN_OK;
}

static cudnnStatus_t get_text(const descriptor *plan, int64_t room, int64_t *ret_n, char *text) {
    char all[4096] = "";
    size_t at = 0;
    for (int i = 0; i < NUMBERS; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%lld ",
                               (long long)((const int64_t *)&plan->p)[i]);
    *ret_n = (int64_t)at;
    if (text && room >= *ret_n) memcpy(text, all, at);
    return CUDNN_OK;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t *ret_n, void *ret_elements) {
    const descriptor *d = of;
    (void)type;
    if (!d->finalized) return CUDNN_BAD_PARAM;
    switch (name) {
    case CUDNN_SEARCH_RESULTS: return get_results(d, room, ret_n, ret_elements);
    case CUDNN_CONFIG_ENGINE:
        (*(descriptor **)ret_elements)->engine = d->engine;
        (*(descriptor **)ret_elements)->finalized = true;
        break;
    case CUDNN_ENGINE_NOTES: return get_notes(d, room, ret_n, ret_elements);
    case CUDNN_PLAN_WORKSPACE: *(int64_t *)ret_elements = d->p.engine == 2 ? WORKSPACE : 0; break;
    case CUDNN_PLAN_TEXT: return get_text(d, room, ret_n, ret_elements);
    default: return CUDNN_BAD_PARAM;
    }
    *ret_n = 1;
    return CUDNN_OK;
}

/* ---- Running -----------------------------------------------------------------------------------*/

typedef struct job {
    problem p;
    char *x, *w, *y, *workspace;
} job;

static int type_of(const problem *p) { return p->type == CUDNN_BF16 ? CUBLAS_BF16 : (int)p->type; }

static bool reach(const char *who, const problem *p, const char *data, const int64_t *sizes,
                  const int64_t *strides, char *ret_problem) {
    int64_t last = 0;
    for (int64_t d = 0; d < p->dims + 2; d++) last += (sizes[d] - 1) * strides[d];
    return queue_reach(who, (uintptr_t)data, (size_t)(last + 1) * number_bytes(type_of(p)),
                       ret_problem);
}

static int64_t offset(const int64_t *strides, int64_t dims, int64_t n, int64_t c,
                      const int64_t *at) {
    int64_t sum = n * strides[0] + c * strides[1];
    for (int64_t d = 0; d < dims; d++) sum += at[d] * strides[d + 2];
    return sum;
}

/* The next position in a box; false after the last one. */
static bool advance(int64_t *at, const int64_t *size, int64_t dims) {
    for (int64_t d = dims - 1; d >= 0; d--) {
        if (++at[d] < size[d]) return true;
        at[d] = 0;
    }
    return false;
}

/* One meeting of a place of y and a tap: the three elements that have to do with each other. */
static void meet(const job *j, int64_t n, int64_t o, const int64_t *place, const int64_t *tap,
                 double *sums) {
    const problem *p = &j->p;
    int64_t group = o / (p->w[0] / (p->x[1] / p->w[1])), pixel[3], type = type_of(p);
    for (int64_t d = 0; d < p->dims; d++) {
        pixel[d] = place[d] * p->stride[d] - p->pad[d] + tap[d] * p->dilation[d];
        if (pixel[d] < 0 || pixel[d] >= p->x[d + 2]) return;
    }
    int64_t y = offset(p->y_at, p->dims, n, o, place);
    for (int64_t c = 0; c < p->w[1]; c++) {
        int64_t x = offset(p->x_at, p->dims, n, group * p->w[1] + c, pixel);
        int64_t w = offset(p->w_at, p->dims, o, c, tap);
        if (p->kind == CUDNN_FORWARD)
            sums[y] += number_load(j->x, (int)type, x) * number_load(j->w, (int)type, w);
        else if (p->kind == CUDNN_INPUT)
            sums[x] += number_load(j->y, (int)type, y) * number_load(j->w, (int)type, w);
        else
            sums[w] += number_load(j->y, (int)type, y) * number_load(j->x, (int)type, x);
    }
}

static bool run_convolution(void *payload, char *problem_text) {
    const job *j = payload;
    const problem *p = &j->p;
    char *made = p->kind == CUDNN_FORWARD ? j->y : p->kind == CUDNN_INPUT ? j->x : j->w;
    const int64_t *size = p->kind == CUDNN_FORWARD ? p->y : p->kind == CUDNN_INPUT ? p->x : p->w;
    if (!reach("cuDNN: x", p, j->x, p->x, p->x_at, problem_text) ||
        !reach("cuDNN: w", p, j->w, p->w, p->w_at, problem_text) ||
        !reach("cuDNN: y", p, j->y, p->y, p->y_at, problem_text) ||
        (j->workspace &&
         !queue_reach("cuDNN: workspace", (uintptr_t)j->workspace, WORKSPACE, problem_text)))
        return false;
    if (j->workspace) memset(j->workspace, 0xaa, WORKSPACE);
    int64_t total = 1; /* what is made is packed */
    for (int64_t d = 0; d < p->dims + 2; d++) total *= size[d];
    double *sums = calloc((size_t)total, sizeof *sums);
    for (int64_t n = 0; n < p->y[0]; n++)
        for (int64_t o = 0; o < p->y[1]; o++) {
            int64_t place[3] = {0, 0, 0};
            do {
                int64_t tap[3] = {0, 0, 0};
                do meet(j, n, o, place, tap, sums);
                while (advance(tap, p->w + 2, p->dims));
            } while (advance(place, p->y + 2, p->dims));
        }
    for (int64_t i = 0; i < total; i++) number_store(made, type_of(p), i, sums[i]);
    free(sums);
    return true;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    const descriptor *d = plan, *v = pack;
    const attribute *ids = find(v, CUDNN_PACK_IDS, CUDNN_IS_INT64),
                    *data = find(v, CUDNN_PACK_DATA, CUDNN_IS_POINTER),
                    *room = find(v, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER);
    job j = {.p = d->p};
    char **at[] = {&j.x, &j.w, &j.y};
    if (!d->finalized || !v->finalized || !ids || !data || ids->n != data->n)
        return CUDNN_BAD_PARAM;
    if (is_asked("broken")) return CUDNN_EXECUTION;
    if (is_asked("unsupported")) return CUDNN_UNSUPPORTED;
    for (int64_t i = 0; i < ids->n; i++)
        for (int k = 0; k < 3; k++)
            if (((int64_t *)ids->data)[i] == j.p.id[k]) *at[k] = ((char **)data->data)[i];
    for (int k = 0; k < 3; k++)
        if (!*at[k] || (uintptr_t)*at[k] % (uintptr_t)j.p.alignment) return CUDNN_BAD_PARAM;
    if (j.p.engine == 2) {
        j.workspace = room ? *(char **)room->data : NULL;
        if (!j.workspace) return CUDNN_BAD_PARAM;
    }
    counts[EXECUTIONS].n++;
    counts[LAST_ENGINE].n = (long)j.p.engine;
    return queue_submit(handle->stream, run_convolution, &j, sizeof j) == CUDA_OK ? CUDNN_OK
                                                                                  : CUDNN_EXECUTION;
}
