/* capture.c: records the work of a thread into a graph (capture_priv.h). */
#include <stdlib.h>

#include "capture_priv.h"
#include "call_priv.h"
#include "memory_priv.h"
#include "op_pointwise.h"

/* What a storage held before the capture first wrote to it. */
typedef struct saved {
    tn_storage *storage;
    void *bytes;
    struct saved *next;
} saved;

typedef struct saved_generator {
    tn_generator *gen;
    uint64_t bytes;
    struct saved_generator *next;
    unsigned char state[];
} saved_generator;

struct tni_capture {
    tn_graph *graph;
    tn_stream *before;  /* the thread's stream of the device, NULL: its default */
    void *queue;        /* what the device records */
    const char *broken; /* what was tried that cannot be captured */
    saved *saved;
    saved_generator *generators;
};

static TN_TLS struct tni_capture *now; /* of the thread; NULL: it captures nothing */

static bool same(tn_device a, tn_device b) { return a.slot == b.slot && a.index == b.index; }

/* The device that records by itself what the thread queues there. */
static bool is_native(tn_device device) {
    const struct tni_capture *c = now;
    return c && c->graph->native && same(device, c->graph->device);
}

static bool records_steps(void) { return now && !now->graph->native; }

tn_graph *tni_capture_graph(void) { return now ? now->graph : NULL; }

/* ---- What cannot be captured -------------------------------------------------------------------*/

static tn_status refuse(const char *what, const char *op) {
    now->broken = what;
    return tn_fail(TN_E_STATE, -1, "%s%s%s is not possible while a graph is captured", op ? op : "",
                   op ? ": " : "", what);
}

static tn_status forbid(tn_device device, bool native, const char *what, const char *op) {
    return (!native && records_steps()) || is_native(device) ? refuse(what, op) : TN_OK;
}

/* A failure of the recording itself. */
static tn_status checked(tn_status st) {
    if (st != TN_OK) now->broken = "recording more than there is memory for";
    return st;
}

static tn_status no_memory(void) { return tn_fail(TN_E_MEMORY, -1, "out of memory"); }

/* ---- Things that a graph keeps -----------------------------------------------------------------*/

static void drop_tensor(void *what) {
    tn_tensor *t = what;
    tn_tensor_unref(&t);
}

static void drop_storage(void *what) {
    tn_storage *spare = NULL;
    tni_storage_unref(what, &spare);
    free(spare);
}

static void drop_generator(void *what) {
    tn_generator *gen = what;
    tn_generator_unref(&gen);
}

static tn_status room(tn_graph *g, size_t bytes, void **ret_memory) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) return no_memory();
    *ret_memory = p;
    return tni_graph_own(g, free, p);
}

static tn_status room_for(tn_graph *g, const void *from, size_t bytes, void **ret_copy) {
    TN_TRY(room(g, bytes, ret_copy));
    if (bytes) memcpy(*ret_copy, from, bytes);
    return TN_OK;
}

static tn_status keep_storage(tn_graph *g, tn_storage *s) {
    return tni_graph_own(g, drop_storage, tni_storage_ref(s));
}

/* A header of the graph's own over the same memory: what becomes of t does not matter later. */
static tn_status freeze_tensor(tn_graph *g, const tn_tensor *t, tn_tensor **ret_tensor) {
    tn_tensor *own = NULL;
    tn_scalar number;
    *ret_tensor = NULL;
    if (!t) return TN_OK;
    if (t->flags & TNI_T_STACK) {
        tni_scalar_load(tn_view_dtype(&t->v), t->v.data, &number);
        TN_TRY(tni_scalar_heap(number, &own));
    } else {
        TN_TRY(tni_detach(t, &own));
        own->v.word |= t->v.word & TN_W_SCALAR;
    }
    *ret_tensor = own;
    return tni_graph_own(g, drop_tensor, own);
}

