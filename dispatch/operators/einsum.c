/* einsum.c: einsum by pairwise contraction.
 *
 * Every dimension of an operand carries a label: a letter of the equation, or a number for one
 * dimension of an ellipsis. Repeated labels become diagonals. Then operands are contracted from
 * left to right: labels that nothing later needs are summed, and each pair becomes one batched
 * product. */
#include <tenon/args_linalg.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "op_linalg.h"

/* Labels: 0..25 'A'..'Z', 26..51 'a'..'z', then the dimensions of the ellipsis, the last one being
 * LABELS - 1, so that ellipses of different rank line up at their right end. */
#define LETTERS 52

#define LABELS (LETTERS + TN_MAX_DIMS)

typedef struct operand {
    tn_tensor *t; /* owned */
    int32_t n;
    uint8_t label[TN_MAX_DIMS]; /* by dimension */
} operand;

static int letter_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    return -1;
}

/* Reads the subscripts of one term up to ',' or '-' or the end. `dots` is how many dimensions an
 * ellipsis stands for; -1 finds it from `ndim`. */
static tn_status read_term(const char **text, int32_t ndim, int32_t dots, operand *ret,
                           int32_t *ret_dots) {
    const char *s = *text;
    uint8_t before[TN_MAX_DIMS], after[TN_MAX_DIMS];
    int32_t nb = 0, na = 0;
    bool ellipsis = false;
    for (; *s != '\0' && *s != ',' && *s != '-'; s++) {
        if (*s == ' ') continue;
        if (*s == '.') {
            if (ellipsis || s[1] != '.' || s[2] != '.') {
                return tn_fail(TN_E_STATE, 0,
                               "einsum(): found '.' that is not part of any ellipsis");
            }
            ellipsis = true;
            s += 2;
            continue;
        }
        int label = letter_of(*s);
        if (label < 0) {
            return tn_fail(TN_E_STATE, 0,
                           "einsum(): invalid subscript given at index %d in the equation string, "
                           "subscripts must be in [a-zA-Z]",
                           (int)(s - *text));
        }
        if (nb + na == TN_MAX_DIMS) return tn_fail(TN_E_STATE, 0, "einsum(): too many subscripts");
        if (ellipsis) {
            after[na++] = (uint8_t)label;
        } else {
            before[nb++] = (uint8_t)label;
        }
    }
    *text = s;
    if (dots < 0) dots = ellipsis ? ndim - nb - na : 0;
    if (!ellipsis) dots = 0;
    if (dots < 0 || (ndim >= 0 && nb + na + dots != ndim)) {
        return tn_fail(TN_E_STATE, 1,
                       "einsum(): the number of subscripts in the equation (%d) does not match the "
                       "number of dimensions (%d) for an operand%s",
                       (int)(nb + na), (int)ndim, ellipsis ? " with an ellipsis" : "");
    }
    if (nb + na + dots > TN_MAX_DIMS)
        return tn_fail(TN_E_STATE, 0, "einsum(): too many dimensions");
    ret->n = 0;
    for (int32_t i = 0; i < nb; i++) ret->label[ret->n++] = before[i];
    for (int32_t i = 0; i < dots; i++) ret->label[ret->n++] = (uint8_t)(LABELS - dots + i);
    for (int32_t i = 0; i < na; i++) ret->label[ret->n++] = after[i];
    *ret_dots = dots;
    return TN_OK;
}

static void replace(operand *o, tn_tensor *t) {
    tn_tensor_unref(&o->t);
    o->t = t;
}

static void drop_label(operand *o, int32_t d) {
    memmove(o->label + d, o->label + d + 1, (size_t)(o->n - d - 1));
    o->n--;
}

static int32_t find(const operand *o, uint8_t label) {
    for (int32_t d = 0; d < o->n; d++) {
        if (o->label[d] == label) return d;
    }
    return -1;
}

