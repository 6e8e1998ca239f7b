/* rnn.c: recurrent networks: cells, and layers of them over padded and packed sequences.
 *
 * The input products of a whole sequence are one matrix product; a step is the state's product and one
 * operator for the rest. Rows are grouped by time step: those of step t are the first sizes[t] samples,
 * the longest ones, so sizes never grow. The backward direction walks the same steps from the last one. */
#include <stdlib.h>

#include <tenon/args_rnn.h>
#include <tenon/ops_activation.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_nn.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_random.h>
#include <tenon/ops_rnn.h>
#include <tenon/ops_shape.h>

#include "nn_priv.h"
#include "op_rnn.h"

typedef enum rnn_mode {
    RNN_RELU,
    RNN_TANH,
    RNN_LSTM,
    RNN_GRU
} rnn_mode; /* as in op `_rnn_layers` */

static const int64_t gate_counts[] = {
    [RNN_TANH] = 1, [RNN_RELU] = 1, [RNN_LSTM] = 4, [RNN_GRU] = 3};

/* ---- One step ----------------------------------------------------------------------------------*/

/* The weights of one direction of one layer; biases and w_hr may be NULL. */
typedef struct weights {
    tn_tensor *w_ih, *w_hh, *b_ih, *b_hh, *w_hr;
} weights;

/* A state; c is NULL but for LSTM. Owned by whoever holds it. */
typedef struct state {
    tn_tensor *h, *c;
} state;

static void drop(state *s) {
    tn_tensor_unref(&s->h);
    tn_tensor_unref(&s->c);
}

/* The next state out of simpler operators, each of which has its gradient: complex numbers have no
 * kernels of whole steps. */
static tn_status step_in_parts(rnn_mode mode, tn_tensor *gates_x, tn_tensor *gates_h,
                               const state *from, state *ret) {
    tn_tensor *sum = NULL, *rets[3] = {NULL};
    tn_status st = TN_OK;
    if (mode == RNN_LSTM) {
        tn__lstm_step_args a = {
            .gates_x = tni_v(gates_x), .gates_h = tni_v(gates_h), .c = tni_v(from->c)};
        st = tni_composite__lstm_step(&a, rets);
    } else if (mode == RNN_GRU) {
        tn__gru_step_args a = {
            .gates_x = tni_v(gates_x), .gates_h = tni_v(gates_h), .h = tni_v(from->h)};
        st = tni_composite__gru_step(&a, rets);
    } else {
        st = tn_add(gates_x, gates_h, tn_scalar_int(1), &sum);
        if (st == TN_OK) st = mode == RNN_TANH ? tn_tanh(sum, &rets[0]) : tn_relu(sum, &rets[0]);
    }
    ret->h = rets[0];
    if (mode == RNN_LSTM) ret->c = rets[1];
    tn_tensor_unref(&rets[mode == RNN_LSTM ? 2 : 1]);
    tn_tensor_unref(&sum);
    return st;
}

/* The next state, from what the input gives to the gates and the state's own product. */
static tn_status step(rnn_mode mode, tn_tensor *gates_x, tn_tensor *gates_h, const state *from,
                      state *ret) {
    tn_tensor *kept = NULL;
    tn_status st = TN_OK;
    if (tn_dtype_category(tn_tensor_dtype(gates_x)) == TN_CAT_COMPLEX)
        return step_in_parts(mode, gates_x, gates_h, from, ret);
    switch (mode) {
    case RNN_TANH: return tn__tanh_step(gates_x, gates_h, &ret->h);
    case RNN_RELU: return tn__relu_step(gates_x, gates_h, &ret->h);
    case RNN_GRU: st = tn__gru_step(gates_x, gates_h, from->h, &ret->h, &kept); break;
    case RNN_LSTM: st = tn__lstm_step(gates_x, gates_h, from->c, &ret->h, &ret->c, &kept); break;
    }
    tn_tensor_unref(&kept);
    return st;
}

/* ---- Cells -------------------------------------------------------------------------------------*/

static tn_status check_state(const char *name, const tn_view *x, const tn_view *h, const weights *w,
                             int which) {
    int64_t width = tn_tensor_shape(w->w_hh)[1];
    if (h->ndim != x->ndim)
        return tn_fail(TN_E_SHAPE, 1, "%s: Expected hidden%d to have %d dimensions, got %d", name,
                       which, (int)x->ndim, (int)h->ndim);
    if (x->ndim == 2 && h->shape[0] != x->shape[0])
        return tn_fail(TN_E_SHAPE, 1,
                       "Input batch size %lld doesn't match hidden%d batch size %lld",
                       (long long)x->shape[0], which, (long long)h->shape[0]);
    if (h->shape[h->ndim - 1] != width)
        return tn_fail(TN_E_SHAPE, 1,
                       "hidden%d has inconsistent hidden_size: got %lld, expected %lld", which,
                       (long long)h->shape[h->ndim - 1], (long long)width);
    return TN_OK;
}

