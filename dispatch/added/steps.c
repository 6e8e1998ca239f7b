/* steps.c: runs a compiled formula. */
#include "call_priv.h"
#include <math.h>
#include <stdlib.h>

#include "ask_priv.h"
#include "steps_priv.h"

enum { MAX_INTS = 128, MAX_LISTED = 64 };

typedef struct run {
    const tni_formula *f;
    const char *args;
    tni_incoming g;
    int32_t nints, nlisted;
    uint64_t ran; /* the steps that did, as a mask */
    tni_value reg[TNI_MAX_STEPS];
    int64_t ints[MAX_INTS];
    tn_view *listed[MAX_LISTED]; /* elements of lists that the formula makes */
} run;

/* ---- Reading -----------------------------------------------------------------------------------*/

static tn_scalar optional(bool has, tn_scalar s) { return has ? s : tn_scalar_none(); }

tni_value tni_field_value(const tn_field *f, const void *args) {
    const void *p = (const char *)args + f->offset;
    tni_value v = {0};
    switch (f->kind) {
    case TN_F_TENSORS: v.list = *(const tn_views *)p; break;
    case TN_F_INT:
    case TN_F_DIM: v.number = tn_scalar_int(*(const int64_t *)p); break;
    case TN_F_BOOL: v.number = tn_scalar_bool(*(const int64_t *)p != 0); break;
    case TN_F_FLOAT: v.number = tn_scalar_float(*(const double *)p); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: {
        const tn_opt_int *o = p;
        v.number = optional(o->has != 0, tn_scalar_int(o->value));
        break;
    }
    case TN_F_FLOAT_OPT: {
        const tn_opt_float *o = p;
        v.number = optional(o->has != 0, tn_scalar_float(o->value));
        break;
    }
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: v.number = *(const tn_scalar *)p; break;
    case TN_F_INTS:
    case TN_F_DIMS: v.ints = *(const tn_ints *)p; break;
    case TN_F_DTYPE:
    case TN_F_DEVICE:
    case TN_F_FORMAT: v.code = *(const int64_t *)p; break;
    default: v.pointer = *(const void *const *)p; break; /* a tensor, a text, a generator */
    }
    return v;
}

static tni_value load(const run *r, const tni_term *t) {
    switch (t->from) {
    case TNI_FROM_FIELD: return tni_field_value(&r->f->fields[t->at], r->args);
    case TNI_FROM_GRAD:
        if (t->kind == TNI_V_TENSORS)
            return (tni_value){.list = tni_views((tn_tensors){r->g.g, r->g.n})};
        return (tni_value){.t = r->g.g[t->at]};
    case TNI_FROM_STEP: return r->reg[r->f->step[t->at].reg + t->nr];
    default: return t->constant;
    }
}

/* The same for a term that is a tensor, as most are. */
static inline tn_tensor *load_tensor(const run *r, const tni_term *t) {
    if (t->from == TNI_FROM_FIELD)
        return *(tn_tensor *const *)(const void *)(r->args + r->f->fields[t->at].offset);
    return t->from == TNI_FROM_GRAD ? r->g.g[t->at] : load(r, t).t;
}

static tn_status fail_absent(void) {
    return tn_fail(TN_E_VALUE, -1, "a formula needs a number that was not given");
}

/* ---- Arguments of a call -----------------------------------------------------------------------*/

static int64_t *int_room(run *r, int64_t n) {
    if (n > MAX_INTS - r->nints) return NULL;
    r->nints += (int32_t)n;
    return r->ints + r->nints - n;
}

static tn_status store_ints(run *r, const tni_operand *o, tni_value v, tn_ints *ret) {
    if (o->term.kind == TNI_V_INTS) {
        *ret = v.ints;
    } else if (o->term.kind == TNI_V_NONE || v.number.kind == TN_SCALAR_NONE) {
        *ret = tn_ints_none();
    } else {
        int64_t n = o->field->fixed ? o->field->fixed : 1, *list = int_room(r, n);
        if (!list) return tn_fail(TN_E_UNSUPPORTED, -1, "too many sizes in one formula");
        for (int64_t i = 0; i < n; i++) list[i] = v.number.i;
        *ret = (tn_ints){list, n};
    }
    return TN_OK;
}

