/* index.c: moving elements to and from positions that index tensors give. No element is looked at,
 * only its size matters, so these kernels serve every dtype. All indices are checked, and turned
 * into byte offsets, before anything is written.
 *
 * family: index */
#include <string.h>

#include <tenon/args_create.h>
#include <tenon/args_index.h>

#include "copy.h"
#include "index.h"
#include "run.h"

enum { GRAIN_BYTES = 1 << 15 };

/* ---- Positions ---------------------------------------------------------------------------------*/

static tn_status offsets_new(const tn_call *call, int64_t n, int64_t **ret) {
    void *p = NULL;
    tn_status st = room_scratch(call, n > 0 ? n : 1, sizeof **ret, &p);
    if (st == TN_OK) *ret = p;
    return st;
}

/* at[n] = (the first time) or += index[n] * step, wrapped and checked. */
static tn_status add_positions(const tn_call *call, const tn_view *index, int64_t size,
                               int64_t step, int64_t dim, bool first, int64_t *at) {
    walk w;
    walk_at p;
    int is32 = tn_view_dtype(index) == TN_I32;
    walk_init(&w, 1);
    for (int32_t d = 0; d < index->ndim; d++) {
        int64_t s = walk_step_of(index, d);
        walk_add(&w, index->shape[d], &s);
    }
    walk_seek(&w, 0, &p);
    const char *x = index->data;
    int64_t line = w.ndim ? w.step[0][0] : 0;
    cpu_stretch s = {.n = index->numel, .cost = 1};
    while (cpu_next_stretch(&s)) {
        const int64_t *packed = (const int64_t *)(const void *)x;
        if (first && w.ndim <= 1 && !is32 && line == 8 &&
            all_within(packed + s.begin, s.end - s.begin, size)) {
            for (int64_t n = s.begin; n < s.end; n++) at[n] = packed[n] * step;
            continue;
        }
        for (int64_t n = s.begin; n < s.end; n++) {
            int64_t i = index_load(x + (w.ndim > 1 ? p.offset[0] : n * line), is32);
            if (w.ndim > 1) walk_next(&w, &p);
            if (i < -size || i >= size)
                return call->host->fail(
                    TN_E_INDEX, 1, "index %lld is out of bounds for dimension %lld with size %lld",
                    (long long)i, (long long)dim, (long long)size);
            at[n] = (first ? 0 : at[n]) + (i < 0 ? i + size : i) * step;
        }
    }
    return s.st;
}

/* Offsets of b's index dimensions first .. first + ndim - 1, in row-major order. */
static tn_status offsets_of_dims(const tn_view *b, int64_t first, int32_t ndim, int64_t *at) {
    walk w;
    walk_at p;
    walk_init(&w, 1);
    for (int32_t d = 0; d < ndim; d++) {
        int64_t s = walk_step_of(b, first + d);
        walk_add(&w, b->shape[first + d], &s);
    }
    walk_seek(&w, 0, &p);
    cpu_stretch s = {.n = w.numel, .cost = 1};
    int64_t line = w.ndim ? w.step[0][0] : 0;
    while (cpu_next_stretch(&s)) {
        for (int64_t n = s.begin; n < s.end; n++) {
            at[n] = w.ndim > 1 ? p.offset[0] : n * line;
            if (w.ndim > 1) walk_next(&w, &p);
        }
    }
    return s.st;
}

static void add_dims(walk *w, const tn_view *a, int64_t from_a, const tn_view *b, int64_t from_b,
                     int64_t count) {
    for (int64_t d = 0; d < count; d++) {
        int64_t step[2] = {walk_step_of(a, from_a + d), walk_step_of(b, from_b + d)};
        walk_add(w, a->shape[from_a + d], step);
    }
}

static tn_status slices_start(slices *s, const tn_call *call, const tn_view *a, const tn_view *b,
                              int64_t n) {
    s->a = a->data;
    s->b = b->data;
    s->n = n;
    s->item = tn_view_itemsize(a);
    walk_init(&s->prefix, 2);
    walk_init(&s->suffix, 2);
    tn_status st = offsets_new(call, n, &s->at_a);
    return st == TN_OK ? offsets_new(call, n, &s->at_b) : st;
}

