/* sparse_priv.h: tensors that keep their elements by components.
 *
 * A sparse tensor is a header with a layout in its word and a storage without memory, whose ctx are the
 * components: dense tensors without history. An operator that does not say that it takes such tensors
 * never sees one (call/sparse.c). Aliases share the storage, and with it the components; its version
 * counts the changes, as for any other tensor. */
#ifndef TENON_SPARSE_PRIV_H
#define TENON_SPARSE_PRIV_H

#include <tenon/wrapped.h>

#include "tensor_priv.h"

typedef struct tni_sparse {
    tn_tensor *index;  /* COO: (sparse_dim, nnz); else the compressed indices (*batch, n + 1) */
    tn_tensor *plain;  /* compressed layouts: (*batch, nnz); COO: NULL */
    tn_tensor *values; /* COO: (nnz, *dense); else (*batch, nnz, *block, *dense) */
    bool coalesced;    /* COO: indices are sorted and differ */
    int32_t sparse_dim, dense_dim, batch_dim;
} tni_sparse;

/* How elements lie in memory, which a tensor without any does not say. */
#define TNI_W_LIES (TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST | TN_W_DENSE)

static inline bool tni_is_sparse(const tn_tensor *t) {
    int32_t layout = tn_tensor_layout(t);
    return layout != TN_LAYOUT_STRIDED && layout < TN_LAYOUT_COUNT;
}
static inline bool tni_is_wrapped(const tn_tensor *t) {
    return tn_tensor_layout(t) == TN_LAYOUT_WRAPPED;
}
static inline const tni_sparse *tni_sparse_of(const tn_tensor *t) { return t->storage->ctx; }
/* Compressed layouts: rows are compressed; elements are blocks. */
static inline bool tni_by_rows(int32_t layout) {
    return layout == TN_LAYOUT_CSR || layout == TN_LAYOUT_BSR;
}
static inline bool tni_by_blocks(int32_t layout) {
    return layout == TN_LAYOUT_BSR || layout == TN_LAYOUT_BSC;
}

/* A sparse tensor of the given parts, which it keeps without their history (plain: NULL for COO). Only
 * that the sizes fit together is checked, not what the indices say. */
tn_status tni_sparse_new(int32_t layout, const tn_tensor *index, const tn_tensor *plain,
                         const tn_tensor *values, bool coalesced, tn_ints size,
                         tn_tensor **ret_tensor);
/* t's elements become those of src, of the same layout and shape; all aliases of t see it. */
void tni_sparse_replace(tn_tensor *t, const tn_tensor *src);
/* A tensor of the same components, which may then be given others. */
tn_status tni_sparse_fork(const tn_tensor *t, tn_tensor **ret_tensor);
/* The same tensor without history. */
tn_status tni_wrapped_alias(const tn_tensor *t, tn_tensor **ret_tensor);
tn_status tni_sparse_alias(const tn_tensor *t, tn_tensor **ret_tensor);

#endif
