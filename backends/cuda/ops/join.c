/* join.c: tensors beside each other, many of them in one launch: host side of kernels/join.cu.
 *
 * family: join */
#include "cuda_priv.h"

#include <tenon/args_create.h>

#include "kernels/args/args_join.h"

_Static_assert(sizeof(cuda_join_args) <= 4096, "more than a kernel takes by value");

static cuda_size_kernels kernels = CUDA_SIZE_KERNELS(join, join);

typedef struct join_job {
    const tn_call *call;
    const tn__join_args *in;
    cuda_join_args args;
    int32_t source[CUDA_DIMS]; /* by dimension of `args`: that of the parts whose strides it has */
    int64_t item, element;     /* bytes */
    int64_t inner;             /* elements that one place along the joined dimension takes in it */
    uint32_t threads;
} join_job;

/* ---- The shape that parts have in common -------------------------------------------------------*/

/* The next part with elements from *i on, and moves *i behind it; NULL: there is none. */
static const tn_view *next_part(tn_views parts, int64_t *i) {
    while (*i < parts.n) {
        const tn_view *part = parts.v[(*i)++];
        if (part->numel > 0) return part;
    }
    return NULL;
}

/* In bytes. */
static int64_t stride_of(const join_job *j, const tn_view *part, int32_t d) {
    return part->strides[j->source[d]] * j->element;
}

/* Places that a part takes along the joined dimension. */
static int64_t places_of(const join_job *j, const tn_view *part) {
    return j->in->stacked ? 1 : part->shape[j->in->dim];
}

/* Dimension d of the whole, where its strides put it: neighbouring threads write neighbours. */
static void insert_dim(join_job *j, int32_t d) {
    const tn_view *whole = j->in->whole;
    cuda_join_args *a = &j->args;
    int64_t to = whole->strides[d] * j->element;
    int32_t at = a->dims++;
    for (; at > 0 && to < a->to[at - 1]; at--) {
        a->size[at] = a->size[at - 1];
        a->to[at] = a->to[at - 1];
        j->source[at] = j->source[at - 1];
    }
    a->size[at] = whole->shape[d];
    a->to[at] = to;
    j->source[at] = j->in->stacked && d > j->in->dim ? d - 1 : d;
}

static tn_status read_dims(join_job *j) {
    const tn_view *whole = j->in->whole;
    cuda_join_args *a = &j->args;
    for (int32_t d = whole->ndim - 1; d >= 0; d--) {
        bool joined = d == j->in->dim;
        if (joined ? j->in->stacked : whole->shape[d] == 1) continue;
        if (a->dims == CUDA_DIMS) return TN_DECLINE;
        insert_dim(j, d);
    }
    a->along = -1;
    for (int32_t d = 0; d < a->dims && !j->in->stacked; d++)
        if (j->source[d] == j->in->dim) a->along = d;
    return TN_OK;
}

/* Whether two dimensions are one, in the whole and in every part. */
static bool can_merge(const join_job *j, int32_t inner, int32_t outer) {
    const cuda_join_args *a = &j->args;
    const tn_view *part;
    int64_t size = a->size[inner], i = 0;
    if (inner == a->along || a->to[outer] != a->to[inner] * size) return false;
    while ((part = next_part(j->in->tensors, &i))) {
        bool single = outer == a->along && places_of(j, part) == 1;
        if (!single && stride_of(j, part, outer) != stride_of(j, part, inner) * size) return false;
    }
    return true;
}

static void merge_dims(join_job *j) {
    cuda_join_args *a = &j->args;
    int32_t last = 0;
    for (int32_t d = 1; d < a->dims; d++) {
        bool merge = can_merge(j, last, d);
        if (!merge) last++;
        if (d == a->along) {
            a->along = last;
            if (merge) j->inner = a->size[last];
        }
        if (merge) {
            a->size[last] *= a->size[d];
        } else {
            a->size[last] = a->size[d];
            a->to[last] = a->to[d];
            j->source[last] = j->source[d];
        }
    }
    if (a->dims) a->dims = last + 1;
}

/* ---- What is moved at once ---------------------------------------------------------------------*/

