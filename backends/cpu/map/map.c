/* map.c: walks a plan for a pointwise kernel: splits it over threads, cuts rows into segments, and
 * brings operands that the packed loops cannot read (strided, or one value where the operator has
 * no loop for that) through blocks of 512 elements that stay in the first-level cache; transposed
 * ones come in tiles of several rows. Outputs far larger than the caches are written past them. */
#include "map.h"

#include <string.h>

#include "copy.h"

#define BLOCK 512
#define ITEM_MAX 16
#define SHORT_ROW 16 /* rows below this are gathered several at a time */
#define PANEL_ROW 32 /* and below this as panels, where many of them follow each other */
#define TILE_ROWS 16
#define TILE_BYTES 65536 /* of all turned operands: within the second-level cache */

enum mode { PACKED, SINGLE, STRIDED };

typedef struct map_job {
    const tn_plan *plan;
    const cpu_map_op *op;
    const cpu_param *params;
    cpu_map_fn direct; /* takes segments as they are; NULL: through blocks */
    int32_t noperands; /* output and the inputs that the operator reads */
    bool stream;
    uint8_t mode[1 + CPU_MAP_INPUTS]; /* along dimension 0 */
    uint8_t constant;                 /* by operand: one value over the whole plan */
    uint8_t turned;                   /* by operand: packed along tile_dim */
    int32_t tile_dim;                 /* or 0 */
    uint8_t size[1 + CPU_MAP_INPUTS];
} map_job;

typedef struct blocks {
    _Alignas(64) char of[1 + CPU_MAP_INPUTS][BLOCK * ITEM_MAX];
} blocks;

CPU_NOINLINE tn_status cpu_map_zero_division(void) {
    return cpu_host->fail(TN_E_STATE, 1, "ZeroDivisionError");
}

/* A segment: n elements along dimension 0 from the places in at[]. */
static int through_blocks(const map_job *j, char *const *at, int64_t n, blocks *b) {
    const void *in[CPU_MAP_INPUTS];
    int64_t spread = n < BLOCK ? n : BLOCK;
    for (int32_t k = 1; k < j->noperands; k++)
        if (j->mode[k] == SINGLE) cpu_spread(b->of[k], at[k], spread, j->size[k]);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        for (int32_t k = 1; k < j->noperands; k++) {
            int64_t stride = j->plan->stride[0][k];
            if (j->mode[k] == PACKED) {
                in[k - 1] = at[k] + i * j->size[k];
                continue;
            }
            in[k - 1] = b->of[k];
            if (j->mode[k] == STRIDED)
                cpu_gather(b->of[k], at[k] + i * stride, m, stride, j->size[k]);
        }
        bool packed = j->mode[0] == PACKED && !j->stream;
        char *out = at[0] + i * j->plan->stride[0][0];
        if (j->op->flat(m, packed ? out : b->of[0], in, j->params)) return 1;
        if (packed) continue;
        if (j->mode[0] == PACKED)
            cpu_stream(out, b->of[0], (uint64_t)m * j->size[0]);
        else
            cpu_scatter(out, b->of[0], m, j->plan->stride[0][0], j->size[0]);
    }
    return 0;
}

/* ---- Rows --------------------------------------------------------------------------------------*/

typedef struct place {
    int64_t index[TN_MAX_DIMS];
    char *at[1 + CPU_MAP_INPUTS]; /* start of the row */
} place;

/* Of a row along the dimensions from `first` on. */
static void place_at(const map_job *j, int32_t first, int64_t row, place *p) {
    for (int32_t k = 0; k < j->noperands; k++) p->at[k] = j->plan->data[k];
    for (int32_t d = first; d < j->plan->ndim; d++) {
        p->index[d] = row % j->plan->shape[d];
        row /= j->plan->shape[d];
        for (int32_t k = 0; k < j->noperands; k++) p->at[k] += p->index[d] * j->plan->stride[d][k];
    }
}

