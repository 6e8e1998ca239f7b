/* capture_priv.h: the work of a thread as steps that can be made again (capture.c), and the graphs that
 * own them (graph.c).
 *
 * While a thread captures, kernels and copies run as ever and are recorded as they ran: argument
 * structs frozen, memory kept. What they overwrote is put back at the end, so that a capture
 * changes nothing. For a device with "tn.graph/1" the device records, and core only keeps memory and
 * forbids what cannot be recorded. */
#ifndef TENON_CAPTURE_PRIV_H
#define TENON_CAPTURE_PRIV_H

#include <tenon/device_ext.h>

#include "move_priv.h"
#include "os_priv.h"

typedef struct tni_graph_step {
    tn_status (*run)(const struct tni_graph_step *step);
    struct tni_graph_step *next;
    /* a kernel */
    const tn_cell *cell;
    tn_device device;
    int32_t dtype;
    uint32_t flags; /* of the call */
    void *args;
    /* a copy of bytes */
    tni_move move;
    /* work of the host on two tensors */
    tn_status (*convert)(tn_tensor *to, const tn_tensor *from);
    tn_tensor *to, *from;
} tni_graph_step;

/* One thing that a graph releases when it is reset. */
typedef struct tni_owned {
    void (*drop)(void *what);
    void *what;
    struct tni_owned *next;
} tni_owned;

struct tn_graph {
    _Atomic uint32_t refs;
    tni_os_mutex lock; /* of state, replay and reset */
    enum { TNI_GRAPH_EMPTY, TNI_GRAPH_CAPTURING, TNI_GRAPH_READY } state;
    tn_device device;
    const tn_graph_iface *native;    /* NULL: the steps are the graph */
    void *handle;                    /* the device's graph */
    struct tni_graph_memory *memory; /* of a native one */
    tni_graph_step *steps, **last;
    tni_owned *owned;
};

/* ---- graph.c -----------------------------------------------------------------------------------*/
/* Makes what's drop(what) the graph's duty, also when it fails: then it is done at once. */
tn_status tni_graph_own(tn_graph *g, void (*drop)(void *what), void *what);

/* ---- capture.c ---------------------------------------------------------------------------------*/
tn_status tni_capture_begin(tn_graph *g, tn_device device, tn_stream *stream);
/* Ends the thread's capture. keep: the graph gets what was recorded, unless something went wrong. */
tn_status tni_capture_end(bool keep);
tn_graph *tni_capture_graph(void); /* what the thread records into, or NULL */

#endif
