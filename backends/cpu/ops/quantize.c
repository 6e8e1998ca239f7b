/* quantize.c: products of whole numbers of 8 and 4 bits.
 *
 * What is multiplied is int16 (a number less its zero point: nine bits) by int8, which AVX2 adds in
 * pairs into int32 without loss, AVX-512 too, and VNNI in one instruction. Sums are exact: after SPAN
 * products, whose sum is below 2^31, they go on in int64.
 *
 * family: quantize; isa: each; fused */
#include <math.h>

#include <tenon/args_quantize.h>

#include "common/tmpl.h"
#include "cpu_priv.h"
#include "blas.h"
#include "gemm.h"
#include "pack.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define STEP 32 /* rows are padded with zeros to multiples of it */
#define SPAN 32768
#define TILE 64
#define WORK 65536 /* products that are worth a chunk */

/* ---- Sums of products --------------------------------------------------------------------------*/

typedef void (*dot_fn)(const int16_t *const *a, const int8_t *const *w, int64_t k,
                       int32_t (*ret)[4]);

#if defined(__AVX2__)
TMPL_INLINE void row_256(const __m256i *s, int32_t *to) {
    __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storeu_si128((__m128i *)(void *)to, sum);
}
#endif

#if defined(__AVX512BW__)
TMPL_INLINE __m512i add_512(__m512i s, __m512i a, __m512i w) {
    return _mm512_add_epi32(s, _mm512_madd_epi16(a, w));
}
TMPL_INLINE void row_512(const __m512i *s, int32_t *to) {
    __m256i half[4];
    for (int c = 0; c < 4; c++)
        half[c] =
            _mm256_add_epi32(_mm512_castsi512_si256(s[c]), _mm512_extracti64x4_epi64(s[c], 1));
    row_256(half, to);
}
#define LOAD_512(p) _mm512_loadu_si512(p)
#define WIDEN_512(p) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(p)))

#define DOT_NAME dot_plain
#define DOT_TARGET
#define DOT_VEC __m512i
#define DOT_STEP 32
#define DOT_A LOAD_512
#define DOT_W WIDEN_512
#define DOT_ADD add_512
#define DOT_ROW row_512
#include "dot_int8.h"

#define DOT_NAME dot_vnni
#define DOT_TARGET __attribute__((target("avx512vnni")))
#define DOT_VEC __m512i
#define DOT_STEP 32
#define DOT_A LOAD_512
#define DOT_W WIDEN_512
#define DOT_ADD _mm512_dpwssd_epi32
#define DOT_ROW row_512
#include "dot_int8.h"

static dot_fn dot_pick(void) { return __builtin_cpu_supports("avx512vnni") ? dot_vnni : dot_plain; }
#else
#if defined(__AVX2__)
TMPL_INLINE __m256i add_256(__m256i s, __m256i a, __m256i w) {
    return _mm256_add_epi32(s, _mm256_madd_epi16(a, w));
}
#define DOT_VEC __m256i
#define DOT_STEP 16
#define DOT_A(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define DOT_W(p) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define DOT_ADD add_256
#define DOT_ROW row_256
#elif defined(__SSE2__)
TMPL_INLINE __m128i add_128(__m128i s, __m128i a, __m128i w) {
    return _mm_add_epi32(s, _mm_madd_epi16(a, w));
}
TMPL_INLINE __m128i widen_128(const int8_t *p) {
    __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm_srai_epi16(_mm_unpacklo_epi8(v, v), 8);
}
TMPL_INLINE void row_128(const __m128i *s, int32_t *to) {
    __m128i a = _mm_add_epi32(_mm_unpacklo_epi32(s[0], s[1]), _mm_unpackhi_epi32(s[0], s[1]));
    __m128i b = _mm_add_epi32(_mm_unpacklo_epi32(s[2], s[3]), _mm_unpackhi_epi32(s[2], s[3]));
    __m128i sum = _mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
    _mm_storeu_si128((__m128i *)(void *)to, sum);
}
#define DOT_VEC __m128i
#define DOT_STEP 8
#define DOT_A(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define DOT_W widen_128
#define DOT_ADD add_128
#define DOT_ROW row_128
#else
TMPL_INLINE int32_t add_one(int32_t s, int32_t a, int32_t w) { return s + a * w; }
#define DOT_VEC int32_t
#define DOT_STEP 1
#define DOT_A(p) (*(p))
#define DOT_W(p) (*(p))
#define DOT_ADD add_one
#define DOT_ROW(s, to) memcpy(to, s, 4 * sizeof(int32_t))
#endif
#define DOT_NAME dot_plain
#define DOT_TARGET
#include "dot_int8.h"

