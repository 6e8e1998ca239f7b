/* check.c: what TENON_CHECK=1 does with kernels that come through the door.
 *
 * A kernel's cell then holds `run_checked`, which takes note of the arguments, gives fresh results
 * memory with guards on both sides, runs the kernel, and compares. What it finds becomes an error that
 * names plugin and operator. Memory is looked at where the host can read it. A crash still ends the
 * process; a line says first whose code was running. What a device has made of several operators of a
 * program is run in the same way. */
#include <stdlib.h>

#include "check_priv.h"
#include "call_priv.h"
#include "os_priv.h"

enum { GUARD = 256, GUARD_BYTE = 0xa5, MAX_HASHED = 1 << 20, MAX_WATCHED = 32 };

/* A kernel as it was registered. */
typedef struct checked {
    tn_kernel_fn fn;
    void *ctx;
    const tn_op *op;
    const tni_plugin *plugin;
    struct checked *next;
} checked;

/* Bytes that an operand reaches: `size` from `start`. */
typedef struct range {
    char *start;
    uint64_t size;
} range;

/* A tensor of the call: its header, and the values of one that is only read. */
typedef struct watched {
    const tn_view *view;
    tn_view before;
    const char *name;
    uint64_t geometry; /* hash of sizes and strides */
    range values;      /* of an input on a device that the host reads, else of size 0 */
    uint64_t hash;
} watched;

/* A result that was given other memory for the call. */
typedef struct guarded {
    char *block;  /* NULL: this result is not guarded */
    char *inside; /* where the result lies in it */
    void **data;  /* the pointer that was changed, what it was and became; NULL: resized */
    void *original, *moved;
    range home;
} guarded;

typedef struct watch {
    const checked *kernel;
    tn_call call;
    const unsigned char *args;
    unsigned char args_before[TNI_MAX_ARGS_BYTES];
    watched tensors[MAX_WATCHED];
    int n;
    guarded results[TNI_MAX_OUTS];
    tn_plan plan; /* what the kernel gets, when the call has one */
    const tn_plan *real_plan;
    uint64_t plan_hash;
    const tn_call *given; /* the call that `call` is a copy of */
    struct watch *outer;
} watch;

static TN_TLS watch *running;
static TN_TLS tni_check_at at;
static tni_os_once once = TNI_OS_ONCE_INIT;
static bool on;
static tn_host host;
static checked *kernels;

static const char part_of_program[] = "a part of a program";

static tn_status fault(const watch *w, const char *what, const char *name) {
    return tn_fail(TN_E_PLUGIN, -1, "%s: the kernel of plugin '%s' %s%s%s%s (TENON_CHECK)",
                   w->kernel->op->info.name, w->kernel->plugin->name, what, name ? " '" : "",
                   name ? name : "", name ? "'" : "");
}

/* ---- Memory ------------------------------------------------------------------------------------*/

static uint64_t hash_bytes(uint64_t h, const void *p, uint64_t n) {
    const unsigned char *b = p;
    for (uint64_t i = 0; i < n; i++) h = (h ^ b[i]) * UINT64_C(1099511628211);
    return h;
}

static uint64_t hash_geometry(const tn_view *v) {
    uint64_t n = sizeof *v->shape * (uint64_t)v->ndim;
    return hash_bytes(hash_bytes(0, v->shape, n), v->strides, n);
}

static bool host_reads(int32_t slot) {
    const uint32_t both = TN_DEV_HOST | TN_DEV_ADDRESSABLE;
    return (tni_device_at(slot)->desc.flags & both) == both;
}

static range view_range(const tn_view *v) {
    int64_t lo, hi, size = tn_view_itemsize(v);
    range none = {NULL, 0};
    if (!v->data || v->numel == 0 || !host_reads(tn_view_device(v))) return none;
    if (!tni_reach(v->ndim, v->shape, v->strides, &lo, &hi)) return none;
    return (range){(char *)v->data + lo * size, (uint64_t)((hi - lo) * size)};
}

static range plan_range(const tn_plan *p, int k, int64_t itemsize) {
    int64_t lo = 0, hi = itemsize;
    for (int32_t d = 0; d < p->ndim; d++) {
        int64_t span = p->stride[d][k] * (p->shape[d] - 1);
        *(span < 0 ? &lo : &hi) += span;
    }
    return (range){(char *)p->data[k] + lo, (uint64_t)(hi - lo)};
}

static bool overlap(range a, range b) {
    return a.size > 0 && b.size > 0 && a.start < b.start + b.size && b.start < a.start + a.size;
}

/* ---- Before the kernel -------------------------------------------------------------------------*/

