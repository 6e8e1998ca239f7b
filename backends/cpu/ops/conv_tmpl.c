/* conv_tmpl.c: convolutions of one, two or three dimensions and their gradients, for one element
 * type.
 *
 * All three are the same product without a copied left operand: element (r, k) of it is x[row[r]
 * + red[k]] for two lists of offsets into a zero-padded image, because the place that an output
 * pixel and a tap of the window meet is the sum of two offsets. The right operand (weights, or
 * the gradient) is packed into panels of PW columns. Forward and the gradient of the input put
 * pixels in rows and taps in the sum; the gradient of the weight puts taps in rows and pixels in
 * the sum. With a stride, the pixels of an input gradient fall into phases that meet different
 * taps.
 *
 * family: conv; types: float; isa: each; fused */
#include <tenon/args_conv.h>

#include "common/tmpl.h"

#include "caches.h"
#include "conv_bf16.h"
#include "conv_geometry.h"
#include "copy.h"
#include "cpu_priv.h"
#include "pack.h"

/* ---- The product of one tile -------------------------------------------------------------------
 * R rows by V vectors of columns: as many sums as the registers hold. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define R 8
#define V 3
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define R 6
#define V 2
#else
#define VECTOR_BYTES 16
#define R 4
#define V 2
#endif
#define W ((int64_t)(VECTOR_BYTES / sizeof(A)))
#define PW (V * W)
typedef A vector __attribute__((vector_size(VECTOR_BYTES)));

static inline vector load(const A *p) {
    vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(A *p, vector v) { memcpy(p, &v, sizeof v); }

/* c (R, PW) = [c +] sum over k of x[row[r] + red[k]] * panel[k], of the first `vectors` of a panel's columns;
 * in_order: red[k] is k, and red is not looked at. */
TMPL_INLINE void tile_sum(int vectors, const A *x, const int64_t *row, const int64_t *red,
                          bool in_order, int64_t n, const A *panel, A *c, int add) {
    vector s[R][V], zero = {0};
    const A *p[R];
    TMPL_UNROLL
    for (int r = 0; r < R; r++) {
        p[r] = x + row[r];
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) s[r][v] = add ? load(c + r * PW + v * W) : zero;
    }
    for (int64_t k = 0; k < n; k++) {
        vector b[V];
        int64_t at = in_order ? k : red[k];
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) b[v] = load(panel + k * PW + v * W);
        TMPL_UNROLL
        for (int r = 0; r < R; r++) {
            A a = p[r][at];
            TMPL_UNROLL
            for (int v = 0; v < vectors; v++) s[r][v] += a * b[v];
        }
    }
    TMPL_UNROLL
    for (int r = 0; r < R; r++) {
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) store(c + r * PW + v * W, s[r][v]);
    }
}

typedef void product_fn(const A *x, const int64_t *row, const int64_t *red, int64_t n,
                        const A *panel, A *c, int add);

static void product_1(const A *x, const int64_t *row, const int64_t *red, int64_t n, const A *panel,
                      A *c, int add) {
    tile_sum(1, x, row, red, false, n, panel, c, add);
}

static void product_2(const A *x, const int64_t *row, const int64_t *red, int64_t n, const A *panel,
                      A *c, int add) {
    tile_sum(2, x, row, red, false, n, panel, c, add);
}

#if V == 3
static void product_3(const A *x, const int64_t *row, const int64_t *red, int64_t n, const A *panel,
                      A *c, int add) {
    tile_sum(3, x, row, red, false, n, panel, c, add);
}
#else
#define product_3 product_2
#endif

static product_fn *product_of(int64_t columns) {
    return columns <= W ? product_1 : columns <= 2 * W ? product_2 : product_3;
}

/* ---- Images ------------------------------------------------------------------------------------*/

/* A batch of images with room around them. */
typedef struct images {
    const A *data;
    int64_t size[3];      /* with room */
    int64_t plane, image; /* elements of a channel and of an image */
} images;