static dot_fn dot_pick(void) { return dot_plain; }
#endif

/* ---- Matrices of whole numbers -----------------------------------------------------------------*/

/* From a sum of products to a result. */
typedef struct finish {
    float input_scale;
    const float *scale; /* of a column, `each` apart */
    int64_t each;
    const float *bias; /* NULL: none */
    float grid;        /* 0: results stay as they are */
    float zero, low, high;
} finish;

static float finish_one(const finish *f, int64_t column, int64_t sum) {
    float v = (float)sum * (f->input_scale * f->scale[column * f->each]);
    if (f->bias) v += f->bias[column];
    if (f->grid == 0) return v;
    float q = rintf(v * (1.0f / f->grid)) + f->zero;
    return ((q > f->low ? q < f->high ? q : f->high : f->low) - f->zero) * f->grid;
}

typedef struct product {
    int64_t m, n, ld; /* rows, columns, padded length of either */
    const int16_t *a;
    const int8_t *w;
    dot_fn dot;
    finish f;
    int32_t *whole; /* sums as they are, row-major; or: */
    float *out;     /* results, strides in elements */
    int64_t rs, cs;
} product;

static void put(const product *p, int64_t row, int64_t column, int64_t sum) {
    if (p->whole)
        p->whole[row * p->n + column] = (int32_t)(uint32_t)(uint64_t)sum;
    else
        p->out[row * p->rs + column * p->cs] = finish_one(&p->f, column, sum);
}

static void tile(const product *p, int64_t row, int64_t column) {
    const int16_t *a[2];
    const int8_t *w[4];
    int64_t sum[2][4] = {{0}};
    int rows = p->m - row < 2 ? 1 : 2, columns = p->n - column < 4 ? (int)(p->n - column) : 4;
    for (int64_t from = 0; from < p->ld; from += SPAN) {
        int64_t k = p->ld - from < SPAN ? p->ld - from : SPAN;
        int32_t part[2][4];
        for (int r = 0; r < 2; r++) a[r] = p->a + (row + (r < rows ? r : 0)) * p->ld + from;
        for (int c = 0; c < 4; c++) w[c] = p->w + (column + (c < columns ? c : 0)) * p->ld + from;
        p->dot(a, w, k, part);
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 4; c++) sum[r][c] += part[r][c];
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) put(p, row + r, column + c, sum[r][c]);
}

static void tiles(const product *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int64_t c = column; c < column + columns; c += 4)
        for (int64_t r = row; r < row + rows; r += 2) tile(p, r, c);
}

static tn_status run_product(void *arg, int64_t begin, int64_t end) {
    const product *p = arg;
    int64_t across = (p->n + TILE - 1) / TILE;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / across * TILE, column = i % across * TILE;
        tiles(p, row, p->m - row < TILE ? p->m - row : TILE, column,
              p->n - column < TILE ? p->n - column : TILE);
    }
    return TN_OK;
}

static tn_status multiply(product *p) {
    int64_t rows = p->m < TILE ? p->m : TILE;
    int64_t chunks = room_mul((p->m + TILE - 1) / TILE, (p->n + TILE - 1) / TILE);
    int64_t each = room_add(1, room_mul3(rows, p->n < TILE ? p->n : TILE, p->ld));
    p->dot = dot_pick();
    return cpu_parallel(chunks, 1 + WORK / each, run_product, p);
}