static tn_status check_matrix(const char *name, const char *what, tn_tensor *w, int64_t rows) {
    if (tn_tensor_ndim(w) != 2)
        return tn_fail(TN_E_SHAPE, -1, "%s: Expected %s to have 2 dimensions, got %d", name, what,
                       (int)tn_tensor_ndim(w));
    if (rows >= 0 && tn_tensor_shape(w)[0] != rows)
        return tn_fail(TN_E_SHAPE, -1, "%s: Expected %s to have %lld rows, got %lld", name, what,
                       (long long)rows, (long long)tn_tensor_shape(w)[0]);
    return TN_OK;
}

static tn_status check_cell(rnn_mode mode, const char *name, const tn_view *x, const weights *w) {
    TN_TRY(check_matrix(name, "w_hh", w->w_hh, -1));
    int64_t rows = gate_counts[mode] * tn_tensor_shape(w->w_hh)[1];
    TN_TRY(check_matrix(name, "w_hh", w->w_hh, rows));
    TN_TRY(check_matrix(name, "w_ih", w->w_ih, rows));
    if (x->ndim != 1 && x->ndim != 2)
        return tn_fail(TN_E_SHAPE, 0, "%s: Expected input to be 1D or 2D, got %dD instead", name,
                       (int)x->ndim);
    if (x->shape[x->ndim - 1] != tn_tensor_shape(w->w_ih)[1])
        return tn_fail(TN_E_SHAPE, 0, "input has inconsistent input_size: got %lld expected %lld",
                       (long long)x->shape[x->ndim - 1], (long long)tn_tensor_shape(w->w_ih)[1]);
    return TN_OK;
}

static tn_status run_cell(rnn_mode mode, tn_tensor *x, const state *from, const weights *w,
                          state *ret) {
    tn_tensor *gates_x = NULL, *gates_h = NULL;
    tn_status st = tn_linear(x, w->w_ih, w->b_ih, &gates_x);
    if (st == TN_OK) st = tn_linear(from->h, w->w_hh, w->b_hh, &gates_h);
    if (st == TN_OK) st = step(mode, gates_x, gates_h, from, ret);
    tn_tensor_unref(&gates_x);
    tn_tensor_unref(&gates_h);
    return st;
}

tn_status tni_composite_lstm_cell(const void *args, tn_tensor **rets) {
    const tn_lstm_cell_args *a = args;
    weights w = {tni_t(a->w_ih), tni_t(a->w_hh), tni_t(a->b_ih), tni_t(a->b_hh), NULL};
    state to = {NULL, NULL};
    if (a->hx.n != 2)
        return tn_fail(TN_E_STATE, 1, "lstm_cell expects two hidden states, got %lld",
                       (long long)a->hx.n);
    TN_TRY(check_cell(RNN_LSTM, "lstm_cell", a->input, &w));
    for (int i = 0; i < 2; i++) TN_TRY(check_state("lstm_cell", a->input, a->hx.v[i], &w, i));
    const state from = {tni_t(a->hx.v[0]), tni_t(a->hx.v[1])};
    TN_TRY(run_cell(RNN_LSTM, tni_t(a->input), &from, &w, &to));
    rets[0] = to.h;
    rets[1] = to.c;
    return TN_OK;
}

/* The other cells have one kind of arguments under three names. */
typedef tn_gru_cell_args cell_args;

static tn_status plain_cell(rnn_mode mode, const char *name, const cell_args *a, tn_tensor **rets) {
    weights w = {tni_t(a->w_ih), tni_t(a->w_hh), tni_t(a->b_ih), tni_t(a->b_hh), NULL};
    state to = {NULL, NULL};
    TN_TRY(check_cell(mode, name, a->input, &w));
    TN_TRY(check_state(name, a->input, a->hx, &w, 0));
    const state from = {tni_t(a->hx), NULL};
    TN_TRY(run_cell(mode, tni_t(a->input), &from, &w, &to));
    rets[0] = to.h;
    return TN_OK;
}

tn_status tni_composite_gru_cell(const void *args, tn_tensor **rets) {
    return plain_cell(RNN_GRU, "gru_cell", args, rets);
}

tn_status tni_composite_rnn_tanh_cell(const void *args, tn_tensor **rets) {
    return plain_cell(RNN_TANH, "rnn_tanh_cell", args, rets);
}

tn_status tni_composite_rnn_relu_cell(const void *args, tn_tensor **rets) {
    return plain_cell(RNN_RELU, "rnn_relu_cell", args, rets);
}

/* ---- Lists that grow ---------------------------------------------------------------------------*/

