/* cudnn_conv.c: convolutions of the stand-in for cuDNN, computed plainly. */
#include <stdlib.h>

#include "cudnn_host.h"

enum { X, W, Y };

/* In the numbers of a problem. */
typedef struct shape {
    int64_t kind, compute, dims, stride[3], pad[3], after[3], dilation[3];
} shape;

static bool read_shape(const descriptor *c, shape *s) {
    int64_t mode = -1;
    return c && cudnn_numbers(c, CUDNN_CONV_DIMS, 1, &s->dims) && s->dims >= 2 && s->dims <= 3 &&
           cudnn_numbers(c, CUDNN_CONV_STRIDE, s->dims, s->stride) &&
           cudnn_numbers(c, CUDNN_CONV_DILATION, s->dims, s->dilation) &&
           cudnn_numbers(c, CUDNN_CONV_PAD_BEFORE, s->dims, s->pad) &&
           cudnn_numbers(c, CUDNN_CONV_PAD_AFTER, s->dims, s->after) &&
           cudnn_code(c, CUDNN_CONV_COMPUTE, CUDNN_IS_DATA_TYPE, &s->compute) &&
           cudnn_code(c, CUDNN_CONV_MODE, CUDNN_IS_MODE, &mode) && mode == CUDNN_CORRELATION;
}

static bool sizes_fit(const problem *p, const shape *s) {
    const int64_t *x = p->operand[X].size, *w = p->operand[W].size, *y = p->operand[Y].size;
    bool fit = x[0] == y[0] && w[0] == y[1] && x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0;
    for (int i = 0; i < 3; i++)
        fit &= p->operand[i].dims == s->dims + 2 && p->operand[i].type == p->operand[X].type;
    for (int64_t d = 0; d < s->dims; d++) {
        int64_t span = x[d + 2] + s->pad[d] + s->after[d] - s->dilation[d] * (w[d + 2] - 1);
        fit &= span > 0 && (span - 1) / s->stride[d] + 1 == y[d + 2];
    }
    return fit && (s->compute == CUDNN_F64) == (p->operand[X].type == CUDNN_F64);
}

static bool is_number(const descriptor *op, unsigned name, bool wide, double want) {
    const attribute *a = cudnn_find(op, name, wide ? CUDNN_IS_DOUBLE : CUDNN_IS_FLOAT);
    if (!a) return false;
    return (wide ? *(double *)a->data : (double)*(float *)a->data) == want;
}

bool conv_read(const descriptor *const *operations, int64_t n, problem *ret) {
    const descriptor *op = operations[0];
    unsigned alpha = op->type == CUDNN_FORWARD  ? CUDNN_FORWARD_ALPHA
                     : op->type == CUDNN_INPUT  ? CUDNN_INPUT_ALPHA
                     : op->type == CUDNN_WEIGHT ? CUDNN_WEIGHT_ALPHA
                                                : 0;
    shape *s = (shape *)ret->number;
    ret->numbers = sizeof *s / sizeof(int64_t);
    s->kind = op->type;
    return n == 1 && alpha && read_shape(cudnn_linked(op, alpha + 2, CUDNN_CONV), s) &&
           cudnn_operand(op, alpha + 4, ret) == X && cudnn_operand(op, alpha + 3, ret) == W &&
           cudnn_operand(op, alpha + 5, ret) == Y && sizes_fit(ret, s) &&
           is_number(op, alpha, ret->operand[X].type == CUDNN_F64, 1) &&
           is_number(op, alpha + 1, ret->operand[X].type == CUDNN_F64, 0);
}

static int64_t offset(const operand *o, int64_t n, int64_t c, const int64_t *at) {
    int64_t sum = n * o->stride[0] + c * o->stride[1];
    for (int64_t d = 2; d < o->dims; d++) sum += at[d - 2] * o->stride[d];
    return sum;
}

/* The next position in a box; false after the last one. */
static bool advance(int64_t *at, const int64_t *size, int64_t dims) {
    for (int64_t d = dims - 1; d >= 0; d--) {
        if (++at[d] < size[d]) return true;
        at[d] = 0;
    }
    return false;
}

/* One meeting of a place of y and a tap: the three elements that have to do with each other. */
static void meet(const job *j, int64_t n, int64_t o, const int64_t *place, const int64_t *tap,
                 double *sums) {
    const shape *s = (const shape *)j->p.number;
    const operand *x = &j->p.operand[X], *w = &j->p.operand[W], *y = &j->p.operand[Y];
    int64_t group = o / (w->size[0] / (x->size[1] / w->size[1])), pixel[3];
    int type = cudnn_number_type(x);
    for (int64_t d = 0; d < s->dims; d++) {
        pixel[d] = place[d] * s->stride[d] - s->pad[d] + tap[d] * s->dilation[d];
        if (pixel[d] < 0 || pixel[d] >= x->size[d + 2]) return;
    }
    int64_t at_y = offset(y, n, o, place);
    for (int64_t c = 0; c < w->size[1]; c++) {
        int64_t at_x = offset(x, n, group * w->size[1] + c, pixel), at_w = offset(w, o, c, tap);
        double of_x = number_load(j->data[X], type, at_x),
               of_w = number_load(j->data[W], type, at_w),
               of_y = number_load(j->data[Y], type, at_y);
        if (s->kind == CUDNN_FORWARD)
            sums[at_y] += of_x * of_w;
        else if (s->kind == CUDNN_INPUT)
            sums[at_x] += of_y * of_w;
        else
            sums[at_w] += of_y * of_x;
    }
}

bool conv_run(job *j) {
    const shape *s = (const shape *)j->p.number;
    const operand *w = &j->p.operand[W], *y = &j->p.operand[Y];
    int made = s->kind == CUDNN_FORWARD ? Y : s->kind == CUDNN_INPUT ? X : W;
    int64_t total = 1; /* what is made is packed */
    for (int64_t d = 0; d < s->dims + 2; d++) total *= j->p.operand[made].size[d];
    double *sums = calloc((size_t)total, sizeof *sums);
    for (int64_t n = 0; n < y->size[0]; n++)
        for (int64_t o = 0; o < y->size[1]; o++) {
            int64_t place[3] = {0, 0, 0};
            do {
                int64_t tap[3] = {0, 0, 0};
                do meet(j, n, o, place, tap, sums);
                while (advance(tap, w->size + 2, s->dims));
            } while (advance(place, y->size + 2, s->dims));
        }
    for (int64_t i = 0; i < total; i++)
        number_store(j->data[made], cudnn_number_type(y), i, sums[i]);
    free(sums);
    return true;
}
