/* region.c: nodes that a device takes as its own ("tn.program/1").
 *
 * Regions follow from the program, the sizes of a run and what the device says. The program runs once on
 * tensors without data, which tells what its values look like: a region hands out none that shares
 * memory with another tensor, and none that is not row-major, so that whoever uses them sees no
 * difference. */
#include "program_priv.h"

#include <stdlib.h>

#include "check_priv.h"
#include "memory_priv.h"
#include "os_priv.h"

enum {
    FEW = 32,
    MOST_SIZES = 8
}; /* tensors of a run without a block; different sizes of a program */

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static tni_pregions none; /* also in the place of a program none of whose devices takes parts */

typedef struct finder {
    const tn_program *p;
    const int64_t *sizes;
    const tni_device *dev;
    tn_device device;
    int32_t first, end; /* the nodes at hand */
    tn_tensor **like;   /* by value: one like it without data; NULL: nobody knows */
    tni_pargs **args;   /* by node: where numbers follow from free sizes */
    int32_t *number;    /* by value: its number in the region + 1 */
    /* What describe() makes of the nodes; the lists are the finder's. */
    tn_region region;
    tn_region_value *value;
    tn_region_node *node;
    int32_t *id;     /* values by number */
    int32_t *places; /* of arguments and results, and then the region's outputs */
} finder;

/* ---- What values look like ---------------------------------------------------------------------*/

/* A row-major tensor of the value's shape, where that is known. */
static void imagine(finder *f, int32_t id) {
    const tni_pvalue *v = &f->p->value[id];
    const tn_device meta = {TN_META_SLOT, 0};
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < v->ndim; d++) {
        shape[d] = tni_p_input_size(f->p, v, d, f->sizes);
        if (shape[d] < 0) return;
    }
    if (tni_tensor_new_fast(v->dtype, meta, v->ndim, shape, &f->like[id]) != TN_OK)
        f->like[id] = NULL;
}

/* Runs a node on tensors without data; false: it needs values, or makes tensors elsewhere. */
static bool run_on_nothing(finder *f, int32_t k) {
    const tni_pnode *n = &f->p->node[k];
    if (tni_p_is_random(n->op) || n->cast) return false;
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !f->like[n->in[i]]) return false;
    for (int32_t i = 0; i < n->op->nout && !(n->op->flags & TNI_OP_LIST_OUT); i++)
        if (n->given[i] >= 0 && !f->like[n->given[i]]) return false;
    if (n->nderived) {
        f->args[k] = malloc(sizeof *f->args[k]);
        if (!f->args[k] || tni_p_args(f->p, n, f->sizes, f->args[k]) != TN_OK) return false;
    }
    if (tni_p_run_node(f->p, n, f->sizes, f->like) != TN_OK) return false;
    bool fits = true;
    for (int32_t i = 0; i < n->nout; i++)
        if (n->out[i] >= 0) fits &= tni_is_meta(&f->like[n->out[i]]->v);
    return fits;
}

static void look_at_values(finder *f) {
    const tn_program *p = f->p;
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role == TNI_P_INPUT ||
            (p->value[i].role == TNI_P_WEIGHT && tn_view_is_contiguous(&p->value[i].t->v)))
            imagine(f, i);
    tni_tls.no_grad++;
    for (int32_t k = 0; k < p->nnodes; k++) {
        const tni_pnode *n = &p->node[k];
        if (run_on_nothing(f, k)) continue;
        for (int32_t i = 0; i < n->nout; i++) {
            if (n->out[i] < 0) continue;
            tn_tensor_unref(&f->like[n->out[i]]);
            imagine(f, n->out[i]);
        }
    }
    tni_tls.no_grad--;
}

/* ---- Which nodes can be asked about ------------------------------------------------------------*/

static bool is_made(const finder *f, int32_t id) {
    const tni_pvalue *v = &f->p->value[id];
    return v->role == TNI_P_NODE && v->place >= f->first;
}