typedef struct list {
    tn_tensor **v; /* owned */
    int64_t n;
} list;

static tn_status list_make(list *ret, int64_t room) {
    ret->n = 0;
    ret->v = calloc((size_t)room, sizeof *ret->v);
    return ret->v ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
}

static void list_drop(list *l) {
    for (int64_t i = 0; i < l->n; i++) tn_tensor_unref(&l->v[i]);
    free(l->v);
}

/* One tensor as it is; several one after the other. */
static tn_status list_join(const list *l, int64_t dim, tn_tensor **ret) {
    if (l->n > 1) return tn_cat((tn_tensors){l->v, l->n}, dim, ret);
    *ret = tn_tensor_ref(l->v[0]);
    return TN_OK;
}

static void list_reverse(list *l) {
    for (int64_t i = 0, k = l->n - 1; i < k; i++, k--) {
        tn_tensor *t = l->v[i];
        l->v[i] = l->v[k];
        l->v[k] = t;
    }
}

/* ---- One direction of one layer ----------------------------------------------------------------*/

/* What all layers share. */
typedef struct rnn {
    rnn_mode mode;
    bool bidirectional, has_biases, projects;
    double dropout; /* between layers */
    const int64_t *sizes;
    int64_t steps, samples, layers;
    tn_tensors params;
    state start; /* (layers * directions, samples, width); borrowed */
} rnn;

/* A walk over the steps. `ended` are the states of samples that have ended, the shortest first. */
typedef struct walk {
    const rnn *r;
    const weights *w;
    const state *start; /* of all samples */
    state now;
    int64_t n; /* samples in `now` */
    list outputs, ended_h, ended_c;
} walk;

static tn_status walk_start(walk *k, int64_t n) {
    k->n = n;
    TN_TRY(list_make(&k->outputs, k->r->steps));
    TN_TRY(list_make(&k->ended_h, k->r->steps + 1));
    TN_TRY(list_make(&k->ended_c, k->r->steps + 1));
    TN_TRY(tn_narrow(k->start->h, 0, 0, n, &k->now.h));
    return k->start->c ? tn_narrow(k->start->c, 0, 0, n, &k->now.c) : TN_OK;
}

static void walk_drop(walk *k) {
    drop(&k->now);
    list_drop(&k->outputs);
    list_drop(&k->ended_h);
    list_drop(&k->ended_c);
}

/* Moves the rows of *t from n on to a list. */
static tn_status shrink_one(tn_tensor **t, int64_t n, int64_t have, list *ended) {
    tn_tensor *rest = NULL;
    if (!*t) return TN_OK;
    TN_TRY(tn_narrow(*t, 0, n, have - n, &ended->v[ended->n]));
    ended->n++;
    TN_TRY(tn_narrow(*t, 0, 0, n, &rest));
    tn_tensor_unref(t);
    *t = rest;
    return TN_OK;
}

/* Adds rows have .. n - 1 of the start to *t. */
static tn_status grow_one(tn_tensor **t, int64_t n, int64_t have, tn_tensor *start) {
    tn_tensor *both[2] = {*t, NULL}, *joined = NULL;
    if (!*t) return TN_OK;
    TN_TRY(tn_narrow(start, 0, have, n - have, &both[1]));
    tn_status st = tn_cat((tn_tensors){both, 2}, 0, &joined);
    tn_tensor_unref(&both[1]);
    if (st != TN_OK) return st;
    tn_tensor_unref(t);
    *t = joined;
    return TN_OK;
}

/* Makes `now` the state of the first n samples: forward some have ended, backward some begin. */
static tn_status fit(walk *k, int64_t n) {
    int64_t have = k->n;
    if (n < have) {
        TN_TRY(shrink_one(&k->now.h, n, have, &k->ended_h));
        TN_TRY(shrink_one(&k->now.c, n, have, &k->ended_c));
    } else if (n > have) {
        TN_TRY(grow_one(&k->now.h, n, have, k->start->h));
        TN_TRY(grow_one(&k->now.c, n, have, k->start->c));
    }
    k->n = n;
    return TN_OK;
}

static tn_status advance(walk *k, tn_tensor *gates_x, int64_t n) {
    const weights *w = k->w;
    tn_tensor *gates_h = NULL;
    state to = {NULL, NULL};
    TN_TRY(fit(k, n));
    /* GRU keeps the state's bias inside of its reset gate; elsewhere it is added with the input's. */
    TN_TRY(tn_linear(k->now.h, w->w_hh, k->r->mode == RNN_GRU ? w->b_hh : NULL, &gates_h));
    tn_status st = step(k->r->mode, gates_x, gates_h, &k->now, &to);
    tn_tensor_unref(&gates_h);
    if (st == TN_OK && w->w_hr) {
        tn_tensor *wide = to.h;
        to.h = NULL;
        st = tn_linear(wide, w->w_hr, NULL, &to.h);
        tn_tensor_unref(&wide);
    }
    if (st != TN_OK) {
        drop(&to);
        return st;
    }
    drop(&k->now);
    k->now = to;
    k->outputs.v[k->outputs.n++] = tn_tensor_ref(to.h);
    return TN_OK;
}