tn_status slices_of_indices(slices *s, const tn_call *call, const tn_view *a, const tn_view *b,
                            tn_views indices, int64_t first, const int64_t *dims) {
    const tn_view *index = indices.v[0];
    tn_status st = slices_start(s, call, a, b, index->numel);
    if (st != TN_OK) return st;
    for (int64_t k = 0; k < indices.n && st == TN_OK; k++)
        st = add_positions(call, indices.v[k], a->shape[first + k], walk_step_of(a, first + k),
                           dims[k], k == 0, s->at_a);
    if (st == TN_OK) st = offsets_of_dims(b, first, index->ndim, s->at_b);
    if (st != TN_OK) return st;
    add_dims(&s->prefix, a, 0, b, 0, first);
    int64_t after = first + indices.n;
    add_dims(&s->suffix, a, after, b, first + index->ndim, a->ndim - after);
    return TN_OK;
}

tn_status slices_of_vector(slices *s, const tn_call *call, const tn_view *a, const tn_view *b,
                           const tn_view *index, int64_t dim) {
    tn_status st = slices_start(s, call, a, b, index->numel);
    if (st != TN_OK) return st;
    int is32 = tn_view_dtype(index) == TN_I32;
    int64_t size = a->ndim ? a->shape[dim] : 1, step = walk_step_of(index, 0);
    int64_t step_a = walk_step_of(a, dim), step_b = walk_step_of(b, dim);
    cpu_stretch all = {.n = s->n, .cost = 1};
    int64_t *at_a = s->at_a, *at_b = s->at_b;
    while (cpu_next_stretch(&all)) {
        for (int64_t n = all.begin; n < all.end; n++) {
            at_a[n] = index_load((const char *)index->data + n * step, is32);
            at_b[n] = n * step_b;
        }
        if (!all_within(at_a + all.begin, all.end - all.begin, size))
            return call->host->fail(TN_E_INDEX, 2, "index out of range in self");
        for (int64_t n = all.begin; n < all.end; n++) at_a[n] *= step_a;
    }
    if (a->ndim == 0 || all.st != TN_OK) return all.st;
    add_dims(&s->prefix, a, 0, b, 0, dim);
    add_dims(&s->suffix, a, dim + 1, b, dim + 1, a->ndim - dim - 1);
    return TN_OK;
}

/* ---- Running over slices -----------------------------------------------------------------------*/

/* One slice: `count` elements in each of its rows. */
static tn_status slice_run(const walk *outer, int64_t rows, int64_t count, char *a, int64_t step_a,
                           char *b, int64_t step_b, slices_fn f, const void *ctx) {
    walk_at p;
    walk_seek(outer, 0, &p);
    cpu_stretch s = {.n = rows, .cost = count};
    while (cpu_next_stretch(&s))
        for (int64_t r = s.begin; r < s.end; r++, walk_next(outer, &p))
            f(ctx, a + p.offset[0], step_a, b + p.offset[1], step_b, count);
    return s.st;
}

tn_status slices_run(const slices *s, const walk_at *prefix, int64_t begin, int64_t end,
                     slices_fn f, const void *ctx) {
    const walk *w = &s->suffix;
    int32_t last = w->ndim - 1;
    int64_t count = last >= 0 ? w->size[last] : 1, rows = w->numel / (count > 0 ? count : 1);
    int64_t step_a = last >= 0 ? w->step[last][0] : 0, step_b = last >= 0 ? w->step[last][1] : 0;
    walk outer = *w;
    if (last >= 0) {
        outer.ndim--;
        outer.numel = rows;
    }
    char *a = s->a + prefix->offset[0], *b = s->b + prefix->offset[1];
    tn_status st = TN_OK;
    cpu_stretch all = {.n = end - begin, .cost = w->numel};
    while (st == TN_OK && cpu_next_stretch(&all)) {
        const int64_t *at_a = s->at_a + begin, *at_b = s->at_b + begin;
        for (int64_t n = all.begin; n < all.end && st == TN_OK; n++) {
            if (rows != 1) {
                st = slice_run(&outer, rows, count, a + at_a[n], step_a, b + at_b[n], step_b, f,
                               ctx);
                continue;
            }
#if defined(__GNUC__)
            /* Positions lie anywhere, but they are known: the one to come is asked for in time. */
            if (n + 16 < all.n) __builtin_prefetch(a + at_a[n + 16], 1);
#endif
            f(ctx, a + at_a[n], step_a, b + at_b[n], step_b, count);
        }
    }
    return st ? st : all.st;
}