static void watch_tensor(watch *w, const tn_view *v, const char *name, bool read) {
    if (!v || w->n == MAX_WATCHED) return;
    watched *t = &w->tensors[w->n++];
    *t = (watched){.view = v, .before = *v, .name = name, .geometry = hash_geometry(v)};
    if (read) t->values = view_range(v);
    if (t->values.size > MAX_HASHED) t->values.size = 0;
}

static void watch_tensors(watch *w) {
    const tn_op *op = w->kernel->op;
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        bool read = f->kind <= TN_F_OPERAND && !(f->flags & TNI_FIELD_MUTATED);
        tni_span s = tni_field_span(f, w->args);
        for (int64_t k = 0; k < s.n && f->kind != TN_F_OUTS; k++)
            watch_tensor(w, tni_v(s.v[k]), f->name, read);
    }
}

/* Results and arguments that are written may share memory with inputs: those may change. */
static void forget_values(watch *w, range written) {
    for (int i = 0; i < w->n; i++)
        if (overlap(w->tensors[i].values, written)) w->tensors[i].values.size = 0;
}

static void leave_out_written(watch *w) {
    for (int i = 0; i < w->n; i++)
        if (w->tensors[i].values.size == 0) forget_values(w, view_range(w->tensors[i].view));
    for (int k = 0; w->real_plan && k < w->plan.noutputs; k++)
        if (host_reads((int32_t)w->call.device_slot))
            forget_values(w, plan_range(&w->plan, k, tn_dtype_size(w->plan.dtype[k])));
    for (int i = 0; i < w->n; i++) {
        watched *t = &w->tensors[i];
        t->hash = hash_bytes(0, t->values.start, t->values.size);
    }
}

/* Moves a result into memory with guards; without memory for that it stays where it is. */
static void guard(guarded *g, void **data, range home) {
    uint64_t place = GUARD + (uint64_t)((uintptr_t)home.start % 64);
    uint64_t size = (place + home.size + GUARD + 63) / 64 * 64;
    if (home.size == 0) return;
    g->block = aligned_alloc(64, size);
    if (!g->block) return;
    memset(g->block, GUARD_BYTE, size);
    g->inside = g->block + place;
    memcpy(g->inside, home.start, home.size);
    g->home = home;
    g->data = data;
    g->original = *data;
    *data = g->moved = g->inside + ((char *)*data - home.start);
}

/* The results that only this call knows: tensors with one owner. */
static void guard_results(watch *w) {
    const tn_op *op = w->kernel->op;
    if (!host_reads((int32_t)w->call.device_slot) || (op->flags & TNI_OP_LIST_OUT)) return;
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *t = *(tn_tensor *const *)(const void *)(w->args + op->out_offset[i]);
        bool own = !t || atomic_load(&t->refs) == 1;
        if (w->real_plan && own && i < w->plan.noutputs)
            guard(&w->results[i], &w->plan.data[i],
                  plan_range(&w->plan, i, tn_dtype_size(w->plan.dtype[i])));
        else if (!w->real_plan && t && own && atomic_load(&t->storage->refs) == 1)
            guard(&w->results[i], &t->v.data, view_range(&t->v));
    }
}

static uint64_t hash_plan(const tn_plan *p) {
    uint64_t h = hash_bytes(0, p, offsetof(tn_plan, data));
    h = hash_bytes(h, p->data, sizeof p->data[0] * (uint64_t)p->noperands);
    h = hash_bytes(h, p->shape, sizeof p->shape[0] * (uint64_t)p->ndim);
    return hash_bytes(h, p->stride, sizeof p->stride[0] * (uint64_t)p->ndim);
}

/* ---- After the kernel --------------------------------------------------------------------------*/

static bool guards_hold(const guarded *g) {
    const unsigned char *before = (const unsigned char *)g->inside - GUARD;
    const unsigned char *behind = (const unsigned char *)g->inside + g->home.size;
    for (int i = 0; i < GUARD; i++)
        if (before[i] != GUARD_BYTE || behind[i] != GUARD_BYTE) return false;
    return true;
}

/* Brings a result home. NULL, or what the kernel did to it. */
static const char *unguard(guarded *g) {
    const char *what = guards_hold(g) ? NULL : "wrote outside of its result";
    if (g->data) {
        if (*g->data != g->moved) what = "replaced the memory of its result";
        memcpy(g->home.start, g->inside, g->home.size);
        *g->data = g->original;
    }
    free(g->block);
    return what;
}

static const char *unguard_results(watch *w) {
    const char *what = NULL;
    for (int i = 0; i < TNI_MAX_OUTS; i++) {
        const char *found = w->results[i].block ? unguard(&w->results[i]) : NULL;
        if (found) what = found;
    }
    return what;
}

