/* transpose.c: moves a rectangle between memory that is packed along the one dimension and memory
 * that is packed along the other. Compiled per instruction set: with AVX-512 squares of 64 bytes by
 * 64 bytes turn around in registers, so that each cache line is touched once; strides that are
 * powers of two would otherwise drive the lines of a square out of the first cache.
 *
 * isa: each */
#include "copy.h"

#include <string.h>

#include "common/tmpl.h"

#if defined(__AVX512F__)
#include <immintrin.h>

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
#endif

void ISA_(cpu_transpose)(char *dst, int64_t ds, const char *src, int64_t ss, int64_t rows,
                         int64_t cols, int32_t size) {
    int64_t side = 64 / size;
    for (int64_t r = 0; r < rows; r += side) {
        int64_t m = rows - r < side ? rows - r : side;
        for (int64_t c = 0; c < cols; c += side) {
            int64_t n = cols - c < side ? cols - c : side;
            char *d = dst + r * ds + c * size;
            const char *s = src + r * size + c * ss;
#if defined(__AVX512F__)
            if (m == side && n == side && size == 4) {
                square32(d, ds, s, ss);
                continue;
            }
            if (m == side && n == side && size == 8) {
                square64(d, ds, s, ss);
                continue;
            }
#endif
            for (int64_t i = 0; i < m; i++) cpu_gather(d + i * ds, s + i * size, n, ss, size);
        }
    }
}