typedef struct write_job {
    const slices *s;
    slices_fn f;
    const void *ctx;
} write_job;

static tn_status write_prefixes(void *arg, int64_t begin, int64_t end) {
    const write_job *j = arg;
    walk_at p;
    tn_status st = TN_OK;
    walk_seek(&j->s->prefix, begin, &p);
    for (int64_t i = begin; i < end && st == TN_OK; i++, walk_next(&j->s->prefix, &p))
        st = slices_run(j->s, &p, 0, j->s->n, j->f, j->ctx);
    return st;
}

tn_status slices_write(const slices *s, slices_fn f, const void *ctx) {
    write_job j = {s, f, ctx};
    if (s->n == 0 || s->prefix.numel == 0 || s->suffix.numel == 0) return TN_OK;
    int64_t bytes = s->n * s->suffix.numel * s->item;
    return cpu_parallel(s->prefix.numel, GRAIN_BYTES / bytes + 1, write_prefixes, &j);
}

/* ---- Moving elements ---------------------------------------------------------------------------*/

typedef struct pair16 {
    uint64_t lo, hi;
} pair16;

#define MOVE_STRIDED(type)                                                                         \
    for (int64_t i = 0; i < count; i++) memcpy(dst + i * to, src + i * from, sizeof(type))

/* dst[i] = src[i] for elements of `item` bytes. */
static inline void move_line(char *dst, int64_t to, const char *src, int64_t from, int64_t count,
                             int64_t item) {
    if (to == item && from == item) {
        cpu_copy_run(dst, src, (size_t)(count * item));
        return;
    }
    if (to == item && from == 0 && count > 16) {
        cpu_spread(dst, src, count, (int32_t)item);
        return;
    }
    switch (item) {
    case 1: MOVE_STRIDED(uint8_t); break;
    case 2: MOVE_STRIDED(uint16_t); break;
    case 4: MOVE_STRIDED(uint32_t); break;
    case 8: MOVE_STRIDED(uint64_t); break;
    case 16: MOVE_STRIDED(pair16); break;
    default:
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * to, src + i * from, (size_t)item);
    }
}

static void into_a(const void *ctx, char *a, int64_t step_a, char *b, int64_t step_b,
                   int64_t count) {
    move_line(a, step_a, b, step_b, count, *(const int64_t *)ctx);
}

static void into_b(const void *ctx, char *a, int64_t step_a, char *b, int64_t step_b,
                   int64_t count) {
    move_line(b, step_b, a, step_a, count, *(const int64_t *)ctx);
}

/* The position to come is asked for in time. */
#define PUT(size)                                                                                  \
    for (int64_t n = all.begin; n < all.end; n++) {                                                \
        __builtin_prefetch(a + at_a[n + 16 < all.n ? n + 16 : n], 1);                              \
        memcpy(a + at_a[n], b + at_b[n], (size_t)(size));                                          \
    }

/* Single elements, as in x[i] = y: in order, so that of equal positions the last one stays. */
static tn_status put_elements(void *arg, int64_t begin, int64_t end) {
    const slices *s = arg;
    const int64_t *at_a = s->at_a, *at_b = s->at_b;
    walk_at p;
    walk_seek(&s->prefix, begin, &p);
    for (int64_t i = begin; i < end; i++, walk_next(&s->prefix, &p)) {
        char *a = s->a + p.offset[0];
        const char *b = s->b + p.offset[1];
        cpu_stretch all = {.n = s->n, .cost = 1};
        while (cpu_next_stretch(&all)) {
            switch (s->item) {
            case 1: PUT(1) break;
            case 2: PUT(2) break;
            case 4: PUT(4) break;
            case 8: PUT(8) break;
            default: PUT(s->item)
            }
        }
        if (all.st != TN_OK) return all.st;
    }
    return TN_OK;
}

tn_status slices_move_into_a(slices *s) {
    if (s->suffix.ndim > 0 || s->n == 0) return slices_write(s, into_a, &s->item);
    return cpu_parallel(s->prefix.numel, GRAIN_BYTES / (s->n * s->item) + 1, put_elements, s);
}

