/* bridge.c: elements of the dtypes that no kernel knows, the core's own and those of plugins, as elements of one that kernels
 * know, and back.
 *
 * Note [Bridges]
 * float8 and plugins' dtypes go over float32, complex32 over complex64. The unsigned integers go over
 * the next wider signed one, uint64 over int64 with the same bits, or over a floating dtype where
 * that is where the values come from or go to. Rounding is to the nearest, ties to even. */
#include <math.h>

#include "bits_priv.h"
#include "core_priv.h"

/* ---- Eight bits --------------------------------------------------------------------------------*/

/* How the codes that are no ordinary numbers are used. */
enum ends {
    ENDS_NAN,     /* all ones is not a number; what is too large is the largest one: e4m3fn */
    ENDS_INF,     /* as in IEEE 754: e5m2 */
    ENDS_UNSIGNED /* one zero, and its negative is the only code that is not a number: fnuz */
};
typedef struct float8 {
    int fraction, bias; /* bits of the fraction; of the exponent there are 7 - fraction */
    enum ends ends;
} float8;
static const float8 e4m3fn = {3, 7, ENDS_NAN}, e5m2 = {2, 15, ENDS_INF},
                    e4m3fnuz = {3, 8, ENDS_UNSIGNED}, e5m2fnuz = {2, 16, ENDS_UNSIGNED};

static bool is_nan8(const float8 *k, uint8_t code) {
    uint8_t magnitude = code & 0x7fu;
    if (k->ends == ENDS_UNSIGNED) return code == 0x80u;
    return k->ends == ENDS_INF ? magnitude > 0x7cu : magnitude == 0x7fu;
}

static float decode8(const float8 *k, uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    int m = code & ((1 << k->fraction) - 1), e = (code & 0x7f) >> k->fraction;
    if (is_nan8(k, code)) return tni_float_of(sign | 0x7fc00000u);
    if (k->ends == ENDS_INF && (code & 0x7fu) == 0x7cu) return tni_float_of(sign | 0x7f800000u);
    int whole = e ? m | 1 << k->fraction : m;
    float value = ldexpf((float)whole, (e ? e : 1) - k->bias - k->fraction);
    return sign ? -value : value;
}

/* v / 2^shift */
static uint32_t rounded(uint32_t v, int shift) {
    uint32_t rest = v & ((UINT32_C(1) << shift) - 1), half = UINT32_C(1) << (shift - 1);
    uint32_t r = v >> shift;
    return r + (rest > half || (rest == half && (r & 1u)));
}

static uint8_t encode8(const float8 *k, float f) {
    uint32_t u = tni_bits_of(f), magnitude = u & 0x7fffffffu, code;
    uint8_t sign = (uint8_t)(u >> 24 & 0x80u);
    uint32_t most = k->ends == ENDS_NAN ? 0x7eu : k->ends == ENDS_INF ? 0x7bu : 0x7fu;
    int e = (int)(magnitude >> 23) - 127, drop = 23 - k->fraction, low = 1 - k->bias - e;
    if (magnitude > 0x7f800000u) return k->ends == ENDS_UNSIGNED ? 0x80u : sign | 0x7fu;
    if (e > k->bias + 1)
        code = 0x80u; /* beyond every exponent */
    else if (low > k->fraction + 1)
        code = 0; /* below half of the smallest */
    else if (low > 0)
        code = rounded((magnitude & 0x7fffffu) | 0x800000u, drop + low);
    else
        code = rounded((uint32_t)(e + k->bias) << 23 | (magnitude & 0x7fffffu), drop);
    if (k->ends == ENDS_UNSIGNED) return code > most ? 0x80u : code ? sign | (uint8_t)code : 0;
    if (code > most) code = k->ends == ENDS_INF ? most + 1 : most;
    return sign | (uint8_t)code;
}

/* e8m0: a power of two alone; ties go up. */
static float decode_power(uint8_t code) {
    if (code == 0xffu) return NAN;
    return code ? tni_float_of((uint32_t)code << 23) : 0x1p-127f;
}

static uint8_t encode_power(float f) {
    uint32_t u = tni_bits_of(f), e = u >> 23 & 0xffu, fraction = u & 0x7fffffu;
    if (e == 0xffu) return 0xffu;
    /* half of the smallest normal is the smallest power here, so a tie next to it goes down */
    bool up = e ? fraction >= 0x400000u : fraction > 0x400000u;
    return (uint8_t)(e + up);
}

#define CONVERSION(name, from, into, expression)                                                   \
    static void name(const void *src, void *dst, int64_t n) {                                      \
        const from *s = src;                                                                       \
        into *d = dst;                                                                             \
        for (int64_t i = 0; i < n; i++) d[i] = (into)(expression);                                 \
    }
