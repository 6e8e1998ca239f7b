/* cudnn_rnn.c: the stand-in for cuDNN's recurrent networks, computed plainly in double.
 *
 * The weight space holds, layer by layer and direction by direction, all matrices, and behind all of them
 * the biases; gates lie side by side, and behind those of the input and of the state there is a gap, so
 * that nobody takes neighbours for granted. Linear layers are
 * numbered as cuDNN numbers them: those of the input, then those of the state; LSTM input, forget, cell,
 * output, GRU reset, update, new; 8 is LSTM's projection. What the forward pass keeps is a mark, room for
 * the gradients of the weights, and x: the pass over the data leaves those gradients there, the one over
 * the weights adds them up. */
#include "../../backends/cuda/libs/cudnn_rnn.h"

#include <math.h>
#include <stdlib.h>

#include "cudnn_host.h"

enum { GAP = 3, WORK = 512, MARK_FORWARD = 0x51, MARK_DATA = 0x52, MOST_SAMPLES = 64 };

struct cudnnTensorStruct {
    int sizes[3];
};
struct cudnnDropoutStruct {
    float p;
};
struct cudnnRNNStruct {
    int mode, biases, directions, type, features, hidden, width, layers;
};
struct cudnnRNNDataStruct {
    int type, steps, samples, width, rows;
    int lengths[MOST_SAMPLES];
};
static cudnnStatus_t create(size_t bytes, void *ret) {
    void *made = calloc(1, bytes);
    memcpy(ret, &made, sizeof made);
    return made ? CUDNN_OK : CUDNN_BAD_PARAM;
}
static cudnnStatus_t destroy(void *of) {
    free(of);
    return CUDNN_OK;
}
#define CREATE(name, type)                                                                         \
    cudnnStatus_t cudnnCreate##name(type *ret) { return create(sizeof **ret, ret); }               \
    cudnnStatus_t cudnnDestroy##name(type of) { return destroy(of); }
CREATE(TensorDescriptor, cudnnTensorDescriptor_t)
CREATE(DropoutDescriptor, cudnnDropoutDescriptor_t)
CREATE(RNNDescriptor, cudnnRNNDescriptor_t)
CREATE(RNNDataDescriptor, cudnnRNNDataDescriptor_t)

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int dims,
                                         const int *sizes, const int *strides) {
    (void)type;
    if (dims != 3 || strides[2] != 1 || strides[1] != sizes[2] || strides[0] != sizes[1] * sizes[2])
        return CUDNN_BAD_PARAM;
    memcpy(t->sizes, sizes, sizeof t->sizes);
    return CUDNN_OK;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p,
                                        void *states, size_t bytes, unsigned long long seed) {
    (void)handle, (void)states, (void)bytes, (void)seed;
    d->p = p;
    return p == 0 ? CUDNN_OK : CUDNN_BAD_PARAM;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t compute,
                                       cudnnMathType_t math, int32_t features, int32_t hidden,
                                       int32_t projected, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    const char *text = getenv("TENON_CUDNN_HOST");
    bool wide = type == CUDNN_F64, tensor_cores = type == CUDNN_F16 || type == CUDNN_BF16;
    if (text && strcmp(text, "unsupported") == 0) return CUDNN_UNSUPPORTED;
    if (algorithm != CUDNN_RNN_STANDARD || input != CUDNN_RNN_MULTIPLIES_INPUT || flags ||
        !dropout || (projected != hidden && mode != CUDNN_RNN_OF_LSTM) || projected > hidden ||
        compute != (wide ? CUDNN_F64 : CUDNN_F32) ||
        (tensor_cores && math != CUDNN_MATH_TENSOR_CORES))
        return CUDNN_BAD_PARAM;
    *r = (struct cudnnRNNStruct){.mode = (int)mode,
                                 .biases = bias == CUDNN_RNN_WITH_BIASES,
                                 .directions = direction == CUDNN_RNN_BOTH_WAYS ? 2 : 1,
                                 .type = type == CUDNN_BF16 ? CUBLAS_BF16 : (int)type,
                                 .features = features,
                                 .hidden = hidden,
                                 .width = projected,
                                 .layers = layers};
    return CUDNN_OK;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int samples,
                                        int width, const int *lengths, void *padding) {
    (void)padding;
    if (layout != CUDNN_RNN_PACKED || samples < 1 || samples > MOST_SAMPLES || lengths[0] > steps)
        return CUDNN_BAD_PARAM;
    d->type = (int)type;
    d->steps = steps;
    d->samples = samples;
    d->width = width;
    d->rows = 0;
    for (int b = 0; b < samples; b++) {
        if (lengths[b] < 1 || (b > 0 && lengths[b] > lengths[b - 1])) return CUDNN_BAD_PARAM;
        d->lengths[b] = lengths[b];
        d->rows += lengths[b];
    }
    return CUDNN_OK;
}