#define PICK(type)                                                                                 \
    for (int64_t n = begin; n < end; n++) memcpy(b + at_b[n], a + at_a[n], sizeof(type))

/* Single elements, as in x[i]: no suffix to walk. */
static tn_status pick_elements(const slices *s, const walk_at *p, int64_t begin, int64_t end) {
    const char *a = s->a + p->offset[0];
    char *b = s->b + p->offset[1];
    const int64_t *at_a = s->at_a,
                  *at_b = s->at_b; /* writing could change all of *s, for all compilers know */
    switch (s->item) {
    case 1: PICK(uint8_t); break;
    case 2: PICK(uint16_t); break;
    case 4: PICK(uint32_t); break;
    case 8: PICK(uint64_t); break;
    case 16: PICK(pair16); break;
    default: return slices_run(s, p, begin, end, into_b, &s->item);
    }
    return TN_OK;
}

/* Prefixes and positions are one range: reading may be split anywhere. */
static tn_status read_range(void *arg, int64_t begin, int64_t end) {
    const slices *s = arg;
    tn_status st = TN_OK;
    while (begin < end && st == TN_OK) {
        int64_t i = begin / s->n, n = begin % s->n, stop = s->n - n;
        if (stop > end - begin) stop = end - begin;
        walk_at p;
        walk_seek(&s->prefix, i, &p);
        if (s->suffix.ndim == 0)
            st = pick_elements(s, &p, n, n + stop);
        else
            st = slices_run(s, &p, n, n + stop, into_b, &s->item);
        begin += stop;
    }
    return st;
}

static tn_status slices_read(slices *s) {
    if (s->n == 0 || s->prefix.numel == 0 || s->suffix.numel == 0) return TN_OK;
    int64_t bytes = s->suffix.numel * s->item;
    return cpu_parallel(s->prefix.numel * s->n, GRAIN_BYTES / bytes + 1, read_range, s);
}

/* x[i] with one packed index of a vector: no offsets are made, the indices are read twice. */
typedef struct flat_pick {
    const char *x;
    char *out;
    const int64_t *index;
    int64_t size, step, item;
} flat_pick;

static inline void pick_flat(const flat_pick *j, int64_t item, int64_t step, int64_t begin,
                             int64_t end) {
    const char *x = j->x; /* writing through out could change all of *j, for all compilers know */
    const int64_t *index = j->index, size = j->size;
    char *out = j->out;
    for (int64_t n = begin; n < end; n++) {
        int64_t i = index[n];
        i += i < 0 ? size : 0;
        memcpy(out + n * item, x + i * step, (size_t)item);
    }
}

static tn_status pick_range(void *arg, int64_t begin, int64_t end) {
    const flat_pick *j = arg;
    if (j->item == 4 && j->step == 4)
        pick_flat(j, 4, 4, begin, end);
    else if (j->item == 4)
        pick_flat(j, 4, j->step, begin, end);
    else if (j->item == 8)
        pick_flat(j, 8, j->step, begin, end);
    else
        pick_flat(j, j->item, j->step, begin, end);
    return TN_OK;
}

/* False: not such a call, or an index is out of range, which the general way reports. */
static bool picked_flat(const tn__index_args *a, tn_status *ret_st) {
    const tn_view *x = a->input, *index = a->indices.v[0];
    uint64_t bad = 0;
    if (a->indices.n != 1 || x->ndim != 1 || !tn_view_is_contiguous(index)) return false;
    flat_pick j = {x->data,     a->out->data,       index->data,
                   x->shape[0], walk_step_of(x, 0), tn_view_itemsize(x)};
    for (int64_t n = 0; n < index->numel; n++)
        bad |= (uint64_t)j.index[n] + (uint64_t)j.size >= 2 * (uint64_t)j.size;
    if (bad) return false;
    *ret_st = cpu_parallel(index->numel, GRAIN_BYTES / 8, pick_range, &j);
    return true;
}

static tn_status index_any(const tn_call *call, const void *args) {
    const tn__index_args *a = args;
    slices s;
    if (a->out->numel == 0 && a->input->numel != 0 && a->indices.v[0]->numel == 0) return TN_OK;
    tn_status st = TN_OK;
    if (picked_flat(a, &st)) return st;
    st = slices_of_indices(&s, call, a->input, a->out, a->indices, a->first, a->dims.v);
    return st == TN_OK ? slices_read(&s) : st;
}