static bool value_fits(const finder *f, int32_t id) {
    const tn_device at = f->p->value[id].device;
    const tn_tensor *like = f->like[id];
    return like && like->v.numel > 0 && at.slot == f->device.slot && at.index == f->device.index;
}

static void note_written(void *ctx, int32_t id) {
    (void)id;
    *(bool *)ctx = true;
}

/* Whether node `end` may follow those at hand. */
static bool node_fits(const finder *f) {
    const tni_pnode *n = &f->p->node[f->end];
    bool writes = false;
    tni_p_each_written(n, note_written, &writes);
    bool fits = !writes && !tni_p_is_random(n->op) && !n->cast && n->nout > 0 &&
                (!n->nderived || f->args[f->end]);
    for (int32_t i = 0; i < n->nin && fits; i++)
        fits = n->in[i] < 0 ||
               (value_fits(f, n->in[i]) &&
                (is_made(f, n->in[i]) || tn_view_is_contiguous(&f->like[n->in[i]]->v)));
    for (int32_t i = 0; i < n->nout && fits; i++) fits = n->out[i] < 0 || value_fits(f, n->out[i]);
    return fits;
}

/* The device of the node's first tensor, where it takes parts of programs. */
static const tni_device *device_of(const tn_program *p, const tni_pnode *n, tn_device *ret_device) {
    for (int32_t i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        *ret_device = p->value[n->in[i]].device;
        if (ret_device->slot == TN_META_SLOT || tni_device_ready(ret_device->slot) != TN_OK)
            return NULL;
        const tni_device *dev = tni_device_at(ret_device->slot);
        return dev->ifaces.program ? dev : NULL;
    }
    return NULL;
}

/* ---- A region as the device gets it ------------------------------------------------------------*/

static void number_value(finder *f, int32_t id) {
    if (id < 0 || f->number[id]) return;
    const tni_pvalue *v = &f->p->value[id];
    const tn_view *like = &f->like[id]->v;
    bool fixed = v->role == TNI_P_WEIGHT && v->kind == TN_PROGRAM_CONSTANT;
    int32_t at = f->region.nvalues++;
    f->value[at] = (tn_region_value){.dtype = tn_view_dtype(like),
                                     .ndim = like->ndim,
                                     .shape = like->shape,
                                     .constant = fixed ? &v->t->v : NULL};
    f->id[at] = id;
    f->number[id] = at + 1;
}

static int32_t *put_places(finder *f, int32_t *to, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) to[i] = ids[i] >= 0 ? f->number[ids[i]] - 1 : ids[i];
    return to + n;
}

static void describe(finder *f) {
    const tni_pnode *nodes = f->p->node;
    int32_t *at = f->places;
    f->region = (tn_region){.struct_size = sizeof f->region,
                            .value_size = sizeof *f->value,
                            .node_size = sizeof *f->node,
                            .nnodes = f->end - f->first,
                            .values = f->value,
                            .nodes = f->node};
    for (int32_t k = f->first; k < f->end; k++)
        for (int32_t i = 0; i < nodes[k].nin; i++)
            if (nodes[k].in[i] >= 0 && !is_made(f, nodes[k].in[i])) number_value(f, nodes[k].in[i]);
    f->region.ninputs = f->region.nvalues;
    for (int32_t k = f->first; k < f->end; k++) {
        const tni_pnode *n = &nodes[k];
        const tni_pargs *args = f->args[k];
        for (int32_t i = 0; i < n->nout; i++) number_value(f, n->out[i]);
        int32_t *in = at, *out = put_places(f, in, n->in, n->nin);
        at = put_places(f, out, n->out, n->nout);
        f->node[k - f->first] = (tn_region_node){.op = n->op->info.name,
                                                 .args = args ? args->args : n->args,
                                                 .args_bytes = n->op->args_bytes,
                                                 .sig = n->op->info.sig,
                                                 .nin = n->nin,
                                                 .nout = n->nout,
                                                 .in = in,
                                                 .number = args ? args->number : n->number,
                                                 .out = out};
    }
    f->region.outputs = at;
    for (int32_t v = f->region.ninputs; v < f->region.nvalues; v++)
        if (f->p->last_use[f->id[v]] >= f->end) at[f->region.noutputs++] = v;
    for (int32_t v = 0; v < f->region.nvalues; v++) f->number[f->id[v]] = 0;
}

