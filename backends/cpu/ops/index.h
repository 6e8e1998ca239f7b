/* index.h: reading and writing slices at positions that tensors give: what index.c (moving bytes) and
 * index_tmpl.c (arithmetic, once per element type) share. */
#ifndef TENON_CPU_INDEX_H
#define TENON_CPU_INDEX_H

#include "cpu_priv.h"
#include "walk.h"

/* Slices of tensor a (indexed) against slices of tensor b (the result, or the values): for every
 * prefix, every position n and every suffix, the elements at
 *     a + prefix.offset[0] + at_a[n] + suffix.offset[0]
 *     b + prefix.offset[1] + at_b[n] + suffix.offset[1]. */
typedef struct slices {
    char *a, *b;
    int64_t n, item;
    int64_t *at_a, *at_b; /* scratch of the call */
    walk prefix, suffix;
} slices;

/* `dims` (of the user's tensor) are named in messages; a's dimensions from `first` on are indexed by
 * the tensors of `indices`, which have one shape. All positions are checked here. */
tn_status slices_of_indices(slices *s, const tn_call *call, const tn_view *a, const tn_view *b,
                            tn_views indices, int64_t first, const int64_t *dims);
/* One vector of indices along dim. */
tn_status slices_of_vector(slices *s, const tn_call *call, const tn_view *a, const tn_view *b,
                           const tn_view *index, int64_t dim);

/* Runs f(ctx, a, step_a, b, step_b, count) over the fastest dimension of every suffix, from position
 * `begin` to `end`, within one prefix. */
typedef void (*slices_fn)(const void *ctx, char *a, int64_t step_a, char *b, int64_t step_b,
                          int64_t count);
tn_status slices_run(const slices *s, const walk_at *prefix, int64_t begin, int64_t end,
                     slices_fn f, const void *ctx);
/* The same for all prefixes, in parallel over them; equal positions are met in order. */
tn_status slices_write(const slices *s, slices_fn f, const void *ctx);
/* a's elements = b's, of any dtype. */
tn_status slices_move_into_a(slices *s);

/* Index i of a vector or element of an index tensor of dtype int32 or int64. */
static inline int64_t index_load(const char *p, int is32) {
    return is32 ? *(const int32_t *)(const void *)p : *(const int64_t *)(const void *)p;
}

/* True when all are in [0, size): one that is not sets the sign of itself or of its distance to the
 * last place. Vector code for this needs no comparisons. */
static inline bool all_within(const int64_t *index, int64_t n, int64_t size) {
    uint64_t signs = 0, last = (uint64_t)size - 1;
    for (int64_t i = 0; i < n; i++) signs |= (uint64_t)index[i] | (last - (uint64_t)index[i]);
    return (int64_t)signs >= 0;
}

/* gather and scatter: every element of index against its own place along dim. */
typedef struct places {
    char *self, *src, *index; /* src NULL: not there */
    int is32;
    int64_t n, step[3];         /* along dim: self (per index value), src, index */
    int64_t last, last_step[3]; /* the fastest dimension; when that is dim, n is 1 */
    walk outer;                 /* the rest */
} places;
/* Fills it and checks every index; src may be NULL. size: self's along dim. */
tn_status places_of(places *p, const tn_call *call, const tn_view *self, const tn_view *src,
                    const tn_view *index, int64_t dim);

#endif
