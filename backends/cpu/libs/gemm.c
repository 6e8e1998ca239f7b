/* gemm.c: matrix products. Floating and complex ones are cut into tiles that the BLAS computes,
 * each on one thread, but for those that gemm_few.c and gemm_block.c do sooner; half precision goes through f32 copies, or where the
 * processor multiplies bfloat16, through gemm_bf16.c; integers have loops of their own.
 *
 * What the BLAS cannot address (no stride of 1, sizes past 2^31) is packed or refused before any
 * tile runs, so that tiles cannot fail. */
#include "gemm.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "blas.h"
#include "cpu_priv.h"
#include "gemm_priv.h"
#include "gemm_tiles.h"

/* A tile must be worth the handing over, and at most this many are cut. */
#define TILE_MIN_FLOPS 2e6
#define TILE_MAX_COUNT 16
/* Longer tiles would make interrupts wait. */
#define TILE_MAX_FLOPS 4e9
/* Narrow tiles would pack an operand that they hardly use. */
#define TILE_MIN_SIDE 64
/* A half precision operand that meets at most this many rows becomes f32 panel by panel. */
#define HALF_FEW_ROWS 32
/* Work of one chunk of a batch. */
#define BATCH_CHUNK_FLOPS 4e5

/* ---- The BLAS on one tile ---------------------------------------------------------------------*/

/* How the BLAS sees an operand: its leading dimension, and whether it is stored transposed. */
typedef struct layout {
    int trans;
    int ld;
} layout;

typedef struct plan {
    const gemm_args *g;
    layout a, b;
    int ldc;
    int64_t item;
    int64_t gm, gn; /* tiles by rows and columns */
    int64_t batch_chunk;
} plan;

/* Fits a (rows, cols) matrix with these strides to the BLAS; 0 when it must be packed. */
static int layout_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs, layout *ret) {
    if ((cols == 1 || cs == 1) && (rows == 1 || rs >= cols) && rs <= INT_MAX) {
        ret->trans = 0;
        ret->ld = rows == 1 ? (int)cols : (int)rs;
        return ret->ld >= 1;
    }
    if ((rows == 1 || rs == 1) && (cols == 1 || cs >= rows) && cs <= INT_MAX) {
        ret->trans = 1;
        ret->ld = cols == 1 ? (int)rows : (int)cs;
        return ret->ld >= 1;
    }
    return 0;
}

static int blas_trans(int trans) { return trans ? BLAS_TRANS : BLAS_PLAIN; }

void cpu_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    BLAS(cblas_sgemm)
    (BLAS_ROWS, blas_trans(ta), blas_trans(tb), (int)m, (int)n, (int)k, alpha, a, (int)lda, b,
     (int)ldb, beta, c, (int)ldc);
}

void cpu_dgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a,
               int64_t lda, const double *b, int64_t ldb, double beta, double *c, int64_t ldc) {
    BLAS(cblas_dgemm)
    (BLAS_ROWS, blas_trans(ta), blas_trans(tb), (int)m, (int)n, (int)k, alpha, a, (int)lda, b,
     (int)ldb, beta, c, (int)ldc);
}

/* A product with one column: y = alpha * op(A) x + beta * y. A y that is not read may hold NaN,
 * which not every BLAS clears by a multiplication with zero, or makes by one with NaN. */
static void run_gemv(int32_t dtype, layout a, int m, int k, double alpha, const void *av,
                     const void *x, int64_t incx, double beta, void *y, int64_t incy) {
    int rows = a.trans ? k : m, cols = a.trans ? m : k;
    for (int64_t i = 0; (beta == 0.0 || isnan(beta)) && i < m; i++) {
        if (dtype == TN_F32) {
            ((float *)y)[i * incy] = (float)beta;
        } else {
            ((double *)y)[i * incy] = beta;
        }
    }
    if (isnan(beta)) beta = 1.0;
    if (dtype == TN_F32) {
        BLAS(cblas_sgemv)
        (BLAS_ROWS, blas_trans(a.trans), rows, cols, (float)alpha, av, a.ld, x, (int)incx,
         (float)beta, y, (int)incy);
    } else {
        BLAS(cblas_dgemv)
        (BLAS_ROWS, blas_trans(a.trans), rows, cols, alpha, av, a.ld, x, (int)incx, beta, y,
         (int)incy);
    }
}

