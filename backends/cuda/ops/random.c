/* random.c: random numbers, host side of kernels/random.cu: reserves Philox blocks of the generator
 * and queues one launch that draws them, in the order of the CPU. Parameters that are out of range,
 * and bounds that a floating type does not hold, are left to the CPU, which says what is wrong.
 *
 * family: random */
#include "cuda_priv.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <tenon/args_random.h>

#include "common/philox.h"

#define FLOATS(stem) CUDA_FLOAT_KERNELS(random, random_##stem)
#define REALS(stem) CUDA_REAL_KERNELS(random, random_##stem)
static cuda_real_kernels ints = REALS(ints), wide_ints = REALS(wide_ints), tosses = REALS(toss),
                         geometrics = REALS(geometric);
static cuda_float_kernels uniforms = FLOATS(uniform), normals = FLOATS(normal),
                          log_normals = FLOATS(log_normal), exponentials = FLOATS(exponential),
                          cauchys = FLOATS(cauchy), tosses_each = FLOATS(toss_each),
                          dropouts = FLOATS(dropout);

/* ---- Running -----------------------------------------------------------------------------------*/

static bool is_complex(const tn_view *v) { return v->dl_code == 5; }

/* The slot of the numbers that are drawn: a complex element is two real ones. */
static int32_t real_dtype(const tn_view *v) {
    int32_t dtype = tn_view_dtype(v);
    return !is_complex(v) ? dtype : dtype == TN_C64 ? TN_F32 : TN_F64;
}

/* The elements of self in the order of their indices; `other` is broadcast, or NULL. */
static tn_status walk(const tn_view *self, const tn_view *other, cuda_plan *ret_plan) {
    int32_t item = (int32_t)tn_view_itemsize(self) / (is_complex(self) ? 2 : 1), n = other ? 2 : 1;
    const int32_t bytes[] = {item, other ? (int32_t)tn_view_itemsize(other) : 0};
    const int64_t inner[] = {item, 0};
    tn_status st = TN_OK;
    cuda_plan_start(ret_plan);
    ret_plan->data[0] = self->data;
    if (other) ret_plan->data[1] = other->data;
    if (is_complex(self)) st = cuda_plan_add(ret_plan, n, 2, inner);
    for (int32_t d = self->ndim - 1; d >= 0 && st == TN_OK; d--) {
        int32_t k = other ? d - (self->ndim - other->ndim) : -1;
        bool moves = k >= 0 && other->shape[k] != 1;
        const int64_t stride[] = {self->strides[d] * tn_view_itemsize(self),
                                  moves ? other->strides[k] * bytes[1] : 0};
        st = cuda_plan_add(ret_plan, n, self->shape[d], stride);
    }
    if (st == TN_OK) cuda_plan_end(ret_plan, n, bytes);
    return st;
}

tn_status cuda_reserve_random(const tn_call *call, tn_generator *gen, uint64_t blocks,
                              cuda_draws *ret_draws, const cuda_draws **ret_launch) {
    tn_rng rng;
    if (cuda_is_recording(call->stream))
        return cuda_graph_draw(call, gen, blocks, ret_draws, ret_launch);
    tn_status st = call->host->rng_acquire(call, gen, blocks, &rng);
    if (st != TN_OK) return st;
    *ret_draws = (cuda_draws){rng.seed, rng.offset};
    call->host->rng_release(call, gen, &rng);
    return rng.kind == TN_RNG_PHILOX ? TN_OK : TN_DECLINE;
}

/* So many blocks of words occupy a GPU; of more, each thread draws some. */
enum { MANY = 1 << 20, EACH = 4 };

/* Fills self with numbers of `words` words each. */
static tn_status fill(const tn_call *call, cuda_kernel *kernel, tn_generator *gen,
                      const tn_view *self, const tn_view *other, int words, cuda_random_args *a) {
    if (self->numel == 0) return TN_OK;
    tn_status st = walk(self, other, &a->plan);
    if (st != TN_OK) return st;
    a->blocks = (int64_t)rnd_blocks(a->plan.numel, words);
    a->op = (uint64_t)(uintptr_t)call->op->name;
    st = cuda_fault_of(call, &a->fault);
    if (st == TN_OK)
        st = cuda_reserve_random(call, gen, (uint64_t)a->blocks, &a->draws, &a->launch);
    if (st != TN_OK) return st;
    int64_t each = a->blocks < MANY ? 1 : EACH;
    return cuda_launch_each(call, kernel, (a->blocks + each - 1) / each, a);
}

static cuda_kernel *pick(cuda_float_kernels kernels, const tn_view *self) {
    return &kernels[real_dtype(self) - TN_F16];
}

/* Words of a continuous number. */
static int words_of(const tn_view *self) { return real_dtype(self) == TN_F64 ? 2 : 1; }