/* ---- Rows, padded ------------------------------------------------------------------------------*/

static int64_t padded(int64_t k) { return room_add(k, STEP - 1) / STEP * STEP; }

/* An int8 matrix as rows of ld: its own memory where it lies so already. Strides in elements. */
static tn_status bytes_in_rows(const tn_call *call, const int8_t *from, int64_t rows, int64_t k,
                               int64_t rs, int64_t cs, int64_t ld, const int8_t **ret) {
    void *room;
    *ret = from;
    if (cs == 1 && rs == ld && k == ld) return TN_OK;
    tn_status st = room_scratch(call, room_mul(rows, ld), 1, &room);
    if (st) return st;
    int8_t *to = room;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < k; i++) to[r * ld + i] = from[r * rs + i * cs];
        memset(to + r * ld + k, 0, (size_t)(ld - k));
    }
    *ret = to;
    return TN_OK;
}

typedef struct grid {
    float scale, zero, low, high;
} grid;

typedef struct rounding {
    const float *from;
    int16_t *to;
    int64_t k, ld;
    grid g;
} rounding;

/* Numbers less their zero point. */
static tn_status round_rows(void *arg, int64_t begin, int64_t end) {
    const rounding *j = arg;
    float inverse = 1.0f / j->g.scale, zero = j->g.zero, low = j->g.low, high = j->g.high;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->from + r * j->k;
        int16_t *y = j->to + r * j->ld;
        for (int64_t i = 0; i < j->k; i++) {
            float q = rintf(x[i] * inverse) + zero;
            q = q > low ? q : low;
            y[i] = (int16_t)(int32_t)((q < high ? q : high) - zero);
        }
        memset(y + j->k, 0, (size_t)(j->ld - j->k) * sizeof *y);
    }
    return TN_OK;
}

static tn_status rounded(const tn_call *call, const float *x, int64_t rows, int64_t k, int64_t ld,
                         grid g, const int16_t **ret) {
    void *room;
    tn_status st = room_scratch(call, room_mul(rows, ld), sizeof(int16_t), &room);
    if (st) return st;
    rounding j = {.from = x, .to = room, .k = k, .ld = ld, .g = g};
    *ret = room;
    return cpu_parallel(rows, 1 + 16384 / (k + 1), round_rows, &j);
}

/* The grid that covers the values, and zero exactly. */
static tn_status find_grid(const tn_call *call, const float *x, int64_t n, grid *g) {
    float least = 0, most = 0, bad = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        least = v < least ? v : least;
        most = v > most ? v : most;
        bad += v - v;
    }
    if (bad != 0) return call->host->fail(TN_E_VALUE, 0, "values must be finite to be quantized");
    double low = g->low, high = g->high;
    float scale = (float)(((double)most - (double)least) / (high - low));
    if (scale == 0 || isinf(1.0f / scale)) scale = 0.1f;
    if (scale < 6.1e-5f) {
        float wider = 6.1e-5f;
        if (least == 0)
            most = (float)(wider * (high - low));
        else if (most == 0)
            least = (float)(-wider * (high - low));
        else {
            least *= wider / scale;
            most *= wider / scale;
        }
        scale = wider;
    }
    double from_least = low - (double)least / scale, from_most = high - (double)most / scale;
    double at_least = fabs(low) + fabs((double)least / scale);
    double at_most = fabs(high) + fabs((double)most / scale);
    double zero = rint(at_least < at_most ? from_least : from_most);
    g->scale = scale;
    g->zero = (float)(zero < low ? low : zero > high ? high : zero);
    return TN_OK;
}

/* ---- Linear maps -------------------------------------------------------------------------------*/