static void run_complex(const plan *p, int m, int n, const void *a, const void *b, void *c) {
    const gemm_args *g = p->g;
    int ta = blas_trans(p->a.trans), tb = blas_trans(p->b.trans), k = (int)g->k;
    if (g->dtype == TN_C64) {
        float alpha[2] = {(float)g->alpha.re, (float)g->alpha.im};
        float beta[2] = {(float)g->beta.re, (float)g->beta.im};
        BLAS(cblas_cgemm)
        (BLAS_ROWS, ta, tb, m, n, k, alpha, a, p->a.ld, b, p->b.ld, beta, c, p->ldc);
    } else {
        double alpha[2] = {g->alpha.re, g->alpha.im}, beta[2] = {g->beta.re, g->beta.im};
        BLAS(cblas_zgemm)
        (BLAS_ROWS, ta, tb, m, n, k, alpha, a, p->a.ld, b, p->b.ld, beta, c, p->ldc);
    }
}

/* Puts init into rows [i0, i1) x columns [j0, j1) of the result. */
static void fill_init(const gemm_args *g, int64_t item, int64_t e, int64_t i0, int64_t i1,
                      int64_t j0, int64_t j1) {
    const char *src = (const char *)g->init.data + item * e * g->init.bs;
    char *dst = (char *)g->c + item * e * g->c_bs;
    for (int64_t i = i0; i < i1; i++) {
        const char *s = src + item * (i * g->init.rs + j0 * g->init.cs);
        char *d = dst + item * (i * g->c_rs + j0 * g->c_cs);
        if (g->init.cs == 1 && g->c_cs == 1) {
            memcpy(d, s, (size_t)((j1 - j0) * item));
        } else {
            cpu_row_copy(item, s, g->init.cs, d, g->c_cs, j1 - j0);
        }
    }
}

/* Rows [i0, i1) and columns [j0, j1) of batch entry e. */
static void run_tile(const plan *p, int64_t e, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    const gemm_args *g = p->g;
    int64_t item = p->item;
    if (g->init.data) fill_init(g, item, e, i0, i1, j0, j1);
    const char *a = (const char *)g->a.data + item * (e * g->a.bs + i0 * g->a.rs);
    const char *b = (const char *)g->b.data + item * (e * g->b.bs + j0 * g->b.cs);
    char *c = (char *)g->c + item * (e * g->c_bs + i0 * g->c_rs + j0);
    int m = (int)(i1 - i0), n = (int)(j1 - j0), k = (int)g->k;
    if (g->dtype == TN_C64 || g->dtype == TN_C128) {
        run_complex(p, m, n, a, b, c);
    } else if (n == 1 && k > 0 && g->b.rs >= 1 && g->b.rs <= INT_MAX) {
        run_gemv(g->dtype, p->a, m, k, g->alpha.re, a, b, g->b.rs, g->beta.re, c, p->ldc);
    } else if (m == 1 && k > 0 && g->a.cs >= 1 && g->a.cs <= INT_MAX) {
        layout bt = {!p->b.trans, p->b.ld};
        run_gemv(g->dtype, bt, n, k, g->alpha.re, b, a, g->a.cs, g->beta.re, c, 1);
    } else if (g->dtype == TN_F32) {
        cpu_sgemm(p->a.trans, p->b.trans, m, n, k, (float)g->alpha.re,
                  (const float *)(const void *)a, p->a.ld, (const float *)(const void *)b, p->b.ld,
                  (float)g->beta.re, (float *)(void *)c, p->ldc);
    } else {
        cpu_dgemm(p->a.trans, p->b.trans, m, n, k, g->alpha.re, (const double *)(const void *)a,
                  p->a.ld, (const double *)(const void *)b, p->b.ld, g->beta.re,
                  (double *)(void *)c, p->ldc);
    }
}

/* ---- The grid ---------------------------------------------------------------------------------*/

static int64_t cut(int64_t size, int64_t parts, int64_t i) {
    int64_t at = size * i / parts;
    return i == parts ? size : at - at % 16; /* whole vectors, except at the end */
}

