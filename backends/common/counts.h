/* counts.h: numbers of events, drawn by the Poisson and the binomial distribution, and sums of waiting
 * times, by the gamma distribution.
 *
 * Hoermann's transformed rejection (PTRS, BTRS) where many events are expected, products and sums
 * of uniform numbers where few are; Marsaglia's and Tsang's cube of a normal number for the gamma
 * distribution. An element takes as many numbers as it needs, from a stream of its own, or from the
 * CPU's mt19937: the including file then defines COUNTS_MT_F64 and COUNTS_MT_NORMAL. */
#ifndef COUNTS_H
#define COUNTS_H

#include <math.h>

#include "philox.h"

/* A stream counts by a fixed odd step and mixes what it has counted. */
typedef struct counts_source {
    void *mt; /* or NULL */
    uint64_t state;
} counts_source;

TMPL_INLINE double counts_uniform(counts_source *s) {
#if defined(COUNTS_MT_F64)
    if (s->mt) return COUNTS_MT_F64((tn_rng *)s->mt);
#endif
    uint64_t z = s->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return rnd_f64_of(z ^ (z >> 31));
}

TMPL_INLINE double counts_normal(counts_source *s) {
#if defined(COUNTS_MT_NORMAL)
    if (s->mt) return COUNTS_MT_NORMAL((tn_rng *)s->mt);
#endif
    double radius = sqrt(-2 * log1p(-counts_uniform(s)));
    return radius * cos(2 * 3.14159265358979323846 * counts_uniform(s));
}

/* ---- Poisson -----------------------------------------------------------------------------------*/

TMPL_INLINE double counts_poisson_many(counts_source *s, double rate) {
    double root = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * root;
    double a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4);
    double sure = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = counts_uniform(s) - 0.5, v = counts_uniform(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= sure) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        double left = log(v) + log(inverse) - log(a / (us * us) + b);
        if (left <= -rate + k * log_rate - lgamma(k + 1)) return k;
    }
}

TMPL_INLINE double counts_poisson_one(counts_source *s, double rate) {
    if (rate == (double)INFINITY) return rate;
    if (rate >= 10) return counts_poisson_many(s, rate);
    if (rate == 0) return 0;
    double end = exp(-rate), product = counts_uniform(s), k = 0;
    for (; product > end; k++) product *= counts_uniform(s);
    return k;
}

/* ---- Binomial ----------------------------------------------------------------------------------*/

/* What Stirling's formula leaves of log k!. */
TMPL_INLINE double counts_stirling_rest(double k) {
    static const double first[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                                   0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                                   0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                                   0.00833056343336287};
    if (k <= 9) return first[(int)k];
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

TMPL_INLINE double counts_binomial_many(counts_source *s, double count, double p) {
    double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation;
    double a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5, sure = 0.92 - 4.2 / b;
    double r = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation, m = floor((count + 1) * p);
    for (;;) {
        double u = counts_uniform(s) - 0.5, v = counts_uniform(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + c);
        if (us >= 0.07 && v <= sure) return k;
        if (k < 0 || k > count) continue;
        v = log(v * alpha / (a / (us * us) + b));
        double most = (m + 0.5) * log((m + 1) / (r * (count - m + 1))) +
                      (count + 1) * log((count - m + 1) / (count - k + 1)) +
                      (k + 0.5) * log(r * (count - k + 1) / (k + 1)) + counts_stirling_rest(m) +
                      counts_stirling_rest(count - m) - counts_stirling_rest(k) -
                      counts_stirling_rest(count - k);
        if (v <= most) return k;
    }
}

/* Gaps between successes until they reach beyond the trials. */
TMPL_INLINE double counts_binomial_few(counts_source *s, double count, double p) {
    double scale = log1p(-p), sum = 0;
    for (double k = 0;; k++) {
        sum += ceil(log(counts_uniform(s)) / scale);
        if (!(sum <= count)) return k;
    }
}

TMPL_INLINE double counts_successes(counts_source *s, double count, double p) {
    return count * p >= 10 ? counts_binomial_many(s, count, p) : counts_binomial_few(s, count, p);
}

TMPL_INLINE double counts_binomial_one(counts_source *s, double count, double p) {
    if (count <= 0 || p <= 0) return 0;
    if (p >= 1) return count;
    if (p != p || !(count < (double)INFINITY)) return (double)NAN;
    return p <= 0.5 ? counts_successes(s, count, p) : count - counts_successes(s, count, 1 - p);
}

/* ---- Gamma -------------------------------------------------------------------------------------*/

/* A draw for a shape below 1 is one for the next shape, made smaller by a power of a uniform number. */
TMPL_INLINE double counts_gamma_one(counts_source *s, double shape) {
    double scale = 1;
    if (shape == 0) return 0;
    if (!(shape > 0)) return (double)NAN;
    if (shape < 1) {
        scale = pow(1 - counts_uniform(s), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = counts_normal(s), y = 1 + c * x;
        if (y <= 0) continue;
        double v = y * y * y, u = 1 - counts_uniform(s), square = x * x;
        /* The squeeze, whose factor PyTorch has in single precision. */
        if (u < 1 - (double)0.0331f * square * square) return scale * d * v;
        if (log(u) < 0.5 * square + d * (1 - v + log(v))) return scale * d * v;
    }
}

#endif
