/* conv_depth_tmpl.h: convolutions whose groups have one input channel, and their gradients: part of
 * conv_tmpl.c. A panel of columns would be nearly empty there, so that vectors run along the rows of
 * one plane instead. A plane is copied with its padding into memory that stays in the cache; with a
 * stride, every stride-th element of a row becomes neighbours, so that all loads are of whole
 * vectors. */

/* More output channels of a group than this fill panels well enough. */
enum { DEPTH_MOST = 4 };

/* A padded plane: rows of `phases` pieces, of every phases-th element each. */
typedef struct depth_plane {
    int64_t size[3], low[3]; /* of the plane that is copied, and zeros before it */
    int64_t rows, phases, pitch;
    int64_t elements;
} depth_plane;

/* Outputs that meet the same taps, as vectors along rows. */
typedef struct depth_pass {
    int64_t vectors, sums, step; /* step: between lanes in the output plane */
    int64_t *base;               /* by vector: offset into the padded plane */
    int64_t *place;              /* by vector: position in the output plane */
    int64_t *lanes;              /* by vector: how many count */
    int64_t *red;                /* by tap: offset to add to base; R zeros follow */
    int64_t *tap;                /* by tap: place in the weight */
} depth_pass;

typedef struct depth_job {
    geometry g;
    depth_plane plane;
    const depth_pass *pass;
    int64_t passes, most_sums;
    int64_t from, to; /* planes that an item reads and writes */
    int64_t in_size, out_size;
    const T *x, *w, *bias, *grad;
    T *y;
} depth_job;

static bool depth_fits(const geometry *g) {
    return g->ci == 1 && g->groups > 1 && g->co <= DEPTH_MOST;
}

static void depth_plane_init(depth_plane *p, const int64_t *size, const int64_t *low,
                             const int64_t *high, int64_t stride) {
    int64_t width = size[2] + low[2] + high[2];
    int64_t phases = stride < width ? stride : width; /* a longer one makes no second output */
    memcpy(p->size, size, sizeof p->size);
    memcpy(p->low, low, sizeof p->low);
    p->phases = phases;
    p->rows = size[1] + low[1] + high[1];
    p->pitch = (width + phases - 1) / phases;
    p->elements = room_mul4(size[0] + low[0] + high[0], p->rows, p->phases, p->pitch);
}

static int64_t depth_offset(const depth_plane *p, int64_t z, int64_t y, int64_t x) {
    return ((z * p->rows + y) * p->phases + x % p->phases) * p->pitch + x / p->phases;
}

/* Copies a plane into room whose padding is zero already. */
static void depth_take(const depth_plane *p, const T *from, A *to) {
    for (int64_t z = 0; z < p->size[0]; z++) {
        for (int64_t y = 0; y < p->size[1]; y++, from += p->size[2]) {
            for (int64_t f = 0; f < p->phases; f++) {
                int64_t first = (f + p->phases - p->low[2] % p->phases) % p->phases;
                A *row = to + depth_offset(p, z + p->low[0], y + p->low[1], first + p->low[2]);
                const T *x = from + first;
                int64_t n = (p->size[2] - first + p->phases - 1) / p->phases;
                if (p->phases == 1) {
                    for (int64_t i = 0; i < n; i++) row[i] = LOAD(x[i]);
                } else if (p->phases == 2) {
                    for (int64_t i = 0; i < n; i++) row[i] = LOAD(x[2 * i]);
                } else {
                    for (int64_t i = 0; i < n; i++) row[i] = LOAD(x[p->phases * i]);
                }
            }
        }
    }
}

static tn_status depth_pass_init(const tn_call *call, depth_pass *p, const int64_t *count,
                                 int64_t sums) {
    void *room;
    p->vectors = room_mul3(count[0], count[1], (count[2] + W - 1) / W);
    p->sums = 0;
    int64_t n = room_add(room_mul(3, p->vectors + R), room_mul(2, sums) + R);
    tn_status st = room_scratch(call, n, sizeof(int64_t), &room);
    if (st) return st;
    p->base = room;
    p->place = p->base + p->vectors + R;
    p->lanes = p->place + p->vectors + R;
    p->red = p->lanes + p->vectors + R;
    p->tap = p->red + sums + R;
    return TN_OK;
}

/* Lists the vectors of `count` outputs: rows that are `stride` rows of the plane apart go to places
 * `scale` apart from `first` in a plane of size `out`. */
