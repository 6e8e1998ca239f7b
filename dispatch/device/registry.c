/* registry.c: devices and kernels in force, and the transactions that change them.
 *
 * Readers take no lock: a row or cell is published by one atomic store and never freed. Writers hold
 * one lock from begin to commit. A transaction collects its kernels and publishes them all at commit. */
#include <stdlib.h>

#include "added_priv.h"
#include "check_priv.h"
#include "codegen_priv.h"
#include "dispatch_priv.h"
#include "launch_priv.h"
#include "memory_priv.h"
#include "os_priv.h"
#include "plan_priv.h"

static const tni_device cpu_unloaded = {
    .desc = {.name = "cpu", .dl_device = 1, .count = 1, .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST},
    .name = "cpu",
};
_Atomic(const tni_device *) tni_devices[TN_DEVICE_SLOTS] = {&cpu_unloaded};

typedef struct pending {
    tn_cell *cell; /* its dtype TN_DTYPE_ANY: the row's `any` cell */
    bool again;    /* the cell was in use before */
    struct pending *next;
} pending;

struct tn_txn {
    tni_plugin *plugin;
    pending *kernels;
    tni_added *ops; /* the latest first */
    int32_t count;
    tni_device *devices[TN_DEVICE_SLOTS]; /* by slot: what this transaction registered */
    tni_device *awaited[TN_DEVICE_SLOTS]; /* by slot: names that it has kernels for */
    tn_layer layers[4];
    int nlayers;
};

static tni_os_mutex registry_lock = TNI_OS_MUTEX_INIT;

/* ---- Operators ---------------------------------------------------------------------------------*/

static _Atomic(tni_added *) added; /* every operator that plugins have ever added */

tn_op *tni_txn_find_op(const tn_txn *txn, const char *name) {
    tn_op *newest = NULL;
    for (tni_added *o = txn->ops; o; o = o->queued)
        if (tni_name_means(name, &o->op) && (!newest || o->op.version > newest->version))
            newest = &o->op;
    return newest ? newest : tni_op_find(name);
}

static void publish_op(tni_added *o) {
    if (!o->published) {
        o->next = atomic_load_explicit(&added, memory_order_relaxed);
        atomic_store_explicit(&added, o, memory_order_release);
    }
    o->published = true;
    atomic_store_explicit(&o->retired, false, memory_order_release);
    tni_name_publish(&o->op);
}

const char *tn_op_added_at(int32_t i) {
    for (tni_added *o = atomic_load_explicit(&added, memory_order_acquire); o; o = o->next)
        if (!tni_op_is_retired(&o->op) && i-- == 0) return o->op.info.name;
    return NULL;
}

/* ---- Transactions ------------------------------------------------------------------------------*/

tn_status tni_txn_begin(tni_plugin *plugin, tn_txn **ret_txn) {
    tn_txn *txn = calloc(1, sizeof *txn);
    if (!txn) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    txn->plugin = plugin;
    tni_os_lock(&registry_lock);
    tni_tls.txn = txn;
    *ret_txn = txn;
    return TN_OK;
}

/* A registration counts only on the thread that runs activate, and with the txn of that activation. */
static tn_status check_open(const tn_txn *txn, const char *function, const void *what) {
    if (!txn || txn != tni_tls.txn)
        return tn_fail(TN_E_PLUGIN, 0,
                       "%s: it is for activate, on the thread that runs it, with the txn given "
                       "there",
                       function);
    return what ? TN_OK : tn_fail(TN_E_PLUGIN, 1, "%s: an argument is NULL", function);
}

/* The tables of a retired device are the same again: the same code, loaded once more. */
static bool comes_back(const tni_device *retired, const tni_device *dev) {
    const tni_device *old = retired->origin;
    tn_device_desc desc = old->desc;
    desc.name = dev->desc.name; /* the same text, elsewhere */
    return memcmp(&desc, &dev->desc, sizeof desc) == 0 &&
           memcmp(&old->ifaces.copies, &dev->ifaces.copies, sizeof old->ifaces.copies) == 0;
}

