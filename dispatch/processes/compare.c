/* compare.c: what the ranks are about to do, compared before it is done. */
#include <inttypes.h>
#include <stdio.h>

#include "world_priv.h"

static const char *const kinds[TN_EXCHANGE_KINDS] = {
    "barrier",        "broadcast",  "all_reduce", "reduce", "all_gather",
    "reduce_scatter", "all_to_all", "send",       "recv",
};
static const char *const ops[TN_EXCHANGE_OPS] = {"sum", "product", "min", "max",
                                                 "and", "or",      "xor"};

tni_fingerprint tni_fingerprint_of(const tn_world *world, const tn_exchange *x) {
    /* Ranks give and take different numbers of elements in an exchange of lists. */
    bool same_count = x->kind != TN_EXCHANGE_ALL_TO_ALL;
    return (tni_fingerprint){.sequence = world->sequence,
                             .count = same_count ? x->count : 0,
                             .group = world->number,
                             .kind = x->kind,
                             .op = x->op,
                             .dtype = x->element,
                             .peer = x->peer};
}

static bool reduces(uint32_t kind) {
    return kind == TN_EXCHANGE_ALL_REDUCE || kind == TN_EXCHANGE_REDUCE ||
           kind == TN_EXCHANGE_REDUCE_SCATTER;
}

void tni_fingerprint_text(const tni_fingerprint *f, char *dst, size_t size) {
    const char *kind = f->kind < TN_EXCHANGE_KINDS ? kinds[f->kind] : "something unknown";
    const char *dtype = tn_dtype_name(f->dtype);
    char op[32] = "", root[32] = "";
    int64_t count = f->count;
    int64_t bytes = tn_dtype_size(f->dtype);
    if (!reduces(f->kind) && bytes > 0) count /= bytes; /* what is moved is counted in bytes */
    if (f->kind == TN_EXCHANGE_SEND || f->kind == TN_EXCHANGE_RECV) {
        snprintf(dst, size, "%s(%" PRId64 " x %s) %s rank %" PRId32 " of group %" PRIu32, kind,
                 count, dtype ? dtype : "?", f->kind == TN_EXCHANGE_SEND ? "to" : "from", f->peer,
                 f->group);
        return;
    }
    if (reduces(f->kind) && f->op < TN_EXCHANGE_OPS) snprintf(op, sizeof op, ", %s", ops[f->op]);
    if (f->kind == TN_EXCHANGE_BROADCAST || f->kind == TN_EXCHANGE_REDUCE)
        snprintf(root, sizeof root, ", root %" PRId32, f->peer);
    snprintf(dst, size, "%s(%" PRId64 " x %s%s%s) as operation %" PRIu64 " of group %" PRIu32, kind,
             count, dtype ? dtype : "?", op, root, f->sequence, f->group);
}

bool tni_fingerprints_agree(const tni_fingerprint *all, int32_t n, char *why) {
    for (int32_t i = 1; i < n; i++) {
        if (memcmp(&all[0], &all[i], sizeof all[0]) == 0) continue;
        char first[160], other[160];
        tni_fingerprint_text(&all[0], first, sizeof first);
        tni_fingerprint_text(&all[i], other, sizeof other);
        snprintf(why, TN_ENGINE_WHY,
                 "the ranks of the group called different operations: rank 0 %s, rank %" PRId32
                 " %s",
                 first, i, other);
        return false;
    }
    return true;
}