static void depth_list(depth_pass *p, const depth_plane *from, const int64_t *count,
                       const int64_t *stride, int64_t origin, const int64_t *scale,
                       const int64_t *first, const int64_t *out) {
    int64_t i = 0, line = from->phases * from->pitch;
    p->step = scale[2];
    for (int64_t z = 0; z < count[0]; z++) {
        for (int64_t y = 0; y < count[1]; y++) {
            int64_t row = (z * scale[0] + first[0]) * out[1] + y * scale[1] + first[1];
            for (int64_t x = 0; x < count[2]; x += W, i++) {
                p->base[i] = origin + (z * stride[0] * from->rows + y * stride[1]) * line + x;
                p->place[i] = row * out[2] + x * scale[2] + first[2];
                p->lanes[i] = count[2] - x < W ? count[2] - x : W;
            }
        }
    }
    for (int r = 0; r < R && i > 0; r++) p->base[i + r] = p->base[i - 1];
}

/* Vectors begin .. end, R at a time. */
static void depth_some(const depth_pass *p, const A *x, const A *w, A bias, T *y, int64_t begin,
                       int64_t end) {
    for (int64_t i = begin; i < end; i += R) {
        vector s[R];
        const A *q[R];
        for (int r = 0; r < R; r++) {
            q[r] = x + p->base[i + r];
            s[r] = (vector){0};
        }
        for (int64_t k = 0; k < p->sums; k++) {
            A v = w[k];
            int64_t at = p->red[k];
            for (int r = 0; r < R; r++) s[r] += load(q[r] + at) * v;
        }
        for (int r = 0; r < R && i + r < end; r++) {
            T *to = y + p->place[i + r];
            vector sum = s[r] + bias;
            if (sizeof(T) == sizeof(A) && p->step == 1 && p->lanes[i + r] == W) {
                memcpy(to, &sum, sizeof sum);
                continue;
            }
            A lane[VECTOR_BYTES / sizeof(A)];
            store(lane, sum);
            for (int64_t c = 0; c < p->lanes[i + r]; c++) to[c * p->step] = STORE(lane[c]);
        }
    }
}

static tn_status depth_vectors(const depth_pass *p, const A *x, const A *w, A bias, T *y) {
    cpu_stretch s = {.n = (p->vectors + R - 1) / R, .cost = room_mul(p->sums + 1, R * W)};
    while (cpu_next_stretch(&s)) {
        int64_t end = s.end * R < p->vectors ? s.end * R : p->vectors;
        depth_some(p, x, w, bias, y, s.begin * R, end);
    }
    return s.st;
}

/* Room of a chunk: zeroed planes with a vector behind them, then `more` elements. */
static tn_status depth_room(const depth_job *j, int64_t planes, int64_t more, uint64_t *ret_bytes,
                            A **ret_room) {
    int64_t n = room_add(room_mul(planes, j->plane.elements), W);
    void *room;
    tn_status st = cpu_room(room_add(n, more), sizeof(A), ret_bytes, &room);
    if (st) return st;
    memset(room, 0, (size_t)n * sizeof(A));
    *ret_room = room;
    return TN_OK;
}

