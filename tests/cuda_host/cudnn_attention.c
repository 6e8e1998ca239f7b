/* cudnn_attention.c: attention of the stand-in for cuDNN: graphs of pointwise operations, products, sums
 * and changes of layout. Only the two orders of operations are taken that cuDNN's engines know; they
 * are computed one after the other, rounded to each tensor's type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudnn_host.h"

enum { MOST_STEPS = 32 };

/* One operation; operands by their places, or -1. */
typedef struct step {
    int64_t kind, mode, axis, x, b, t, y;
} step;

/* ---- Reading -----------------------------------------------------------------------------------*/

static bool read_map(const descriptor *op, problem *p, step *s) {
    const descriptor *f = cudnn_linked(op, CUDNN_MAP_OP_MAP, CUDNN_MAP);
    int64_t compute = -1;
    if (!f || !cudnn_code(f, CUDNN_MAP_MODE, CUDNN_IS_MAP, &s->mode) ||
        !cudnn_code(f, CUDNN_MAP_COMPUTE, CUDNN_IS_DATA_TYPE, &compute))
        return false;
    s->x = cudnn_operand(op, CUDNN_MAP_OP_X, p);
    s->b = cudnn_operand(op, CUDNN_MAP_OP_B, p);
    s->t = cudnn_operand(op, CUDNN_MAP_OP_T, p);
    s->y = cudnn_operand(op, CUDNN_MAP_OP_Y, p);
    return s->mode != CUDNN_MAP_INDEX || cudnn_numbers(f, CUDNN_MAP_AXIS, 1, &s->axis);
}

static bool read_product(const descriptor *op, problem *p, step *s) {
    const descriptor *product = cudnn_linked(op, CUDNN_PRODUCT_OP_PRODUCT, CUDNN_PRODUCT);
    int64_t compute = -1;
    s->x = cudnn_operand(op, CUDNN_PRODUCT_OP_A, p);
    s->b = cudnn_operand(op, CUDNN_PRODUCT_OP_B, p);
    s->y = cudnn_operand(op, CUDNN_PRODUCT_OP_C, p);
    if (!product || !cudnn_code(product, CUDNN_PRODUCT_COMPUTE, CUDNN_IS_DATA_TYPE, &compute) ||
        compute != CUDNN_F32 || s->x < 0 || s->b < 0 || s->y < 0)
        return false;
    const int64_t *a = p->operand[s->x].size, *b = p->operand[s->b].size,
                  *c = p->operand[s->y].size;
    return a[3] == b[2] && a[2] == c[2] && b[3] == c[3] && a[0] == c[0] && a[1] % b[1] == 0;
}

static bool read_reduction(const descriptor *op, problem *p, step *s) {
    const descriptor *r = cudnn_linked(op, CUDNN_REDUCTION_OP_REDUCTION, CUDNN_REDUCTION);
    int64_t compute = -1;
    s->x = cudnn_operand(op, CUDNN_REDUCTION_OP_X, p);
    s->y = cudnn_operand(op, CUDNN_REDUCTION_OP_Y, p);
    return r && cudnn_code(r, CUDNN_REDUCTION_MODE, CUDNN_IS_REDUCTION, &s->mode) &&
           cudnn_code(r, CUDNN_REDUCTION_COMPUTE, CUDNN_IS_DATA_TYPE, &compute) &&
           compute == CUDNN_F32;
}

static bool read_step(const descriptor *op, problem *p, step *s) {
    bool fine = false;
    *s = (step){.kind = op->type, .x = -1, .b = -1, .t = -1, .y = -1};
    if (op->type == CUDNN_MAP_OP) fine = read_map(op, p, s);
    if (op->type == CUDNN_PRODUCT_OP) fine = read_product(op, p, s);
    if (op->type == CUDNN_REDUCTION_OP) fine = read_reduction(op, p, s);
    if (op->type == CUDNN_RESHAPE_OP) {
        s->x = cudnn_operand(op, CUDNN_RESHAPE_OP_X, p);
        s->y = cudnn_operand(op, CUDNN_RESHAPE_OP_Y, p);
        fine = true;
    }
    return fine && s->x >= 0 && s->y >= 0;
}

