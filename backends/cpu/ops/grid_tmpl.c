/* grid_tmpl.c: images at the places of a grid, and the derivatives of that, for float or double.
 *
 * A place has taps along each dimension: 1, 2 or 4 neighbours, their weights, and the first and second
 * derivatives of these. A block of places is prepared once, as offsets into a plane and weights of
 * products of taps, and then applied to every channel. What is outside has the offset 0 and counts as
 * zero, whatever is there. With `along` a weight is replaced by its change when the place moves that way.
 *
 * family: grid; types: f32 f64; isa: each; fused */
#include <math.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <tenon/args_vision.h>

#include "common/tmpl.h"

#include "common/grid.h"

#include "caches.h"
#include "cpu_priv.h"
#include "pack.h"

enum { AXES = GRID_AXES, TAPS = GRID_TAPS, PRODUCTS = 16, BLOCK = 64 };
_Static_assert((int)GRID_BILINEAR == TN_GRID_SAMPLE_BILINEAR &&
                   (int)GRID_NEAREST == TN_GRID_SAMPLE_NEAREST &&
                   (int)GRID_BICUBIC == TN_GRID_SAMPLE_BICUBIC &&
                   (int)GRID_ZEROS == TN_GRID_SAMPLE_ZEROS &&
                   (int)GRID_BORDER == TN_GRID_SAMPLE_BORDER &&
                   (int)GRID_REFLECTION == TN_GRID_SAMPLE_REFLECTION,
               "formulas know the same numbers");

typedef struct grid_job {
    const T *image, *grad, *grid, *along;
    T *to;
    int64_t batch, channels, size[AXES]; /* of images, the last dimension first */
    int64_t plane, points;               /* elements of a channel, places of an image */
    int axes;
    int64_t mode, padding;
    bool corners;
} grid_job;

/* ---- A block of places -------------------------------------------------------------------------*/

#if TMPL_DTYPE == TMPL_F64
typedef int64_t grid_flag; /* as wide as T, for vectors */
#else
typedef int32_t grid_flag;
#endif

/* Where a block's tables lie: of product k from k BLOCK on. */
typedef struct block {
    int64_t n;
    int32_t products;
    int32_t *at;
    grid_flag *in; /* 0 where it is outside */
    T *w;          /* of values */
    T *d[AXES];    /* of derivatives, where they are asked for */
} block;

/* Tables for all that there may be. */
typedef struct tables {
    int32_t at[PRODUCTS * BLOCK];
    grid_flag in[PRODUCTS * BLOCK];
    T w[PRODUCTS * BLOCK], d[AXES][PRODUCTS * BLOCK];
} tables;

static void block_init(block *ret, tables *t) {
    ret->at = t->at;
    ret->in = t->in;
    ret->w = t->w;
    for (int a = 0; a < AXES; a++) ret->d[a] = t->d[a];
}

/* The taps of a block along one dimension; w by the order of the derivative. */
typedef struct lines {
    int32_t count, at[TAPS][BLOCK];
    grid_flag in[TAPS][BLOCK];
    T w[3][TAPS][BLOCK];
} lines;

static void cubic_lines(const grid_job *j, const T *x, int64_t size, int64_t n, lines *ret) {
    T slope = grid_slope(size, j->corners);
    grid_taps t;
    ret->count = 4;
    for (int64_t p = 0; p < n; p++) {
        grid_cubic(x[p], slope, size, j->padding, j->corners, &t);
        for (int32_t i = 0; i < 4; i++) {
            ret->in[i][p] = t.at[i] >= 0;
            ret->at[i][p] = t.at[i] >= 0 ? t.at[i] : 0;
            ret->w[0][i][p] = t.w[i];
            ret->w[1][i][p] = t.d[i];
            ret->w[2][i][p] = t.dd[i];
        }
    }
}

static void nearest_lines(const T *x, int64_t size, int64_t n, lines *ret) {
    ret->count = 1;
    TMPL_VECTOR
    for (int64_t p = 0; p < n; p++) {
        T at = (T)nearbyint((double)x[p]);
        bool in = at >= 0 && at < (T)size;
        ret->in[0][p] = in;
        ret->at[0][p] = in ? (int32_t)at : 0;
        ret->w[0][0][p] = 1;
        ret->w[1][0][p] = ret->w[2][0][p] = 0;
    }
}