static int64_t place(const images *im, int64_t z, int64_t y, int64_t x) {
    return (z * im->size[1] + y) * im->size[2] + x;
}

typedef struct widen_job {
    const T *from;
    A *to;
    int64_t size[3], low[3];
    const images *im;
} widen_job;

static tn_status widen_planes(void *arg, int64_t begin, int64_t end) {
    const widen_job *j = arg;
    int64_t w = j->size[2], plane = j->size[0] * j->size[1] * w;
    for (int64_t p = begin; p < end; p++) {
        const T *from = j->from + p * plane;
        A *to = j->to + p * j->im->plane;
        memset(to, 0, (size_t)j->im->plane * sizeof(A));
        for (int64_t z = 0; z < j->size[0]; z++) {
            for (int64_t y = 0; y < j->size[1]; y++, from += w) {
                A *row = to + place(j->im, z + j->low[0], y + j->low[1], j->low[2]);
                for (int64_t x = 0; x < w; x++) row[x] = LOAD(from[x]);
            }
        }
    }
    return TN_OK;
}

/* v as packed A with `low` and `high` zeros around each plane; v's own memory where that will
 * do. */
static tn_status widen(const tn_call *call, const tn_view *v, const int64_t *size,
                       const int64_t *low, const int64_t *high, images *ret) {
    const void *p;
    int64_t planes = room_mul(v->shape[0], v->shape[1]), room = 0;
    tn_status st = cpu_packed(call, v, &p);
    if (st) return st;
    for (int d = 0; d < 3; d++) {
        ret->size[d] = size[d] + low[d] + high[d];
        room += low[d] + high[d];
    }
    ret->plane = room_mul3(ret->size[0], ret->size[1], ret->size[2]);
    ret->image = room_mul(ret->plane, v->shape[1]);
    ret->data = (const A *)p;
    if (room == 0 && sizeof(T) == sizeof(A)) return TN_OK;
    /* Planes a large power of two apart would fall into the same few lines of the first cache. */
    if (ret->plane % (int64_t)(512 / sizeof(A)) == 0)
        ret->plane = room_add(ret->plane, 64 / (int64_t)sizeof(A));
    ret->image = room_mul(ret->plane, v->shape[1]);
    void *wide;
    st = room_scratch(call, room_mul(planes, ret->plane), sizeof(A), &wide);
    if (st) return st;
    widen_job j = {.from = p, .to = wide, .im = ret};
    memcpy(j.size, size, sizeof j.size);
    memcpy(j.low, low, sizeof j.low);
    ret->data = wide;
    return cpu_parallel(planes, 1 + 16384 / (ret->plane + 1), widen_planes, &j);
}

#include "conv_depth_tmpl.h"
#include "conv_point_tmpl.h"

/* ---- Pixels against taps: forward and the gradient of the input -------------------------------*/

typedef struct phase {
    int64_t pixels, sums;
    int64_t *row;    /* by pixel: offset into the image; padded to a multiple of R */
    int64_t *place;  /* by pixel: position in the output plane */
    int64_t *red;    /* by sum (channel, tap): offset into the image */
    const A *panels; /* (groups, blocks, sums, PW) */
} phase;

typedef struct correlate_job {
    int64_t groups, from, to; /* channels of one group */
    int64_t blocks;           /* column panels of a group */
    int64_t tiles, panels;    /* of one work item: R-row tiles, column panels of all groups */
    int64_t sets, items;      /* of one image: sets of tiles, work items */
    int64_t stretch;          /* sums that are done for all tiles before the next ones */
    int64_t out_plane;
    const phase *ph;
    images im;
    const T *bias;
    T *y;
} correlate_job;

static void store_tile(const correlate_job *j, const A *c, int64_t image, int64_t channel,
                       int64_t columns, const int64_t *to, int64_t rows) {
    T *y = j->y + (image * j->groups * j->to + channel) * j->out_plane;
    for (int64_t i = 0; i < columns; i++, y += j->out_plane) {
        A bias = j->bias ? LOAD(j->bias[channel + i]) : 0;
        for (int64_t r = 0; r < rows; r++) y[to[r]] = STORE(c[r * PW + i] + bias);
    }
}