static tn_status freeze_list(tn_graph *g, tn_views *list) {
    void *room_of = NULL;
    const tn_views given = *list;
    if (given.n <= 0) return TN_OK;
    TN_TRY(room(g, sizeof(tn_view *) * (size_t)given.n, &room_of));
    tn_tensor **own = room_of;
    for (int64_t i = 0; i < given.n; i++)
        TN_TRY(freeze_tensor(g, given.v[i] ? tni_t(given.v[i]) : NULL, &own[i]));
    list->v = (tn_view *const *)room_of;
    return TN_OK;
}

/* A kernel may copy the struct, so all of it is there; what lies beyond ndim is zero. */
static tn_status freeze_plan(tn_graph *g, const tn_plan **plan) {
    size_t dims = (size_t)((*plan)->ndim > 0 ? (*plan)->ndim : 1);
    size_t used = offsetof(tn_plan, stride) + dims * sizeof(*plan)->stride[0];
    void *copy = NULL;
    TN_TRY(room(g, sizeof **plan, &copy));
    memcpy(copy, *plan, used);
    memset((char *)copy + used, 0, sizeof **plan - used);
    tn_plan *own = copy;
    for (int32_t k = 0; k < own->noperands; k++)
        if (own->scalar_mask >> k & 1u)
            TN_TRY(room_for(g, own->data[k], (size_t)tn_dtype_size(own->dtype[k]), &own->data[k]));
    *plan = own;
    return TN_OK;
}

static tn_status freeze_field(tn_graph *g, const tn_field *f, void *p) {
    void *copy = NULL;
    switch (f->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND:
    case TN_F_OUT: return freeze_tensor(g, *(tn_tensor **)p, p);
    case TN_F_TENSORS:
    case TN_F_OUTS: return freeze_list(g, p);
    case TN_F_INTS:
    case TN_F_DIMS: {
        tn_ints *list = p;
        if (list->n <= 0) return TN_OK;
        TN_TRY(room_for(g, list->v, sizeof *list->v * (size_t)list->n, &copy));
        list->v = copy;
        return TN_OK;
    }
    case TN_F_STR: {
        const char **text = p;
        if (!*text) return TN_OK;
        TN_TRY(room_for(g, *text, strlen(*text) + 1, &copy));
        *text = copy;
        return TN_OK;
    }
    case TN_F_GENERATOR: {
        tn_generator *gen = *(tn_generator **)p;
        return gen ? tni_graph_own(g, drop_generator, tn_generator_ref(gen)) : TN_OK;
    }
    default: return TN_OK;
    }
}

static tn_status freeze_args(tn_graph *g, const tn_op *op, const void *args, void **ret_args) {
    TN_TRY(room_for(g, args, op->args_bytes, ret_args));
    const tn_plan **plan = *ret_args;
    if (*plan) TN_TRY(freeze_plan(g, plan));
    for (int i = 0; i < op->nfields; i++)
        TN_TRY(freeze_field(g, &op->fields[i], (char *)*ret_args + op->fields[i].offset));
    return TN_OK;
}

/* ---- What is overwritten -----------------------------------------------------------------------*/

static bool is_host(tn_device device) {
    return (tni_device_at(device.slot)->desc.flags & TN_DEV_HOST) != 0;
}

/* The bytes of a storage, out of it or back into it. */
static tn_status transfer(tn_storage *s, void *bytes, bool back) {
    const tn_device_desc *d = &tni_device_at(s->device.slot)->desc;
    void *stream = tni_stream_of(s->device);
    if (is_host(s->device)) {
        if (s->device.slot != 0)
            TN_TRY(
                tni_error_of_plugin(tni_caught(d->sync(d->ctx, s->device.index)), "sync", d->name));
        memcpy(back ? s->data : bytes, back ? bytes : s->data, s->bytes);
        return TN_OK;
    }
    tn_status st =
        back
            ? tni_caught(d->copy_in(d->ctx, s->device.index, s->data, 0, bytes, s->bytes, stream))
            : tni_caught(d->copy_out(d->ctx, s->device.index, bytes, s->data, 0, s->bytes, stream));
    return tni_error_of_plugin(st, back ? "copy_in" : "copy_out", d->name);
}

