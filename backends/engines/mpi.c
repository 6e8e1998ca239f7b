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

typedef struct mpi_request mpi_request;

typedef struct mpi_group {
    MPI_Comm comm;
    int size;
    int owned;
    mpi_request *first; /* RECVs whose messages have not come, in the order of their starts */
    unsigned walk;      /* the last one through that list */
    unsigned none[];    /* [size + 1] the walk in which no message came from that rank; from any */
} mpi_group;

struct mpi_request {
    MPI_Request request; /* of a message: when it has come */
    int *counts;         /* four lists of ALL_TO_ALL, or NULL */
    int is_message;      /* a RECV, which what follows belongs to */
    int has_come;
    int count, source, tag; /* of what is expected; the source may be MPI_ANY_SOURCE */
    MPI_Datatype type;
    void *out;
    MPI_Count bytes, expected; /* that the message has, and that out has */
    void *spill;               /* for a message that is larger than out; or NULL */
    int code;                  /* of its Imrecv, if it has come and there was memory for it */
    int lacks_memory;
    mpi_request *next;
};

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
    int size = 0;
    MPI_Comm_size(comm, &size);
    mpi_group *g = calloc(1, sizeof *g + ((size_t)size + 1) * sizeof g->none[0]);
    if (!g) return fail_memory(why);
    g->comm = comm;
    g->owned = owned;
    g->size = size;
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
    default: return MPI_Isend(x->in, n, type, x->peer, x->tag, g->comm, ret);
    }
}

/* Messages are looked at before they are received. MPI_Irecv would say that one is larger than its
 * place, but only afterwards: Open MPI 4.1 writes the whole of a message that processes of one machine
 * copy from each other's memory, beyond the end of the place. */
static void start_message(mpi_group *g, const tn_exchange *x, mpi_request *r) {
    int size = 1;
    MPI_Type_size(r->type, &size);
    r->is_message = 1;
    r->count = (int)x->count;
    r->source = x->peer == TN_EXCHANGE_ANY ? MPI_ANY_SOURCE : x->peer;
    r->tag = x->tag;
    r->out = x->out;
    r->expected = (MPI_Count)x->count * size;
    mpi_request **end = &g->first;
    while (*end) end = &(*end)->next;
    *end = r;
}

static void free_request(mpi_request *r) {
    free(r->counts);
    free(r->spill);
    free(r);
}

static tn_status start(void *group, const tn_exchange *x, void **ret_request, char *why) {
    mpi_group *g = group;
    if (x->kind != TN_EXCHANGE_BARRIER && type_of(x->dtype) == MPI_DATATYPE_NULL) {
        snprintf(why, TN_ENGINE_WHY, "a dtype that the engine does not know");
        return TN_E_DTYPE;
    }
    mpi_request *r = calloc(1, sizeof *r);
    if (!r) return fail_memory(why);
    tn_status st = TN_OK;
    r->type = type_of(x->dtype);
    if (x->kind == TN_EXCHANGE_RECV) {
        start_message(g, x, r);
    } else if (x->kind == TN_EXCHANGE_ALL_TO_ALL) {
        st = start_all_to_all(g, x, r, why);
    } else {
        int code = start_plain(g, x, &r->request);
        if (code != MPI_SUCCESS) st = fail(why, "MPI", code);
    }
    if (st != TN_OK) {
        free_request(r);
        return st;
    }
    *ret_request = r;
    return TN_OK;
}

/* Receives a message for r. A larger one than expected goes to a place of its own, as its sender waits
 * for it to be taken. What goes wrong is said when r is asked for. */
static void receive(mpi_request *r, MPI_Message *message, const MPI_Status *status) {
    r->has_come = 1;
    MPI_Get_elements_x(status, MPI_BYTE, &r->bytes);
    if (r->bytes <= r->expected) {
        r->code = MPI_Imrecv(r->out, r->count, r->type, message, &r->request);
        return;
    }
    /* in doubles, of which an int counts as many as any message has */
    size_t doubles = ((size_t)r->bytes + sizeof(double) - 1) / sizeof(double);
    r->spill = calloc(doubles, sizeof(double));
    if (r->spill)
        r->code = MPI_Imrecv(r->spill, (int)doubles, MPI_DOUBLE, message, &r->request);
    else
        r->lacks_memory = 1;
}

/* Takes the RECV out of the list that a message of that rank and tag is for: the first of them. */
static mpi_request *take_first(mpi_group *g, int source, int tag) {
    mpi_request **at = &g->first;
    while (*at &&
           ((*at)->tag != tag || ((*at)->source != source && (*at)->source != MPI_ANY_SOURCE)))
        at = &(*at)->next;
    mpi_request *r = *at;
    if (r) *at = r->next;
    return r;
}

/* Looks for a message of r until there is none. One that has come meanwhile may be for an earlier RECV,
 * which found nothing: r, of any rank, does not wait for it, as r's own may be of another rank. */
static tn_status look(mpi_group *g, mpi_request *r, char *why) {
    const int none_of = r->source == MPI_ANY_SOURCE ? g->size : r->source;
    while (!r->has_come && g->none[none_of] != g->walk && g->none[g->size] != g->walk) {
        MPI_Message message;
        MPI_Status status;
        int found = 0;
        int code = MPI_Improbe(r->source, r->tag, g->comm, &found, &message, &status);
        if (code != MPI_SUCCESS) return fail(why, "MPI_Improbe", code);
        if (found)
            receive(take_first(g, status.MPI_SOURCE, r->tag), &message, &status);
        else
            g->none[none_of] = g->walk;
    }
    return TN_OK;
}

/* Looks for messages of `last` and of those that were started before it with the same tag, in their
 * order. */
static tn_status look_until(mpi_group *g, const mpi_request *last, char *why) {
    tn_status st = TN_OK;
    g->walk++;
    for (mpi_request *r = g->first, *next; r && st == TN_OK; r = next) {
        next = r == last ? NULL : r->next;
        if (r->tag == last->tag) st = look(g, r, why);
    }
    return st;
}

static tn_status check_message(const mpi_request *r, char *why) {
    if (r->bytes == r->expected) return TN_OK;
    snprintf(why, TN_ENGINE_WHY, "the message has %lld bytes, %lld are expected",
             (long long)r->bytes, (long long)r->expected);
    return TN_E_VALUE;
}

/* A request that is given up: no walk finds it. */
static void forget(mpi_group *g, mpi_request *r) {
    mpi_request **at = &g->first;
    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
    free_request(r);
}

static tn_status test_from(void *group, void *request, int32_t *ret_done, int32_t *ret_peer,
                           char *why) {
    mpi_group *g = group;
    mpi_request *r = request;
    *ret_done = 0;
    if (r->is_message && !r->has_come) {
        tn_status st = look_until(g, r, why);
        if (st != TN_OK) {
            forget(g, r);
            return st;
        }
        if (!r->has_come) return TN_OK;
    }
    if (r->lacks_memory || r->code != MPI_SUCCESS) {
        tn_status st = r->lacks_memory ? fail_memory(why) : fail(why, "MPI_Imrecv", r->code);
        free_request(r);
        return st;
    }
    int done = 0;
    MPI_Status status;
    int code = MPI_Test(&r->request, &done, &status);
    *ret_done = done;
    if (code == MPI_SUCCESS && !done) return TN_OK;
    tn_status st = code == MPI_SUCCESS ? TN_OK : fail(why, "MPI", code);
    if (st == TN_OK && r->is_message) {
        *ret_peer = status.MPI_SOURCE;
        st = check_message(r, why);
    }
    free_request(r);
    return st;
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
