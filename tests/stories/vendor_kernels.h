/* vendor_kernels.h: twelve functions that keep most of a program on a chip; each serves several operators
 * through its row's ctx. Written for the chip of `tenon plugin new --kind device`, whose memory is a
 * `buffer`; a real chip launches kernels of its own in place of the loops. */
#include <math.h>

/* Not of an empty tensor, which has no memory. */
static char *memory_of(const tn_view *v) {
    return (char *)((buffer *)v->data)->memory + v->byte_offset;
}

/* The plan with addresses in the place of tickets; numbers lie in the host's memory already. */
static void locate(const tn_plan *p, tn_plan *ret_plan) {
    *ret_plan = *p;
    for (int32_t k = 0; k < p->noperands; k++)
        if (p->data[k] && !(p->scalar_mask >> k & 1u))
            ret_plan->data[k] = ((buffer *)p->data[k])->memory + p->offset[k];
}

/* Steps through the indices of a shape, the last dimension first; 0 when all have been there. */
static int next(const tn_view *v, int64_t *at) {
    for (int32_t d = v->ndim - 1; d >= 0; d--) {
        if (++at[d] < v->shape[d]) return 1;
        at[d] = 0;
    }
    return 0;
}

static void *element(const tn_view *v, const int64_t *at) {
    int64_t i = 0;
    for (int32_t d = 0; d < v->ndim; d++) i += at[d] * v->strides[d];
    return memory_of(v) + i * tn_view_itemsize(v);
}

/* Bytes of one element of a plan's operand. */
static size_t size_of(uint8_t dtype) {
#define CHIP_SIZE(ID, slot, name, bytes, dl, cat, ctype) bytes,
    static const uint8_t sizes[] = {TN_DTYPE_LIST(CHIP_SIZE)};
    return sizes[dtype];
}

#define FLOAT(v, at) (*(float *)element(v, at))

/* ---- 1, 2: values from here to there -----------------------------------------------------------*/

static tn_status chip_copy(const tn_call *call, const void *args) {
    tn_plan p;
    tn_rows r;
    if (call->dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    locate(((const tn__copy_args *)args)->plan, &p);
    size_t size = size_of(p.dtype[0]);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            memcpy(TN_ROW(char, r, 0, i), TN_ROW(const char, r, 1, i), size);
    return TN_OK;
}

static int has_value(const tn_view *v) {
    int32_t t = tn_view_dtype(v);
    return t == TN_F32 || t == TN_I64 || t == TN_BOOL;
}

static double value(const tn_view *v, const int64_t *at) {
    const void *p = element(v, at);
    int32_t t = tn_view_dtype(v);
    return t == TN_F32   ? *(const float *)p
           : t == TN_I64 ? (double)*(const int64_t *)p
                         : *(const uint8_t *)p;
}

static tn_status chip_cast(const tn_call *call, const void *args) {
    const tn__cast_args *a = args;
    int64_t at[TN_MAX_DIMS] = {0};
    (void)call;
    if (!has_value(a->input) || !has_value(a->out)) return TN_DECLINE;
    if (a->out->numel == 0) return TN_OK;
    do {
        double x = value(a->input, at);
        void *to = element(a->out, at);
        if (tn_view_dtype(a->out) == TN_F32) *(float *)to = (float)x;
        if (tn_view_dtype(a->out) == TN_I64) *(int64_t *)to = (int64_t)x;
        if (tn_view_dtype(a->out) == TN_BOOL) *(uint8_t *)to = x != 0;
    } while (next(a->out, at));
    return TN_OK;
}

/* ---- 3 to 6: element by element ----------------------------------------------------------------*/

typedef struct map {
    float (*one)(float x);
    float (*two)(float x, float y, float number);
    int (*test)(float x, float y);
    size_t number; /* where the arguments hold a number, 0: nowhere */
} map;

static float inverse(float x) { return 1 / x; }
static float sigmoid(float x) { return 1 / (1 + expf(-x)); }
static float rectified(float x) { return x > 0 || x != x ? x : 0; }
static float plus(float x, float y, float alpha) { return x + alpha * y; }
static float minus(float x, float y, float alpha) { return x - alpha * y; }
static float times(float x, float y, float n) { return (void)n, x * y; }
static float divided(float x, float y, float n) { return (void)n, x / y; }
static float to_the(float x, float y, float n) { return (void)n, powf(x, y); }
static float larger(float x, float y, float n) { return (void)n, x > y || x != x ? x : y; }
static float smaller(float x, float y, float n) { return (void)n, x < y || x != x ? x : y; }
static float through(float g, float x, float n) { return (void)n, x <= 0 ? 0 : g; }
static int equal(float x, float y) { return x == y; }
static int unequal(float x, float y) { return x != y; }
static int less(float x, float y) { return x < y; }
static int at_most(float x, float y) { return x <= y; }
static int greater(float x, float y) { return x > y; }
static int at_least(float x, float y) { return x >= y; }

static tn_status chip_unary(const tn_call *call, const void *args) {
    const map *m = call->ctx;
    tn_plan p;
    tn_rows r;
    locate(*(const tn_plan *const *)args, &p);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = m->one(*TN_ROW(const float, r, 1, i));
    return TN_OK;
}

static tn_status chip_binary(const tn_call *call, const void *args) {
    const map *m = call->ctx;
    const void *number = (const char *)args + m->number;
    float n = m->number ? (float)((const tn_scalar *)number)->re : 0;
    tn_plan p;
    tn_rows r;
    locate(*(const tn_plan *const *)args, &p);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) =
                m->two(*TN_ROW(const float, r, 1, i), *TN_ROW(const float, r, 2, i), n);
    return TN_OK;
}