static void place_next(const map_job *j, int32_t first, place *p) {
    const tn_plan *plan = j->plan;
    for (int32_t d = first; d < plan->ndim; d++) {
        for (int32_t k = 0; k < j->noperands; k++) p->at[k] += plan->stride[d][k];
        if (++p->index[d] < plan->shape[d]) return;
        for (int32_t k = 0; k < j->noperands; k++) p->at[k] -= plan->stride[d][k] * plan->shape[d];
        p->index[d] = 0;
    }
}

static tn_status run_segments(const map_job *j, int64_t begin, int64_t end) {
    blocks b;
    place p;
    int64_t n0 = j->plan->shape[0], col = begin % n0;
    place_at(j, 1, begin / n0, &p);
    while (begin < end) {
        char *at[1 + CPU_MAP_INPUTS];
        const void *in[CPU_MAP_INPUTS];
        int64_t n = n0 - col < end - begin ? n0 - col : end - begin;
        for (int32_t k = 0; k < j->noperands; k++) {
            at[k] = p.at[k] + col * j->plan->stride[0][k];
            if (k) in[k - 1] = at[k];
        }
        int zero = j->direct ? j->direct(n, at[0], in, j->params) : through_blocks(j, at, n, &b);
        if (zero) return TN_E_VALUE;
        begin += n;
        col = 0;
        place_next(j, 1, &p);
    }
    return TN_OK;
}

/* Short rows: packs pieces of several rows into one block. */
static tn_status run_short_rows(const map_job *j, int64_t begin, int64_t end) {
    blocks b;
    place p;
    const tn_plan *plan = j->plan;
    int64_t n0 = plan->shape[0], col = begin % n0;
    const void *in[CPU_MAP_INPUTS];
    place_at(j, 1, begin / n0, &p);
    for (int32_t k = 1; k < j->noperands; k++) {
        in[k - 1] = b.of[k];
        if (j->constant >> k & 1) cpu_spread(b.of[k], plan->data[k], BLOCK, j->size[k]);
    }
    while (begin < end) {
        char *out_at[BLOCK];
        int64_t out_n[BLOCK], pieces = 0, fill = 0;
        while (fill < BLOCK && begin < end) {
            int64_t n = n0 - col;
            if (n > end - begin) n = end - begin;
            if (n > BLOCK - fill) n = BLOCK - fill;
            for (int32_t k = 1; k < j->noperands; k++) {
                int64_t stride = plan->stride[0][k];
                if (!(j->constant >> k & 1))
                    cpu_gather(b.of[k] + fill * j->size[k], p.at[k] + col * stride, n, stride,
                               j->size[k]);
            }
            out_at[pieces] = p.at[0] + col * plan->stride[0][0];
            out_n[pieces++] = n;
            fill += n;
            begin += n;
            col += n;
            if (col == n0) {
                col = 0;
                place_next(j, 1, &p);
            }
        }
        if (j->op->flat(fill, b.of[0], in, j->params)) return TN_E_VALUE;
        const char *from = b.of[0];
        for (int64_t i = 0; i < pieces; i++) {
            cpu_scatter(out_at[i], from, out_n[i], plan->stride[0][0], j->size[0]);
            from += out_n[i] * j->size[0];
        }
    }
    return TN_OK;
}

/* ---- Panels ------------------------------------------------------------------------------------*/

/* Many short rows along dimension 1: as many as fill a block at once, column by column. */
static inline void move_columns(char *dst, int64_t d1, int64_t d0, const char *src, int64_t s1,
                                int64_t s0, int64_t rows, int64_t n, size_t size) {
    for (int64_t i = 0; i < n; i++) {
        char *to = dst + i * d0;
        const char *from = src + i * s0;
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * d1, from + r * s1, size);
    }
}

