/* posit16.c: a dtype in one file: 16-bit posits with es = 1 (J. Gustafson, I. Yonemoto: Beating
 * Floating Point at its Own Game, 2017). Two conversions are all that Tenon asks for; every operator
 * then works in float32, and kernels for the slot may be registered later.
 *
 * A posit is a sign (two's complement), a run of equal bits (the regime: each step is a factor of
 * 4), one exponent bit, and the fraction. There are no infinities; 0x8000 is the one "not a real". */
#include <math.h>
#include <string.h>

#include <tenon/plugin.h>

static float decode(uint16_t p) {
    if (p == 0) return 0.0f;
    if (p == 0x8000u) return NAN;
    int negative = p >> 15;
    uint32_t bits = (negative ? (uint32_t)(uint16_t)(0u - p) : p) << 17; /* without the sign */
    int first = (int)(bits >> 31), run = 0;
    while (run < 15 && (int)(bits >> 31) == first) {
        bits <<= 1;
        run++;
    }
    int regime = first ? run - 1 : -run;
    bits <<= 1; /* the bit that ended the run */
    int exponent = (int)(bits >> 31);
    float fraction = 1.0f + (float)(bits << 1) * 0x1p-32f;
    float value = ldexpf(fraction, 2 * regime + exponent);
    return negative ? -value : value;
}

/* Nearest posit, ties to even; never rounds to zero or out of range. */
static uint16_t encode(float x) {
    if (x == 0.0f) return 0;
    if (isnan(x) || isinf(x)) return 0x8000u;
    int e;
    float m = frexpf(fabsf(x), &e); /* [0.5, 1) */
    e--;
    int regime = e >> 1, exponent = e & 1;
    uint16_t p;
    if (regime >= 14) {
        p = 0x7fffu;
    } else if (regime < -14) {
        p = 1;
    } else {
        /* regime, exponent and 23 bits of fraction, one after the other, then rounded to 15 bits */
        int run = regime >= 0 ? regime + 2 : -regime + 1;
        uint64_t body = regime >= 0 ? ((UINT64_C(1) << (regime + 1)) - 1) << 1 : 1;
        uint64_t fraction = (uint64_t)ldexpf(m * 2.0f - 1.0f, 23);
        body = (body << 1 | (uint64_t)exponent) << 23 | fraction;
        int drop = run + 24 - 15;
        uint64_t kept = body >> drop, rest = body & ((UINT64_C(1) << drop) - 1);
        uint64_t half = UINT64_C(1) << (drop - 1);
        p = (uint16_t)(kept + (rest > half || (rest == half && (kept & 1u))));
    }
    return x < 0.0f ? (uint16_t)(0u - p) : p;
}

static void to_f32(const void *src, float *dst, int64_t n) {
    const unsigned char *s = (const unsigned char *)src;
    for (int64_t i = 0; i < n; i++) {
        uint16_t p;
        memcpy(&p, s + 2 * i, sizeof p);
        dst[i] = decode(p);
    }
}

static void from_f32(const float *src, void *dst, int64_t n) {
    unsigned char *d = (unsigned char *)dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t p = encode(src[i]);
        memcpy(d + 2 * i, &p, sizeof p);
    }
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_dtype_desc desc = {
        .struct_size = sizeof desc,
        .bits = 16,
        .name = "posit16",
        .category = TN_CAT_FLOAT,
        .rank = 0, /* below float16: with any other float the result is that float */
        .to_f32 = to_f32,
        .from_f32 = from_f32,
    };
    int32_t slot;
    return host->register_dtype(txn, &desc, &slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "posit16", "0.1.0", "16-bit posits", activate);
}
