/* conv_bf16.c: convolutions of bfloat16 by the processor's own products, and their gradients.
 *
 * Note [Products of convolutions]
 * As in conv_tmpl.c the place that a pixel and a tap meet is the sum of two offsets. Products take pairs of
 * elements that follow each other along the sum. Forward and for the gradient of the input the sum
 * runs over channels and taps: channels 2c and 2c + 1 of a padded image stand together in 32 bits,
 * so that a panel's row (a pair of channels at a tap) is a run of such an image, and weights are the
 * strips. For the gradient of the weight the sum runs over pixels: a strip's line (a channel and tap) is
 * runs of the padded image, and panels are the gradient. */
#include <string.h>

#include "conv_bf16.h"
#include "copy.h"
#include "cpu_priv.h"
#include "gemm_bf16.h"
#include "pack.h"
#include "row.h"

enum { LINE = 16 };           /* floats of a cache line */
enum { EACH = 4, FAIR = 16 }; /* work items of a thread; partial sums and blocks of weights */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t whole(int64_t n, int64_t of) { return parts_of(n, of) * of; }

bool cpu_conv_bf16_fits(const geometry *g) {
    return cpu_bf16_unit() && g->co >= 4 && g->ci > 0 && room_mul(g->ci, g->taps) >= 8;
}

/* ---- Padded images -----------------------------------------------------------------------------*/

typedef struct padded {
    int64_t size[3], low[3], wide[3]; /* of a plane, zeros before it, with zeros */
    int64_t plane;                    /* elements of `wide` */
    int64_t channels, pairs;          /* of a group */
    const uint16_t *from;
    uint16_t *lone;   /* (n * groups * channels, plane), or */
    uint32_t *paired; /* (n * groups * pairs, plane) */
} padded;

static int64_t padded_place(const padded *p, int64_t z, int64_t y, int64_t x) {
    return (z * p->wide[1] + y) * p->wide[2] + x;
}

static void padded_init(padded *p, const int64_t *size, const int64_t *low, const int64_t *high,
                        int64_t channels) {
    for (int d = 0; d < 3; d++) {
        p->size[d] = size[d];
        p->low[d] = low[d];
        p->wide[d] = room_add(room_add(size[d], low[d]), high[d]);
    }
    p->plane = room_mul3(p->wide[0], p->wide[1], p->wide[2]);
    p->channels = channels;
    p->pairs = (channels + 1) / 2;
}

static tn_status pad_pairs(void *arg, int64_t begin, int64_t end) {
    const padded *p = arg;
    int64_t w = p->size[2], size = p->size[0] * p->size[1] * w;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % p->pairs * 2;
        const uint16_t *x = p->from + (i / p->pairs * p->channels + c) * size;
        uint32_t *to = p->paired + i * p->plane;
        if (p->plane > size) memset(to, 0, (size_t)p->plane * sizeof *to);
        if (p->plane == size) {
            cpu_bf16_pairs(x, c + 1 < p->channels ? x + size : NULL, size, to);
            continue;
        }
        for (int64_t z = 0; z < p->size[0]; z++)
            for (int64_t y = 0; y < p->size[1]; y++, x += w)
                cpu_bf16_pairs(x, c + 1 < p->channels ? x + size : NULL, w,
                               to + padded_place(p, z + p->low[0], y + p->low[1], p->low[2]));
    }
    return TN_OK;
}

static tn_status pad_lone(void *arg, int64_t begin, int64_t end) {
    const padded *p = arg;
    int64_t w = p->size[2], size = p->size[0] * p->size[1] * w;
    for (int64_t i = begin; i < end; i++) {
        const uint16_t *x = p->from + i * size;
        uint16_t *to = p->lone + i * p->plane;
        memset(to, 0, (size_t)p->plane * sizeof *to);
        for (int64_t z = 0; z < p->size[0]; z++)
            for (int64_t y = 0; y < p->size[1]; y++, x += w)
                memcpy(to + padded_place(p, z + p->low[0], y + p->low[1], p->low[2]), x,
                       (size_t)w * sizeof *x);
    }
    return TN_OK;
}

/* `images`: n * groups. */
static tn_status padded_pairs(const tn_call *call, const tn_view *v, int64_t images, padded *p) {
    const void *from;
    void *to;
    int64_t planes = room_mul(images, p->pairs);
    tn_status st = cpu_packed(call, v, &from);
    if (!st) st = room_scratch(call, room_mul(planes, p->plane), sizeof *p->paired, &to);
    if (st) return st;
    p->from = from;
    p->paired = to;
    return cpu_parallel(planes, 1 + 16384 / (p->plane + 1), pad_pairs, p);
}

