/* bits_priv.h: a float as its bits, and back. */
#ifndef TENON_BITS_PRIV_H
#define TENON_BITS_PRIV_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tni_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float tni_float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
