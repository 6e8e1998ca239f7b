/* gemm_few.c: products of few rows by a matrix, as layers make of a small batch and recurrent networks at
 * every step. A BLAS copies the matrix into panels first, which takes as long as a few rows'
 * multiplications; here it is read as it lies, once from memory.
 *
 * Where its columns are packed, as those of a layer's weight, a row and a column are multiplied vector by
 * vector along the sum; where its rows are, each element of a row of A meets whole vectors of B's row. A tile
 * of sums stays in registers meanwhile. Each sum runs in an order that follows from the sizes
 * alone. The limit is the rate of multiply-adds, or for less than some four rows that of memory. */
#include "common/tmpl.h"
#include "cpu_priv.h"
#include "gemm_priv.h"

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#include <immintrin.h>

/* Rows at most; the same of narrow tiles along rows; columns and length of the sum at least. */
enum { FEW_MOST = 64, FEW_NARROW = 8, FEW_SIDE = 16 };
enum { SMALL = 1 << 16 }; /* elements of a B that OpenBLAS's kernels for AVX-512 read as it lies */
enum { DOT_COLS = 4, DOT_DEEP = 1024, VECTORS = 3 };

/* Rows of the tile at row i: as many as fit into `most`, but so that the last tiles are alike. */
static inline int few_rows(int64_t m, int64_t i, int most) {
    int64_t left = m - i, tiles = (left + most - 1) / most;
    return (int)((left + tiles - 1) / tiles);
}

#define AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,fma")))
#define AVX2 __attribute__((target("avx2,fma")))