static void choose_grid(plan *p) {
    const gemm_args *g = p->g;
    bool is_complex = g->dtype == TN_C64 || g->dtype == TN_C128;
    double flops = (is_complex ? 8.0 : 2.0) * (double)g->m * (double)g->n * (double)g->k;
    p->gm = p->gn = 1;
    double chunk = flops > 0 ? BATCH_CHUNK_FLOPS / flops : BATCH_CHUNK_FLOPS;
    p->batch_chunk = chunk < 1 ? 1 : chunk > (double)g->batch ? g->batch : (int64_t)chunk;
    for (;;) {
        double tiles = (double)(p->gm * p->gn);
        bool few = tiles * (double)g->batch < TILE_MAX_COUNT && flops / tiles >= 2 * TILE_MIN_FLOPS;
        if (!few && flops / tiles <= TILE_MAX_FLOPS) break;
        int64_t rows = g->m / p->gm, cols = g->n / p->gn;
        if ((rows > cols ? rows : cols) < 2 * TILE_MIN_SIDE) break;
        if (rows > cols) {
            p->gm *= 2;
        } else {
            p->gn *= 2;
        }
    }
    if (p->gm * p->gn > 1) p->batch_chunk = 1;
}

static tn_status run_chunk(void *arg, int64_t begin, int64_t end) {
    const plan *p = arg;
    const gemm_args *g = p->g;
    int64_t tiles = p->gm * p->gn;
    tn_status st = cpu_blas_enter();
    if (st != TN_OK) return st;
    for (int64_t t = begin; t < end; t++) {
        int64_t e = t / tiles, i = t % tiles / p->gn, j = t % p->gn;
        run_tile(p, e, cut(g->m, p->gm, i), cut(g->m, p->gm, i + 1), cut(g->n, p->gn, j),
                 cut(g->n, p->gn, j + 1));
    }
    cpu_blas_leave();
    return TN_OK;
}

/* Every size and leading dimension fits the BLAS here. */
static tn_status run_blas(const gemm_args *g, layout a, layout b) {
    plan p = {.g = g, .a = a, .b = b, .item = cpu_row_item(g->dtype)};
    p.ldc = g->m == 1 ? (int)g->n : (int)g->c_rs;
    choose_grid(&p);
    int64_t n = g->batch * p.gm * p.gn;
    if (n <= p.batch_chunk) return run_chunk(&p, 0, n);
    return cpu_parallel(n, p.batch_chunk, run_chunk, &p);
}

/* ---- Making operands fit ----------------------------------------------------------------------*/

int gemm_across(const gemm_mat *mat, int64_t rows, int64_t cols) {
    return rows > 1 && cols > 1 && mat->cs != 1 && (mat->rs == 1 || mat->rs < mat->cs);
}

typedef struct pack_job {
    const char *from;
    char *to;
    int32_t dtype, work;
    int64_t lines, length; /* of a matrix: rows, or columns where those are packed in memory */
    int64_t down, along;   /* strides from line to line and along one */
    int64_t bs;
} pack_job;

static tn_status pack_lines(void *arg, int64_t begin, int64_t end) {
    const pack_job *j = arg;
    int64_t item = cpu_row_item(j->dtype), line = cpu_row_item(j->work) * j->length;
    for (int64_t i = begin; i < end; i++) {
        const char *s = j->from + item * (i / j->lines * j->bs + i % j->lines * j->down);
        cpu_row_convert(j->dtype, s, j->along, j->work, j->to + i * line, 1, j->length);
    }
    return TN_OK;
}

/* Copies a batch of (rows, cols) matrices into packed ones of dtype `work`, rows after rows, or
 * columns after columns where that is how they lie in memory. */
static tn_status pack(const tn_call *call, int32_t dtype, int32_t work, int64_t batch, int64_t rows,
                      int64_t cols, gemm_mat *mat) {
    int64_t e = mat->bs == 0 ? 1 : batch, to = cpu_row_item(work);
    int across = gemm_across(mat, rows, cols);
    pack_job j = {.from = mat->data, .dtype = dtype, .work = work, .bs = mat->bs};
    void *dst;
    tn_status st = room_scratch(call, room_mul3(e, rows, cols), (size_t)to, &dst);
    if (st) return st;
    j.to = dst;
    j.lines = across ? cols : rows;
    j.length = across ? rows : cols;
    j.down = across ? mat->cs : mat->rs;
    j.along = across ? mat->rs : mat->cs;
    mat->data = dst;
    mat->rs = across ? 1 : cols;
    mat->cs = across ? rows : 1;
    mat->bs = mat->bs == 0 ? 0 : rows * cols;
    return cpu_parallel(e * j.lines, 1 + 32768 / (j.length + 1), pack_lines, &j);
}