/* A letter for each operation. */
static char letter(const step *s) {
    if (s->kind == CUDNN_PRODUCT_OP) return 'P';
    if (s->kind == CUDNN_RESHAPE_OP) return 'T';
    if (s->kind == CUDNN_REDUCTION_OP) return s->mode == CUDNN_REDUCE_SUM ? 'S' : 'M';
    switch (s->mode) {
    case CUDNN_MAP_ADD: return '+';
    case CUDNN_MAP_SUB: return '-';
    case CUDNN_MAP_MUL: return '*';
    case CUDNN_MAP_DIV: return '/';
    case CUDNN_MAP_EXP: return 'e';
    case CUDNN_MAP_LOG: return 'l';
    case CUDNN_MAP_COPY: return '=';
    case CUDNN_MAP_GE: return 'g';
    case CUDNN_MAP_INDEX: return 'i';
    case CUDNN_MAP_SELECT: return '?';
    default: return '!';
    }
}

/* The orders that engines know: with a causal mask or without; going backward, with heads that share
 * keys, and with sums of the queries' gradient in memory. */
static bool is_known(const char *letters) {
    static const char *const masks[] = {"", "iig?"}, *const shared[] = {"", "S"},
                             *const sums[] = {"", "="};
    char known[MOST_STEPS * 2];
    for (int mask = 0; mask < 2; mask++) {
        snprintf(known, sizeof known, "P*%sM-eSl+/P", masks[mask]);
        if (strcmp(known, letters) == 0) return true;
        for (int i = 0; i < 4; i++) {
            snprintf(known, sizeof known, "*S*P*-%seTP%sP-**TP%sTP%s", masks[mask], shared[i % 2],
                     shared[i % 2], sums[i / 2]);
            if (strcmp(known, letters) == 0) return true;
        }
    }
    return false;
}

/* Whether engines can load it: heads in memory are rows of at most 128 columns, in groups of eight. */
static bool is_loadable(const operand *o) {
    bool half = o->type == CUDNN_F16 || o->type == CUDNN_BF16;
    if (o->dims != 4 || o->alignment % 16 != 0) return false;
    if (o->passing || o->by_value || !half) return true;
    bool turned = o->stride[3] != 1;
    int64_t width = o->size[turned ? 2 : 3];
    return o->stride[turned ? 2 : 3] == 1 && width % 8 == 0 && width <= 128 &&
           o->stride[0] % 8 == 0 && o->stride[1] % 8 == 0 && o->stride[turned ? 3 : 2] % 8 == 0;
}

bool attention_read(const descriptor *const *operations, int64_t n, problem *ret) {
    char letters[MOST_STEPS + 1] = "";
    step *steps = (step *)ret->number;
    if (n > MOST_STEPS) return false;
    ret->numbers = n * (int64_t)(sizeof *steps / sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) {
        if (!read_step(operations[i], ret, &steps[i])) return false;
        letters[i] = letter(&steps[i]);
    }
    for (int64_t i = 0; i < ret->operands; i++)
        if (!is_loadable(&ret->operand[i])) return false;
    return is_known(letters);
}

/* ---- Running -----------------------------------------------------------------------------------*/

typedef struct space {
    const job *j;
    double *at[MOST_OPERANDS]; /* the elements in order */
} space;

static int64_t count(const operand *o) { return o->size[0] * o->size[1] * o->size[2] * o->size[3]; }

/* The place of an element, of which o may have one for several. */
static int64_t place(const operand *o, const int64_t *size, const int64_t *at) {
    int64_t sum = 0;
    for (int d = 0; d < 4; d++) sum = sum * o->size[d] + at[d] / (size[d] / o->size[d]);
    return sum;
}

static void split(const operand *o, int64_t i, int64_t *ret_at) {
    for (int d = 3; d >= 0; d--) {
        ret_at[d] = i % o->size[d];
        i /= o->size[d];
    }
}

static int64_t address(const operand *o, int64_t i) {
    int64_t at[4], sum = 0;
    split(o, i, at);
    for (int d = 0; d < 4; d++) sum += at[d] * o->stride[d];
    return sum;
}

static double rounded(const operand *o, double x) {
    char room[8];
    if (o->type == CUDNN_I32 || o->type == CUDNN_BOOL) return x;
    number_store(room, cudnn_number_type(o), 0, x);
    return number_load(room, cudnn_number_type(o), 0);
}

/* Operands in memory are read before the first operation. */
static void load(space *s, int64_t i) {
    const operand *o = &s->j->p.operand[i];
    s->at[i] = malloc((size_t)count(o) * sizeof(double));
    for (int64_t e = 0; e < count(o); e++)
        s->at[i][e] = o->passing ? (double)NAN
                      : o->by_value
                          ? s->j->value[i]
                          : number_load(s->j->data[i], cudnn_number_type(o), address(o, e));
}

