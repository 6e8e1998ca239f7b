/* scope_priv.h: writing composite operators without a ladder of status checks.
 *
 * A scope collects the temporaries of one composite and its first failure. Each scope_* function
 * computes one operator and returns a tensor that the scope owns; after a failure they all do
 * nothing and return NULL. scope_finish hands a reference to the result over (ret may be NULL) and
 * releases everything else. */
#ifndef TENON_SCOPE_PRIV_H
#define TENON_SCOPE_PRIV_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"

#define TNI_SCOPE_MAX 48
/* Temporaries beyond those that a scope holds itself: loops over the dimensions of many make more. */
typedef struct tni_scope_older {
    struct tni_scope_older *next;
    tn_tensor *t[TNI_SCOPE_MAX];
} tni_scope_older;

typedef struct tni_scope {
    tn_status st;
    int32_t n;
    tn_tensor *t[TNI_SCOPE_MAX + 1]; /* owned */
    tni_scope_older *older;
} tni_scope;

static inline void scope_make_room(tni_scope *s) {
    tni_scope_older *older = malloc(sizeof *older);
    if (!older) {
        s->st = tn_fail(TN_E_MEMORY, -1, "out of memory");
        return;
    }
    memcpy(older->t, s->t, sizeof older->t);
    older->next = s->older;
    s->older = older;
    s->n = 0;
}

/* Takes over t, which a call that returned `st` has made; NULL when it failed. */
static inline tn_tensor *scope_take(tni_scope *s, tn_status st, tn_tensor *t) {
    if (st != TN_OK) {
        s->st = st;
        return NULL;
    }
    if (s->n == TNI_SCOPE_MAX) scope_make_room(s);
    if (s->st != TN_OK) {
        tn_tensor_unref(&t);
        return NULL;
    }
    s->t[s->n++] = t;
    return t;
}

/* Any operator: SCOPE(&s, tn_gather(x, dim, index, 0, scope_slot(&s))). Calls are not nested. */
#define SCOPE(s, call) ((s)->st == TN_OK ? scope_made(s, call) : NULL)
static inline tn_tensor **scope_slot(tni_scope *s) {
    s->t[s->n] = NULL;
    return &s->t[s->n];
}
static inline tn_tensor *scope_made(tni_scope *s, tn_status st) {
    return scope_take(s, st, s->t[s->n]);
}
/* The number that a tensor of one element holds; 0 after a failure. */
static inline tn_scalar scope_item(tni_scope *s, const tn_tensor *t) {
    tn_scalar number = {0};
    if (s->st == TN_OK) s->st = tn_tensor_item(t, &number);
    return number;
}

/* Operators of one tensor and of two, by their C functions: scope_unary(&s, tn_sqrt, a). */
typedef tn_status (*tni_unary)(tn_tensor *a, tn_tensor **ret);
typedef tn_status (*tni_binary)(tn_tensor *a, tn_tensor *b, tn_tensor **ret);

