/* world_priv.h: what the files of this room share. */
#ifndef TENON_WORLD_PRIV_H
#define TENON_WORLD_PRIV_H

#include <stdatomic.h>

#include <tenon/processes.h>

#include "core_priv.h"
#include "os_priv.h"

/* What a rank is about to do. Compared as bytes, so there is no padding. */
typedef struct tni_fingerprint {
    uint64_t sequence;
    int64_t count;
    uint32_t group, kind, op;
    int32_t dtype, peer;
    uint32_t there; /* in memory of the engine's device */
    uint64_t
        parts; /* of ALL_TO_ALL: the ranks' sum is 0 where each takes what the others give it */
} tni_fingerprint;

/* One engine of this process, and all groups that go through it. Never freed. */
typedef struct tni_engine_use {
    const tn_engine *engine;
    int64_t most;            /* elements of all ranks in one exchange */
    tni_os_mutex driver;     /* held by the thread that calls the engine; taken before `lock` */
    struct tn_world *worlds; /* the driver's, as all that follows up to `lock` */
    bool lost;               /* the engine has failed: why */
    bool held;               /* and what it does on its device is not given up yet */
    void (*say)(const char *why); /* of a loss that nobody has heard of in time, then */
    void (*end)(void);
    char why[TN_ENGINE_WHY];
    uint32_t groups;   /* made so far: the next one's number */
    tni_os_mutex lock; /* guards what follows, and `posted` of worlds */
    tni_os_cond posted;
    int32_t unattended; /* operations that nobody may be waiting for */
    bool has_thread;
} tni_engine_use;

struct tn_world {
    tni_engine_use *use;
    struct tn_world *next;
    void *group;
    int32_t rank, size;
    uint32_t number; /* of the group, the same on all its ranks */
    int32_t check;   /* see tn_world_open */
    uint64_t sequence;
    tni_fingerprint mine, *all; /* of the operation that is being compared */
    struct tn_work *posted;     /* guarded by `lock`, the newest first; the driver takes them */
    struct tn_work *first;      /* the driver's: operations of all ranks, in order */
    struct tn_work *moving;     /* the driver's: SEND and RECV */
    _Atomic int32_t refs;
};

/* The fingerprint of an operation of a group. */
tni_fingerprint tni_fingerprint_of(const tn_world *world, const tn_exchange *x, bool there);
void tni_fingerprint_text(const tni_fingerprint *f, char *dst, size_t size);
/* Whether all ranks are about to do the same; else `why` names one of each kind. `mine` is what this
 * rank does. */
bool tni_fingerprints_agree(const tni_fingerprint *all, int32_t n, const tn_exchange *mine,
                            char *why);
typedef tn_status (*tni_test_from)(void *group, void *request, int32_t *ret_done, int32_t *ret_peer,
                                   char *why);
/* NULL: the engine's table ends before, or leaves it out. */
tni_test_from tni_engine_test_from(const tn_engine *engine);
/* Whether it reads and writes a device's memory by itself. */
bool tni_engine_has_device(const tn_engine *engine);
/* Nobody asks for the group's requests any more. */
void tni_engine_give_up(const tn_engine *engine, void *group);
/* The table of the engine in a library. */
tn_status tni_engine_find(const char *path, const tn_engine **ret_engine);

#endif