static const tni_device *device_in(const tn_txn *txn, int32_t slot) {
    if (txn->devices[slot]) return txn->devices[slot];
    return txn->awaited[slot] ? txn->awaited[slot] : tni_device_at(slot);
}

/* The slot that serves a name, else one that knew or awaits it; -1: none. */
static int32_t slot_of_name(const tn_txn *txn, const char *name) {
    int32_t found = -1;
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) {
        const tni_device *dev = device_in(txn, i);
        if (!dev || strcmp(dev->name, name) != 0) continue;
        found = i;
        if (dev->desc.alloc) break;
    }
    return found;
}

static int32_t empty_slot(const tn_txn *txn) {
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++)
        if (!device_in(txn, i)) return i;
    return -1;
}

/* The slot for a device whose name nobody serves: that of its tensors from before it was retired,
 * which only the very same device gets back, else the one that awaits the name, else an empty one. */
static int32_t slot_for(const tn_txn *txn, const tni_device *fresh) {
    int32_t waits = -1;
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) {
        const tni_device *dev = device_in(txn, i);
        if (!dev || strcmp(dev->name, fresh->name) != 0) continue;
        if (dev->origin && comes_back(dev, fresh)) return i;
        if (!dev->origin) waits = i;
    }
    return waits >= 0 ? waits : empty_slot(txn);
}

static tn_status check_device_name(const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (!name || !name[0] || strlen(name) >= sizeof cpu_unloaded.name)
        return tn_fail(TN_E_PLUGIN, -1, "a device needs a name of at most 31 characters");
    if (name[strspn(name, letters)])
        return tn_fail(TN_E_PLUGIN, -1,
                       "a device's name is letters, digits, '_', '-' and '.': not '%s'", name);
    return TN_OK;
}

static tn_status check_desc(const tn_device_desc *d) {
    TN_TRY(check_device_name(d->name));
    if (!d->alloc || !d->free || !d->copy_in || !d->copy_out || !d->copy_within || !d->sync)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s' lacks one of the six required functions",
                       d->name);
    if (d->count < 0 || d->count > 255)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s' says it has %d devices", d->name,
                       (int)d->count);
    return TN_OK;
}

static tni_device *device_new(const tni_plugin *plugin, const tn_device_desc *d) {
    tni_device *dev = calloc(1, sizeof *dev);
    if (!dev) return NULL;
    memcpy(dev->name, d->name, strlen(d->name) + 1);
    dev->desc = *d;
    dev->desc.name = dev->name;
    dev->plugin = plugin;
    tni_ifaces_take(&dev->desc, &dev->ifaces);
    return dev;
}

static void device_free(tni_device *dev) {
    tni_memory_delete(dev->memory);
    tni_launches_delete(dev->launches);
    free(dev);
}

/* The CPU manages its memory, and its kernels are done when they return; others need more. */
static tn_status equip(tni_device *dev, int32_t slot) {
    if (slot == 0) {
        dev->direct_alloc = dev->desc.alloc;
        return TN_OK;
    }
    dev->memory = tni_memory_new(dev);
    dev->launches = tni_launches_new(dev->desc.count);
    return dev->memory && dev->launches ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
}

tn_status tni_register_device(tn_txn *txn, const tn_device_desc *desc, int32_t *ret_slot) {
    tn_device_desc d = {0};
    TN_TRY(check_open(txn, "register_device", ret_slot ? desc : NULL));
    memcpy(&d, desc, desc->struct_size < sizeof d ? desc->struct_size : sizeof d);
    TN_TRY(check_desc(&d));
    int32_t slot = slot_of_name(txn, d.name);
    if (slot >= 0 && device_in(txn, slot)->desc.alloc)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s' is served by another plugin already", d.name);
    tni_device *dev = device_new(txn->plugin, &d);
    if (!dev) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    slot = slot_for(txn, dev);
    if (slot < 0) {
        free(dev);
        return tn_fail(TN_E_PLUGIN, -1, "no device slot is left");
    }
    const tni_device *before = tni_device_at(slot);
    tn_status st = TN_OK;
    if (before && before->origin) {
        free(dev); /* it is back */
        dev = before->origin;
    } else if ((st = equip(dev, slot)) != TN_OK) {
        device_free(dev);
        return st;
    }
    txn->devices[slot] = dev;
    *ret_slot = slot;
    return TN_OK;
}

