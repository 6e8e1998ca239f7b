/* ifaces_priv.h: what a device offers beyond its six functions (tenon/device.h), as core keeps it. */
#ifndef TENON_IFACES_PRIV_H
#define TENON_IFACES_PRIV_H

#include <tenon/plugin.h>

/* NULL: the device has no such table. What is there is complete: no member is NULL. */
typedef struct tni_ifaces {
    const tn_stream_iface *stream;
    const tn_peer_iface *peer;
    const tn_allocator_iface *allocator;
    const tn_memory_iface *memory;
    const tn_pinned_iface *pinned;
    const tn_generator_iface *generator;
    const tn_graph_iface *graph;
    const tn_ipc_iface *ipc;
    const tn_collectives_iface *collectives;
    const tn_profiler_iface *profiler;
    const tn_codegen_iface *codegen;
    const tn_codegen_iface *codegen2; /* "tn.codegen/2" */
    const tn_program_iface *program;
    const tn_threads_iface *threads;
    /* What the pointers above lead to; all zeroes where they are NULL. */
    struct tni_iface_copies {
        tn_stream_iface stream;
        tn_peer_iface peer;
        tn_allocator_iface allocator;
        tn_memory_iface memory;
        tn_pinned_iface pinned;
        tn_generator_iface generator;
        tn_graph_iface graph;
        tn_ipc_iface ipc;
        tn_collectives_iface collectives;
        tn_profiler_iface profiler;
        tn_codegen_iface codegen, codegen2;
        tn_program_iface program;
        tn_threads_iface threads;
    } copies;
} tni_ifaces;

/* Asks a device for every table once. One that is too short or lacks a member is logged and left out.
 * ret_ifaces points into itself, so it is never copied. */
void tni_ifaces_take(const tn_device_desc *device, tni_ifaces *ret_ifaces);

#endif
