/* device_priv.h: the room of devices: which there are, their kernels, queues, memory and failures, and the
 * names of operators. Nothing here knows a tensor but as bytes in a storage. */
#ifndef TENON_DEVICE_PRIV_H
#define TENON_DEVICE_PRIV_H

#include "core_priv.h"
#include "ifaces_priv.h"

/* ---- devices.c ---------------------------------------------------------------------------------*/
/* A plugin as the loader knows it. Never freed. */
typedef struct tni_plugin {
    tn_plugin table; /* our full-size copy */
    char *name, *version, *summary, *path, *problem;
    void *library;
    int32_t active;
    int32_t kernels;
    bool ours;      /* lies beside libtenon */
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

/* Makes sure that the device of a slot (0: the CPU) is there; loads its plugin when it is not. The
 * slot may be any number. */
tn_status tni_device_ready(int32_t slot);
/* TN_E_DEVICE unless the device exists; loads its plugin. */
tn_status tni_check_device(tn_device device);
/* Whether there is, or was, a device besides the CPU, or work that was captured. */
extern _Atomic bool tni_any_special;

/* ---- meta.c ------------------------------------------------------------------------------------*/
extern const tni_device tni_meta_device;
/* The kernel of every operator there, which does nothing; NULL: the operator's kernel sizes its result. */
const tn_cell *tni_meta_cell(const tn_op *op);
/* Fail: for a copy to another device, and for an operator whose result depends on values. */
tn_status tni_meta_no_data(void);
tn_status tni_meta_needs_values(const char *op);
static inline bool tni_is_meta(const tn_view *v) { return tn_view_device(v) == TN_META_SLOT; }

/* ---- kernels.c ---------------------------------------------------------------------------------*/
/* Finds the kernel of (op, device, dtype): the cell, or NULL. Loads the device's plugin. */
const tn_cell *tni_kernel_find(const tn_op *op, int32_t device_slot, int32_t dtype);
/* The resolved cell, without any search: NULL sends the caller to the slow path. */
static inline const tn_cell *tni_cell(const tn_op *op, int32_t device, int32_t dtype) {
    const tn_row *row = atomic_load_explicit(&op->row[device], memory_order_acquire);
    return row ? atomic_load_explicit(&row->cell[dtype], memory_order_acquire) : NULL;
}
/* The operator's row for a device, made when missing; NULL: out of memory. */
tn_row *tni_row_make(const tn_op *op, int32_t device_slot);
/* Of what follows each is called with the registry's lock held.
 * Puts a cell into its list; its row is there. */
void tni_cell_publish(tn_cell *cell);
/* A withdrawn cell of the plugin that is like this one, which is taken out; NULL: there is none. */
tn_cell *tni_cell_take_idle(tni_plugin *plugin, const tn_cell *like);
void tni_cell_put_idle(tni_plugin *plugin, tn_cell *cell);
/* Takes the plugin's cells out of all lists of the operator. */
void tni_cells_withdraw(tn_op *op, tni_plugin *plugin);
/* Puts the plugin's cells first, on one device or (-1) on all; returns how many there are. NULL: those that
 * were put first go back to their places. */
int32_t tni_cells_prefer(tn_op *op, const char *plugin, int32_t device, tn_status *ret_status);

/* ---- names.c -----------------------------------------------------------------------------------*/
enum { TNI_NAME_BYTES = 112 };
tn_op *tni_op_find(const char *name);
/* The operator has that name, and that version where the name ends in one. */
bool tni_name_means(const char *name, const tn_op *op);
/* "acme::gelu@1", also where the operator's name says no version. */
void tni_name_write(const tn_op *op, char *name);
void tni_name_publish(tn_op *op);
/* There is room for one more when so many wait to be published. */
bool tni_name_has_room(int32_t waiting);
static inline bool tni_op_is_retired(const tn_op *op) {
    return atomic_load_explicit(&op->retired, memory_order_acquire);
}
/* The next older version that is there, or NULL. */
tn_op *tni_name_older(const tn_op *op);

/* ---- stream.c, late.c --------------------------------------------------------------------------*/
/* How many streams there are beside the default ones of devices. */
extern _Atomic uint32_t tni_streams_live;
/* The calling thread's stream of a device; NULL: the device's default. */
void *tni_stream_find(tn_device device);
static inline void *tni_stream_of(tn_device device) {
    return TN_UNLIKELY(tni_tls.streams != NULL) ? tni_stream_find(device) : NULL;
}

/* What a device's failures need, by index; NULL: out of memory. */
struct tni_launches *tni_launches_new(int32_t count);
void tni_launches_delete(struct tni_launches *launches);

/* A call that waited for work on a device returned `st`: what its caller is told. A failure that was
 * kept comes first, TN_ASYNC without an operator's name gets one. `everything`: the whole device was
 * waited for. */
tn_status tni_waited(tn_device device, bool everything, tn_status st);
/* The same for a call that only asked, or waited for some of the work. */
tn_status tni_looked(tn_device device, tn_status st);
/* A call for which nobody waits returned `st`: TN_ASYNC is kept for the next one who does. */
void tni_keep_async(const tni_device *dev, int32_t index, tn_status st);
/* Notes which operator was launched first since the device was waited for. */
void tni_note_launch(const tni_device *dev, int32_t index, const tn_op *op);

/* ---- Watchers ----------------------------------------------------------------------------------
 * Who sees a thread's work on its way to the device: a capture (call/capture.c). */
struct tni_move;
typedef struct tni_watcher {
    /* A kernel is run by it. */
    tn_status (*run)(const tn_op *op, const tn_cell *cell, tn_call *call, const void *args);
    /* Before and after bytes were copied. */
    tn_status (*move)(const struct tni_move *m);
    tn_status (*moved)(const struct tni_move *m);
    /* After convert(to, from), which does not go through a kernel. */
    tn_status (*convert)(tn_status (*convert)(tn_tensor *to, const tn_tensor *from), tn_tensor *to,
                         const tn_tensor *from);
    /* After the host waited for a device whose memory, `far`, it then reads in place. */
    tn_status (*synced)(tn_storage *far);
    /* Before a generator is drawn from. */
    tn_status (*draw)(tn_generator *gen);
    /* Where memory of the device comes from while it records the thread's work; NULL when it does not. */
    struct tni_graph_memory *(*memory)(tn_device device);
    /* TN_E_STATE when the thread's work on the device is captured; the capture has failed then. `op` is
     * the operator that asks for it, or NULL. `native`: only where the device records by itself. */
    tn_status (*forbid)(tn_device device, bool native, const char *what, const char *op);
} tni_watcher;
static inline tn_status tni_forbid(tn_device device, const char *what, const char *op) {
    return tni_tls.watcher ? tni_tls.watcher->forbid(device, false, what, op) : TN_OK;
}
static inline tn_status tni_forbid_native(tn_device device, const char *what, const char *op) {
    return tni_tls.watcher ? tni_tls.watcher->forbid(device, true, what, op) : TN_OK;
}

#endif