CONVERSION(decode_e4m3fn, uint8_t, float, decode8(&e4m3fn, s[i]))
CONVERSION(encode_e4m3fn, float, uint8_t, encode8(&e4m3fn, s[i]))
CONVERSION(decode_e5m2, uint8_t, float, decode8(&e5m2, s[i]))
CONVERSION(encode_e5m2, float, uint8_t, encode8(&e5m2, s[i]))
CONVERSION(decode_e4m3fnuz, uint8_t, float, decode8(&e4m3fnuz, s[i]))
CONVERSION(encode_e4m3fnuz, float, uint8_t, encode8(&e4m3fnuz, s[i]))
CONVERSION(decode_e5m2fnuz, uint8_t, float, decode8(&e5m2fnuz, s[i]))
CONVERSION(encode_e5m2fnuz, float, uint8_t, encode8(&e5m2fnuz, s[i]))
CONVERSION(decode_e8m0fnu, uint8_t, float, decode_power(s[i]))
CONVERSION(encode_e8m0fnu, float, uint8_t, encode_power(s[i]))

/* ---- The others --------------------------------------------------------------------------------*/

/* What the hardware makes of a number that an unsigned one cannot hold. */
static uint64_t unsigned_of(double v) {
    if (!(v >= 0x1p63)) return v > -0x1p63 ? (uint64_t)(int64_t)v : UINT64_C(1) << 63;
    return v < 0x1p64 ? (uint64_t)(v - 0x1p63) ^ UINT64_C(1) << 63 : 0;
}
CONVERSION(u16_to_i32, uint16_t, int32_t, s[i])
CONVERSION(i32_to_u16, int32_t, uint16_t, s[i])
CONVERSION(u32_to_i64, uint32_t, int64_t, s[i])
CONVERSION(i64_to_u32, int64_t, uint32_t, s[i])
CONVERSION(u64_to_i64, uint64_t, int64_t, s[i])
CONVERSION(i64_to_u64, int64_t, uint64_t, s[i])
CONVERSION(u64_to_f32, uint64_t, float, s[i])
CONVERSION(f32_to_u64, float, uint64_t, unsigned_of((double)s[i]))
CONVERSION(u64_to_f64, uint64_t, double, s[i])
CONVERSION(f64_to_u64, double, uint64_t, unsigned_of(s[i]))

static void c32_to_c64(const void *src, void *dst, int64_t n) {
    for (int64_t i = 0; i < 2 * n; i++)
        ((float *)dst)[i] = tni_from_f16(((const uint16_t *)src)[i]);
}
static void c64_to_c32(const void *src, void *dst, int64_t n) {
    for (int64_t i = 0; i < 2 * n; i++) ((uint16_t *)dst)[i] = tni_to_f16(((const float *)src)[i]);
}

tni_bridge tni_dtype_bridge(int32_t dtype, int32_t other) {
    static const tni_bridge bridges[] = {
        [TN_U16] = {TN_I32, u16_to_i32, i32_to_u16, NULL},
        [TN_U32] = {TN_I64, u32_to_i64, i64_to_u32, NULL},
        [TN_U64] = {TN_I64, u64_to_i64, i64_to_u64, NULL},
        [TN_F8_E4M3FN] = {TN_F32, decode_e4m3fn, encode_e4m3fn, NULL},
        [TN_F8_E5M2] = {TN_F32, decode_e5m2, encode_e5m2, NULL},
        [TN_F8_E4M3FNUZ] = {TN_F32, decode_e4m3fnuz, encode_e4m3fnuz, NULL},
        [TN_F8_E5M2FNUZ] = {TN_F32, decode_e5m2fnuz, encode_e5m2fnuz, NULL},
        [TN_F8_E8M0FNU] = {TN_F32, decode_e8m0fnu, encode_e8m0fnu, NULL},
        [TN_C32] = {TN_C64, c32_to_c64, c64_to_c32, NULL},
    };
    static const tni_bridge u64_f32 = {TN_F32, u64_to_f32, f32_to_u64, NULL};
    static const tni_bridge u64_f64 = {TN_F64, u64_to_f64, f64_to_u64, NULL};
    if (dtype == TN_U64 && (other == TN_F64 || other == TN_C128)) return u64_f64;
    if (dtype == TN_U64 && tni_category(other) >= TN_CAT_FLOAT) return u64_f32;
    if (dtype < TN_DTYPE_CORE_COUNT) return bridges[dtype];
    return (tni_bridge){TN_F32, NULL, NULL, tni_dtype_desc(dtype)};
}

int32_t tni_dtype_wider(int32_t dtype) {
    if (dtype == TN_F16 || dtype == TN_BF16) return TN_F32;
    return dtype < TN_DTYPE_BUILTIN_COUNT ? -1 : tni_dtype_bridge(dtype, TN_I64).dtype;
}

void tni_bridge_decode(const tni_bridge *b, const void *src, void *dst, int64_t n) {
    if (b->plugin)
        b->plugin->to_f32(src, dst, n);
    else
        b->decode(src, dst, n);
}

void tni_bridge_encode(const tni_bridge *b, const void *src, void *dst, int64_t n) {
    if (b->plugin)
        b->plugin->from_f32(src, dst, n);
    else
        b->encode(src, dst, n);
}