static tn_status index_select_any(const tn_call *call, const void *args) {
    const tn_index_select_args *a = args;
    const tn_view *x = a->input, *index = a->index;
    slices s;
    if (x->ndim == 1 && tn_view_dtype(index) == TN_I64 && tn_view_is_contiguous(index) &&
        tn_view_is_contiguous(a->out) && all_within(index->data, index->numel, x->shape[0])) {
        flat_pick j = {x->data,     a->out->data,       index->data,
                       x->shape[0], walk_step_of(x, 0), tn_view_itemsize(x)};
        return cpu_parallel(index->numel, GRAIN_BYTES / 8, pick_range, &j);
    }
    tn_status st = slices_of_vector(&s, call, x, a->out, index, a->dim);
    return st == TN_OK ? slices_read(&s) : st;
}

static tn_status index_copy_any(const tn_call *call, const void *args) {
    const tn_index_copy__args *a = args;
    slices s;
    tn_status st = slices_of_vector(&s, call, a->self, a->source, a->index, a->dim);
    return st == TN_OK ? slices_move_into_a(&s) : st;
}

/* ---- gather ------------------------------------------------------------------------------------*/

static tn_status check_row(const tn_call *call, const char *row, int64_t step, int is32,
                           int64_t count, int64_t size, int64_t dim) {
    cpu_stretch s = {.n = step ? count : 1, .cost = 1};
    while (cpu_next_stretch(&s)) {
        const int64_t *wide = (const int64_t *)(const void *)row;
        if (!is32 && step == 8 && all_within(wide + s.begin, s.end - s.begin, size)) continue;
        for (int64_t j = s.begin; j < s.end; j++) {
            int64_t i = index_load(row + j * step, is32);
            if (i < 0 || i >= size)
                return call->host->fail(
                    TN_E_SHAPE, 2, "index %lld is out of bounds for dimension %lld with size %lld",
                    (long long)i, (long long)dim, (long long)size);
        }
    }
    return s.st;
}

static tn_status check_places(const tn_call *call, const tn_view *index, int64_t size,
                              int64_t dim) {
    walk w;
    walk_at p;
    int is32 = tn_view_dtype(index) == TN_I32;
    walk_init(&w, 1);
    for (int32_t d = 0; d < index->ndim; d++) {
        int64_t s = walk_step_of(index, d);
        walk_add(&w, index->shape[d], &s);
    }
    int32_t last = w.ndim - 1;
    int64_t count = last >= 0 ? w.size[last] : 1, step = last >= 0 ? w.step[last][0] : 0;
    if (w.numel == 0) return TN_OK;
    int64_t rows = w.numel / count;
    if (last >= 0) w.ndim--;
    walk_seek(&w, 0, &p);
    tn_status st = TN_OK;
    cpu_stretch s = {.n = rows, .cost = count};
    while (st == TN_OK && cpu_next_stretch(&s))
        for (int64_t r = s.begin; r < s.end && st == TN_OK; r++, walk_next(&w, &p))
            st = check_row(call, (const char *)index->data + p.offset[0], step, is32, count, size,
                           dim);
    return st ? st : s.st;
}

static void find_places(places *p, const tn_view *self, const tn_view *src, const tn_view *index,
                        int64_t dim) {
    int32_t fast = -1; /* the fastest dimension */
    for (int32_t d = index->ndim - 1; d >= 0 && fast < 0; d--)
        if (index->shape[d] > 1) fast = d;
    p->self = self->data;
    p->src = src ? src->data : NULL;
    p->index = index->data;
    p->is32 = tn_view_dtype(index) == TN_I32;
    p->n = index->ndim && fast != dim ? index->shape[dim] : 1;
    const tn_view *views[3] = {self, src, index};
    for (int k = 0; k < 3; k++) {
        p->step[k] = views[k] ? walk_step_of(views[k], dim) : 0;
        p->last_step[k] = views[k] && fast >= 0 ? walk_step_of(views[k], fast) : 0;
    }
    if (fast == dim) p->last_step[0] = 0; /* there only the index moves in self */
    p->last = fast >= 0 ? index->shape[fast] : 1;
    walk_init(&p->outer, 3);
    for (int32_t d = 0; d < index->ndim; d++) {
        if (d == dim || d == fast) continue;
        int64_t step[3];
        for (int k = 0; k < 3; k++) step[k] = views[k] ? walk_step_of(views[k], d) : 0;
        walk_add(&p->outer, index->shape[d], step);
    }
}

