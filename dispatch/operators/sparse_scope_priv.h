/* sparse_scope_priv.h: the language of rules for sparse tensors, on top of scope_priv.h.
 *
 * A rule takes a tensor apart, computes with its dense components, and puts a result together. Values
 * come with their history, and making a tensor of values is recorded: gradients follow from the parts.
 * Functions without a result of a scope return what its scope owns, NULL after a failure. */
#ifndef TENON_SPARSE_SCOPE_PRIV_H
#define TENON_SPARSE_SCOPE_PRIV_H

#include <tenon/ops_index.h>
#include <tenon/ops_sparse.h>

#include "scope_priv.h"
#include "sparse_priv.h"

/* Where elements (blocks, rows of values) lie: coordinates (n, nnz) on a grid of n sizes. */
typedef struct sparse_places {
    tn_tensor *at; /* owned by the scope */
    int32_t n;
    int64_t grid[TN_MAX_DIMS];
} sparse_places;

/* ---- sparse_parts.c ----------------------------------------------------------------------------*/
/* t's values; with history where the call is recorded. */
tn_tensor *sparse_values(tni_scope *s, tn_tensor *t);
/* t, made distinct and sorted where a gradient will want its values one by one (all: in any case). */
tn_tensor *sparse_distinct(tni_scope *s, tn_tensor *t, bool all);
/* A tensor with t's indices and other values. */
tn_tensor *sparse_like(tni_scope *s, tn_tensor *t, tn_tensor *values);
tn_tensor *sparse_coo(tni_scope *s, tn_tensor *indices, tn_tensor *values, tn_ints size,
                      bool coalesced);
/* Both have the same indices because they are the same memory. */
bool sparse_same_places(const tn_tensor *a, const tn_tensor *b);
/* The places of the elements of t, or of a pattern of components whose elements have size `block`. */
void sparse_places_of(tni_scope *s, const tn_tensor *t, sparse_places *ret);
void sparse_places_from(tni_scope *s, int32_t layout, tn_tensor *index, tn_tensor *plain,
                        tn_ints size, const int64_t *block, sparse_places *ret);
/* Sizes of the blocks of a tensor; {1, 1} for those without. */
void sparse_block_of(const tn_tensor *t, int64_t *ret_block);
/* Places as numbers: row-major over dimensions [from, to) of the grid. */
tn_tensor *sparse_keys(tni_scope *s, const sparse_places *p, int32_t from, int32_t to);
/* Whether keys rise without repetition, as those of a coalesced tensor do; waits for the device. */
bool sparse_rising(tni_scope *s, tn_tensor *keys);
/* The last two coordinates change places. */
void sparse_swap(tni_scope *s, sparse_places *p);
/* Rows of values in the places' order: (nnz, ...). */
tn_tensor *sparse_rows(tni_scope *s, tn_tensor *t);
/* Whether sums of many elements in the dtype are made in float32. */
static inline bool sparse_is_half(int32_t dtype) { return dtype == TN_F16 || dtype == TN_BF16; }
/* zeros(n, ...) with rows of source at index, of halves one for each place. */
tn_tensor *sparse_placed(tni_scope *s, int64_t n, tn_tensor *index, tn_tensor *source);
/* zeros(n, ...) with rows of source added at index; halves are added in float32. */
tn_tensor *sparse_gathered(tni_scope *s, int64_t n, tn_tensor *index, tn_tensor *source);
/* In layout COO; in the layout and block size of `like`. */
tn_tensor *sparse_to_coo(tni_scope *s, tn_tensor *t);
tn_tensor *sparse_to_layout_of(tni_scope *s, tn_tensor *t, const tn_tensor *like);
/* The values of t, which may be dense, at places whose elements have size `block`. */
tn_tensor *sparse_read_at(tni_scope *s, tn_tensor *t, const sparse_places *p, const int64_t *block);

/* Numbers of ranges, each as often as its range is long, and the places in the ranges. */
void sparse_spread(tni_scope *s, tn_tensor *first, tn_tensor *last, tn_tensor **ret_which,
                   tn_tensor **ret_place);

/* Small words. */
tn_tensor *sparse_arange(tni_scope *s, int64_t n, const tn_tensor *like);
tn_tensor *sparse_pick(tni_scope *s, tn_tensor *t, int64_t dim, tn_tensor *index);
tn_tensor *sparse_picked(tni_scope *s, tn_tensor *t, int64_t dim, tn_ints which);
tn_tensor *sparse_found(tni_scope *s, tn_tensor *sorted, tn_tensor *keys, bool right);
tn_tensor *sparse_times(tni_scope *s, tn_tensor *t, int64_t n);
tn_tensor *sparse_plus(tni_scope *s, tn_tensor *t, int64_t n);
tn_tensor *sparse_over(tni_scope *s, tn_tensor *t, int64_t n);   /* t // n */
tn_tensor *sparse_modulo(tni_scope *s, tn_tensor *t, int64_t n); /* t % n */
tn_tensor *sparse_flat(tni_scope *s, tn_tensor *t);              /* one dimension */
tn_tensor *sparse_where_true(tni_scope *s, tn_tensor *mask);     /* its places, one dimension */
/* Whether every element of a small tensor is true; waits for the device. */
bool sparse_all_true(tni_scope *s, tn_tensor *mask);

#endif
