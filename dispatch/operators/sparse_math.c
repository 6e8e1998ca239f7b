/* sparse_math.c: rules of operators that compute element by element. */
#include <tenon/args_linalg.h>
#include <tenon/args_pointwise.h>

#include "args_priv.h"
#include "call_priv.h"
#include "op_pointwise.h"
#include "op_sparse.h"
#include "sparse_scope_priv.h"

/* ---- One sparse operand ------------------------------------------------------------------------*/

static tn_tensor **input_slot(const tn_op *op, void *args, int i) {
    return (tn_tensor **)(void *)((char *)args + op->in_offset[i]);
}

/* The operator on the values of its input `i`; the places stay. */
static tn_status on_values(const tn_op *op, void *args, int i, bool all, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor **slot = input_slot(op, args, i), *given = *slot, *r = NULL;
    tn_tensor *t = sparse_distinct(&s, given, all), *values = sparse_values(&s, t);
    if (s.st == TN_OK) {
        tn_tensor **out = tni_out_slot(op, args, 0), *target = *out;
        *slot = values;
        *out = NULL;
        tn_status st = tn_op_call(op, args, &r);
        *slot = given;
        *out = target;
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, sparse_like(&s, t, r), rets);
}

/* f(0) = 0, and f of a sum is no sum: elements are added up first. */
tn_status tni_sparse_values(const tn_op *op, void *args, tn_tensor **rets) {
    return on_values(op, args, 0, true, rets);
}

tn_status tni_sparse_linear(const tn_op *op, void *args, tn_tensor **rets) {
    return on_values(op, args, 0, false, rets);
}

/* No part of a sparse tensor waits to be conjugated. */
tn_status tni_sparse_conj(const tn_op *op, void *args, tn_tensor **rets) {
    (void)op;
    return tn_conj_physical(tni_t(((const tn_conj_args *)args)->input), rets);
}

/* Other values at the same places, which elements of coordinates that come twice do not have. */
tn_status tni_sparse_like_full(const tn_op *op, void *args, tn_tensor **rets) {
    if (tn_tensor_layout(*input_slot(op, args, 0)) != TN_LAYOUT_COO)
        return on_values(op, args, 0, false, rets);
    return tn_fail(TN_E_UNSUPPORTED, 0, "%s(): not implemented for layout sparse_coo",
                   op->info.name);
}

/* ---- Numbers -----------------------------------------------------------------------------------*/

/* Stands for one number, wherever it is. */
static bool is_number(const tn_tensor *t) { return !tni_is_sparse(t) && t->v.ndim == 0; }

static tn_status fail_operands(const tn_op *op, const tn_tensor *a, const tn_tensor *b) {
    return tn_fail(TN_E_UNSUPPORTED, -1, "%s(): there is no rule for layouts %s and %s",
                   op->info.name, tn_layout_name(tn_tensor_layout(a)),
                   tn_layout_name(tn_tensor_layout(b)));
}

/* input / number, and other operators whose second operand is one number; 0 stays 0. */
tn_status tni_sparse_by_number(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *a = *input_slot(op, args, 0), *b = *input_slot(op, args, 1);
    if (tni_is_sparse(b) || !is_number(b))
        return tn_fail(TN_E_STATE, 1,
                       "%s(): a sparse tensor is divided by a number or a 0-d tensor, got shape %s",
                       op->info.name, tni_shape_text_of(&b->v));
    if (!tni_is_sparse(a)) return fail_operands(op, a, b);
    return on_values(op, args, 0, op != &tni_op_true_divide && op != &tni_op__div_conj, rets);
}

tn_status tni_sparse_pow(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_pow_args *a = args;
    tn_scalar e = {0};
    if (!is_number(tni_t(a->exponent)) || !tni_is_sparse(tni_t(a->input)))
        return fail_operands(op, tni_t(a->input), tni_t(a->exponent));
    TN_TRY(tn_tensor_item(tni_t(a->exponent), &e));
    if (!(e.re > 0))
        return tn_fail(TN_E_UNSUPPORTED, 1,
                       "pow(): of a sparse tensor the exponent must be above 0, got %g", e.re);
    return on_values(op, args, 0, true, rets);
}

/* ---- mul ---------------------------------------------------------------------------------------*/

static tn_status check_shapes(const tn_op *op, const tn_tensor *a, const tn_tensor *b) {
    if (tni_shape_is(a, b->v.ndim, b->v.shape)) return TN_OK;
    return tn_fail(TN_E_STATE, 1, "%s(): sparse tensors of shapes %s and %s do not broadcast",
                   op->info.name, tni_shape_text_of(&a->v), tni_shape_text_of(&b->v));
}

