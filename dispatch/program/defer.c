/* defer.c: calls that are put off until somebody needs a result.
 *
 * While a thread defers, pointwise calls become nodes of a program, its queue, and their results are late
 * tensors: headers without memory (core_priv.h). The program runs, with its groups, when a late tensor is
 * met where memory is needed; what nobody holds any more by then is not computed. All that is not put off
 * runs at once, since what waits draws no random numbers and writes nothing but its own result.
 *
 * What a queue reads must be the same when it runs. So it takes only memory of core's own whose address
 * nobody has (TNI_ST_SHOWN), through the one header that looks at it, and marks that header read-only:
 * whoever wants to write, or to make the memory another's, runs the queue first (tni_is_readonly).
 *
 * A queue's lock is held while it runs, and nothing that is called meanwhile needs the host language:
 * references to tensors that it may know are dropped afterwards. */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/args_create.h>
#include <tenon/runtime.h>

#include "copy_priv.h"
#include "layers_priv.h"
#include "op_create.h"
#include "os_priv.h"
#include "tensor_priv.h"

enum {
    MOST = 48,       /* calls that wait */
    MOST_LENT = 96,  /* tensors that they read */
    FEWEST = 1 << 18 /* elements: below, a call costs less than to put it off */
};
/* Inputs that only the queue keeps alive. */
static const int64_t MOST_BYTES = INT64_C(1) << 26;

typedef struct queue {
    _Atomic uint32_t refs; /* of its thread or the list, and of each late tensor */
    tni_recorder *recorder;
    tn_program *program; /* set when nothing more is put off */
    tn_tensor *late[MOST], *out[MOST];
    tn_tensor *lent[MOST_LENT];
    int32_t nlate, nout, nlent, ncalls;
    int64_t lent_bytes;
    bool done, left; /* left: references are still to be dropped */
    struct queue *next;
} queue;

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static queue *queues; /* those that are not done */
static TN_TLS queue *mine;
static TN_TLS int32_t depth;

static void queue_unref(queue *q) {
    if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) == 1) free(q);
}

static void end_late(void *ctx) { queue_unref(ctx); }

static tn_status queue_new(queue **ret_queue) {
    queue *q = calloc(1, sizeof *q);
    if (!q) return tni_p_memory();
    tn_status st = tni_recorder_new(&q->recorder);
    if (st != TN_OK) {
        free(q);
        return st;
    }
    atomic_store_explicit(&q->refs, 1, memory_order_relaxed);
    q->next = queues;
    queues = q;
    *ret_queue = q;
    return TN_OK;
}

/* ---- Programs that have run: with the lock -----------------------------------------------------
 * Loops queue the same calls again and again, and to find and compile the groups of a program takes
 * longer than to run them. These programs hold no tensors. */

enum { KNOWN = 32 };
static tn_program *known[KNOWN];
static int32_t next_known;

/* All bytes of two argument structs but addresses, whose contents are compared. */
static bool same_args(const tni_pnode *a, const tni_pnode *b) {
    _Alignas(16) unsigned char x[TNI_MAX_ARGS_BYTES], y[TNI_MAX_ARGS_BYTES];
    memcpy(x, a->args, a->op->args_bytes);
    memcpy(y, b->args, a->op->args_bytes);
    for (int i = 0; i < a->op->nfields; i++) {
        const tn_field *f = &a->op->fields[i];
        void *u = x + f->offset, *v = y + f->offset;
        if (f->kind == TN_F_INTS || f->kind == TN_F_DIMS) {
            tn_ints *m = u, *n = v;
            if (m->n != n->n) return false;
            if (m->n > 0 && memcmp(m->v, n->v, sizeof *m->v * (size_t)m->n) != 0) return false;
            m->v = n->v = NULL;
        } else if (f->kind == TN_F_STR) {
            const char **m = u, **n = v;
            if (!*m != !*n || (*m && strcmp(*m, *n) != 0)) return false;
            *m = *n = NULL;
        }
    }
    return memcmp(x, y, a->op->args_bytes) == 0;
}

static bool same_ids(const int32_t *a, const int32_t *b, int32_t n) {
    return memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

static bool same_node(const tni_pnode *a, const tni_pnode *b) {
    if (a->op != b->op || a->nin != b->nin || a->nout != b->nout || a->fresh != b->fresh ||
        !same_ids(a->in, b->in, a->nin) || !same_ids(a->out, b->out, a->nout) ||
        !a->number != !b->number)
        return false;
    if (a->number && memcmp(a->number, b->number, sizeof *a->number * (size_t)a->nin) != 0)
        return false;
    return same_args(a, b);
}

static bool same_value(const tni_pvalue *a, const tni_pvalue *b) {
    return a->role == b->role && a->place == b->place && a->dtype == b->dtype &&
           a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) == 0;
}