static void move_panel(char *dst, int64_t d1, int64_t d0, const char *src, int64_t s1, int64_t s0,
                       int64_t rows, int64_t n, int32_t size) {
    switch (size) {
    case 1: move_columns(dst, d1, d0, src, s1, s0, rows, n, 1); break;
    case 2: move_columns(dst, d1, d0, src, s1, s0, rows, n, 2); break;
    case 4: move_columns(dst, d1, d0, src, s1, s0, rows, n, 4); break;
    case 8: move_columns(dst, d1, d0, src, s1, s0, rows, n, 8); break;
    default: move_columns(dst, d1, d0, src, s1, s0, rows, n, 16);
    }
}

/* Operand k packed: where it is, if it is; a row that is repeated is written out once. */
static const char *panel_operand(const map_job *j, int32_t k, const char *at, int64_t rows,
                                 blocks *b, const char **held) {
    const tn_plan *plan = j->plan;
    int64_t n = plan->shape[0], s0 = plan->stride[0][k], s1 = plan->stride[1][k];
    int32_t size = j->size[k];
    if (j->mode[k] == PACKED && s1 == n * size) return at;
    if (s1 == 0 && held[k] == at) return b->of[k];
    held[k] = s1 == 0 ? at : NULL;
    if (s1 == 0) rows = plan->shape[1] < BLOCK / n ? plan->shape[1] : BLOCK / n;
    move_panel(b->of[k], n * size, size, at, s1, s0, rows, n, size);
    return b->of[k];
}

static bool in_panels(const map_job *j) {
    const tn_plan *plan = j->plan;
    if (plan->ndim < 2 || plan->shape[1] < 8) return false;
    return plan->shape[0] < PANEL_ROW || (!j->direct && plan->shape[0] <= 2 * PANEL_ROW);
}

/* Item: a row. */
static tn_status run_panels(void *arg, int64_t begin, int64_t end) {
    const map_job *j = arg;
    const tn_plan *plan = j->plan;
    int64_t n = plan->shape[0], n1 = plan->shape[1], at1 = begin % n1, rows;
    int64_t o0 = plan->stride[0][0], o1 = plan->stride[1][0];
    bool direct = j->mode[0] == PACKED && o1 == n * j->size[0];
    const char *held[1 + CPU_MAP_INPUTS] = {NULL};
    blocks b;
    place p;
    place_at(j, 2, begin / n1, &p);
    for (int64_t row = begin; row < end; row += rows) {
        const void *in[CPU_MAP_INPUTS];
        char *out = p.at[0] + at1 * o1;
        rows = n1 - at1 < end - row ? n1 - at1 : end - row;
        if (rows > BLOCK / n) rows = BLOCK / n;
        for (int32_t k = 1; k < j->noperands; k++) {
            const char *at = p.at[k] + at1 * plan->stride[1][k];
            in[k - 1] = panel_operand(j, k, at, rows, &b, held);
        }
        if (j->op->flat(rows * n, direct ? out : b.of[0], in, j->params)) return TN_E_VALUE;
        if (!direct)
            move_panel(out, o1, o0, b.of[0], n * j->size[0], j->size[0], rows, n, j->size[0]);
        at1 += rows;
        if (at1 < n1) continue;
        at1 = 0;
        place_next(j, 2, &p);
    }
    return TN_OK;
}