/* All rows' products with w_ih, by step. */
static tn_status project(const rnn *r, const weights *w, tn_tensor *x, tn_tensor_list *ret_steps) {
    tn_tensor *bias = tn_tensor_ref(w->b_ih), *all = NULL;
    tn_status st = TN_OK;
    if (r->mode != RNN_GRU && w->b_hh) {
        tn_tensor_unref(&bias);
        st = tn_add(w->b_ih, w->b_hh, tn_scalar_int(1), &bias);
    }
    if (st == TN_OK) st = tn_linear(x, w->w_ih, bias, &all);
    if (st == TN_OK) st = tn_split_with_sizes(all, tn_ints_of(r->sizes, r->steps), 0, ret_steps);
    tn_tensor_unref(&bias);
    tn_tensor_unref(&all);
    return st;
}

/* The last state of every sample, the longest first. */
static tn_status gather(list *ended, tn_tensor **last, tn_tensor **ret) {
    if (!*last) return TN_OK;
    ended->v[ended->n++] = *last;
    *last = NULL;
    list_reverse(ended);
    return list_join(ended, 0, ret);
}

static tn_status finish_walk(walk *k, bool backward, tn_tensor **ret_y, state *ret) {
    if (backward) list_reverse(&k->outputs);
    TN_TRY(list_join(&k->outputs, 0, ret_y));
    TN_TRY(gather(&k->ended_h, &k->now.h, &ret->h));
    return gather(&k->ended_c, &k->now.c, &ret->c);
}

/* The state's weight for many steps: the same numbers, laid out by columns, so that a processor's vectors run
 * along a step's results and not along its sums. Libraries of other devices take either layout. */
enum { MANY_STEPS = 8 };
static tn_status turned(const rnn *r, tn_tensor *w, tn_tensor **ret) {
    tn_tensor *columns = NULL, *packed = NULL;
    tn_status st = TN_OK;
    if (r->steps < MANY_STEPS || tn_view_device(&w->v) != 0) {
        *ret = tn_tensor_ref(w);
        return TN_OK;
    }
    st = tn_t(w, &columns);
    if (st == TN_OK) st = tn_contiguous(columns, TN_FORMAT_CONTIGUOUS, &packed);
    if (st == TN_OK) st = tn_t(packed, ret);
    tn_tensor_unref(&columns);
    tn_tensor_unref(&packed);
    return st;
}

/* x: all rows by step. start: of this layer and direction. ret_y: rows in x's order. */
static tn_status run_direction(const rnn *r, const weights *w, bool backward, tn_tensor *x,
                               const state *start, tn_tensor **ret_y, state *ret) {
    weights laid = *w;
    walk k = {.r = r, .w = &laid, .start = start};
    tn_tensor_list steps = {NULL, 0};
    tn_status st = project(r, w, x, &steps);
    laid.w_hh = NULL;
    if (st == TN_OK) st = turned(r, w->w_hh, &laid.w_hh);
    if (st == TN_OK) st = walk_start(&k, r->sizes[backward ? r->steps - 1 : 0]);
    for (int64_t i = 0; i < r->steps && st == TN_OK; i++) {
        int64_t t = backward ? r->steps - 1 - i : i;
        st = advance(&k, steps.v[t], r->sizes[t]);
        if (st == TN_OK) st = tni_poll();
    }
    if (st == TN_OK) st = finish_walk(&k, backward, ret_y, ret);
    walk_drop(&k);
    tn_tensor_unref(&laid.w_hh);
    tn_tensor_list_free(&steps);
    return st;
}

/* ---- All layers --------------------------------------------------------------------------------*/

static int64_t directions_of(const rnn *r) { return r->bidirectional ? 2 : 1; }

static int64_t per_direction(const rnn *r) { return 2 + 2 * r->has_biases + r->projects; }

static weights weights_of(const rnn *r, int64_t i) {
    int64_t each = per_direction(r);
    tn_tensor *const *v = r->params.v + i * each;
    weights w = {v[0], v[1], NULL, NULL, r->projects ? v[each - 1] : NULL};
    if (r->has_biases) {
        w.b_ih = v[2];
        w.b_hh = v[3];
    }
    return w;
}