/* Takes the diagonal of dimensions that share a label. */
static tn_status diagonals(operand *o) {
    for (int32_t i = 0; i < o->n; i++) {
        for (int32_t j = i + 1; j < o->n; j++) {
            if (o->label[i] != o->label[j]) continue;
            const int64_t *shape = tn_tensor_shape(o->t);
            if (shape[i] != shape[j]) {
                return tn_fail(TN_E_SHAPE, 1,
                               "einsum(): subscript is repeated for an operand but the sizes don't "
                               "match, %lld != %lld",
                               (long long)shape[j], (long long)shape[i]);
            }
            tn_tensor *t = NULL;
            TN_TRY(tn_diagonal(o->t, 0, i, j, &t));
            uint8_t label = o->label[i];
            replace(o, t);
            drop_label(o, j);
            drop_label(o, i);
            o->label[o->n++] = label; /* diagonal puts the new dimension last */
            i = -1;
            break;
        }
    }
    return TN_OK;
}

/* Sums the dimensions of o whose labels `keep` does not name. */
static tn_status sum_out(operand *o, const bool *keep) {
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0;
    operand left = *o;
    left.n = 0;
    for (int32_t d = 0; d < o->n; d++) {
        if (keep[o->label[d]]) {
            left.label[left.n++] = o->label[d];
        } else {
            dims[n++] = d;
        }
    }
    if (n == 0) return TN_OK;
    tn_tensor *t = NULL;
    TN_TRY(tn_sum(o->t, tn_ints_of(dims, n), 0, -1, &t));
    replace(o, t);
    o->n = left.n;
    memcpy(o->label, left.label, sizeof(left.label));
    return TN_OK;
}

/* Takes a dimension of size 1 out of o. */
static tn_status drop_one(operand *o, int32_t d) {
    tn_tensor *t = NULL;
    TN_TRY(tn_select(o->t, d, 0, &t));
    replace(o, t);
    drop_label(o, d);
    return TN_OK;
}

/* Takes dimensions of size 1 out of a: they broadcast beside b's. Labels that b does not have at a
 * larger size, and that are needed, are noted in `ones`. */
static tn_status drop_ones(operand *a, const operand *b, const bool *keep, bool *ones) {
    for (int32_t d = a->n - 1; d >= 0; d--) {
        uint8_t l = a->label[d];
        int32_t e = find(b, l);
        int64_t x = tn_tensor_shape(a->t)[d], y = e < 0 ? 1 : tn_tensor_shape(b->t)[e];
        if (e >= 0 && x != y && x != 1 && y != 1) {
            return tn_fail(TN_E_SHAPE, 1,
                           "einsum(): operands do not broadcast with remapped shapes: a dimension "
                           "has sizes %lld and %lld",
                           (long long)x, (long long)y);
        }
        if (x != 1) continue;
        if (y == 1 && keep[l]) ones[l] = true;
        TN_TRY(drop_one(a, d));
    }
    return TN_OK;
}

/* Labels in the order of the result: those of the equation's right side, then all others. */
typedef struct ranked {
    int32_t n;
    uint8_t label[LABELS];
} ranked;

static ranked rank_labels(const operand *want) {
    ranked r = {0, {0}};
    for (int32_t d = 0; d < want->n; d++) r.label[r.n++] = want->label[d];
    for (int l = LETTERS; l < LABELS; l++)
        if (find(want, (uint8_t)l) < 0) r.label[r.n++] = (uint8_t)l;
    for (int l = 0; l < LETTERS; l++)
        if (find(want, (uint8_t)l) < 0) r.label[r.n++] = (uint8_t)l;
    return r;
}

/* Permutes o to the labels of three groups and reshapes it to three dimensions. */
static tn_status as_three(const operand *o, const operand *const *group, tn_tensor **ret) {
    int64_t perm[TN_MAX_DIMS], shape[3] = {1, 1, 1};
    int32_t at = 0;
    for (int g = 0; g < 3; g++) {
        for (int32_t i = 0; i < group[g]->n; i++) {
            int32_t d = find(o, group[g]->label[i]);
            if (d < 0) continue; /* of size 1 */
            perm[at++] = d;
            shape[g] *= tn_tensor_shape(o->t)[d];
        }
    }
    tn_tensor *p = NULL;
    TN_TRY(tn_permute(o->t, tn_ints_of(perm, at), &p));
    tn_status st = tn_reshape(p, tn_ints_of(shape, 3), ret);
    tn_tensor_unref(&p);
    return st;
}