static tn_status run_chunk(void *arg, int64_t begin, int64_t end) {
    const map_job *j = arg;
    bool short_rows = j->plan->ndim > 1 && j->plan->shape[0] < SHORT_ROW;
    tn_status st = short_rows ? run_short_rows(j, begin, end) : run_segments(j, begin, end);
    if (j->stream) cpu_stream_end();
    return st;
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

typedef struct tiles {
    _Alignas(64) char of[TILE_BYTES];
    blocks rows; /* of operands that are neither packed nor turned */
    int64_t width;
    char *turned[1 + CPU_MAP_INPUTS];
} tiles;

/* Long runs along dimension 0 suit the caches best, so a tile is as wide as there is room for. */
static void place_tiles(const map_job *j, tiles *t) {
    int64_t bytes = 0;
    char *at = t->of;
    for (int32_t k = 1; k < j->noperands; k++)
        if (j->turned >> k & 1) bytes += TILE_ROWS * j->size[k];
    t->width = TILE_BYTES / bytes / 64 * 64;
    for (int32_t k = 1; k < j->noperands; k++)
        if (j->mode[k] != PACKED && !(j->turned >> k & 1) && t->width > BLOCK) t->width = BLOCK;
    for (int32_t k = 1; k < j->noperands; k++) {
        t->turned[k] = at;
        if (j->turned >> k & 1) at += TILE_ROWS * t->width * j->size[k];
    }
}

/* Columns [c, c + m) of a band of rows, whose elements at column 0 stand at at[]. */
static int run_tile(const map_job *j, char *const *at, int64_t rows, int64_t c, int64_t m,
                    tiles *t) {
    const tn_plan *plan = j->plan;
    const void *in[CPU_MAP_INPUTS];
    for (int32_t k = 1; k < j->noperands; k++) {
        int64_t stride = plan->stride[0][k], size = j->size[k];
        if (j->turned >> k & 1)
            cpu_gather_tile(t->turned[k], t->width * size, at[k] + c * stride, stride, rows, m,
                            j->size[k]);
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int32_t k = 1; k < j->noperands; k++) {
            int64_t stride = plan->stride[0][k];
            const char *x = at[k] + r * plan->stride[j->tile_dim][k] + c * stride;
            in[k - 1] = t->rows.of[k];
            if (j->turned >> k & 1)
                in[k - 1] = t->turned[k] + r * t->width * j->size[k];
            else if (j->mode[k] == PACKED)
                in[k - 1] = x;
            else
                cpu_gather(t->rows.of[k], x, m, stride, j->size[k]);
        }
        char *out = at[0] + r * plan->stride[j->tile_dim][0] + c * j->size[0];
        if (j->op->flat(m, out, in, j->params)) return 1;
    }
    return 0;
}

static int64_t bands_of(const map_job *j) {
    return (j->plan->shape[j->tile_dim] + TILE_ROWS - 1) / TILE_ROWS;
}

/* Item: a band of TILE_ROWS rows along tile_dim at one place of the dimensions beyond. */
static tn_status run_bands(void *arg, int64_t begin, int64_t end) {
    const map_job *j = arg;
    const tn_plan *plan = j->plan;
    tiles t;
    int64_t bands = bands_of(j), n0 = plan->shape[0], n1 = plan->shape[j->tile_dim];
    place_tiles(j, &t);
    for (int64_t item = begin; item < end; item++) {
        int64_t r0 = item % bands * TILE_ROWS, rest = item / bands;
        int64_t rows = n1 - r0 < TILE_ROWS ? n1 - r0 : TILE_ROWS;
        char *at[1 + CPU_MAP_INPUTS];
        for (int32_t k = 0; k < j->noperands; k++)
            at[k] = (char *)plan->data[k] + r0 * plan->stride[j->tile_dim][k];
        for (int32_t d = 1; d < plan->ndim; d++) {
            if (d == j->tile_dim) continue;
            int64_t i = rest % plan->shape[d];
            rest /= plan->shape[d];
            for (int32_t k = 0; k < j->noperands; k++) at[k] += i * plan->stride[d][k];
        }
        for (int64_t c = 0; c < n0; c += t.width)
            if (run_tile(j, at, rows, c, n0 - c < t.width ? n0 - c : t.width, &t))
                return TN_E_VALUE;
    }
    return TN_OK;
}

/* ---- Choosing ----------------------------------------------------------------------------------*/

