/* nccl_priv.h: what the files of the engine for NCCL share, and what they call of NVIDIA's libraries, as
 * facts: types, constants and functions. A machine that builds this needs nothing of NVIDIA's. */
#ifndef TENON_NCCL_PRIV_H
#define TENON_NCCL_PRIV_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/dtype.h>
#include <tenon/engine.h>

#include "driver.h"

/* ---- libnccl -----------------------------------------------------------------------------------*/

typedef struct ncclComm *ncclComm_t;
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
/* As NCCL 2.14 had it, which newer ones know by its size and version. */
typedef struct ncclConfig_t {
    size_t size;
    unsigned magic, version;
    int blocking, unused;
} ncclConfig_t;

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_CONFIG_VERSION = 21400, NCCL_UNDEFINED = INT_MIN };
enum { NCCL_I8 = 0, NCCL_U8 = 1, NCCL_I32 = 2, NCCL_I64 = 4 };
enum { NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9 };
enum { NCCL_SUM = 0, NCCL_PRODUCT = 1, NCCL_MAX = 2, NCCL_MIN = 3 };

/* X(member, symbol of libnccl, result, parameters) */
#define NCCL_LIST(X)                                                                               \
    X(unique_id, ncclGetUniqueId, ncclResult_t, (ncclUniqueId * ret_id))                           \
    X(init, ncclCommInitRankConfig, ncclResult_t,                                                  \
      (ncclComm_t * ret_comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))          \
    X(state, ncclCommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t * ret_state))     \
    X(finalize, ncclCommFinalize, ncclResult_t, (ncclComm_t comm))                                 \
    X(destroy, ncclCommDestroy, ncclResult_t, (ncclComm_t comm))                                   \
    X(abort, ncclCommAbort, ncclResult_t, (ncclComm_t comm))                                       \
    X(error_text, ncclGetErrorString, const char *, (ncclResult_t code))                           \
    X(last_error, ncclGetLastError, const char *, (ncclComm_t comm))                               \
    X(group_start, ncclGroupStart, ncclResult_t, (void))                                           \
    X(group_end, ncclGroupEnd, ncclResult_t, (void))                                               \
    X(all_reduce, ncclAllReduce, ncclResult_t,                                                     \
      (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,               \
       ncclComm_t comm, CUstream stream))                                                          \
    X(reduce, ncclReduce, ncclResult_t,                                                            \
      (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,     \
       ncclComm_t comm, CUstream stream))                                                          \
    X(broadcast, ncclBroadcast, ncclResult_t,                                                      \
      (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,    \
       CUstream stream))                                                                           \
    X(all_gather, ncclAllGather, ncclResult_t,                                                     \
      (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,              \
       CUstream stream))                                                                           \
    X(reduce_scatter, ncclReduceScatter, ncclResult_t,                                             \
      (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,               \
       ncclComm_t comm, CUstream stream))                                                          \
    X(send, ncclSend, ncclResult_t,                                                                \
      (const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,               \
       CUstream stream))                                                                           \
    X(recv, ncclRecv, ncclResult_t,                                                                \
      (void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))