static tn_status chip_compare(const tn_call *call, const void *args) {
    const map *m = call->ctx;
    tn_plan p;
    tn_rows r;
    locate(*(const tn_plan *const *)args, &p);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(uint8_t, r, 0, i) =
                (uint8_t)m->test(*TN_ROW(const float, r, 1, i), *TN_ROW(const float, r, 2, i));
    return TN_OK;
}

/* Equality of whole numbers: ctx is NULL for eq. */
static tn_status chip_equal_whole(const tn_call *call, const void *args) {
    uint8_t differs = call->ctx != NULL;
    tn_plan p;
    tn_rows r;
    locate(*(const tn_plan *const *)args, &p);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            int64_t x = *TN_ROW(const int64_t, r, 1, i), y = *TN_ROW(const int64_t, r, 2, i);
            *TN_ROW(uint8_t, r, 0, i) = (x == y) ^ differs;
        }
    return TN_OK;
}

static tn_status chip_where(const tn_call *call, const void *args) {
    tn_plan p;
    tn_rows r;
    if (call->dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    locate(((const tn_where_args *)args)->plan, &p);
    size_t size = size_of(p.dtype[0]);
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            int k = *TN_ROW(const uint8_t, r, 1, i) ? 2 : 3;
            memcpy(TN_ROW(char, r, 0, i), TN_ROW(const char, r, k, i), size);
        }
    return TN_OK;
}

/* ---- 7: reductions -----------------------------------------------------------------------------*/

typedef struct reduction {
    float start;
    float (*take)(float sum, float x, float n);
    int mean;
} reduction;

static float summed(float sum, float x, float n) { return (void)n, sum + x; }

