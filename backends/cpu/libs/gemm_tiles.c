/* gemm_tiles.c: the tiles of a matrix product for each element type and instruction set. A tile of sums
 * stays in registers while a row and a column, or rows of both, pass by. */
#include "gemm_tiles.h"

#include "common/tmpl.h"

#include "copy.h"
#include "gemm_priv.h"

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#include <immintrin.h>

enum { DOT_COLS = TILE_DOT_COLS, DOT_DEEP = 1024, VECTORS = TILE_VECTORS };

/* Rows of the tile at row i: as many as fit into `most`, but so that the last tiles are alike. */
static inline int tile_rows(int64_t m, int64_t i, int most) {
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

#define TILE_T float
#define TILE(name) name##_f32_avx512
#define TILE_TARGET AVX512
#define TILE_V __m512
#define TILE_LANES 16
#define TILE_LOAD(p) _mm512_loadu_ps(p)
#define TILE_LOAD_N(p, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define TILE_ALL(x) _mm512_set1_ps(x)
#define TILE_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define TILE_STORE(p, v) _mm512_storeu_ps(p, v)
#define TILE_ADD_SUMS(a, b, c, d, to)                                                              \
    add_sums_f32(half_f32(a), half_f32(b), half_f32(c), half_f32(d), to)
#define TILE_DOT_ROWS 6
#define TILE_ROWS 8
#define TILE_BLOCK
#include "gemm_tile_tmpl.h"

#define TILE_T double
#define TILE(name) name##_f64_avx512
#define TILE_TARGET AVX512
#define TILE_V __m512d
#define TILE_LANES 8
#define TILE_LOAD(p) _mm512_loadu_pd(p)
#define TILE_LOAD_N(p, n) _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define TILE_ALL(x) _mm512_set1_pd(x)
#define TILE_FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define TILE_STORE(p, v) _mm512_storeu_pd(p, v)
#define TILE_ADD_SUMS(a, b, c, d, to)                                                              \
    add_sums_f64(half_f64(a), half_f64(b), half_f64(c), half_f64(d), to)
#define TILE_DOT_ROWS 6
#define TILE_ROWS 8
#define TILE_BLOCK
#include "gemm_tile_tmpl.h"

#define TILE_T float
#define TILE(name) name##_f32_avx2
#define TILE_TARGET AVX2
#define TILE_V __m256
#define TILE_LANES 8
#define TILE_LOAD(p) _mm256_loadu_ps(p)
#define TILE_LOAD_N(p, n) _mm256_maskload_ps(p, first_32(n))
#define TILE_ALL(x) _mm256_set1_ps(x)
#define TILE_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define TILE_STORE(p, v) _mm256_storeu_ps(p, v)
#define TILE_ADD_SUMS(a, b, c, d, to) add_sums_f32(a, b, c, d, to)
#define TILE_DOT_ROWS 3
#define TILE_ROWS 4
#include "gemm_tile_tmpl.h"

#define TILE_T double
#define TILE(name) name##_f64_avx2
#define TILE_TARGET AVX2
#define TILE_V __m256d
#define TILE_LANES 4
#define TILE_LOAD(p) _mm256_loadu_pd(p)
#define TILE_LOAD_N(p, n) _mm256_maskload_pd(p, first_64(n))
#define TILE_ALL(x) _mm256_set1_pd(x)
#define TILE_FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define TILE_STORE(p, v) _mm256_storeu_pd(p, v)
#define TILE_ADD_SUMS(a, b, c, d, to) add_sums_f64(a, b, c, d, to)
#define TILE_DOT_ROWS 3
#define TILE_ROWS 4
#include "gemm_tile_tmpl.h"

static cpu_isa isa;

void cpu_gemm_tiles_init(cpu_isa picked) { isa = picked; }

const gemm_tiles *cpu_gemm_tiles(int32_t dtype) {
    static const gemm_tiles narrow[2] = {
        {row_columns_f32_avx2, dot_columns_f32_avx2, NULL, NULL, 8, 4},
        {row_columns_f64_avx2, dot_columns_f64_avx2, NULL, NULL, 4, 4},
    };
    static const gemm_tiles wide[2] = {
        {row_columns_f32_avx512, dot_columns_f32_avx512, block_tile_f32_avx512,
         pack_rows_f32_avx512, 16, 8},
        {row_columns_f64_avx512, dot_columns_f64_avx512, block_tile_f64_avx512,
         pack_rows_f64_avx512, 8, 8},
    };
    if (isa < CPU_ISA_AVX2 || (dtype != TN_F32 && dtype != TN_F64)) return NULL;
    return isa == CPU_ISA_AVX512 ? &wide[dtype == TN_F64] : &narrow[dtype == TN_F64];
}
#else
void cpu_gemm_tiles_init(cpu_isa picked) { (void)picked; }

const gemm_tiles *cpu_gemm_tiles(int32_t dtype) {
    (void)dtype;
    return NULL;
}
#endif