static bool same_program(const tn_program *a, const tn_program *b) {
    if (a->nnodes != b->nnodes || a->nvalues != b->nvalues || a->noutputs != b->noutputs ||
        !same_ids(a->output, b->output, a->noutputs))
        return false;
    for (int32_t i = 0; i < a->nnodes; i++)
        if (!same_node(&a->node[i], &b->node[i])) return false;
    for (int32_t i = 0; i < a->nvalues; i++)
        if (!same_value(&a->value[i], &b->value[i])) return false;
    return true;
}

/* The program that has run in place of an equal one, or NULL. */
static tn_program *find_known(const tn_program *p) {
    for (int32_t i = 0; i < KNOWN; i++)
        if (known[i] && same_program(known[i], p)) return known[i];
    return NULL;
}

/* Gives the tensors of one program to another. */
static void hand_over(tn_program *from, tn_program *to) {
    for (int32_t i = 0; i < from->nvalues; i++) {
        tn_tensor *t = from->value[i].t;
        from->value[i].t = to->value[i].t;
        to->value[i].t = t;
    }
}

/* The queue has references to what the program lets go of. */
static void keep_known(tn_program *p) {
    for (int32_t i = 0; i < p->nvalues; i++) tn_tensor_unref(&p->value[i].t);
    tn_program_unref(&known[next_known]);
    known[next_known] = tn_program_ref(p);
    next_known = (next_known + 1) % KNOWN;
}

/* ---- Running: with the lock --------------------------------------------------------------------*/

/* The results that somebody holds become what the program computes. */
static tn_status close_queue(queue *q) {
    tn_program *p = tni_recorder_program(q->recorder);
    p->noutputs = 0;
    for (int32_t i = q->nout = 0; i < p->nvalues; i++) {
        tn_tensor *t = p->value[i].role == TNI_P_NODE ? p->value[i].t : NULL;
        if (!t || !tn_tensor_is_shared(t)) continue;
        TN_TRY(tni_p_append(&p->output, &p->noutputs, i));
        q->out[q->nout++] = t;
    }
    TN_TRY(tni_p_settle(p));
    for (int32_t i = 0; i < p->nvalues; i++) {
        if (p->value[i].role != TNI_P_NODE) continue;
        q->late[q->nlate++] = p->value[i].t;
        p->value[i].t = NULL;
    }
    p->recorded = true;
    q->program = tn_program_ref(p);
    return tn_program_optimize(p, TN_PROGRAM_DEAD);
}

static bool lies_like(const tn_tensor *t, const tn_tensor *r) {
    if (tni_offset_bytes(r) || (r->storage->flags & TNI_ST_RELEASE) ||
        atomic_load_explicit(&r->storage->refs, memory_order_acquire) != 1)
        return false;
    for (int32_t d = 0; d < t->v.ndim; d++)
        if (t->v.shape[d] != 1 && t->v.strides[d] != r->v.strides[d]) return false;
    return true;
}

/* A result whose memory t can take over. */
static tn_status fit(const tn_tensor *t, tn_tensor **r) {
    tn_tensor *copy;
    if (lies_like(t, *r)) return TN_OK;
    TN_TRY(tn_tensor_new_strided(tn_view_dtype(&t->v), tn_tensor_device(t), t->v.ndim, t->v.shape,
                                 t->v.strides, &copy));
    tn_status st = tni_copy_into(copy, *r);
    tn_tensor *old = st == TN_OK ? *r : copy;
    if (st == TN_OK) *r = copy;
    tn_tensor_unref(&old);
    return st;
}

/* The memory changes hands, the storages stay with their tensors. The word comes last: whoever sees that
 * the tensor is no longer late sees the rest. */
static void take_over(tn_tensor *t, tn_tensor *r) {
    const uint64_t dense = TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST | TN_W_DENSE;
    tn_storage *to = t->storage, *from = r->storage;
    void *ctx = to->ctx;
    to->data = from->data;
    to->bytes = from->bytes;
    to->ctx = from->ctx;
    to->release = from->release;
    to->flags = from->flags;
    from->data = NULL;
    from->bytes = 0;
    from->ctx = ctx;
    from->release = end_late;
    from->flags = TNI_ST_RELEASE;
    tni_attach(t, to, 0);
    uint64_t word = (t->v.word & ~TN_W_LAYOUT) | (r->v.word & dense);
    __atomic_store_n(&t->v.word, word, __ATOMIC_RELEASE);
}