tn_status tni_register_dtype(tn_txn *txn, const tn_dtype_desc *desc, int32_t *ret_slot) {
    tn_dtype_desc d = {0};
    TN_TRY(check_open(txn, "register_dtype", ret_slot ? desc : NULL));
    /* A dtype without kernels does no harm, so it stays even after a rollback. */
    memcpy(&d, desc, desc->struct_size < sizeof d ? desc->struct_size : sizeof d);
    return tni_dtype_add(&d, txn->plugin->name, ret_slot);
}

/* Note [Withdrawn cells]
 * A reader may stand on a withdrawn cell at any later time, so it is never freed nor changed but for
 * its links. A plugin that is loaded again registers the same kernels: it gets the same cells, and
 * so loading and retiring a plugin over and over takes no memory. */
static void put_idle(tni_plugin *plugin, tn_cell *cell) {
    cell->idle = plugin->idle;
    plugin->idle = cell;
}

static tn_cell *take_idle(tni_plugin *plugin, const tn_cell *like) {
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

static tn_status check_name(const tn_txn *txn, const tni_added *o) {
    const char *name = o->op.info.name, *mine = txn->plugin->name;
    int32_t waiting = 0;
    char exact[TNI_NAME_BYTES];
    tni_name_write(&o->op, exact);
    const tn_op *have = tni_txn_find_op(txn, exact);
    for (const tni_added *other = txn->ops; other; other = other->queued) waiting++;
    if (have)
        return tn_fail(
            TN_E_PLUGIN, -1,
            "operator '%s' is there already, version %d of plugin '%s': plugin '%s' needs "
            "a name or a version of its own",
            name, (int)have->version, have->file, mine);
    if (!tni_name_has_room(waiting))
        return tn_fail(TN_E_PLUGIN, -1, "operator '%s': plugins have added too many operators",
                       name);
    return TN_OK;
}

/* An operator of a plugin that is loaded again is the one it was; see note [Withdrawn cells]. */
tn_status tni_register_op(tn_txn *txn, const tn_op_desc *desc) {
    tni_added *o, *before = atomic_load_explicit(&added, memory_order_relaxed);
    TN_TRY(check_open(txn, "register_op", desc));
    TN_TRY(tni_added_new(txn->plugin, desc, &o));
    tn_status st = check_name(txn, o);
    while (st == TN_OK && before && !(tni_op_is_retired(&before->op) && tni_added_same(before, o)))
        before = before->next;
    if (st != TN_OK || before) tni_added_free(o);
    if (st != TN_OK) return st;
    if (before) o = before;
    o->queued = txn->ops;
    txn->ops = o;
    return TN_OK;
}

tn_status tni_register_layer(tn_txn *txn, const tn_layer_desc *desc) {
    tn_layer_desc d = {0};
    TN_TRY(check_open(txn, "register_layer", desc));
    memcpy(&d, desc, desc->struct_size < sizeof d ? desc->struct_size : sizeof d);
    if (txn->nlayers == TN_COUNT(txn->layers))
        return tn_fail(TN_E_PLUGIN, -1, "a plugin has at most %d layers", TN_COUNT(txn->layers));
    if (d.name && tni_layer_find(d.name) >= 0)
        return tn_fail(TN_E_PLUGIN, -1, "there is a layer '%s' already", d.name);
    tn_layer *layer = &txn->layers[txn->nlayers++];
    *layer = (tn_layer){.name = d.name, .priority = d.priority, .ctx = d.ctx};
    memcpy(&layer->call, &d.call, sizeof layer->call); /* a tn_tensor * is a tn_view * */
    return TN_OK;
}

/* A row without a version is of the newest one that its argument struct fits, so that the kernels of a
 * plugin that was built for an earlier version find it. */
static tn_op *op_of_row(const tn_txn *txn, const tn_kernel_row *r) {
    tn_op *newest = tni_txn_find_op(txn, r->op);
    if (!newest || r->sig == 0 || newest->info.sig == r->sig) return newest;
    for (tni_added *o = txn->ops; o; o = o->queued)
        if (tni_name_means(r->op, &o->op) && o->op.info.sig == r->sig) return &o->op;
    tn_op *older = tni_op_find(r->op);
    while (older && (older->info.sig != r->sig || !tni_name_means(r->op, older)))
        older = tni_name_older(older);
    return older ? older : newest;
}

static tn_status add_kernel(tn_txn *txn, int32_t device, const tn_kernel_row *r) {
    if (!r->op || !r->fn)
        return tn_fail(TN_E_PLUGIN, -1, "a kernel row lacks its operator or function");
    tn_op *op = op_of_row(txn, r);
    bool own = op && (op->flags & TNI_OP_ADDED) && tni_added_of(op)->plugin == txn->plugin;
    if (own && op->info.kind == TN_OP_COMPOSITE)
        return tn_fail(TN_E_PLUGIN, -1, "operator '%s' is a composite and takes no kernels", r->op);
    if (!op || (op->info.sig != r->sig && !(own && r->sig == 0))) {
        tni_host_log(0, "%s: kernel of '%s' left out: %s", txn->plugin->name, r->op,
                     op ? "its signature differs" : "there is no such operator");
        return TN_OK; /* one row does not fit: the others still work */
    }
    if (r->dtype != TN_DTYPE_ANY && !tn_dtype_name(r->dtype))
        return tn_fail(TN_E_PLUGIN, -1, "kernel of '%s': there is no dtype %d", r->op,
                       (int)r->dtype);
    tn_cell cell = {.fn = r->fn,
                    .ctx = r->ctx,
                    .plugin = txn->plugin,
                    .priority = r->priority,
                    .flags = r->flags & ~TNI_CELL_PREFERRED,
                    .op = op,
                    .device = device,
                    .dtype = r->dtype};
    TN_TRY(tni_check_wrap(&cell));
    tn_cell *idle = take_idle(txn->plugin, &cell);
    pending *p = calloc(1, sizeof *p);
    tn_cell *c = idle ? idle : calloc(1, sizeof *c);
    if (!p || !c) {
        if (idle)
            put_idle(txn->plugin, idle);
        else
            free(c);
        free(p);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    if (!idle) *c = cell;
    *p = (pending){c, idle != NULL, txn->kernels};
    txn->kernels = p;
    txn->count++;
    return TN_OK;
}

/* More rows than any plugin has, and a row of a header much newer than this one. */
enum { MAX_ROWS = 1 << 16, MAX_ROW_SIZE = 1024 };

tn_status tni_register_kernels(tn_txn *txn, int32_t device_slot, const tn_kernel_row *rows,
                               uint32_t row_size, uint32_t n) {
    TN_TRY(check_open(txn, "register_kernels", n > 0 ? rows : (const void *)txn));
    if (device_slot < 0 || device_slot >= TN_DEVICE_SLOTS || !device_in(txn, device_slot))
        return tn_fail(TN_E_PLUGIN, -1, "register_kernels: there is no device in slot %d",
                       (int)device_slot);
    if (n > MAX_ROWS || row_size < offsetof(tn_kernel_row, flags) || row_size > MAX_ROW_SIZE)
        return tn_fail(TN_E_PLUGIN, -1,
                       "register_kernels: %u rows of %u bytes are not the array that it takes",
                       (unsigned)n, (unsigned)row_size);
    for (uint32_t i = 0; i < n; i++) {
        tn_kernel_row r = {0};
        memcpy(&r, (const char *)rows + (size_t)i * row_size,
               row_size < sizeof r ? row_size : sizeof r);
        TN_TRY(add_kernel(txn, device_slot, &r));
    }
    return TN_OK;
}

/* Makes an empty slot await a name. */
static tn_status await_name(tn_txn *txn, const char *name, int32_t slot) {
    tni_device *waits = calloc(1, sizeof *waits);
    if (!waits) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(waits->name, name, strlen(name) + 1);
    waits->desc.name = waits->name;
    txn->awaited[slot] = waits;
    return TN_OK;
}

tn_status tni_register_kernels_for(tn_txn *txn, const char *device, const tn_kernel_row *rows,
                                   uint32_t row_size, uint32_t n) {
    TN_TRY(check_open(txn, "register_kernels_for", device));
    TN_TRY(check_device_name(device));
    int32_t slot = slot_of_name(txn, device);
    if (slot < 0) {
        slot = empty_slot(txn);
        if (slot < 0) return tn_fail(TN_E_PLUGIN, -1, "no device slot is left");
        TN_TRY(await_name(txn, device, slot));
    }
    return tni_register_kernels(txn, slot, rows, row_size, n);
}

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

/* The row is there already: commit makes the rows first. */
static void publish(tn_cell *c) {
    _Atomic(tn_row *) *at = &((tn_op *)(uintptr_t)c->op)->row[c->device];
    tn_row *row = atomic_load_explicit(at, memory_order_relaxed);
    insert_cell(c->dtype == TN_DTYPE_ANY ? &row->any : &row->cell[c->dtype], c);
}

static void publish_device(const tni_device *dev, int32_t slot) {
    if (slot > 0) {
        tni_memory_set_active(dev, true);
        atomic_store(&tni_any_special, true);
    }
    atomic_store_explicit(&tni_devices[slot], dev, memory_order_release);
}

tn_row *tni_row_make(const tn_op *op, int32_t device_slot) {
    _Atomic(tn_row *) *at = &((tn_op *)(uintptr_t)op)->row[device_slot];
    tn_row *row = atomic_load_explicit(at, memory_order_acquire), *none = NULL;
    if (row) return row;
    row = calloc(1, sizeof *row);
    if (!row || atomic_compare_exchange_strong(at, &none, row)) return row;
    free(row); /* another thread was faster */
    return none;
}

static void end(tn_txn *txn, bool published) {
    while (txn->kernels) {
        pending *p = txn->kernels;
        txn->kernels = p->next;
        if (!published && p->again)
            put_idle(txn->plugin, p->cell);
        else if (!published)
            free(p->cell);
        free(p);
    }
    while (txn->ops) {
        tni_added *o = txn->ops;
        txn->ops = o->queued;
        if (published || o->published) continue;
        for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) free(o->op.row[i]);
        tni_added_free(o);
    }
    for (int32_t i = 0; i < TN_DEVICE_SLOTS && !published; i++)
        if (txn->devices[i] && !txn->devices[i]->retired) device_free(txn->devices[i]);
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++)
        if (!published || txn->devices[i]) free(txn->awaited[i]);
    tni_tls.txn = NULL;
    free(txn);
    tni_os_unlock(&registry_lock);
}

