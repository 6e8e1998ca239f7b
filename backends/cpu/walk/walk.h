/* walk.h: stepping through several strided operands at once, in the order of one of them. A walk is
 * filled from the slowest dimension to the fastest; neighbours that lie like one dimension in all
 * operands are merged. Steps are bytes. */
#ifndef TENON_CPU_WALK_H
#define TENON_CPU_WALK_H

#include <tenon/plugin.h>

enum { WALK_MAX = 3 };

typedef struct walk {
    int32_t ndim; /* the last dimension is the fastest */
    int32_t count;
    int64_t numel;
    int64_t size[TN_MAX_DIMS];
    int64_t step[TN_MAX_DIMS][WALK_MAX];
} walk;

/* Where a walk stands: coordinates, and the offset of every operand. */
typedef struct walk_at {
    int64_t at[TN_MAX_DIMS];
    int64_t offset[WALK_MAX];
} walk_at;

/* Bytes from an element to the next along a dimension. Where there is none the stride may be any number,
 * whose product with a size may have no value. */
static inline int64_t walk_step_of(const tn_view *v, int64_t d) {
    bool none = v->numel == 0 || d >= v->ndim || v->shape[d] <= 1;
    return none ? 0 : v->strides[d] * tn_view_itemsize(v);
}

static inline void walk_init(walk *w, int32_t count) {
    w->ndim = 0;
    w->count = count;
    w->numel = 1;
}

static inline void walk_add(walk *w, int64_t size, const int64_t *step) {
    w->numel *= size;
    if (size == 1) return;
    int merge = w->ndim > 0;
    for (int32_t k = 0; merge && k < w->count; k++)
        merge = w->step[w->ndim - 1][k] == step[k] * size;
    int32_t d = merge ? w->ndim - 1 : w->ndim++;
    w->size[d] = merge ? w->size[d] * size : size;
    for (int32_t k = 0; k < w->count; k++) w->step[d][k] = step[k];
}

static inline void walk_seek(const walk *w, int64_t i, walk_at *ret) {
    for (int32_t k = 0; k < w->count; k++) ret->offset[k] = 0;
    for (int32_t d = w->ndim - 1; d >= 0; d--) {
        int64_t size = w->size[d] > 0 ? w->size[d] : 1; /* an empty walk starts at 0, too */
        ret->at[d] = i % size;
        i /= size;
        for (int32_t k = 0; k < w->count; k++) ret->offset[k] += ret->at[d] * w->step[d][k];
    }
}

static inline void walk_next(const walk *w, walk_at *p) {
    for (int32_t d = w->ndim - 1; d >= 0; d--) {
        for (int32_t k = 0; k < w->count; k++) p->offset[k] += w->step[d][k];
        if (++p->at[d] < w->size[d]) return;
        for (int32_t k = 0; k < w->count; k++) p->offset[k] -= w->size[d] * w->step[d][k];
        p->at[d] = 0;
    }
}

#endif