static tn_status run_program(const tn_program *p, tn_tensor **ret_tensors, int32_t n) {
    uint64_t layers = tni_tls.layers;
    const struct tni_watcher *watcher = tni_tls.watcher;
    uint32_t inference = tni_tls.inference;
    tni_tls.layers = 0;
    tni_tls.watcher = NULL;
    tni_tls.inference = 0;
    tni_grad_off();
    tn_status st = tn_program_run(p, NULL, 0, ret_tensors, n);
    tni_grad_on();
    tni_tls.layers = layers;
    tni_tls.watcher = watcher;
    tni_tls.inference = inference;
    return st;
}

/* On failure all stays as it was, to be tried again when somebody looks again. */
static tn_status compute(queue *q) {
    tn_tensor *made[MOST] = {NULL};
    if (q->nout == 0) return TN_OK;
    tn_program *p = find_known(q->program);
    if (p) hand_over(q->program, p);
    tn_status st = run_program(p ? p : q->program, made, q->nout);
    if (p) hand_over(p, q->program);
    for (int32_t i = 0; i < q->nout && st == TN_OK; i++) st = fit(q->out[i], &made[i]);
    for (int32_t i = 0; i < q->nout; i++) {
        if (st == TN_OK) take_over(q->out[i], made[i]);
        tn_tensor_unref(&made[i]);
    }
    if (st == TN_OK && !p) keep_known(q->program);
    return st;
}

static tn_status finish(queue *q) {
    if (!q->program) TN_TRY(close_queue(q));
    TN_TRY(compute(q));
    for (int32_t i = 0; i < q->nlent; i++)
        __atomic_fetch_and(&q->lent[i]->v.word, ~TN_W_READONLY, __ATOMIC_RELEASE);
    queue **at = &queues;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    q->done = q->left = true;
    return TN_OK;
}

/* ---- Running: without --------------------------------------------------------------------------*/

/* The caller has a reference to q. */
static tn_status run_queue(queue *q) {
    tni_host_log_hold();
    tni_os_lock(&lock);
    tn_status st = q->done ? TN_OK : finish(q);
    bool left = q->left;
    q->left = false;
    tni_os_unlock(&lock);
    tni_host_log_release();
    if (!left) return st;
    for (int32_t i = 0; i < q->nlate; i++) tn_tensor_unref(&q->late[i]);
    for (int32_t i = 0; i < q->nlent; i++) tn_tensor_unref(&q->lent[i]);
    tn_program_unref(&q->program);
    tni_recorder_free(&q->recorder);
    return st;
}

static tn_status run_mine(void) {
    queue *q = mine;
    mine = NULL;
    if (!q) return TN_OK;
    tn_status st = run_queue(q);
    queue_unref(q);
    return st;
}

/* Another thread may have run it meanwhile: with the lock, since its storage's owner changes then. */
static tn_status settle(tn_tensor *t) {
    queue *q = NULL;
    tni_os_lock(&lock);
    if (tni_is_late(t)) {
        q = t->storage->ctx;
        atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    }
    tni_os_unlock(&lock);
    if (!q) return TN_OK;
    tn_status st = run_queue(q);
    queue_unref(q);
    if (st == TN_OK && tni_is_late(t))
        st = tn_fail(TN_E_INTERNAL, -1, "what was put off did not compute its result");
    return st;
}

static tn_status settle_all(void) {
    for (;;) {
        tni_os_lock(&lock);
        queue *q = queues;
        if (q) atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
        tni_os_unlock(&lock);
        if (!q) return TN_OK;
        tn_status st = run_queue(q);
        queue_unref(q);
        if (st != TN_OK) return st;
    }
}

/* ---- Which calls wait --------------------------------------------------------------------------*/

static bool is_float(const tn_tensor *t) {
    return tni_category(tn_view_dtype(&t->v)) == TN_CAT_FLOAT;
}

/* Whether a queue may read it, as far as is known without the lock. Other dtypes than floating ones and
 * bool are left out: what they are combined to may follow from the default dtype. */
static bool is_plain(const tn_tensor *t) {
    int32_t dtype = tn_view_dtype(&t->v);
    if (tn_view_device(&t->v) != 0 || (t->v.word & (TN_W_SCALAR | TN_W_SPECIAL)) || !t->storage)
        return false;
    if (dtype >= TN_DTYPE_BUILTIN_COUNT || !(is_float(t) || dtype == TN_BOOL)) return false;
    if (tni_recording(t->v.word)) return false;
    if (tni_is_late(t)) return true;
    const uint32_t flags = t->storage->flags;
    return !(t->v.word & TN_W_LAYOUT) && (flags & ~TNI_ST_LENT) == 0 && t->v.data &&
           !(t->flags & TNI_T_NO_VERSION);
}