/* `slope` moves as the number of the grid does. What is not finite has weights that are NaN. */
static void linear_lines(const T *x, const T *slope, int64_t size, int64_t n, lines *ret) {
    ret->count = 2;
    TMPL_VECTOR
    for (int64_t p = 0; p < n; p++) {
        T low = (T)floor((double)x[p]), w = x[p] - low;
        int32_t at = (int32_t)grid_hold(low), next = at + 1, most = (int32_t)size;
        bool in = at >= 0 && at < most, in_next = next >= 0 && next < most;
        ret->in[0][p] = in;
        ret->in[1][p] = in_next;
        ret->at[0][p] = in ? at : 0;
        ret->at[1][p] = in_next ? next : 0;
        ret->w[0][0][p] = 1 - w;
        ret->w[0][1][p] = w;
        ret->w[1][0][p] = -slope[p];
        ret->w[1][1][p] = slope[p];
        ret->w[2][0][p] = ret->w[2][1][p] = 0;
    }
}

/* Of places first .. of image n along dimension a. */
static void lines_of(const grid_job *j, int64_t n, int64_t first, int a, const block *b,
                     lines *ret) {
    const T *g = j->grid + (n * j->points + first) * j->axes + a;
    int64_t size = j->size[a], axes = j->axes;
    T x[BLOCK], slope[BLOCK];
    TMPL_VECTOR
    for (int64_t p = 0; p < b->n; p++) {
        x[p] = grid_place(g[p * axes], size, j->corners);
        slope[p] = grid_slope(size, j->corners);
    }
    if (j->mode == GRID_BICUBIC) {
        cubic_lines(j, x, size, b->n, ret);
        return;
    }
    for (int64_t p = 0; j->padding == GRID_REFLECTION && p < b->n; p++)
        x[p] = grid_reflect(x[p], size, j->corners, &slope[p]);
    TMPL_VECTOR
    for (int64_t p = 0; p < b->n; p++) {
        T in = j->padding == GRID_ZEROS ? x[p] : grid_clip(x[p], size, &slope[p]);
        x[p] = grid_shown(in, (int)axes);
    }
    if (j->mode == GRID_NEAREST)
        nearest_lines(x, size, b->n, ret);
    else
        linear_lines(x, slope, size, b->n, ret);
}

/* The products of the axes' taps, of which those in `once` and `twice` are derivatives. */
static void product(const grid_job *j, const lines *l, const int *tap, int once, int twice,
                    const block *b, T *ret) {
    for (int a = 0; a < j->axes; a++) {
        const T *w = l[a].w[(a == once) + (a == twice)][tap[a]];
        TMPL_VECTOR
        for (int64_t p = 0; p < b->n; p++) ret[p] = a == 0 ? w[p] : ret[p] * w[p];
    }
}

/* The same, or how it changes as the places move along. */
static void weigh(const grid_job *j, const T *along, const lines *l, const int *tap, int once,
                  const block *b, T *ret) {
    T w[BLOCK];
    if (!along) {
        product(j, l, tap, once, -1, b, ret);
        return;
    }
    memset(ret, 0, BLOCK * sizeof(T));
    for (int a = 0; a < j->axes; a++) {
        product(j, l, tap, a, once, b, w);
        for (int64_t p = 0; p < b->n; p++) ret[p] += along[p * j->axes + a] * w[p];
    }
}

