/* registry_priv.h: devices, dtypes and kernels in force, and the transactions that change them. */
#ifndef TENON_REGISTRY_PRIV_H
#define TENON_REGISTRY_PRIV_H

#include "core_priv.h"
#include "ifaces_priv.h"

/* A plugin as the loader knows it. Never freed. */
typedef struct tni_plugin {
    tn_plugin table; /* our full-size copy */
    char *name, *version, *summary, *path, *problem;
    void *library;
    int32_t active;
    int32_t kernels;
    uint32_t order; /* in which it was activated */
    tn_cell *idle;  /* withdrawn cells; a registration of the same kernel takes one up again */
    struct tni_plugin *next;
} tni_plugin;

/* One device kind. Never freed after it was published, and its table never changes. `desc.alloc` is
 * NULL as long as only the name is known, which is so for the CPU before its plugin is active, and
 * in the place of a device whose plugin was retired: the tensors that it has can still be read and
 * freed. */
typedef struct tni_device {
    tn_device_desc desc;
    tni_ifaces ifaces; /* of a device that is retired: none */
    /* The CPU's alloc, which keeps memory for reuse itself; NULL elsewhere, where memory.c is asked,
     * and as long as the CPU's plugin is not active. */
    tn_status (*direct_alloc)(void *ctx, int32_t device, uint64_t bytes, void **ret_data);
    struct tni_memory *memory;     /* by index; NULL for the CPU */
    struct tni_launches *launches; /* by index; NULL for the CPU */
    char name[32];
    const struct tni_plugin *plugin;
    struct tni_device *retired; /* what takes its place; made at the first retirement */
    struct tni_device *origin;  /* of a device that is retired: what it was, else NULL */
} tni_device;
extern _Atomic(const tni_device *) tni_devices[TN_DEVICE_SLOTS]; /* NULL: nothing in this slot */

/* The device of a slot that is in use: a tensor's, or one that tni_device_ready has seen. */
static inline const tni_device *tni_device_at(int32_t slot) {
    return atomic_load_explicit(&tni_devices[slot], memory_order_acquire);
}

/* The same before it was retired, if it was: what releases the things that the device has made. */
static inline const tni_device *tni_device_maker(int32_t slot) {
    const tni_device *dev = tni_device_at(slot);
    return dev->origin ? dev->origin : dev;
}

/* What a function of a device's table returned for `what`; TN_DECLINE is the caller's to judge. */
static inline tn_status tni_device_said(const tni_device *dev, tn_status st, const char *what) {
    return st == TN_DECLINE ? st : tni_error_of_plugin(st, what, dev->name);
}

/* The table that plugins get. */
extern const tn_host tni_host;

/* ---- Transactions. One at a time; begin takes the registry's lock, commit and rollback drop it. */
tn_status tni_txn_begin(tni_plugin *plugin, tn_txn **ret_txn);
tn_status tni_txn_commit(tn_txn *txn);
void tni_txn_rollback(tn_txn *txn);
tn_status tni_register_device(tn_txn *txn, const tn_device_desc *desc, int32_t *ret_slot);
tn_status tni_register_dtype(tn_txn *txn, const tn_dtype_desc *desc, int32_t *ret_slot);
tn_status tni_register_kernels(tn_txn *txn, int32_t device_slot, const tn_kernel_row *rows,
                               uint32_t row_size, uint32_t n);
tn_status tni_register_kernels_for(tn_txn *txn, const char *device, const tn_kernel_row *rows,
                                   uint32_t row_size, uint32_t n);
tn_status tni_register_op(tn_txn *txn, const tn_op_desc *desc);
tn_status tni_register_layer(tn_txn *txn, const tn_layer_desc *desc);
/* Withdraws every kernel, operator and layer of a plugin and retires its devices. TN_E_MEMORY:
 * nothing was changed. */
tn_status tni_registry_withdraw(tni_plugin *plugin);

/* The operator's row for a device, made when missing; NULL: out of memory. */
tn_row *tni_row_make(const tn_op *op, int32_t device_slot);

/* TN_E_DEVICE unless the device exists; loads its plugin. */
tn_status tni_check_device(tn_device device);

/* How many streams there are beside the default ones of devices. */
extern _Atomic uint32_t tni_streams_live;
/* The calling thread's stream of a device; NULL: the device's default. */
void *tni_stream_find(tn_device device);
static inline void *tni_stream_of(tn_device device) {
    return TN_UNLIKELY(tni_tls.streams != NULL) ? tni_stream_find(device) : NULL;
}

/* Makes sure that the device of a slot (0: the CPU) is there; loads its plugin when it is not. The
 * slot may be any number. */
tn_status tni_device_ready(int32_t slot);

/* ---- layers.c ---------------------------------------------------------------------------------- */
tn_status tni_layer_add(const tn_layer *layer, const tni_plugin *plugin, int32_t *ret_id);
int32_t tni_layer_find(const char *name); /* -1: none of that name */
void tni_layers_withdraw(const tni_plugin *plugin);
extern const tn_layer_iface tni_layer_iface;

/* ---- plugins/loader.c ------------------------------------------------------------------------- */
/* Loads the plugin whose manifest lists `name`; TN_E_DEVICE or TN_E_PLUGIN with reasons. */
typedef enum tni_offer {
    TNI_OFFER_DEVICE,
    TNI_OFFER_DTYPE,
    TNI_OFFER_OP,
    TNI_OFFER_LAYER
} tni_offer;
tn_status tni_loader_load_for(tni_offer kind, const char *name);
/* What `find` (-1: not there) says of the name; loads the plugin that offers it when it must. */
tn_status tni_loader_find(tni_offer kind, const char *name, int32_t (*find)(const char *name),
                          int32_t *ret_id);

/* ---- dtype.c ---------------------------------------------------------------------------------- */
tn_status tni_dtype_add(const tn_dtype_desc *desc, const char *plugin, int32_t *ret_slot);
const tn_dtype_desc *tni_dtype_desc(int32_t dtype);
uint8_t tni_dtype_dl_code(int32_t dtype);
int32_t tni_dtype_to_complex(int32_t dtype);
int32_t tni_dtype_to_real(int32_t dtype);

/* ---- generator.c, services of the host table --------------------------------------------------- */
tn_status tni_rng_acquire(const tn_call *call, tn_generator *gen, uint64_t blocks, tn_rng *ret_rng);
void tni_rng_release(const tn_call *call, tn_generator *gen, tn_rng *rng);
/* What a call of a device that runs on the CPU and names no generator draws from: the device's
 * default one where it has a method of its own, else NULL, the CPU's. */
tn_generator *tni_generator_of_staged(tn_device device);

#endif