/* A header that was changed is put right, so that the program can go on. */
static tn_status look_at_tensors(const watch *w) {
    for (int i = 0; i < w->n; i++) {
        const watched *t = &w->tensors[i];
        if (memcmp(&t->before, t->view, sizeof t->before) != 0) {
            *(tn_view *)(uintptr_t)t->view = t->before;
            return fault(w, "changed the header of", t->name);
        }
        if (hash_geometry(t->view) != t->geometry)
            return fault(w, "changed sizes or strides of", t->name);
        if (hash_bytes(0, t->values.start, t->values.size) != t->hash)
            return fault(w, "wrote to argument", t->name);
    }
    return TN_OK;
}

static tn_status look(watch *w) {
    const char *what = unguard_results(w);
    const tn_op *op = w->kernel->op;
    if (what) return fault(w, what, NULL);
    if (memcmp(w->args, w->args_before, op->args_bytes) != 0)
        return fault(w, "changed its arguments", NULL);
    if (w->real_plan && hash_plan(&w->plan) != w->plan_hash)
        return fault(w, "changed its plan", NULL);
    return look_at_tensors(w);
}

static tn_status run_checked(const tn_call *call, const void *args) {
    const checked *k = call->ctx;
    watch *w = calloc(1, sizeof *w);
    if (!w) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    w->kernel = k;
    w->given = call;
    w->call = *call;
    w->call.host = &host;
    w->call.ctx = k->ctx;
    w->args = args;
    w->real_plan = *(const tn_plan *const *)args;
    if (w->real_plan) {
        w->plan = *w->real_plan;
        w->plan_hash = hash_plan(&w->plan);
    }
    watch_tensors(w);
    leave_out_written(w);
    guard_results(w);
    if (w->real_plan) *(const tn_plan **)(uintptr_t)args = &w->plan;
    memcpy(w->args_before, args, k->op->args_bytes);
    w->outer = running;
    running = w;
    tni_check_at before = tni_check_enter((tni_check_at){k->plugin->name, k->op->info.name});
    tn_status st = tni_caught(k->fn(&w->call, args));
    tni_check_enter(before);
    running = w->outer;
    tn_status found = look(w);
    if (w->real_plan) *(const tn_plan **)(uintptr_t)args = w->real_plan;
    free(w);
    return found != TN_OK ? found : st;
}

/* ---- What a device has made of several operators -----------------------------------------------*/

/* operand: which it is about, -1: none. */
static tn_status made_fault(const tni_made *m, const char *what, int32_t operand) {
    const char *plugin = m->dev->plugin->name;
    if (operand < 0)
        return tn_fail(TN_E_PLUGIN, -1, "%s: the code of plugin '%s' %s (TENON_CHECK)",
                       part_of_program, plugin, what);
    bool result = operand < m->nout;
    return tn_fail(TN_E_PLUGIN, -1, "%s: the code of plugin '%s' %s %s %d (TENON_CHECK)",
                   part_of_program, plugin, what, result ? "result" : "input",
                   (int)(result ? operand : operand - m->nout));
}

static void guard_made(const tni_made *m, guarded *g) {
    for (int32_t i = 0; i < m->nout; i++) {
        tn_view *v = (tn_view *)(uintptr_t)m->views[i];
        if (!host_reads(tn_view_device(v))) continue;
        if (m->plan)
            guard(&g[i], &m->plan->data[i],
                  plan_range(m->plan, i, tn_dtype_size(m->plan->dtype[i])));
        else
            guard(&g[i], &v->data, view_range(v));
    }
}

static tn_status look_at_made(const tni_made *m, watched *t, uint64_t plan_hash) {
    if (m->plan && hash_plan(m->plan) != plan_hash) return made_fault(m, "changed its plan", -1);
    for (int32_t i = 0; i < m->n; i++) {
        tn_view *v = (tn_view *)(uintptr_t)t[i].view;
        if (memcmp(&t[i].before, v, sizeof *v) != 0) {
            *v = t[i].before;
            return made_fault(m, "changed the header of", i);
        }
        if (hash_geometry(v) != t[i].geometry)
            return made_fault(m, "changed sizes or strides of", i);
        if (hash_bytes(0, t[i].values.start, t[i].values.size) != t[i].hash)
            return made_fault(m, "wrote to", i);
    }
    return TN_OK;
}

