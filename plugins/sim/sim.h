/* sim.h: what the files of the simulated device share.
 *
 * Everything of one device stands behind its lock: the blocks of its memory, its queues, its first
 * failure. `changed` is signalled whenever work is added or done. */
#ifndef SIM_H
#define SIM_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/plugin.h>

enum {
    SIM_DEVICES = 16,
    SIM_DIMS = 16,  /* most dimensions of a structured kernel's operand */
    SIM_ZONE = 64,  /* least bytes of red zone on either side of a block */
    SIM_FAULTS = 8, /* most switches in TENON_SIM_FAULT */
    SIM_TEXT = 256, /* room for a failure's text */
    SIM_USERS = 8,  /* most queues that a block's uses are told apart for */
    SIM_OPERANDS = TN_MAX_OPERANDS
};

/* Values that memory is filled with. 0xff is not-a-number in every float and -1 in every int. */
enum { SIM_FRESH = 0xff, SIM_FREED = 0xdd, SIM_GUARD = 0xa5 };

typedef enum sim_fault_kind {
    SIM_FAULT_KERNEL,  /* the launch fails behind the host's back */
    SIM_FAULT_OVERRUN, /* the kernel writes past the end of its first result */
    SIM_FAULT_OOM,     /* the allocation fails */
    SIM_FAULT_LOST     /* the device is gone from that launch or copy on */
} sim_fault_kind;

typedef struct sim_fault {
    sim_fault_kind kind;
    char op[32]; /* "": any operator */
    uint64_t left;
} sim_fault;

/* The switches, read from the environment when the plugin is activated; README.md explains them. */
typedef struct sim_config {
    char name[24];
    char unsafe[32]; /* the operator whose kernels may not be captured */
    char spans[256]; /* the file that spans are written to; "": none */
    int32_t count, level;
    bool opaque, names, generator;
    uint64_t seed, memory;
    uint32_t delay_us;
    char without[128]; /* names of tables, each between commas */
    int nfaults;
    sim_fault faults[SIM_FAULTS];
} sim_config;

/* Named interface "tenon.sim/1": which kernels ran. */
typedef struct sim_counts_iface {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t (*launches)(const char *op); /* on all devices, since the plugin was mapped */
} sim_counts_iface;

typedef struct sim_device sim_device;

/* A stretch of the arena, free or in use; they form a list in the order of addresses. */
typedef struct sim_block {
    uint64_t at, size; /* in the arena, in bytes, red zones included */
    uint64_t bytes;    /* what was asked for; it starts at `at` + SIM_ZONE */
    enum { SIM_BLOCK_FREE, SIM_BLOCK_USED, SIM_BLOCK_DYING } state;
    uint64_t stamp; /* dying: work up to this one may still use it */
    /* The queues whose work may use it, as tn.allocator/1 is told; none: any queue's. They are
     * compared and not followed: a queue may be gone. */
    int nusers;
    const struct sim_queue *users[SIM_USERS];
    struct sim_block *prev, *next, *next_dying;
} sim_block;

/* Memory of another process, mapped twice like an arena. */
typedef struct sim_import {
    unsigned char *host_face, *face;
    uint64_t skip, bytes; /* where in it the block's data lies */
    uint64_t room;
    struct sim_import *next;
} sim_import;

typedef struct sim_memory {
    unsigned char *host_face; /* what Tenon gets; the processor may not touch it */
    unsigned char *face;      /* the same bytes, for kernels and copies */
    int file;
    uint64_t room;
    sim_block *blocks, *dying;
    sim_import *imports;
    sim_block **of_unit; /* the block in use at each unit of the arena */
    tn_memory_stats stats;
} sim_memory;

/* A tensor as a kernel sees it: `data` is element 0 in the readable face. */
typedef struct sim_view {
    unsigned char *data;
    int32_t dtype, ndim;
    int64_t numel, itemsize;
    int64_t shape[SIM_DIMS], strides[SIM_DIMS]; /* strides in elements */
} sim_view;

typedef struct sim_event sim_event;
typedef struct sim_graph sim_graph;

/* One entry of a queue: a kernel with copies of its arguments, a copy, or a mark. */
typedef struct sim_work {
    struct sim_work *next;
    uint64_t seq;
    const char *op; /* an operator, or what this is */
    void (*run)(struct sim_work *w);
    sim_device *device;
    bool counted;                /* among the launches of its operator */
    bool doomed, overrun, fatal; /* by a fault switch */
    char problem[SIM_TEXT];      /* set by sim_work_fail */
    /* copies */
    unsigned char *dst;
    const unsigned char *src;
    uint64_t bytes;
    void *payload; /* freed with the work */
    /* events */
    bool always; /* runs on a lost device too: somebody may wait for it */
    sim_event *event;
    uint64_t mark;
    /* kernels */
    const void *row;  /* the registered row's ctx: what the family's loop computes */
    tn_status status; /* of collecting the arguments */
    uint32_t slot;
    int32_t dtype;
    int noperands;
    sim_block *blocks[SIM_OPERANDS];
    sim_view view[SIM_OPERANDS];
    tn_plan plan;
    unsigned char scalar[SIM_OPERANDS][16];
    double real[4];
    int64_t whole[8];
} sim_work;

