/* cudnn.c: the stand-in for cuDNN's backend interface. Descriptors keep whatever is set; a graph reads the
 * problem out of them and checks it, and execution computes it plainly, in the part that knows it.
 * Engines differ in what they promise, so that a caller's choice can be seen. TENON_CUDNN_HOST makes it
 * misbehave: "old", "9.9", "no-handle", "no-engine", "unsupported", "broken". */
#include <stdio.h>
#include <stdlib.h>

#include "cudnn_host.h"

enum { ENGINES = 4, ENGINE_UNSUPPORTED = 3, ENGINE_FALLBACK = 9, WORKSPACE = 4096 };

static bool is_asked(const char *what) {
    const char *text = getenv("TENON_CUDNN_HOST");
    return text && strcmp(text, what) == 0;
}

/* ---- What a test may ask -----------------------------------------------------------------------*/

static struct {
    const char *name;
    long n;
} counts[] = {{"search", 0}, {"plan", 0},  {"text", 0},    {"execute", 0},
              {"engine", 0}, {"alive", 0}, {"operands", 0}};
enum { SEARCHES, PLANS, TEXTS, EXECUTIONS, LAST_ENGINE, ALIVE, LAST_OPERANDS };

long cudnnHostCount(const char *what);
long cudnnHostCount(const char *what) {
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (strcmp(counts[i].name, what) == 0) return counts[i].n;
    return -1;
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

enum { NUMBERS = sizeof(problem) / sizeof(int64_t), TEXT = NUMBERS * 21 + 1 };

/* The kinds of graphs. */
static const struct {
    bool (*read)(const descriptor *const *operations, int64_t n, problem *ret);
    bool (*run)(job *j);
} parts[] = {{conv_read, conv_run}, {attention_read, attention_run}, {norm_read, norm_run}};
enum { PARTS = sizeof parts / sizeof parts[0] };

size_t cudnnGetVersion(void) { return is_asked("old") ? 8907 : is_asked("9.9") ? 90900 : 92800; }
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
    free(d->p);
    counts[ALIVE].n--;
    memset(d, 0xee, sizeof *d);
    free(d);
    return CUDNN_OK;
}