static tn_status save(tn_storage *s) {
    struct tni_capture *c = now;
    if (!s || !s->bytes || !s->data || c->graph->native) return TN_OK;
    for (const saved *k = c->saved; k; k = k->next)
        if (k->storage == s) return TN_OK;
    saved *k = malloc(sizeof *k);
    void *bytes = malloc(s->bytes);
    tn_status st = k && bytes ? transfer(s, bytes, false) : no_memory();
    if (st != TN_OK) {
        free(k);
        free(bytes);
        return st;
    }
    *k = (saved){tni_storage_ref(s), bytes, c->saved};
    c->saved = k;
    return TN_OK;
}

static tn_status restore_storages(struct tni_capture *c) {
    tn_status st = TN_OK;
    while (c->saved) {
        saved *k = c->saved;
        c->saved = k->next;
        tn_status each = transfer(k->storage, k->bytes, true);
        if (st == TN_OK) st = each;
        drop_storage(k->storage);
        free(k->bytes);
        free(k);
    }
    return st;
}

/* Whether a result was made for this very call, so that nobody knows what it held. A given one is
 * held by its owner and by the call; copies do not count on that. */
static bool is_fresh(const tn_op *op, const tn_tensor *out) {
    bool copies = op == &tni_op__copy || op == &tni_op__cast;
    return !copies &&
           atomic_load_explicit(&((tn_tensor *)(uintptr_t)out)->refs, memory_order_relaxed) == 1;
}

static tn_status save_written(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        tni_span s = tni_field_span(f, args);
        if (f->kind < TN_F_OUT && !(f->flags & TNI_FIELD_MUTATED)) continue;
        for (int64_t k = 0; k < s.n; k++)
            if (s.v[k] && !(f->kind == TN_F_OUT && is_fresh(op, s.v[k])))
                TN_TRY(save(s.v[k]->storage));
    }
    return TN_OK;
}

static tn_status draw(tn_generator *gen) {
    struct tni_capture *c = now;
    uint64_t bytes = 0;
    if (!c || c->graph->native) return TN_OK;
    for (const saved_generator *k = c->generators; k; k = k->next)
        if (k->gen == gen) return TN_OK;
    TN_TRY(tn_generator_get_state(gen, NULL, &bytes));
    saved_generator *k = malloc(sizeof *k + bytes);
    if (!k) return checked(no_memory());
    tn_status st = tn_generator_get_state(gen, k->state, &bytes);
    if (st != TN_OK) {
        free(k);
        return checked(st);
    }
    k->gen = tn_generator_ref(gen);
    k->bytes = bytes;
    k->next = c->generators;
    c->generators = k;
    return TN_OK;
}

static tn_status restore_generators(struct tni_capture *c) {
    tn_status st = TN_OK;
    while (c->generators) {
        saved_generator *k = c->generators;
        c->generators = k->next;
        tn_status each = tn_generator_set_state(k->gen, k->state, k->bytes);
        if (st == TN_OK) st = each;
        tn_generator_unref(&k->gen);
        free(k);
    }
    return st;
}

/* ---- Steps -------------------------------------------------------------------------------------*/

static tn_status add_step(tn_graph *g, const tni_graph_step *step) {
    void *own = NULL;
    TN_TRY(room_for(g, step, sizeof *step, &own));
    *g->last = own;
    g->last = &((tni_graph_step *)own)->next;
    return TN_OK;
}

static tn_status run_kernel(const tni_graph_step *s) {
    const tn_op *op = s->cell->op;
    tn_call call = {&tni_host, s->cell->ctx, tni_stream_of(s->device), &op->info, s->device.index,
                    s->dtype,  s->flags,     (uint32_t)s->device.slot};
    TN_TRY(tni_device_ready(s->device.slot));
    if (!s->cell->plugin->active)
        return tn_fail(TN_E_STATE, -1,
                       "'%s' was captured with a kernel of plugin '%s', which was "
                       "retired",
                       op->info.name, s->cell->plugin->name);
    tn_status st = tni_caught(s->cell->fn(&call, s->args));
    st = tni_loans_end(&call, s->cell->plugin->name, st);
    if (st == TN_DECLINE)
        st = tn_fail(TN_E_STATE, -1, "a kernel refuses what it did while it was captured");
    if (st != TN_OK)
        return tni_error_add_op(tni_error_of_plugin(st, op->info.name, s->cell->plugin->name), op,
                                s->args);
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        tn_tensor *const *t = (const void *)((const char *)s->args + f->offset);
        if (f->kind == TN_F_OUT && *t) tni_bump_version(*t);
    }
    return TN_OK;
}

