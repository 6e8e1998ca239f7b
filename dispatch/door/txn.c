/* txn.c: transactions, which change what is in force: devices, dtypes, kernels, operators, layers.
 *
 * One at a time: begin takes the registry's lock, commit and rollback drop it. A transaction collects its
 * kernels and publishes them all at commit. */
#include <stdlib.h>

#include "call_priv.h"
#include "check_priv.h"
#include "codegen_priv.h"
#include "layers_priv.h"
#include "memory_priv.h"
#include "os_priv.h"
#include "text_priv.h"
#include "txn_priv.h"

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
static TN_TLS tn_txn *current; /* of the activation that this thread runs */

/* ---- Operators --------------------------------------------------------------------------------*/

static _Atomic(tni_added *) added; /* every operator that plugins have ever added */

/* Finds an operator by name, also one that the transaction adds. */
static tn_op *find_op(const void *ctx, const char *name) {
    const tn_txn *txn = ctx;
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
    atomic_store_explicit(&o->op.retired, false, memory_order_release);
    tni_name_publish(&o->op);
}

const char *tn_op_added_at(int32_t i) {
    for (tni_added *o = atomic_load_explicit(&added, memory_order_acquire); o; o = o->next)
        if (!tni_op_is_retired(&o->op) && i-- == 0) return o->op.info.name;
    return NULL;
}

/* ---- Begin ------------------------------------------------------------------------------------*/

tn_status tni_txn_begin(tni_plugin *plugin, tn_txn **ret_txn) {
    tn_txn *txn = calloc(1, sizeof *txn);
    if (!txn) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    txn->plugin = plugin;
    tni_os_lock(&registry_lock);
    current = txn;
    *ret_txn = txn;
    return TN_OK;
}

/* A registration counts only on the thread that runs activate, and with the txn of that activation. */
static tn_status check_open(const tn_txn *txn, const char *function, const void *what) {
    if (!txn || txn != current)
        return tn_fail(TN_E_PLUGIN, 0,
                       "%s: it is for activate, on the thread that runs it, with the txn given "
                       "there",
                       function);
    return what ? TN_OK : tn_fail(TN_E_PLUGIN, 1, "%s: an argument is NULL", function);
}

/* ---- Devices ----------------------------------------------------------------------------------*/

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
    if (!name || !name[0] || strlen(name) >= sizeof((tni_device *)0)->name)
        return tn_fail(TN_E_PLUGIN, -1, "a device needs a name of at most 31 characters");
    if (name[strspn(name, TNI_NAME_LETTERS)])
        return tn_fail(TN_E_PLUGIN, -1,
                       "a device's name is letters, digits, '_', '-' and '.': not '%s'", name);
    return TN_OK;
}

static tn_status check_desc(const tn_device_desc *d) {
    const uint32_t host = TN_DEV_HOST | TN_DEV_ADDRESSABLE;
    TN_TRY(check_device_name(d->name));
    if (!d->alloc || !d->free || !d->copy_in || !d->copy_out || !d->copy_within || !d->sync)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s' lacks one of the six required functions",
                       d->name);
    if (d->count < 0 || d->count > 255)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s' says it has %d devices", d->name,
                       (int)d->count);
    if (d->dl_device == 1 && (d->flags & host) != host) /* others would read its handles */
        return tn_fail(
            TN_E_PLUGIN, -1,
            "device '%s' says to DLPack that it is the CPU, which cannot read its memory", d->name);
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
    if (slot == 0 && !txn->plugin->ours)
        return tn_fail(
            TN_E_PLUGIN, -1,
            "device '%s' is Tenon's own: a plugin may bring kernels for it, not serve it", d.name);
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

/* ---- Operators and layers ---------------------------------------------------------------------*/

