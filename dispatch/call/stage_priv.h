/* stage_priv.h: host copies of device tensors, for work that a device has no kernel for.
 *
 *     tni_stage s = {0};
 *     tni_stage_add(&s, t) for every tensor;  tni_stage_load(&s);
 *     compute on tni_stage_of(&s, t);  tni_stage_store(&s, t) for what was written;
 *     tni_stage_free(&s);
 *
 * Tensors that share a storage share its copy, so aliasing survives. Only the part of a storage that
 * its tensors reach is copied; memory that the host can read is not copied at all. */
#ifndef TENON_STAGE_PRIV_H
#define TENON_STAGE_PRIV_H

#include "tensor_priv.h"

typedef struct tni_stage_block {
    tn_storage *far;
    uint64_t lo, hi; /* bytes of `far` */
    tn_storage *near;
} tni_stage_block;
typedef struct tni_stage_pair {
    tn_tensor *far, *near; /* far is borrowed */
    int block;
} tni_stage_pair;
typedef struct tni_stage {
    tni_stage_block *blocks;
    tni_stage_pair *pairs;
    int nblocks, npairs, room;
} tni_stage;

/* NULL, numbers and tensors of the CPU need no copy and are passed over. */
tn_status tni_stage_add(tni_stage *s, tn_tensor *t);
/* A stand-in of the caller's making for t; `near` is taken over, also when it fails. */
tn_status tni_stage_put(tni_stage *s, tn_tensor *t, tn_tensor *near);
tn_status tni_stage_load(tni_stage *s);
/* The stand-in of t (borrowed), or t itself where there is none. */
tn_tensor *tni_stage_of(const tni_stage *s, tn_tensor *t);
/* The tensor that `near` stands for (borrowed), or NULL. */
tn_tensor *tni_stage_origin(const tni_stage *s, const tn_tensor *near);
tn_status tni_stage_store(const tni_stage *s, tn_tensor *t);
void tni_stage_free(tni_stage *s);

#endif
