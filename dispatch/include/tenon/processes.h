/* tenon/processes.h: processes that exchange data through an engine (tenon/engine.h).
 *
 * A tn_world is a group of processes. Every member starts the same operations in the same order;
 * an operation runs when its turn comes, driven by whoever waits for it, or by a thread of its own
 * where nobody waits. What the ranks are about to do is compared first, so that operations that do
 * not fit together end in an error on all ranks. Objects are counted; NULL is no object. */
#ifndef TENON_PROCESSES_H
#define TENON_PROCESSES_H

#include <tenon/engine.h>
#include <tenon/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_world tn_world;
typedef struct tn_work tn_work;

/* Joins the processes of `place` through the engine in the library at `path`. check: the operations of
 * which every one (1), every k-th (k) or none (0) is compared between the ranks.
 * TN_E_PLUGIN: no engine there. TN_E_IO: the engine could not join; TN_E_VALUE: ranks that cannot be. */
TN_API tn_status tn_world_open(const char *path, const tn_engine_place *place, int32_t check,
                               tn_world **ret_world);
/* A group of some members, in the order of `ranks`. With an id of 0 all members of `world` call it, in the
 * same order; NULL for those that are no members of the new one. With another, of at least TN_WORLD_OWN_ID and of
 * no other group, its members alone do. */
#define TN_WORLD_OWN_ID 0x80000000u
TN_API tn_status tn_world_part(tn_world *world, const int32_t *ranks, int32_t n, uint32_t id,
                               int64_t timeout_ms, tn_world **ret_world);
TN_API int32_t tn_world_rank(const tn_world *world);
TN_API int32_t tn_world_size(const tn_world *world);
/* Starts an operation. The memory it names is the operation's until it is done. later: 0 where the
 * caller waits for it next; 1: a thread of ours drives it meanwhile. */
TN_API tn_status tn_world_start(tn_world *world, const tn_exchange *x, int32_t later,
                                tn_work **ret_work);
/* The kind of device whose memory the engine reads and writes by itself ("cuda"); NULL: none. */
TN_API const char *tn_world_device(const tn_world *world);
/* 1: the exchange can be made in memory of that device. */
TN_API int32_t tn_world_takes(const tn_world *world, const tn_exchange *x, int32_t device);
/* tn_world_start with `in` and `out` in memory of a device, behind the event of `at`, which lives until the
 * operation is done. A thread of ours drives it. */
TN_API tn_status tn_world_start_there(tn_world *world, const tn_exchange *x,
                                      const tn_exchange_place *at, tn_work **ret_work);
/* Where a stream waits for an operation of a group that is lost, it waits until tn_work_wait or
 * tn_work_follow has told of the loss, so that it does not read what was not exchanged. Where none has within
 * 5 seconds, `say` gets the reason and `end` is called, on a thread of ours. Of all groups of the engine. */
TN_API void tn_world_on_loss(tn_world *world, void (*say)(const char *why), void (*end)(void));
/* Gives up this reference; with the last one of the first world its engine leaves the others. */
TN_API void tn_world_close(tn_world *world);
/* Ends the process group as far as the engine can: after a failure that no rank survives. */
TN_API void tn_world_abort(tn_world *world, int32_t code);

/* Waits until it is done, at most about max_ms; it has a deadline of its own, too. What went wrong is
 * returned by every call once it is done. */
TN_API tn_status tn_work_wait(tn_work *work, int64_t max_ms);
TN_API int32_t tn_work_done(tn_work *work);
/* Waits until what is queued on a stream of the device from now on comes behind the operation, which is
 * before its end: *ret_follows = 1. Not so within about max_ms: 0. Of one that has ended, its status. */
TN_API tn_status tn_work_follow(tn_work *work, void *stream, int64_t max_ms, int32_t *ret_follows);
/* 1: it ended while the engine may still use its memory, which must stay where it is. */
TN_API int32_t tn_work_lost(const tn_work *work);
/* Ends an operation that cannot end any more, as the caller knows: the group is lost. */
TN_API void tn_work_give_up(tn_work *work, const char *why);
/* The rank of whom a message is, once it has come: of a RECV from TN_EXCHANGE_ANY, too. */
TN_API int32_t tn_work_peer(const tn_work *work);
TN_API void tn_work_unref(tn_work *work);

#ifdef __cplusplus
}
#endif
#endif
