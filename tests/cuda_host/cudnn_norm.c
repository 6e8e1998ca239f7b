/* cudnn_norm.c: batch normalisation of the stand-in for cuDNN, in training alone, with channels last, as
 * its engines have it. */
#include <math.h>
#include <stdlib.h>

#include "cudnn_host.h"

/* The places of operands. */
enum { X, MEAN, RSTD, SCALE, FORWARD_BIAS, FORWARD_EPS, FORWARD_Y };
enum { BACK_GRAD = 4, BACK_GRAD_SCALE, BACK_GRAD_BIAS, BACK_GRAD_X };

static bool is_channels_last(const operand *o) {
    int64_t stride = o->size[1];
    bool fine = o->stride[1] == 1 && (o->size[1] * 4) % 16 == 0;
    for (int64_t d = o->dims - 1; d >= 2; stride *= o->size[d--]) fine &= o->stride[d] == stride;
    return fine && o->stride[0] == stride;
}

static bool is_per_channel(const operand *o, const operand *x) {
    bool fine = o->size[1] == x->size[1] && o->stride[1] == 1;
    for (int64_t d = 0; d < o->dims; d++) fine &= d == 1 || o->size[d] == 1;
    return fine;
}

/* Whether operand i is like x, like x's channels, or one number. */
static bool fits(const problem *p, int64_t i) {
    bool forward = p->number[0] == CUDNN_NORM_FORWARD;
    const operand *o = &p->operand[i], *x = &p->operand[X];
    if (o->dims != x->dims || o->type != CUDNN_F32 || o->alignment % 16 != 0) return false;
    if (forward && i == FORWARD_EPS) return o->by_value != 0;
    bool whole = i == X || i == (forward ? FORWARD_Y : BACK_GRAD_X) || (!forward && i == BACK_GRAD);
    if (!whole) return is_per_channel(o, x);
    return is_channels_last(o) && memcmp(o->size, x->size, sizeof o->size) == 0;
}

bool norm_read(const descriptor *const *operations, int64_t n, problem *ret) {
    static const unsigned forward[] = {CUDNN_NORM_X,    CUDNN_NORM_MEAN,
                                       CUDNN_NORM_RSTD, CUDNN_NORM_SCALE,
                                       CUDNN_NORM_BIAS, CUDNN_NORM_EPS,
                                       CUDNN_NORM_Y,    0},
                          backward[] = {
                              CUDNN_NORM_BACK_X,     CUDNN_NORM_BACK_MEAN, CUDNN_NORM_BACK_RSTD,
                              CUDNN_NORM_BACK_SCALE, CUDNN_NORM_BACK_GRAD, CUDNN_NORM_GRAD_SCALE,
                              CUDNN_NORM_GRAD_BIAS,  CUDNN_NORM_GRAD_X,    0};
    const descriptor *op = operations[0];
    bool is_forward = op->type == CUDNN_NORM_FORWARD;
    int64_t mode = -1, phase = CUDNN_NORM_TRAINING;
    if (n != 1 || (!is_forward && op->type != CUDNN_NORM_BACKWARD)) return false;
    ret->number[0] = op->type;
    ret->numbers = 1;
    if (is_forward && !cudnn_code(op, CUDNN_NORM_PHASE, CUDNN_IS_PHASE, &phase)) return false;
    if (!cudnn_code(op, is_forward ? CUDNN_NORM_MODE : CUDNN_NORM_BACK_MODE, CUDNN_IS_NORM, &mode))
        return false;
    for (const unsigned *name = is_forward ? forward : backward; *name; name++)
        if (cudnn_operand(op, *name, ret) != name - (is_forward ? forward : backward)) return false;
    bool fine = mode == CUDNN_NORM_BATCH && phase == CUDNN_NORM_TRAINING;
    for (int64_t i = 0; i < ret->operands; i++) fine &= fits(ret, i);
    return fine;
}

static double at(const job *j, int64_t i, int64_t e) {
    return number_load(j->data[i], CUBLAS_F32, e);
}
static void put(const job *j, int64_t i, int64_t e, double x) {
    number_store(j->data[i], CUBLAS_F32, e, x);
}

/* Rows of all channels. */
static void forward_channel(const job *j, int64_t c, int64_t channels, int64_t rows) {
    double mean = 0, square = 0;
    for (int64_t r = 0; r < rows; r++) mean += at(j, X, r * channels + c) / (double)rows;
    for (int64_t r = 0; r < rows; r++) square += pow(at(j, X, r * channels + c) - mean, 2);
    double rstd = 1 / sqrt(square / (double)rows + j->value[FORWARD_EPS]);
    put(j, MEAN, c, mean);
    put(j, RSTD, c, rstd);
    for (int64_t r = 0; r < rows; r++)
        put(j, FORWARD_Y, r * channels + c,
            (at(j, X, r * channels + c) - mean) * rstd * at(j, SCALE, c) + at(j, FORWARD_BIAS, c));
}

static void backward_channel(const job *j, int64_t c, int64_t channels, int64_t rows) {
    double mean = at(j, MEAN, c), rstd = at(j, RSTD, c), sum = 0, product = 0;
    for (int64_t r = 0; r < rows; r++) {
        double g = at(j, BACK_GRAD, r * channels + c);
        sum += g;
        product += g * (at(j, X, r * channels + c) - mean) * rstd;
    }
    for (int64_t r = 0; r < rows; r++) {
        double hat = (at(j, X, r * channels + c) - mean) * rstd;
        double g = at(j, BACK_GRAD, r * channels + c) - (sum + hat * product) / (double)rows;
        put(j, BACK_GRAD_X, r * channels + c, g * rstd * at(j, SCALE, c));
    }
    put(j, BACK_GRAD_SCALE, c, product);
    put(j, BACK_GRAD_BIAS, c, sum);
}

bool norm_run(job *j) {
    const operand *x = &j->p.operand[X];
    int64_t channels = x->size[1], rows = 1;
    for (int64_t d = 0; d < x->dims; d++) rows *= d == 1 ? 1 : x->size[d];
    for (int64_t c = 0; c < channels; c++)
        (j->p.number[0] == CUDNN_NORM_FORWARD ? forward_channel : backward_channel)(j, c, channels,
                                                                                    rows);
    return true;
}