/* ---- The weight space --------------------------------------------------------------------------*/

typedef const struct cudnnRNNStruct *net;

static int gates_of(net r) {
    return r->mode == CUDNN_RNN_OF_LSTM ? 4 : r->mode == CUDNN_RNN_OF_GRU ? 3 : 1;
}
static int inputs_of(net r, int cell) {
    return cell < r->directions ? r->features : r->width * r->directions;
}
static int matrix_size(net r, int cell, int linear) {
    int g = gates_of(r);
    if (linear == 2 * g) return r->width * r->hidden;
    return r->hidden * (linear < g ? inputs_of(r, cell) : r->width);
}
static int linears_of(net r) { return 2 * gates_of(r) + (r->width != r->hidden); }

static int gap_behind(net r, int linear) { return (linear + 1) % gates_of(r) == 0 ? GAP : 0; }

/* Elements in front of a matrix or a bias, or of everything. */
static int place_of(net r, int cell, int linear, bool bias) {
    int at = 0, cells = r->layers * r->directions;
    for (int c = 0; c < cells; c++)
        for (int k = 0; k < linears_of(r); k++) {
            if (!bias && c == cell && k == linear) return at;
            at += matrix_size(r, c, k) + gap_behind(r, k);
        }
    for (int c = 0; c < cells && r->biases; c++)
        for (int k = 0; k < 2 * gates_of(r); k++) {
            if (bias && c == cell && k == linear) return at;
            at += r->hidden + gap_behind(r, k);
        }
    return at;
}
static int space_of(net r) { return place_of(r, -1, -1, false); }

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                         size_t *ret_bytes) {
    (void)handle;
    *ret_bytes = (size_t)space_of(r) * number_bytes(r->type);
    return CUDNN_OK;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t r, int32_t layer,
                                      size_t bytes, const void *space, int32_t linear,
                                      cudnnTensorDescriptor_t matrix, void **ret_matrix,
                                      cudnnTensorDescriptor_t bias, void **ret_bias) {
    char *from = (char *)(uintptr_t)space;
    size_t item = number_bytes(r->type);
    (void)handle;
    if (!matrix || !bias || linear >= linears_of(r) || layer >= r->layers * r->directions ||
        bytes != (size_t)space_of(r) * item)
        return CUDNN_BAD_PARAM;
    bool has_bias = r->biases && linear < 2 * gates_of(r);
    *ret_matrix = from + (size_t)place_of(r, layer, linear, false) * item;
    *ret_bias = has_bias ? from + (size_t)place_of(r, layer, linear, true) * item : NULL;
    return CUDNN_OK;
}

/* In doubles: the mark, the gradients of the weights, x. */
enum { GRADIENTS_AT = 2 };
static int64_t x_at(net r) { return GRADIENTS_AT + space_of(r); }
static size_t reserve_size(net r, const struct cudnnRNNDataStruct *x) {
    return (size_t)(x_at(r) + (int64_t)x->rows * r->features) * sizeof(double);
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *ret_workspace, size_t *ret_reserve) {
    (void)handle;
    *ret_workspace = WORK;
    *ret_reserve = mode == CUDNN_RNN_FOR_GRADIENTS ? reserve_size(r, x) : 0;
    return CUDNN_OK;
}

/* ---- Computing ---------------------------------------------------------------------------------*/

