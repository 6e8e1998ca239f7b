/* transpose.c: moves a rectangle between memory that is packed along the one dimension and memory
 * that is packed along the other. Compiled per instruction set: with AVX-512 squares of 64 bytes by
 * 64 bytes turn around in registers, so that each cache line is touched once; strides that are
 * powers of two would otherwise drive the lines of a square out of the first cache. With AVX2 their
 * quarters do, and each cache line is touched twice.
 *
 * isa: each */
#include "copy.h"

#include <string.h>

#include "common/tmpl.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX2__)
TMPL_INLINE void quarter32(char *dst, int64_t ds, const char *src, int64_t ss) {
    __m256 row[8], pair[8], four[8];
    for (int i = 0; i < 8; i++)
        row[i] = _mm256_loadu_ps((const float *)(const void *)(src + i * ss));
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            __m256d a = _mm256_castps_pd(pair[i + k]), b = _mm256_castps_pd(pair[i + k + 2]);
            four[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            four[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        float *low = (float *)(void *)(dst + i * ds), *high = (float *)(void *)(dst + (i + 4) * ds);
        _mm256_storeu_ps(low, _mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
        _mm256_storeu_ps(high, _mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
    }
}

TMPL_INLINE void quarter64(char *dst, int64_t ds, const char *src, int64_t ss) {
    __m256d row[4], pair[4];
    for (int i = 0; i < 4; i++)
        row[i] = _mm256_loadu_pd((const double *)(const void *)(src + i * ss));
    for (int i = 0; i < 4; i += 2) {
        pair[i] = _mm256_unpacklo_pd(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_pd(row[i], row[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        double *low = (double *)(void *)(dst + i * ds),
               *high = (double *)(void *)(dst + (i + 2) * ds);
        _mm256_storeu_pd(low, _mm256_permute2f128_pd(pair[i], pair[i + 2], 0x20));
        _mm256_storeu_pd(high, _mm256_permute2f128_pd(pair[i], pair[i + 2], 0x31));
    }
}

/* 4 rows of 4 items. */
TMPL_INLINE void eighth32(char *dst, int64_t ds, const char *src, int64_t ss) {
    __m128 row[4];
    for (int i = 0; i < 4; i++) row[i] = _mm_loadu_ps((const float *)(const void *)(src + i * ss));
    _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
    for (int i = 0; i < 4; i++) _mm_storeu_ps((float *)(void *)(dst + i * ds), row[i]);
}
#endif

#if defined(__AVX512F__)
/* Step `s` of turning a square of 16 items of 4 bytes around: exchanges the upper right with the
 * lower left quarter in each square of 2 * s items. */
TMPL_INLINE void exchange32(__m512i *row, int s) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 odd = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(s));
    const __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(16 - s));
    const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(s)), odd,
                                               lane, _mm512_set1_epi32(16));
    for (int i = 0; i < 16; i++) {
        if (i & s) continue;
        __m512i a = row[i], b = row[i + s];
        row[i] = _mm512_permutex2var_epi32(a, low, b);
        row[i + s] = _mm512_permutex2var_epi32(a, high, b);
    }
}

TMPL_INLINE void exchange64(__m512i *row, int s) {
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __mmask8 odd = _mm512_test_epi64_mask(lane, _mm512_set1_epi64(s));
    const __m512i low = _mm512_mask_add_epi64(lane, odd, lane, _mm512_set1_epi64(8 - s));
    const __m512i high = _mm512_mask_add_epi64(_mm512_add_epi64(lane, _mm512_set1_epi64(s)), odd,
                                               lane, _mm512_set1_epi64(8));
    for (int i = 0; i < 8; i++) {
        if (i & s) continue;
        __m512i a = row[i], b = row[i + s];
        row[i] = _mm512_permutex2var_epi64(a, low, b);
        row[i + s] = _mm512_permutex2var_epi64(a, high, b);
    }
}

static void square32(char *dst, int64_t ds, const char *src, int64_t ss) {
    __m512i row[16];
    for (int i = 0; i < 16; i++) row[i] = _mm512_loadu_si512(src + i * ss);
    exchange32(row, 8);
    exchange32(row, 4);
    exchange32(row, 2);
    exchange32(row, 1);
    for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + i * ds, row[i]);
}

static void square64(char *dst, int64_t ds, const char *src, int64_t ss) {
    __m512i row[8];
    for (int i = 0; i < 8; i++) row[i] = _mm512_loadu_si512(src + i * ss);
    exchange64(row, 4);
    exchange64(row, 2);
    exchange64(row, 1);
    for (int i = 0; i < 8; i++) _mm512_storeu_si512(dst + i * ds, row[i]);
}
#elif defined(__AVX2__)
static void square32(char *dst, int64_t ds, const char *src, int64_t ss) {
    for (int c = 0; c < 16; c += 8)
        for (int r = 0; r < 16; r += 8)
            quarter32(dst + r * ds + c * 4, ds, src + r * 4 + c * ss, ss);
}

static void square64(char *dst, int64_t ds, const char *src, int64_t ss) {
    for (int c = 0; c < 8; c += 4)
        for (int r = 0; r < 8; r += 4)
            quarter64(dst + r * ds + c * 8, ds, src + r * 8 + c * ss, ss);
}
#endif

#if defined(__AVX2__)
/* The part of a rectangle that is no square which squares of `side` cover. */
static void corner(char *dst, int64_t ds, const char *src, int64_t ss, int64_t rows, int64_t cols,
                   int32_t size, int64_t side) {
    for (int64_t r = 0; r < rows; r += side) {
        for (int64_t c = 0; c < cols; c += side) {
            char *d = dst + r * ds + c * size;
            const char *s = src + r * size + c * ss;
            if (size == 8)
                quarter64(d, ds, s, ss);
            else if (side == 8)
                quarter32(d, ds, s, ss);
            else
                eighth32(d, ds, s, ss);
        }
    }
}
#endif

void ISA_(cpu_transpose)(char *dst, int64_t ds, const char *src, int64_t ss, int64_t rows,
                         int64_t cols, int32_t size) {
    int64_t side = 64 / size;
    for (int64_t r = 0; r < rows; r += side) {
        int64_t m = rows - r < side ? rows - r : side;
        for (int64_t c = 0; c < cols; c += side) {
            int64_t n = cols - c < side ? cols - c : side, m0 = 0, n0 = 0;
            char *d = dst + r * ds + c * size;
            const char *s = src + r * size + c * ss;
#if defined(__AVX2__)
            if (m == side && n == side && size == 4) {
                square32(d, ds, s, ss);
                continue;
            }
            if (m == side && n == side && size == 8) {
                square64(d, ds, s, ss);
                continue;
            }
            int64_t least = m < n ? m : n, part = size == 4 && least >= 8 ? 8 : 4;
            if ((size == 4 || size == 8) && least >= 4) {
                m0 = m / part * part;
                n0 = n / part * part;
                corner(d, ds, s, ss, m0, n0, size, part);
            }
#endif
            for (int64_t i = n0 < n ? 0 : m0; i < m; i++) {
                int64_t from = i < m0 ? n0 : 0;
                cpu_gather(d + i * ds + from * size, s + i * size + from * ss, n - from, ss, size);
            }
        }
    }
}