/* The largest power of two, up to 16, that divides all addresses and lengths of packed runs. */
static int64_t find_item(const join_job *j) {
    const cuda_join_args *a = &j->args;
    const tn_view *part;
    uint64_t bits = 16 | (uint64_t)(uintptr_t)a->whole | (uint64_t)a->step;
    if (a->dims == 0 || a->to[0] != j->element) return j->element;
    for (int32_t d = 1; d < a->dims; d++) bits |= (uint64_t)a->to[d];
    if (a->along != 0) bits |= (uint64_t)(a->size[0] * j->element);
    int64_t i = 0;
    while ((part = next_part(j->in->tensors, &i))) {
        if (stride_of(j, part, 0) != j->element) return j->element;
        bits |= (uint64_t)(uintptr_t)part->data;
        for (int32_t d = 1; d < a->dims; d++) bits |= (uint64_t)stride_of(j, part, d);
        if (a->along == 0) bits |= (uint64_t)(places_of(j, part) * j->inner * j->element);
    }
    return (int64_t)(bits & (~bits + 1));
}

/* So many places along the joined dimension, in its items. */
static int64_t items_along(const join_job *j, int64_t places) {
    int64_t n = places * j->inner;
    return j->args.along == 0 ? n * j->element / j->item : n;
}

static int64_t item_stride(const join_job *j, const tn_view *part, int32_t d) {
    return d == 0 && j->item != j->element ? j->item : stride_of(j, part, d);
}

/* The shape in items, and what depends on all parts. */
static void describe(join_job *j) {
    cuda_join_args *a = &j->args;
    const tn_view *part, *model = NULL;
    int64_t most = 0, i = 0;
    j->item = find_item(j);
    if (j->item != j->element) {
        a->size[0] = a->size[0] * j->element / j->item;
        a->to[0] = j->item;
    }
    if (a->along >= 0) a->step = a->to[a->along];
    for (int32_t d = 0; d < a->dims; d++)
        if (d != a->along) a->each *= a->size[d];
    while ((part = next_part(j->in->tensors, &i))) {
        int64_t items = items_along(j, places_of(j, part)) * a->each;
        if (items > most) most = items;
        if (!model) model = part;
        for (int32_t d = 0; d < a->dims; d++) {
            a->from[d] = item_stride(j, model, d);
            if (item_stride(j, part, d) != a->from[d]) a->own = 1;
        }
    }
    a->stride = a->own ? 2 + a->dims : 2;
    a->narrow = most <= INT32_MAX;
    for (j->threads = 32; j->threads < CUDA_BLOCK && j->threads * JOIN_EACH < most;)
        j->threads *= 2;
}

/* ---- Launches ----------------------------------------------------------------------------------*/

static bool has_room(const cuda_join_args *a) {
    return a->parts < JOIN_PARTS && (a->parts + 1) * a->stride < JOIN_WORDS;
}

/* Adds a part that begins at `place` of the joined dimension. All blocks can be counted with 32 bits,
 * since the whole lies in memory. */
static void add_part(join_job *j, const tn_view *part, int64_t place) {
    cuda_join_args *a = &j->args;
    int64_t *word = a->words + a->parts * a->stride, each = (int64_t)j->threads * JOIN_EACH;
    int64_t n = items_along(j, places_of(j, part));
    word[0] = items_along(j, place);
    word[1] = (int64_t)(intptr_t)part->data;
    for (int32_t d = 0; d < a->dims && a->own; d++) word[2 + d] = item_stride(j, part, d);
    word[a->stride] = word[0] + n;
    a->first[a->parts + 1] = a->first[a->parts] + (int32_t)((n * a->each + each - 1) / each);
    a->parts++;
}

static tn_status launch(join_job *j) {
    cuda_join_args *a = &j->args;
    tn_status st =
        cuda_launch(j->call, cuda_size_kernel(kernels, j->item), a->first[a->parts], j->threads, a);
    a->parts = 0;
    return st;
}

static tn_status join(const tn_call *call, const void *args) {
    const tn__join_args *in = args;
    const tn_view *whole = in->whole, *part;
    int64_t bytes = tn_view_itemsize(whole), place = 0, i = 0;
    join_job j = {.call = call, .in = in, .element = bytes, .inner = 1};
    if (bytes & (bytes - 1) || bytes > 16) return TN_DECLINE;
    j.args.whole = whole->data;
    j.args.each = 1;
    if (in->stacked) j.args.step = whole->strides[in->dim] * bytes;
    tn_status st = read_dims(&j);
    if (st != TN_OK) return st;
    merge_dims(&j);
    describe(&j);
    while (st == TN_OK && (part = next_part(in->tensors, &i))) {
        if (!has_room(&j.args)) st = launch(&j);
        add_part(&j, part, place);
        place += places_of(&j, part);
    }
    return st == TN_OK ? launch(&j) : st;
}

static const tn_kernel_row rows[] = {
    {"_join", TN_SIG__join, join, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
};
const cuda_rows cuda_join_rows = CUDA_ROWS_OF(rows);
