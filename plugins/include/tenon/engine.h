/* tenon/engine.h: how processes exchange data. A library that exports tn_engine_main is an engine:
 * MPI, Gloo, NCCL or a vendor's own. Core looks for `tenon_NAME.so` beside the device plugins and in
 * TENON_ENGINE_PATH, and calls nothing but the table below.
 *
 * Core does once for all engines: the order of operations, deadlines, the comparison of what the ranks
 * call, asynchronous work. An engine starts an exchange and says when it is done. Its functions are
 * never called by two threads at a time, but not always by the same thread. A function that fails
 * writes the reason into `why` (TN_ENGINE_WHY bytes, ends with NUL) and returns a status of failure. */
#ifndef TENON_ENGINE_H
#define TENON_ENGINE_H

#include <stdint.h>

#include <tenon/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_ENGINE_VERSION 1u
#define TN_ENGINE_WHY 512
/* The largest number of elements that core asks for in one exchange of one rank. */
#define TN_ENGINE_MAX_COUNT (INT64_C(1) << 30)
/* As the `peer` of a RECV: whichever rank sends first. Of engines that have test_from. */
#define TN_EXCHANGE_ANY (-1)

/* `count` is that of one rank's part; `in` and `out` are host memory, packed, and may be the same
 * where both have one size. */
enum tn_exchange_kind {
    TN_EXCHANGE_BARRIER,
    TN_EXCHANGE_BROADCAST,      /* out of rank `peer` -> out of all */
    TN_EXCHANGE_ALL_REDUCE,     /* out = op over out of all */
    TN_EXCHANGE_REDUCE,         /* the same, on rank `peer`; the others' out is undefined */
    TN_EXCHANGE_ALL_GATHER,     /* out[i] = in of rank i */
    TN_EXCHANGE_REDUCE_SCATTER, /* out = op over in[rank] of all */
    TN_EXCHANGE_ALL_TO_ALL,     /* out[i] = in[rank] of rank i; sizes by rank in the counts */
    TN_EXCHANGE_SEND,           /* in -> rank `peer`, with `tag` */
    TN_EXCHANGE_RECV,           /* from rank `peer`, with `tag` -> out */
    TN_EXCHANGE_KINDS
};

enum tn_exchange_op {
    TN_EXCHANGE_SUM,
    TN_EXCHANGE_PRODUCT,
    TN_EXCHANGE_MIN,
    TN_EXCHANGE_MAX,
    TN_EXCHANGE_BAND,
    TN_EXCHANGE_BOR,
    TN_EXCHANGE_BXOR,
    TN_EXCHANGE_OPS
};

typedef struct tn_exchange {
    uint32_t kind;   /* tn_exchange_kind */
    uint32_t op;     /* tn_exchange_op, of reductions */
    int32_t dtype;   /* a slot of tenon/dtype.h: uint8, int8, int32, int64, float32 or float64 */
    int32_t peer;    /* a rank of the group; or TN_EXCHANGE_ANY */
    int32_t tag;     /* of SEND and RECV, from 0 to 32767 */
    int32_t element; /* the slot that the caller's elements have, for the comparison of ranks */
    int64_t count;   /* elements of one rank's part */
    const void *in;
    void *out;
    const int64_t *in_counts,
        *out_counts;    /* ALL_TO_ALL: elements for and from each rank; else NULL */
    int64_t timeout_ms; /* how long the ranks may wait for each other */
} tn_exchange;

/* Where a process stands, as its launcher told it. */
typedef struct tn_engine_place {
    uint32_t struct_size;
    int32_t rank, size;
    int32_t reserved;
    const char *folder;    /* exists, and is that of all ranks: for engines that meet by files */
    const char *interface; /* of the network; NULL: the loopback one */
    int64_t timeout_ms;    /* for all ranks to come */
    /* What follows has been added since; struct_size of a place that ends above says so. */
    int32_t device; /* of this rank, among those of the engine's kind; -1: the engine chooses */
    int32_t reserved2;
} tn_engine_place;

/* Where the memory of an exchange lies that is made on a device. */
typedef struct tn_exchange_place {
    uint32_t struct_size;
    int32_t device; /* its number among those of the engine's kind */
    void *ready;    /* an event of the device, which was recorded: the exchange begins behind it */
} tn_exchange_place;

typedef struct tn_engine {
    uint32_t struct_size;
    uint32_t version; /* TN_ENGINE_VERSION */
    const char *name;
    /* Joins all processes; the group of all of them. */
    tn_status (*open)(const tn_engine_place *place, void **ret_group, char *why);
    /* A group of some members of `group`, called by these alone; `ranks` are those of `group`, in the
     * order of the new one. `id`: the same on all members, and of no other group. */
    tn_status (*part)(void *group, const int32_t *ranks, int32_t n, uint32_t id, int64_t timeout_ms,
                      void **ret_group, char *why);
    /* Exchanges of one group are started in the same order on all ranks, SEND and RECV aside. */
    tn_status (*start)(void *group, const tn_exchange *x, void **ret_request, char *why);
    /* *ret_done = 1: it is done, and the request has ended; so it has after a failure. */
    /* TN_E_VALUE of a message that is received: it has come, and is of another size than is expected;
     * nothing has been written beyond the end of `out`. */
    tn_status (*test)(void *group, void *request, int32_t *ret_done, char *why);
    void (*close)(void *group);
    /* Ends the other processes, too, where the engine can. */
    void (*abort)(void *group, int32_t code);
    /* What follows has been added since; struct_size of an engine that ends above says so, and each
     * may be NULL. */
    /* `test` of a RECV from TN_EXCHANGE_ANY. *ret_peer: the rank whose message has come, also where it
     * is of another size than is expected. Other requests never get here. */
    tn_status (*test_from)(void *group, void *request, int32_t *ret_done, int32_t *ret_peer,
                           char *why);
    /* The kind of device whose memory the engine reads and writes by itself, "cuda". NULL: none, and
     * so are the functions below up to `follow`. */
    const char *device;
    /* 1: the exchange, by its kind, op and dtype, can be made in memory of that device: of any dtype
     * that the engine reduces as it is. */
    int32_t (*takes)(void *group, const tn_exchange *x, int32_t device);
    /* start, of an exchange whose `in` and `out` lie on a device: what `takes` has agreed to. Exchanges
     * of both ways are started in one order on all ranks. The device makes it by itself, so that core
     * starts the group's next one before it is done. */
    tn_status (*start_there)(void *group, const tn_exchange *x, const tn_exchange_place *at,
                             void **ret_request, char *why);
    /* What is queued on `stream` of that device from now on comes behind the exchange. *ret_follows =
     * 0: not yet, as the exchange is not queued there itself. */
    tn_status (*follow)(void *group, void *request, void *stream, int32_t *ret_follows, char *why);
    /* After a failure or a deadline, before which requests of the group had not ended: nobody asks for
     * them any more, and what they do on a device must end. */
    void (*give_up)(void *group);
} tn_engine;

/* NULL: this library serves no engine of that version. The table lives as long as the process. */
typedef const tn_engine *(*tn_engine_main_fn)(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