static tn_status int_mm(const tn_call *call, const void *args) {
    const tn__int_mm_args *a = args;
    int64_t k = a->input->shape[1], ld = padded(k);
    product p = {.m = a->out->shape[0], .n = a->out->shape[1], .ld = ld, .whole = a->out->data};
    const int8_t *x = a->input->data, *y = a->mat2->data;
    void *room;
    tn_status st = room_scratch(call, room_mul(p.m, ld), sizeof(int16_t), &room);
    if (st) return st;
    int16_t *rows = room;
    for (int64_t r = 0; r < p.m; r++) {
        for (int64_t i = 0; i < k; i++)
            rows[r * ld + i] = x[r * a->input->strides[0] + i * a->input->strides[1]];
        memset(rows + r * ld + k, 0, (size_t)(ld - k) * sizeof *rows);
    }
    p.a = rows;
    st = bytes_in_rows(call, y, p.n, k, a->mat2->strides[1], a->mat2->strides[0], ld, &p.w);
    return st ? st : multiply(&p);
}

/* What both kinds of layers have: scale, bias, the result's grid. */
#define FINISH_OF(a)                                                                               \
    {                                                                                              \
        .scale = scale, .each = (a)->scale->numel > 1, .bias = bias,                               \
        .grid = (float)(a)->output_scale, .zero = (float)(a)->output_zero,                         \
        .low = (float)(a)->output_low, .high = (float)(a)->output_high                             \
    }
#define GRID_OF(a)                                                                                 \
    {                                                                                              \
        .scale = (float)(a)->input_scale, .zero = (float)(a)->input_zero, .low = (float)(a)->low,  \
        .high = (float)(a)->high                                                                   \
    }

static tn_status packed_floats(const tn_call *call, const tn_view *v, const float **ret) {
    const void *p = NULL;
    tn_status st = v ? cpu_packed(call, v, &p) : TN_OK;
    *ret = p;
    return st;
}

static tn_status linear_int8(const tn_call *call, const void *args) {
    const tn__linear_int8_args *a = args;
    const float *x, *scale, *bias;
    int64_t n = a->weight->shape[0], k = a->weight->shape[1], ld = padded(k);
    tn_status st = packed_floats(call, a->input, &x);
    if (!st) st = packed_floats(call, a->scale, &scale);
    if (!st) st = packed_floats(call, a->bias, &bias);
    if (st || a->out->numel == 0) return st;
    product p = {.m = a->out->numel / n, .n = n, .ld = ld, .f = FINISH_OF(a)};
    grid g = GRID_OF(a);
    p.out = a->out->data;
    p.rs = n;
    p.cs = 1;
    if (g.scale == 0) st = find_grid(call, x, p.m * k, &g);
    p.f.input_scale = g.scale;
    if (!st) st = rounded(call, x, p.m, k, ld, g, &p.a);
    if (!st)
        st = bytes_in_rows(call, a->weight->data, n, k, a->weight->strides[0],
                           a->weight->strides[1], ld, &p.w);
    return st ? st : multiply(&p);
}

/* ---- Convolutions of images --------------------------------------------------------------------*/

typedef struct conv {
    const tn__conv_int8_args *args;
    const int16_t *image; /* numbers less their zero point, so that padding is 0 */
    product p;            /* of one group of one image, but for what it reads and writes */
    int64_t pixels, k;    /* of a result; of a weight's row */
    int64_t blocks;       /* of pixels */
    const float *scale, *bias;
} conv;

/* Rows of numbers under the window, for pixels [first, first + n) of a group of an image. */
static void unfold(const conv *c, int64_t image, int64_t group, int64_t first, int64_t n,
                   int16_t *to) {
    const tn__conv_int8_args *a = c->args;
    const int64_t *x = a->input->shape, *w = a->weight->shape, *pad = a->padding.v;
    int64_t width = a->out->shape[3], ld = c->p.ld;
    const int16_t *from = c->image + (image * x[1] + group * w[1]) * x[2] * x[3];
    for (int64_t i = 0; i < n; i++) {
        int64_t top = (first + i) / width * a->stride.v[0] - pad[0];
        int64_t left = (first + i) % width * a->stride.v[1] - pad[1];
        int16_t *row = to + i * ld;
        for (int64_t channel = 0; channel < w[1]; channel++)
            for (int64_t v = 0; v < w[2]; v++) {
                int64_t y = top + v * a->dilation.v[0];
                bool there = y >= 0 && y < x[2];
                const int16_t *line = there ? from + (channel * x[2] + y) * x[3] : NULL;
                for (int64_t h = 0; h < w[3]; h++) {
                    int64_t at = left + h * a->dilation.v[1];
                    *row++ = there && at >= 0 && at < x[3] ? line[at] : 0;
                }
            }
        memset(row, 0, (size_t)(ld - c->k) * sizeof *row);
    }
}

