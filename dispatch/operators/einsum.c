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

/* A dimension of size 1 beside a larger one of the same label broadcasts: it is dropped. */
static tn_status drop_ones(operand *a, const operand *b) {
    for (int32_t d = a->n - 1; d >= 0; d--) {
        int32_t e = find(b, a->label[d]);
        if (e < 0) continue;
        int64_t x = tn_tensor_shape(a->t)[d], y = tn_tensor_shape(b->t)[e];
        if (x == y) continue;
        if (x != 1 && y != 1) {
            return tn_fail(TN_E_SHAPE, 1,
                           "einsum(): operands do not broadcast with remapped shapes: a dimension "
                           "has sizes %lld and %lld",
                           (long long)x, (long long)y);
        }
        if (x != 1) continue;
        tn_tensor *t = NULL;
        TN_TRY(tn_select(a->t, d, 0, &t));
        replace(a, t);
        drop_label(a, d);
    }
    return TN_OK;
}

/* Permutes o to the labels of three groups and reshapes it to three dimensions. */
static tn_status as_three(const operand *o, const uint8_t *const *group, const int32_t *n,
                          tn_tensor **ret) {
    int64_t perm[TN_MAX_DIMS], shape[3] = {1, 1, 1};
    int32_t at = 0;
    for (int g = 0; g < 3; g++) {
        for (int32_t i = 0; i < n[g]; i++) {
            int32_t d = find(o, group[g][i]);
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

/* a = a contracted with b; `keep` names the labels that are needed afterwards. */
static tn_status contract(operand *a, operand *b, const bool *keep) {
    TN_TRY(drop_ones(a, b));
    TN_TRY(drop_ones(b, a));
    uint8_t batch[TN_MAX_DIMS], summed[TN_MAX_DIMS], left[TN_MAX_DIMS], right[TN_MAX_DIMS];
    int32_t nbatch = 0, nsum = 0, nleft = 0, nright = 0;
    bool keep_a[LABELS], keep_b[LABELS];
    for (int l = 0; l < LABELS; l++) {
        keep_a[l] = keep[l] || find(b, (uint8_t)l) >= 0;
        keep_b[l] = keep[l] || find(a, (uint8_t)l) >= 0;
    }
    TN_TRY(sum_out(a, keep_a));
    TN_TRY(sum_out(b, keep_b));
    for (int32_t d = 0; d < a->n; d++) {
        uint8_t l = a->label[d];
        if (find(b, l) < 0) {
            left[nleft++] = l;
        } else if (keep[l]) {
            batch[nbatch++] = l;
        } else {
            summed[nsum++] = l;
        }
    }
    for (int32_t d = 0; d < b->n; d++) {
        if (find(a, b->label[d]) < 0) right[nright++] = b->label[d];
    }
    if (nbatch + nleft + nright > TN_MAX_DIMS) {
        return tn_fail(TN_E_STATE, 1, "einsum(): too many dimensions");
    }
    operand res = {NULL, 0, {0}};
    int64_t shape[TN_MAX_DIMS];
    for (int32_t i = 0; i < nbatch + nleft + nright; i++) {
        uint8_t l = i < nbatch           ? batch[i]
                    : i < nbatch + nleft ? left[i - nbatch]
                                         : right[i - nbatch - nleft];
        int32_t d = find(a, l);
        shape[i] = d >= 0 ? tn_tensor_shape(a->t)[d] : tn_tensor_shape(b->t)[find(b, l)];
        res.label[res.n++] = l;
    }
    const uint8_t *ga[3] = {batch, left, summed}, *gb[3] = {batch, summed, right};
    int32_t na[3] = {nbatch, nleft, nsum}, nb[3] = {nbatch, nsum, nright};
    tn_tensor *x = NULL, *y = NULL, *prod = NULL;
    tn_status st = as_three(a, ga, na, &x);
    if (!st) st = as_three(b, gb, nb, &y);
    if (!st) st = nsum == 0 ? tn_mul(x, y, &prod) : tn_bmm(x, y, &prod);
    if (!st) st = tn_reshape(prod, tn_ints_of(shape, res.n), &res.t);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    tn_tensor_unref(&prod);
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
    for (int64_t i = 0; i < n; i++) {
        for (int l = 0; l < LABELS; l++) keep[l] = find(&want, (uint8_t)l) >= 0;
        for (int64_t j = i + 1; j < n; j++) {
            for (int32_t d = 0; d < ops[j].n; d++) {
                keep[ops[j].label[d]] = true;
            }
        }
        st = i > 0 ? contract(&ops[0], &ops[i], keep) : n == 1 ? sum_out(&ops[0], keep) : TN_OK;
        if (st) goto out;
    }
    st = arrange(&ops[0], &want, &rets[0]);
out:
    for (int64_t i = 0; i < n; i++) tn_tensor_unref(&ops[i].t);
    return st;
}
