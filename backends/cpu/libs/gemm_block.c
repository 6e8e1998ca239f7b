/* gemm_block.c: products of large matrices in float and double, cut into blocks that stay in the caches.
 *
 * Columns of B are packed into panels of as many as a tile has, DEEP_BYTES of each at a time: where A's rows
 * stay in the second cache, by each task those that it passes, one after the other into the same place, else
 * all of them, for all threads. (What one thread has packed comes to another slowly, line by line from the
 * cache of its processor.) Rows of A are read as they lie where they are packed along the sum; others are copied
 * into strips by the thread that multiplies them. A tile's sums stay in registers while a strip of A and a
 * panel pass by; the next part of the sum is added to C. The limit is
 * the rate of multiply-adds. A sum's order follows from its length alone. */
#include "caches.h"
#include "copy.h"
#include "cpu_priv.h"
#include "gemm_priv.h"
#include "gemm_tiles.h"

enum { DEEP_BYTES = 2048 };
/* Tasks that are wanted, and panels of a task at least. Of tasks that pack: fewer panels than OWN_GROUPS would
 * keep some threads waiting, so that from OWN_HALVES rows on two tasks pack the same. */
enum { TASKS = 8, GROUP = 8, OWN_TASKS = 32, OWN_GROUPS = 16, OWN_HALVES = 128 };
/* The shorter side of C at least, the others, and multiplications: OpenBLAS's kernels for AVX-512 do not pack what is smaller. */
enum { SHORT = 24, SIDE = 40, SMALL = 1000000 };
enum { FEWEST = 512, MOST = 4096 }; /* columns that are packed at once */
#define TASK_FLOPS 2e6              /* of a task at least */
#define WASTE 1.4                   /* OpenBLAS has narrower tiles for the ends */

static int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }
static int64_t deep_of(int32_t dtype) { return DEEP_BYTES / cpu_row_item(dtype); }

typedef struct job {
    const gemm_args *g; /* of this part of the sum: beta is 1 behind the first */
    const gemm_tiles *tiles;
    int64_t item, e, width;             /* width: columns of a panel */
    int64_t k0, deep;                   /* steps of the sum */
    int64_t n0, n, panels;              /* columns that are packed */
    int64_t rows, row_blocks, per_task; /* rows of a block; panels of a task */
    char *b;                            /* (panel, deep, width), or NULL: tasks pack their own */
} job;

/* Lines [0, n) of a matrix whose element (line, k) stands at line * ls + k * ks, as (k, width); what
 * stands for lines past n counts not. */
static void pack_lines(const char *from, int64_t ls, int64_t ks, int64_t k, int64_t n,
                       int64_t width, int64_t item, char *to) {
    int64_t row = width * item;
    if (ks == 1) {
        cpu_gather_tile(to, row, from, ls * item, k, n, (int32_t)item);
    } else if (ls == 1 && n == width) {
        for (int64_t p = 0; p < k; p++, to += row, from += ks * item)
            for (int64_t at = 0; at < row; at += 16) memcpy(to + at, from + at, 16);
    } else {
        for (int64_t p = 0; p < k; p++)
            cpu_gather(to + p * row, from + p * ks * item, n, ls * item, (int32_t)item);
    }
}

static int64_t panel_bytes(const job *j) { return j->deep * j->width * j->item; }

static void pack_panel(const job *j, int64_t p, char *to) {
    const gemm_mat *b = &j->g->b;
    int64_t c = p * j->width, n = j->n - c < j->width ? j->n - c : j->width;
    const char *from =
        (const char *)b->data + j->item * (j->e * b->bs + (j->n0 + c) * b->cs + j->k0 * b->rs);
    if (b->cs == 1)
        j->tiles->pack_rows(from, b->rs, j->deep, n, to);
    else
        pack_lines(from, b->cs, b->rs, j->deep, n, j->width, j->item, to);
}

static tn_status pack_panels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t p = begin; p < end; p++) pack_panel(j, p, j->b + p * panel_bytes(j));
    return TN_OK;
}

