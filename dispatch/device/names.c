/* names.c: operators by name and version.
 *
 * A name is "gelu" or "acme::gelu", and may end in a version, "acme::gelu@1"; without one it means the
 * newest that is there. Versions of a name are a chain, the newest first. Readers take no lock: places
 * and links are published by one atomic store, and an operator is never freed. Writers hold the
 * registry's lock. */
#include <stdio.h>
#include <stdlib.h>

#include "device_priv.h"
#include "os_priv.h"

enum { HASH_SIZE = 8192, MAX_ADDED = 4096 };
static _Atomic(tn_op *) by_name[HASH_SIZE]; /* the newest version */
static int32_t added_count;                 /* places that operators of plugins take */

/* ---- Names -------------------------------------------------------------------------------------*/

static size_t base_length(const char *name) { return strcspn(name, "@"); }

static bool same_base(const char *a, const char *b) {
    size_t n = base_length(a);
    return base_length(b) == n && memcmp(a, b, n) == 0;
}

/* 0: the name has none; -1: what stands there is no version. */
static int32_t version_of(const char *name) {
    const char *at = name + base_length(name);
    if (!*at) return 0;
    size_t digits = strspn(at + 1, "0123456789");
    if (digits == 0 || digits > 4 || at[1 + digits]) return -1;
    int32_t version = (int32_t)strtol(at + 1, NULL, 10);
    return version > 0 ? version : -1;
}

bool tni_name_means(const char *name, const tn_op *op) {
    int32_t version = version_of(name);
    return same_base(name, op->info.name) && (version == 0 || version == op->version);
}

void tni_name_write(const tn_op *op, char *name) {
    int n = (int)base_length(op->info.name);
    snprintf(name, TNI_NAME_BYTES, "%.*s@%d", n, op->info.name, (int)op->version);
}

/* ---- The table ---------------------------------------------------------------------------------*/

static _Atomic(tn_op *) *place_of(const char *name) {
    uint32_t h = 2166136261u;
    for (size_t i = 0, n = base_length(name); i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    for (;; h++) {
        _Atomic(tn_op *) *place = &by_name[h % HASH_SIZE];
        const tn_op *op = atomic_load_explicit(place, memory_order_acquire);
        if (!op || same_base(op->info.name, name)) return place;
    }
}

static tn_op *next_of(const tn_op *op) {
    return atomic_load_explicit((_Atomic(tn_op *) *)(uintptr_t)&op->older, memory_order_acquire);
}

/* Puts the operator into its name's chain; one of the same version goes. */
static void insert(tn_op *op) {
    _Atomic(tn_op *) *link = place_of(op->info.name);
    tn_op *at = atomic_load_explicit(link, memory_order_relaxed);
    added_count += !at && (op->flags & TNI_OP_ADDED);
    while (at && at->version > op->version) {
        link = &at->older;
        at = next_of(at);
    }
    if (at == op) return;
    tn_op *rest = at && at->version == op->version ? next_of(at) : at;
    atomic_store_explicit(&op->older, rest, memory_order_release);
    atomic_store_explicit(link, op, memory_order_release);
}

static void insert_table(void) {
    for (int i = 0; i < tni_op_count; i++) insert(tni_ops[i]);
}

static void fill(void) {
    static tni_os_once once = TNI_OS_ONCE_INIT;
    tni_os_call_once(&once, insert_table);
}

void tni_name_publish(tn_op *op) {
    fill();
    insert(op);
}

bool tni_name_has_room(int32_t waiting) { return added_count + waiting < MAX_ADDED; }

tn_op *tni_name_older(const tn_op *op) {
    tn_op *older = next_of(op);
    while (older && tni_op_is_retired(older)) older = next_of(older);
    return older;
}

tn_op *tni_op_find(const char *name) {
    fill();
    tn_op *op = atomic_load_explicit(place_of(name), memory_order_acquire);
    while (op && (tni_op_is_retired(op) || !tni_name_means(name, op))) op = next_of(op);
    return op;
}