/* One direction of one layer, number i; its results go to the lists. */
static tn_status run_one(const rnn *r, int64_t i, tn_tensor *x, list *ys, list *hs, list *cs) {
    weights w = weights_of(r, i);
    state start = {NULL, NULL}, last = {NULL, NULL};
    bool backward = r->bidirectional && i % 2 == 1;
    tn_status st = tn_select(r->start.h, 0, i, &start.h);
    if (st == TN_OK && r->start.c) st = tn_select(r->start.c, 0, i, &start.c);
    if (st == TN_OK) st = run_direction(r, &w, backward, x, &start, &ys->v[ys->n], &last);
    drop(&start);
    if (ys->v[ys->n]) ys->n++;
    if (last.h) hs->v[hs->n++] = last.h;
    if (last.c) cs->v[cs->n++] = last.c;
    return st;
}

/* Takes over *x, the layer's input, and leaves its output there. */
static tn_status run_layer(const rnn *r, int64_t layer, tn_tensor **x, list *hs, list *cs) {
    tn_tensor *out[2] = {NULL, NULL}, *y = NULL;
    list ys = {out, 0};
    tn_status st = TN_OK;
    for (int64_t d = 0; d < directions_of(r) && st == TN_OK; d++)
        st = run_one(r, layer * directions_of(r) + d, *x, &ys, hs, cs);
    if (st == TN_OK) st = list_join(&ys, -1, &y);
    tn_tensor_unref(&out[0]);
    tn_tensor_unref(&out[1]);
    tn_tensor_unref(x);
    *x = y;
    return st;
}

/* Drops the lists, which are in the results now, and hands out y; nothing after a failure. */
static tn_status finish_layers(tn_status st, tn_tensor *y, list *hs, list *cs, tn_tensor **rets) {
    if (st == TN_OK) {
        rets[0] = y;
    } else {
        tn_tensor_unref(&y);
        tn_tensor_unref(&rets[1]);
    }
    list_drop(hs);
    list_drop(cs);
    return st;
}

static tn_status run_layers(const rnn *r, tn_tensor *x, tn_tensor **rets) {
    int64_t count = r->layers * directions_of(r);
    list hs = {NULL, 0}, cs = {NULL, 0};
    tn_tensor *y = tn_tensor_ref(x);
    tn_status st = list_make(&hs, count);
    if (st == TN_OK) st = list_make(&cs, count);
    for (int64_t i = 0; i < r->layers && st == TN_OK; i++) st = run_layer(r, i, &y, &hs, &cs);
    if (st == TN_OK) st = tn_stack((tn_tensors){hs.v, hs.n}, 0, &rets[1]);
    if (st == TN_OK && cs.n > 0) st = tn_stack((tn_tensors){cs.v, cs.n}, 0, &rets[2]);
    return finish_layers(st, y, &hs, &cs, rets);
}

/* ---- All layers at once, where the device has them ---------------------------------------------*/

static bool is_alike(const tn_tensor *x, const tn_tensor *t) {
    return !t || ((x->v.word ^ t->v.word) & TN_W_ALIKE) == 0;
}

/* Whether there is a kernel to be asked, and all tensors are of the input's device and dtype. */
static bool has_kernel(const rnn *r, const tn_tensor *x) {
    const tn_op *op = &tni_op__rnn_layers;
    int64_t inputs = 3 + r->params.n;
    if (inputs > 64 || !tni_kernel_find(op, tn_view_device(&x->v), tn_view_dtype(&x->v)))
        return false;
    bool fits = is_alike(x, r->start.h) && is_alike(x, r->start.c);
    for (int64_t i = 0; i < r->params.n && fits; i++) fits = is_alike(x, r->params.v[i]);
    return fits;
}

static bool wants_gradient(const rnn *r, const tn_tensor *x) {
    uint64_t any = x->v.word | r->start.h->v.word | (r->start.c ? r->start.c->v.word : 0);
    for (int64_t i = 0; i < r->params.n; i++) any |= r->params.v[i]->v.word;
    return (any & TN_W_GRAD) && tn_grad_enabled();
}

/* Bytes that the device wants to keep for the backward pass; -1: it has no such network. */
static tn_status ask_room(const rnn *r, tn_tensor *x, int64_t *ret_room) {
    tn_tensor *room = NULL;
    const int64_t *h = tn_tensor_shape(r->start.h);
    int64_t hidden = r->start.c ? tn_tensor_shape(r->start.c)[2] : h[2];
    *ret_room = -1;
    if (r->samples == 0 || !has_kernel(r, x)) return TN_OK;
    TN_TRY(tn_full((tn_ints){NULL, 0}, tn_scalar_int(-1), TN_I64, 0, &room));
    tn_status st =
        tn__rnn_room(x, room, tn_ints_of(r->sizes, r->steps), r->mode, r->has_biases, r->layers,
                     r->bidirectional, hidden, r->projects ? h[2] : 0, wants_gradient(r, x));
    if (st == TN_OK) *ret_room = *(const int64_t *)room->v.data;
    tn_tensor_unref(&room);
    return st;
}