/* Rows [i, i + m) by panels [p0, p1). */
static void run_block(const job *j, int64_t i, int64_t m, int64_t p0, int64_t p1, char *own,
                      char *strips) {
    const gemm_args *g = j->g;
    int64_t rows = j->tiles->rows, strip = j->deep * rows * j->item;
    const char *a =
        (const char *)g->a.data + j->item * (j->e * g->a.bs + i * g->a.rs + j->k0 * g->a.cs);
    int64_t as_is = g->a.cs == 1 ? m / rows * rows : 0;
    for (int64_t r = as_is; r < m; r += rows)
        pack_lines(a + j->item * r * g->a.rs, g->a.rs, g->a.cs, j->deep,
                   m - r < rows ? m - r : rows, rows, j->item, strips + r / rows * strip);
    for (int64_t p = p0; p < p1; p++) {
        int64_t c = p * j->width, n = j->n - c < j->width ? j->n - c : j->width;
        const char *panel = j->b ? j->b + p * panel_bytes(j) : own;
        if (!j->b) pack_panel(j, p, own);
        for (int64_t r = 0; r < as_is; r += rows)
            j->tiles->block(g, j->e, i + r, rows, j->n0 + c, n, a + j->item * r * g->a.rs, g->a.rs,
                            1, panel, j->deep);
        for (int64_t r = as_is; r < m; r += rows)
            j->tiles->block(g, j->e, i + r, m - r < rows ? m - r : rows, j->n0 + c, n,
                            strips + r / rows * strip, 1, rows, panel, j->deep);
    }
}

