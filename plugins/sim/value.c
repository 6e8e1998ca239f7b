/* value.c: elements as double or int64, by dtype. Slow and plain: nobody measures this device. */
#include "kernels.h"

#include <math.h>
#include <string.h>

int64_t sim_itemsize(int32_t dtype) {
    switch (dtype) {
    case TN_BOOL:
    case TN_U8:
    case TN_I8: return 1;
    case TN_I16:
    case TN_F16:
    case TN_BF16: return 2;
    case TN_I32:
    case TN_F32: return 4;
    case TN_C128: return 16;
    default: return 8;
    }
}

bool sim_is_float(int32_t dtype) {
    return dtype == TN_F16 || dtype == TN_BF16 || dtype == TN_F32 || dtype == TN_F64;
}

/* ---- Half precision ----------------------------------------------------------------------------*/

static double from_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return bits >> 15 ? -x : x;
}

static uint16_t to_f16(double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent;
    if (isnan(x)) return sign | 0x7e00;
    if (x == 0) return sign;
    frexp(x, &exponent);
    if (isinf(x) || exponent > 16) return sign | 0x7c00;
    /* Steps of the result: 2^-24 below the smallest normal number, else 2^(exponent-11). */
    int step = exponent - 11 < -24 ? -24 : exponent - 11;
    double steps = nearbyint(ldexp(fabs(x), -step));
    uint32_t bits = ((uint32_t)(step + 24) << 10) + (uint32_t)steps;
    return sign | (uint16_t)(bits < 0x7c00 ? bits : 0x7c00);
}

static double from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static uint16_t to_bf16(double value) {
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- Elements ----------------------------------------------------------------------------------*/

double sim_load(int32_t dtype, const void *p) {
    switch (dtype) {
    case TN_F16: return from_f16(*(const uint16_t *)p);
    case TN_BF16: return from_bf16(*(const uint16_t *)p);
    case TN_F32: return *(const float *)p;
    case TN_F64: return *(const double *)p;
    default: return (double)sim_load_whole(dtype, p);
    }
}

int64_t sim_load_whole(int32_t dtype, const void *p) {
    switch (dtype) {
    case TN_BOOL: return *(const uint8_t *)p != 0;
    case TN_U8: return *(const uint8_t *)p;
    case TN_I8: return *(const int8_t *)p;
    case TN_I16: return *(const int16_t *)p;
    case TN_I32: return *(const int32_t *)p;
    case TN_I64: return *(const int64_t *)p;
    default: return 0;
    }
}

void sim_store(int32_t dtype, void *p, double x) {
    switch (dtype) {
    case TN_BOOL: *(uint8_t *)p = x != 0; break;
    case TN_F16: *(uint16_t *)p = to_f16(x); break;
    case TN_BF16: *(uint16_t *)p = to_bf16(x); break;
    case TN_F32: *(float *)p = (float)x; break;
    case TN_F64: *(double *)p = x; break;
    default:
        /* What does not fit has no meaning; it must only not be undefined. */
        sim_store_whole(dtype, p, x > -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN);
    }
}

void sim_store_whole(int32_t dtype, void *p, int64_t x) {
    switch (dtype) {
    case TN_BOOL: *(uint8_t *)p = x != 0; break;
    case TN_U8:
    case TN_I8: *(uint8_t *)p = (uint8_t)x; break;
    case TN_I16: *(uint16_t *)p = (uint16_t)x; break;
    case TN_I32: *(uint32_t *)p = (uint32_t)x; break;
    case TN_I64: *(int64_t *)p = x; break;
    default: sim_store(dtype, p, (double)x);
    }
}