static tn_status run_at_once(const rnn *r, tn_tensor *x, int64_t room, tn_tensor **rets) {
    tn_tensor *c = NULL, *reserve = NULL;
    TN_TRY(tn__rnn_layers(x, r->start.h, r->start.c, r->params, tn_ints_of(r->sizes, r->steps),
                          r->mode, r->has_biases, r->layers, r->bidirectional, room, &rets[0],
                          &rets[1], &c, &reserve));
    tn_tensor_unref(&reserve);
    if (r->start.c)
        rets[2] = c;
    else
        tn_tensor_unref(&c);
    return TN_OK;
}

static tn_status run_plain(const rnn *r, tn_tensor *x, tn_tensor **rets) {
    int64_t room;
    TN_TRY(ask_room(r, x, &room));
    return room >= 0 ? run_at_once(r, x, room, rets) : run_layers(r, x, rets);
}

/* ---- Dropout between layers --------------------------------------------------------------------*/

/* Layer i alone, as a network; its states are the caller's to drop. */
static tn_status take_layer(const rnn *r, int64_t i, rnn *ret) {
    int64_t d = directions_of(r), each = d * per_direction(r);
    *ret = *r;
    ret->layers = 1;
    ret->params = (tn_tensors){r->params.v + i * each, each};
    ret->start = (state){NULL, NULL};
    TN_TRY(tn_narrow(r->start.h, 0, i * d, d, &ret->start.h));
    return r->start.c ? tn_narrow(r->start.c, 0, i * d, d, &ret->start.c) : TN_OK;
}

/* Takes over *x, the layer's input, and leaves its output there. */
static tn_status run_one_layer(const rnn *r, int64_t i, tn_tensor **x, list *hs, list *cs) {
    rnn one;
    tn_tensor *out[3] = {NULL, NULL, NULL}, *dropped = NULL;
    tn_status st = take_layer(r, i, &one);
    if (st == TN_OK) st = run_plain(&one, *x, out);
    drop(&one.start);
    if (out[1]) hs->v[hs->n++] = out[1];
    if (out[2]) cs->v[cs->n++] = out[2];
    if (st == TN_OK && i + 1 < r->layers) {
        st = tn_dropout(out[0], r->dropout, 1, &dropped);
        tn_tensor_unref(&out[0]);
        out[0] = dropped;
    }
    tn_tensor_unref(x);
    *x = out[0];
    return st;
}

static tn_status run_network(const rnn *r, tn_tensor *x, tn_tensor **rets) {
    list hs = {NULL, 0}, cs = {NULL, 0};
    if (r->dropout == 0 || r->layers == 1) return run_plain(r, x, rets);
    tn_tensor *y = tn_tensor_ref(x);
    tn_status st = list_make(&hs, r->layers);
    if (st == TN_OK) st = list_make(&cs, r->layers);
    for (int64_t i = 0; i < r->layers && st == TN_OK; i++) st = run_one_layer(r, i, &y, &hs, &cs);
    if (st == TN_OK) st = list_join(&hs, 0, &rets[1]);
    if (st == TN_OK && cs.n > 0) st = list_join(&cs, 0, &rets[2]);
    return finish_layers(st, y, &hs, &cs, rets);
}

/* ---- Arguments ---------------------------------------------------------------------------------*/

static const char *const names[] = {
    [RNN_TANH] = "rnn_tanh", [RNN_RELU] = "rnn_relu", [RNN_LSTM] = "lstm", [RNN_GRU] = "gru"};

/* The shape of a weight; -1: any size. */
static tn_status check_weight(const rnn *r, int64_t i, tn_tensor *w, int64_t rows,
                              int64_t columns) {
    int32_t ndim = columns < 0 ? 1 : 2;
    const int64_t *n = w ? tn_tensor_shape(w) : NULL;
    if (w && tn_tensor_ndim(w) == ndim && n[0] == rows && (ndim == 1 || n[1] == columns))
        return TN_OK;
    int64_t want[2] = {rows, columns};
    return tn_fail(TN_E_SHAPE, -1, "%s: Expected params[%lld] to have shape %s, got %s",
                   names[r->mode], (long long)i, tni_shape_text(ndim, want),
                   w ? tni_shape_text_of(tni_v(w)) : "None");
}