static tn_status run_move(const tni_graph_step *s) { return tni_move_bytes(&s->move); }
static tn_status run_convert(const tni_graph_step *s) { return s->convert(s->to, s->from); }

static tn_status run_sync(const tni_graph_step *s) {
    const tn_device_desc *d = &tni_device_at(s->device.slot)->desc;
    return tni_caught(d->sync(d->ctx, s->device.index));
}

/* The device has recorded the kernel; core keeps the memory that is not the graph's own. */
static tn_status keep_memory(tn_graph *g, const tn_tensor *t) {
    if (!t || (t->flags & TNI_T_STACK) || !t->storage) return TN_OK;
    return tni_graph_memory_has(g->memory, t->storage) ? TN_OK : keep_storage(g, t->storage);
}

static tn_status keep_operands(tn_graph *g, const tn_op *op, const void *args) {
    for (int i = 0; i < op->nfields; i++) {
        tni_span s = tni_field_span(&op->fields[i], args);
        tn_generator *const *gen = tni_field_at(&op->fields[i], args);
        for (int64_t k = 0; k < s.n; k++) TN_TRY(keep_memory(g, s.v[k]));
        if (op->fields[i].kind == TN_F_GENERATOR && *gen)
            TN_TRY(tni_graph_own(g, drop_generator, tn_generator_ref(*gen)));
    }
    return TN_OK;
}

static tn_status record_kernel(tn_graph *g, const tn_cell *cell, const tn_call *call,
                               const void *args) {
    if (g->native) return keep_operands(g, cell->op, args);
    tni_graph_step step = {
        .run = run_kernel, .cell = cell, .dtype = call->dtype, .flags = call->flags};
    step.device = (tn_device){(int32_t)call->device_slot, call->device_index};
    TN_TRY(freeze_args(g, cell->op, args, &step.args));
    return add_step(g, &step);
}

/* Runs the candidates one after the other; *ret_cell is the one that did not decline. */
static tn_status run_candidates(const tn_cell *cell, tn_call *call, const void *args, bool native,
                                const tn_cell **ret_cell) {
    bool unsafe = false;
    for (; cell; cell = tni_cell_next(cell)) {
        if (native && !(cell->flags & TN_K_CAPTURE_SAFE)) {
            unsafe = true;
            continue;
        }
        call->ctx = cell->ctx;
        tn_status st = tni_caught(cell->fn(call, args));
        *ret_cell = cell;
        if (st != TN_DECLINE) return tni_error_of_plugin(st, call->op->name, cell->plugin->name);
    }
    if (!unsafe) return TN_DECLINE;
    return refuse("a kernel without TN_K_CAPTURE_SAFE", call->op->name);
}

static tn_status run(const tn_op *op, const tn_cell *cell, tn_call *call, const void *args) {
    tn_graph *g = now->graph;
    tn_device device = {(int32_t)call->device_slot, call->device_index};
    TN_TRY(checked(save_written(op, args)));
    tn_status st = run_candidates(cell, call, args, is_native(device), &cell);
    st = tni_loans_end(call, cell->plugin->name, st);
    if (st != TN_OK || (g->native && !is_native(device))) return st;
    return checked(record_kernel(g, cell, call, args));
}

static tn_status move(const tni_move *m) { return checked(save(m->dst)); }

static tn_status moved(const tni_move *m) {
    tn_graph *g = now->graph;
    tni_graph_step step = {.run = run_move, .move = *m};
    bool own = tni_graph_memory_has(g->memory, m->dst);
    tn_status st = own ? TN_OK : keep_storage(g, m->dst);
    if (st == TN_OK && !tni_graph_memory_has(g->memory, m->src)) st = keep_storage(g, m->src);
    if (st == TN_OK && !g->native) st = add_step(g, &step);
    return checked(st);
}