/* Computes in a packed C of dtype `work` and copies the result out. */
static tn_status run_through(const tn_call *call, const gemm_args *g, int32_t work) {
    gemm_args t = *g;
    int64_t from = cpu_row_item(work), to = cpu_row_item(g->dtype);
    void *c;
    tn_status st = room_scratch(call, room_mul3(g->batch, g->m, g->n), (size_t)from, &c);
    if (st) return st;
    gemm_mat init = g->init;
    if (!init.data && (g->beta.re != 0.0 || g->beta.im != 0.0)) {
        init = (gemm_mat){g->c, g->c_rs, g->c_cs, g->c_bs};
    }
    t.dtype = work;
    if (work != g->dtype) {
        st = pack(call, g->dtype, work, g->batch, g->m, g->k, &t.a);
        if (!st) st = pack(call, g->dtype, work, g->batch, g->k, g->n, &t.b);
        if (!st && init.data) st = pack(call, g->dtype, work, g->batch, g->m, g->n, &init);
        if (st) return st;
    }
    t.init = init;
    t.c = c;
    t.c_rs = g->n;
    t.c_cs = 1;
    t.c_bs = g->m * g->n;
    st = cpu_gemm(call, &t);
    if (st) return st;
    for (int64_t i = 0; i < g->batch * g->m; i++) {
        char *d = (char *)g->c + to * (i / g->m * g->c_bs + i % g->m * g->c_rs);
        cpu_row_convert(work, (char *)c + i * g->n * from, 1, g->dtype, d, g->c_cs, g->n);
    }
    return TN_OK;
}

static tn_status run_half(const tn_call *call, const gemm_args *g) {
    bool shared = g->b.bs == 0 && g->batch > 1; /* converted once, for all entries */
    if (g->n < g->m && g->n <= HALF_FEW_ROWS) {
        gemm_args t = gemm_transposed(g);
        return run_half(call, &t);
    }
    if (cpu_gemm_has_bf16(g)) return cpu_gemm_bf16(call, g);
    if (g->m > HALF_FEW_ROWS || shared || g->k == 0 || g->k > INT_MAX) {
        return run_through(call, g, TN_F32);
    }
    gemm_mat a = g->a;
    tn_status st = pack(call, g->dtype, TN_F32, g->batch, g->m, g->k, &a);
    return st ? st : cpu_gemm_half(g, &a);
}

/* ---- Tiny products ----------------------------------------------------------------------------*/

/* Of few multiplications, in about the time in which the BLAS looks at its arguments. */
enum { TINY = 32 };

static bool is_tiny(const gemm_args *g) {
    bool plain = g->alpha.re == 1.0 && g->beta.re == 0.0 && !g->init.data;
    return plain && (g->dtype == TN_F32 || g->dtype == TN_F64) && g->k > 0 &&
           room_mul3(g->m, g->n, g->k) <= TINY;
}

#define TINY_T float
#define TINY_NAME tiny_f32
#include "gemm_tiny_tmpl.h"
#define TINY_T double
#define TINY_NAME tiny_f64
#include "gemm_tiny_tmpl.h"

static tn_status tiny_chunk(void *arg, int64_t begin, int64_t end) {
    const gemm_args *g = arg;
    for (int64_t e = begin; e < end; e++) {
        if (g->dtype == TN_F32)
            tiny_f32(g, e);
        else
            tiny_f64(g, e);
    }
    return TN_OK;
}

static gemm_int_fn *gemm_int = cpu_gemm_int_baseline;

