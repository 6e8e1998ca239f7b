/* mpi.c: MPI as an engine (tenon/engine.h). Compiled once for each MPI, as their handles differ; the
 * launcher's and the library's have to be the same one. Every exchange is a non-blocking call, so
 * nothing here waits but opening and making groups. */
#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/dtype.h>
#include <tenon/engine.h>

typedef struct mpi_group {
    MPI_Comm comm;
    int size;
    int owned;
} mpi_group;

typedef struct mpi_request {
    MPI_Request request;
    int *counts; /* four lists of ALL_TO_ALL, or NULL */
    MPI_Datatype type;
    int expected; /* elements of the message that is to come; -1: it is none */
} mpi_request;

static int was_aborted;

static tn_status fail(char *why, const char *what, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, TN_ENGINE_WHY, "%s: %.300s", what, text);
    return TN_E_IO;
}

static tn_status fail_memory(char *why) {
    snprintf(why, TN_ENGINE_WHY, "out of memory");
    return TN_E_MEMORY;
}

static MPI_Datatype type_of(int32_t dtype) {
    switch (dtype) {
    case TN_U8: return MPI_UINT8_T;
    case TN_I8: return MPI_INT8_T;
    case TN_I32: return MPI_INT32_T;
    case TN_I64: return MPI_INT64_T;
    case TN_F32: return MPI_FLOAT;
    case TN_F64: return MPI_DOUBLE;
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(uint32_t op) {
    const MPI_Op ops[TN_EXCHANGE_OPS] = {MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,
                                         MPI_BAND, MPI_BOR,  MPI_BXOR};
    return ops[op];
}

/* ---- Groups ------------------------------------------------------------------------------------*/

/* When the process ends; not after a failure, when the others may never come. */
static void end_mpi(void) {
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended && !was_aborted) MPI_Finalize();
}

static tn_status init_once(char *why) {
    int is_there = 0, level = 0;
    MPI_Initialized(&is_there);
    if (is_there) {
        MPI_Query_thread(&level);
    } else {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return fail(why, "MPI_Init_thread", code);
        /* where a request has ended already, MPICH asks the handlers of these */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        atexit(end_mpi);
    }
    if (level >= MPI_THREAD_SERIALIZED) return TN_OK;
    snprintf(why, TN_ENGINE_WHY, "this MPI may be called from one thread only");
    return TN_E_UNSUPPORTED;
}

static tn_status new_group(MPI_Comm comm, int owned, void **ret_group, char *why) {
    mpi_group *g = malloc(sizeof *g);
    if (!g) return fail_memory(why);
    *g = (mpi_group){.comm = comm, .owned = owned};
    MPI_Comm_size(comm, &g->size);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    *ret_group = g;
    return TN_OK;
}

static tn_status open_world(const tn_engine_place *place, void **ret_group, char *why) {
    tn_status st = init_once(why);
    if (st != TN_OK) return st;
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != place->rank || size != place->size) {
        snprintf(
            why, TN_ENGINE_WHY,
            "the launcher says rank %d of %d, this MPI says rank %d of %d: is it the launcher's "
            "own MPI?",
            (int)place->rank, (int)place->size, rank, size);
        return TN_E_VALUE;
    }
    MPI_Comm comm;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (code != MPI_SUCCESS) return fail(why, "MPI_Comm_dup", code);
    return new_group(comm, 1, ret_group, why);
}

static tn_status part(void *group, const int32_t *ranks, int32_t n, uint32_t id, int64_t timeout_ms,
                      void **ret_group, char *why) {
    (void)timeout_ms;
    const mpi_group *g = group;
    int *members = calloc((size_t)n, sizeof *members);
    if (!members) return fail_memory(why);
    for (int32_t i = 0; i < n; i++) members[i] = ranks[i];
    MPI_Group all, some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    int code = MPI_Comm_group(g->comm, &all);
    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(all, n, members, &some);
        if (code == MPI_SUCCESS)
            code = MPI_Comm_create_group(g->comm, some, (int)(id % 32768), &comm);
        if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
        MPI_Group_free(&all);
    }
    free(members);
    if (code != MPI_SUCCESS) return fail(why, "MPI_Comm_create_group", code);
    return new_group(comm, 1, ret_group, why);
}

static void close_group(void *group) {
    mpi_group *g = group;
    int ended = 0;
    MPI_Finalized(&ended);
    if (g->owned && !ended && !was_aborted) MPI_Comm_free(&g->comm);
    free(g);
}

static void abort_group(void *group, int32_t code) {
    was_aborted = 1;
    MPI_Abort(((mpi_group *)group)->comm, code);
}

/* ---- Exchanges ---------------------------------------------------------------------------------*/

/* Counts and places of the parts, as MPI wants them; false: more than an int holds, or no memory. */
static int fill_counts(const tn_exchange *x, int size, int *ret_lists) {
    const int64_t *counts[2] = {x->in_counts, x->out_counts};
    for (int side = 0; side < 2; side++) {
        int64_t sum = 0;
        for (int i = 0; i < size; i++) {
            ret_lists[2 * side * size + i] = (int)counts[side][i];
            ret_lists[(2 * side + 1) * size + i] = (int)sum;
            if (counts[side][i] < 0 || counts[side][i] > INT_MAX - sum) return 0;
            sum += counts[side][i];
        }
    }
    return 1;
}

