/* compare.c: what the ranks are about to do, compared before it is done. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "world_priv.h"

static const char *const kinds[TN_EXCHANGE_KINDS] = {
    "barrier",        "broadcast",  "all_reduce", "reduce", "all_gather",
    "reduce_scatter", "all_to_all", "send",       "recv",
};
static const char *const ops[TN_EXCHANGE_OPS] = {"sum", "product", "min", "max",
                                                 "and", "or",      "xor"};

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

static uint64_t part_of(int32_t from, int32_t to, int64_t count) {
    uint64_t pair = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
    return mixed(mixed(pair + 1) + (uint64_t)count);
}

/* What this rank gives, less what it takes. */
static uint64_t parts_of(const tn_world *w, const tn_exchange *x) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < w->size; i++)
        sum += part_of(w->rank, i, x->in_counts[i]) - part_of(i, w->rank, x->out_counts[i]);
    return sum;
}

tni_fingerprint tni_fingerprint_of(const tn_world *world, const tn_exchange *x, bool there) {
    /* Ranks give and take different numbers of elements in an exchange of lists. */
    bool same_count = x->kind != TN_EXCHANGE_ALL_TO_ALL;
    return (tni_fingerprint){.sequence = world->sequence,
                             .count = same_count ? x->count : 0,
                             .group = world->number,
                             .kind = x->kind,
                             .op = x->op,
                             .dtype = x->element,
                             .peer = x->peer,
                             .there = there,
                             .parts = same_count ? 0 : parts_of(world, x)};
}

static bool reduces(uint32_t kind) {
    return kind == TN_EXCHANGE_ALL_REDUCE || kind == TN_EXCHANGE_REDUCE ||
           kind == TN_EXCHANGE_REDUCE_SCATTER;
}

void tni_fingerprint_text(const tni_fingerprint *f, char *dst, size_t size) {
    const char *kind = f->kind < TN_EXCHANGE_KINDS ? kinds[f->kind] : "something unknown";
    const char *dtype = tn_dtype_name(f->dtype);
    char op[32] = "", root[32] = "", many[32] = "";
    int64_t count = f->count;
    int64_t bytes = tn_dtype_size(f->dtype);
    if (!reduces(f->kind) && bytes > 0) count /= bytes; /* what is moved is counted in bytes */
    if (f->kind == TN_EXCHANGE_SEND || f->kind == TN_EXCHANGE_RECV) {
        char who[24] = "any rank";
        if (f->peer != TN_EXCHANGE_ANY) snprintf(who, sizeof who, "rank %" PRId32, f->peer);
        snprintf(dst, size, "%s(%" PRId64 " x %s) %s %s of group %" PRIu32, kind, count,
                 dtype ? dtype : "?", f->kind == TN_EXCHANGE_SEND ? "to" : "from", who, f->group);
        return;
    }
    if (reduces(f->kind) && f->op < TN_EXCHANGE_OPS) snprintf(op, sizeof op, ", %s", ops[f->op]);
    if (f->kind == TN_EXCHANGE_BROADCAST || f->kind == TN_EXCHANGE_REDUCE)
        snprintf(root, sizeof root, ", root %" PRId32, f->peer);
    if (f->kind != TN_EXCHANGE_ALL_TO_ALL) snprintf(many, sizeof many, "%" PRId64 " x ", count);
    snprintf(dst, size, "%s(%s%s%s%s%s) as operation %" PRIu64 " of group %" PRIu32, kind, many,
             dtype ? dtype : "?", op, root, f->there ? ", on the device" : "", f->sequence,
             f->group);
}

/* "[1, 0, 3]", elements by rank. */
static void list_counts(const int64_t *counts, int32_t n, int64_t bytes, char *dst, size_t size) {
    enum { SHOWN = 8 };
    size_t used = 0;
    for (int32_t i = 0; i < n && i < SHOWN && used < size; i++)
        used += (size_t)snprintf(dst + used, size - used, "%s%" PRId64, i ? ", " : "[",
                                 counts[i] / bytes);
    if (used < size) snprintf(dst + used, size - used, "%s", n > SHOWN ? ", ...]" : "]");
}

static bool parts_agree(const tni_fingerprint *all, int32_t n, const tn_exchange *mine, char *why) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += all[i].parts;
    if (sum == 0) return true;
    char what[160], gives[96], takes[96];
    int64_t moved = tn_dtype_size(mine->dtype);
    int64_t bytes = moved > 0 ? tn_dtype_size(mine->element) / moved : 1;
    if (bytes < 1) bytes = 1; /* what is moved is counted in bytes */
    tni_fingerprint_text(&all[0], what, sizeof what);
    list_counts(mine->in_counts, n, bytes, gives, sizeof gives);
    list_counts(mine->out_counts, n, bytes, takes, sizeof takes);
    snprintf(
        why, TN_ENGINE_WHY,
        "the ranks of the group do not take as many elements as they are given in %s: by rank, "
        "this one gives %s and takes %s",
        what, gives, takes);
    return false;
}

bool tni_fingerprints_agree(const tni_fingerprint *all, int32_t n, const tn_exchange *mine,
                            char *why) {
    for (int32_t i = 1; i < n; i++) {
        if (memcmp(&all[0], &all[i], offsetof(tni_fingerprint, parts)) == 0) continue;
        char first[160], other[160];
        tni_fingerprint_text(&all[0], first, sizeof first);
        tni_fingerprint_text(&all[i], other, sizeof other);
        snprintf(why, TN_ENGINE_WHY,
                 "the ranks of the group called different operations: rank 0 %s, rank %" PRId32
                 " %s",
                 first, i, other);
        return false;
    }
    return parts_agree(all, n, mine, why);
}