static bool is_pure(const tn_op *op, const void *args) {
    if (op->nout != 1 || (op->flags & (TNI_OP_LIST_OUT | TNI_OP_INPLACE_ONLY | TNI_OP_WRITES)) ||
        tni_p_is_random(op) || op->args_bytes > TNI_MAX_ARGS_BYTES)
        return false;
    if (*tni_out_slot(op, (void *)(uintptr_t)args, 0)) return false;
    if (op->info.kind == TN_OP_POINTWISE) return true;
    return op->info.kind == TN_OP_COMPOSITE && !tni_p_has_kernels(op) &&
           (op == &tni_op__to_copy || (op->vmap && strcmp(op->vmap, "pointwise") == 0));
}

static bool can_wait(const tn_op *op, const void *args) {
    bool large = false;
    if (tni_tls.layers != TNI_LAYER_DEFERRED || tni_tls.watcher || !is_pure(op, args)) return false;
    for (int i = 0; i < op->nin; i++) {
        if (tni_is_list(tni_in_field(op, i))) return false;
        const tn_tensor *t = tni_in_slot(op, args, i);
        if (!t || (t->flags & TNI_T_STACK)) continue;
        if (!is_plain(t)) return false;
        large |= is_float(t) && t->v.ndim > 0 && t->v.numel >= FEWEST;
    }
    return large;
}

/* ---- Putting off -------------------------------------------------------------------------------*/

static tn_status shadow(const tn_tensor *t, tn_tensor **ret_tensor) {
    return tn_tensor_new_strided(tn_view_dtype(&t->v), (tn_device){TN_META_SLOT, 0}, t->v.ndim,
                                 t->v.shape, t->v.strides, ret_tensor);
}

/* The call on tensors without data: what its result is like. */
static tn_status infer(const tn_op *op, const void *args, tn_tensor **ret_like) {
    _Alignas(16) unsigned char own[TNI_MAX_ARGS_BYTES];
    tn_tensor *made[TN_MAX_OPERANDS] = {NULL};
    uint64_t layers = tni_tls.layers;
    tn_status st = TN_OK;
    memcpy(own, args, op->args_bytes);
    for (int i = 0; i < op->nin && st == TN_OK; i++) {
        const tn_tensor *t = tni_in_slot(op, args, i);
        if (!t || (t->flags & TNI_T_STACK)) continue;
        st = shadow(t, &made[i]);
        *(tn_tensor **)(void *)(own + op->in_offset[i]) = made[i];
    }
    tni_tls.layers = 0;
    if (st == TN_OK) st = tni_op_run(op, own, ret_like);
    tni_tls.layers = layers;
    for (int i = 0; i < op->nin; i++) tn_tensor_unref(&made[i]);
    return st;
}

static tn_status late_like(const tn_tensor *like, queue *q, tn_tensor **ret_tensor) {
    const uint64_t dense = TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST | TN_W_DENSE;
    tn_device cpu = {0, 0};
    tn_storage *s;
    tn_tensor *t;
    TN_TRY(tni_header_new(tn_view_dtype(&like->v), cpu, like->v.ndim, like->v.shape,
                          like->v.strides, &t));
    uint64_t bytes = (uint64_t)(t->v.numel * tn_view_itemsize(&t->v));
    tn_status st = tni_storage_foreign(cpu, NULL, bytes, 0, end_late, q, &s);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    t->storage = s;
    t->v.word = (t->v.word & ~dense) | TN_W_LAYOUT;
    *ret_tensor = t;
    return TN_OK;
}

/* Whether the queue may read what is given now. */
static bool may_read(queue *q, const tn_tensor *t) {
    int32_t id;
    if (tni_is_late(t)) return t->storage->ctx == q;
    if (tni_recorder_find(q->recorder, t, &id) != TN_OK) return false;
    if (id >= 0) return true;
    return !(t->v.word & TN_W_READONLY) &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1;
}

static void lend(queue *q, tn_tensor *t) {
    for (int32_t i = 0; i < q->nlent; i++)
        if (q->lent[i] == t) return;
    q->lent[q->nlent++] = tn_tensor_ref(t);
    q->lent_bytes += t->v.numel * tn_view_itemsize(&t->v);
    __atomic_fetch_or(&t->storage->flags, TNI_ST_LENT, __ATOMIC_RELAXED);
    __atomic_fetch_or(&t->v.word, TN_W_READONLY, __ATOMIC_RELEASE);
}