/* Tiles of pixels [first, last) against a panel. A stretch of the panel stays in the first cache while all
 * tiles meet it; c has the tiles' sums so far. */
static void correlate_panel(const correlate_job *j, int64_t image, int64_t gb, int64_t first,
                            int64_t last, A *c) {
    const phase *ph = j->ph;
    int64_t g = gb / j->blocks, channel = gb % j->blocks * PW;
    const A *x = j->im.data + image * j->im.image + g * j->from * j->im.plane;
    const A *panel = ph->panels + gb * ph->sums * PW;
    int64_t columns = j->to - channel < PW ? j->to - channel : PW, begin = 0;
    product_fn *product = product_of(columns);
    do {
        int64_t left = ph->sums - begin, n = left < j->stretch ? left : j->stretch;
        A *sums = c;
        for (int64_t p = first; p < last; p += R, sums += R * PW) {
            product(x, ph->row + p, ph->red + begin, n, panel + begin * PW, sums, begin > 0);
            if (n == left)
                store_tile(j, sums, image, g * j->to + channel, columns, ph->place + p,
                           last - p < R ? last - p : R);
        }
        begin += n;
    } while (begin < ph->sums);
}

static tn_status correlate_items(void *arg, int64_t begin, int64_t end) {
    const correlate_job *j = arg;
    int64_t pixels = j->ph->pixels, panels = j->groups * j->blocks;
    uint64_t bytes;
    void *c;
    tn_status st = cpu_room(room_mul(j->tiles, R * PW), sizeof(A), &bytes, &c);
    if (st) return st;
    for (int64_t i = begin; i < end && !st; i++) {
        int64_t image = i / j->items, set = i % j->items % j->sets;
        int64_t first = set * j->tiles * R, last = first + j->tiles * R;
        int64_t gb = i % j->items / j->sets * j->panels, most = gb + j->panels;
        last = last < pixels ? last : pixels;
        most = most < panels ? most : panels;
        for (; gb < most && !st; gb++) {
            correlate_panel(j, image, gb, first, last, c);
            st = cpu_poll();
        }
    }
    cpu_free(NULL, 0, c, bytes);
    return st;
}

/* What a work item has: tiles enough to read a panel for, and no more panels and tiles than leave enough
 * items for many threads, unless they become so small that handing them out takes as long. */
static void correlate_cut(const phase *ph, int64_t n, correlate_job *j, double flops) {
    enum { FAIR = 64, SET = 32 };
    enum { STRETCH_BYTES = 24 << 10 }; /* rows of the image pass by beside it */
    int64_t tiles = (ph->pixels + R - 1) / R, panels = j->groups * j->blocks;
    int64_t wanted = (int64_t)(4e5 / (flops * (double)panels)) + 1,
            one = (int64_t)(4e5 / flops) + 1;
    int64_t set = wanted > SET ? wanted : SET;
    j->tiles = set < tiles ? set : tiles;
    j->panels = panels;
    for (;;) {
        j->sets = (tiles + j->tiles - 1) / j->tiles;
        j->items = j->sets * ((panels + j->panels - 1) / j->panels);
        if (room_mul(n, j->items) >= FAIR || j->tiles * j->panels <= one) break;
        if (j->panels > 1)
            j->panels = (j->panels + 1) / 2;
        else
            j->tiles = (j->tiles + 1) / 2;
    }
    j->stretch = STRETCH_BYTES / (int64_t)(PW * sizeof(A));
}

static tn_status correlate(const phase *ph, int64_t n, correlate_job *j) {
    double flops = 2.0 * (double)(ph->sums * PW * R) + 1.0; /* of a tile and a panel */
    if (ph->pixels == 0) return TN_OK;
    correlate_cut(ph, n, j, flops);
    double item = flops * (double)(j->tiles * j->panels);
    j->ph = ph;
    return cpu_parallel(room_mul(n, j->items), 1 + (int64_t)(4e5 / item), correlate_items, j);
}