static tn_status run_tasks(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t own = j->b ? 0 : j->width;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(room_mul(own + j->rows, j->deep), (size_t)j->item, &bytes, &room);
    if (st) return st;
    char *strips = (char *)room + own * j->deep * j->item;
    for (int64_t t = begin; t < end && st == TN_OK; t++) {
        int64_t i = t % j->row_blocks * j->rows, p = t / j->row_blocks * j->per_task;
        int64_t m = j->g->m - i < j->rows ? j->g->m - i : j->rows;
        run_block(j, i, m, p, p + j->per_task < j->panels ? p + j->per_task : j->panels, room,
                  strips);
        if (t + 1 < end) st = cpu_poll();
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* The product of entry j->e. */
static tn_status run_entry(job *j, const gemm_args *g, int64_t most_columns, int64_t tasks) {
    gemm_args later = *g;
    later.init = (gemm_mat){0};
    later.beta = (tn_scalar){.kind = g->beta.kind, .re = 1.0};
    int64_t deep = deep_of(g->dtype);
    tn_status st = TN_OK;
    for (j->n0 = 0; j->n0 < g->n && st == TN_OK; j->n0 += j->n) {
        j->n = g->n - j->n0 < most_columns ? g->n - j->n0 : most_columns;
        j->panels = parts(j->n, j->width);
        int64_t groups = parts(tasks, j->row_blocks), most = j->b ? j->panels / GROUP : j->panels;
        j->per_task = parts(j->panels, groups < most ? groups : most < 1 ? 1 : most);
        groups = parts(j->panels, j->per_task);
        for (j->k0 = 0; j->k0 < g->k && st == TN_OK; j->k0 += j->deep) {
            j->deep = g->k - j->k0 < deep ? g->k - j->k0 : deep;
            j->g = j->k0 ? &later : g;
            if (j->b)
                st = cpu_parallel(j->panels, 1 + 65536 / (j->deep * j->width), pack_panels, j);
            if (!st) st = cpu_parallel(room_mul(j->row_blocks, groups), 1, run_tasks, j);
        }
    }
    return st;
}

/* The time of a product as it is given, in multiply-adds of vectors, measured on Zen 4: of whole tiles, and of
 * moving what is packed and what lies across in C. */
static double cost(const gemm_args *g, const gemm_tiles *tiles) {
    double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    double tile = (double)(parts(g->m, tiles->rows) * tiles->rows * parts(g->n, tiles->lanes)) * k;
    double a = g->a.cs == 1 ? 0 : 0.4 * m * k, b = (g->b.cs == 1 ? 0.12 : 0.8) * n * k;
    double c = g->c_cs == 1 ? 0 : 0.4 * m * n * (double)parts(g->k, deep_of(g->dtype));
    return tile + a + b + c;
}

bool cpu_gemm_has_block(const gemm_args *g) {
    const gemm_tiles *tiles = cpu_gemm_tiles(g->dtype);
    int64_t less = g->m < g->n ? g->m : g->n, more = g->m < g->n ? g->n : g->m;
    if (!tiles || !tiles->block || less < SHORT || more < SIDE || g->k < SIDE) return false;
    double least = (double)g->m * (double)g->n * (double)g->k;
    if (least <= SMALL) return false;
    gemm_args turned = gemm_transposed(g);
    double as_is = cost(g, tiles), other = cost(&turned, tiles);
    return WASTE * least > (as_is < other ? as_is : other) * tiles->lanes;
}

/* As many as are worth it. */
static int64_t tasks_of(const gemm_args *g, int64_t most) {
    double worth = 2.0 * (double)g->m * (double)g->n * (double)g->k / TASK_FLOPS;
    return worth < 1 ? 1 : worth < (double)most ? (int64_t)worth : most;
}

static void cut_rows(job *j, const gemm_args *g, int64_t rows) {
    int64_t least = 4 * j->tiles->rows;
    j->rows = parts(rows < least ? least : rows, j->tiles->rows) * j->tiles->rows;
    j->row_blocks = parts(g->m, j->rows);
}

/* Entry j->e by tasks that pack their own panels: groups of columns, of at most two halves of the rows. */
static tn_status run_own(job *j, const gemm_args *g) {
    int64_t tasks = tasks_of(g, OWN_TASKS);
    bool few = parts(g->n, j->width) < OWN_GROUPS;
    bool halves = few && tasks > 1 && g->b.cs == 1 && g->m >= OWN_HALVES;
    cut_rows(j, g, halves ? parts(g->m, 2) : g->m);
    return run_entry(j, g, g->n, tasks);
}

/* Entry j->e by panels for all: blocks of rows by groups of columns. */
static tn_status run_shared(job *j, const gemm_args *g) {
    int64_t deep = deep_of(g->dtype), columns = MOST, tasks = tasks_of(g, TASKS);
    int64_t most = (int64_t)(cpu_os_l3_bytes() / 4) / DEEP_BYTES;
    if (most < columns) columns = most < FEWEST ? FEWEST : most;
    columns = parts(g->n < columns ? g->n : columns, j->width) * j->width;
    most = (int64_t)(cpu_os_l2_bytes() / 4) / DEEP_BYTES;
    cut_rows(j, g, parts(g->m, tasks) < most ? parts(g->m, tasks) : most);
    uint64_t bytes;
    void *b;
    tn_status st =
        cpu_room(room_mul(columns, g->k < deep ? g->k : deep), (size_t)j->item, &bytes, &b);
    if (st) return st;
    j->b = b;
    st = run_entry(j, g, columns, tasks);
    cpu_free(NULL, 0, b, bytes);
    return st;
}

static tn_status run_whole(job *j, const gemm_args *g) {
    /* Rows of a power of two bytes share the cache's sets: there is place for fewer. */
    bool near = (double)g->m * DEEP_BYTES <= 0.375 * (double)cpu_os_l2_bytes();
    return near && g->a.cs == 1 ? run_own(j, g) : run_shared(j, g);
}

static tn_status run_entries(void *arg, int64_t begin, int64_t end) {
    job j = *(const job *)arg;
    const gemm_args *g = j.g;
    tn_status st = TN_OK;
    for (j.e = begin; j.e < end && st == TN_OK; j.e++) st = run_whole(&j, g);
    return st;
}

tn_status cpu_gemm_block(const gemm_args *given) {
    const gemm_tiles *tiles = cpu_gemm_tiles(given->dtype);
    gemm_args turned = gemm_transposed(given);
    const gemm_args *g = cost(&turned, tiles) < cost(given, tiles) ? &turned : given;
    job j = {.g = g, .tiles = tiles, .item = cpu_row_item(g->dtype)};
    j.width = TILE_VECTORS * tiles->lanes;
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    if (g->batch == 1 || flops >= TASKS * TASK_FLOPS) return run_entries(&j, 0, g->batch);
    return cpu_parallel(g->batch, 1, run_entries, &j);
}