tn_status cpu_gemm(const tn_call *call, const gemm_args *g) {
    if (g->m == 0 || g->n == 0 || g->batch == 0) return TN_OK;
    if (g->dtype < TN_F16) return gemm_int(g);
    if (g->dtype == TN_F16 || g->dtype == TN_BF16) return run_half(call, g);
    if (is_tiny(g)) {
        gemm_args tiny = *g;
        return cpu_parallel(g->batch, 512, tiny_chunk, &tiny);
    }
    if (cpu_gemm_has_few(g)) return cpu_gemm_few(g);
    if (g->n < g->m) {
        gemm_args t = gemm_transposed(g);
        if (cpu_gemm_has_few(&t)) return cpu_gemm_few(&t);
    }
    if (g->m > INT_MAX || g->n > INT_MAX || g->k > INT_MAX) {
        return call->host->fail(TN_E_VALUE, -1, "matrix sizes must be below 2^31");
    }
    if (cpu_gemm_has_block(g)) return cpu_gemm_block(g);
    if (g->c_cs != 1 && g->n > 1 && (g->c_rs == 1 || g->m == 1)) {
        gemm_args t = gemm_transposed(g);
        return cpu_gemm(call, &t);
    }
    int fits =
        (g->c_cs == 1 || g->n == 1) && (g->m == 1 || (g->c_rs >= g->n && g->c_rs <= INT_MAX));
    if (!fits) return run_through(call, g, g->dtype);
    gemm_args t = *g;
    t.c_cs = 1;
    if (g->k == 0) {
        /* The BLAS still scales C, whatever the operands are. */
        t.a = t.b = (gemm_mat){g->c, 1, 1, 0};
        t.alpha.re = t.alpha.im = 0.0;
        return run_blas(&t, (layout){0, 1}, (layout){0, (int)g->n});
    }
    layout a, b;
    tn_status st = TN_OK;
    if (!layout_of(g->m, g->k, g->a.rs, g->a.cs, &a)) {
        st = pack(call, g->dtype, g->dtype, g->batch, g->m, g->k, &t.a);
        layout_of(g->m, g->k, t.a.rs, t.a.cs, &a);
    }
    if (!st && !layout_of(g->k, g->n, g->b.rs, g->b.cs, &b)) {
        st = pack(call, g->dtype, g->dtype, g->batch, g->k, g->n, &t.b);
        layout_of(g->k, g->n, t.b.rs, t.b.cs, &b);
    }
    return st ? st : run_blas(&t, a, b);
}

void cpu_blas_init(void) {
    BLAS(openblas_set_num_threads)(1);
    cpu_blas_room_init();
    cpu_row_init(cpu_isa_pick());
    cpu_gemm_tiles_init(cpu_isa_pick());
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
    if (cpu_isa_pick() == CPU_ISA_AVX2) gemm_int = cpu_gemm_int_avx2;
    if (cpu_isa_pick() == CPU_ISA_AVX512) gemm_int = cpu_gemm_int_avx512;
#endif
}

const char *cpu_blas_core(void) { return BLAS(openblas_get_corename)(); }

/* Whether the core is one without fused multiply-adds. */
static bool is_old_core(const char *core) {
    static const char *const old[] = {"Prescott", "Core2",   "Penryn",       "Dunnington",
                                      "Nehalem",  "Opteron", "Opteron_SSE3", "Barcelona",
                                      "Bobcat",   "Atom",    "Nano",         "Generic",
                                      "Athlon",   "Katmai",  "Sandybridge"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcmp(core, old[i]) == 0) return true;
    return false;
}

/* OpenBLAS may take a processor that is newer than itself for an old one, and variables forgotten in
 * a shell's profile may have it do so. */
void cpu_blas_warn(void) {
    const char *told = cpu_os_getenv("OPENBLAS_CORETYPE"),
               *cache = cpu_os_getenv("OPENBLAS_L2_SIZE");
    if (cache && *cache)
        cpu_host->log(2,
                      "OPENBLAS_L2_SIZE=%s is set: OpenBLAS may cut products for another processor",
                      cache);
    if (cpu_os_isa() < CPU_ISA_AVX2 || !is_old_core(cpu_blas_core())) return;
    if (told && *told)
        cpu_host->log(2,
                      "OPENBLAS_CORETYPE=%s is set: OpenBLAS runs as on a %s, so that products are "
                      "several times slower",
                      told, cpu_blas_core());
    else
        cpu_host->log(
            2,
            "OpenBLAS takes this processor for a %s, so that products are several times "
            "slower; a newer OpenBLAS knows it, and OPENBLAS_CORETYPE=Haswell or SkylakeX "
            "tells it",
            cpu_blas_core());
}