static tn_status check_weights(const rnn *r, int64_t features) {
    int64_t each = per_direction(r), width = tn_tensor_shape(r->start.h)[2];
    int64_t cell = r->start.c ? tn_tensor_shape(r->start.c)[2] : width;
    int64_t rows = gate_counts[r->mode] * cell, d = directions_of(r);
    for (int64_t i = 0; i < r->layers * d; i++) {
        weights w = weights_of(r, i);
        TN_TRY(check_weight(r, i * each, w.w_ih, rows, i < d ? features : width * d));
        TN_TRY(check_weight(r, i * each + 1, w.w_hh, rows, width));
        if (w.b_ih) TN_TRY(check_weight(r, i * each + 2, w.b_ih, rows, -1));
        if (w.b_hh) TN_TRY(check_weight(r, i * each + 3, w.b_hh, rows, -1));
        if (w.w_hr) TN_TRY(check_weight(r, i * each + each - 1, w.w_hr, width, cell));
    }
    return TN_OK;
}

static tn_status check_start(const rnn *r, const tn_tensor *h, const char *name) {
    const int64_t *n = tn_tensor_shape(h);
    if (tn_tensor_ndim(h) == 3 && n[0] == r->layers * directions_of(r) && n[1] == r->samples)
        return TN_OK;
    return tn_fail(TN_E_SHAPE, 1, "%s: Expected %s of size (%lld, %lld, ...), got %s",
                   names[r->mode], name, (long long)(r->layers * directions_of(r)),
                   (long long)r->samples, tni_shape_text_of(tni_v(h)));
}

static tn_status check(const rnn *r, int64_t features) {
    int64_t count = r->layers * directions_of(r) * per_direction(r);
    if (r->layers < 1)
        return tn_fail(TN_E_VALUE, -1, "%s: num_layers must be at least 1", names[r->mode]);
    if (!(r->dropout >= 0.0 && r->dropout <= 1.0))
        return tn_fail(TN_E_VALUE, -1, "%s: dropout must lie between 0 and 1", names[r->mode]);
    TN_TRY(check_start(r, r->start.h, r->start.c ? "hx[0]" : "hx"));
    if (r->start.c) TN_TRY(check_start(r, r->start.c, "hx[1]"));
    if (r->params.n != count)
        return tn_fail(TN_E_STATE, -1, "%s: Expected %lld params, got %lld", names[r->mode],
                       (long long)count, (long long)r->params.n);
    return check_weights(r, features);
}

/* h, and of LSTM c: a projection makes the one narrower than the other. */
static tn_status take_start(rnn *r, tn_views hx) {
    int64_t want = r->mode == RNN_LSTM ? 2 : 1;
    if (hx.n != want || !hx.v[0] || !hx.v[want - 1])
        return tn_fail(TN_E_STATE, 1, "lstm expects two hidden states, got %lld", (long long)hx.n);
    r->start.h = tni_t(hx.v[0]);
    r->start.c = want == 2 ? tni_t(hx.v[1]) : NULL;
    r->projects = want == 2 && hx.v[0]->ndim == 3 && hx.v[1]->ndim == 3 &&
                  hx.v[0]->shape[2] != hx.v[1]->shape[2];
    return TN_OK;
}

/* Options that padded and packed calls have in common. */
typedef struct options {
    tn_views hx, params;
    int64_t has_biases, num_layers, train, bidirectional;
    double dropout;
} options;

static tn_status read_options(rnn *r, const options *o) {
    r->bidirectional = o->bidirectional != 0;
    r->has_biases = o->has_biases != 0;
    r->layers = o->num_layers;
    r->dropout = o->train ? o->dropout : 0.0;
    r->params = tni_tensors_of(o->params);
    return take_start(r, o->hx);
}

/* ---- Padded sequences --------------------------------------------------------------------------*/

/* (time, batch, features) as rows; NULL after a failure. */
static tn_tensor *as_rows(tni_scope *s, tn_tensor *x, bool batch_first) {
    if (batch_first) x = scope_transpose(s, x, 0, 1);
    if (s->st != TN_OK) return NULL;
    const int64_t *n = tn_tensor_shape(x);
    return scope_reshape(s, x, TN_INTS(n[0] * n[1], n[2]));
}

static tn_status run_rows(rnn *r, tn_tensor *x, bool batch_first, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor *rows = as_rows(&s, x, batch_first), *all[3] = {NULL, NULL, NULL};
    if (s.st == TN_OK) s.st = run_network(r, rows, all);
    tn_tensor *y = scope_take(&s, s.st, all[0]);
    if (s.st == TN_OK)
        y = scope_reshape(&s, y, TN_INTS(r->steps, r->samples, tn_tensor_shape(y)[1]));
    if (batch_first) y = scope_transpose(&s, y, 0, 1);
    tn_status st = scope_finish(&s, y, &rets[0]);
    for (int i = 1; i < 3 && all[i]; i++) {
        if (st == TN_OK) rets[i] = tn_tensor_ref(all[i]);
        tn_tensor_unref(&all[i]);
    }
    return st;
}