/* A call: what is NULL is not wanted, or zeros. */
typedef struct rnn_job {
    struct cudnnRNNStruct r;
    struct cudnnRNNDataStruct x_data;
    const char *x, *hx, *cx, *weights, *dy, *dhy, *dcy;
    char *y, *hy, *cy, *dx, *dhx, *dcx, *dweights, *work;
    double *reserve;
    size_t reserve_bytes;
    bool backward, train;
} rnn_job;

/* One cell: a direction of a layer. Rows are time steps of one sample; every number is a double. */
typedef struct cell {
    const double *w; /* the whole space */
    double *dw;
    int index;
} cell;

/* What a step keeps: gates after their functions, GRU's state part of `new`, c before and after, and the
 * output before a projection. */
typedef struct kept {
    double *gate[4], *own, *c_in, *c, *top, *h_in;
} kept;

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }

static double *room(int64_t n) { return calloc((size_t)(n > 0 ? n : 1), sizeof(double)); }

/* out[i] += bias + sum of matrix[i, k] v[k] */
static void product(net r, const cell *q, int linear, const double *v, int n, double *out) {
    const double *m = q->w + place_of(r, q->index, linear, false);
    const double *b = r->biases ? q->w + place_of(r, q->index, linear, true) : NULL;
    for (int i = 0; i < r->hidden; i++) {
        for (int k = 0; k < n; k++) out[i] += m[i * n + k] * v[k];
        if (b) out[i] += b[i];
    }
}

/* The gradient g of out: of the matrix, of the bias, and of v. */
static void unproduct(net r, const cell *q, int linear, const double *v, int n, const double *g,
                      double *dv) {
    int at = place_of(r, q->index, linear, false);
    double *db = r->biases ? q->dw + place_of(r, q->index, linear, true) : NULL;
    for (int i = 0; i < r->hidden; i++) {
        for (int k = 0; k < n; k++) {
            q->dw[at + i * n + k] += g[i] * v[k];
            dv[k] += g[i] * q->w[at + i * n + k];
        }
        if (db) db[i] += g[i];
    }
}