static tn_status link_ops(const tn_txn *txn) {
    for (tni_added *o = txn->ops; o; o = o->queued) TN_TRY(tni_added_link(o, txn));
    for (tni_added *o = txn->ops; o; o = o->queued) TN_TRY(tni_added_check_cycle(o));
    return TN_OK;
}

tn_status tni_txn_commit(tn_txn *txn) {
    /* What can fail comes first: formulas that name what is not there, and rows, of which an empty
     * one is harmless. */
    tn_status st = link_ops(txn);
    if (st != TN_OK) {
        tni_txn_rollback(txn);
        return st;
    }
    for (const pending *p = txn->kernels; p; p = p->next) {
        if (tni_row_make(p->cell->op, p->cell->device)) continue;
        tni_txn_rollback(txn);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    for (int i = 0, id; i < txn->nlayers; i++) {
        st = tni_layer_add(&txn->layers[i], txn->plugin, &id);
        if (st == TN_OK) continue;
        tni_layers_withdraw(txn->plugin);
        tni_txn_rollback(txn);
        return st;
    }
    /* Operators after their kernels, devices last: whoever sees one finds what belongs to it. */
    for (const pending *p = txn->kernels; p; p = p->next) publish(p->cell);
    for (tni_added *o = txn->ops; o; o = o->queued) publish_op(o);
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++)
        if (txn->devices[i])
            publish_device(txn->devices[i], i);
        else if (txn->awaited[i])
            atomic_store_explicit(&tni_devices[i], txn->awaited[i], memory_order_release);
    txn->plugin->kernels = txn->count;
    end(txn, true);
    return TN_OK;
}