tn_status tni_check_made(const tni_made *m, tn_status *ret_st) {
    watched *t = on ? calloc((size_t)m->n, sizeof *t) : NULL;
    guarded *g = on ? calloc((size_t)m->nout, sizeof *g) : NULL;
    const char *what = NULL;
    if (!t || !g) {
        free(t);
        free(g);
        *ret_st = m->run(m->arg);
        return TN_OK;
    }
    guard_made(m, g);
    for (int32_t i = 0; i < m->n; i++) {
        const tn_view *v = m->views[i];
        t[i] = (watched){.view = v, .before = *v, .geometry = hash_geometry(v)};
        if (i >= m->nout) t[i].values = view_range(v);
        if (t[i].values.size > MAX_HASHED) t[i].values.size = 0;
        t[i].hash = hash_bytes(0, t[i].values.start, t[i].values.size);
    }
    uint64_t plan_hash = m->plan ? hash_plan(m->plan) : 0;
    tni_check_at before = tni_check_enter((tni_check_at){m->dev->plugin->name, part_of_program});
    *ret_st = m->run(m->arg);
    tni_check_enter(before);
    tn_status found = look_at_made(m, t, plan_hash);
    for (int32_t i = 0; i < m->nout; i++) {
        const char *did = g[i].block ? unguard(&g[i]) : NULL;
        if (did) what = did;
    }
    free(t);
    free(g);
    return what ? made_fault(m, what, -1) : found;
}

/* ---- Services, for callers that are inside a kernel --------------------------------------------*/

static tn_status inside(const tn_call *call, const char *service) {
    if (running && call == &running->call) return TN_OK;
    return tn_fail(TN_E_PLUGIN, 0,
                   "%s: it is for a kernel, on the thread that entered it, until it returns "
                   "(TENON_CHECK)",
                   service);
}

static tn_status checked_scratch(const tn_call *call, uint64_t bytes, void **ret_data) {
    TN_TRY(inside(call, "scratch"));
    return tni_host.scratch(running->given, bytes, ret_data);
}

static tn_status checked_resize(const tn_call *call, tn_view *out, int32_t ndim,
                                const int64_t *shape) {
    TN_TRY(inside(call, "resize_output"));
    TN_TRY(tni_host.resize_output(call, out, ndim, shape));
    for (int i = 0; i < running->n; i++) {
        watched *t = &running->tensors[i];
        if (t->view != out) continue;
        t->before = *out;
        t->geometry = hash_geometry(out);
    }
    for (int i = 0; i < TNI_MAX_OUTS; i++)
        if (running->results[i].data == &out->data) running->results[i].data = NULL;
    return TN_OK;
}

static tn_status checked_acquire(const tn_call *call, tn_generator *gen, uint64_t blocks,
                                 tn_rng *ret_rng) {
    TN_TRY(inside(call, "rng_acquire"));
    return tni_host.rng_acquire(running->given, gen, blocks, ret_rng);
}

static void checked_release(const tn_call *call, tn_generator *gen, tn_rng *rng) {
    if (inside(call, "rng_release") == TN_OK) tni_host.rng_release(running->given, gen, rng);
}

/* ---- Switching on ------------------------------------------------------------------------------*/

tni_check_at tni_check_enter(tni_check_at now) {
    tni_check_at before = at;
    at = now;
    return before;
}

/* Runs in a signal handler: nothing here takes memory or a lock. */
static void tell(void) {
    if (!at.plugin) return;
    const char *const parts[] = {"tenon: the process ends in plugin '", at.plugin, "', ", at.what,
                                 "\n"};
    for (int i = 0; i < TN_COUNT(parts); i++) tni_os_write_error(parts[i]);
    at.plugin = NULL;
}

static void start(void) {
    on = tni_setting_is_on("TENON_CHECK", false);
    if (!on) return;
    host = tni_host;
    host.scratch = checked_scratch;
    host.resize_output = checked_resize;
    host.rng_acquire = checked_acquire;
    host.rng_release = checked_release;
    tni_os_on_crash(tell);
}

const tn_host *tni_check_host(void) {
    tni_os_call_once(&once, start);
    return on ? &host : &tni_host;
}

tn_status tni_check_wrap(tn_cell *cell) {
    tni_check_host();
    if (!on) return TN_OK;
    checked *k = kernels;
    while (k && (k->fn != cell->fn || k->ctx != cell->ctx || k->op != cell->op ||
                 k->plugin != cell->plugin))
        k = k->next;
    if (!k) {
        k = malloc(sizeof *k);
        if (!k) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        *k = (checked){cell->fn, cell->ctx, cell->op, cell->plugin, kernels};
        kernels = k;
    }
    cell->fn = run_checked;
    cell->ctx = k;
    return TN_OK;
}