static void find_modes(map_job *j) {
    const tn_plan *plan = j->plan;
    int packed = 0;
    for (int32_t k = 0; k < j->noperands; k++) {
        int64_t stride = plan->stride[0][k];
        bool constant = true;
        for (int32_t d = 0; d < plan->ndim; d++)
            if (plan->stride[d][k] != 0 && plan->shape[d] > 1) constant = false;
        j->size[k] = k ? j->op->in_size[k - 1] : j->op->out_size;
        if (constant && k) j->constant |= (uint8_t)(1u << k);
        j->mode[k] = stride == j->size[k] ? PACKED : stride == 0 ? SINGLE : STRIDED;
        if (plan->shape[0] == 1) j->mode[k] = PACKED;
        packed += j->mode[k] == PACKED;
    }
    bool others = packed == j->noperands - 1 && j->op->nin == 2;
    if (packed == j->noperands)
        j->direct = j->op->flat;
    else if (others && j->mode[2] == SINGLE)
        j->direct = j->op->scalar_b;
    else if (others && j->mode[1] == SINGLE)
        j->direct = j->op->scalar_a;
}

/* Finds the dimension along which operands are packed that are not along dimension 0. */
static void find_tiles(map_job *j) {
    const tn_plan *plan = j->plan;
    if (j->mode[0] != PACKED || plan->shape[0] < SHORT_ROW) return;
    for (int32_t d = 1; d < plan->ndim && !j->tile_dim; d++) {
        if (plan->shape[d] < 8) continue;
        for (int32_t k = 1; k < j->noperands; k++)
            if (j->mode[k] == STRIDED && plan->stride[d][k] == j->size[k])
                j->turned |= (uint8_t)(1u << k);
        if (j->turned) j->tile_dim = d;
    }
}

/* An output that is also an input has its lines in the cache already. */
static bool should_stream(const map_job *j) {
    const tn_plan *plan = j->plan;
    if (j->mode[0] != PACKED || plan->shape[0] < 2 * BLOCK) return false;
    if ((uint64_t)plan->numel * j->size[0] < cpu_os_l3_bytes() / 2) return false;
    for (int32_t k = 1; k < j->noperands; k++)
        if (plan->data[k] == plan->data[0]) return false;
    return ((uintptr_t)plan->data[0] & 15u) == 0;
}

/* In a fused expression operands are not there: numbers are of the elements' type. */
bool cpu_map_number(const tn_view *operand, cpu_param *ret_number) {
    float number;
    if (!operand || operand->ndim != 0 || !operand->data) return false;
    const void *at = (const char *)operand->data + operand->byte_offset;
    switch (tn_view_dtype(operand)) {
    case TN_F64: number = (float)*(const double *)at; break;
    case TN_F32: number = *(const float *)at; break;
    case TN_I64: number = (float)*(const int64_t *)at; break;
    case TN_I32: number = (float)*(const int32_t *)at; break;
    default: return false;
    }
    memcpy(ret_number, &number, sizeof number);
    return true;
}

tn_status cpu_map_run(const tn_plan *plan, const cpu_map_op *op, const cpu_param *params) {
    map_job j = {.plan = plan, .op = op, .params = params, .noperands = op->nin + 1};
    if (plan->numel == 0) return TN_OK;
    find_modes(&j);
    find_tiles(&j);
    if (j.tile_dim) {
        int64_t n0 = plan->shape[0], rows = plan->numel / n0 / plan->shape[j.tile_dim];
        tn_status st =
            cpu_parallel(bands_of(&j) * rows, op->grain / (TILE_ROWS * n0) + 1, run_bands, &j);
        return st == TN_E_VALUE ? cpu_map_zero_division() : st;
    }
    if (in_panels(&j)) {
        int64_t n0 = plan->shape[0];
        tn_status st = cpu_parallel(plan->numel / n0, op->grain / n0 + 1, run_panels, &j);
        return st == TN_E_VALUE ? cpu_map_zero_division() : st;
    }
    j.stream = should_stream(&j);
    if (j.stream) j.direct = NULL;
    tn_status st = cpu_parallel(plan->numel, op->grain, run_chunk, &j);
    return st == TN_E_VALUE ? cpu_map_zero_division() : st;
}