/* Whether the results are tensors of their own, row-major. */
static bool can_hand_out(const finder *f) {
    const tn_region *r = &f->region;
    for (int32_t i = 0; i < r->noutputs; i++) {
        const tn_tensor *t = f->like[f->id[r->outputs[i]]];
        if (!tn_view_is_contiguous(&t->v)) return false;
        for (int32_t v = 0; v < r->ninputs; v++)
            if (f->like[f->id[v]]->storage == t->storage) return false;
        for (int32_t k = 0; k < i; k++)
            if (f->like[f->id[r->outputs[k]]]->storage == t->storage) return false;
    }
    return r->noutputs > 0;
}

/* Whether the device takes node `end`. */
static bool is_taken(finder *f) {
    finder one = *f;
    one.first = f->end;
    one.end = f->end + 1;
    describe(&one);
    return tni_caught(f->dev->ifaces.program->takes(f->dev->desc.ctx, f->device.index,
                                                    &one.region)) == TN_OK;
}

/* ---- Finding -----------------------------------------------------------------------------------*/

/* Values that nobody needs after the region, but for what it makes within. */
static int32_t find_drops(const finder *f, int32_t *ret_drop) {
    int32_t n = 0;
    for (int32_t v = 0; v < f->region.ninputs; v++) {
        int32_t id = f->id[v];
        if (f->p->value[id].role == TNI_P_NODE && f->p->last_use[id] < f->end) ret_drop[n++] = id;
    }
    return n;
}

/* The nodes at hand, compiled. */
static tn_status compile(const finder *f, tni_pregion *r) {
    const tn_region *of = &f->region;
    *r = (tni_pregion){.first = f->first,
                       .count = f->end - f->first,
                       .nin = of->ninputs,
                       .nout = of->noutputs,
                       .dev = f->dev,
                       .device = f->device};
    r->value = malloc(sizeof *r->value * (size_t)(of->noutputs + 2 * of->ninputs));
    r->like = calloc((size_t)of->noutputs, sizeof *r->like);
    if (!r->value || !r->like) return tni_p_memory();
    for (int32_t i = 0; i < r->nout; i++) {
        r->value[i] = f->id[of->outputs[i]];
        r->like[i] = tn_tensor_ref(f->like[r->value[i]]);
    }
    for (int32_t i = 0; i < r->nin; i++) r->value[r->nout + i] = f->id[i];
    r->drop = r->value + r->nout + r->nin;
    r->ndrops = find_drops(f, r->drop);
    void *code = NULL;
    TN_TRY(
        tni_caught(f->dev->ifaces.program->compile(f->dev->desc.ctx, f->device.index, of, &code)));
    r->code = code;
    return code ? TN_OK : TN_DECLINE;
}

/* The region that begins with node k, as long as it may be; *ret_next: where to look on. */
static bool make_region(finder *f, int32_t k, tni_pregion *r, int32_t *ret_next) {
    f->first = f->end = k;
    *ret_next = k + 1;
    f->dev = device_of(f->p, &f->p->node[k], &f->device);
    if (!f->dev) return false;
    while (f->end < f->p->nnodes && node_fits(f) && is_taken(f)) f->end++;
    for (; f->end > k; f->end--) {
        describe(f);
        if (!can_hand_out(f)) continue;
        *ret_next = f->end;
        if (compile(f, r) == TN_OK) return true;
        tni_p_region_clear(r);
        return false;
    }
    return false;
}

static void find_regions(finder *f, tni_pregions *all) {
    for (int32_t k = 0, next; k < f->p->nnodes; k = next) {
        tni_pregion r;
        if (!make_region(f, k, &r, &next)) continue;
        if (tni_p_grow(&all->region, all->n, &all->room, sizeof r) != TN_OK) {
            tni_p_region_clear(&r);
            return;
        }
        all->region[all->n++] = r;
    }
}