static tn_status run_conv(void *arg, int64_t begin, int64_t end) {
    const conv *c = arg;
    const tn__conv_int8_args *a = c->args;
    int64_t columns = a->weight->shape[0] / a->groups;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(room_mul(TILE, c->p.ld), sizeof(int16_t), &bytes, &room);
    if (st) return st;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % c->blocks * TILE, group = i / c->blocks % a->groups;
        int64_t image = i / c->blocks / a->groups, start = group * columns;
        int64_t n = c->pixels - first < TILE ? c->pixels - first : TILE;
        product p = c->p;
        unfold(c, image, group, first, n, room);
        p.a = room;
        p.w += start * p.ld;
        p.m = n;
        p.out += (image * a->weight->shape[0] + start) * c->pixels + first;
        p.f.scale += start * p.f.each;
        if (p.f.bias) p.f.bias += start;
        tiles(&p, 0, n, 0, columns);
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

static tn_status conv_int8(const tn_call *call, const void *args) {
    const tn__conv_int8_args *a = args;
    const int64_t *w = a->weight->shape;
    const float *x, *scale, *bias;
    const void *weight;
    tn_status st = packed_floats(call, a->input, &x);
    if (!st) st = packed_floats(call, a->scale, &scale);
    if (!st) st = packed_floats(call, a->bias, &bias);
    if (!st) st = cpu_packed(call, a->weight, &weight);
    if (st || a->out->numel == 0) return st;
    int64_t k = w[1] * w[2] * w[3], ld = padded(k), plane = a->input->numel / a->input->shape[0];
    conv c = {.args = a, .k = k, .p = {.ld = ld, .n = w[0] / a->groups, .f = FINISH_OF(a)}};
    grid g = GRID_OF(a);
    c.pixels = a->out->shape[2] * a->out->shape[3];
    c.blocks = (c.pixels + TILE - 1) / TILE;
    c.p.out = a->out->data;
    c.p.rs = 1;
    c.p.cs = c.pixels;
    c.p.f.input_scale = g.scale;
    c.p.dot = dot_pick();
    st = rounded(call, x, a->input->shape[0], plane, plane, g, &c.image);
    if (!st) st = bytes_in_rows(call, weight, w[0], k, k, 1, ld, &c.p.w);
    if (st) return st;
    int64_t each = room_add(1, room_mul3(TILE, c.p.n, ld));
    return cpu_parallel(room_mul3(a->out->shape[0], a->groups, c.blocks), 1 + WORK / each, run_conv,
                        &c);
}

/* ---- Weights of whole numbers, input of floats -------------------------------------------------*/

typedef struct few {
    const float *x;
    int64_t m, n, k;
    const int8_t *bytes;    /* (n, k), or: */
    const uint8_t *nibbles; /* (n, k / 2) */
    const float *scale, *zero;
    int64_t groups; /* of a row */
    float *out;
} few;

static void weight_row(const few *j, int64_t row, float *to) {
    if (j->bytes) {
        const int8_t *w = j->bytes + row * j->k;
        for (int64_t i = 0; i < j->k; i++) to[i] = (float)w[i];
        return;
    }
    int64_t size = j->k / j->groups;
    for (int64_t g = 0; g < j->groups; g++) {
        const uint8_t *w = j->nibbles + (row * j->k + g * size) / 2;
        float scale = j->scale[row * j->groups + g], zero = j->zero[row * j->groups + g];
        for (int64_t i = 0; i < size / 2; i++) {
            to[g * size + 2 * i] = ((float)(w[i] & 15) - zero) * scale;
            to[g * size + 2 * i + 1] = ((float)(w[i] >> 4) - zero) * scale;
        }
    }
}

#define LANES 16
static float dot_floats(const float *a, const float *b, int64_t k) {
    float s[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += a[i + l] * b[i + l];
    for (; i < k; i++) s[0] += a[i] * b[i];
    for (int l = 0; l < LANES; l++) sum += s[l];
    return sum;
}

/* A panel of weights becomes floats once and meets all rows of the input. */
static tn_status run_few(void *arg, int64_t begin, int64_t end) {
    const few *j = arg;
    uint64_t bytes;
    void *room;
    tn_status st =
        cpu_blas_room(room_mul(TILE, room_add(j->k, j->m)), sizeof(float), &bytes, &room);
    if (st) return st;
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t row = panel * TILE, n = j->n - row < TILE ? j->n - row : TILE;
        float *w = room, *part = w + TILE * j->k;
        for (int64_t r = 0; r < n; r++) {
            float *to = w + (j->m < 4 ? 0 : r) * j->k;
            weight_row(j, row + r, to);
            for (int64_t i = 0; j->m < 4 && i < j->m; i++)
                part[i * n + r] = dot_floats(j->x + i * j->k, to, j->k);
        }
        if (j->m >= 4) cpu_sgemm(0, 1, j->m, n, j->k, 1, j->x, j->k, w, j->k, 0, part, n);
        for (int64_t i = 0; i < j->m; i++)
            for (int64_t r = 0; r < n; r++)
                j->out[i * j->n + row + r] = part[i * n + r] * (j->bytes ? j->scale[row + r] : 1);
    }
    cpu_blas_room_end(room, bytes);
    return TN_OK;
}

static tn_status weigh(const tn_call *call, few *j, const tn_view *x, const tn_view *out) {
    const void *p;
    tn_status st = cpu_packed(call, x, &p);
    if (st || out->numel == 0) return st;
    j->x = p;
    j->out = out->data;
    j->m = out->numel / j->n;
    return cpu_parallel((j->n + TILE - 1) / TILE, 1 + WORK / (TILE * (j->k + 1)), run_few, j);
}

static tn_status weight_int8(const tn_call *call, const void *args) {
    const tn__weight_int8pack_mm_args *a = args;
    few j = {.n = a->mat2->shape[0], .k = a->mat2->shape[1], .groups = 1};
    const void *w;
    tn_status st = cpu_packed(call, a->mat2, &w);
    if (!st) st = packed_floats(call, a->scales, &j.scale);
    j.bytes = w;
    return st ? st : weigh(call, &j, a->input, a->out);
}

static tn_status linear_int4(const tn_call *call, const void *args) {
    const tn__linear_int4_args *a = args;
    few j = {.n = a->weight->shape[0], .k = 2 * a->weight->shape[1], .groups = a->scale->shape[1]};
    const void *w;
    tn_status st = cpu_packed(call, a->weight, &w);
    if (!st) st = packed_floats(call, a->scale, &j.scale);
    if (!st) st = packed_floats(call, a->zero_point, &j.zero);
    j.nibbles = w;
    return st ? st : weigh(call, &j, a->input, a->out);
}

#define ROW(op, fn, dtype)                                                                         \
    { #op, TN_SIG_##op, fn, NULL, dtype, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(_int_mm, int_mm, TN_I8),
    ROW(_linear_int8, linear_int8, TN_F32),
    ROW(_conv_int8, conv_int8, TN_F32),
    ROW(_weight_int8pack_mm, weight_int8, TN_F32),
    ROW(_linear_int4, linear_int4, TN_F32),
};
const cpu_rows ISA_(cpu_quantize_rows) = CPU_ROWS_OF(rows);