/* Memory of a phase's lists, in the call's scratch. */
static tn_status phase_init(const tn_call *call, phase *ph, int64_t pixels, int64_t sums,
                            int64_t panels) {
    void *p;
    int64_t lists = room_add(room_mul(2, pixels + R), sums);
    tn_status st = room_scratch(call, lists, sizeof(int64_t), &p);
    if (st) return st;
    ph->pixels = ph->sums = 0;
    ph->row = p;
    ph->place = ph->row + pixels + R;
    ph->red = ph->place + pixels + R;
    st = room_scratch(call, room_mul3(panels, sums, PW), sizeof(A), &p);
    ph->panels = p;
    return st;
}

/* The last tile reads whole: its missing rows look at the last pixel. */
static void phase_close(phase *ph) {
    for (int64_t i = 0; i < R && ph->pixels > 0; i++) {
        ph->row[ph->pixels + i] = ph->row[ph->pixels - 1];
    }
}

typedef struct panel_job {
    const T *w;
    A *panels;
    int64_t sums, blocks, to;
} panel_job;

/* Weights as panels: rows of sums, PW channels wide. */
static tn_status forward_panels(void *arg, int64_t begin, int64_t end) {
    const panel_job *j = arg;
    for (int64_t gb = begin; gb < end; gb++) {
        int64_t first = gb % j->blocks * PW, left = j->to - first, n = left < PW ? left : PW;
        const T *w = j->w + (gb / j->blocks * j->to + first) * j->sums;
        A *panel = j->panels + gb * j->sums * PW;
        if (n < PW) memset(panel, 0, (size_t)(j->sums * PW) * sizeof(A));
        if (sizeof(T) == sizeof(A)) {
            cpu_gather_tile(panel, PW * (int64_t)sizeof(A), w, j->sums * (int64_t)sizeof(T),
                            j->sums, n, sizeof(T));
            continue;
        }
        for (int64_t s = 0; s < j->sums; s++)
            for (int64_t c = 0; c < n; c++) panel[s * PW + c] = LOAD(w[c * j->sums + s]);
    }
    return TN_OK;
}

static tn_status forward(const tn_call *call, const void *args) {
    const tn__conv_args *a = args;
    geometry g;
    correlate_job j = {.bias = a->bias ? a->bias->data : NULL, .y = a->out->data};
    int64_t high[3];
    const void *wp;
    phase ph;
    if (a->out->numel == 0) return TN_OK;
    geometry_init(&g, a->input->ndim, a->input->shape, a->weight->shape, a->out->shape, a->stride,
                  a->padding, a->dilation, a->groups);
    forward_room(&g, high);
    const void *bias = NULL, *plain;
    if (depth_fits(&g)) {
        tn_status st = cpu_packed(call, a->input, &plain);
        if (!st) st = cpu_packed(call, a->weight, &wp);
        if (!st && a->bias) st = cpu_packed(call, a->bias, &bias);
        return st ? st : depth_forward(call, &g, high, plain, wp, bias, a->out->data);
    }
#if TMPL_DTYPE == TMPL_BF16
    if (cpu_conv_bf16_fits(&g)) return cpu_conv_bf16(call, a, &g, high);
#endif
    if (point_fits(&g)) {
        tn_status st = cpu_packed(call, a->input, &plain);
        if (!st) st = cpu_packed(call, a->weight, &wp);
        if (!st && a->bias) st = cpu_packed(call, a->bias, &bias);
        return st ? st : point_forward(call, &g, plain, wp, bias, a->out->data);
    }
    j.groups = g.groups;
    j.from = g.ci;
    j.to = g.co;
    j.blocks = (g.co + PW - 1) / PW;
    j.out_plane = g.out_size;
    tn_status st = widen(call, a->input, g.in, g.pad, high, &j.im);
    if (!st) st = cpu_packed(call, a->weight, &wp);
    if (!st && a->bias) st = cpu_packed(call, a->bias, &bias);
    if (!st) st = phase_init(call, &ph, g.out_size, g.ci * g.taps, g.groups * j.blocks);
    if (st) return st;
    j.bias = bias;
    for (int64_t i = 0; i < g.out_size; i++) {
        int64_t x = i % g.out[2], y = i / g.out[2] % g.out[1], z = i / g.out[2] / g.out[1];
        ph.place[ph.pixels] = i;
        ph.row[ph.pixels++] = place(&j.im, z * g.stride[0], y * g.stride[1], x * g.stride[2]);
    }
    phase_close(&ph);
    ph.sums = g.ci * g.taps;
    for (int64_t s = 0; s < ph.sums; s++) {
        int64_t t = s % g.taps, x = t % g.k[2], y = t / g.k[2] % g.k[1], z = t / g.k[2] / g.k[1];
        ph.red[s] = s / g.taps * j.im.plane +
                    place(&j.im, z * g.dilation[0], y * g.dilation[1], x * g.dilation[2]);
    }
    panel_job panels = {wp, (A *)(uintptr_t)ph.panels, ph.sums, j.blocks, g.co};
    st = cpu_parallel(g.groups * j.blocks, 1 + 16384 / (1 + ph.sums * PW), forward_panels, &panels);
    if (st) return st;
    return correlate(&ph, g.n, &j);
}