static void look(const tn_program *p, tni_pregions *all) {
    size_t places = 0, values = (size_t)p->nvalues + 1, nodes = (size_t)p->nnodes + 1;
    for (int32_t k = 0; k < p->nnodes; k++)
        places += (size_t)p->node[k].nin + (size_t)p->node[k].nout;
    finder f = {.p = p,
                .sizes = all->sizes,
                .like = calloc(values, sizeof *f.like),
                .args = calloc(nodes, sizeof *f.args),
                .number = calloc(values, sizeof *f.number),
                .value = calloc(values, sizeof *f.value),
                .node = calloc(nodes, sizeof *f.node),
                .id = calloc(values, sizeof *f.id),
                .places = calloc(places + values, sizeof *f.places)};
    if (f.like && f.args && f.number && f.value && f.node && f.id && f.places) {
        look_at_values(&f);
        find_regions(&f, all);
    }
    for (int32_t i = 0; i < p->nvalues && f.like; i++) tn_tensor_unref(&f.like[i]);
    for (int32_t k = 0; k < p->nnodes && f.args; k++) {
        if (f.args[k]) free(f.args[k]->own);
        free(f.args[k]);
    }
    free(f.like);
    free(f.args);
    free(f.number);
    free(f.value);
    free(f.node);
    free(f.id);
    free(f.places);
}

/* ---- By sizes ----------------------------------------------------------------------------------*/

static bool has_device(const tn_program *p) {
    tn_device device;
    for (int32_t k = 0; k < p->nnodes; k++)
        if (device_of(p, &p->node[k], &device)) return true;
    return false;
}

static tni_pregions *find_known(const tn_program *p, tni_pregions *first, const int64_t *sizes,
                                int32_t *ret_count) {
    size_t bytes = sizeof *sizes * (size_t)p->nsymbols;
    *ret_count = 0;
    for (tni_pregions *all = first; all; all = all->next, ++*ret_count)
        if (!bytes || memcmp(all->sizes, sizes, bytes) == 0) return all;
    return NULL;
}

static tni_pregions *make_known(const tn_program *p, const int64_t *sizes) {
    tni_pregions *all = calloc(1, sizeof *all);
    size_t n = (size_t)p->nsymbols + 1;
    if (all) all->sizes = calloc(n, sizeof *all->sizes);
    if (!all || !all->sizes) {
        free(all);
        return NULL;
    }
    if (p->nsymbols) memcpy(all->sizes, sizes, sizeof *sizes * (size_t)p->nsymbols);
    look(p, all);
    return all;
}

const tni_pregions *tni_p_regions(const tn_program *program, const int64_t *sizes) {
    tn_program *p = (tn_program *)(uintptr_t)program;
    tni_pregions *first = atomic_load_explicit(&p->regions, memory_order_acquire), *found;
    int32_t count;
    if (first == &none) return first;
    found = find_known(p, first, sizes, &count);
    if (found) return found;
    if (tni_p_is_watched()) return &none; /* not now */
    tni_os_lock(&lock);
    first = atomic_load_explicit(&p->regions, memory_order_relaxed);
    if (!first && !has_device(p)) {
        first = &none;
        atomic_store_explicit(&p->regions, first, memory_order_release);
    }
    found = first == &none ? first : find_known(p, first, sizes, &count);
    if (!found && count < MOST_SIZES) {
        found = make_known(p, sizes);
        if (found) {
            found->next = first;
            atomic_store_explicit(&p->regions, found, memory_order_release);
        }
    }
    tni_os_unlock(&lock);
    return found ? found : &none;
}

/* ---- Running -----------------------------------------------------------------------------------*/

static bool is_ready(const tni_pregion *r, tn_tensor *const *tensors) {
    uint64_t any = 0, all = TN_W_CONTIGUOUS;
    if (tni_p_is_watched()) return false;
    for (int32_t i = 0; i < r->nin; i++) {
        const tn_tensor *t = tensors[r->value[r->nout + i]];
        if (!t) return false;
        any |= t->v.word;
        all &= t->v.word;
    }
    return all && !(any & (TN_W_LAYOUT | TN_W_SPECIAL)) && !tni_recording(any) &&
           tni_device_at(r->device.slot) == r->dev && tni_device_ready(r->device.slot) == TN_OK;
}