/* ---- Continuous numbers ------------------------------------------------------------------------*/

/* The largest number of a floating type. */
static double limit_of(const tn_view *self) {
    switch (real_dtype(self)) {
    case TN_F16: return 65504.0;
    case TN_BF16: return 3.3895313892515355e38;
    case TN_F32: return FLT_MAX;
    default: return DBL_MAX;
    }
}

static tn_status uniform(const tn_call *call, const void *args) {
    const tn_uniform__args *in = args;
    cuda_random_args a = {.a = in->from, .b = in->to};
    double limit = limit_of(in->self);
    bool fits = fabs(in->from) <= limit && fabs(in->to) <= limit && in->from <= in->to &&
                in->to - in->from <= limit;
    if (!fits) return TN_DECLINE;
    return fill(call, pick(uniforms, in->self), in->generator, in->self, NULL, words_of(in->self),
                &a);
}

static tn_status normal(const tn_call *call, const void *args) {
    const tn_normal__args *in = args;
    cuda_random_args a = {.a = in->mean, .b = is_complex(in->self) ? in->std / sqrt(2.0) : in->std};
    if (!(in->std >= 0.0)) return TN_DECLINE;
    return fill(call, pick(normals, in->self), in->generator, in->self, NULL, words_of(in->self),
                &a);
}

static tn_status log_normal(const tn_call *call, const void *args) {
    const tn_log_normal__args *in = args;
    cuda_random_args a = {.a = in->mean, .b = in->std};
    if (!(in->std > 0.0)) return TN_DECLINE;
    return fill(call, pick(log_normals, in->self), in->generator, in->self, NULL, 2, &a);
}

static tn_status exponential(const tn_call *call, const void *args) {
    const tn_exponential__args *in = args;
    cuda_random_args a = {.a = in->lambd};
    if (!(in->lambd > 0.0)) return TN_DECLINE;
    return fill(call, pick(exponentials, in->self), in->generator, in->self, NULL,
                words_of(in->self), &a);
}

static tn_status cauchy(const tn_call *call, const void *args) {
    const tn_cauchy__args *in = args;
    cuda_random_args a = {.a = in->median, .b = in->sigma};
    if (!(in->sigma > 0.0)) return TN_DECLINE;
    return fill(call, pick(cauchys, in->self), in->generator, in->self, NULL, 2, &a);
}

static tn_status geometric(const tn_call *call, const void *args) {
    const tn_geometric__args *in = args;
    cuda_random_args a = {.a = in->p};
    if (!(in->p > 0.0 && in->p < 1.0)) return TN_DECLINE;
    return fill(call, &geometrics[tn_view_dtype(in->self)], in->generator, in->self, NULL, 2, &a);
}

/* ---- Whole numbers -----------------------------------------------------------------------------*/

/* The whole numbers least .. last that a type holds, without a gap. */
static void whole_numbers(int32_t dtype, int64_t *ret_least, int64_t *ret_last) {
    static const int64_t last[] = {
        1,         UINT8_MAX,        INT8_MAX,        INT16_MAX,        INT32_MAX,
        INT64_MAX, INT64_C(1) << 11, INT64_C(1) << 8, INT64_C(1) << 24, INT64_C(1) << 53};
    *ret_last = last[dtype];
    *ret_least = dtype <= TN_U8 ? 0 : dtype >= TN_F16 ? -last[dtype] : -last[dtype] - 1;
}

static tn_status draw(const tn_call *call, const tn_view *self, tn_generator *gen, int64_t base,
                      uint64_t range) {
    bool wide = range == 0 || range > UINT64_C(1) << 16;
    cuda_random_args a = {.base = base, .range = range};
    cuda_kernel *kernels = wide ? wide_ints : ints;
    return fill(call, &kernels[tn_view_dtype(self)], gen, self, NULL, wide ? 2 : 1, &a);
}

/* from <= x <= last */
static tn_status draw_between(const tn_call *call, const tn_view *self, tn_generator *gen,
                              int64_t from, int64_t last) {
    int64_t least, most;
    whole_numbers(tn_view_dtype(self), &least, &most);
    if (from > last || from < least || last > most) return TN_DECLINE;
    return draw(call, self, gen, from, (uint64_t)last - (uint64_t)from + 1);
}

static tn_status random_from(const tn_call *call, const void *args) {
    const tn_random__from_args *a = args;
    int64_t least, most;
    whole_numbers(tn_view_dtype(a->self), &least, &most);
    if (!a->to.has && a->from == INT64_MIN) return TN_DECLINE;
    if (a->to.has && a->to.value == INT64_MIN) return TN_DECLINE;
    return draw_between(call, a->self, a->generator, a->from, a->to.has ? a->to.value - 1 : most);
}