static tn_status check_name(const tn_txn *txn, const tni_added *o) {
    const char *name = o->op.info.name, *mine = txn->plugin->name;
    int32_t waiting = 0;
    char exact[TNI_NAME_BYTES];
    tni_name_write(&o->op, exact);
    const tn_op *have = find_op(txn, exact);
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

/* ---- Kernels ----------------------------------------------------------------------------------*/

/* A row without a version is of the newest one that its argument struct fits, so that the kernels of a
 * plugin that was built for an earlier version find it. */
static tn_op *op_of_row(const tn_txn *txn, const tn_kernel_row *r) {
    tn_op *newest = find_op(txn, r->op);
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
    const char *why;
    if (!tni_takes_kernels(op, &why)) {
        tni_host_log(1, "%s: kernel of '%s' left out: %s", txn->plugin->name, r->op, why);
        return TN_OK;
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
    tn_cell *idle = tni_cell_take_idle(txn->plugin, &cell);
    pending *p = calloc(1, sizeof *p);
    tn_cell *c = idle ? idle : calloc(1, sizeof *c);
    if (!p || !c) {
        if (idle)
            tni_cell_put_idle(txn->plugin, idle);
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
    if (device_slot == TN_META_SLOT)
        return tn_fail(TN_E_PLUGIN, -1,
                       "register_kernels: the device 'meta' has nothing to compute on");
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

/* ---- End --------------------------------------------------------------------------------------*/

static void publish_device(const tni_device *dev, int32_t slot) {
    if (slot > 0) {
        tni_memory_set_active(dev, true);
        atomic_store(&tni_any_special, true);
    }
    atomic_store_explicit(&tni_devices[slot], dev, memory_order_release);
}

static void end(tn_txn *txn, bool published) {
    while (txn->kernels) {
        pending *p = txn->kernels;
        txn->kernels = p->next;
        if (!published && p->again)
            tni_cell_put_idle(txn->plugin, p->cell);
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
    current = NULL;
    free(txn);
    tni_os_unlock(&registry_lock);
}

static tn_status link_ops(const tn_txn *txn) {
    for (tni_added *o = txn->ops; o; o = o->queued)
        TN_TRY(tni_added_link(o, (tni_op_finder){find_op, txn}));
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
    for (const pending *p = txn->kernels; p; p = p->next) {
        tni_cell_publish(p->cell);
        if (p->cell->op->info.kind == TN_OP_COMPOSITE)
            atomic_store(&((tn_op *)(uintptr_t)p->cell->op)->run, tni_run_composed);
    }
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

/* ---- Withdrawal -------------------------------------------------------------------------------*/

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
    for (int i = 0; i < tni_op_count; i++) tni_cells_withdraw(tni_ops[i], plugin);
    for (tni_added *o = atomic_load_explicit(&added, memory_order_relaxed); o; o = o->next) {
        tni_cells_withdraw(&o->op, plugin);
        if (o->plugin == plugin) atomic_store_explicit(&o->op.retired, true, memory_order_release);
    }
    tni_os_unlock(&registry_lock);
    return TN_OK;
}

/* ---- Preferences ------------------------------------------------------------------------------*/

tn_status tn_plugin_prefer(const char *plugin, const char *name, int32_t device_slot) {
    tn_op *one = name ? tni_op_find(name) : NULL;
    tn_status st = TN_OK;
    int32_t n = 0;
    if (name && !one) return tn_fail(TN_E_VALUE, 1, "there is no operator '%s'", name);
    if (device_slot >= TN_DEVICE_SLOTS)
        return tn_fail(TN_E_DEVICE, 2, "there is no device slot %d", (int)device_slot);
    tni_os_lock(&registry_lock);
    if (one) n = tni_cells_prefer(one, plugin, device_slot, &st);
    for (int i = 0; i < tni_op_count && !one; i++)
        n += tni_cells_prefer(tni_ops[i], plugin, device_slot, &st);
    for (tni_added *o = atomic_load_explicit(&added, memory_order_relaxed); o && !one; o = o->next)
        n += tni_cells_prefer(&o->op, plugin, device_slot, &st);
    tni_os_unlock(&registry_lock);
    if (st != TN_OK || n > 0 || !plugin) return st;
    return tn_fail(TN_E_PLUGIN, -1, "plugin '%s' has no kernel %s%s%s%s", plugin,
                   name ? "of '" : "at all", name ? name : "", name ? "'" : "",
                   device_slot >= 0 ? " on that device" : "");
}

typedef struct hidden_rows {
    tn_row *on[TN_DEVICE_SLOTS];
} hidden_rows;
static hidden_rows *hidden; /* the rows of every operator while tn_kernels_hide holds them */

tn_status tn_kernels_hide(int32_t on) {
    tn_status st = TN_OK;
    tni_os_lock(&registry_lock);
    const bool was = hidden != NULL;
    if (on && !was) {
        hidden = calloc((size_t)tni_op_count, sizeof *hidden);
        if (!hidden) st = tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    for (int i = 0; i < tni_op_count && hidden && (on != 0) != was; i++) {
        if (tni_ops[i]->nparts == 0 && tni_ops[i]->info.kind != TN_OP_COMPOSITE) continue;
        for (int32_t d = 0; d < TN_DEVICE_SLOTS; d++)
            hidden[i].on[d] = atomic_exchange(&tni_ops[i]->row[d], hidden[i].on[d]);
    }
    if (!on) {
        free(hidden);
        hidden = NULL;
    }
    tni_os_unlock(&registry_lock);
    return st;
}
