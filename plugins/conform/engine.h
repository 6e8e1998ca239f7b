/* engine.h: what the files that test engines (tenon/engine.h) share. */
#ifndef TENON_CONFORM_ENGINE_H
#define TENON_CONFORM_ENGINE_H

#include <tenon/engine.h>

#include "conform.h"

enum { CF_RANKS = 64 };

typedef struct cf_engine_options {
    char library[4096];
    const char *only;   /* the check to run, or NULL */
    const char *meet;   /* the folder of all ranks; NULL: nobody said so */
    int32_t rank, size; /* rank: -1 for the parent */
    double timeout;     /* of an exchange that must end */
    bool list;
} cf_engine_options;

/* One process of those that exchange data. */
typedef struct cf_rank {
    const cf_engine_options *options;
    const tn_engine *engine;
    void *world;
    int32_t rank, size;
    const char *check;
    int64_t cases;
    int32_t fails;
    bool lost; /* the ranks do not go on together */
} cf_rank;

/* Says what is wrong; the first lines of a check count. */
void cf_rank_fail(cf_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Starts an exchange and waits until it is done; false, after saying so: it failed or never ended. */
bool cf_rank_exchange(cf_rank *r, void *group, const tn_exchange *x);
/* The same in two steps. NULL: it could not be started. */
void *cf_rank_start(cf_rank *r, void *group, const tn_exchange *x);
bool cf_rank_finish(cf_rank *r, void *group, void *request, const tn_exchange *x);
/* Of a RECV from TN_EXCHANGE_ANY: whose message has come. */
bool cf_rank_finish_any(cf_rank *r, void *group, void *request, const tn_exchange *x,
                        int32_t *ret_peer);
/* Of a RECV whose message has another size: it must say so, and whose it is where ret_peer is given
 * (NULL: the peer is known). */
bool cf_rank_refuses(cf_rank *r, void *group, void *request, const tn_exchange *x,
                     int32_t *ret_peer);
/* Whether the engine receives from any rank. */
bool cf_engine_has_any(const tn_engine *e);
/* "all_reduce float32 sum, 7 elements" */
const char *cf_exchange_text(const tn_exchange *x);

typedef struct cf_engine_check {
    const char *name;
    void (*run)(cf_rank *r);
    int32_t mortal; /* > 0: in processes of its own; so many, the last ones, may be killed */
} cf_engine_check;
/* Until a NULL name: results, then what goes through core. */
extern const cf_engine_check cf_engine_results[], cf_engine_faults[];

/* Memory with guards on either side, whose bytes tell what is written beside it. */
typedef struct cf_block {
    unsigned char *all, *at;
    size_t n, guard;
} cf_block;
cf_block cf_block_new(size_t bytes, size_t guard);
/* Frees it; whatever was written beside it is a failure. */
void cf_block_free(cf_rank *r, cf_block *b, const tn_exchange *x);

/* The checks of messages, engine_messages.c. */
void cf_check_tags(cf_rank *r);
void cf_check_any(cf_rank *r);
void cf_check_sizes(cf_rank *r);

/* `tenon-conform --engine NAME`: the exit status. */
int cf_engine_main(int argc, char **argv);
/* Runs checks as one of the ranks: the exit status. */
int cf_engine_rank(const cf_engine_options *o);
/* Whether a check is one of those that these processes run. */
bool cf_engine_wants(const cf_engine_options *o, const cf_engine_check *c);

#endif