static tn_status random_to(const tn_call *call, const void *args) {
    const tn_random__to_args *a = args;
    if (a->to == INT64_MIN) return TN_DECLINE;
    return draw_between(call, a->self, a->generator, 0, a->to - 1);
}

static tn_status random_any(const tn_call *call, const void *args) {
    const tn_random__args *a = args;
    int64_t least, most;
    whole_numbers(tn_view_dtype(a->self), &least, &most);
    return draw(call, a->self, a->generator, 0, (uint64_t)most + 1);
}

/* ---- Coin tosses -------------------------------------------------------------------------------*/

static tn_status bernoulli(const tn_call *call, const void *args) {
    const tn_bernoulli__args *in = args;
    cuda_random_args a = {.a = in->p};
    if (!(in->p >= 0.0 && in->p <= 1.0)) return TN_DECLINE;
    return fill(call, &tosses[tn_view_dtype(in->self)], in->generator, in->self, NULL, 1, &a);
}

/* Results have the dtype of their probabilities. */
static tn_status toss_each(const tn_call *call, tn_generator *gen, const tn_view *self,
                           const tn_view *p) {
    cuda_random_args a = {0};
    return fill(call, pick(tosses_each, p), gen, self, p, 1, &a);
}

/* A packed tensor in scratch memory of self's shape and the dtype of `model`. */
static tn_status packed_like(const tn_call *call, const tn_view *self, const tn_view *model,
                             int64_t *strides, tn_view *ret_view) {
    tn_view *v = ret_view;
    int64_t numel = 1;
    *v = *self;
    v->word = (self->word & ~TN_W_DTYPE) | (model->word & TN_W_DTYPE);
    v->dl_code = model->dl_code;
    v->dl_bits = model->dl_bits;
    v->strides = strides;
    for (int32_t d = self->ndim - 1; d >= 0; d--) {
        strides[d] = numel;
        numel *= self->shape[d];
    }
    return room_scratch(call, numel, (size_t)tn_view_itemsize(v), &v->data);
}

static tn_status bernoulli_each(const tn_call *call, const void *args) {
    const tn_bernoulli__tensor_args *in = args;
    int64_t strides[TN_MAX_DIMS];
    tn_view drawn;
    if (tn_view_dtype(in->p) == tn_view_dtype(in->self))
        return toss_each(call, in->generator, in->self, in->p);
    if (in->self->numel == 0) return TN_OK;
    tn_status st = packed_like(call, in->self, in->p, strides, &drawn);
    if (st == TN_OK) st = toss_each(call, in->generator, &drawn, in->p);
    return st == TN_OK ? cuda_cast(call, in->self, &drawn) : st;
}

static bool alike(const tn_view *a, const tn_view *b) {
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return false;
    return true;
}

static tn_status dropout(const tn_call *call, const void *args) {
    const tn__dropout_args *in = args;
    const tn_view *x = in->input;
    cuda_dropout_args a = {.in = x->data,
                           .out = in->output->data,
                           .mask = in->mask->data,
                           .n = x->numel,
                           .blocks = (int64_t)rnd_blocks(x->numel, 1),
                           .keep = 1.0 - in->p,
                           .scale = in->scale};
    if (x->numel == 0) return TN_OK;
    if (!(x->word & TN_W_DENSE) || !alike(x, in->output) || !alike(x, in->mask)) return TN_DECLINE;
    tn_status st =
        cuda_reserve_random(call, in->generator, (uint64_t)a.blocks, &a.draws, &a.launch);
    return st == TN_OK ? cuda_launch_each(call, cuda_float_kernel(call, dropouts), a.blocks, &a)
                       : st;
}

/* ---- Rows --------------------------------------------------------------------------------------*/

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(uniform_, uniform),
    CUDA_COMPLEX_ROWS(uniform_, uniform),
    CUDA_FLOAT_ROWS(normal_, normal),
    CUDA_COMPLEX_ROWS(normal_, normal),
    CUDA_FLOAT_ROWS(exponential_, exponential),
    CUDA_FLOAT_ROWS(cauchy_, cauchy),
    CUDA_FLOAT_ROWS(log_normal_, log_normal),
    CUDA_NUMBER_ROWS(geometric_, geometric),
    CUDA_REAL_ROWS(random__from, random_from),
    CUDA_REAL_ROWS(random__to, random_to),
    CUDA_REAL_ROWS(random_, random_any),
    CUDA_REAL_ROWS(bernoulli_, bernoulli),
    CUDA_REAL_ROWS(bernoulli__tensor, bernoulli_each),
    CUDA_FLOAT_ROWS(_dropout, dropout),
};
const cuda_rows cuda_random_rows = CUDA_ROWS_OF(rows);