void tni_txn_rollback(tn_txn *txn) { end(txn, false); }

static void withdraw_from(_Atomic(const tn_cell *) *head, tni_plugin *plugin) {
    const tn_cell *at = atomic_load_explicit(head, memory_order_relaxed);
    for (; at; at = tni_cell_next(at)) {
        if (at->plugin != plugin) {
            head = link_of(at);
        } else {
            atomic_store_explicit(head, tni_cell_next(at), memory_order_release);
            put_idle(plugin, (tn_cell *)(uintptr_t)at);
        }
    }
}

static void withdraw_op(tn_op *op, tni_plugin *plugin) {
    for (int d = 0; d < TN_DEVICE_SLOTS; d++) {
        tn_row *row = atomic_load_explicit(&op->row[d], memory_order_relaxed);
        for (int k = 0; row && k < TN_DTYPE_SLOTS; k++) withdraw_from(&row->cell[k], plugin);
        if (row) withdraw_from(&row->any, plugin);
    }
}

/* What stands in the place of a retired device: all but its allocator and its tables. */
static tn_status make_retired(tni_device *dev) {
    if (dev->retired) return TN_OK;
    tni_device *r = malloc(sizeof *r);
    if (!r) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *r = *dev;
    r->desc.name = r->name;
    r->desc.alloc = NULL;
    r->direct_alloc = NULL;
    memset(&r->ifaces, 0, sizeof r->ifaces);
    r->origin = dev;
    dev->retired = r;
    return TN_OK;
}