/* ---- The gradient of the input, one phase at a time -------------------------------------------*/

/* One pass per residue: its pixels' vectors, and its taps in every gradient plane of the group. */
static tn_status depth_residue(const tn_call *call, const geometry *g, const depth_plane *plane,
                               const int64_t *residue, depth_pass *p) {
    static const int64_t one[3] = {1, 1, 1};
    int64_t *tap[3], *offset[3], n[3], count[3], kmax = g->k[0] + g->k[1] + g->k[2];
    void *room;
    tn_status st = room_scratch(call, kmax, 2 * sizeof(int64_t), &room);
    if (st) return st;
    int64_t *next = room, taps = 1;
    for (int d = 0; d < 3; d++, taps *= n[d - 1]) {
        tap[d] = next;
        offset[d] = next + g->k[d];
        next += 2 * g->k[d];
        n[d] = residue_taps(g, d, residue[d], tap[d], offset[d]);
        count[d] = (g->in[d] - residue[d] - 1) / g->stride[d] + 1;
    }
    st = depth_pass_init(call, p, count, g->co * taps);
    if (st) return st;
    depth_list(p, plane, count, one, 0, g->stride, residue, g->in);
    for (int64_t s = 0; s < g->co * taps; s++) {
        int64_t t = s % taps, x = t % n[2], y = t / n[2] % n[1], z = t / n[2] / n[1];
        p->red[s] = s / taps * plane->elements + depth_offset(plane, offset[0][z] + plane->low[0],
                                                              offset[1][y] + plane->low[1],
                                                              offset[2][x] + plane->low[2]);
        p->tap[s] = s / taps * g->taps + (tap[0][z] * g->k[1] + tap[1][y]) * g->k[2] + tap[2][x];
    }
    p->sums = g->co * taps;
    return TN_OK;
}

static tn_status depth_backward_input(const tn_call *call, const geometry *g, const int64_t *low,
                                      const int64_t *high, const void *grad, const void *w,
                                      const void *bias, T *y) {
    depth_job j = {.g = *g, .x = grad, .w = w, .bias = bias, .y = y, .from = g->co, .to = 1};
    int64_t each[3], passes = residues(g, each);
    void *room;
    tn_status st = room_scratch(call, passes, sizeof(depth_pass), &room);
    depth_pass *pass = room;
    depth_plane_init(&j.plane, g->out, low, high, 1);
    for (int64_t r = 0; r < passes && !st; r++) {
        int64_t residue[3];
        residue_at(each, r, residue);
        st = depth_residue(call, g, &j.plane, residue, pass + r);
    }
    if (st) return st;
    j.pass = pass;
    j.passes = passes;
    j.most_sums = g->co * g->taps;
    j.in_size = g->out_size;
    j.out_size = g->in_size;
    return depth_run(&j);
}