typedef struct job {
    const tni_pregion *r;
    const tn_view *const *views;
    void *stream;
} job;

static tn_status run_job(const void *arg) {
    const job *j = arg;
    const tni_pregion *r = j->r;
    return tni_caught(r->dev->ifaces.program->run(r->dev->desc.ctx, r->device.index, r->code,
                                                  j->views, j->stream));
}

/* ts: places for the outputs, then the inputs. *ret_st: what became of it; the status: what it did
 * that it must not do. */
static tn_status run_code(const tni_pregion *r, tn_tensor **ts, const tn_view **views,
                          tn_status *ret_st) {
    void *stream = tni_stream_of(r->device);
    tn_status st = TN_OK;
    for (int32_t i = 0; i < r->nout && st == TN_OK; i++) {
        const tn_view *v = &r->like[i]->v;
        st = tni_tensor_new_fast(tn_view_dtype(v), r->device, v->ndim, v->shape, &ts[i]);
    }
    for (int32_t i = 0; i < r->nout + r->nin && st == TN_OK; i++) {
        st = tni_storage_use(ts[i]->storage, stream);
        views[i] = &ts[i]->v;
    }
    *ret_st = st;
    if (st != TN_OK) return TN_OK;
    const job j = {r, views, stream};
    tn_status found = tni_check_made(
        &(tni_made){r->dev, views, r->nout, r->nout + r->nin, NULL, run_job, &j}, ret_st);
    *ret_st = tni_device_said(r->dev, *ret_st, "a part of a program");
    return found;
}

tn_status tni_p_run_region(const tni_pregion *r, tn_tensor **tensors) {
    tn_tensor *few[FEW], **ts = few;
    const tn_view *few_views[FEW], **views = few_views;
    int32_t n = r->nout + r->nin;
    if (!is_ready(r, tensors)) return TN_DECLINE;
    if (n > FEW) {
        ts = malloc(sizeof *ts * (size_t)n);
        views = malloc(sizeof *views * (size_t)n);
    }
    tn_status st = ts && views ? TN_OK : TN_DECLINE, found = TN_OK;
    for (int32_t i = 0; i < n && st == TN_OK; i++)
        ts[i] = i < r->nout ? NULL : tensors[r->value[i]];
    bool ran = st == TN_OK;
    if (ran) found = run_code(r, ts, views, &st);
    if (found != TN_OK) st = found;
    for (int32_t i = 0; i < r->nout && ran; i++) {
        if (st != TN_OK)
            tn_tensor_unref(&ts[i]);
        else
            tensors[r->value[i]] = ts[i];
    }
    for (int32_t i = 0; i < r->ndrops && st == TN_OK; i++) tn_tensor_unref(&tensors[r->drop[i]]);
    if (ts != few) free(ts);
    if (views != few_views) free(views);
    return st == TN_OK || found != TN_OK ? st : TN_DECLINE;
}

tn_status tn_program_region_at(const tn_program *p, int32_t i, int32_t *ret_first,
                               int32_t *ret_count) {
    if (!p || !ret_first || !ret_count)
        return tn_fail(TN_E_TYPE, -1, "program_region_at() needs a program and places");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    int64_t *sizes = malloc(sizeof *sizes * ((size_t)p->nsymbols + 1));
    if (!sizes) return tni_p_memory();
    for (int32_t k = 0; k < p->nsymbols; k++) sizes[k] = p->symbol[k].seen;
    const tni_pregions *all = tni_p_regions(p, sizes);
    free(sizes);
    if (i < 0 || i >= all->n)
        return tn_fail(TN_E_INDEX, 1, "its devices take %d parts of the program", (int)all->n);
    *ret_first = all->region[i].first;
    *ret_count = all->region[i].count;
    return TN_OK;
}