/* Kinds that do not go together were refused when the formula was compiled. */
static tn_status store(run *r, const tni_operand *o, void *args, tn_scalar_box *box) {
    tni_value v = load(r, &o->term);
    void *p = (char *)args + o->field->offset;
    bool none = o->term.kind == TNI_V_NONE;
    bool absent = none || (o->term.kind == TNI_V_NUMBER && v.number.kind == TN_SCALAR_NONE);
    switch (o->field->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND:
        if (absent && o->field->kind == TN_F_OPERAND) return fail_absent();
        if (absent)
            *(tn_tensor **)p = NULL;
        else
            *(tn_tensor **)p =
                o->term.kind == TNI_V_NUMBER ? tn_scalar_box_init(box, v.number) : v.t;
        break;
    case TN_F_TENSORS: *(tn_views *)p = v.list; break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: *(tn_opt_int *)p = absent ? tn_no_int() : tn_some_int(v.number.i); break;
    case TN_F_FLOAT_OPT:
        *(tn_opt_float *)p = absent ? tn_no_float() : tn_some_float(v.number.re);
        break;
    case TN_F_SCALAR_OPT: *(tn_scalar *)p = none ? tn_scalar_none() : v.number; break;
    case TN_F_INTS:
    case TN_F_DIMS: return store_ints(r, o, v, p);
    case TN_F_STR:
    case TN_F_GENERATOR: *(const void **)p = none ? NULL : v.pointer; break;
    case TN_F_DTYPE:
    case TN_F_DEVICE:
    case TN_F_FORMAT: *(int64_t *)p = none ? -1 : v.code; break;
    default: /* a number that has to be there */
        if (absent) return fail_absent();
        if (o->field->kind == TN_F_FLOAT)
            *(double *)p = v.number.re;
        else if (o->field->kind == TN_F_SCALAR)
            *(tn_scalar *)p = v.number;
        else
            *(int64_t *)p = v.number.i;
        break;
    }
    return TN_OK;
}

static tn_status call(run *r, const tni_step *s) {
    tn_scalar_box box[TN_MAX_OPERANDS];
    _Alignas(16) unsigned char args[TNI_MAX_ARGS_BYTES];
    tn_tensor *rets[TNI_MAX_OUTS] = {NULL};
    int boxes = 0;
    memcpy(args, s->image, s->op->args_bytes);
    for (int i = 0; i < s->noperands; i++) {
        const tni_operand *o = &s->operands[i];
        uint16_t kind = o->field->kind;
        if (o->term.kind == TNI_V_TENSOR) {
            *(tn_tensor **)(void *)(args + o->field->offset) = load_tensor(r, &o->term);
            continue;
        }
        bool boxed = o->term.kind == TNI_V_NUMBER &&
                     (kind == TN_F_OPERAND || kind == TN_F_TENSOR || kind == TN_F_TENSOR_OPT);
        TN_TRY(store(r, o, args, &box[boxes]));
        boxes += boxed;
    }
    TN_TRY(tn_op_call(s->op, args, rets));
    if (s->op->flags & TNI_OP_LIST_OUT) {
        const tn_tensor_list *list = (const tn_tensor_list *)(const void *)rets;
        r->reg[s->reg].list = tni_views((tn_tensors){list->v, list->n});
        return TN_OK;
    }
    for (int i = 0; i < s->op->nout; i++) r->reg[s->reg + i].t = rets[i];
    return TN_OK;
}

/* ---- Other steps -------------------------------------------------------------------------------*/

static bool is_whole(const tn_scalar *s) {
    return s->kind <= TN_CAT_INT && !tn_scalar_is_beyond(s);
}

