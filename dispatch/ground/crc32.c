/* crc32.c: the checksum of zip archives and of weights in .tng files, at the rate at which memory is
 * read.
 *
 * Note [Folding]
 * The checksum is the rest of a division of polynomials over GF(2), so 128 bits of the message may be
 * moved n bits on: their halves are multiplied by x^(n + 32) and x^(n - 32), taken modulo the divisor,
 * and added there. Four such blocks go side by side, 512 bits at a time, or four times as many where the
 * processor multiplies whole vectors; what remains of 128 bits goes through the table, as does a tail. All
 * numbers are written with their lowest power first, which costs a shift by one in each product: the
 * constants have it. */
#include <string.h>

#include <tenon/runtime.h>

#include "os_priv.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_FOLDING 1
#endif

#define DIVISOR UINT32_C(0xEDB88320) /* of the zip format, lowest power first */

static uint32_t table[256];

static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? DIVISOR : 0);
        table[i] = c;
    }
}

static uint32_t by_table(uint32_t crc, const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) crc = table[(crc ^ p[i]) & 255u] ^ crc >> 8;
    return crc;
}

#ifdef HAS_FOLDING
enum { LANES = 4, BLOCK = 16, STEP = LANES * BLOCK, WIDE = LANES * STEP };

/* What moves a block by so many bytes: its halves' factors. */
typedef struct factors {
    uint64_t low, high;
} factors;
static factors by_block, by_step, by_wide;

/* x^n modulo the divisor, with the shift of a product. */
static uint64_t power(int n) {
    uint32_t p = UINT32_C(1) << 31;
    for (; n > 0; n--) p = p >> 1 ^ (p & 1 ? DIVISOR : 0);
    return (uint64_t)p << 1;
}

static factors factors_of(int bytes) {
    return (factors){power(8 * bytes + 32), power(8 * bytes - 32)};
}

static void make_powers(void) {
    by_block = factors_of(BLOCK);
    by_step = factors_of(STEP);
    by_wide = factors_of(WIDE);
}

#define PCLMUL __attribute__((target("pclmul,sse4.1")))
#define VPCLMUL __attribute__((target("vpclmulqdq,pclmul,avx512f,avx512vl,sse4.1")))

PCLMUL static inline __m128i pair_of(factors f) {
    return _mm_set_epi64x((long long)f.high, (long long)f.low);
}

PCLMUL static inline __m128i moved(__m128i x, __m128i by, __m128i to) {
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), to);
}

static inline __m128i block_at(const unsigned char *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* The state behind LANES blocks that follow each other. */
PCLMUL static uint32_t joined(__m128i x[LANES]) {
    unsigned char rest[BLOCK];
    for (int k = 1; k < LANES; k++) x[k] = moved(x[k - 1], pair_of(by_block), x[k]);
    memcpy(rest, &x[LANES - 1], sizeof rest);
    return by_table(0, rest, sizeof rest);
}

/* n: STEP or more; *p and *n become what is left to the table. */
PCLMUL static uint32_t by_folding(uint32_t crc, const unsigned char **p, size_t *n) {
    const __m128i far = pair_of(by_step);
    const unsigned char *at = *p, *end = at + *n;
    __m128i x[LANES];
    for (int k = 0; k < LANES; k++) x[k] = block_at(at + k * BLOCK);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    for (at += STEP; end - at >= STEP; at += STEP) {
        _mm_prefetch((const char *)at + 1024, _MM_HINT_T0);
        for (int k = 0; k < LANES; k++) x[k] = moved(x[k], far, block_at(at + k * BLOCK));
    }
    *p = at;
    *n = (size_t)(end - at);
    return joined(x);
}

VPCLMUL static inline __m512i moved_wide(__m512i x, __m512i by, __m512i to) {
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00),
            high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, to, 0x96);
}

/* The same with vectors of LANES blocks; n: WIDE or more. */
VPCLMUL static uint32_t by_wide_folding(uint32_t crc, const unsigned char **p, size_t *n) {
    const __m512i far = _mm512_broadcast_i32x4(pair_of(by_wide));
    const __m512i near = _mm512_broadcast_i32x4(pair_of(by_step));
    const unsigned char *at = *p, *end = at + *n;
    __m512i x[LANES];
    for (int k = 0; k < LANES; k++) x[k] = _mm512_loadu_si512(at + k * STEP);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (at += WIDE; end - at >= WIDE; at += WIDE) {
        for (int k = 0; k < LANES; k++) {
            _mm_prefetch((const char *)at + 2048 + k * STEP, _MM_HINT_T0);
            x[k] = moved_wide(x[k], far, _mm512_loadu_si512(at + k * STEP));
        }
    }
    for (int k = 1; k < LANES; k++) x[k] = moved_wide(x[k - 1], near, x[k]);
    __m128i last[LANES];
    memcpy(last, &x[LANES - 1], sizeof last);
    *p = at;
    *n = (size_t)(end - at);
    return joined(last);
}
#endif

static tni_os_once once = TNI_OS_ONCE_INIT;

static void make_constants(void) {
    make_table();
#ifdef HAS_FOLDING
    make_powers();
#endif
}

uint32_t tn_crc32(uint32_t start, const void *data, uint64_t bytes) {
    const unsigned char *p = data;
    uint32_t crc = ~start;
    size_t n = data ? (size_t)bytes : 0;
    tni_os_call_once(&once, make_constants);
#ifdef HAS_FOLDING
    if (n >= WIDE && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl"))
        crc = by_wide_folding(crc, &p, &n);
    if (n >= STEP && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        crc = by_folding(crc, &p, &n);
#endif
    return ~by_table(crc, p, n);
}