static tn_status padded_lone(const tn_call *call, const tn_view *v, int64_t images, padded *p) {
    const void *from;
    void *to;
    int64_t planes = room_mul(images, p->channels);
    tn_status st = cpu_packed(call, v, &from);
    if (!st) st = room_scratch(call, room_mul(planes, p->plane), sizeof *p->lone, &to);
    if (st) return st;
    p->from = from;
    p->lone = to;
    return cpu_parallel(planes, 1 + 32768 / (p->plane + 1), pad_lone, p);
}

/* Where pixels of all images are: pixel p of an image that is `image` elements after the one before. */
typedef struct places {
    int64_t *row; /* by pixel of an image */
    int64_t pixels, image;
    int64_t step; /* between neighbours in a row */
} places;

/* Pixels [first, first + n) as runs that no multiple of `lanes` of them divides. */
static int64_t runs_of(const places *at, int64_t first, int64_t n, int64_t lanes, bf16_run *to) {
    int64_t runs = 0, i = first / at->pixels, p = first % at->pixels;
    bf16_run *run = NULL;
    for (int64_t k = 0; k < n; k++, p++) {
        if (p == at->pixels) {
            i++;
            p = 0;
        }
        int64_t offset = i * at->image + at->row[p];
        if (run && k % lanes && offset == run->from + run->n * run->step) {
            run->n++;
            continue;
        }
        run = to + runs++;
        *run = (bf16_run){offset, k, 1, at->step};
    }
    return runs;
}

/* ---- Pixels against channels and taps ----------------------------------------------------------*/

/* Lines of the result: (kind of pixels, channel). There is one kind but for gradients of strides. */
typedef struct sums_job {
    const bf16_unit *unit;
    padded im;
    int64_t groups, to, kinds, lines; /* to: channels of a group's result; lines: of all kinds */
    int64_t taps, pairs, deep;        /* in a sum: taps, pairs, and those with zeros after them */
    int64_t pixels, all;              /* of a kind: of an image, of all images */
    int64_t strips, panels;           /* of a group's weights, of all pixels */
    int64_t row_blocks, col_blocks, width; /* width: panels of a block */
    places at;
    int64_t *red;    /* by pair: offset into the image */
    int64_t *place;  /* by kind and pixel: in the result, -1: nowhere; NULL: as they are numbered */
    int64_t *tap;    /* by kind and tap: in the weights, -1: none; NULL: as they are numbered */
    uint32_t *strip; /* (groups, strips, deep, rows) */
    const uint16_t *w, *bias;
    int64_t w_group, w_channel, w_to; /* between elements of the weights */
    uint16_t *y;
    int64_t out_plane;
} sums_job;

/* A line's weights at some of the taps in pairs of channels. */
static void chosen_taps(const sums_job *j, const uint16_t *w, const int64_t *tap, uint32_t *to) {
    for (int64_t c = 0; c < j->im.channels; c += 2, to += j->taps) {
        const uint16_t *x = w + c * j->w_channel;
        const uint16_t *y = c + 1 < j->im.channels ? x + j->w_channel : NULL;
        for (int64_t t = 0; t < j->taps; t++) {
            uint32_t high = y && tap[t] >= 0 ? y[tap[t]] : 0;
            to[t] = tap[t] >= 0 ? x[tap[t]] | high << 16 : 0;
        }
    }
}