static tn_status backward_phase(const tn_call *call, const geometry *g, correlate_job *j,
                                const int64_t *residue, const int64_t *low, const T *w) {
    int64_t *tap[3], *offset[3], n[3], count[3];
    void *room;
    phase ph;
    int64_t kmax = g->k[0] + g->k[1] + g->k[2];
    tn_status st = room_scratch(call, kmax, 2 * sizeof(int64_t), &room);
    if (st) return st;
    int64_t *next = room, pixels = 1, sums = g->co;
    for (int d = 0; d < 3; d++) {
        tap[d] = next;
        offset[d] = next + g->k[d];
        next += 2 * g->k[d];
        n[d] = residue_taps(g, d, residue[d], tap[d], offset[d]);
        count[d] = (g->in[d] - residue[d] - 1) / g->stride[d] + 1;
        pixels *= count[d];
        sums *= n[d];
    }
    st = phase_init(call, &ph, pixels, sums, g->groups * j->blocks);
    if (st) return st;
    for (int64_t i = 0; i < pixels; i++) {
        int64_t x = i % count[2], y = i / count[2] % count[1], z = i / count[2] / count[1];
        ph.row[i] = place(&j->im, z + low[0], y + low[1], x + low[2]);
        ph.place[i] = ((z * g->stride[0] + residue[0]) * g->in[1] + y * g->stride[1] + residue[1]) *
                          g->in[2] +
                      x * g->stride[2] + residue[2];
    }
    ph.pixels = pixels;
    phase_close(&ph);
    A *panels = (A *)(uintptr_t)ph.panels;
    for (int64_t o = 0; o < g->co; o++) {
        for (int64_t t = 0; t < n[0] * n[1] * n[2]; t++) {
            int64_t x = t % n[2], y = t / n[2] % n[1], z = t / n[2] / n[1], s = ph.sums++;
            int64_t from = (tap[0][z] * g->k[1] + tap[1][y]) * g->k[2] + tap[2][x];
            ph.red[s] = o * j->im.plane + place(&j->im, offset[0][z], offset[1][y], offset[2][x]);
            for (int64_t gb = 0; gb < g->groups * j->blocks; gb++) {
                A *panel = panels + (gb * sums + s) * PW;
                int64_t group = gb / j->blocks, c0 = gb % j->blocks * PW;
                const T *row = w + ((group * g->co + o) * g->ci + c0) * g->taps + from;
                for (int64_t c = 0; c < PW; c++) {
                    panel[c] = c0 + c < g->ci ? LOAD(row[c * g->taps]) : 0;
                }
            }
        }
    }
    return correlate(&ph, g->n, j);
}

static tn_status backward_input(const tn_call *call, const void *args) {
    const tn__conv_backward_input_args *a = args;
    geometry g;
    correlate_job j = {.y = a->out->data};
    int64_t low[3], high[3];
    const void *w, *bias = NULL;
    if (a->out->numel == 0) return TN_OK;
    geometry_init(&g, a->out->ndim, a->out->shape, a->weight->shape, a->grad->shape, a->stride,
                  a->padding, a->dilation, a->groups);
    backward_room(&g, low, high);
    if (depth_fits(&g)) {
        const void *grad;
        tn_status st = cpu_packed(call, a->grad, &grad);
        if (!st) st = cpu_packed(call, a->weight, &w);
        if (!st && a->bias) st = cpu_packed(call, a->bias, &bias);
        return st ? st : depth_backward_input(call, &g, low, high, grad, w, bias, a->out->data);
    }
#if TMPL_DTYPE == TMPL_BF16
    if (cpu_conv_bf16_fits(&g)) return cpu_conv_bf16_backward_input(call, a, &g, low, high);
#endif
    j.groups = g.groups;
    j.from = g.co;
    j.to = g.ci;
    j.blocks = (g.ci + PW - 1) / PW;
    j.out_plane = g.in_size;
    tn_status st = widen(call, a->grad, g.out, low, high, &j.im);
    if (!st) st = cpu_packed(call, a->weight, &w);
    if (!st && a->bias) st = cpu_packed(call, a->bias, &bias);
    j.bias = bias;
    int64_t each[3], phases = residues(&g, each);
    for (int64_t r = 0; r < phases && !st; r++) {
        int64_t residue[3];
        residue_at(each, r, residue);
        st = backward_phase(call, &g, &j, residue, low, w);
    }
    return st;
}