static int64_t floor_divide(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static tn_status fail_overflow(void) {
    return tn_fail(TN_E_VALUE, -1, "a formula's whole number is larger than int64 holds");
}

/* Division of whole numbers that rounds down, and what it leaves; of others in floating point. */
static tn_status divide_number(char sign, tn_scalar a, tn_scalar b, tn_scalar *ret) {
    if (!is_whole(&a) || !is_whole(&b)) {
        double q = floor(a.re / b.re);
        *ret = tn_scalar_float(sign == 'q' ? q : a.re - q * b.re);
        return TN_OK;
    }
    if (b.i == 0) return tn_fail(TN_E_VALUE, -1, "a formula divides a whole number by zero");
    /* the smallest number by -1 overflows in C */
    if (b.i == -1 && a.i == INT64_MIN && sign == 'q') return fail_overflow();
    int64_t q = b.i == -1 ? (int64_t)(0 - (uint64_t)a.i) : floor_divide(a.i, b.i);
    *ret = tn_scalar_int(sign == 'q' ? q : b.i == -1 ? 0 : a.i - q * b.i);
    return TN_OK;
}

static bool compare_number(char sign, tn_scalar a, tn_scalar b) {
    bool whole = is_whole(&a) && is_whole(&b);
    bool less = whole ? a.i < b.i : a.re < b.re, more = whole ? a.i > b.i : a.re > b.re;
    bool equal = whole ? a.i == b.i : a.re == b.re && a.im == b.im;
    switch (sign) {
    case '<': return less;
    case '>': return more;
    case 'l': return less || equal;
    case 'g': return more || equal;
    case '=': return equal;
    default: return !equal;
    }
}

/* & and | of two bools is a bool. */
static tn_status combine_number(char sign, tn_scalar a, tn_scalar b, tn_scalar *ret) {
    if (!is_whole(&a) || !is_whole(&b))
        return tn_fail(TN_E_VALUE, -1, "a formula combines the bits of numbers that are not whole");
    int64_t bits = sign == '&' ? a.i & b.i : a.i | b.i;
    bool bools = a.kind == TN_CAT_BOOL && b.kind == TN_CAT_BOOL;
    *ret = bools ? tn_scalar_bool(bits != 0) : tn_scalar_int(bits);
    return TN_OK;
}

static tn_status compute_whole(char sign, int64_t a, int64_t b, tn_scalar *ret) {
    int64_t n;
    bool over = sign == '+'   ? __builtin_add_overflow(a, b, &n)
                : sign == '-' ? __builtin_sub_overflow(a, b, &n)
                : sign == '*' ? __builtin_mul_overflow(a, b, &n)
                              : __builtin_sub_overflow((int64_t)0, a, &n);
    if (over) return fail_overflow();
    *ret = tn_scalar_int(n);
    return TN_OK;
}

bool tni_number_true(tn_scalar s) { return is_whole(&s) ? s.i != 0 : s.re != 0 || s.im != 0; }

tn_status tni_number_compute(char sign, tn_scalar a, tn_scalar b, tn_scalar *ret) {
    if (a.kind == TN_SCALAR_NONE || b.kind == TN_SCALAR_NONE) return fail_absent();
    if (a.kind == TN_CAT_COMPLEX || b.kind == TN_CAT_COMPLEX)
        return tn_fail(TN_E_UNSUPPORTED, -1, "formulas do not compute with complex numbers");
    if (is_whole(&a) && is_whole(&b) && strchr("+-*_", sign))
        return compute_whole(sign, a.i, b.i, ret);
    switch (sign) {
    case '+': *ret = tn_scalar_float(a.re + b.re); break;
    case '-': *ret = tn_scalar_float(a.re - b.re); break;
    case '*': *ret = tn_scalar_float(a.re * b.re); break;
    case '/': *ret = tn_scalar_float(a.re / b.re); break;
    case '^': *ret = tn_scalar_float(pow(a.re, b.re)); break;
    case 'q':
    case '%': return divide_number(sign, a, b, ret);
    case '&':
    case '|': return combine_number(sign, a, b, ret);
    case '<':
    case '>':
    case 'l':
    case 'g':
    case '=':
    case '!': *ret = tn_scalar_bool(compare_number(sign, a, b)); break;
    case 'n': *ret = tn_scalar_bool(!tni_number_true(a)); break;
    default: *ret = tn_scalar_float(-a.re); break;
    }
    return TN_OK;
}

static tn_status pick_item(tn_ints list, int64_t i, tn_scalar *ret) {
    int64_t at = i < 0 ? i + list.n : i;
    if (at < 0 || at >= list.n)
        return tn_fail(TN_E_INDEX, -1, "a formula reads size %lld of %lld", (long long)i,
                       (long long)(list.n < 0 ? 0 : list.n));
    *ret = tn_scalar_int(list.v[at]);
    return TN_OK;
}

static tn_status pick_tensor(tn_views list, int64_t i, tn_tensor **ret) {
    int64_t at = i < 0 ? i + list.n : i;
    if (at < 0 || at >= list.n || !list.v[at])
        return tn_fail(TN_E_INDEX, -1, "a formula reads tensor %lld of a list of %lld",
                       (long long)i, (long long)(list.n < 0 ? 0 : list.n));
    *ret = tni_t(list.v[at]);
    return TN_OK;
}

static tn_status list_tensors(run *r, const tni_step *s, tn_views *ret) {
    tn_view **v = r->listed + r->nlisted;
    if (s->noperands > MAX_LISTED - r->nlisted)
        return tn_fail(TN_E_UNSUPPORTED, -1, "too many tensors in the lists of one formula");
    for (int i = 0; i < s->noperands; i++) {
        v[i] = &load(r, &s->operands[i].term).t->v;
        if (!v[i]) return tn_fail(TN_E_VALUE, -1, "a formula lists a tensor that was not given");
    }
    r->nlisted += s->noperands;
    *ret = (tn_views){v, s->noperands};
    return TN_OK;
}

static tn_status make_list(run *r, const tni_step *s, tn_ints *ret) {
    int64_t *v = int_room(r, s->noperands);
    if (!v) return tn_fail(TN_E_UNSUPPORTED, -1, "too many sizes in one formula");
    for (int i = 0; i < s->noperands; i++) {
        tn_scalar n = load(r, &s->operands[i].term).number;
        if (n.kind == TN_SCALAR_NONE) return fail_absent();
        v[i] = n.i;
    }
    *ret = (tn_ints){v, s->noperands};
    return TN_OK;
}

/* A new reference to a formula's value. */
static tn_status hand_over(const run *r, const tni_term *t, tn_tensor **ret) {
    tni_value v = load(r, t);
    if (t->kind == TNI_V_NUMBER) return tni_scalar_heap(v.number, ret);
    if (v.t && (v.t->flags & TNI_T_STACK)) { /* a number that was given for an Operand */
        tn_scalar s;
        tni_scalar_load(tn_view_dtype(&v.t->v), v.t->v.data, &s);
        return tni_scalar_heap(s, ret);
    }
    *ret = tn_tensor_ref(v.t);
    return TN_OK;
}

static bool is_absent(tni_value v, const tni_term *t) {
    switch (t->kind) {
    case TNI_V_NUMBER: return v.number.kind == TN_SCALAR_NONE;
    case TNI_V_INTS: return v.ints.n < 0;
    default: return v.pointer == NULL; /* a tensor, a text, a generator */
    }
}

/* b if a else c: the one that was computed. */
static tn_status choose(run *r, const tni_step *s, tni_value *ret) {
    tn_scalar which = load(r, &s->operands[0].term).number;
    if (which.kind == TN_SCALAR_NONE) return fail_absent();
    const tni_term *t = &s->operands[tni_number_true(which) ? 1 : 2].term;
    if (s->what == TNI_STEP_CHOSEN) return hand_over(r, t, &ret->t);
    *ret = load(r, t);
    return TN_OK;
}

static bool same_texts(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static tn_status ask_tensor(const tni_step *s, const tn_tensor *t, tni_value *ret) {
    if (!t) return tn_fail(TN_E_VALUE, -1, "a formula looks at a tensor that was not given");
    switch (s->what) {
    case TNI_STEP_SHAPE: ret->ints = tni_shape_ints(t); break;
    case TNI_STEP_NDIM: ret->number = tn_scalar_int(t->v.ndim); break;
    case TNI_STEP_NUMEL: ret->number = tn_scalar_int(t->v.numel); break;
    case TNI_STEP_DTYPE: ret->code = tn_view_dtype(&t->v); break;
    case TNI_STEP_COMPLEX: ret->number = tn_scalar_bool(tni_is_complex(t)); break;
    default: ret->code = tni_device_of(t); break;
    }
    return TN_OK;
}

static tn_status run_step(run *r, const tni_step *s) {
    tni_value *to = &r->reg[s->reg];
    switch (s->what) {
    case TNI_STEP_CALL: return call(r, s);
    case TNI_STEP_LIST: return make_list(r, s, &to->ints);
    case TNI_STEP_TENSORS: return list_tensors(r, s, &to->list);
    case TNI_STEP_EITHER:
    case TNI_STEP_CHOSEN: return choose(r, s, to);
    case TNI_STEP_ABSENT: {
        const tni_term *t = &s->operands[0].term;
        to->number = tn_scalar_bool(is_absent(load(r, t), t));
        return TN_OK;
    }
    case TNI_STEP_NUMBER:
    case TNI_STEP_TEXTS:
    case TNI_STEP_PICK:
    case TNI_STEP_ITEM: {
        tni_value a = load(r, &s->operands[0].term), b = load(r, &s->operands[1].term);
        if (s->what == TNI_STEP_ITEM) return pick_item(a.ints, b.number.i, &to->number);
        if (s->what == TNI_STEP_PICK) return pick_tensor(a.list, b.number.i, &to->t);
        if (s->what == TNI_STEP_TEXTS) {
            to->number = tn_scalar_bool(same_texts(a.pointer, b.pointer) == (s->sign == '='));
            return TN_OK;
        }
        return tni_number_compute(s->sign, a.number, b.number, &to->number);
    }
    default: return ask_tensor(s, load(r, &s->operands[0].term).t, to);
    }
}

static tn_status hand_over_list(const run *r, const tni_term *t, tn_tensor_list *ret) {
    tn_tensors list = tni_tensors_of(load(r, t).list);
    tn_tensor **v = calloc((size_t)list.n + 1, sizeof(tn_tensor *));
    if (!v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < list.n; i++) v[i] = tn_tensor_ref(list.v[i]);
    *ret = (tn_tensor_list){v, list.n};
    return TN_OK;
}

/* Drops the tensors that a step made. */
static void drop_step(run *r, const tni_step *s) {
    tni_value *made = &r->reg[s->reg];
    if (s->what == TNI_STEP_CHOSEN) tn_tensor_unref(&made->t);
    if (s->what != TNI_STEP_CALL) return;
    if (s->op->flags & TNI_OP_LIST_OUT) {
        tn_tensor_list list = {(tn_tensor **)(uintptr_t)made->list.v, made->list.n};
        tn_tensor_list_free(&list);
        return;
    }
    for (int k = 0; k < s->op->nout; k++) tn_tensor_unref(&made[k].t);
}

void tni_formula_drop(const tni_formula *f, uint64_t wanted, tni_result *rets) {
    for (int i = 0; i < TN_MAX_OPERANDS; i++) {
        if (!((f->given & wanted) >> i & 1u)) continue;
        if (f->lists >> i & 1u)
            tn_tensor_list_free(&rets[i].list);
        else
            tn_tensor_unref(&rets[i].t);
    }
}

/* Whether the branch is taken, and those around it. */
static bool holds(const run *r, uint16_t guard) {
    if (!guard) return true;
    const tni_guard *g = &r->f->guard[guard];
    return holds(r, g->outer) && tni_number_true(load(r, &g->number).number) == g->want;
}

tn_status tni_formula_run(const tni_formula *f, const void *args, tni_incoming g, uint64_t wanted,
                          tni_result *rets) {
    run r;
    tn_status st = TN_OK;
    r.f = f;
    r.ran = 0;
    r.args = args;
    r.g = g;
    r.nints = r.nlisted = 0;
    memset(rets, 0, sizeof *rets * TN_MAX_OPERANDS);
    for (int32_t i = 0; i < f->nsteps && st == TN_OK; i++) {
        const tni_step *s = &f->step[i];
        if (!(s->readers & wanted) || !holds(&r, s->guard)) continue;
        st = run_step(&r, s);
        if (st == TN_OK) r.ran |= UINT64_C(1) << i;
    }
    for (uint64_t left = f->given & wanted; left && st == TN_OK; left &= left - 1) {
        int i = __builtin_ctzll(left);
        st = f->lists >> i & 1u ? hand_over_list(&r, &f->value[i], &rets[i].list)
                                : hand_over(&r, &f->value[i], &rets[i].t);
    }
    for (uint64_t left = r.ran; left; left &= left - 1)
        drop_step(&r, &f->step[__builtin_ctzll(left)]);
    if (st != TN_OK) tni_formula_drop(f, wanted, rets);
    return st;
}

bool tni_formula_call_at(const tni_formula *f, int32_t i, const tn_op **ret_op) {
    if (i < f->nsteps) *ret_op = f->step[i].op;
    return i < f->nsteps;
}

uint64_t tni_formula_given(const tni_formula *f, uint64_t *ret_none) {
    *ret_none = f->none;
    return f->given;
}