/* Places first .. of image n. `slopes`: with derivatives. */
static void prepare(const grid_job *j, int64_t n, int64_t first, bool slopes, block *b) {
    lines l[AXES];
    const T *along = j->along ? j->along + (n * j->points + first) * j->axes : NULL;
    b->n = j->points - first < BLOCK ? j->points - first : BLOCK;
    b->products = 1;
    for (int a = 0; a < j->axes; a++) {
        lines_of(j, n, first, a, b, &l[a]);
        b->products *= l[a].count;
    }
    for (int32_t k = 0; k < b->products; k++) {
        int32_t rest = k, step = 1, *at = b->at + k * BLOCK;
        int tap[AXES] = {0};
        grid_flag *in = b->in + k * BLOCK;
        for (int a = 0; a < j->axes; a++) {
            tap[a] = rest % l[a].count;
            rest /= l[a].count;
            const int32_t *here = l[a].at[tap[a]];
            const grid_flag *inner = l[a].in[tap[a]];
            TMPL_VECTOR
            for (int64_t p = 0; p < b->n; p++) {
                at[p] = (a == 0 ? 0 : at[p]) + here[p] * step;
                in[p] = (a == 0 ? 1 : in[p]) & inner[p];
            }
            step *= (int32_t)j->size[a];
        }
        weigh(j, along, l, tap, -1, b, b->w + k * BLOCK);
        for (int a = 0; slopes && a < j->axes; a++)
            weigh(j, along, l, tap, a, b, b->d[a] + k * BLOCK);
    }
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F32
enum { GATHERED = 16 };

/* s + w times what tap k finds in a channel at 16 places from p on. */
TMPL_INLINE __m512 gathered(const block *b, int32_t k, const T *x, int64_t p, const T *w,
                            __m512 s) {
    __m512i in = _mm512_loadu_si512(b->in + k * BLOCK + p);
    __m512i at = _mm512_loadu_si512(b->at + k * BLOCK + p);
    __mmask16 inside = _mm512_test_epi32_mask(in, in);
    __m512 found = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, x, sizeof(T));
    return _mm512_fmadd_ps(_mm512_loadu_ps(w + p), found, s);
}
#endif

/* sum += w times what tap k finds in a channel, at the places of a block from p on. Without a branch:
 * places are as random as the grid is. */
static void add_found(const block *b, int32_t k, const T *x, int64_t p, const T *w, T *sum) {
    const int32_t *at = b->at + k * BLOCK;
    const grid_flag *in = b->in + k * BLOCK;
    T found[BLOCK];
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F32
    for (; p + GATHERED <= b->n; p += GATHERED)
        _mm512_storeu_ps(sum + p, gathered(b, k, x, p, w, _mm512_loadu_ps(sum + p)));
#endif
    TMPL_UNROLL
    for (int64_t i = p; i < b->n; i++) found[i] = x[at[i]];
    TMPL_VECTOR
    for (int64_t i = p; i < b->n; i++) sum[i] += w[i] * (in[i] ? found[i] : 0);
}

static int64_t blocks_of(const grid_job *j) { return (j->points + BLOCK - 1) / BLOCK; }

/* What a block finds in a channel. */
static void look_block(const block *b, const T *x, T *y) {
    T sum[BLOCK] = {0};
    int64_t p = 0;
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F32
    for (; p + GATHERED <= b->n; p += GATHERED) {
        __m512 s = _mm512_setzero_ps();
        for (int32_t k = 0; k < b->products; k++) s = gathered(b, k, x, p, b->w + k * BLOCK, s);
        _mm512_storeu_ps(sum + p, s);
    }
#endif
    for (int32_t k = 0; p < b->n && k < b->products; k++)
        add_found(b, k, x, p, b->w + k * BLOCK, sum);
    memcpy(y, sum, (size_t)b->n * sizeof(T));
}

/* Elements of a block's tables without derivatives. */
static int64_t table_size(const grid_job *j) {
    int64_t side = j->mode == GRID_BICUBIC ? 4 : j->mode == GRID_NEAREST ? 1 : 2, products = 1;
    for (int a = 0; a < j->axes; a++) products *= side;
    return products * BLOCK;
}

enum { ITEM = sizeof(int32_t) + sizeof(grid_flag) + sizeof(T) };

/* Blocks that are looked for in a channel before the next one: it stays in the first cache, and the tables
 * are read one after the other from the second. */
static int64_t set_of(const grid_job *j) {
    int64_t most = (int64_t)(cpu_os_l2_bytes() / 2) / (table_size(j) * ITEM);
    int64_t fair = j->batch * blocks_of(j) / 32; /* leaves enough for many threads */
    most = most < fair ? most : fair;
    return most < 1 ? 1 : most;
}

static int64_t sets_of(const grid_job *j) { return (blocks_of(j) + set_of(j) - 1) / set_of(j); }

