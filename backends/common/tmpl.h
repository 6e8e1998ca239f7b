/* tmpl.h: element types of template files. A template is compiled once per element type with
 * -DTMPL_DTYPE=<slot> and, per instruction set, -DTMPL_ISA=<name>. It then has
 *   T          the storage type (uint16_t for f16 and bf16, uint8_t for bool)
 *   A          the type it computes in (float for f16 and bf16)
 *   R, RA      storage and compute type of the real part (T and A unless complex)
 *   LOAD(t), STORE(a)   between T and A;  LOADR, STORER between R and RA. Every byte but 0 of a bool
 *                       is true (views of other memory hold such bytes): what computes loads first
 *   TN_(name)  name_f32_avx2;  ISA_(name)  name_avx2
 * and TMPL_IS_BOOL, _INT, _FLOAT, _COMPLEX, _HALF (f16, bf16) to ask with #if. A file that is
 * compiled per instruction set alone leaves TMPL_DTYPE undefined and gets ISA_ only. */
#ifndef TMPL_H
#define TMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TMPL_BOOL 0
#define TMPL_U8 1
#define TMPL_I8 2
#define TMPL_I16 3
#define TMPL_I32 4
#define TMPL_I64 5
#define TMPL_F16 6
#define TMPL_BF16 7
#define TMPL_F32 8
#define TMPL_F64 9
#define TMPL_C64 10
#define TMPL_C128 11

#define TMPL_PASTE2_(a, b) a##_##b
#define TMPL_PASTE2(a, b) TMPL_PASTE2_(a, b)
#define TMPL_PASTE3_(a, b, c) a##_##b##_##c
#define TMPL_PASTE3(a, b, c) TMPL_PASTE3_(a, b, c)
#define TMPL_TEXT_(a) #a
#define TMPL_TEXT(a) TMPL_TEXT_(a)

#ifndef TMPL_ISA
#define TMPL_ISA baseline
#endif
#define ISA_(name) TMPL_PASTE2(name, TMPL_ISA)

/* The iterations of the next loop are independent, although operands may be the same memory. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop over library calls stays as it is */
#define TMPL_VECTOR _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define TMPL_VECTOR _Pragma("GCC ivdep")
#else
#define TMPL_VECTOR
#endif

/* The next loop has few iterations and each is better compiled apart. */
#if defined(__clang__)
#define TMPL_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define TMPL_UNROLL _Pragma("GCC unroll 16")
#else
#define TMPL_UNROLL
#endif

/* A template is C11, or CUDA C (TMPL_CUDA) for nvcc, NVRTC and the host harness. There, built-ins are
 * functions of the device, and complex numbers are a type of our own. */
#if defined(TMPL_CUDA)
#include "complex_type.h"
typedef tmpl_complex<float> tmpl_complex64;
typedef tmpl_complex<double> tmpl_complex128;
#define TMPL_INLINE static __device__ __forceinline__
#elif defined(__GNUC__)
#define TMPL_INLINE static inline __attribute__((always_inline, unused))
#else
#define TMPL_INLINE static inline
#endif

#if defined(TMPL_CUDA)
#define TMPL_BUILTIN(name) name
#else
#define TMPL_BUILTIN(name) __builtin_##name
#endif

/* A fused multiply-add, rounded once, is an instruction. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(TMPL_CUDA)
#define TMPL_HAS_FMA 1
#else
#define TMPL_HAS_FMA 0
#endif

/* ---- Bits and half precision, for any template -------------------------------------------------*/

TMPL_INLINE uint32_t tmpl_bits32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TMPL_INLINE float tmpl_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