/* The elements of a and b at the places that both have. */
static tn_tensor *common(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    sparse_places p, q;
    a = sparse_distinct(s, sparse_to_coo(s, a), true);
    b = sparse_distinct(s, sparse_to_coo(s, b), true);
    if (s->st != TN_OK) return NULL;
    if (tn_sparse_dim(a) != tn_sparse_dim(b)) {
        s->st = tn_fail(TN_E_STATE, 1, "mul(): sparse tensors of %d and %d sparse dimensions",
                        (int)tn_sparse_dim(a), (int)tn_sparse_dim(b));
        return NULL;
    }
    sparse_places_of(s, a, &p);
    sparse_places_of(s, b, &q);
    tn_tensor *x = sparse_keys(s, &p, 0, p.n), *y = sparse_keys(s, &q, 0, q.n);
    tn_tensor *low = sparse_found(s, y, x, false), *high = sparse_found(s, y, x, true), *in = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_lt(low, high, &in);
    tn_tensor *mine = sparse_where_true(s, scope_take(s, st, in));
    tn_tensor *theirs = sparse_pick(s, low, 0, mine);
    tn_tensor *u = sparse_pick(s, sparse_values(s, a), 0, mine);
    tn_tensor *v = sparse_pick(s, sparse_values(s, b), 0, theirs);
    tn_tensor *at = sparse_pick(s, p.at, 1, mine);
    return sparse_coo(s, at, scope_mul(s, u, v), tni_shape_ints(a), true);
}

/* Times a strided tensor that broadcasts to it. */
static tn_tensor *times_dense(tni_scope *s, tn_tensor *t, tn_tensor *dense) {
    sparse_places p;
    int64_t block[2];
    t = sparse_distinct(s, t, false);
    if (s->st != TN_OK) return NULL;
    sparse_block_of(t, block);
    sparse_places_of(s, t, &p);
    if (!tni_shape_is(dense, t->v.ndim, t->v.shape))
        dense = scope_expand(s, dense, tni_shape_ints(t));
    tn_tensor *at = sparse_read_at(s, dense, &p, block);
    tn_tensor *values = scope_mul(s, sparse_rows(s, t), at);
    if (s->st != TN_OK) return NULL;
    return sparse_like(s, t, scope_reshape(s, values, tni_shape_ints(tni_sparse_of(t)->values)));
}

/* Operand number i is sparse and has no dimensions: it stands for one number. */
static tn_status times_sparse_number(const tn_op *op, void *args, int i, tn_tensor **rets) {
    tn_tensor **slot = input_slot(op, args, i), *given = *slot, *number = NULL;
    TN_TRY(tn_to_dense(given, -1, 1, &number));
    *slot = number;
    tn_status st = tn_op_call(op, args, rets);
    *slot = given;
    tn_tensor_unref(&number);
    return st;
}

tn_status tni_sparse_mul(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *a = *input_slot(op, args, 0), *b = *input_slot(op, args, 1), *r;
    tni_scope s = {0};
    if (tni_is_sparse(a) && tni_is_sparse(b) && (a->v.ndim == 0) != (b->v.ndim == 0))
        return times_sparse_number(op, args, b->v.ndim == 0, rets);
    if (is_number(b) || is_number(a)) return on_values(op, args, is_number(a), false, rets);
    if (!tni_is_sparse(a) || !tni_is_sparse(b)) {
        r = tni_is_sparse(a) ? times_dense(&s, a, b) : times_dense(&s, b, a);
        return scope_finish(&s, r, rets);
    }
    TN_TRY(check_shapes(op, a, b));
    a = sparse_distinct(&s, a, true);
    b = sparse_distinct(&s, b, true);
    if (s.st == TN_OK && sparse_same_places(a, b))
        r = sparse_like(&s, a, scope_mul(&s, sparse_values(&s, a), sparse_values(&s, b)));
    else
        r = sparse_to_layout_of(&s, common(&s, a, b), a);
    return scope_finish(&s, r, rets);
}

/* What gradients of products ask for. */
tn_status tni_sparse_mul_conj(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *a = *input_slot(op, args, 0), *b = *input_slot(op, args, 1);
    tni_scope s = {0};
    if (is_number(b)) return on_values(op, args, 0, false, rets);
    if (tni_is_complex(b)) b = scope_unary(&s, tn_conj_physical, b);
    return scope_finish(&s, scope_mul(&s, a, b), rets);
}

/* ---- add, sub ----------------------------------------------------------------------------------*/

static tn_tensor *scaled(tni_scope *s, tn_tensor *t, tn_scalar by) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || (by.kind != TN_CAT_BOOL && tni_scalar_is(by, 1))) return t;
    tn_status st = tn_mul_scalar(t, by, &r);
    return scope_take(s, st, r);
}