static tn_status weight_strips(void *arg, int64_t begin, int64_t end) {
    const sums_job *j = arg;
    const bf16_unit *u = j->unit;
    uint64_t bytes;
    void *room;
    int64_t lines = room_mul(u->rows, j->pairs);
    tn_status st = cpu_room(lines, sizeof(uint32_t), &bytes, &room);
    if (st) return st;
    uint32_t *line = room;
    for (int64_t s = begin; s < end; s++) {
        int64_t group = s / j->strips, i = s % j->strips * u->rows,
                n = smaller(u->rows, j->lines - i);
        const uint16_t *w = j->w + group * j->w_group;
        if (j->tap)
            for (int64_t l = 0; l < n; l++)
                chosen_taps(j, w + (i + l) % j->to * j->w_to, j->tap + (i + l) / j->to * j->taps,
                            line + l * j->pairs);
        else
            cpu_bf16_pair_lines(w + i * j->w_to, j->w_to, n, j->w_channel, j->im.channels, j->taps,
                                line, j->pairs);
        cpu_bf16_strip(u, room, 2 * j->pairs, 2 * j->pairs, n, j->strip + s * j->deep * u->rows);
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

/* Memory of a work item. */
typedef struct sums_room {
    float *sum;
    uint32_t *panels;
    bf16_run *runs; /* (panels of a block, columns) */
    int64_t *count;
    uint16_t *line;
} sums_room;

static int64_t sums_ld(const sums_job *j) { return j->width * j->unit->cols + LINE; }

/* Pairs [first, first + pairs) of a block's panels; those after the sum's end are 0. */
static void fill_panels(const sums_job *j, const uint32_t *x, int64_t p0, int64_t p1, int64_t first,
                        int64_t pairs, const sums_room *room) {
    const bf16_unit *u = j->unit;
    int64_t real = smaller(pairs, j->pairs - first);
    for (int64_t p = p0; p < p1; p++) {
        uint32_t *panel = room->panels + (p - p0) * pairs * u->cols;
        memset(panel + real * u->cols, 0, (size_t)((pairs - real) * u->cols) * sizeof *panel);
        cpu_bf16_runs_of_pairs(x, room->runs + (p - p0) * u->cols, room->count[p - p0],
                               j->red + first, real, u->cols, panel);
    }
}

/* Rounds sums of a line, pixels [c, c + n), and puts them where they belong. */
static void finish_line(const sums_job *j, int64_t group, int64_t i, int64_t c, int64_t n,
                        float *sum, uint16_t *line) {
    int64_t channel = group * j->to + i % j->to, channels = j->groups * j->to;
    if (j->bias) {
        float bias;
        cpu_row_convert(TN_BF16, (const char *)(j->bias + channel), 1, TN_F32, (char *)&bias, 1, 1);
        for (int64_t k = 0; k < n; k++) sum[k] += bias;
    }
    for (int64_t here; n > 0; c += here, n -= here, sum += here) {
        int64_t image = c / j->pixels, p = c % j->pixels;
        uint16_t *y = j->y + (image * channels + channel) * j->out_plane;
        here = smaller(n, j->pixels - p);
        cpu_row_convert(TN_F32, (const char *)sum, 1, TN_BF16, (char *)(j->place ? line : y + p), 1,
                        here);
        if (!j->place) continue;
        const int64_t *place = j->place + i / j->to * j->pixels + p;
        for (int64_t k = 0; k < here; k++)
            if (place[k] >= 0) y[place[k]] = line[k];
    }
}

static void sums_block(const sums_job *j, int64_t group, int64_t s0, int64_t p0,
                       const sums_room *room) {
    const bf16_unit *u = j->unit;
    int64_t ld = sums_ld(j);
    int64_t s1 = smaller(s0 + u->block_strips, j->strips);
    int64_t p1 = smaller(p0 + j->width, j->panels);
    const uint32_t *x = j->im.paired + group * j->im.pairs * j->im.plane;
    const uint32_t *strips = j->strip + group * j->strips * j->deep * u->rows;
    bf16_add add = {.ld = ld};
    for (int64_t p = p0; p < p1; p++)
        room->count[p - p0] = runs_of(&j->at, p * u->cols, smaller(u->cols, j->all - p * u->cols),
                                      BF16_PAIR_LANES, room->runs + (p - p0) * u->cols);
    if (j->deep == 0)
        memset(room->sum, 0, (size_t)(u->block_strips * u->rows * ld) * sizeof(float));
    for (int64_t k = 0; k < j->deep; k += u->deep) {
        add.pairs = smaller(u->deep, j->deep - k);
        add.first = k == 0;
        fill_panels(j, x, p0, p1, k, add.pairs, room);
        for (int64_t p = p0; p < p1; p++) {
            add.b = room->panels + (p - p0) * add.pairs * u->cols;
            add.cols = j->all - p * u->cols;
            for (int64_t s = s0; s < s1; s++) {
                add.a = strips + (s * j->deep + k) * u->rows;
                add.rows = j->lines - s * u->rows;
                add.sum = room->sum + (s - s0) * u->rows * ld + (p - p0) * u->cols;
                u->add(&add);
            }
        }
    }
    int64_t c = p0 * u->cols, n = smaller(j->width * u->cols, j->all - c);
    for (int64_t i = s0 * u->rows; i < s1 * u->rows && i < j->lines; i++)
        finish_line(j, group, i, c, n, room->sum + (i - s0 * u->rows) * ld, room->line);
}

static tn_status sums_items(void *arg, int64_t begin, int64_t end) {
    const sums_job *j = arg;
    const bf16_unit *u = j->unit;
    int64_t blocks = j->row_blocks * j->col_blocks, cols = room_mul(j->width, u->cols);
    int64_t sums = room_mul3(u->block_strips, u->rows, sums_ld(j));
    int64_t panels = room_mul(cols, u->deep);
    uint64_t bytes, run_bytes;
    void *room, *runs;
    tn_status st = cpu_room(room_add(room_add(sums, panels), cols), sizeof(float), &bytes, &room);
    if (st) return st;
    st = cpu_room(cols, sizeof(bf16_run) + sizeof(int64_t), &run_bytes, &runs);
    if (st) {
        cpu_free(NULL, 0, room, bytes);
        return st;
    }
    sums_room at = {.sum = room, .runs = runs};
    at.panels = (uint32_t *)room + sums;
    at.line = (uint16_t *)(at.panels + panels);
    at.count = (int64_t *)(at.runs + cols);
    if (u->begin) u->begin();
    for (int64_t t = begin; t < end && !st; t++) {
        int64_t group = t / blocks, block = t % blocks;
        sums_block(j, group, block % j->row_blocks * u->block_strips,
                   block / j->row_blocks * j->width, &at);
        st = cpu_poll();
    }
    if (u->end) u->end();
    cpu_free(NULL, 0, runs, run_bytes);
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* Memory of the lists, which the caller fills, and of strips. */
static tn_status sums_init(const tn_call *call, sums_job *j, int64_t kinds, int64_t pixels,
                           int64_t taps) {
    const bf16_unit *u = j->unit = cpu_bf16_unit();
    void *p;
    j->kinds = kinds;
    j->lines = room_mul(kinds, j->to);
    j->pixels = pixels;
    j->taps = taps;
    j->pairs = room_mul(j->im.pairs, taps);
    j->deep = whole(j->pairs, u->step);
    j->strips = parts_of(j->lines, u->rows);
    tn_status st = room_scratch(call, room_add(pixels, j->pairs), sizeof *j->red, &p);
    if (st) return st;
    j->red = p;
    j->at = (places){j->red + j->pairs, pixels, room_mul3(j->groups, j->im.pairs, j->im.plane), 1};
    st =
        room_scratch(call, room_mul4(j->groups, j->strips, j->deep, u->rows), sizeof *j->strip, &p);
    j->strip = p;
    return st;
}

static tn_status sums_run(sums_job *j, int64_t n) {
    const bf16_unit *u = j->unit;
    j->all = room_mul(n, j->pixels);
    j->panels = parts_of(j->all, u->cols);
    j->row_blocks = parts_of(j->strips, u->block_strips);
    /* No sum depends on the blocks, so that they may depend on the threads. */
    int64_t threads = cpu_threads_get(), wanted = threads > 1 ? EACH * threads : 1;
    for (j->width = u->block_panels;; j->width = (j->width + 1) / 2) {
        j->col_blocks = parts_of(j->panels, j->width);
        if (j->width == 1 || room_mul3(j->groups, j->row_blocks, j->col_blocks) >= wanted) break;
    }
    int64_t line = 1 + j->pairs * u->rows;
    tn_status st = cpu_parallel(room_mul(j->groups, j->strips), 1 + 16384 / line, weight_strips, j);
    if (st) return st;
    int64_t item = room_mul(line, smaller(u->block_strips, j->strips) * j->width);
    return cpu_parallel(room_mul3(j->groups, j->row_blocks, j->col_blocks), 1 + 4096 / item,
                        sums_items, j);
}

/* The first pair of the list of channels; others are planes further. */
static void repeat_taps(sums_job *j) {
    for (int64_t s = j->taps; s < j->pairs; s++) j->red[s] = j->red[s - j->taps] + j->im.plane;
}

static tn_status weight_and_bias(const tn_call *call, const tn_view *weight, const tn_view *bias,
                                 sums_job *j) {
    const void *p;
    tn_status st = cpu_packed(call, weight, &p);
    j->w = p;
    if (st || !bias) return st;
    st = cpu_packed(call, bias, &p);
    j->bias = p;
    return st;
}

tn_status cpu_conv_bf16(const tn_call *call, const tn__conv_args *a, const geometry *g,
                        const int64_t *high) {
    sums_job j = {.groups = g->groups, .to = g->co, .y = a->out->data, .out_plane = g->out_size};
    j.w_channel = g->taps;
    j.w_to = g->ci * g->taps;
    j.w_group = g->co * j.w_to;
    padded_init(&j.im, g->in, g->pad, high, g->ci);
    tn_status st = padded_pairs(call, a->input, room_mul(g->n, g->groups), &j.im);
    if (!st) st = weight_and_bias(call, a->weight, a->bias, &j);
    if (!st) st = sums_init(call, &j, 1, g->out_size, g->taps);
    if (st) return st;
    for (int64_t i = 0; i < g->out_size; i++) {
        int64_t x = i % g->out[2], y = i / g->out[2] % g->out[1], z = i / g->out[2] / g->out[1];
        j.at.row[i] = padded_place(&j.im, z * g->stride[0], y * g->stride[1], x * g->stride[2]);
    }
    j.at.step = g->stride[2];
    for (int64_t t = 0; t < g->taps; t++) {
        int64_t x = t % g->k[2], y = t / g->k[2] % g->k[1], z = t / g->k[2] / g->k[1];
        j.red[t] = padded_place(&j.im, z * g->dilation[0], y * g->dilation[1], x * g->dilation[2]);
    }
    repeat_taps(&j);
    return sums_run(&j, g->n);
}

/* Residues [first, last) of a dimension, all of whose offsets in the gradient are met by all of them: where a
 * residue has no tap for an offset, its weight is 0. */
typedef struct span {
    int64_t first, last, pixels;
    int64_t *offset, offsets;
} span;

/* The tap of a dimension that pixels of residue r meet at an offset, -1: none. */
static int64_t tap_at(const geometry *g, int d, int64_t r, int64_t offset) {
    int64_t at = r + g->pad[d] - offset * g->stride[d], k = at / g->dilation[d];
    return at >= 0 && at % g->dilation[d] == 0 && k < g->k[d] ? k : -1;
}

static tn_status span_init(const tn_call *call, const geometry *g, int d, int64_t first,
                           int64_t last, span *s) {
    void *room;
    int64_t most = room_mul(last - first, g->k[d]);
    tn_status st = room_scratch(call, room_add(most, g->k[d]), 2 * sizeof(int64_t), &room);
    if (st) return st;
    *s = (span){.first = first, .last = last, .offset = room};
    s->pixels = (g->in[d] - first - 1) / g->stride[d] + 1;
    for (int64_t r = first; r < last; r++) {
        int64_t *tap = s->offset + most, *offset = tap + g->k[d];
        int64_t n = residue_taps(g, d, r, tap, offset);
        for (int64_t i = 0; i < n; i++) {
            bool known = false;
            for (int64_t k = 0; k < s->offsets && !known; k++) known = s->offset[k] == offset[i];
            if (!known) s->offset[s->offsets++] = offset[i];
        }
    }
    return TN_OK;
}

/* The kinds of pixels that the spans' residues make. */
static void span_lists(const span *s, const int64_t *low, sums_job *j) {
    for (int64_t i = 0; i < j->pixels; i++) {
        int64_t x = i % s[2].pixels, zy = i / s[2].pixels;
        int64_t y = zy % s[1].pixels, z = zy / s[1].pixels;
        j->at.row[i] = padded_place(&j->im, z + low[0], y + low[1], x + low[2]);
    }
    for (int64_t t = 0; t < j->taps; t++) {
        int64_t x = t % s[2].offsets, zy = t / s[2].offsets;
        int64_t y = zy % s[1].offsets, z = zy / s[1].offsets;
        j->red[t] = padded_place(&j->im, s[0].offset[z], s[1].offset[y], s[2].offset[x]);
    }
    repeat_taps(j);
}

static void span_kind(const geometry *g, const span *s, const int64_t *r, int64_t *place,
                      int64_t *tap) {
    for (int64_t z = r[0]; z < r[0] + s[0].pixels * g->stride[0]; z += g->stride[0])
        for (int64_t y = r[1]; y < r[1] + s[1].pixels * g->stride[1]; y += g->stride[1])
            for (int64_t i = 0; i < s[2].pixels; i++) {
                int64_t x = r[2] + i * g->stride[2];
                bool in = z < g->in[0] && y < g->in[1] && x < g->in[2];
                *place++ = in ? (z * g->in[1] + y) * g->in[2] + x : -1;
            }
    for (int64_t z = 0; z < s[0].offsets; z++)
        for (int64_t y = 0; y < s[1].offsets; y++)
            for (int64_t x = 0; x < s[2].offsets; x++) {
                int64_t tz = tap_at(g, 0, r[0], s[0].offset[z]);
                int64_t ty = tap_at(g, 1, r[1], s[1].offset[y]);
                int64_t tx = tap_at(g, 2, r[2], s[2].offset[x]);
                bool is = tz >= 0 && ty >= 0 && tx >= 0;
                *tap++ = is ? (tz * g->k[1] + ty) * g->k[2] + tx : -1;
            }
}

static tn_status span_sums(const tn_call *call, const geometry *g, const int64_t *low,
                           const span *s, sums_job *j) {
    int64_t each[3], kinds = 1, pixels = 1, taps = 1;
    void *room;
    for (int d = 0; d < 3; d++) {
        each[d] = s[d].last - s[d].first;
        kinds = room_mul(kinds, each[d]);
        pixels = room_mul(pixels, s[d].pixels);
        taps = room_mul(taps, s[d].offsets);
    }
    tn_status st = sums_init(call, j, kinds, pixels, taps);
    if (st) return st;
    span_lists(s, low, j);
    j->place = j->tap = NULL;
    if (g->stride[0] != 1 || g->stride[1] != 1 || g->stride[2] != 1) {
        int64_t lists = room_add(room_mul(kinds, pixels), room_mul(kinds, taps));
        st = room_scratch(call, lists, sizeof *j->place, &room);
        if (st) return st;
        j->place = room;
        j->tap = j->place + kinds * pixels;
    }
    for (int64_t i = 0; j->place && i < kinds; i++) {
        int64_t r[3];
        residue_at(each, i, r);
        for (int d = 0; d < 3; d++) r[d] += s[d].first;
        span_kind(g, s, r, j->place + i * pixels, j->tap + i * taps);
    }
    return sums_run(j, g->n);
}

/* All residues in one product: of few channels, which would leave most of a strip empty for each of them. */
static bool together(const geometry *g, const span *all) {
    const bf16_unit *u = cpu_bf16_unit();
    int64_t half = u->turned ? u->rows / 2 : u->rows, kinds = 1, taps = 1;
    for (int d = 0; d < 3; d++) {
        kinds = room_mul(kinds, all[d].last);
        taps = room_mul(taps, all[d].offsets);
    }
    return room_mul(whole(room_mul(kinds, g->ci), half), taps) <=
           room_mul(whole(g->ci, half), g->taps);
}

tn_status cpu_conv_bf16_backward_input(const tn_call *call, const tn__conv_backward_input_args *a,
                                       const geometry *g, const int64_t *low, const int64_t *high) {
    sums_job j = {.groups = g->groups, .to = g->ci, .y = a->out->data, .out_plane = g->in_size};
    int64_t each[3], phases = residues(g, each);
    span s[3];
    j.w_to = g->taps;
    j.w_channel = g->ci * g->taps;
    j.w_group = g->co * j.w_channel;
    padded_init(&j.im, g->out, low, high, g->co);
    tn_status st = padded_pairs(call, a->grad, room_mul(g->n, g->groups), &j.im);
    if (!st) st = weight_and_bias(call, a->weight, a->bias, &j);
    for (int d = 0; d < 3 && !st; d++) st = span_init(call, g, d, 0, each[d], s + d);
    if (st) return st;
    if (together(g, s)) return span_sums(call, g, low, s, &j);
    for (int64_t i = 0; i < phases && !st; i++) {
        int64_t r[3];
        residue_at(each, i, r);
        for (int d = 0; d < 3 && !st; d++) st = span_init(call, g, d, r[d], r[d] + 1, s + d);
        if (!st) st = span_sums(call, g, low, s, &j);
    }
    return st;
}

/* ---- Channels and taps against pixels ----------------------------------------------------------*/

typedef struct weight_job {
    const geometry *g;
    const bf16_unit *unit;
    padded im;
    int64_t lines, pixels;      /* of a group: ci * taps; of an image */
    int64_t pairs;              /* of an image, with zeros after its pixels */
    int64_t strips, panels;     /* of a group */
    int64_t row_blocks, height; /* of so many strips */
    int64_t chunk, chunks; /* images that are summed before partial sums are added; how many such */
    places at;
    int64_t *red; /* by line: offset into the image */
    const uint16_t *grad;
    uint32_t *panel; /* (n, groups, panels, pairs, cols) */
    float *part;     /* (chunks, groups, strips * rows, panels * cols) */
    uint16_t *y;
} weight_job;

static tn_status grad_panels(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    int64_t cols = j->unit->cols, co = j->g->co;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % j->panels * cols;
        cpu_bf16_panel(j->grad + (i / j->panels * co + c) * j->pixels, j->pixels, j->pixels,
                       smaller(cols, co - c), cols, j->pairs, j->panel + i * j->pairs * cols);
    }
    return TN_OK;
}

typedef struct weight_room {
    uint32_t *strip;
    uint16_t *lines; /* where strips hold no line's pairs side by side: (rows, 2 * deep) */
    bf16_run *runs;
    int64_t count;
} weight_room;

/* Pairs [first, first + pairs) of a strip's lines. */
static void fill_strip(const weight_job *j, const uint16_t *x, int64_t s, int64_t pairs,
                       int64_t pixels, const weight_room *room) {
    const bf16_unit *u = j->unit;
    int64_t i = s * u->rows, n = smaller(u->rows, j->lines - i);
    if (pixels < 2 * pairs) memset(room->strip, 0, (size_t)(pairs * u->rows) * sizeof *room->strip);
    if (u->turned) {
        cpu_bf16_runs(x, room->runs, room->count, j->red + i, n, 2 * BF16_TURNED,
                      (uint16_t *)room->strip);
    } else {
        cpu_bf16_runs(x, room->runs, room->count, j->red + i, n, 2 * u->deep, room->lines);
        cpu_bf16_strip(u, room->lines, 2 * u->deep, pixels, n, room->strip);
    }
}

static void weight_block(const weight_job *j, int64_t item, const weight_room *at) {
    const bf16_unit *u = j->unit;
    const geometry *g = j->g;
    weight_room room = *at;
    int64_t s0 = item % j->row_blocks * j->height, cg = item / j->row_blocks;
    int64_t group = cg % g->groups, chunk = cg / g->groups, ld = j->panels * u->cols;
    int64_t s1 = smaller(s0 + j->height, j->strips);
    int64_t last = smaller((chunk + 1) * j->chunk, g->n);
    float *part = j->part + cg * j->strips * u->rows * ld;
    bf16_add add = {.ld = ld};
    for (int64_t k = 0; k < j->pairs; k += u->deep) {
        int64_t pixels = smaller(2 * u->deep, j->pixels - 2 * k);
        add.pairs = smaller(u->deep, j->pairs - k);
        room.count = runs_of(&j->at, 2 * k, pixels, BF16_LANES, room.runs);
        for (int64_t r = 0; u->turned && r < room.count; r++)
            room.runs[r].at =
                room.runs[r].at / BF16_LANES * BF16_LANES * u->rows + room.runs[r].at % BF16_LANES;
        for (int64_t image = chunk * j->chunk; image < last; image++) {
            int64_t ig = image * g->groups + group;
            const uint16_t *x = j->im.lone + ig * g->ci * j->im.plane;
            const uint32_t *panel = j->panel + (ig * j->panels * j->pairs + k) * u->cols;
            add.first = k == 0 && image == chunk * j->chunk;
            for (int64_t s = s0; s < s1; s++) {
                fill_strip(j, x, s, add.pairs, pixels, &room);
                add.a = room.strip;
                add.rows = j->lines - s * u->rows;
                for (int64_t p = 0; p < j->panels; p++) {
                    add.b = panel + p * j->pairs * u->cols;
                    add.cols = g->co - p * u->cols;
                    add.sum = part + s * u->rows * ld + p * u->cols;
                    u->add(&add);
                }
            }
        }
    }
}

static tn_status weight_items(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    const bf16_unit *u = j->unit;
    int64_t strip = room_mul(u->rows, u->deep), runs = room_mul(2, u->deep);
    uint64_t bytes, run_bytes;
    void *room, *list;
    tn_status st = cpu_room(room_mul(2, strip), sizeof(uint32_t), &bytes, &room);
    if (st) return st;
    st = cpu_room(runs, sizeof(bf16_run), &run_bytes, &list);
    if (!st) {
        weight_room at = {.strip = room, .lines = (uint16_t *)room + 2 * strip, .runs = list};
        if (u->begin) u->begin();
        for (int64_t i = begin; i < end && !st; i++) {
            weight_block(j, i, &at);
            st = cpu_poll();
        }
        if (u->end) u->end();
        cpu_free(NULL, 0, list, run_bytes);
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

enum { TURN = 32 }; /* output channels and lines that are turned at a time */

/* Adds the chunks' sums in order and puts them as (output channel, channel, tap). */
static tn_status add_parts(void *arg, int64_t begin, int64_t end) {
    const weight_job *j = arg;
    int64_t ld = j->panels * j->unit->cols, size = j->strips * j->unit->rows * ld;
    int64_t blocks = parts_of(j->lines, TURN), each = parts_of(j->g->co, TURN);
    float sum[TURN * TURN], turned[TURN * TURN];
    for (int64_t i = begin; i < end; i++) {
        int64_t s = i % blocks * TURN, o = i / blocks % each * TURN, group = i / blocks / each;
        int64_t n = smaller(TURN, j->lines - s), m = smaller(TURN, j->g->co - o);
        for (int64_t r = 0; r < n; r++) {
            float *to = sum + r * TURN;
            memset(to, 0, TURN * sizeof *to);
            for (int64_t c = 0; c < j->chunks; c++) {
                const float *from = j->part + (c * j->g->groups + group) * size + (s + r) * ld + o;
                for (int64_t q = 0; q < m; q++) to[q] += from[q];
            }
        }
        cpu_gather_tile(turned, TURN * sizeof *sum, sum, TURN * sizeof *sum, m, n, sizeof *sum);
        for (int64_t q = 0; q < m; q++)
            cpu_row_convert(TN_F32, (const char *)(turned + q * TURN), 1, TN_BF16,
                            (char *)(j->y + (group * j->g->co + o + q) * j->lines + s), 1, n);
    }
    return TN_OK;
}

static void weight_lists(const geometry *g, weight_job *j) {
    for (int64_t s = 0; s < j->lines; s++) {
        int64_t t = s % g->taps;
        int64_t x = t % g->k[2], y = t / g->k[2] % g->k[1], z = t / g->k[2] / g->k[1];
        j->red[s] =
            s / g->taps * j->im.plane +
            padded_place(&j->im, z * g->dilation[0], y * g->dilation[1], x * g->dilation[2]);
    }
    for (int64_t i = 0; i < g->out_size; i++) {
        int64_t x = i % g->out[2], y = i / g->out[2] % g->out[1], z = i / g->out[2] / g->out[1];
        j->at.row[i] = padded_place(&j->im, z * g->stride[0], y * g->stride[1], x * g->stride[2]);
    }
}

/* Enough work items for many threads: fewer strips each, then fewer images. */
static void weight_cut(const geometry *g, weight_job *j) {
    for (j->height = j->unit->block_strips;; j->height = (j->height + 1) / 2) {
        j->row_blocks = parts_of(j->strips, j->height);
        if (j->height == 1 || room_mul(g->groups, j->row_blocks) >= FAIR) break;
    }
    int64_t wanted = smaller(g->n, 1 + FAIR / (1 + g->groups * j->row_blocks));
    j->chunk = g->n > 0 ? parts_of(g->n, wanted) : 1;
    j->chunks = parts_of(g->n, j->chunk); /* of no images none, and the sums are 0 */
}

tn_status cpu_conv_bf16_backward_weight(const tn_call *call, const tn__conv_backward_weight_args *a,
                                        const geometry *g, const int64_t *high) {
    const bf16_unit *u = cpu_bf16_unit();
    weight_job j = {.g = g, .unit = u, .y = a->out->data, .pixels = g->out_size};
    const void *grad;
    void *p;
    j.lines = room_mul(g->ci, g->taps);
    j.pairs = whole((j.pixels + 1) / 2, u->step);
    j.strips = parts_of(j.lines, u->rows);
    j.panels = parts_of(g->co, u->cols);
    weight_cut(g, &j);
    padded_init(&j.im, g->in, g->pad, high, g->ci);
    int64_t images = room_mul(g->n, g->groups);
    tn_status st = padded_lone(call, a->input, images, &j.im);
    if (!st) st = cpu_packed(call, a->grad, &grad);
    if (!st) st = room_scratch(call, room_add(j.lines, j.pixels), sizeof *j.red, &p);
    if (st) return st;
    j.grad = grad;
    j.red = p;
    j.at = (places){j.red + j.lines, j.pixels, 0, g->stride[2]};
    weight_lists(g, &j);
    st = room_scratch(call, room_mul4(images, j.panels, j.pairs, u->cols), sizeof *j.panel, &p);
    j.panel = p;
    if (st) return st;
    int64_t sums = room_mul(room_mul(j.strips, u->rows), room_mul(j.panels, u->cols));
    st = room_scratch(call, room_mul3(j.chunks, g->groups, sums), sizeof *j.part, &p);
    j.part = p;
    if (!st)
        st = cpu_parallel(room_mul(images, j.panels), 1 + 16384 / (j.pairs * u->cols), grad_panels,
                          &j);
    if (!st) st = cpu_parallel(room_mul3(j.chunks, g->groups, j.row_blocks), 1, weight_items, &j);
    int64_t turns = room_mul3(g->groups, parts_of(g->co, TURN), parts_of(j.lines, TURN));
    return st ? st : cpu_parallel(turns, 8, add_parts, &j);
}