/* Sets of blocks of places of all images. */
static tn_status look(void *arg, int64_t begin, int64_t end) {
    const grid_job *j = arg;
    int64_t set = set_of(j), sets = sets_of(j), size = table_size(j);
    uint64_t bytes, block_bytes;
    void *room, *blocks;
    tn_status st = cpu_room(set, sizeof(block), &block_bytes, &blocks);
    if (st != TN_OK) return st;
    st = cpu_room(room_mul(set, size), ITEM, &bytes, &room);
    if (st != TN_OK) cpu_free(NULL, 0, blocks, block_bytes);
    if (st != TN_OK) return st;
    block *b = blocks;
    for (int64_t i = 0; i < set; i++) {
        b[i].w = (T *)room + i * size;
        b[i].in = (grid_flag *)((T *)room + set * size) + i * size;
        b[i].at = (int32_t *)((grid_flag *)((T *)room + set * size) + set * size) + i * size;
    }
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        int64_t n = i / sets, first = i % sets * set, count = blocks_of(j) - first;
        count = count < set ? count : set;
        for (int64_t k = 0; k < count; k++) prepare(j, n, (first + k) * BLOCK, false, &b[k]);
        for (int64_t c = n * j->channels; c < (n + 1) * j->channels && st == TN_OK; c++) {
            T *y = j->to + c * j->points + first * BLOCK;
            for (int64_t k = 0; k < count; k++)
                look_block(&b[k], j->image + c * j->plane, y + k * BLOCK);
            if (c % 32 == 31) st = cpu_poll();
        }
    }
    cpu_free(NULL, 0, room, bytes);
    cpu_free(NULL, 0, blocks, block_bytes);
    return st;
}

/* Channels of all images, a few at a time: what was read is written to. */
enum { ABREAST = 8 };
static int64_t groups_of(const grid_job *j) { return (j->channels + ABREAST - 1) / ABREAST; }

static tn_status spread(void *arg, int64_t begin, int64_t end) {
    const grid_job *j = arg;
    block b;
    tables t;
    tn_status st = TN_OK;
    block_init(&b, &t);
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        int64_t n = i / groups_of(j), from = i % groups_of(j) * ABREAST;
        int64_t to = from + ABREAST < j->channels ? from + ABREAST : j->channels;
        st = cpu_clear(j->to + (n * j->channels + from) * j->plane,
                       (to - from) * j->plane * (int64_t)sizeof(T));
        for (int64_t first = 0; first < j->points && st == TN_OK; first += BLOCK) {
            if (first % (16 * BLOCK) == 0) st = cpu_poll();
            prepare(j, n, first, false, &b);
            for (int64_t c = n * j->channels + from; c < n * j->channels + to; c++) {
                const T *g = j->grad + c * j->points + first;
                T *y = j->to + c * j->plane;
                for (int32_t k = 0; k < b.products; k++) {
                    const int32_t *at = b.at + k * BLOCK;
                    const grid_flag *in = b.in + k * BLOCK;
                    const T *w = b.w + k * BLOCK;
                    for (int64_t p = 0; p < b.n; p++)
                        if (in[p]) y[at[p]] += w[p] * g[p];
                }
            }
        }
    }
    return st;
}

/* How the places move: sums over the channels of gradient times image, tap by tap. */
static tn_status move(void *arg, int64_t begin, int64_t end) {
    const grid_job *j = arg;
    block b;
    tables t;
    T sum[PRODUCTS][BLOCK];
    block_init(&b, &t);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / blocks_of(j), first = i % blocks_of(j) * BLOCK;
        prepare(j, n, first, true, &b);
        memset(sum, 0, sizeof sum);
        for (int64_t c = n * j->channels; c < (n + 1) * j->channels; c++) {
            const T *x = j->image + c * j->plane, *g = j->grad + c * j->points + first;
            for (int32_t k = 0; k < b.products; k++) add_found(&b, k, x, 0, g, sum[k]);
        }
        for (int64_t p = 0; p < b.n; p++) {
            T *y = j->to + (n * j->points + first + p) * j->axes;
            for (int a = 0; a < j->axes; a++) {
                T d = 0;
                for (int32_t k = 0; k < b.products; k++) d += b.d[a][k * BLOCK + p] * sum[k][p];
                y[a] = d;
            }
        }
    }
    return TN_OK;
}