static tn_status keep_convert(tn_status (*convert)(tn_tensor *to, const tn_tensor *from),
                              tn_tensor *to, const tn_tensor *from) {
    tni_graph_step step = {.run = run_convert, .convert = convert};
    if (!records_steps()) return TN_OK;
    tn_graph *g = now->graph;
    tn_status st = freeze_tensor(g, to, &step.to);
    if (st == TN_OK) st = freeze_tensor(g, from, &step.from);
    return checked(st == TN_OK ? add_step(g, &step) : st);
}

static tn_status synced(tn_storage *far) {
    tni_graph_step step = {.run = run_sync, .device = far->device};
    if (!records_steps()) return TN_OK;
    tn_graph *g = now->graph;
    tn_status st = keep_storage(g, far);
    return checked(st == TN_OK ? add_step(g, &step) : st);
}

static struct tni_graph_memory *memory(tn_device device) {
    return is_native(device) ? now->graph->memory : NULL;
}

static const tni_watcher watcher = {
    .run = run,
    .move = move,
    .moved = moved,
    .convert = keep_convert,
    .synced = synced,
    .draw = draw,
    .memory = memory,
    .forbid = forbid,
};

/* ---- Begin and end -----------------------------------------------------------------------------*/

static tn_status change_stream(struct tni_capture *c, tn_device device, tn_stream *stream) {
    tn_stream *own = NULL;
    const tni_ifaces *ifaces = &tni_device_at(device.slot)->ifaces;
    if (!stream && !(ifaces->stream && ifaces->graph)) return TN_OK;
    if (!stream) TN_TRY(tn_stream_new(device, 0, &own));
    c->before = tn_stream_ref(tn_stream_current(device));
    tn_status st = tn_stream_set_current(device, stream ? stream : own);
    c->queue = tni_stream_of(device);
    tn_stream_unref(&own);
    return st;
}

static void release(struct tni_capture *c) {
    tn_stream_unref(&c->before);
    tn_graph_unref(&c->graph);
    free(c);
}

tn_status tni_capture_begin(tn_graph *g, tn_device device, tn_stream *stream) {
    const tni_device *dev = tni_device_at(device.slot);
    struct tni_capture *c = calloc(1, sizeof *c);
    if (!c) return no_memory();
    c->graph = tn_graph_ref(g);
    g->device = device;
    g->native = dev->ifaces.graph;
    if (g->native) g->memory = tni_graph_memory_new();
    tn_status st = g->native && !g->memory ? no_memory() : change_stream(c, device, stream);
    if (st == TN_OK && g->native) {
        st =
            tni_error_of_plugin(tni_caught(g->native->begin(dev->desc.ctx, device.index, c->queue)),
                                "graph_begin", dev->name);
        if (st != TN_OK) (void)tn_stream_set_current(device, c->before);
    }
    if (st != TN_OK) {
        tni_graph_memory_end(g->memory);
        g->memory = NULL;
        release(c);
        return st;
    }
    now = c;
    tni_tls.watcher = &watcher;
    atomic_store(&tni_any_special, true);
    return TN_OK;
}

static tn_status end_native(const struct tni_capture *c, bool keep) {
    tn_graph *g = c->graph;
    const tni_device *dev = tni_device_maker(g->device.slot);
    if (!g->native) return TN_OK;
    tn_status st = tni_caught(
        g->native->end(dev->desc.ctx, g->device.index, c->queue, keep ? &g->handle : NULL));
    return tni_error_of_plugin(st, "graph_end", dev->name);
}

tn_status tni_capture_end(bool keep) {
    struct tni_capture *c = now;
    const char *broken = c->broken;
    now = NULL;
    tni_tls.watcher = NULL;
    tn_status st = end_native(c, keep && !broken), last = restore_storages(c);
    if (st == TN_OK) st = last;
    last = restore_generators(c);
    if (st == TN_OK) st = last;
    last = tn_stream_set_current(c->graph->device, c->before);
    if (st == TN_OK) st = last;
    release(c);
    if (st == TN_OK && keep && broken)
        st = tn_fail(TN_E_STATE, -1, "nothing was captured, because of %s", broken);
    return st;
}
