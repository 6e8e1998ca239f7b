/* index.h: reading and writing at positions that index tensors give: what take.c, which knows the
 * operators, and index.c, which launches, share. */
#ifndef CUDA_INDEX_H
#define CUDA_INDEX_H

#include "cuda_priv.h"
#include "kernels/args/args_index.h"

/* What is moved, in the order of `moved`; `index` and `reached` get strides by its dimensions. */
typedef struct cuda_index_job {
    const tn_view *moved, *index, *reached;
    int64_t index_stride[TN_MAX_DIMS], reached_stride[TN_MAX_DIMS]; /* in elements */
    bool of_index[TN_MAX_DIMS]; /* a dimension of the index: its elements may meet elsewhere */
    int64_t size, step;         /* of the indexed dimension */
    int64_t steps;              /* where it stands for several: all bits of their steps */
    int64_t skip;               /* an index to leave out, where `skips` */
    bool wrap, skips;
    bool ready; /* the index tensor holds byte offsets, packed */
} cuda_index_job;

/* moved = reached at the indices. */
tn_status cuda_index_take(const tn_call *call, const cuda_index_job *j);

/* What is moved is joined to what is reached: TN_SCATTER_*. alpha multiplies what is added. */
typedef struct cuda_index_join {
    int32_t how;
    bool average; /* what meets in a place is divided by how much that is */
    bool ordered; /* in the order of positions, which gives the same bits every time */
    cuda_number alpha;
} cuda_index_join;
tn_status cuda_index_put(const tn_call *call, const cuda_index_job *j, const cuda_index_join *join);

/* Byte offsets of positions that several tensors of one shape give together, packed in scratch memory:
 * the k-th indexes dimension first + k of `reached`. */
tn_status cuda_index_offsets(const tn_call *call, const tn_view *reached, tn_views indices,
                             int64_t first, void **ret_offsets);

#endif