TMPL_INLINE uint64_t tmpl_bits64(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TMPL_INLINE double tmpl_double(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

TMPL_INLINE float tmpl_from_bf16(uint16_t h) { return tmpl_float((uint32_t)h << 16); }

/* Half precision rounds to nearest, ties to even; a NaN stays a quiet NaN. A GPU has instructions
 * for it, whose NaN has no sign. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
TMPL_INLINE uint16_t tmpl_to_bf16(float x) {
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#else
TMPL_INLINE uint16_t tmpl_to_bf16(float x) {
    uint32_t u = tmpl_bits32(x);
    uint32_t r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)(x != x ? 0x7fc0u | (u >> 16 & 0x8000u) : r);
}
#endif

#if defined(__CUDA_ARCH__)
TMPL_INLINE float tmpl_from_f16(uint16_t h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

TMPL_INLINE uint16_t tmpl_to_f16(float x) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#else
TMPL_INLINE float tmpl_from_f16(uint16_t h) {
#if defined(__aarch64__) /* an instruction, for vectors too; that which rounds is none in loops */
    __fp16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
#else
    /* The half's bits, moved into a float's places, are its value times 2^-112, subnormals included. */
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t u = tmpl_bits32(tmpl_float(magnitude) * 0x1p112f);
    uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return tmpl_float(u | special | sign);
#endif
}

/* Adding 1.5 * 2^(e+13) to the magnitude lets the FPU round at the half's last place. */
TMPL_INLINE uint16_t tmpl_to_f16(float x) {
    uint32_t u = tmpl_bits32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = tmpl_bits32(tmpl_float(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(r | sign);
}
#endif

/* Complex numbers from their parts, without the arithmetic that would lose signs and NaN. */
#if defined(TMPL_CUDA)
TMPL_INLINE tmpl_complex64 tmpl_c64(float re, float im) { return tmpl_complex64(re, im); }
TMPL_INLINE tmpl_complex128 tmpl_c128(double re, double im) { return tmpl_complex128(re, im); }
#else
typedef float _Complex tmpl_complex64;
typedef double _Complex tmpl_complex128;

TMPL_INLINE float _Complex tmpl_c64(float re, float im) {
    const float parts[2] = {re, im};
    float _Complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}

TMPL_INLINE double _Complex tmpl_c128(double re, double im) {
    const double parts[2] = {re, im};
    double _Complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}
#endif

/* ---- The element type --------------------------------------------------------------------------*/
#ifdef TMPL_DTYPE

#define TMPL_IS_BOOL (TMPL_DTYPE == TMPL_BOOL)
#define TMPL_IS_INT (TMPL_DTYPE >= TMPL_U8 && TMPL_DTYPE <= TMPL_I64)
#define TMPL_IS_FLOAT (TMPL_DTYPE >= TMPL_F16 && TMPL_DTYPE <= TMPL_F64)
#define TMPL_IS_COMPLEX (TMPL_DTYPE >= TMPL_C64)
#define TMPL_IS_HALF (TMPL_DTYPE == TMPL_F16 || TMPL_DTYPE == TMPL_BF16)

#if TMPL_DTYPE == TMPL_BOOL
#define TMPL_NAME b8
typedef uint8_t T;
typedef uint8_t A;
#define LOAD(t) ((A)((t) != 0))
#define STORE(a) ((T)(a))
#elif TMPL_DTYPE == TMPL_U8
#define TMPL_NAME u8
typedef uint8_t T;
typedef uint8_t A;
#elif TMPL_DTYPE == TMPL_I8
#define TMPL_NAME i8
typedef int8_t T;
typedef int8_t A;
#elif TMPL_DTYPE == TMPL_I16
#define TMPL_NAME i16
typedef int16_t T;
typedef int16_t A;
#elif TMPL_DTYPE == TMPL_I32
#define TMPL_NAME i32
typedef int32_t T;
typedef int32_t A;
#elif TMPL_DTYPE == TMPL_I64
#define TMPL_NAME i64
typedef int64_t T;
typedef int64_t A;
#elif TMPL_DTYPE == TMPL_F16
#define TMPL_NAME f16
typedef uint16_t T;
typedef float A;
#define LOAD(t) tmpl_from_f16(t)
#define STORE(a) tmpl_to_f16(a)
#elif TMPL_DTYPE == TMPL_BF16
#define TMPL_NAME bf16
typedef uint16_t T;
typedef float A;
#define LOAD(t) tmpl_from_bf16(t)
#define STORE(a) tmpl_to_bf16(a)
#elif TMPL_DTYPE == TMPL_F32
#define TMPL_NAME f32
typedef float T;
typedef float A;
#elif TMPL_DTYPE == TMPL_F64
#define TMPL_NAME f64
typedef double T;
typedef double A;
#elif TMPL_DTYPE == TMPL_C64
#define TMPL_NAME c64
typedef tmpl_complex64 T;
typedef tmpl_complex64 A;
typedef float R;
typedef float RA;
#elif TMPL_DTYPE == TMPL_C128
#define TMPL_NAME c128
typedef tmpl_complex128 T;
typedef tmpl_complex128 A;
typedef double R;
typedef double RA;
#endif

#ifndef LOAD
#define LOAD(t) ((A)(t))
#define STORE(a) ((T)(a))
#endif
#if TMPL_IS_COMPLEX
#define LOADR(r) (r)
#define STORER(a) (a)
#else
typedef T R;
typedef A RA;
#define LOADR(r) LOAD(r)
#define STORER(a) STORE(a)
#endif

#define TN_(name) TMPL_PASTE3(name, TMPL_NAME, TMPL_ISA)

#endif
#endif