static double map_one(const step *s, double x, double b, double t) {
    switch (s->mode) {
    case CUDNN_MAP_ADD: return x + b;
    case CUDNN_MAP_SUB: return x - b;
    case CUDNN_MAP_MUL: return x * b;
    case CUDNN_MAP_DIV: return x / b;
    case CUDNN_MAP_EXP: return exp(x);
    case CUDNN_MAP_LOG: return log(x);
    case CUDNN_MAP_GE: return x >= b;
    case CUDNN_MAP_SELECT: return t != 0 ? x : b;
    default: return x;
    }
}

static double element(const space *s, int64_t i, const operand *y, const int64_t *at) {
    return i < 0 ? 0 : s->at[i][place(&s->j->p.operand[i], y->size, at)];
}

static void run_map(space *s, const step *w) {
    const operand *y = &s->j->p.operand[w->y];
    for (int64_t i = 0; i < count(y); i++) {
        int64_t at[4];
        split(y, i, at);
        double x = w->mode == CUDNN_MAP_INDEX ? (double)at[w->axis] : element(s, w->x, y, at);
        s->at[w->y][i] =
            rounded(y, map_one(w, x, element(s, w->b, y, at), element(s, w->t, y, at)));
    }
}

static void run_reduction(space *s, const step *w) {
    const operand *x = &s->j->p.operand[w->x], *y = &s->j->p.operand[w->y];
    bool sum = w->mode == CUDNN_REDUCE_SUM;
    for (int64_t i = 0; i < count(y); i++) s->at[w->y][i] = sum ? 0 : -(double)INFINITY;
    for (int64_t i = 0; i < count(x); i++) {
        int64_t at[4];
        split(x, i, at);
        double *to = &s->at[w->y][place(y, x->size, at)];
        *to = sum ? *to + s->at[w->x][i] : fmax(*to, s->at[w->x][i]);
    }
    for (int64_t i = 0; i < count(y); i++) s->at[w->y][i] = rounded(y, s->at[w->y][i]);
}

static void run_product(space *s, const step *w) {
    const operand *a = &s->j->p.operand[w->x], *b = &s->j->p.operand[w->b],
                  *c = &s->j->p.operand[w->y];
    for (int64_t i = 0; i < count(c); i++) {
        int64_t at[4];
        double sum = 0;
        split(c, i, at);
        int64_t head = at[1] / (c->size[1] / b->size[1]), inner = a->size[3];
        const double *row =
            s->at[w->x] + ((at[0] * a->size[1] + at[1]) * a->size[2] + at[2]) * inner;
        const double *column =
            s->at[w->b] + (at[0] * b->size[1] + head) * inner * b->size[3] + at[3];
        for (int64_t k = 0; k < inner; k++) sum += row[k] * column[k * b->size[3]];
        s->at[w->y][i] = rounded(c, sum);
    }
}

/* Rows become columns. */
static void run_reshape(space *s, const step *w) {
    const operand *y = &s->j->p.operand[w->y];
    for (int64_t i = 0; i < count(y); i++) {
        int64_t at[4];
        split(y, i, at);
        int64_t from =
            (at[0] * y->size[1] + at[1]) * y->size[2] * y->size[3] + at[3] * y->size[2] + at[2];
        s->at[w->y][i] = rounded(y, s->at[w->x][from]);
    }
}

static void store(const space *s, const step *w) {
    const operand *y = &s->j->p.operand[w->y];
    if (y->passing) return;
    for (int64_t i = 0; i < count(y); i++)
        number_store(s->j->data[w->y], cudnn_number_type(y), address(y, i), s->at[w->y][i]);
}

bool attention_run(job *j) {
    space s = {.j = j};
    const step *steps = (const step *)j->p.number;
    int64_t n = j->p.numbers / (int64_t)(sizeof *steps / sizeof(int64_t));
    for (int64_t i = 0; i < j->p.operands; i++) load(&s, i);
    for (int64_t i = 0; i < n; i++) {
        const step *w = &steps[i];
        if (w->kind == CUDNN_MAP_OP) run_map(&s, w);
        if (w->kind == CUDNN_REDUCTION_OP) run_reduction(&s, w);
        if (w->kind == CUDNN_PRODUCT_OP) run_product(&s, w);
        if (w->kind == CUDNN_RESHAPE_OP) run_reshape(&s, w);
        store(&s, w);
    }
    for (int64_t i = 0; i < j->p.operands; i++) free(s.at[i]);
    return true;
}