/* The device in a slot if this plugin serves it. */
static tni_device *served_by(const tni_plugin *plugin, int32_t slot) {
    const tni_device *dev = tni_device_at(slot);
    bool served = dev && dev->plugin == plugin && !dev->origin;
    return served ? (tni_device *)(uintptr_t)dev : NULL;
}

static tn_status retire_devices(const tni_plugin *plugin) {
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++)
        if (served_by(plugin, i)) TN_TRY(make_retired(served_by(plugin, i)));
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) {
        const tni_device *dev = served_by(plugin, i);
        if (!dev) continue;
        atomic_store_explicit(&tni_devices[i], dev->retired, memory_order_release);
        tni_codes_forget(dev);
        if (dev->memory) tni_memory_set_active(dev, false);
    }
    return TN_OK;
}

tn_status tni_registry_withdraw(tni_plugin *plugin) {
    tni_os_lock(&registry_lock);
    tn_status st = retire_devices(plugin);
    if (st != TN_OK) {
        tni_os_unlock(&registry_lock);
        return st;
    }
    tni_layers_withdraw(plugin);
    for (int i = 0; i < tni_op_count; i++) withdraw_op(tni_ops[i], plugin);
    for (tni_added *o = atomic_load_explicit(&added, memory_order_relaxed); o; o = o->next) {
        withdraw_op(&o->op, plugin);
        if (o->plugin == plugin) atomic_store_explicit(&o->retired, true, memory_order_release);
    }
    tni_os_unlock(&registry_lock);
    return TN_OK;
}