static kept make_kept(net r) {
    kept s;
    double **all[] = {&s.gate[0], &s.gate[1], &s.gate[2], &s.gate[3], &s.own,
                      &s.c_in,    &s.c,       &s.top,     &s.h_in};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) *all[i] = room(r->hidden);
    return s;
}
static void free_kept(kept *s) {
    double *all[] = {s->gate[0], s->gate[1], s->gate[2], s->gate[3], s->own,
                     s->c_in,    s->c,       s->top,     s->h_in};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* h (width) and c (hidden) become the next ones. */
static void step(net r, const cell *q, const double *x, double *h, double *c, kept *s) {
    int g = gates_of(r), n = inputs_of(r, q->index);
    memcpy(s->h_in, h, (size_t)r->width * sizeof *h);
    memcpy(s->c_in, c, (size_t)r->hidden * sizeof *c);
    for (int k = 0; k < g; k++) {
        product(r, q, k, x, n, s->gate[k]);
        product(r, q, g + k, h, r->width,
                r->mode == CUDNN_RNN_OF_GRU && k == 2 ? s->own : s->gate[k]);
    }
    for (int i = 0; i < r->hidden; i++) {
        if (r->mode == CUDNN_RNN_OF_LSTM) {
            for (int k = 0; k < 4; k++)
                s->gate[k][i] = k == 2 ? tanh(s->gate[k][i]) : sigmoid(s->gate[k][i]);
            c[i] = s->c[i] = s->gate[1][i] * c[i] + s->gate[0][i] * s->gate[2][i];
            s->top[i] = s->gate[3][i] * tanh(c[i]);
        } else if (r->mode == CUDNN_RNN_OF_GRU) {
            for (int k = 0; k < 2; k++) s->gate[k][i] = sigmoid(s->gate[k][i]);
            s->gate[2][i] = tanh(s->gate[2][i] + s->gate[0][i] * s->own[i]);
            s->top[i] = (1 - s->gate[1][i]) * s->gate[2][i] + s->gate[1][i] * h[i];
        } else {
            double v = s->gate[0][i];
            s->top[i] = r->mode == CUDNN_RNN_OF_TANH ? tanh(v) : v > 0 ? v : 0;
        }
    }
    if (r->width == r->hidden) {
        memcpy(h, s->top, (size_t)r->width * sizeof *h);
        return;
    }
    const double *m = q->w + place_of(r, q->index, 2 * g, false);
    for (int i = 0; i < r->width; i++) {
        h[i] = 0;
        for (int k = 0; k < r->hidden; k++) h[i] += m[i * r->hidden + k] * s->top[k];
    }
}

/* From the gradients of the results (dh, dc) to those of the inputs; dx is added to. */
static void unstep(net r, const cell *q, const double *x, const kept *s, double *dh, double *dc,
                   double *dx) {
    int g = gates_of(r), n = inputs_of(r, q->index);
    double *dt = room(r->hidden), *d[5], *back = room(r->width);
    for (int k = 0; k < 5; k++) d[k] = room(r->hidden); /* of each gate; 4: GRU's own part */
    if (r->width == r->hidden) {
        memcpy(dt, dh, (size_t)r->hidden * sizeof *dt);
    } else {
        int at = place_of(r, q->index, 2 * g, false);
        for (int i = 0; i < r->width; i++)
            for (int k = 0; k < r->hidden; k++) {
                q->dw[at + i * r->hidden + k] += dh[i] * s->top[k];
                dt[k] += dh[i] * q->w[at + i * r->hidden + k];
            }
    }
    for (int i = 0; i < r->hidden; i++) {
        double a = s->gate[0][i], b = s->gate[1][i], e = s->gate[2][i], o = s->gate[3][i];
        if (r->mode == CUDNN_RNN_OF_LSTM) {
            double t = tanh(s->c[i]), v = dc[i] + dt[i] * o * (1 - t * t);
            d[0][i] = v * e * a * (1 - a);
            d[1][i] = v * s->c_in[i] * b * (1 - b);
            d[2][i] = v * a * (1 - e * e);
            d[3][i] = dt[i] * t * o * (1 - o);
            dc[i] = v * b;
        } else if (r->mode == CUDNN_RNN_OF_GRU) {
            d[2][i] = dt[i] * (1 - b) * (1 - e * e);
            d[4][i] = d[2][i] * a;
            d[0][i] = d[2][i] * s->own[i] * a * (1 - a);
            d[1][i] = dt[i] * (s->h_in[i] - e) * b * (1 - b);
            back[i] = dt[i] * b;
        } else {
            double t = s->top[i];
            d[0][i] = dt[i] * (r->mode == CUDNN_RNN_OF_TANH ? 1 - t * t : t > 0);
        }
    }
    for (int k = 0; k < g; k++) {
        unproduct(r, q, k, x, n, d[k], dx);
        unproduct(r, q, g + k, s->h_in, r->width,
                  r->mode == CUDNN_RNN_OF_GRU && k == 2 ? d[4] : d[k], back);
    }
    memcpy(dh, back, (size_t)r->width * sizeof *dh);
    for (int k = 0; k < 5; k++) free(d[k]);
    free(dt);
    free(back);
}

/* ---- A sample through all layers ---------------------------------------------------------------*/

/* The row of step t of sample b. */
static int row_of(const struct cudnnRNNDataStruct *d, int t, int b) {
    int row = b;
    for (int u = 0; u < t; u++)
        for (int k = 0; k < d->samples; k++) row += d->lengths[k] > u;
    return row;
}

static double load(const char *data, int type, int64_t i) {
    return data ? number_load(data, type, i) : 0;
}
static void save(char *data, int type, int64_t i, double v) {
    if (data) number_store(data, type, i, v);
}

/* The backward pass is not told x. */
static double input_at(const rnn_job *j, int64_t i) {
    return j->backward ? j->reserve[x_at(&j->r) + i] : load(j->x, j->r.type, i);
}

typedef struct sample {
    const rnn_job *j;
    int b, steps;
    double *in[65], *din[65]; /* of each layer, and behind the last one the output: (steps, n) */
    kept *kept;               /* (cells, steps) */
} sample;

static int width_at(net r, int layer) {
    return layer == 0 ? r->features : r->width * r->directions;
}

static void run_cell(sample *s, const double *w, int layer, int direction) {
    net r = &s->j->r;
    cell q = {w, NULL, layer * r->directions + direction};
    int n = width_at(r, layer), to = width_at(r, layer + 1);
    int64_t state = (int64_t)q.index * s->j->x_data.samples + s->b;
    double *h = room(r->hidden), *c = room(r->hidden);
    for (int i = 0; i < r->width; i++) h[i] = load(s->j->hx, r->type, state * r->width + i);
    for (int i = 0; i < r->hidden; i++) c[i] = load(s->j->cx, r->type, state * r->hidden + i);
    for (int u = 0; u < s->steps; u++) {
        int t = direction ? s->steps - 1 - u : u;
        step(r, &q, s->in[layer] + t * n, h, c, &s->kept[q.index * s->steps + t]);
        memcpy(s->in[layer + 1] + t * to + direction * r->width, h, (size_t)r->width * sizeof *h);
    }
    for (int i = 0; i < r->width && !s->j->backward; i++)
        save(s->j->hy, r->type, state * r->width + i, h[i]);
    for (int i = 0; i < r->hidden && !s->j->backward; i++)
        save(s->j->cy, r->type, state * r->hidden + i, c[i]);
    free(h);
    free(c);
}

static void unrun_cell(sample *s, const double *w, double *dw, int layer, int direction) {
    net r = &s->j->r;
    cell q = {w, dw, layer * r->directions + direction};
    int n = width_at(r, layer), to = width_at(r, layer + 1);
    int64_t state = (int64_t)q.index * s->j->x_data.samples + s->b;
    double *dh = room(r->hidden), *dc = room(r->hidden);
    for (int i = 0; i < r->width; i++) dh[i] = load(s->j->dhy, r->type, state * r->width + i);
    for (int i = 0; i < r->hidden; i++) dc[i] = load(s->j->dcy, r->type, state * r->hidden + i);
    for (int u = s->steps - 1; u >= 0; u--) {
        int t = direction ? s->steps - 1 - u : u;
        const double *dy = s->din[layer + 1] + t * to + direction * r->width;
        for (int i = 0; i < r->width; i++) dh[i] += dy[i];
        unstep(r, &q, s->in[layer] + t * n, &s->kept[q.index * s->steps + t], dh, dc,
               s->din[layer] + t * n);
    }
    for (int i = 0; i < r->width; i++) save(s->j->dhx, r->type, state * r->width + i, dh[i]);
    for (int i = 0; i < r->hidden; i++) save(s->j->dcx, r->type, state * r->hidden + i, dc[i]);
    free(dh);
    free(dc);
}

static void run_sample(const rnn_job *j, int b, const double *w, double *dw) {
    net r = &j->r;
    sample s = {.j = j, .b = b, .steps = j->x_data.lengths[b]};
    int cells = r->layers * r->directions, out = width_at(r, r->layers);
    s.kept = calloc((size_t)(cells * s.steps), sizeof *s.kept);
    for (int i = 0; i < cells * s.steps; i++) s.kept[i] = make_kept(r);
    for (int l = 0; l <= r->layers; l++) {
        s.in[l] = room(s.steps * width_at(r, l));
        s.din[l] = room(s.steps * width_at(r, l));
    }
    for (int t = 0; t < s.steps; t++)
        for (int i = 0; i < r->features; i++)
            s.in[0][t * r->features + i] =
                input_at(j, (int64_t)row_of(&j->x_data, t, b) * r->features + i);
    for (int c = 0; c < cells; c++) run_cell(&s, w, c / r->directions, c % r->directions);
    for (int t = 0; t < s.steps; t++)
        for (int i = 0; i < out; i++) {
            int64_t at = (int64_t)row_of(&j->x_data, t, b) * out + i;
            if (!j->backward) save(j->y, r->type, at, s.in[r->layers][t * out + i]);
            s.din[r->layers][t * out + i] = load(j->dy, r->type, at);
        }
    for (int c = cells - 1; c >= 0 && j->backward; c--)
        unrun_cell(&s, w, dw, c / r->directions, c % r->directions);
    for (int t = 0; t < s.steps; t++)
        for (int i = 0; i < r->features; i++)
            save(j->dx, r->type, (int64_t)row_of(&j->x_data, t, b) * r->features + i,
                 s.din[0][t * r->features + i]);
    for (int i = 0; i < cells * s.steps; i++) free_kept(&s.kept[i]);
    for (int l = 0; l <= r->layers; l++) {
        free(s.in[l]);
        free(s.din[l]);
    }
    free(s.kept);
}

/* ---- Calls -------------------------------------------------------------------------------------*/

static bool reach(const char *who, const void *data, int64_t n, int type, char *ret_text) {
    return !data || queue_reach(who, (uintptr_t)data, (size_t)n * number_bytes(type), ret_text);
}

static bool reach_all(const rnn_job *j, char *ret_text) {
    net r = &j->r;
    int64_t states = (int64_t)r->layers * r->directions * j->x_data.samples, rows = j->x_data.rows;
    int64_t out = rows * r->width * r->directions, in = rows * r->features;
    int64_t h = states * r->width, c = states * r->hidden;
    return reach("cuDNN: x", j->x, in, r->type, ret_text) &&
           reach("cuDNN: dx", j->dx, in, r->type, ret_text) &&
           reach("cuDNN: y", j->y, out, r->type, ret_text) &&
           reach("cuDNN: dy", j->dy, out, r->type, ret_text) &&
           reach("cuDNN: hx", j->hx, h, r->type, ret_text) &&
           reach("cuDNN: hy", j->hy, h, r->type, ret_text) &&
           reach("cuDNN: dhx", j->dhx, h, r->type, ret_text) &&
           reach("cuDNN: dhy", j->dhy, h, r->type, ret_text) &&
           reach("cuDNN: cx", j->cx, c, r->type, ret_text) &&
           reach("cuDNN: cy", j->cy, c, r->type, ret_text) &&
           reach("cuDNN: dcx", j->dcx, c, r->type, ret_text) &&
           reach("cuDNN: dcy", j->dcy, c, r->type, ret_text) &&
           reach("cuDNN: weights", j->weights, space_of(r), r->type, ret_text) &&
           reach("cuDNN: dweights", j->dweights, space_of(r), r->type, ret_text) &&
           queue_reach("cuDNN: workspace", (uintptr_t)j->work, WORK, ret_text) &&
           (!j->reserve ||
            queue_reach("cuDNN: reserve", (uintptr_t)j->reserve, j->reserve_bytes, ret_text));
}

static bool run_network(void *payload, char *ret_text) {
    const rnn_job *j = payload;
    net r = &j->r;
    if (!reach_all(j, ret_text)) return false;
    if (j->backward && j->reserve[0] != MARK_FORWARD) {
        strcpy(ret_text, "cuDNN: there was no forward pass");
        return false;
    }
    double *w = room(space_of(r)), *dw = room(space_of(r));
    for (int i = 0; i < space_of(r); i++) w[i] = number_load(j->weights, r->type, i);
    for (int b = 0; b < j->x_data.samples; b++) run_sample(j, b, w, dw);
    memset(j->work, 0xaa, WORK);
    if (j->reserve) {
        j->reserve[0] = j->backward ? MARK_DATA : MARK_FORWARD;
        memcpy(j->reserve + GRADIENTS_AT, dw, (size_t)space_of(r) * sizeof *dw);
        for (int64_t i = 0; i < (int64_t)j->x_data.rows * r->features; i++)
            j->reserve[x_at(r) + i] = input_at(j, i);
    }
    free(w);
    free(dw);
    return true;
}

static bool add_gradients(void *payload, char *ret_text) {
    const rnn_job *j = payload;
    net r = &j->r;
    if (!reach_all(j, ret_text)) return false;
    if (j->reserve[0] != MARK_DATA) {
        strcpy(ret_text, "cuDNN: there was no pass over the data");
        return false;
    }
    for (int i = 0; i < space_of(r); i++)
        number_store(j->dweights, r->type, i,
                     number_load(j->dweights, r->type, i) + j->reserve[GRADIENTS_AT + i]);
    memset(j->work, 0xaa, WORK);
    return true;
}

static cudnnStatus_t submit(cudnnHandle_t handle, queue_fn run, const rnn_job *j) {
    const char *text = getenv("TENON_CUDNN_HOST");
    size_t want = j->train ? reserve_size(&j->r, &j->x_data) : 0;
    if (text && strcmp(text, "broken") == 0) return CUDNN_EXECUTION;
    if (j->reserve_bytes != want || j->r.layers > 64) return CUDNN_BAD_PARAM;
    return queue_submit(handle->stream, run, j, sizeof *j) == CUDA_OK ? CUDNN_OK : CUDNN_EXECUTION;
}

/* Whether the descriptors are about the same network. */
static bool agree(net r, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y,
                  cudnnTensorDescriptor_t h, size_t weight_bytes, size_t work_bytes) {
    return x->width == r->features && y->width == r->width * r->directions && x->rows == y->rows &&
           h->sizes[0] == r->layers * r->directions && h->sizes[1] == x->samples &&
           h->sizes[2] == r->width && work_bytes == WORK &&
           weight_bytes == (size_t)space_of(r) * number_bytes(r->type);
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
                              const int32_t *lengths, cudnnRNNDataDescriptor_t x_data,
                              const void *x, cudnnRNNDataDescriptor_t y_data, void *y,
                              cudnnTensorDescriptor_t h_tensor, const void *hx, void *hy,
                              cudnnTensorDescriptor_t c_tensor, const void *cx, void *cy,
                              size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve) {
    bool train = mode == CUDNN_RNN_FOR_GRADIENTS;
    const rnn_job j = {.r = *r,
                       .x_data = *x_data,
                       .x = x,
                       .hx = hx,
                       .cx = cx,
                       .weights = weights,
                       .y = y,
                       .hy = hy,
                       .cy = cy,
                       .work = work,
                       .reserve = reserve,
                       .reserve_bytes = reserve_bytes,
                       .train = train};
    (void)c_tensor;
    if (lengths || !agree(r, x_data, y_data, h_tensor, weight_bytes, work_bytes))
        return CUDNN_BAD_PARAM;
    return submit(handle, run_network, &j);
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                      const int32_t *lengths, cudnnRNNDataDescriptor_t y_data,
                                      const void *y, const void *dy,
                                      cudnnRNNDataDescriptor_t x_data, void *dx,
                                      cudnnTensorDescriptor_t h_tensor, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t c_tensor,
                                      const void *cx, const void *dcy, void *dcx,
                                      size_t weight_bytes, const void *weights, size_t work_bytes,
                                      void *work, size_t reserve_bytes, void *reserve) {
    const rnn_job j = {.r = *r,
                       .x_data = *x_data,
                       .hx = hx,
                       .cx = cx,
                       .weights = weights,
                       .dy = dy,
                       .dhy = dhy,
                       .dcy = dcy,
                       .y = (char *)(uintptr_t)y,
                       .dx = dx,
                       .dhx = dhx,
                       .dcx = dcx,
                       .work = work,
                       .reserve = reserve,
                       .reserve_bytes = reserve_bytes,
                       .backward = true,
                       .train = true};
    (void)c_tensor;
    if (lengths || !dy || !agree(r, x_data, y_data, h_tensor, weight_bytes, work_bytes))
        return CUDNN_BAD_PARAM;
    return submit(handle, run_network, &j);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                         cudnnWgradMode_t mode, const int32_t *lengths,
                                         cudnnRNNDataDescriptor_t x_data, const void *x,
                                         cudnnTensorDescriptor_t h_tensor, const void *hx,
                                         cudnnRNNDataDescriptor_t y_data, const void *y,
                                         size_t weight_bytes, void *dweights, size_t work_bytes,
                                         void *work, size_t reserve_bytes, void *reserve) {
    const rnn_job j = {.r = *r,
                       .x_data = *x_data,
                       .x = x,
                       .hx = hx,
                       .y = (char *)(uintptr_t)y,
                       .dweights = dweights,
                       .work = work,
                       .reserve = reserve,
                       .reserve_bytes = reserve_bytes,
                       .train = true};
    if (lengths || mode != CUDNN_RNN_ADD || !x || !y ||
        !agree(r, x_data, y_data, h_tensor, weight_bytes, work_bytes))
        return CUDNN_BAD_PARAM;
    return submit(handle, add_gradients, &j);
}