/* With the lock. */
static tn_status add_call(queue *q, const tn_op *op, const void *args, const tn_tensor *like,
                          tn_tensor **ret_tensor) {
    tn_tensor *t;
    if (q->done || q->program) return TN_DECLINE;
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *in = tni_in_slot(op, args, i);
        if (in && !(in->flags & TNI_T_STACK) && !may_read(q, in)) return TN_DECLINE;
    }
    TN_TRY(late_like(like, q, &t));
    tn_status st = tni_recorder_add(q->recorder, op, args, t);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    for (int i = 0; i < op->nin; i++) {
        tn_tensor *in = tni_in_slot(op, args, i);
        if (in && !(in->flags & TNI_T_STACK) && !tni_is_late(in)) lend(q, in);
    }
    q->ncalls++;
    *ret_tensor = t;
    return TN_OK;
}

/* Two references are the recorder's and the queue's. */
static bool keeps_too_much(const queue *q) {
    int64_t bytes = 0;
    if (q->lent_bytes <= MOST_BYTES) return false;
    for (int32_t i = 0; i < q->nlent; i++) {
        tn_tensor *t = q->lent[i];
        if (atomic_load_explicit(&t->refs, memory_order_relaxed) <= 2)
            bytes += t->v.numel * tn_view_itemsize(&t->v);
    }
    return bytes > MOST_BYTES;
}

static bool is_full(const queue *q) {
    return q->ncalls >= MOST || q->nlent + TN_MAX_OPERANDS > MOST_LENT || keeps_too_much(q);
}

static void end_thread(void) {
    if (run_mine() != TN_OK) return; /* whoever holds a result tries again, and hears of it */
}

static tn_status try_add(const tn_op *op, const void *args, const tn_tensor *like,
                         tn_tensor **ret_tensor) {
    tn_status st = TN_OK;
    tni_os_at_thread_exit(end_thread);
    tni_os_lock(&lock);
    if (!mine || mine->done || mine->program) {
        if (mine) queue_unref(mine);
        mine = NULL;
        st = queue_new(&mine);
    }
    if (st == TN_OK) st = add_call(mine, op, args, like, ret_tensor);
    tni_os_unlock(&lock);
    return st;
}

/* No late tensor is among its arguments either, since none is smaller than what it is computed from. */
static bool is_small(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *t = tni_is_list(tni_in_field(op, i)) ? NULL : tni_in_slot(op, args, i);
        if (tni_is_list(tni_in_field(op, i)) || (t && t->v.numel >= FEWEST)) return false;
    }
    tni_span given = tni_given(op, (void *)(uintptr_t)args);
    for (int64_t i = 0; i < given.n; i++)
        if (given.v[i]) return false;
    return true;
}

static tn_status put_off(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *like = NULL;
    if (is_small(op, args)) return TN_DECLINE;
    if (!can_wait(op, args)) {
        TN_TRY(tni_settle_args(op, args));
        return TN_DECLINE;
    }
    if (mine && is_full(mine)) {
        TN_TRY(run_mine());
        if (!can_wait(op, args)) return TN_DECLINE;
    }
    /* what fails fails in the call itself, which says why */
    tn_status st = infer(op, args, &like);
    if (st == TN_OK && like->v.numel < FEWEST) st = TN_DECLINE;
    if (st == TN_OK) st = try_add(op, args, like, rets);
    tn_tensor_unref(&like);
    if (st == TN_OK) return TN_OK;
    TN_TRY(tni_settle_args(op, args));
    return TN_DECLINE;
}

/* ---- The interface -----------------------------------------------------------------------------*/

tn_status tn_deferred_begin(void) {
    if (depth++ == 0) tni_tls.layers |= TNI_LAYER_DEFERRED;
    return TN_OK;
}

tn_status tn_deferred_end(void) {
    if (depth == 0) return tn_fail(TN_E_STATE, -1, "deferred_end(): the thread does not defer");
    if (--depth == 0) tni_tls.layers &= ~TNI_LAYER_DEFERRED;
    return run_mine();
}

int32_t tn_deferred_calls(void) {
    tni_os_lock(&lock);
    int32_t n = mine && !mine->done ? mine->ncalls : 0;
    tni_os_unlock(&lock);
    return n;
}

__attribute__((constructor)) static void fill_hooks(void) {
    tni_late = (tni_late_hooks){put_off, settle, settle_all};
}
