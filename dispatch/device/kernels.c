/* kernels.c: the kernels in force, by operator, device and dtype.
 *
 * Readers take no lock: a row or a cell is published by one atomic store and never freed. Writers hold the
 * registry's lock (door/txn.c). */
#include <stdlib.h>

#include "device_priv.h"

tn_row *tni_row_make(const tn_op *op, int32_t device_slot) {
    _Atomic(tn_row *) *at = &((tn_op *)(uintptr_t)op)->row[device_slot];
    tn_row *row = atomic_load_explicit(at, memory_order_acquire), *none = NULL;
    if (row) return row;
    row = calloc(1, sizeof *row);
    if (!row || atomic_compare_exchange_strong(at, &none, row)) return row;
    free(row); /* another thread was faster */
    return none;
}

const tn_cell *tni_kernel_find(const tn_op *op, int32_t device_slot, int32_t dtype) {
    if (dtype < 0 || dtype >= TN_DTYPE_SLOTS) return NULL;
    if (TN_UNLIKELY(device_slot == TN_META_SLOT)) return tni_meta_cell(op);
    if (tni_device_ready(device_slot) != TN_OK) return NULL;
    const tn_row *row = atomic_load_explicit(&op->row[device_slot], memory_order_acquire);
    if (!row) return NULL;
    const tn_cell *c = atomic_load_explicit(&row->cell[dtype], memory_order_acquire);
    return c ? c : atomic_load_explicit(&row->any, memory_order_acquire);
}

/* ---- Withdrawn cells --------------------------------------------------------------------------*/

/* Note [Withdrawn cells]
 * A reader may stand on a withdrawn cell at any later time, so it is never freed nor changed but for
 * its links. A plugin that is loaded again registers the same kernels: it gets the same cells, and
 * so loading and retiring a plugin over and over takes no memory. */
void tni_cell_put_idle(tni_plugin *plugin, tn_cell *cell) {
    cell->idle = plugin->idle;
    plugin->idle = cell;
}

tn_cell *tni_cell_take_idle(tni_plugin *plugin, const tn_cell *like) {
    for (tn_cell **at = &plugin->idle; *at; at = &(*at)->idle) {
        tn_cell *c = *at;
        if (c->fn != like->fn || c->ctx != like->ctx || c->op != like->op ||
            c->device != like->device || c->dtype != like->dtype || c->priority != like->priority ||
            c->flags != like->flags)
            continue;
        *at = c->idle;
        return c;
    }
    return NULL;
}

/* ---- Lists of candidates ----------------------------------------------------------------------*/

/* Where a published cell points to its successor: all of it that changes later. */
static _Atomic(const tn_cell *) *link_of(const tn_cell *cell) {
    return &((tn_cell *)(uintptr_t)cell)->next;
}

/* Puts a cell into its list: falling priority, then the plugin's name. */
static void insert_cell(_Atomic(const tn_cell *) *head, tn_cell *cell) {
    const tn_cell *at = atomic_load_explicit(head, memory_order_relaxed);
    while (at && ((at->flags & TNI_CELL_PREFERRED) || at->priority > cell->priority ||
                  (at->priority == cell->priority && at->plugin && cell->plugin &&
                   strcmp(at->plugin->name, cell->plugin->name) <= 0))) {
        head = link_of(at);
        at = tni_cell_next(at);
    }
    atomic_store_explicit(&cell->next, at, memory_order_relaxed);
    atomic_store_explicit(head, cell, memory_order_release);
}

void tni_cell_publish(tn_cell *c) {
    _Atomic(tn_row *) *at = &((tn_op *)(uintptr_t)c->op)->row[c->device];
    tn_row *row = atomic_load_explicit(at, memory_order_relaxed);
    insert_cell(c->dtype == TN_DTYPE_ANY ? &row->any : &row->cell[c->dtype], c);
}

static void withdraw_from(_Atomic(const tn_cell *) *head, tni_plugin *plugin) {
    const tn_cell *at = atomic_load_explicit(head, memory_order_relaxed);
    for (; at; at = tni_cell_next(at)) {
        if (at->plugin != plugin) {
            head = link_of(at);
        } else {
            atomic_store_explicit(head, tni_cell_next(at), memory_order_release);
            tni_cell_put_idle(plugin, (tn_cell *)(uintptr_t)at);
        }
    }
}