/* ---- The gradient of the weight: taps against pixels ------------------------------------------*/

typedef struct weight_job {
    geometry g;
    images im;
    int64_t blocks;     /* column panels of a group */
    int64_t chunk;      /* images that are summed before partial sums are added */
    int64_t sums, rows; /* taps of a group's channels, and that rounded up to R */
    const int64_t *row; /* by tap */
    const int64_t *red; /* by output pixel */
    const T *grad;
    A *panels; /* (n, groups, blocks, out_size, PW) */
    A *part;   /* (chunks, groups, blocks, rows, PW) */
    T *y;
    int64_t chunks;
} weight_job;

/* Packs the gradient of (image, group, block): columns become neighbours. */
static tn_status pack_grad(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    int64_t p = j->g.out_size;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i % j->blocks, ng = i / j->blocks, c0 = block * PW;
        int64_t columns = j->g.co - c0 < PW ? j->g.co - c0 : PW;
        const T *from = j->grad + (ng * j->g.co + c0) * p;
        A *to = j->panels + i * p * PW;
        if (columns < PW) memset(to, 0, (size_t)(p * PW) * sizeof(A));
        if (sizeof(T) == sizeof(A)) {
            cpu_gather_tile(to, PW * (int64_t)sizeof(A), from, p * (int64_t)sizeof(T), p, columns,
                            (int32_t)sizeof(T));
            continue;
        }
        for (int64_t s = 0; s < p; s += 16) {
            int64_t stop = s + 16 < p ? s + 16 : p;
            for (int64_t c = 0; c < columns; c++) {
                for (int64_t q = s; q < stop; q++) to[q * PW + c] = LOAD(from[c * p + q]);
            }
        }
    }
    return TN_OK;
}

static tn_status weight_items(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    const geometry *g = &j->g;
    int64_t panels = g->groups * j->blocks;
    tn_status st = TN_OK;
    for (int64_t item = begin; item < end && st == TN_OK; item++) {
        int64_t chunk = item / panels, gb = item % panels, group = gb / j->blocks;
        int64_t last = (chunk + 1) * j->chunk < g->n ? (chunk + 1) * j->chunk : g->n;
        A *part = j->part + item * j->rows * PW;
        product_fn *product = product_of(g->co - gb % j->blocks * PW);
        for (int64_t image = chunk * j->chunk; image < last && st == TN_OK; image++) {
            const A *x = j->im.data + image * j->im.image + group * g->ci * j->im.plane;
            const A *panel = j->panels + (image * panels + gb) * g->out_size * PW;
            cpu_stretch s = {.n = j->rows / R, .cost = room_mul(g->out_size, R)};
            while (cpu_next_stretch(&s)) {
                for (int64_t r = s.begin * R; r < s.end * R; r += R)
                    product(x, j->row + r, j->red, g->out_size, panel, part + r * PW,
                            image > chunk * j->chunk);
            }
            st = s.st;
        }
    }
    return st;
}

/* Adds the chunks' sums in order. */
static tn_status add_parts(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    int64_t panels = j->g.groups * j->blocks;
    for (int64_t o = begin; o < end; o++) {
        int64_t group = o / j->g.co, c = o % j->g.co, gb = group * j->blocks + c / PW;
        for (int64_t s = 0; s < j->sums; s++) {
            A sum = 0;
            for (int64_t k = 0; k < j->chunks; k++) {
                sum += j->part[((k * panels + gb) * j->rows + s) * PW + c % PW];
            }
            j->y[o * j->sums + s] = STORE(sum);
        }
    }
    return TN_OK;
}