static size_t element_bytes(unsigned type) {
    switch (type) {
    case CUDNN_IS_CHAR:
    case CUDNN_IS_BOOL: return 1;
    case CUDNN_IS_DATA_TYPE:
    case CUDNN_IS_MODE:
    case CUDNN_IS_HEURISTIC:
    case CUDNN_IS_NOTE:
    case CUDNN_IS_MAP:
    case CUDNN_IS_REDUCTION:
    case CUDNN_IS_NORM:
    case CUDNN_IS_PHASE:
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

const attribute *cudnn_find(const descriptor *d, unsigned name, unsigned type) {
    for (int i = 0; i < d->n; i++)
        if (d->a[i].name == name && d->a[i].type == type) return &d->a[i];
    return NULL;
}

/* A finalized descriptor that is an attribute. */
const descriptor *cudnn_linked(const descriptor *d, unsigned name, unsigned of_type) {
    const attribute *a = d ? cudnn_find(d, name, CUDNN_IS_DESCRIPTOR) : NULL;
    const descriptor *to = a ? *(descriptor **)a->data : NULL;
    return to && to->finalized && to->type == of_type ? to : NULL;
}

bool cudnn_numbers(const descriptor *d, unsigned name, int64_t n, int64_t *to) {
    const attribute *a = cudnn_find(d, name, CUDNN_IS_INT64);
    if (!a || a->n != n) return false;
    memcpy(to, a->data, (size_t)n * sizeof *to);
    return true;
}

bool cudnn_code(const descriptor *d, unsigned name, unsigned type, int64_t *to) {
    const attribute *a = cudnn_find(d, name, type);
    if (!a || a->n != 1) return false;
    *to = *(int32_t *)a->data;
    return true;
}

int cudnn_number_type(const operand *o) {
    return o->type == CUDNN_BF16 ? CUBLAS_BF16 : (int)o->type;
}

static bool flag(const descriptor *d, unsigned name) {
    const attribute *a = cudnn_find(d, name, CUDNN_IS_BOOL);
    return a && *(bool *)a->data;
}

static bool read_tensor(const descriptor *t, operand *o) {
    const attribute *size = cudnn_find(t, CUDNN_TENSOR_SIZES, CUDNN_IS_INT64);
    memset(o, 0, sizeof *o);
    o->dims = size ? size->n : 0;
    if (o->dims < 1 || o->dims > MOST_DIMS ||
        !cudnn_numbers(t, CUDNN_TENSOR_SIZES, o->dims, o->size) ||
        !cudnn_numbers(t, CUDNN_TENSOR_STRIDES, o->dims, o->stride) ||
        !cudnn_numbers(t, CUDNN_TENSOR_ID, 1, &o->id) ||
        !cudnn_numbers(t, CUDNN_TENSOR_ALIGNMENT, 1, &o->alignment) ||
        !cudnn_code(t, CUDNN_TENSOR_TYPE, CUDNN_IS_DATA_TYPE, &o->type))
        return false;
    o->passing = flag(t, CUDNN_TENSOR_VIRTUAL);
    o->by_value = flag(t, CUDNN_TENSOR_BY_VALUE);
    bool fine = o->alignment > 0;
    for (int64_t d = 0; d < o->dims; d++) fine &= o->size[d] > 0 && o->stride[d] > 0;
    return fine;
}

int64_t cudnn_operand(const descriptor *operation, unsigned name, problem *p) {
    const descriptor *t = cudnn_linked(operation, name, CUDNN_TENSOR);
    operand o;
    if (!t || !read_tensor(t, &o)) return -1;
    for (int64_t i = 0; i < p->operands; i++)
        if (p->operand[i].id == o.id) return memcmp(&p->operand[i], &o, sizeof o) == 0 ? i : -1;
    if (p->operands == MOST_OPERANDS) return -1;
    p->operand[p->operands] = o;
    return p->operands++;
}

/* ---- Graphs and plans --------------------------------------------------------------------------*/

static cudnnStatus_t finalize_graph(descriptor *d) {
    const attribute *ops = cudnn_find(d, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR);
    if (!ops || !cudnn_find(d, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE)) return CUDNN_BAD_PARAM;
    const descriptor *const *operations = ops->data;
    for (int64_t i = 0; i < ops->n; i++)
        if (!operations[i]->finalized) return CUDNN_BAD_PARAM;
    d->p = malloc(sizeof *d->p);
    for (int64_t part = 0; part < PARTS; part++) {
        memset(d->p, 0, sizeof *d->p);
        d->p->part = part;
        if (parts[part].read(operations, ops->n, d->p)) return CUDNN_OK;
    }
    return CUDNN_UNSUPPORTED;
}

static problem *copy_of(const problem *p) {
    problem *copy = malloc(sizeof *copy);
    *copy = *p;
    return copy;
}

static cudnnStatus_t plan_from_config(descriptor *d) {
    const descriptor *config = cudnn_linked(d, CUDNN_PLAN_CONFIG, CUDNN_CONFIG);
    if (!config || config->engine == ENGINE_UNSUPPORTED) return CUDNN_UNSUPPORTED;
    d->p = copy_of(config->p);
    d->p->engine = config->engine;
    counts[PLANS].n++;
    return CUDNN_OK;
}

static cudnnStatus_t plan_from_text(descriptor *d, const attribute *text) {
    char copy[TEXT], *at = copy;
    d->p = malloc(sizeof *d->p);
    if (text->n >= (int64_t)sizeof copy) return CUDNN_BAD_PARAM;
    memcpy(copy, text->data, (size_t)text->n);
    copy[text->n] = '\0';
    for (int i = 0; i < NUMBERS; i++) {
        char *end;
        ((int64_t *)d->p)[i] = strtoll(at, &end, 10);
        if (end == at) return CUDNN_BAD_PARAM;
        at = end;
    }
    counts[TEXTS].n++;
    return CUDNN_OK;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t of) {
    descriptor *d = of;
    const attribute *text = cudnn_find(d, CUDNN_PLAN_TEXT, CUDNN_IS_CHAR);
    cudnnStatus_t st = CUDNN_OK;
    switch (d->type) {
    case CUDNN_TENSOR: {
        operand o;
        st = read_tensor(d, &o) ? CUDNN_OK : CUDNN_BAD_PARAM;
        break;
    }
    case CUDNN_GRAPH: st = finalize_graph(d); break;
    case CUDNN_PLAN:
        if (!cudnn_find(d, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE)) return CUDNN_BAD_PARAM;
        st = text ? plan_from_text(d, text) : plan_from_config(d);
        break;
    case CUDNN_SEARCH:
        if (!cudnn_linked(d, CUDNN_SEARCH_GRAPH, CUDNN_GRAPH)) return CUDNN_BAD_PARAM;
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
    const descriptor *graph = cudnn_linked(search, CUDNN_SEARCH_GRAPH, CUDNN_GRAPH);
    int64_t mode = -1;
    cudnn_code(search, CUDNN_SEARCH_MODE, CUDNN_IS_HEURISTIC, &mode);
    bool last = mode == CUDNN_LAST_RESORT;
    *ret_n = is_asked("no-engine") ? 0 : last ? 1 : is_asked("fallback") ? 0 : ENGINES;
    for (int64_t i = 0; i < *ret_n && i < room; i++) {
        configs[i]->p = copy_of(graph->p);
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
    char all[TEXT] = "";
    size_t at = 0;
    for (int i = 0; i < NUMBERS; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%lld ",
                               (long long)((const int64_t *)plan->p)[i]);
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
    case CUDNN_PLAN_WORKSPACE: *(int64_t *)ret_elements = d->p->engine == 2 ? WORKSPACE : 0; break;
    case CUDNN_PLAN_TEXT: return get_text(d, room, ret_n, ret_elements);
    default: return CUDNN_BAD_PARAM;
    }
    *ret_n = 1;
    return CUDNN_OK;
}

/* ---- Running -----------------------------------------------------------------------------------*/

static bool reach(const operand *o, const char *data, char *ret_problem) {
    char who[40];
    int64_t last = 0;
    for (int64_t d = 0; d < o->dims; d++) last += (o->size[d] - 1) * o->stride[d];
    snprintf(who, sizeof who, "cuDNN: operand %lld", (long long)o->id);
    return queue_reach(who, (uintptr_t)data,
                       (size_t)(last + 1) * number_bytes(cudnn_number_type(o)), ret_problem);
}

static bool run(void *payload, char *ret_problem) {
    job *j = payload;
    for (int64_t i = 0; i < j->p.operands; i++)
        if (j->data[i] && !reach(&j->p.operand[i], j->data[i], ret_problem)) return false;
    if (j->workspace) {
        if (!queue_reach("cuDNN: workspace", (uintptr_t)j->workspace, WORKSPACE, ret_problem))
            return false;
        memset(j->workspace, 0xaa, WORKSPACE);
    }
    return parts[j->p.part].run(j);
}

/* Operands that are numbers are read now, as cuDNN does. */
static bool give(job *j, int64_t id, char *data) {
    for (int64_t i = 0; i < j->p.operands; i++) {
        const operand *o = &j->p.operand[i];
        if (o->id != id || o->passing) continue;
        if (o->by_value)
            j->value[i] = number_load(data, cudnn_number_type(o), 0);
        else
            j->data[i] = data;
        return data && (o->by_value || (uintptr_t)data % (uintptr_t)o->alignment == 0);
    }
    return false;
}

static int64_t operands_outside(const problem *p) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->operands; i++) n += !p->operand[i].passing;
    return n;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    const descriptor *d = plan, *v = pack;
    const attribute *ids = cudnn_find(v, CUDNN_PACK_IDS, CUDNN_IS_INT64),
                    *data = cudnn_find(v, CUDNN_PACK_DATA, CUDNN_IS_POINTER),
                    *room = cudnn_find(v, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER);
    if (!d->finalized || !v->finalized || !ids || !data || ids->n != data->n ||
        ids->n != operands_outside(d->p))
        return CUDNN_BAD_PARAM;
    if (is_asked("broken")) return CUDNN_EXECUTION;
    if (is_asked("unsupported")) return CUDNN_UNSUPPORTED;
    job j = {.p = *d->p};
    for (int64_t i = 0; i < ids->n; i++)
        if (!give(&j, ((int64_t *)ids->data)[i], ((char **)data->data)[i])) return CUDNN_BAD_PARAM;
    if (j.p.engine == 2) {
        j.workspace = room ? *(char **)room->data : NULL;
        if (!j.workspace) return CUDNN_BAD_PARAM;
    }
    counts[EXECUTIONS].n++;
    counts[LAST_ENGINE].n = (long)j.p.engine;
    counts[LAST_OPERANDS].n = (long)ids->n;
    return queue_submit(handle->stream, run, &j, sizeof j) == CUDA_OK ? CUDNN_OK : CUDNN_EXECUTION;
}