void tni_cells_withdraw(tn_op *op, tni_plugin *plugin) {
    for (int d = 0; d < TN_DEVICE_SLOTS; d++) {
        tn_row *row = atomic_load_explicit(&op->row[d], memory_order_relaxed);
        for (int k = 0; row && k < TN_DTYPE_SLOTS; k++) withdraw_from(&row->cell[k], plugin);
        if (row) withdraw_from(&row->any, plugin);
    }
}

/* ---- Preferences ------------------------------------------------------------------------------*/

/* A cell like this one with other flags; NULL: out of memory. */
static tn_cell *copy_of(const tn_cell *cell, uint32_t flags, tn_status *ret_status) {
    tn_cell like = {.fn = cell->fn,
                    .ctx = cell->ctx,
                    .plugin = cell->plugin,
                    .priority = cell->priority,
                    .flags = flags,
                    .op = cell->op,
                    .device = cell->device,
                    .dtype = cell->dtype};
    tn_cell *copy = tni_cell_take_idle((tni_plugin *)(uintptr_t)cell->plugin, &like);
    if (!copy) {
        copy = malloc(sizeof *copy);
        if (copy) *copy = like;
    }
    if (!copy) *ret_status = tn_fail(TN_E_MEMORY, -1, "out of memory");
    return copy;
}

/* Moves the plugin's last cell behind the first `skip` to the front, as a copy: a reader may be on the
 * old one. False when there is none. */
static bool prefer_one(_Atomic(const tn_cell *) *head, const char *plugin, int32_t skip,
                       tn_status *ret_status) {
    _Atomic(const tn_cell *) *link = head, *found = NULL;
    const tn_cell *at = atomic_load_explicit(head, memory_order_relaxed), *old = NULL;
    for (; at; link = link_of(at), at = tni_cell_next(at)) {
        if (skip-- > 0 || strcmp(at->plugin->name, plugin) != 0) continue;
        found = link;
        old = at;
    }
    if (!found) return false;
    tn_cell *copy = copy_of(old, old->flags | TNI_CELL_PREFERRED, ret_status);
    if (!copy) return false;
    tni_cell_put_idle((tni_plugin *)(uintptr_t)old->plugin, (tn_cell *)(uintptr_t)old);
    atomic_store_explicit(found, tni_cell_next(old), memory_order_release);
    atomic_store_explicit(&copy->next, atomic_load_explicit(head, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(head, copy, memory_order_release);
    return true;
}

/* Puts preferred cells back to where their priority says, as copies; returns how many there were. */
static int32_t forget_in(_Atomic(const tn_cell *) *head, tn_status *ret_status) {
    int32_t n = 0;
    for (const tn_cell *at = atomic_load_explicit(head, memory_order_relaxed);
         at && (at->flags & TNI_CELL_PREFERRED); n++) {
        tn_cell *copy = copy_of(at, at->flags & ~TNI_CELL_PREFERRED, ret_status);
        if (!copy) return n;
        tni_cell_put_idle((tni_plugin *)(uintptr_t)at->plugin, (tn_cell *)(uintptr_t)at);
        atomic_store_explicit(head, tni_cell_next(at), memory_order_release);
        insert_cell(head, copy);
        at = atomic_load_explicit(head, memory_order_relaxed);
    }
    return n;
}

static int32_t prefer_in(_Atomic(const tn_cell *) *head, const char *plugin,
                         tn_status *ret_status) {
    int32_t n = 0;
    if (!plugin) return forget_in(head, ret_status);
    while (prefer_one(head, plugin, n, ret_status)) n++;
    return n;
}

int32_t tni_cells_prefer(tn_op *op, const char *plugin, int32_t device, tn_status *ret_status) {
    int32_t n = 0;
    for (int d = 0; d < TN_DEVICE_SLOTS; d++) {
        tn_row *row = atomic_load_explicit(&op->row[d], memory_order_relaxed);
        if (!row || (device >= 0 && d != device)) continue;
        for (int k = 0; k < TN_DTYPE_SLOTS; k++) n += prefer_in(&row->cell[k], plugin, ret_status);
        n += prefer_in(&row->any, plugin, ret_status);
    }
    return n;
}