/* Adds the sums of four vectors to four elements: pairs of lanes first, so that four sums share the additions. */
AVX2 static inline void add_sums_f32(__m256 a, __m256 b, __m256 c, __m256 d, float *to) {
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    __m256 all = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    __m128 sums = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), sums));
}
AVX2 static inline void add_sums_f64(__m256d a, __m256d b, __m256d c, __m256d d, double *to) {
    __m256d ab = _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
    __m256d cd = _mm256_add_pd(_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
    __m256d lo = _mm256_permute2f128_pd(ab, cd, 0x20), hi = _mm256_permute2f128_pd(ab, cd, 0x31);
    _mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), _mm256_add_pd(lo, hi)));
}
AVX512 static inline __m256 half_f32(__m512 v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
AVX512 static inline __m256d half_f64(__m512d v) {
    return _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
}
AVX2 static inline __m256i first_32(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
AVX2 static inline __m256i first_64(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

#define FEW_T float
#define FEW(name) name##_f32_avx512
#define FEW_TARGET AVX512
#define FEW_V __m512
#define FEW_LANES 16
#define FEW_LOAD(p) _mm512_loadu_ps(p)
#define FEW_LOAD_N(p, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define FEW_ALL(x) _mm512_set1_ps(x)
#define FEW_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FEW_STORE(p, v) _mm512_storeu_ps(p, v)
#define FEW_ADD_SUMS(a, b, c, d, to)                                                               \
    add_sums_f32(half_f32(a), half_f32(b), half_f32(c), half_f32(d), to)
#define FEW_DOT_ROWS 6
#define FEW_ROWS 8
#include "gemm_few_tmpl.h"

#define FEW_T double
#define FEW(name) name##_f64_avx512
#define FEW_TARGET AVX512
#define FEW_V __m512d
#define FEW_LANES 8
#define FEW_LOAD(p) _mm512_loadu_pd(p)
#define FEW_LOAD_N(p, n) _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define FEW_ALL(x) _mm512_set1_pd(x)
#define FEW_FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define FEW_STORE(p, v) _mm512_storeu_pd(p, v)
#define FEW_ADD_SUMS(a, b, c, d, to)                                                               \
    add_sums_f64(half_f64(a), half_f64(b), half_f64(c), half_f64(d), to)
#define FEW_DOT_ROWS 6
#define FEW_ROWS 8
#include "gemm_few_tmpl.h"

#define FEW_T float
#define FEW(name) name##_f32_avx2
#define FEW_TARGET AVX2
#define FEW_V __m256
#define FEW_LANES 8
#define FEW_LOAD(p) _mm256_loadu_ps(p)
#define FEW_LOAD_N(p, n) _mm256_maskload_ps(p, first_32(n))
#define FEW_ALL(x) _mm256_set1_ps(x)
#define FEW_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FEW_STORE(p, v) _mm256_storeu_ps(p, v)
#define FEW_ADD_SUMS(a, b, c, d, to) add_sums_f32(a, b, c, d, to)
#define FEW_DOT_ROWS 3
#define FEW_ROWS 4
#include "gemm_few_tmpl.h"

#define FEW_T double
#define FEW(name) name##_f64_avx2
#define FEW_TARGET AVX2
#define FEW_V __m256d
#define FEW_LANES 4
#define FEW_LOAD(p) _mm256_loadu_pd(p)
#define FEW_LOAD_N(p, n) _mm256_maskload_pd(p, first_64(n))
#define FEW_ALL(x) _mm256_set1_pd(x)
#define FEW_FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define FEW_STORE(p, v) _mm256_storeu_pd(p, v)
#define FEW_ADD_SUMS(a, b, c, d, to) add_sums_f64(a, b, c, d, to)
#define FEW_DOT_ROWS 3
#define FEW_ROWS 4
#include "gemm_few_tmpl.h"

/* ---- Which of them ----------------------------------------------------------------------------*/

static cpu_isa isa;

void cpu_gemm_few_init(cpu_isa picked) { isa = picked; }

typedef void (*columns_fn)(const gemm_args *g, int64_t e, int64_t j, int64_t n);

typedef struct job {
    const gemm_args *g;
    columns_fn run;
    int64_t width, groups; /* columns of a group, groups of an entry */
} job;

static tn_status run_groups(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const gemm_args *g = j->g;
    cpu_stretch s = {.n = end - begin, .cost = room_mul3(g->m, g->k, j->width) / 8};
    while (cpu_next_stretch(&s)) {
        for (int64_t t = begin + s.begin; t < begin + s.end; t++) {
            int64_t at = t % j->groups * j->width, left = g->n - at;
            j->run(g, t / j->groups, at, left < j->width ? left : j->width);
        }
    }
    return s.st;
}

static bool has_dots(const gemm_args *g) { return g->b.rs == 1 && g->b.cs >= g->k; }

/* Where these tiles were faster than OpenBLAS, measured on Zen 4. Its kernels for AVX-512 do not pack what is
 * small. The sums across vectors at the end of a dot must be few beside the dot. Narrow tiles
 * would read rows of B, each in a page of its own, too often. */
bool cpu_gemm_has_few(const gemm_args *g) {
    bool real = g->dtype == TN_F32 || g->dtype == TN_F64, wide = isa == CPU_ISA_AVX512;
    if (!real || isa < CPU_ISA_AVX2 || g->m < 2 || g->m > FEW_MOST) return false;
    if (g->n < FEW_SIDE || g->k < FEW_SIDE) return false;
    bool small = room_mul(g->n, g->k) <= SMALL && room_mul3(g->m, g->n, g->k) <= 8 * SMALL;
    if (wide && small) return false;
    if (has_dots(g)) return g->a.cs == 1 && 4 * g->m < g->k;
    return g->b.cs == 1 && (wide || g->m <= FEW_NARROW);
}

tn_status cpu_gemm_few(const gemm_args *g) {
    static const columns_fn fns[2][2][2] = {
        {{row_columns_f32_avx2, row_columns_f32_avx512},
         {dot_columns_f32_avx2, dot_columns_f32_avx512}},
        {{row_columns_f64_avx2, row_columns_f64_avx512},
         {dot_columns_f64_avx2, dot_columns_f64_avx512}},
    };
    bool wide = isa == CPU_ISA_AVX512, dots = has_dots(g), is_double = g->dtype == TN_F64;
    job j = {.g = g, .run = fns[is_double][dots][wide]};
    int64_t lanes = (wide ? 64 : 32) / (is_double ? 8 : 4);
    j.width = dots ? DOT_COLS : VECTORS * lanes;
    j.groups = (g->n + j.width - 1) / j.width;
    double work = (double)g->m * (double)g->k * (double)j.width;
    return cpu_parallel(room_mul(g->batch, j.groups), 1 + (int64_t)(2e5 / work), run_groups, &j);
}
#else
void cpu_gemm_few_init(cpu_isa picked) { (void)picked; }

bool cpu_gemm_has_few(const gemm_args *g) {
    (void)g;
    return false;
}

tn_status cpu_gemm_few(const gemm_args *g) {
    (void)g;
    return TN_E_UNSUPPORTED;
}
#endif
