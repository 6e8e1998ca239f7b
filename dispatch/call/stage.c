/* stage.c: host copies of device tensors (stage_priv.h). */
#include <stdlib.h>

#include "catch_priv.h"
#include "move_priv.h"
#include "stage_priv.h"

/* Where a tensor's elements lie in its storage, in bytes; left alone for an empty tensor. */
static tn_status reach_bytes(const tn_tensor *t, uint64_t *ret_lo, uint64_t *ret_hi) {
    int64_t lo, hi, size = tn_view_itemsize(&t->v);
    uint64_t at = tni_offset_bytes(t);
    if (t->v.numel == 0) return TN_OK;
    if (!tni_reach(t->v.ndim, t->v.shape, t->v.strides, &lo, &hi))
        return tn_fail(TN_E_INTERNAL, -1, "a tensor reaches out of its storage");
    *ret_lo = at + (uint64_t)(lo * size);
    *ret_hi = at + (uint64_t)(hi * size);
    return TN_OK;
}

static tn_status grow(tni_stage *s) {
    int room = s->room ? 2 * s->room : 8;
    tni_stage_block *blocks = realloc(s->blocks, sizeof *blocks * (size_t)room);
    if (blocks) s->blocks = blocks;
    tni_stage_pair *pairs = realloc(s->pairs, sizeof *pairs * (size_t)room);
    if (pairs) s->pairs = pairs;
    if (!blocks || !pairs) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    s->room = room;
    return TN_OK;
}

static int find_block(const tni_stage *s, const tn_storage *far) {
    int i = 0;
    while (i < s->nblocks && s->blocks[i].far != far) i++;
    return i;
}

tn_status tni_stage_add(tni_stage *s, tn_tensor *t) {
    uint64_t lo = UINT64_MAX, hi = 0;
    if (!t || !t->storage || tn_view_device(&t->v) == 0) return TN_OK;
    for (int i = 0; i < s->npairs; i++)
        if (s->pairs[i].far == t) return TN_OK;
    if (s->npairs == s->room) TN_TRY(grow(s));
    TN_TRY(reach_bytes(t, &lo, &hi));
    lo &= ~UINT64_C(63); /* elements keep their alignment in the copy */
    int b = find_block(s, t->storage);
    if (b == s->nblocks) {
        s->blocks[s->nblocks++] = (tni_stage_block){t->storage, lo, hi, NULL};
    } else {
        tni_stage_block *k = &s->blocks[b];
        if (lo < k->lo) k->lo = lo;
        if (hi > k->hi) k->hi = hi;
    }
    s->pairs[s->npairs++] = (tni_stage_pair){t, NULL, b};
    return TN_OK;
}

tn_status tni_stage_put(tni_stage *s, tn_tensor *t, tn_tensor *near) {
    tn_status st = s->npairs == s->room ? grow(s) : TN_OK;
    if (st != TN_OK) {
        tn_tensor_unref(&near);
        return st;
    }
    s->pairs[s->npairs++] = (tni_stage_pair){t, near, -1};
    return TN_OK;
}

static tn_status load_block(tni_stage_block *b) {
    const tn_device cpu = {0, 0};
    const tn_device_desc *dev = &tni_device_at(b->far->device.slot)->desc;
    uint64_t bytes = b->hi > b->lo ? b->hi - b->lo : 0;
    tn_storage *spare = NULL;
    if (dev->flags & TN_DEV_HOST) {
        TN_TRY(tni_forbid_native(b->far->device, "computing on the CPU", NULL));
        TN_TRY(tni_waited(b->far->device, true,
                          tni_caught(dev->sync(dev->ctx, b->far->device.index))));
        if (tni_tls.watcher) TN_TRY(tni_tls.watcher->synced(b->far));
        char *start = bytes ? (char *)b->far->data + b->lo : NULL;
        return tni_storage_foreign(cpu, start, bytes, 0, NULL, NULL, &b->near);
    }
    tn_status st = tni_storage_new(cpu, bytes, &spare, &b->near);
    free(spare);
    if (st != TN_OK) return st;
    return tni_move_bytes(&(tni_move){b->near, b->far, 0, b->lo, bytes});
}

tn_status tni_stage_load(tni_stage *s) {
    const tn_device cpu = {0, 0};
    for (int i = 0; i < s->nblocks; i++) TN_TRY(load_block(&s->blocks[i]));
    for (int i = 0; i < s->npairs; i++) {
        tni_stage_pair *p = &s->pairs[i];
        const tni_stage_block *b = &s->blocks[p->block];
        const tn_view *v = &p->far->v;
        TN_TRY(tni_header_new(tn_view_dtype(v), cpu, v->ndim, v->shape, v->strides, &p->near));
        tni_attach(p->near, tni_storage_ref(b->near),
                   v->numel ? tni_offset_bytes(p->far) - b->lo : 0);
        p->near->v.word |= v->word & TN_W_READONLY;
    }
    return TN_OK;
}

tn_tensor *tni_stage_of(const tni_stage *s, tn_tensor *t) {
    for (int i = 0; i < s->npairs; i++)
        if (s->pairs[i].far == t) return s->pairs[i].near;
    return t;
}

tn_tensor *tni_stage_origin(const tni_stage *s, const tn_tensor *near) {
    for (int i = 0; i < s->npairs; i++)
        if (s->pairs[i].near == near) return s->pairs[i].far;
    return NULL;
}

tn_status tni_stage_store(const tni_stage *s, tn_tensor *t) {
    uint64_t lo = 0, hi = 0;
    int i = 0;
    while (i < s->npairs && s->pairs[i].far != t) i++;
    if (i == s->npairs) return TN_OK;
    const tni_stage_block *b = &s->blocks[s->pairs[i].block];
    const tn_device_desc *dev = &tni_device_at(b->far->device.slot)->desc;
    TN_TRY(reach_bytes(t, &lo, &hi));
    if ((dev->flags & TN_DEV_HOST) || hi == lo) return TN_OK;
    return tni_move_bytes(&(tni_move){b->far, b->near, lo, lo - b->lo, hi - lo});
}

void tni_stage_free(tni_stage *s) {
    tn_storage *spare = NULL;
    for (int i = 0; i < s->npairs; i++) tn_tensor_unref(&s->pairs[i].near);
    for (int i = 0; i < s->nblocks; i++)
        if (s->blocks[i].near) tni_storage_unref(s->blocks[i].near, &spare);
    free(spare);
    free(s->blocks);
    free(s->pairs);
}