/* ---- Preferences -------------------------------------------------------------------------------*/

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
    tn_cell like = {.fn = old->fn,
                    .ctx = old->ctx,
                    .plugin = old->plugin,
                    .priority = old->priority,
                    .flags = old->flags | TNI_CELL_PREFERRED,
                    .op = old->op,
                    .device = old->device,
                    .dtype = old->dtype};
    tni_plugin *owner = (tni_plugin *)(uintptr_t)old->plugin;
    tn_cell *copy = take_idle(owner, &like);
    if (!copy) {
        copy = malloc(sizeof *copy);
        if (copy) *copy = like;
    }
    if (!copy) {
        *ret_status = tn_fail(TN_E_MEMORY, -1, "out of memory");
        return false;
    }
    put_idle(owner, (tn_cell *)(uintptr_t)old);
    atomic_store_explicit(found, tni_cell_next(old), memory_order_release);
    atomic_store_explicit(&copy->next, atomic_load_explicit(head, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(head, copy, memory_order_release);
    return true;
}

static int32_t prefer_in(_Atomic(const tn_cell *) *head, const char *plugin,
                         tn_status *ret_status) {
    int32_t n = 0;
    while (prefer_one(head, plugin, n, ret_status)) n++;
    return n;
}

static int32_t prefer_op(tn_op *op, const char *plugin, int32_t device, tn_status *ret_status) {
    int32_t n = 0;
    for (int d = 0; d < TN_DEVICE_SLOTS; d++) {
        tn_row *row = atomic_load_explicit(&op->row[d], memory_order_relaxed);
        if (!row || (device >= 0 && d != device)) continue;
        for (int k = 0; k < TN_DTYPE_SLOTS; k++) n += prefer_in(&row->cell[k], plugin, ret_status);
        n += prefer_in(&row->any, plugin, ret_status);
    }
    return n;
}

tn_status tn_plugin_prefer(const char *plugin, const char *name, int32_t device_slot) {
    tn_op *one = name ? tni_op_find(name) : NULL;
    tn_status st = TN_OK;
    int32_t n = 0;
    if (!plugin) return tn_fail(TN_E_VALUE, 0, "a plugin is preferred by its name");
    if (name && !one) return tn_fail(TN_E_VALUE, 1, "there is no operator '%s'", name);
    if (device_slot >= TN_DEVICE_SLOTS)
        return tn_fail(TN_E_DEVICE, 2, "there is no device slot %d", (int)device_slot);
    tni_os_lock(&registry_lock);
    if (one) n = prefer_op(one, plugin, device_slot, &st);
    for (int i = 0; i < tni_op_count && !one; i++)
        n += prefer_op(tni_ops[i], plugin, device_slot, &st);
    for (tni_added *o = atomic_load_explicit(&added, memory_order_relaxed); o && !one; o = o->next)
        n += prefer_op(&o->op, plugin, device_slot, &st);
    tni_os_unlock(&registry_lock);
    if (st != TN_OK || n > 0) return st;
    return tn_fail(TN_E_PLUGIN, -1, "plugin '%s' has no kernel %s%s%s%s", plugin,
                   name ? "of '" : "at all", name ? name : "", name ? "'" : "",
                   device_slot >= 0 ? " on that device" : "");
}

/* ---- Look-up -----------------------------------------------------------------------------------*/

tn_status tni_device_ready(int32_t slot) {
    const tni_device *dev = slot >= 0 && slot < TN_DEVICE_SLOTS ? tni_device_at(slot) : NULL;
    if (!dev) return tn_fail(TN_E_DEVICE, -1, "there is no device in slot %d", (int)slot);
    if (TN_LIKELY(dev->desc.alloc != NULL)) return TN_OK;
    if (!dev->origin) return tni_loader_load_for(TNI_OFFER_DEVICE, dev->name);
    return tn_fail(TN_E_DEVICE, -1,
                   "device '%s' was retired with its plugin '%s': what its tensors hold can be "
                   "copied away, and loading the plugin again brings the device back",
                   dev->name, dev->plugin->name);
}

const tn_cell *tni_kernel_find(const tn_op *op, int32_t device_slot, int32_t dtype) {
    if (dtype < 0 || dtype >= TN_DTYPE_SLOTS) return NULL;
    if (tni_device_ready(device_slot) != TN_OK) return NULL;
    const tn_row *row = atomic_load_explicit(&op->row[device_slot], memory_order_acquire);
    if (!row) return NULL;
    const tn_cell *c = atomic_load_explicit(&row->cell[dtype], memory_order_acquire);
    return c ? c : atomic_load_explicit(&row->any, memory_order_acquire);
}