/* All elements of both, one behind the other. */
static tn_tensor *joined(tni_scope *s, tn_tensor *a, tn_tensor *b, tn_scalar alpha, int32_t dtype) {
    tn_tensor *index[2], *values[2], *at = NULL, *all = NULL;
    a = sparse_distinct(s, a, false);
    b = sparse_distinct(s, b, false);
    if (s->st != TN_OK) return NULL;
    bool sorted = tn_sparse_is_coalesced(a) && tn_sparse_is_coalesced(b);
    index[0] = tni_sparse_of(a)->index;
    index[1] = tni_sparse_of(b)->index;
    values[0] = scope_convert(s, sparse_values(s, a), dtype);
    values[1] = scope_convert(s, scaled(s, sparse_values(s, b), alpha), dtype);
    if (s->st != TN_OK) return NULL;
    if (tn_sparse_dim(a) != tn_sparse_dim(b)) {
        s->st = tn_fail(TN_E_STATE, 1, "add(): sparse tensors of %d and %d sparse dimensions",
                        (int)tn_sparse_dim(a), (int)tn_sparse_dim(b));
        return NULL;
    }
    tn_status st = tn_cat((tn_tensors){index, 2}, 1, &at);
    at = scope_take(s, st, at);
    if (s->st != TN_OK) return NULL;
    st = tn_cat((tn_tensors){values, 2}, 0, &all);
    tn_tensor *r = sparse_coo(s, at, scope_take(s, st, all), tni_shape_ints(a), false), *c = NULL;
    if (s->st != TN_OK || !sorted) return r;
    st = tn_coalesce(r, &c);
    return scope_take(s, st, c);
}

static tn_tensor *sum_of_sparse(tni_scope *s, tn_tensor *a, tn_tensor *b, tn_scalar alpha,
                                int32_t dtype) {
    if (sparse_same_places(a, b)) {
        a = sparse_distinct(s, a, false);
        b = sparse_distinct(s, b, false);
        if (s->st != TN_OK) return NULL;
    }
    if (sparse_same_places(a, b)) {
        tn_tensor *x = sparse_values(s, a), *y = scaled(s, sparse_values(s, b), alpha);
        return sparse_like(s, a, scope_add(s, x, y));
    }
    tn_tensor *r = joined(s, sparse_to_coo(s, a), sparse_to_coo(s, b), alpha, dtype);
    return sparse_to_layout_of(s, r, a);
}

/* A strided tensor as n rows like those of `values`. */
static tn_tensor *flat_rows(tni_scope *s, tn_tensor *t, const tn_tensor *values, int64_t n) {
    int64_t shape[TN_MAX_DIMS];
    if (s->st != TN_OK) return NULL;
    memcpy(shape, values->v.shape, sizeof shape[0] * (size_t)values->v.ndim);
    shape[0] = n;
    return scope_reshape(s, t, tn_ints_of(shape, values->v.ndim));
}

/* target: strided memory that is written in place, or NULL. */
static tn_tensor *sum_with_dense(tni_scope *s, tn_tensor *dense, tn_tensor *t, tn_scalar alpha,
                                 int32_t dtype, tn_tensor *target) {
    sparse_places p;
    int64_t n = 1;
    t = sparse_distinct(s, sparse_to_coo(s, t), sparse_is_half(dtype));
    if (s->st != TN_OK) return NULL;
    sparse_places_of(s, t, &p);
    for (int32_t d = 0; d < p.n; d++) n *= p.grid[d];
    tn_tensor *values = scope_convert(s, sparse_values(s, t), dtype), *r = NULL;
    dense = scope_convert(s, dense, dtype);
    tn_tensor *flat = flat_rows(s, dense, values, n), *keys = sparse_keys(s, &p, 0, p.n);
    if (s->st != TN_OK) return NULL;
    if (target && tn_tensor_same_storage(flat, target)) {
        s->st = tn_index_add_(flat, 0, keys, values, alpha, &r);
        scope_take(s, s->st, r);
        return target;
    }
    tn_status st = tn_index_add(flat, 0, keys, values, alpha, &r);
    return scope_reshape(s, scope_take(s, st, r), tni_shape_ints(dense));
}

tn_status tni_sparse_add(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_add_args *call = args;
    tn_tensor *a = tni_t(call->input), *b = tni_t(call->other), *both[2] = {a, b}, *r;
    tn_scalar alpha = call->alpha;
    tni_scope s = {0};
    _Static_assert(offsetof(tn_add_args, alpha) == offsetof(tn_sub_args, alpha), "one reads both");
    if (op == &tni_op_sub)
        alpha = (tn_scalar){alpha.kind, 0, (int64_t)(0 - (uint64_t)alpha.i), -alpha.re, -alpha.im};
    if (is_number(a) || is_number(b)) return fail_operands(op, a, b);
    int32_t dtype = tni_result_dtype(both, 2);
    TN_TRY(check_shapes(op, a, b));
    if (tni_is_sparse(a) && tni_is_sparse(b))
        r = sum_of_sparse(&s, a, b, alpha, dtype);
    else if (tni_is_sparse(b))
        r = sum_with_dense(&s, a, b, alpha, dtype, call->out ? tni_t(call->out) : NULL);
    else
        r = sum_with_dense(&s, scaled(&s, b, alpha), a, tn_scalar_int(1), dtype, NULL);
    return scope_finish(&s, r, rets);
}