static tn_status run_padded(rnn_mode mode, const tn_view *x, const options *o, bool batch_first,
                            tn_tensor **rets) {
    rnn r = {.mode = mode};
    TN_TRY(read_options(&r, o));
    if (x->ndim != 3)
        return tn_fail(TN_E_SHAPE, 0, "%s: Expected input to have 3 dimensions, got %d",
                       names[mode], (int)x->ndim);
    r.steps = x->shape[batch_first];
    r.samples = x->shape[!batch_first];
    if (r.steps == 0)
        return tn_fail(TN_E_SHAPE, 0, "Expected sequence length to be larger than 0 in RNN");
    TN_TRY(check(&r, x->shape[2]));
    int64_t *sizes = calloc((size_t)r.steps, sizeof *sizes);
    if (!sizes) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < r.steps; i++) sizes[i] = r.samples;
    r.sizes = sizes;
    tn_status st = run_rows(&r, tni_t(x), batch_first, rets);
    free(sizes);
    return st;
}

/* ---- Packed sequences --------------------------------------------------------------------------*/

static tn_status check_sizes(rnn *r, const tn_view *data, const tn_view *sizes) {
    int64_t rows = 0;
    if (tn_view_device(sizes) != 0 || tn_view_dtype(sizes) != TN_I64 || sizes->ndim != 1 ||
        sizes->numel == 0 || !tn_view_is_contiguous(sizes))
        return tn_fail(TN_E_VALUE, 1, "%s: batch_sizes must be int64 on the CPU, one for each step",
                       names[r->mode]);
    if (data->ndim != 2)
        return tn_fail(TN_E_SHAPE, 0, "%s: Expected packed data to have 2 dimensions, got %d",
                       names[r->mode], (int)data->ndim);
    r->sizes = sizes->data;
    r->steps = sizes->numel;
    r->samples = r->sizes[0];
    for (int64_t i = 0; i < r->steps; i++) {
        int64_t n = r->sizes[i];
        if (n < 1 || (i > 0 && n > r->sizes[i - 1]) || n > data->shape[0] - rows)
            return tn_fail(TN_E_VALUE, 1,
                           "%s: batch_sizes must be positive, never grow, and sum up "
                           "to the rows of data",
                           names[r->mode]);
        rows += n;
    }
    if (rows == data->shape[0]) return TN_OK;
    return tn_fail(TN_E_VALUE, 1, "%s: batch_sizes sum up to %lld, but data has %lld rows",
                   names[r->mode], (long long)rows, (long long)data->shape[0]);
}

static tn_status run_packed(rnn_mode mode, const tn_view *data, const tn_view *sizes,
                            const options *o, tn_tensor **rets) {
    rnn r = {.mode = mode};
    TN_TRY(read_options(&r, o));
    TN_TRY(check_sizes(&r, data, sizes));
    TN_TRY(check(&r, data->shape[1]));
    return run_network(&r, tni_t(data), rets);
}

/* ---- The operators -----------------------------------------------------------------------------*/

/* A state as a list of one. */
static tn_views only(const tn_view *const *hx) {
    return (tn_views){(tn_view *const *)(uintptr_t)hx, 1};
}

#define OPTIONS_OF(a, states)                                                                      \
    {                                                                                              \
        .hx = (states), .params = (a)->params, .has_biases = (a)->has_biases,                      \
        .num_layers = (a)->num_layers, .train = (a)->train, .bidirectional = (a)->bidirectional,   \
        .dropout = (a)->dropout                                                                    \
    }

#define PADDED(name, mode, states)                                                                 \
    tn_status tni_composite_##name(const void *args, tn_tensor **rets) {                           \
        const tn_##name##_args *a = args;                                                          \
        const options o = OPTIONS_OF(a, states);                                                   \
        return run_padded(mode, a->input, &o, a->batch_first != 0, rets);                          \
    }

#define PACKED(name, mode, states)                                                                 \
    tn_status tni_composite_##name(const void *args, tn_tensor **rets) {                           \
        const tn_##name##_args *a = args;                                                          \
        const options o = OPTIONS_OF(a, states);                                                   \
        return run_packed(mode, a->data, a->batch_sizes, &o, rets);                                \
    }

PADDED(lstm, RNN_LSTM, a->hx)
PADDED(gru, RNN_GRU, only(&a->hx))
PADDED(rnn_tanh, RNN_TANH, only(&a->hx))
PADDED(rnn_relu, RNN_RELU, only(&a->hx))
PACKED(lstm_packed, RNN_LSTM, a->hx)
PACKED(gru_packed, RNN_GRU, only(&a->hx))
PACKED(rnn_tanh_packed, RNN_TANH, only(&a->hx))
PACKED(rnn_relu_packed, RNN_RELU, only(&a->hx))