typedef struct sim_queue {
    sim_device *device;
    bool running, stop;    /* stop: the thread leaves when there is nothing to do */
    sim_work *head, *tail; /* head stays until it is done */
    uint64_t submitted, finished;
    uint64_t random;
    sim_graph *recording; /* what the entries of one thread go into instead, or NULL */
    struct sim_queue *next;
} sim_queue;

struct sim_device {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t index;
    sim_memory memory;
    sim_queue main; /* first in the list of queues */
    uint64_t stamp; /* of the latest work on any queue */
    bool failed, lost;
    char failure[SIM_TEXT];
};

/* ---- plugin.c ----------------------------------------------------------------------------------*/
extern const tn_host *sim_host;
extern sim_config sim_settings;
/* The device of an index that Tenon has checked. */
sim_device *sim_device_at(int32_t index);
/* Counts an occasion for a fault; true when a switch says that this is the one. */
bool sim_fault_now(sim_fault_kind kind, const char *op);
/* Counts a kernel that was put into a queue. */
void sim_count_launch(const char *op);

/* ---- memory.c; the device's lock is held unless it says otherwise ------------------------------*/
tn_status sim_memory_alloc(sim_device *d, uint64_t bytes, void **ret_data);
/* The block that was made at that address and is in use; NULL, and a failure is noted. */
sim_block *sim_memory_block(sim_device *d, const void *data, const char *what);
/* The memory is given back once the work queued so far is done. */
void sim_memory_free(sim_device *d, void *data);
/* Gives back what no queued work can use any more. */
void sim_memory_reap(sim_device *d);
/* The readable address of bytes that must lie in one block; NULL after host->fail. ret_block may
 * be NULL; it gets NULL for another process's memory. */
unsigned char *sim_memory_reach(sim_device *d, const void *data, uint64_t offset, int64_t lo,
                                int64_t hi, sim_block **ret_block);
/* The same for a copy's bytes, which start at the offset; takes the lock. */
unsigned char *sim_reach(sim_device *d, const void *data, uint64_t offset, uint64_t bytes);
/* Notes a failure when the block was written outside of its bytes. op: who did it, or NULL. */
void sim_memory_check(sim_device *d, const sim_block *b, const char *op);
void sim_memory_check_all(sim_device *d);
/* Unmaps the arena when nothing is allocated. */
void sim_memory_close(sim_device *d);

/* ---- queue.c -----------------------------------------------------------------------------------*/
sim_work *sim_work_new(sim_device *d, const char *op, void (*run)(sim_work *w));
/* Work with an event: under the lock of the event's device. */
void sim_work_free(sim_work *w);
/* For run functions: the work failed; the first failure of a device is kept. */
void sim_work_fail(sim_work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends to a queue, NULL: the default one. Takes w in any case. */
tn_status sim_submit(sim_device *d, sim_queue *q, sim_work *w);
/* Waits for all work so far and reports nothing. */
void sim_settle(sim_device *d);
/* Waits for a queue's work so far, then reports what failed. */
tn_status sim_wait(sim_device *d, sim_queue *q);
tn_status sim_wait_all(sim_device *d);
/* Lock held: keeps the first failure. */
void sim_note_failure(sim_device *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Lock held: fails when the device is lost. */
tn_status sim_check_lost(const sim_device *d);
/* Lock held: reports the first failure, once; a lost device stays lost. */
tn_status sim_take_failure(sim_device *d);
/* Lock held: true when all work up to the stamp is done. */
bool sim_is_done(const sim_device *d, uint64_t stamp);
/* Lock held: true when no queue that may use a dying block has work up to its stamp. */
bool sim_is_unused(const sim_device *d, const sim_block *b);
/* Ends the threads once they have nothing to do. */
void sim_queues_stop(sim_device *d);

/* ---- allocator.c -------------------------------------------------------------------------------*/
extern const tn_allocator_iface sim_allocator_iface;
extern const tn_memory_iface sim_memory_iface;

/* ---- stream.c ----------------------------------------------------------------------------------*/
extern const tn_stream_iface sim_stream_iface;
extern const tn_peer_iface sim_peer_iface;
/* Later work of the second stream starts when earlier work of the first is done. */
tn_status sim_let_wait(int32_t first, void *first_stream, int32_t then, void *then_stream);
/* Lock of the event's device held. */
void sim_event_drop(sim_event *e);

/* ---- pinned.c ----------------------------------------------------------------------------------*/
extern const tn_pinned_iface sim_pinned_iface;

/* ---- generator.c -------------------------------------------------------------------------------*/
extern const tn_generator_iface sim_generator_iface;

/* ---- codegen.c ---------------------------------------------------------------------------------*/
extern const tn_codegen_iface sim_codegen_iface;

/* ---- program.c ---------------------------------------------------------------------------------*/
extern const tn_program_iface sim_program_iface;

/* ---- ipc.c -------------------------------------------------------------------------------------*/
extern const tn_ipc_iface sim_ipc_iface;

/* ---- group.c -----------------------------------------------------------------------------------*/
extern const tn_collectives_iface sim_collectives_iface;

/* ---- spans.c -----------------------------------------------------------------------------------*/
extern const tn_profiler_iface sim_profiler_iface;

/* ---- graph.c -----------------------------------------------------------------------------------*/
extern const tn_graph_iface sim_graph_iface;
/* Lock held: whether the calling thread's entries are recorded; records one, takes w in any case. */
bool sim_graph_takes(const sim_queue *q);
tn_status sim_graph_add(sim_queue *q, sim_work *w);

#endif
