/* reduce.h: the reductions of the element type of a template: once per operator the including
 * backend's own reduce_tmpl.h, with RED (its name), RED_INIT, RED_STEP(a, x): a after taking in the
 * element x, which may use `center`, and RED_JOIN(a, b) of two partial results. RED_PICK(a, x), where
 * defined, is RED_STEP for numbers. That file undefines them. */
#ifndef REDUCE_H
#define REDUCE_H

#include "scalar.h"

#if TMPL_IS_BOOL
#define RED all
#define RED_INIT 1
#define RED_STEP(a, x) ((A)((a) & ((x) != 0)))
#define RED_JOIN(a, b) ((A)((a) & (b)))
#include "reduce_tmpl.h"
#define RED any
#define RED_INIT 0
#define RED_STEP(a, x) ((A)((a) | ((x) != 0)))
#define RED_JOIN(a, b) ((A)((a) | (b)))
#include "reduce_tmpl.h"
#elif TMPL_IS_INT
#define RED sum
#define RED_INIT 0
#define RED_STEP(a, x) ((A)((U)(a) + (U)(x)))
#define RED_JOIN(a, b) ((A)((U)(a) + (U)(b)))
#include "reduce_tmpl.h"
#define RED prod
#define RED_INIT 1
#define RED_STEP(a, x) f_mul(a, x)
#define RED_JOIN(a, b) f_mul(a, b)
#include "reduce_tmpl.h"
#else
#define RED sum
#define RED_INIT 0
#define RED_STEP(a, x) ((a) + (x))
#define RED_JOIN(a, b) ((a) + (b))
#include "reduce_tmpl.h"
#define RED prod
#define RED_INIT 1
#define RED_STEP(a, x) f_mul(a, x)
#define RED_JOIN(a, b) f_mul(a, b)
#include "reduce_tmpl.h"
#if TMPL_IS_COMPLEX
#define SQUARE_(d) (RE_(d) * RE_(d) + IM_(d) * IM_(d))
#else
#define SQUARE_(d) ((d) * (d))
#endif
#define RED spread
#define RED_INIT 0
#define RED_STEP(a, x) ((a) + SQUARE_((x)-center))
#define RED_JOIN(a, b) ((a) + (b))
#include "reduce_tmpl.h"
#endif

#if !TMPL_IS_COMPLEX
#if TMPL_IS_FLOAT
#define LEAST (-(A)INFINITY)
#define MOST ((A)INFINITY)
#elif TMPL_IS_BOOL
#define LEAST 0
#define MOST 1
#elif TMPL_DTYPE == TMPL_U8
#define LEAST 0
#define MOST UINT8_MAX
#else
#define LEAST ((A)((U)1 << (INT_BITS - 1)))
#define MOST ((A)(((U)1 << (INT_BITS - 1)) - 1))
#endif
#if TMPL_IS_FLOAT
#define RED_PICK(a, x) ((x) > (a) ? (x) : (a))
#endif
#define RED amax
#define RED_INIT LEAST
#define RED_STEP(a, x) f_maximum(a, x)
#define RED_JOIN(a, b) f_maximum(a, b)
#include "reduce_tmpl.h"
#if TMPL_IS_FLOAT
#define RED_PICK(a, x) ((x) < (a) ? (x) : (a))
#endif
#define RED amin
#define RED_INIT MOST
#define RED_STEP(a, x) f_minimum(a, x)
#define RED_JOIN(a, b) f_minimum(a, b)
#include "reduce_tmpl.h"
#endif

#endif