tn_status places_of(places *p, const tn_call *call, const tn_view *self, const tn_view *src,
                    const tn_view *index, int64_t dim) {
    tn_status st = check_places(call, index, self->ndim ? self->shape[dim] : 1, dim);
    if (st == TN_OK) find_places(p, self, src, index, dim);
    return st;
}

typedef struct gather_job {
    places p;
    int64_t item, size;
    bool check; /* each line of indices when it is read for the first time */
} gather_job;

/* `count` elements of a line of the result; inlined for every item size and index type. */
static inline void gather_some(const places *p, int64_t item, int is32, char *out, const char *self,
                               const char *index, int64_t count) {
    int64_t along = p->last_step[0], step = p->step[0];
    if (!is32 && p->last_step[1] == item && p->last_step[2] == 8) {
        const int64_t *at = (const int64_t *)(const void *)index;
        if (along == 0 && step == item) { /* along packed rows: the address is one operand */
            for (int64_t l = 0; l < count; l++)
                memcpy(out + l * item, self + at[l] * item, (size_t)item);
            return;
        }
        for (int64_t l = 0; l < count; l++)
            memcpy(out + l * item, self + l * along + at[l] * step, (size_t)item);
        return;
    }
    for (int64_t l = 0; l < count; l++) {
        int64_t i = index_load(index + l * p->last_step[2], is32);
        memcpy(out + l * p->last_step[1], self + l * p->last_step[0] + i * p->step[0],
               (size_t)item);
    }
}

static tn_status gather_line(const gather_job *g, char *out, const char *self, const char *index) {
    const places *p = &g->p;
    cpu_stretch s = {.n = p->last, .cost = 1};
    while (cpu_next_stretch(&s)) {
        int64_t count = s.end - s.begin;
        const char *from = self + s.begin * p->last_step[0],
                   *at = index + s.begin * p->last_step[2];
        char *to = out + s.begin * p->last_step[1];
        if (g->check && !all_within((const int64_t *)(const void *)at, count, g->size))
            return TN_E_INDEX;
        if (g->item == 4 && !p->is32)
            gather_some(p, 4, 0, to, from, at, count);
        else if (g->item == 8 && !p->is32)
            gather_some(p, 8, 0, to, from, at, count);
        else if (g->item == 4)
            gather_some(p, 4, 1, to, from, at, count);
        else
            gather_some(p, g->item, p->is32, to, from, at, count);
    }
    return s.st;
}

/* Lines of a few elements, one after the other: a call for each would take longer than the line. */
enum { SHORT_LINE = 16 };
static inline tn_status gather_short(const gather_job *g, int64_t item, int64_t begin,
                                     int64_t end) {
    const places *p = &g->p;
    const int64_t *next = p->outer.step[0];
    for (int64_t r = begin; r < end; r++) {
        const char *self = p->self + r * next[0], *index = p->index + r * next[2];
        char *out = p->src + r * next[1];
        for (int64_t l = 0; l < p->last; l++) {
            int64_t i = index_load(index + l * p->last_step[2], 0);
            if ((uint64_t)i >= (uint64_t)g->size) return TN_E_INDEX;
            memcpy(out + l * p->last_step[1], self + l * p->last_step[0] + i * p->step[0],
                   (size_t)item);
        }
    }
    return TN_OK;
}

static tn_status gather_short_4(void *arg, int64_t begin, int64_t end) {
    return gather_short(arg, 4, begin, end);
}

static tn_status gather_short_8(void *arg, int64_t begin, int64_t end) {
    return gather_short(arg, 8, begin, end);
}

static tn_status gather_range(void *arg, int64_t begin, int64_t end) {
    const gather_job *g = arg;
    const places *p = &g->p;
    int64_t j = begin % p->n;
    walk_at at;
    tn_status st = TN_OK;
    walk_seek(&p->outer, begin / p->n, &at);
    for (int64_t r = begin; r < end && st == TN_OK; r++) {
        st = gather_line(g, p->src + at.offset[1] + j * p->step[1], p->self + at.offset[0],
                         p->index + at.offset[2] + j * p->step[2]);
        if (++j < p->n) continue;
        j = 0;
        walk_next(&p->outer, &at);
    }
    return st;
}