static tn_status backward_weight(const tn_call *call, const void *args) {
    const tn__conv_backward_weight_args *a = args;
    weight_job j = {.y = a->out->data};
    geometry *g = &j.g;
    int64_t high[3], *lists;
    const void *grad;
    void *p;
    if (a->out->numel == 0) return TN_OK;
    geometry_init(g, a->input->ndim, a->input->shape, a->out->shape, a->grad->shape, a->stride,
                  a->padding, a->dilation, a->groups);
    forward_room(g, high);
    if (depth_fits(g)) {
        const void *plain;
        tn_status st = cpu_packed(call, a->input, &plain);
        if (!st) st = cpu_packed(call, a->grad, &grad);
        return st ? st : depth_backward_weight(call, g, high, plain, grad, j.y);
    }
#if TMPL_DTYPE == TMPL_BF16
    if (cpu_conv_bf16_fits(g)) return cpu_conv_bf16_backward_weight(call, a, g, high);
#endif
    j.blocks = (g->co + PW - 1) / PW;
    j.sums = g->ci * g->taps;
    j.rows = (j.sums + R - 1) / R * R;
    /* Partial sums are worth it only where a chunk has many pixels. */
    int64_t wanted = 1 + g->n * g->out_size / 1024;
    if (wanted > 16) wanted = 16;
    j.chunk = (g->n + wanted - 1) / wanted;
    j.chunks = g->n > 0 ? (g->n + j.chunk - 1) / j.chunk : 0;
    int64_t panels = g->groups * j.blocks;
    tn_status st = widen(call, a->input, g->in, g->pad, high, &j.im);
    if (!st) st = cpu_packed(call, a->grad, &grad);
    if (!st) {
        st = room_scratch(call, room_add(j.rows, g->out_size), sizeof(int64_t), &p);
        j.row = lists = p;
    }
    if (!st) {
        int64_t n = room_mul4(g->n, panels, g->out_size, PW);
        st = room_scratch(call, n, sizeof(A), &p);
        j.panels = p;
    }
    if (!st) {
        int64_t n = room_mul4(j.chunks, panels, j.rows, PW);
        st = room_scratch(call, n, sizeof(A), &p);
        j.part = p;
    }
    if (st) return st;
    for (int64_t r = 0; r < j.rows; r++) {
        int64_t s = r < j.sums ? r : j.sums - 1, t = s % g->taps;
        int64_t x = t % g->k[2], y = t / g->k[2] % g->k[1], z = t / g->k[2] / g->k[1];
        lists[r] = s / g->taps * j.im.plane +
                   place(&j.im, z * g->dilation[0], y * g->dilation[1], x * g->dilation[2]);
    }
    int64_t *red = lists + j.rows;
    for (int64_t i = 0; i < g->out_size; i++) {
        int64_t x = i % g->out[2], y = i / g->out[2] % g->out[1], z = i / g->out[2] / g->out[1];
        red[i] = place(&j.im, z * g->stride[0], y * g->stride[1], x * g->stride[2]);
    }
    j.red = red;
    j.grad = grad;
    st = cpu_parallel(g->n * panels, 1 + 16384 / (g->out_size * PW + 1), pack_grad, &j);
    if (!st) st = cpu_parallel(j.chunks * panels, 1, weight_items, &j);
    if (!st) {
        int64_t work = j.sums * j.chunks * 8;
        st = cpu_parallel(g->groups * g->co, 1 + 16384 / (work + 1), add_parts, &j);
    }
    return st;
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_conv, forward),
    ROW(_conv_backward_input, backward_input),
    ROW(_conv_backward_weight, backward_weight),
};
const cpu_rows TN_(cpu_conv_rows) = CPU_ROWS_OF(rows);
