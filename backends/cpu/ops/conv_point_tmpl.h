/* conv_point_tmpl.h: convolutions whose window is one pixel: part of conv_tmpl.c. Pixels that are
 * neighbours in a channel's plane are neighbours in the result's, so that vectors run along them: R
 * output channels by PW pixels at a time, of all input channels. */

typedef struct point_job {
    geometry g;
    int64_t panels; /* stretches of PW pixels of a plane */
    const T *x, *bias;
    const A *w;
    T *y;
} point_job;

/* The pixels of all input channels are to stay in the first cache while output channels pass. */
static bool point_fits(const geometry *g) {
    for (int d = 0; d < 3; d++)
        if (g->stride[d] != 1 || g->pad[d] != 0) return false;
    return g->taps == 1 && g->co >= R &&
           room_mul(g->ci, PW * (int64_t)sizeof(A)) <= (int64_t)(cpu_os_l1_bytes() / 2);
}

/* n pixels of each input channel of a group, the others 0. */
static void point_pack(const T *x, const geometry *g, int64_t n, A *panel) {
    for (int64_t k = 0; k < g->ci; k++, x += g->in_size, panel += PW) {
        for (int64_t i = 0; i < n; i++) panel[i] = LOAD(x[i]);
        for (int64_t i = n; i < PW; i++) panel[i] = 0;
    }
}

static void point_panel(const point_job *j, int64_t item, A *panel) {
    const geometry *g = &j->g;
    int64_t first = item % j->panels * PW, ig = item / j->panels, group = ig % g->groups;
    int64_t left = g->out_size - first, n = left < PW ? left : PW;
    T *y = j->y + ig * g->co * g->out_size + first;
    A c[R * PW];
    point_pack(j->x + ig * g->ci * g->in_size + first, g, n, panel);
    for (int64_t o = 0; o < g->co; o += R) {
        int64_t row[R], rows = g->co - o < R ? g->co - o : R;
        for (int64_t r = 0; r < R; r++) row[r] = (group * g->co + o + (r < rows ? r : 0)) * g->ci;
        tile_sum(V, j->w, row, NULL, true, g->ci, panel, c, 0);
        for (int64_t r = 0; r < rows; r++) {
            A bias = j->bias ? LOAD(j->bias[group * g->co + o + r]) : (A)0;
            T *to = y + (o + r) * g->out_size;
            for (int64_t i = 0; i < n; i++) to[i] = STORE(c[r * PW + i] + bias);
        }
    }
}

static tn_status point_items(void *arg, int64_t begin, int64_t end) {
    const point_job *j = arg;
    uint64_t bytes;
    void *panel;
    tn_status st = cpu_room(j->g.ci, PW * sizeof(A), &bytes, &panel);
    if (st) return st;
    for (int64_t i = begin; i < end; i++) point_panel(j, i, panel);
    cpu_free(NULL, 0, panel, bytes);
    return TN_OK;
}

static tn_status point_forward(const tn_call *call, const geometry *g, const void *x, const T *w,
                               const void *bias, void *y) {
    point_job j = {.g = *g, .panels = (g->out_size + PW - 1) / PW, .x = x, .bias = bias, .y = y};
    int64_t weights = room_mul3(g->groups, g->co, g->ci);
#if TMPL_IS_HALF
    void *wide;
    tn_status st = room_scratch(call, weights, sizeof(A), &wide);
    if (st) return st;
    for (int64_t i = 0; i < weights; i++) ((A *)wide)[i] = LOAD(w[i]);
    j.w = wide;
#else
    (void)call, (void)weights;
    j.w = w;
#endif
    double flops = 2.0 * (double)(g->ci * g->co * PW);
    return cpu_parallel(g->n * g->groups * j.panels, 1 + (int64_t)(4e5 / flops), point_items, &j);
}