static tn_status gather_any(const tn_call *call, const void *args) {
    const tn_gather_args *a = args;
    gather_job g;
    g.item = tn_view_itemsize(a->input);
    if (a->index->numel == 0) return TN_OK;
    g.size = a->input->ndim ? a->input->shape[a->dim] : 1;
    find_places(&g.p, a->input, a->out, a->index, a->dim);
    g.check = !g.p.is32 && g.p.last_step[2] == 8;
    tn_status st = g.check ? TN_OK : check_places(call, a->index, g.size, a->dim);
    if (st != TN_OK) return st;
    cpu_body lines = gather_range;
    if (!g.p.is32 && g.p.last < SHORT_LINE && g.p.n == 1 && g.p.outer.ndim == 1) {
        if (g.item == 4) lines = gather_short_4;
        if (g.item == 8) lines = gather_short_8;
    }
    st = cpu_parallel(g.p.outer.numel * g.p.n, GRAIN_BYTES / (g.p.last * 8) + 1, lines, &g);
    return st == TN_E_INDEX ? check_places(call, a->index, g.size, a->dim) : st;
}

/* ---- tril, triu --------------------------------------------------------------------------------*/

typedef struct triangle {
    const tn_view *x, *out;
    int64_t diagonal;
    bool lower;
    walk matrices;
} triangle;

/* A row of the result: the kept columns are copied, the others zeroed. */
static tn_status triangle_rows(void *arg, int64_t begin, int64_t end) {
    const triangle *t = arg;
    const tn_view *x = t->x;
    int64_t item = tn_view_itemsize(x), rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    int64_t down = x->strides[x->ndim - 2] * item, right = x->strides[x->ndim - 1] * item;
    for (int64_t r = begin; r < end; r++) {
        walk_at p;
        walk_seek(&t->matrices, r / rows, &p);
        int64_t row = r % rows, k = row + t->diagonal + (t->lower ? 1 : 0);
        if (k < 0) k = 0;
        if (k > cols) k = cols;
        const char *src = (const char *)x->data + p.offset[0] + row * down;
        char *dst = (char *)t->out->data + r * cols * item;
        int64_t from = t->lower ? 0 : k, to = t->lower ? k : cols;
        memset(dst, 0, (size_t)(from * item));
        memset(dst + to * item, 0, (size_t)((cols - to) * item));
        if (to > from)
            move_line(dst + from * item, item, src + from * right, right, to - from, item);
    }
    return TN_OK;
}

static tn_status triangle_of(const tn_view *x, const tn_view *out, int64_t diagonal, bool lower) {
    triangle t = {.x = x, .out = out, .lower = lower};
    int64_t rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    /* Farther out than the corners nothing changes, and nothing can overflow. */
    t.diagonal = diagonal > cols ? cols : diagonal < -rows - 1 ? -rows - 1 : diagonal;
    if (x->numel == 0) return TN_OK;
    walk_init(&t.matrices, 1);
    for (int32_t d = 0; d < x->ndim - 2; d++) {
        int64_t step = walk_step_of(x, d);
        walk_add(&t.matrices, x->shape[d], &step);
    }
    int64_t bytes = cols * tn_view_itemsize(x);
    return cpu_parallel(t.matrices.numel * rows, GRAIN_BYTES / bytes + 1, triangle_rows, &t);
}

static tn_status tril_any(const tn_call *call, const void *args) {
    const tn_tril_args *a = args;
    (void)call;
    return triangle_of(a->input, a->out, a->diagonal, true);
}

static tn_status triu_any(const tn_call *call, const void *args) {
    const tn_triu_args *a = args;
    (void)call;
    return triangle_of(a->input, a->out, a->diagonal, false);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TN_DTYPE_ANY, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(_index, index_any),
    ROW(index_select, index_select_any),
    ROW(index_copy_, index_copy_any),
    ROW(gather, gather_any),
    ROW(tril, tril_any),
    ROW(triu, triu_any),
};
const cpu_rows cpu_index_rows = CPU_ROWS_OF(rows);