static inline tn_tensor *scope_unary(tni_scope *s, tni_unary op, tn_tensor *a) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = op(a, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_binary(tni_scope *s, tni_binary op, tn_tensor *a, tn_tensor *b) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = op(a, b, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_add(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_add(a, b, tn_scalar_int(1), &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_sub(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_sub(a, b, tn_scalar_int(1), &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_mul(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    return scope_binary(s, tn_mul, a, b);
}

static inline tn_tensor *scope_true_divide(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    return scope_binary(s, tn_true_divide, a, b);
}

static inline tn_tensor *scope_neg(tni_scope *s, tn_tensor *a) { return scope_unary(s, tn_neg, a); }

static inline tn_tensor *scope_exp(tni_scope *s, tn_tensor *a) { return scope_unary(s, tn_exp, a); }

static inline tn_tensor *scope_log(tni_scope *s, tn_tensor *a) { return scope_unary(s, tn_log, a); }

static inline tn_tensor *scope_rsqrt(tni_scope *s, tn_tensor *a) {
    return scope_unary(s, tn_rsqrt, a);
}

static inline tn_tensor *scope_square(tni_scope *s, tn_tensor *a) {
    return scope_unary(s, tn_square, a);
}

static inline tn_tensor *scope_reshape(tni_scope *s, tn_tensor *a, tn_ints shape) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_reshape(a, shape, &r);
    return scope_take(s, st, r);
}

/* t as a matrix: all dimensions in front of the last one are rows. */
static inline tn_tensor *scope_rows(tni_scope *s, tn_tensor *t) {
    if (s->st != TN_OK) return NULL;
    const int64_t *shape = tn_tensor_shape(t);
    int64_t rows = 1;
    int32_t last = tn_tensor_ndim(t) - 1;
    for (int32_t d = 0; d < last; d++) rows *= shape[d];
    return scope_reshape(s, t, TN_INTS(rows, shape[last]));
}

static inline tn_tensor *scope_permute(tni_scope *s, tn_tensor *a, tn_ints dims) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_permute(a, dims, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_expand(tni_scope *s, tn_tensor *a, tn_ints shape) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_expand(a, shape, 0, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_unsqueeze(tni_scope *s, tn_tensor *a, int64_t dim) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_unsqueeze(a, dim, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_transpose(tni_scope *s, tn_tensor *a, int64_t dim0, int64_t dim1) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_transpose(a, dim0, dim1, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_select(tni_scope *s, tn_tensor *a, int64_t dim, int64_t index) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_select(a, dim, index, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_narrow(tni_scope *s, tn_tensor *a, int64_t dim, int64_t start,
                                      int64_t length) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_narrow(a, dim, start, length, &r);
    return scope_take(s, st, r);
}

/* In another dtype; itself where that is negative. */
static inline tn_tensor *scope_convert(tni_scope *s, tn_tensor *a, int64_t dtype) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    if (dtype < 0) return a;
    tn_status st = tn__move(a, dtype, -1, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_where(tni_scope *s, tn_tensor *condition, tn_tensor *a,
                                     tn_tensor *b) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_where(condition, a, b, &r);
    return scope_take(s, st, r);
}

/* softmax of scores by row; a row that is -inf throughout, whose query sees no key, becomes 0. */
static inline tn_tensor *scope_softmax_seen(tni_scope *s, tn_tensor *score) {
    tn_tensor *most = NULL, *blind = NULL, *p = NULL;
    tn_scalar_box low, zero;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_amax(score, TN_INTS(-1), 1, &most);
    most = scope_take(s, st, most);
    if (s->st != TN_OK) return NULL;
    st = tn_eq(most, tn_scalar_box_init(&low, tn_scalar_float(-INFINITY)), &blind);
    blind = scope_take(s, st, blind);
    tn_tensor *nothing = tn_scalar_box_init(&zero, tn_scalar_float(0.0));
    score = scope_where(s, blind, nothing, score);
    if (s->st != TN_OK) return NULL;
    st = tn_softmax(score, -1, -1, &p);
    p = scope_take(s, st, p);
    return scope_where(s, blind, nothing, p);
}

static inline tn_tensor *scope_sum(tni_scope *s, tn_tensor *a, tn_ints dims, int64_t keepdim) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_sum(a, dims, keepdim, -1, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_mean(tni_scope *s, tn_tensor *a, tn_ints dims, int64_t keepdim) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_mean(a, dims, keepdim, -1, &r);
    return scope_take(s, st, r);
}

static inline tn_tensor *scope_matmul(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    return scope_binary(s, tn_matmul, a, b);
}

/* A tensor and a number. */
static inline tn_tensor *scope_add_number(tni_scope *s, tn_tensor *a, double v) {
    tn_scalar_box box;
    return scope_add(s, a, tn_scalar_box_init(&box, tn_scalar_float(v)));
}

static inline tn_tensor *scope_mul_number(tni_scope *s, tn_tensor *a, double v) {
    tn_scalar_box box;
    return scope_mul(s, a, tn_scalar_box_init(&box, tn_scalar_float(v)));
}

static inline tn_status scope_finish(tni_scope *s, tn_tensor *result, tn_tensor **ret) {
    if (s->st == TN_OK && ret) *ret = tn_tensor_ref(result);
    for (int32_t i = s->n - 1; i >= 0; i--) tn_tensor_unref(&s->t[i]);
    while (s->older) {
        tni_scope_older *older = s->older;
        for (int32_t i = TNI_SCOPE_MAX - 1; i >= 0; i--) tn_tensor_unref(&older->t[i]);
        s->older = older->next;
        free(older);
    }
    return s->st;
}

#endif