static tn_status chip_reduce(const tn_call *call, const void *args) {
    const reduction *m = call->ctx;
    float count = 1;
    tn_plan p;
    tn_rows r;
    if ((*(const tn_plan *const *)args)->numel == 0) return TN_DECLINE;
    locate(*(const tn_plan *const *)args, &p);
    for (int32_t d = 0; d < p.ndim; d++)
        if (p.reduce_mask >> d & 1u) count *= (float)p.shape[d];
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = m->start;
    for (tn_rows_start(&r, &p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            float *sum = TN_ROW(float, r, 0, i), x = *TN_ROW(const float, r, 1, i);
            *sum = m->take(*sum, m->mean ? x / count : x, 0);
        }
    return TN_OK;
}

/* ---- 8: products of matrices -------------------------------------------------------------------*/

static tn_status multiply(const tn_view *a, const tn_view *b, const tn_view *out) {
    int32_t row = out->ndim - 2, column = out->ndim - 1;
    int64_t at[3] = {0};
    if (out->numel == 0) return TN_OK;
    do {
        int64_t ia[3] = {at[0], at[1], 0}, ib[3] = {at[0], 0, 0};
        double sum = 0;
        ia[row] = at[row];
        ib[column] = at[column];
        for (int64_t k = 0; k < a->shape[column]; k++) {
            ia[column] = ib[row] = k;
            sum += (double)FLOAT(a, ia) * FLOAT(b, ib);
        }
        FLOAT(out, at) = (float)sum;
    } while (next(out, at));
    return TN_OK;
}

static tn_status chip_mm(const tn_call *call, const void *args) {
    const tn_mm_args *a = args; /* bmm's arguments are laid out alike */
    (void)call;
    return multiply(a->input, a->mat2, a->out);
}

/* ---- 9, 10: indices ----------------------------------------------------------------------------*/

static int wrap(const tn_call *call, const tn_view *index, const int64_t *at, int64_t size,
                int64_t *ret) {
    *ret = (int64_t)value(index, at);
    if (*ret < 0) *ret += size;
    if (*ret >= 0 && *ret < size) return 1;
    return call->host->fail(TN_E_INDEX, -1, "index out of range for size %lld", (long long)size), 0;
}

/* `lines`: index is a vector, which picks whole lines. */
static tn_status gather(const tn_call *call, const tn_view *input, int64_t dim,
                        const tn_view *index, const tn_view *out, int lines) {
    int64_t at[TN_MAX_DIMS] = {0}, from[TN_MAX_DIMS];
    if (tn_view_dtype(index) != TN_I64 || input->ndim == 0) return TN_DECLINE;
    if (out->numel == 0) return TN_OK;
    do {
        memcpy(from, at, sizeof from);
        if (!wrap(call, index, lines ? &at[dim] : at, input->shape[dim], &from[dim]))
            return TN_E_INDEX;
        FLOAT(out, at) = FLOAT(input, from);
    } while (next(out, at));
    return TN_OK;
}

static tn_status chip_gather(const tn_call *call, const void *args) {
    const tn_gather_args *a = args;
    return gather(call, a->input, a->dim, a->index, a->out, 0);
}

static tn_status chip_index_select(const tn_call *call, const void *args) {
    const tn_index_select_args *a = args;
    return gather(call, a->input, a->dim, a->index, a->out, 1);
}

static tn_status chip_index_add(const tn_call *call, const void *args) {
    const tn_index_add__args *a = args;
    int64_t at[TN_MAX_DIMS] = {0}, to[TN_MAX_DIMS];
    if (tn_view_dtype(a->index) != TN_I64 || a->self->ndim == 0 || a->index->ndim != 1)
        return TN_DECLINE;
    if (a->source->numel == 0) return TN_OK;
    do {
        memcpy(to, at, sizeof to);
        if (!wrap(call, a->index, &at[a->dim], a->self->shape[a->dim], &to[a->dim]))
            return TN_E_INDEX;
        FLOAT(a->self, to) += (float)a->alpha.re * FLOAT(a->source, at);
    } while (next(a->source, at));
    return TN_OK;
}

/* ---- 11: sequences -----------------------------------------------------------------------------*/

static tn_status chip_arange(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    if (!tn_view_is_contiguous(a->self) || a->self->numel == 0) return TN_DECLINE;
    float *f = (float *)memory_of(a->self);
    int64_t *w = (int64_t *)f;
    for (int64_t i = 0; i < a->self->numel; i++)
        if (call->dtype == TN_I64)
            w[i] = a->start.i + i * a->step.i;
        else
            f[i] = (float)(a->start.re + (double)i * a->step.re);
    return TN_OK;
}

/* ---- Rows --------------------------------------------------------------------------------------*/

#define ROW(name, f, type, data)                                                                   \
    { .op = #name, .sig = TN_SIG_##name, .fn = f, .dtype = type, .ctx = (void *)(data) }
#define ONE(name, f) ROW(name, chip_unary, TN_F32, &((const map){.one = f}))
#define TWO(name, f) ROW(name, chip_binary, TN_F32, &((const map){.two = f}))
#define TEST(name, f) ROW(name, chip_compare, TN_F32, &((const map){.test = f}))

static const map with_alpha[] = {{.two = plus, .number = offsetof(tn_add_args, alpha)},
                                 {.two = minus, .number = offsetof(tn_sub_args, alpha)}};
static const reduction reductions[] = {
    {0, summed, 0}, {0, summed, 1}, {-INFINITY, larger, 0}, {INFINITY, smaller, 0}};

static const tn_kernel_row rows[] = {
    {.op = "neg", .sig = TN_SIG_neg, .fn = neg_f32, .dtype = TN_F32}, /* the skeleton's own */
    ROW(_copy, chip_copy, TN_DTYPE_ANY, NULL),
    ROW(_cast, chip_cast, TN_DTYPE_ANY, NULL),
    ONE(exp, expf),
    ONE(log, logf),
    ONE(sqrt, sqrtf),
    ONE(abs, fabsf),
    ONE(sin, sinf),
    ONE(cos, cosf),
    ONE(tanh, tanhf),
    ONE(sigmoid, sigmoid),
    ONE(relu, rectified),
    ONE(reciprocal, inverse),
    TWO(mul, times),
    TWO(true_divide, divided),
    TWO(pow, to_the),
    TWO(maximum, larger),
    TWO(minimum, smaller),
    TWO(_relu_backward, through),
    ROW(add, chip_binary, TN_F32, &with_alpha[0]),
    ROW(sub, chip_binary, TN_F32, &with_alpha[1]),
    TEST(eq, equal),
    TEST(ne, unequal),
    TEST(lt, less),
    TEST(le, at_most),
    TEST(gt, greater),
    TEST(ge, at_least),
    ROW(where, chip_where, TN_DTYPE_ANY, NULL),
    ROW(eq, chip_equal_whole, TN_I64, NULL),
    ROW(ne, chip_equal_whole, TN_I64, "ne"),
    ROW(_arange_, chip_arange, TN_I64, NULL),
    ROW(sum, chip_reduce, TN_F32, &reductions[0]),
    ROW(mean, chip_reduce, TN_F32, &reductions[1]),
    ROW(amax, chip_reduce, TN_F32, &reductions[2]),
    ROW(amin, chip_reduce, TN_F32, &reductions[3]),
    ROW(mm, chip_mm, TN_F32, NULL),
    ROW(bmm, chip_mm, TN_F32, NULL),
    ROW(gather, chip_gather, TN_F32, NULL),
    ROW(index_select, chip_index_select, TN_F32, NULL),
    ROW(index_add_, chip_index_add, TN_F32, NULL),
    ROW(_arange_, chip_arange, TN_F32, NULL),
};
