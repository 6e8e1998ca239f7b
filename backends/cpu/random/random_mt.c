/* random_mt.c: mt19937 as PyTorch's CPU generator runs it. The state lives in the generator; a
 * kernel that was lent it advances it here. */
#include "random_priv.h"

#include <math.h>

enum { WORDS = 624, AHEAD = 397 };

static inline uint32_t mixed(uint32_t u, uint32_t v) {
    uint32_t y = (u & 0x80000000u) | (v & 0x7fffffffu);
    return (y >> 1) ^ (v & 1u ? 0x9908b0dfu : 0u);
}

static void twist(tn_rng *rng) {
    uint32_t *s = rng->mt_state;
    for (int i = 0; i < WORDS - AHEAD; i++) s[i] = s[i + AHEAD] ^ mixed(s[i], s[i + 1]);
    for (int i = WORDS - AHEAD; i < WORDS - 1; i++)
        s[i] = s[i - (WORDS - AHEAD)] ^ mixed(s[i], s[i + 1]);
    s[WORDS - 1] = s[AHEAD - 1] ^ mixed(s[WORDS - 1], s[0]);
    *rng->mt_left = WORDS;
    *rng->mt_next = 0;
}

static inline uint32_t tempered(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint32_t rnd_mt_word(tn_rng *rng) {
    if (--*rng->mt_left == 0) twist(rng);
    return tempered(rng->mt_state[(*rng->mt_next)++]);
}

/* `left` counts the next word too, so left - 1 of them can be taken before a twist is due. */
void rnd_mt_words(tn_rng *rng, uint32_t *dst, int64_t n) {
    while (n > 0) {
        if (*rng->mt_left == 1) {
            *dst++ = rnd_mt_word(rng);
            n--;
            continue;
        }
        int32_t run = *rng->mt_left - 1;
        if (run > n) run = (int32_t)n;
        const uint32_t *src = rng->mt_state + *rng->mt_next;
        for (int32_t i = 0; i < run; i++) dst[i] = tempered(src[i]);
        *rng->mt_left -= run;
        *rng->mt_next += run;
        dst += run;
        n -= run;
    }
}

double rnd_mt_normal(tn_rng *rng) {
    if (*rng->cache_flags & 2) {
        *rng->cache_flags &= ~2;
        return *rng->next_normal_f64;
    }
    double u1 = rnd_mt_f64(rng), u2 = rnd_mt_f64(rng);
    double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * 3.14159265358979323846 * u1;
    *rng->next_normal_f64 = radius * sin(angle);
    *rng->cache_flags |= 2;
    return radius * cos(angle);
}