typedef struct nccl_library {
#define NCCL_MEMBER(member, symbol, result, params) result(*member) params;
    NCCL_LIST(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl_library;

/* ---- nccl_open.c: the libraries, the device of this rank, and memory that is lent ---------------*/

extern nccl_library nccl;
extern cuda_driver nccl_driver;

/* Pinned memory, and as much on the device. */
typedef struct nccl_stage {
    struct nccl_stage *next;
    size_t bytes;
    unsigned char *host, *device;
} nccl_stage;

/* The device of this rank. The groups of a world share it. */
typedef struct nccl_home {
    CUcontext context;
    int32_t device;
    int32_t groups;
    nccl_stage *unused;
    struct nccl_lane *lanes; /* all of them */
} nccl_home;

tn_status nccl_fail(char *why, tn_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Turns a result of the driver that is not CUDA_OK into a failure; `what` was attempted. */
tn_status nccl_driver_fail(char *why, CUresult r, const char *what);
tn_status nccl_home_open(const tn_engine_place *place, nccl_home **ret_home, char *why);
/* With the last group. */
void nccl_home_close(nccl_home *home);
/* Makes the device the calling thread's. */
tn_status nccl_enter(const nccl_home *home, char *why);
tn_status nccl_stage_take(nccl_home *home, size_t bytes, nccl_stage **ret_stage, char *why);
void nccl_stage_return(nccl_home *home, nccl_stage *stage);
/* a * b * c bytes; false: more than there can be. */
bool nccl_bytes(int64_t a, int64_t b, size_t c, size_t *ret_bytes);

/* ---- nccl_lane.c: communicators ----------------------------------------------------------------*/

typedef struct nccl_request nccl_request;
typedef struct nccl_group nccl_group;

typedef enum nccl_state { NCCL_NEW, NCCL_JOINING, NCCL_READY, NCCL_FAILED, NCCL_LOST } nccl_state;

/* A communicator and its stream, on which what is asked of it runs in order. A message has one of its
 * own with its two ranks, one for each direction: what waits there keeps nothing else. */
typedef struct nccl_lane {
    nccl_home *home;
    struct nccl_lane *next; /* of the home's */
    bool is_channel;        /* of messages */
    ncclComm_t comm;
    CUstream stream;
    nccl_state at;
    int32_t rank, size;
    char path[512];       /* of the file that has its id */
    nccl_request *first;  /* what is not on the stream yet, in order */
    struct nccl_mail *in; /* of the receiving end: nccl_message.c */
} nccl_lane;

tn_status nccl_lane_new(nccl_home *home, const char *folder, const char *name, int32_t rank,
                        int32_t size, nccl_lane **ret_lane, char *why);
/* Whether NCCL can be called: all ranks have joined, and the call before has ended. */
tn_status nccl_lane_free(nccl_lane *lane, bool *ret_free, char *why);
/* Takes the result of a call; the stream may be used again when the lane is free. */
tn_status nccl_lane_called(nccl_lane *lane, ncclResult_t code, const char *what, char *why);
/* Ends what runs. */
void nccl_lane_abort(nccl_lane *lane);
void nccl_lane_close(nccl_lane *lane);

/* ---- Exchanges ---------------------------------------------------------------------------------*/

struct nccl_request {
    nccl_request *next; /* of its lane */
    nccl_group *group;
    nccl_lane *lane;
    tn_exchange x;
    int64_t *counts;      /* a copy of those of x */
    bool there;           /* `in` and `out` are memory of the device */
    CUevent ready, event; /* it begins behind the first, and the second is recorded at its end */
    nccl_stage *stage;
    unsigned char *send, *recv;        /* on the device */
    size_t sent_at, sent, got_at, got; /* of the stage: what is copied there, and back */
    int step;
    bool queued; /* all of it is on the stream, and its event is recorded */
    bool ended;
    tn_status status; /* of a message that has ended */
    char why[120];
};

struct nccl_group {
    nccl_home *home;
    int32_t rank, size;
    char folder[400], name[64];
    bool lost;
    nccl_lane *host, *device; /* of exchanges of all ranks, by where their memory lies */
    nccl_lane *channels[];    /* [2 * size] messages to each rank, and from each */
};

size_t nccl_width(int32_t dtype);
bool nccl_type(int32_t dtype, ncclDataType_t *ret_type);
bool nccl_op(uint32_t op, ncclRedOp_t *ret_op);
void nccl_append(nccl_lane *lane, nccl_request *r);
void nccl_remove(nccl_lane *lane, const nccl_request *r);
/* Records the request's event: its lane has all of it. */
tn_status nccl_queue(nccl_request *r, char *why);

/* nccl_collective.c: chooses the memory of an exchange of all ranks; moves a lane of them on. */
tn_status nccl_collective_place(nccl_request *r, char *why);
tn_status nccl_collective_advance(nccl_lane *lane, char *why);
/* What is left to do where its event was reached. */
void nccl_collective_end(nccl_request *r);
/* nccl_message.c */
tn_status nccl_message_start(nccl_request *r, char *why);
tn_status nccl_message_advance(nccl_lane *lane, char *why);
void nccl_mail_free(nccl_lane *lane);

#endif