static tn_status start_all_to_all(const mpi_group *g, const tn_exchange *x, mpi_request *r,
                                  char *why) {
    size_t n = (size_t)g->size;
    r->counts = calloc(n, sizeof(int[4]));
    if (!r->counts) return fail_memory(why);
    if (!fill_counts(x, g->size, r->counts)) {
        snprintf(why, TN_ENGINE_WHY, "all_to_all: more elements than this MPI counts");
        return TN_E_UNSUPPORTED;
    }
    int *c = r->counts;
    MPI_Datatype type = type_of(x->dtype);
    int code = MPI_Ialltoallv(x->in, c, c + n, type, x->out, c + 2 * n, c + 3 * n, type, g->comm,
                              &r->request);
    return code == MPI_SUCCESS ? TN_OK : fail(why, "MPI_Ialltoallv", code);
}

static int start_plain(const mpi_group *g, const tn_exchange *x, MPI_Request *ret) {
    MPI_Datatype type = type_of(x->dtype);
    MPI_Op op = op_of(x->op);
    int n = (int)x->count, rank = 0;
    MPI_Comm_rank(g->comm, &rank);
    switch (x->kind) {
    case TN_EXCHANGE_BARRIER: return MPI_Ibarrier(g->comm, ret);
    case TN_EXCHANGE_BROADCAST: return MPI_Ibcast(x->out, n, type, x->peer, g->comm, ret);
    case TN_EXCHANGE_ALL_REDUCE:
        return MPI_Iallreduce(MPI_IN_PLACE, x->out, n, type, op, g->comm, ret);
    case TN_EXCHANGE_REDUCE:
        return MPI_Ireduce(rank == x->peer ? MPI_IN_PLACE : x->out, x->out, n, type, op, x->peer,
                           g->comm, ret);
    case TN_EXCHANGE_ALL_GATHER:
        return MPI_Iallgather(x->in, n, type, x->out, n, type, g->comm, ret);
    case TN_EXCHANGE_REDUCE_SCATTER:
        return MPI_Ireduce_scatter_block(x->in, x->out, n, type, op, g->comm, ret);
    case TN_EXCHANGE_SEND: return MPI_Isend(x->in, n, type, x->peer, x->tag, g->comm, ret);
    default:
        return MPI_Irecv(x->out, n, type, x->peer == TN_EXCHANGE_ANY ? MPI_ANY_SOURCE : x->peer,
                         x->tag, g->comm, ret);
    }
}

static tn_status start(void *group, const tn_exchange *x, void **ret_request, char *why) {
    const mpi_group *g = group;
    if (x->kind != TN_EXCHANGE_BARRIER && type_of(x->dtype) == MPI_DATATYPE_NULL) {
        snprintf(why, TN_ENGINE_WHY, "a dtype that the engine does not know");
        return TN_E_DTYPE;
    }
    mpi_request *r = calloc(1, sizeof *r);
    if (!r) return fail_memory(why);
    tn_status st = TN_OK;
    r->type = type_of(x->dtype);
    r->expected = x->kind == TN_EXCHANGE_RECV ? (int)x->count : -1;
    if (x->kind == TN_EXCHANGE_ALL_TO_ALL) {
        st = start_all_to_all(g, x, r, why);
    } else {
        int code = start_plain(g, x, &r->request);
        if (code != MPI_SUCCESS) st = fail(why, "MPI", code);
    }
    if (st != TN_OK) {
        free(r->counts);
        free(r);
        return st;
    }
    *ret_request = r;
    return TN_OK;
}

/* A message that is longer than expected is an error of MPI's; a shorter one leaves old elements. */
static tn_status check_message(const mpi_request *r, const MPI_Status *status, int code,
                               char *why) {
    int class = MPI_SUCCESS, count = 0, size = 1;
    MPI_Type_size(r->type, &size);
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE) return fail(why, "MPI", code);
    if (class == MPI_ERR_TRUNCATE) {
        snprintf(why, TN_ENGINE_WHY, "the message has more bytes than the %lld that are expected",
                 (long long)size * r->expected);
        return TN_E_VALUE;
    }
    MPI_Get_count(status, r->type, &count);
    if (count == r->expected) return TN_OK;
    snprintf(why, TN_ENGINE_WHY, "the message has %lld bytes, %lld are expected",
             (long long)size * count, (long long)size * r->expected);
    return TN_E_VALUE;
}

static tn_status test_from(void *group, void *request, int32_t *ret_done, int32_t *ret_peer,
                           char *why) {
    (void)group;
    mpi_request *r = request;
    int done = 0;
    MPI_Status status;
    int code = MPI_Test(&r->request, &done, &status);
    *ret_done = done;
    if (code == MPI_SUCCESS && !done) return TN_OK;
    const mpi_request ended = *r;
    free(r->counts);
    free(r);
    if (ended.expected < 0) return code == MPI_SUCCESS ? TN_OK : fail(why, "MPI", code);
    *ret_peer = status.MPI_SOURCE;
    return check_message(&ended, &status, code, why);
}

static tn_status test(void *group, void *request, int32_t *ret_done, char *why) {
    int32_t peer;
    return test_from(group, request, ret_done, &peer, why);
}

static const tn_engine table = {
    .struct_size = sizeof table,
    .version = TN_ENGINE_VERSION,
    .name = "mpi",
    .open = open_world,
    .part = part,
    .start = start,
    .test = test,
    .close = close_group,
    .abort = abort_group,
    .test_from = test_from,
};

__attribute__((visibility("default"))) const tn_engine *tn_engine_main(uint32_t version);
const tn_engine *tn_engine_main(uint32_t version) {
    return version == TN_ENGINE_VERSION ? &table : NULL;
}
