/* cast.h: conversions from the element type of a template to every other one: once per target the
 * including backend's own cast_tmpl.h, with CAST_TO (its name), CAST_T (its C type) and CAST_OF(x).
 * Floats become integers by truncation; what does not fit, NaN included, becomes the least value of a
 * 32 or 64-bit type and wraps into narrower ones. Real to complex adds a zero, complex to real drops
 * the imaginary part. */
#ifndef CAST_H
#define CAST_H

#include "tmpl.h"

#if TMPL_IS_COMPLEX && !defined(TMPL_CUDA)
#include <complex.h>
#endif

#if TMPL_IS_COMPLEX
#if defined(TMPL_CUDA)
#define REAL_(x) ((x).re)
#define IMAG_(x) ((x).im)
#elif TMPL_DTYPE == TMPL_C64
#define REAL_(x) crealf(x)
#define IMAG_(x) cimagf(x)
#else
#define REAL_(x) creal(x)
#define IMAG_(x) cimag(x)
#endif
#define NONZERO_(x) (REAL_(x) != 0 || IMAG_(x) != 0)
#else
#define REAL_(x) (x)
#define IMAG_(x) 0
#define NONZERO_(x) ((x) != 0)
#endif

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
TMPL_INLINE int32_t to_i32(RA x) {
    bool fits = x >= (RA)-0x1p31 && x < (RA)0x1p31;
    return fits ? (int32_t)x : INT32_MIN;
}
TMPL_INLINE int64_t to_i64(RA x) {
    bool fits = x >= (RA)-0x1p63 && x < (RA)0x1p63;
    return fits ? (int64_t)x : INT64_MIN;
}
#else
TMPL_INLINE int32_t to_i32(A x) { return (int32_t)x; }
TMPL_INLINE int64_t to_i64(A x) { return (int64_t)x; }
#endif

#define CAST_TO b8
#define CAST_T uint8_t
#define CAST_OF(x) ((uint8_t)NONZERO_(x))
#include "cast_tmpl.h"
#define CAST_TO u8
#define CAST_T uint8_t
#define CAST_OF(x) ((uint8_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i8
#define CAST_T int8_t
#define CAST_OF(x) ((int8_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i16
#define CAST_T int16_t
#define CAST_OF(x) ((int16_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i32
#define CAST_T int32_t
#define CAST_OF(x) to_i32(REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO i64
#define CAST_T int64_t
#define CAST_OF(x) to_i64(REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f16
#define CAST_T uint16_t
#define CAST_OF(x) tmpl_to_f16((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO bf16
#define CAST_T uint16_t
#define CAST_OF(x) tmpl_to_bf16((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f32
#define CAST_T float
#define CAST_OF(x) ((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f64
#define CAST_T double
#define CAST_OF(x) ((double)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO c64
#define CAST_T tmpl_complex64
#define CAST_OF(x) tmpl_c64((float)REAL_(x), (float)IMAG_(x))
#include "cast_tmpl.h"
#define CAST_TO c128
#define CAST_T tmpl_complex128
#define CAST_OF(x) tmpl_c128((double)REAL_(x), (double)IMAG_(x))
#include "cast_tmpl.h"

#endif