/* Packs v; a tensor that is not there stays so. */
static tn_status packed(const tn_call *call, const tn_view *v, const T **ret) {
    const void *p = NULL;
    tn_status st = v ? cpu_packed(call, v, &p) : TN_OK;
    *ret = p;
    return st;
}

/* What all kernels have: `sizes` are the image's. */
static tn_status job_init(const tn_call *call, grid_job *j, const int64_t *sizes,
                          const tn_view *grid, const tn_view *along, tn_view *to) {
    j->axes = grid->ndim - 2;
    j->batch = sizes[0];
    j->channels = sizes[1];
    j->plane = j->points = 1;
    for (int a = 0; a < j->axes; a++) {
        j->size[a] = sizes[1 + j->axes - a];
        j->plane = room_mul(j->plane, j->size[a]);
        j->points *= grid->shape[1 + a];
    }
    j->to = to->data;
    if (j->plane > INT32_MAX)
        return call->host->fail(TN_E_UNSUPPORTED, 0,
                                "grid_sampler(): a channel has more than 2^31 elements");
    tn_status st = packed(call, grid, &j->grid);
    return st == TN_OK ? packed(call, along, &j->along) : st;
}

/* For items of so many blocks. */
static int64_t grain_of(const grid_job *j, int64_t blocks) {
    return 1 + 256 / (4 + j->channels) / blocks;
}

static tn_status grid_sample(const tn_call *call, const void *args) {
    const tn__grid_sample_args *a = args;
    grid_job j = {.mode = a->mode, .padding = a->padding, .corners = a->align_corners != 0};
    if (a->out->numel == 0) return TN_OK;
    tn_status st = job_init(call, &j, a->input->shape, a->grid, a->along, a->out);
    if (st == TN_OK) st = packed(call, a->input, &j.image);
    if (st != TN_OK) return st;
    return cpu_parallel(j.batch * sets_of(&j), grain_of(&j, set_of(&j)), look, &j);
}

static tn_status grid_sample_input(const tn_call *call, const void *args) {
    const tn__grid_sample_input_args *a = args;
    grid_job j = {.mode = a->mode, .padding = a->padding, .corners = a->align_corners != 0};
    if (a->out->numel == 0) return TN_OK;
    tn_status st = job_init(call, &j, a->out->shape, a->grid, a->along, a->out);
    if (st == TN_OK) st = packed(call, a->grad, &j.grad);
    return st == TN_OK ? cpu_parallel(j.batch * groups_of(&j), 1, spread, &j) : st;
}

static tn_status moved(const tn_call *call, grid_job *j, const tn_view *grad, const tn_view *image,
                       const tn_view *grid, const tn_view *along, tn_view *out) {
    if (out->numel == 0) return TN_OK;
    tn_status st = job_init(call, j, image->shape, grid, along, out);
    if (st == TN_OK) st = packed(call, grad, &j->grad);
    if (st == TN_OK) st = packed(call, image, &j->image);
    if (st != TN_OK || j->points == 0) return st;
    return cpu_parallel(j->batch * blocks_of(j), grain_of(j, 1), move, j);
}

static tn_status grid_sample_grid(const tn_call *call, const void *args) {
    const tn__grid_sample_grid_args *a = args;
    grid_job j = {.mode = a->mode, .padding = a->padding, .corners = a->align_corners != 0};
    return moved(call, &j, a->grad, a->input, a->grid, NULL, a->out);
}

static tn_status grid_sample_curve(const tn_call *call, const void *args) {
    const tn__grid_sample_curve_args *a = args;
    grid_job j = {.mode = a->mode, .padding = a->padding, .corners = a->align_corners != 0};
    return moved(call, &j, a->grad, a->input, a->grid, a->along, a->out);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_grid_sample, grid_sample),
    ROW(_grid_sample_input, grid_sample_input),
    ROW(_grid_sample_grid, grid_sample_grid),
    ROW(_grid_sample_curve, grid_sample_curve),
};
const cpu_rows TN_(cpu_grid_rows) = CPU_ROWS_OF(rows);
