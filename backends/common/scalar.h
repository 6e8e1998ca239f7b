/* scalar.h: every pointwise formula, once: f_<op>(operands..., parameters...) in the compute type A of
 * the template that includes this. Formulas of all types stand here, the rest in the header of the
 * category. A bool operand or result is uint8_t 0 or 1. A parameter is an A when the operator
 * declares a Scalar, an RA for a float (double in integer templates), int64_t for int and bool. */
#ifndef SCALAR_H
#define SCALAR_H

#include "tmpl.h"

#if TMPL_IS_FLOAT
#include "scalar_float.h"
#include "scalar_special.h"
#elif TMPL_IS_COMPLEX
#include "scalar_complex.h"
#else
#include "scalar_int.h"
#endif

TMPL_INLINE uint8_t f_eq(A x, A y) { return x == y; }
TMPL_INLINE uint8_t f_ne(A x, A y) { return x != y; }
TMPL_INLINE uint8_t f_logical_and(A x, A y) { return (x != 0) & (y != 0); }
TMPL_INLINE uint8_t f_logical_or(A x, A y) { return (x != 0) | (y != 0); }
TMPL_INLINE uint8_t f_logical_xor(A x, A y) { return (x != 0) ^ (y != 0); }
TMPL_INLINE uint8_t f_logical_not(A x) { return x == 0; }
TMPL_INLINE A f_where(uint8_t c, A x, A y) { return c ? x : y; }
TMPL_INLINE A f_masked_fill(A x, uint8_t mask, A v) { return mask ? v : x; }

#if !TMPL_IS_COMPLEX
TMPL_INLINE uint8_t f_lt(A x, A y) { return x < y; }
TMPL_INLINE uint8_t f_le(A x, A y) { return x <= y; }
TMPL_INLINE uint8_t f_gt(A x, A y) { return x > y; }
TMPL_INLINE uint8_t f_ge(A x, A y) { return x >= y; }
#endif

#endif