static tn_status depth_items(void *arg, int64_t begin, int64_t end) {
    const depth_job *j = arg;
    uint64_t bytes;
    A *room;
    tn_status st = depth_room(j, j->from, j->most_sums, &bytes, &room);
    if (st) return st;
    A *weight = room + j->from * j->plane.elements + W;
    for (int64_t item = begin; item < end && st == TN_OK; item++) {
        int64_t group = item % j->g.groups;
        for (int64_t i = 0; i < j->from; i++) {
            depth_take(&j->plane, j->x + (item * j->from + i) * j->in_size,
                       room + i * j->plane.elements);
        }
        for (int64_t c = 0; c < j->to && st == TN_OK; c++) {
            const T *w = j->w + (group * j->g.co + c) * j->g.taps;
            A bias = j->bias ? LOAD(j->bias[group * j->to + c]) : (A)0;
            for (int64_t i = 0; i < j->passes && st == TN_OK; i++) {
                const depth_pass *p = j->pass + i;
                for (int64_t k = 0; k < p->sums; k++) weight[k] = LOAD(w[p->tap[k]]);
                st = depth_vectors(p, room, weight, bias, j->y + (item * j->to + c) * j->out_size);
            }
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

static tn_status depth_run(const depth_job *j) {
    int64_t work = j->g.taps * j->g.co * j->g.out_size + j->in_size;
    return cpu_parallel(j->g.n * j->g.groups, 1 + 65536 / (work + 1), depth_items,
                        (void *)(uintptr_t)j);
}

/* The pass of a convolution itself. */
static tn_status depth_forward_pass(const tn_call *call, const geometry *g, const int64_t *high,
                                    depth_plane *plane, depth_pass *p) {
    static const int64_t one[3] = {1, 1, 1}, none[3] = {0, 0, 0};
    depth_plane_init(plane, g->in, g->pad, high, g->stride[2]);
    tn_status st = depth_pass_init(call, p, g->out, g->taps);
    if (st) return st;
    depth_list(p, plane, g->out, g->stride, 0, one, none, g->out);
    for (int64_t t = 0; t < g->taps; t++) {
        int64_t x = t % g->k[2], y = t / g->k[2] % g->k[1], z = t / g->k[2] / g->k[1];
        p->tap[p->sums] = t;
        p->red[p->sums++] =
            depth_offset(plane, z * g->dilation[0], y * g->dilation[1], x * g->dilation[2]);
    }
    for (int r = 0; r < R; r++) p->red[g->taps + r] = 0;
    return TN_OK;
}

static tn_status depth_forward(const tn_call *call, const geometry *g, const int64_t *high,
                               const void *x, const void *w, const void *bias, T *y) {
    depth_pass p;
    depth_job j = {.g = *g, .pass = &p, .passes = 1, .x = x, .w = w, .bias = bias, .y = y};
    j.most_sums = g->taps;
    j.from = 1;
    j.to = g->co;
    j.in_size = g->in_size;
    j.out_size = g->out_size;
    tn_status st = depth_forward_pass(call, g, high, &j.plane, &p);
    return st ? st : depth_run(&j);
}

/* ---- The gradient of the weight ---------------------------------------------------------------*/

#if TMPL_DTYPE == TMPL_F64
typedef int64_t depth_int;
#else
typedef int32_t depth_int;
#endif
typedef depth_int depth_mask __attribute__((vector_size(VECTOR_BYTES)));

/* sum[r] += x around tap red[r] times the gradient, for R taps; lanes past a row's end do not count,
 * whatever lies there. */
static void depth_taps(const depth_pass *p, const A *x, const A *grad, depth_mask tail,
                       const int64_t *red, A *sum) {
    vector s[R];
    for (int r = 0; r < R; r++) s[r] = (vector){0};
    for (int64_t i = 0; i < p->vectors; i++) {
        vector v = load(grad + i * W);
        const A *q = x + p->base[i];
        if (p->lanes[i] == W) {
            for (int r = 0; r < R; r++) s[r] += load(q + red[r]) * v;
        } else {
            for (int r = 0; r < R; r++) s[r] += (vector)((depth_mask)load(q + red[r]) & tail) * v;
        }
    }
    for (int r = 0; r < R; r++) {
        A lane[VECTOR_BYTES / sizeof(A)], total = 0;
        store(lane, s[r]);
        for (int64_t c = 0; c < W; c++) total += lane[c];
        sum[r] += total;
    }
}

/* Items are output channels; the images are added in order. */
static tn_status depth_weights(void *arg, int64_t begin, int64_t end) {
    const depth_job *j = arg;
    const geometry *g = &j->g;
    const depth_pass *p = j->pass;
    int64_t sums = (p->sums + R - 1) / R * R;
    depth_mask tail = {0};
    uint64_t bytes;
    A *room;
    tn_status st = depth_room(j, 1, room_add(room_mul(p->vectors, W), sums), &bytes, &room);
    if (st) return st;
    A *grad = room + j->plane.elements + W, *sum = grad + p->vectors * W;
    for (int64_t c = 0; c < g->out[2] % W; c++) tail[c] = -1;
    memset(grad, 0, (size_t)(p->vectors * W) * sizeof(A));
    for (int64_t o = begin; o < end && st == TN_OK; o++) {
        memset(sum, 0, (size_t)sums * sizeof(A));
        for (int64_t image = 0; image < g->n && st == TN_OK; image++) {
            const T *from = j->grad + (image * g->groups * g->co + o) * g->out_size;
            depth_take(&j->plane, j->x + (image * g->groups + o / g->co) * g->in_size, room);
            for (int64_t i = 0; i < p->vectors; i++) {
                const T *row = from + p->place[i];
                for (int64_t c = 0; c < p->lanes[i]; c++) grad[i * W + c] = LOAD(row[c]);
            }
            cpu_stretch s = {.n = sums / R, .cost = room_mul(p->vectors, R * W)};
            while (cpu_next_stretch(&s))
                for (int64_t k = s.begin * R; k < s.end * R; k += R)
                    depth_taps(p, room, grad, tail, p->red + k, sum + k);
            st = s.st ? s.st : cpu_poll();
        }
        for (int64_t k = 0; k < p->sums; k++) j->y[o * p->sums + k] = STORE(sum[k]);
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

static tn_status depth_backward_weight(const tn_call *call, const geometry *g, const int64_t *high,
                                       const void *x, const void *grad, T *y) {
    depth_pass p;
    depth_job j = {.g = *g, .pass = &p, .passes = 1, .x = x, .grad = grad, .y = y};
    tn_status st = depth_forward_pass(call, g, high, &j.plane, &p);
    if (st) return st;
    int64_t work = g->n * (g->taps * g->out_size + g->in_size);
    return cpu_parallel(g->groups * g->co, 1 + 65536 / (work + 1), depth_weights, &j);
}