/* o with the dimensions of `all`, those that it does not have being of size 1. */
static tn_status aligned(const operand *o, const operand *all, tn_tensor **ret) {
    int64_t perm[TN_MAX_DIMS];
    int32_t at = 0;
    for (int32_t i = 0; i < all->n; i++) {
        int32_t d = find(o, all->label[i]);
        if (d >= 0) perm[at++] = d;
    }
    tn_tensor *t = NULL;
    TN_TRY(tn_permute(o->t, tn_ints_of(perm, at), &t));
    for (int32_t i = 0; i < all->n; i++) {
        if (find(o, all->label[i]) >= 0) continue;
        tn_tensor *wider = NULL;
        tn_status st = tn_unsqueeze(t, i, &wider);
        tn_tensor_unref(&t);
        if (st) return st;
        t = wider;
    }
    *ret = t;
    return TN_OK;
}

static tn_status multiply(const operand *a, const operand *b, operand *ret) {
    tn_tensor *x = NULL, *y = NULL;
    tn_status st = aligned(a, ret, &x);
    if (!st) st = aligned(b, ret, &y);
    if (!st) st = tn_mul(x, y, &ret->t);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    return st;
}

/* One batched product of (batch, left, summed) with (batch, summed, right). */
static tn_status product(const operand *a, const operand *b, const operand *batch,
                         const operand *left, const operand *summed, const operand *right,
                         operand *ret) {
    const operand *ga[3] = {batch, left, summed}, *gb[3] = {batch, summed, right};
    const operand *all[3] = {batch, left, right};
    int64_t shape[TN_MAX_DIMS];
    ret->n = 0;
    for (int g = 0; g < 3; g++) {
        for (int32_t i = 0; i < all[g]->n; i++) {
            uint8_t l = all[g]->label[i];
            int32_t d = find(a, l), e = find(b, l);
            shape[ret->n] = d >= 0   ? tn_tensor_shape(a->t)[d]
                            : e >= 0 ? tn_tensor_shape(b->t)[e]
                                     : 1;
            ret->label[ret->n++] = l;
        }
    }
    tn_tensor *x = NULL, *y = NULL, *prod = NULL;
    tn_status st = as_three(a, ga, &x);
    if (!st) st = as_three(b, gb, &y);
    if (!st) st = tn_bmm(x, y, &prod);
    if (!st) st = tn_reshape(prod, tn_ints_of(shape, ret->n), &ret->t);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    tn_tensor_unref(&prod);
    return st;
}

/* a = a contracted with b; `keep` names the labels that are needed afterwards. Groups are in the
 * result's order, and the operand whose labels come first there is the left one, so that the
 * product lies in memory as the result does where that can be (the strides are PyTorch's). */
static tn_status contract(operand *a, operand *b, const bool *keep, const ranked *order) {
    bool keep_a[LABELS], keep_b[LABELS], ones[LABELS] = {false};
    TN_TRY(drop_ones(a, b, keep, ones));
    TN_TRY(drop_ones(b, a, keep, ones));
    for (int l = 0; l < LABELS; l++) {
        keep_a[l] = keep[l] || find(b, (uint8_t)l) >= 0;
        keep_b[l] = keep[l] || find(a, (uint8_t)l) >= 0;
    }
    TN_TRY(sum_out(a, keep_a));
    TN_TRY(sum_out(b, keep_b));
    operand batch = {NULL, 0, {0}}, summed = batch, left = batch, right = batch, all = batch;
    for (int32_t i = 0; i < order->n; i++) {
        uint8_t l = order->label[i];
        bool in_a = find(a, l) >= 0, in_b = find(b, l) >= 0;
        if (!in_a && !in_b && !ones[l]) continue;
        operand *group = in_a && in_b ? (keep[l] ? &batch : &summed) : in_a ? &left : &right;
        if (all.n == TN_MAX_DIMS) return tn_fail(TN_E_STATE, 1, "einsum(): too many dimensions");
        all.label[all.n++] = l;
        group->label[group->n++] = l;
    }
    operand res = all;
    tn_status st;
    if (summed.n == 0) {
        st = multiply(a, b, &res);
    } else if (left.n && right.n &&
               find(&all, right.label[right.n - 1]) < find(&all, left.label[0])) {
        st = product(b, a, &batch, &right, &summed, &left, &res);
    } else {
        st = product(a, b, &batch, &left, &summed, &right, &res);
    }
    if (st) return st;
    tn_tensor_unref(&a->t);
    *a = res;
    return TN_OK;
}

