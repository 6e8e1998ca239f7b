/* order.h: unsigned keys K in the order of the elements of a template: NaN last, both zeros alike. */
#ifndef ORDER_H
#define ORDER_H

#include <string.h>

#include "tmpl.h"

#if TMPL_DTYPE == TMPL_BOOL || TMPL_DTYPE == TMPL_U8 || TMPL_DTYPE == TMPL_I8
typedef uint8_t K;
#elif TMPL_DTYPE == TMPL_I16 || TMPL_IS_HALF
typedef uint16_t K;
#elif TMPL_DTYPE == TMPL_I32 || TMPL_DTYPE == TMPL_F32
typedef uint32_t K;
#else
typedef uint64_t K;
#endif

/* Of NaN, and of the largest integer. */
#define KEY_LAST ((K) ~(K)0)
#define KEY_TOP_BIT ((K)((K)1 << (sizeof(K) * 8 - 1)))

TMPL_INLINE K key_of(T x) {
    K k;
    memcpy(&k, &x, sizeof k);
#if TMPL_IS_FLOAT
    A a = LOAD(x);
    if (a != a) return KEY_LAST;
    if (a == (A)0) k = 0;
    return k & KEY_TOP_BIT ? (K)~k : (K)(k | KEY_TOP_BIT);
#elif TMPL_IS_BOOL
    return LOAD(k);
#elif TMPL_DTYPE == TMPL_U8
    return k;
#else
    return (K)(k ^ KEY_TOP_BIT);
#endif
}

#endif