/* The labels of the result: what stands behind "->", else every label used once, in order. */
static tn_status read_output(const char *s, const int32_t *count, int32_t dots, operand *ret) {
    if (*s == '-') {
        if (s[1] != '>') return tn_fail(TN_E_STATE, 0, "einsum(): '-' is not followed by '>'");
        s += 2;
        int32_t unused;
        TN_TRY(read_term(&s, -1, dots, ret, &unused));
        if (*s != '\0')
            return tn_fail(TN_E_STATE, 0, "einsum(): text follows the output subscripts");
        for (int32_t d = 0; d < ret->n; d++) {
            if (count[ret->label[d]] == 0) {
                return tn_fail(TN_E_STATE, 0,
                               "einsum(): an output subscript does not appear in the equation for "
                               "any input operand");
            }
            for (int32_t e = 0; e < d; e++) {
                if (ret->label[e] == ret->label[d]) {
                    return tn_fail(
                        TN_E_STATE, 0,
                        "einsum(): output subscript appears more than once in the output");
                }
            }
        }
        return TN_OK;
    }
    ret->n = 0;
    for (int32_t i = 0; i < dots; i++) ret->label[ret->n++] = (uint8_t)(LABELS - dots + i);
    for (int l = 0; l < LETTERS; l++) {
        if (count[l] == 1 && ret->n < TN_MAX_DIMS) ret->label[ret->n++] = (uint8_t)l;
    }
    return TN_OK;
}

/* Puts the dimensions of o into the order of `want`. */
static tn_status arrange(const operand *o, const operand *want, tn_tensor **ret) {
    int64_t perm[TN_MAX_DIMS];
    for (int32_t d = 0; d < want->n; d++) perm[d] = find(o, want->label[d]);
    return tn_permute(o->t, tn_ints_of(perm, want->n), ret);
}

#define MAX_OPERANDS 32

tn_status tni_composite_einsum(const void *args, tn_tensor **rets) {
    const tn_einsum_args *a = args;
    int64_t n = a->operands.n;
    operand ops[MAX_OPERANDS], want = {NULL, 0, {0}};
    bool keep[LABELS];
    int32_t dots = 0, count[LABELS] = {0}; /* how often the equation names each label */
    tn_status st = TN_OK;
    if (n < 1 || n > MAX_OPERANDS) {
        return tn_fail(TN_E_VALUE, 1, "einsum(): must provide from 1 to %d operands", MAX_OPERANDS);
    }
    for (int64_t i = 0; i < n; i++) ops[i] = (operand){NULL, 0, {0}};
    const char *s = a->equation;
    for (int64_t i = 0; i < n; i++) {
        int32_t mine;
        if ((st = read_term(&s, a->operands.v[i]->ndim, -1, &ops[i], &mine))) goto out;
        dots = mine > dots ? mine : dots;
        for (int32_t d = 0; d < ops[i].n; d++) count[ops[i].label[d]]++;
        ops[i].t = tn_tensor_ref(tni_t(a->operands.v[i]));
        if ((st = diagonals(&ops[i]))) goto out;
        if (i + 1 < n && *s++ != ',') {
            st = tn_fail(TN_E_STATE, 1,
                         "einsum(): more operands were provided than specified in the equation");
            goto out;
        }
    }
    if (*s == ',') {
        st = tn_fail(TN_E_STATE, 1,
                     "einsum(): fewer operands were provided than specified in the equation");
        goto out;
    }
    if ((st = read_output(s, count, dots, &want))) goto out;
    const ranked order = rank_labels(&want);
    for (int64_t i = 0; i < n; i++) {
        for (int l = 0; l < LABELS; l++) keep[l] = find(&want, (uint8_t)l) >= 0;
        for (int64_t j = i + 1; j < n; j++) {
            for (int32_t d = 0; d < ops[j].n; d++) {
                keep[ops[j].label[d]] = true;
            }
        }
        st = i > 0    ? contract(&ops[0], &ops[i], keep, &order)
             : n == 1 ? sum_out(&ops[0], keep)
                      : TN_OK;
        if (st) goto out;
    }
    st = arrange(&ops[0], &want, &rets[0]);
out:
    for (int64_t i = 0; i < n; i++) tn_tensor_unref(&ops[i].t);
    return st;
}
