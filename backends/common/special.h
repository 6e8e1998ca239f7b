/* special.h: functions of statistics and number theory of doubles, for every backend: the normal
 * distribution, incomplete gamma functions, Hurwitz' zeta function, orthogonal polynomials. The
 * coefficients of the tables were computed with 40 digits and more. */
#ifndef SPECIAL_H
#define SPECIAL_H

#include "bessel.h"
#include "scalar_f64.h"

#define SPECIAL_SQRT_2PI 0x1.40d931ff62706p+1
#define SPECIAL_SQRT_HALF 0x1.6a09e667f3bcdp-1

/* ---- The normal distribution -------------------------------------------------------------------*/

/* e^(x^2 * s) for s 1, 0.5 or their negatives: the square is split so that its rounding does not show. */
TMPL_INLINE double special_exp_square(double x, double s) {
    double head = tmpl_double(tmpl_bits64(x) & UINT64_C(0xfffffffff8000000)), tail = x - head;
    return exp(s * head * head) * exp(s * tail * (x + head));
}

TMPL_INLINE double special_erfcx(double x) {
    if (x >= 0) return f64_erfcx_right(x);
    if (x < -27) return (double)INFINITY;
    return 2 * special_exp_square(x, 1) - f64_erfcx_right(-x);
}

TMPL_INLINE double special_ndtr(double x) {
    double z = x * SPECIAL_SQRT_HALF;
    if (!(x < -1)) return 0.5 * erfc(-z);
    return x < -40 ? 0 : 0.5 * f64_erfcx_right(-z) * special_exp_square(x, -0.5);
}

TMPL_INLINE double special_log_ndtr(double x) {
    double z = x * SPECIAL_SQRT_HALF;
    return x < -1 ? log(0.5 * f64_erfcx_right(-z)) - 0.5 * x * x : log1p(-special_ndtr(-x));
}

/* erfinv(x) / x of w = -log(1 - x * x) < 103. */
TMPL_INLINE double special_erfinv_ratio(double w) {
    double root = sqrt(w);
    if (w < 5) return f64_erfinv_near(w - 2.5);
    return root < 4 ? f64_erfinv_mid(root - 3) : f64_erfinv_far(root - 7);
}

/* The inverse of erf: a start that is good to eight digits, then a step of Halley's method on erf or,
 * near 1, on erfc, whose relative error stays small there. */
TMPL_INLINE double special_erfinv(double v) {
    double a = v < 0 ? -v : v;
    if (!(a < 1)) return a == 1 ? copysign((double)INFINITY, v) : (double)NAN;
    double y = a * special_erfinv_ratio(-log((1 - a) * (1 + a)));
    double miss = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
    double step = miss / (1.1283791670955126 * exp(-y * y));
    return copysign(y - step / (1 + y * step), v);
}

/* In the tails Newton's method on the logarithm, which is concave: one step from eight digits, or, where
 * p is below 1e-45, steps from the leading term, from which it converges. */
TMPL_INLINE double special_ndtri(double p) {
    if (!(p > 0 && p < 1))
        return p == 0 ? -(double)INFINITY : p == 1 ? (double)INFINITY : (double)NAN;
    if (p >= 0.1 && p <= 0.9) return special_erfinv(2 * p - 1) / SPECIAL_SQRT_HALF;
    double low = p < 0.5 ? p : 1 - p, goal = log(low), w = -(goal + log(4 - 4 * low));
    bool near = w < 100;
    double x =
        near ? (2 * low - 1) * special_erfinv_ratio(w) / SPECIAL_SQRT_HALF : -sqrt(-2 * goal);
    for (int i = near ? 5 : 0; i < 6; i++) {
        double r = f64_erfcx_right(-x * SPECIAL_SQRT_HALF); /* 2 Phi e^(x^2 / 2) */
        double step = (log(0.5 * r) - 0.5 * x * x - goal) * (r * SPECIAL_SQRT_2PI / 2);
        x -= step;
        if (fabs(step) < 1e-16 * fabs(x)) break;
    }
    return p < 0.5 ? x : -x;
}

TMPL_INLINE double special_entr(double x) {
    return x != x ? x : x > 0 ? -x * log(x) : x == 0 ? 0 : -(double)INFINITY;
}

TMPL_INLINE double special_xlog1py(double x, double y) {
    return y != y ? y : x == 0 ? 0 : x * log1p(y);
}

/* ---- Zeta --------------------------------------------------------------------------------------*/

/* The sum over k >= 0 of (q + k)^-s for s > 1, q > 0: terms until Euler's and Maclaurin's formula
 * converges or nothing is left to add. */
TMPL_INLINE double special_zeta_right(double s, double q) {
    static const double bernoulli[] = {1.0 / 6,       -1.0 / 30,       1.0 / 42,      -1.0 / 30,
                                       5.0 / 66,      -691.0 / 2730,   7.0 / 6,       -3617.0 / 510,
                                       43867.0 / 798, -174611.0 / 330, 854513.0 / 138};
    double sum = 0, v = q, term = pow(v, -s), rise, part;
    if (q == (double)INFINITY) return 0;
    while (v < 10 + s) {
        sum += term;
        if (term <= sum * 1e-18) return sum;
        v += 1;
        term = pow(v, -s);
    }
    sum += pow(v, 1 - s) / (s - 1) + 0.5 * term;
    rise = s / (2 * v);
    for (int j = 0; j < SERIES_COUNT(bernoulli); j++) {
        part = bernoulli[j] * rise * term;
        sum += part;
        if (fabs(part) < sum * 1e-18) break;
        rise *= (s + 2 * j + 1) * (s + 2 * j + 2) / ((2 * j + 3) * (2 * j + 4) * v * v);
    }
    return sum;
}

/* Left of 0 only whole exponents have real terms. What the sum over all integers, which repeats
 * itself, has beyond q is taken off. */
TMPL_INLINE double special_zeta(double s, double q) {
    if (s != s || q != q) return s + q;
    if (s == 1) return (double)INFINITY;
    if (s < 1) return (double)NAN;
    if (q > 0) return special_zeta_right(s, q);
    if (q == floor(q)) return (double)INFINITY;
    if (s != floor(s)) return (double)NAN;
    double right = q - floor(q), left = ceil(q) - q, sign = fmod(s, 2.0) == 0 ? 1 : -1;
    double all = special_zeta_right(s, right) + sign * special_zeta_right(s, left);
    return all - sign * special_zeta_right(s, 1 - q);
}

/* Reflection below 0, recurrence up to 10, then the asymptotic series. */
TMPL_INLINE double special_digamma(double v) {
    double r = 0;
    if (v < 0) {
        if (v == floor(v)) return (double)NAN;
        r = -0x1.921fb54442d18p+1 / tan(0x1.921fb54442d18p+1 * (v - nearbyint(v)));
        v = 1 - v;
    }
    for (; v < 10; v += 1) r -= 1 / v;
    double z = 1 / (v * v);
    double s =
        z * (1.0 / 12 -
             z * (1.0 / 120 -
                  z * (1.0 / 252 -
                       z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
    return r + log(v) - 0.5 / v - s;
}

/* The derivative of digamma for v > 0: the asymptotic series beyond 10, and what leads there, three
 * fractions over one denominator, for a division takes longer than all else. */
TMPL_INLINE double special_trigamma(double v) {
    double first = v < 10 ? 1 / (v * v) : 0, sum = 0;
    v = v < 10 ? v + 1 : v;
    while (v < 10) {
        double over = 1, under = v * v;
        v += 1;
        for (int k = 0; k < 2 && v < 10; k++, v += 1) {
            over = over * (v * v) + under;
            under *= v * v;
        }
        sum += over / under;
    }
    double z = 1 / (v * v), s = 7.0 / 6 - z * (3617.0 / 510 - z * (43867.0 / 798));
    s = z * (1.0 / 30 - z * (5.0 / 66 - z * (691.0 / 2730 - z * s)));
    s = z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - s)));
    return first + (sum + ((1 + s) / v + 0.5 * z));
}

/* The n-th derivative of digamma, n >= 1. */
TMPL_INLINE double special_polygamma(double x, int64_t n) {
    if (n == 1 && x > 0) return special_trigamma(x);
    double r = tgamma((double)n + 1) * special_zeta((double)n + 1, x);
    return n % 2 ? r : -r;
}

/* ---- Incomplete gamma functions ----------------------------------------------------------------*/

/* What Stirling's formula leaves of log Gamma(a + 1), for a >= 10. */
TMPL_INLINE double special_stirling(double a) {
    double z = 1 / (a * a);
    return (1.0 / 12 -
            z * (1.0 / 360 -
                 z * (1.0 / 1260 -
                      z * (1.0 / 1680 - z * (1.0 / 1188 - z * (691.0 / 360360 - z / 156)))))) /
           a;
}

/* a log(a / x) + x - a, without cancellation where x is near a. */
TMPL_INLINE double special_deviance(double a, double x) {
    double d = a - x, v = d / (a + x);
    if (fabs(v) >= 0.1) return a * log(a / x) + x - a;
    double sum = d * v, power = 2 * a * v;
    for (int j = 1; j < 40; j++) {
        power *= v * v;
        double next = sum + power / (2 * j + 1);
        if (next == sum) break;
        sum = next;
    }
    return sum;
}

/* x^a e^-x / Gamma(a + 1) */
TMPL_INLINE double special_gamma_front(double a, double x) {
    if (a < 10) return exp(a * log(x) - x - lgamma(a + 1));
    return exp(-special_stirling(a) - special_deviance(a, x)) / (SPECIAL_SQRT_2PI * sqrt(a));
}

/* log Gamma(1 + a) for 0 <= a <= 0.5, with a small relative error. */
TMPL_INLINE double special_lgamma_1p(double a) {
    static const double c[] = {
        0x1.4a34cc4a60fa6p-2,   -0x1.13e001a557607p-4,  0x1.51322ac7d8483p-6,
        -0x1.e404fc218f5f2p-8,  0x1.7add6eadb6c30p-9,   -0x1.38ac5c2bf8e08p-10,
        0x1.0b36af86396e9p-11,  -0x1.d3fd4c76d2fc8p-13, 0x1.a127b0f17d65ap-14,
        -0x1.78de5bd7c81efp-15, 0x1.580dcee66eb02p-16,  -0x1.3cbc963ce2243p-17,
        0x1.2597a39f34aacp-18,  -0x1.11b2eb7679541p-19, 0x1.0064cdeb22f0fp-20,
        -0x1.e2600d93cfd2fp-22, 0x1.c76bbb3f07a4dp-23,  -0x1.af5a6cbbf8a97p-24,
        0x1.99b93c2070b0fp-25,  -0x1.862c734df3eacp-26, 0x1.7469daccfadcdp-27,
        -0x1.6434a8447aeadp-28, 0x1.555a877ffd2c3p-29,  -0x1.47b1679258d0ep-30,
        0x1.3b15d2b2fc10cp-31,  -0x1.2f69a9fabe3e0p-32, 0x1.24932a337434cp-33,
        -0x1.1a7c26ec2523cp-34, 0x1.11116e693ed98p-35,  -0x1.08424cbc543d8p-36};
    return a * (1 - BESSEL_GAMMA) - log1p(a) + a * a * SERIES_POWERS(c, a);
}

/* The same for z > a, z > 40, from Q = 1 - P: relative to the density it is a sum of
 * t(k) = (a-1)...(a-k) / z^k, whose terms decline until they are too small to add. */
TMPL_INLINE double special_gamma_draw_slope_right(double a, double z) {
    double t = 1, by_a = 0, sum = 1, sum_by_a = 0;
    for (double k = 1; fabs(a - k) < z; k++) {
        by_a = by_a * ((a - k) / z) + t / z;
        t *= (a - k) / z;
        sum += t;
        sum_by_a += by_a;
        if (fabs(t) < 1e-17 * sum && fabs(by_a) <= 1e-17 * fabs(sum_by_a)) break;
    }
    return (log(z) - special_digamma(a)) * sum + sum_by_a;
}

/* dz/da of z(a), the draw of the gamma distribution with shape a that keeps its share P(a, z) of smaller
 * ones: -(dP/da) / (dP/dz), with the series of P, the sum of z^(a+n) e^-z / Gamma(a+n+1), derived term by
 * term and taken relative to the density. For large shapes Cornish's and Fisher's expansion
 * around the normal distribution, whose next term is below a^-2. */
TMPL_INLINE double special_gamma_draw_slope(double a, double z) {
    if (!(a > 0 && z > 0 && a < (double)INFINITY && z < (double)INFINITY)) return (double)NAN;
    if (a > 1e6) {
        double root = sqrt(a), x = 3 * root * (cbrt(z / a) - 1 + 1 / (9 * a));
        return 1 + x / (2 * root) - (x * x - 7) * x / (72 * a * root);
    }
    if (z > a && z > 40) return special_gamma_draw_slope_right(a, z);
    double term = z / a, slope = log(z) - special_digamma(a + 1), sum = 0;
    for (double n = 1;; n++) {
        double part = term * slope;
        sum += part;
        if (slope < 0 && a + n > z && fabs(part) < fabs(sum) * 1e-17) return -sum;
        slope -= 1 / (a + n);
        term *= z / (a + n);
        if (!(term > 0)) return -sum;
    }
}

/* The lower function's series. */
TMPL_INLINE double special_gamma_series(double a, double x) {
    double term = 1, sum = 1;
    for (int n = 1; n < 2000; n++) {
        term *= x / (a + n);
        sum += term;
        if (term < sum * 1e-17) break;
    }
    return sum * special_gamma_front(a, x);
}

/* The upper function for small x and a, where it is what two numbers near 1 differ by. */
TMPL_INLINE double special_gamma_difference(double a, double x) {
    double term = 1, sum = 0, whole = a <= 0.5 ? special_lgamma_1p(a) : lgamma(1 + a);
    for (int n = 1; n < 100; n++) {
        term *= -x / n;
        sum += term / (a + n);
        if (fabs(term) < fabs(sum) * 1e-18) break;
    }
    double l = a * log(x) - whole;
    return -expm1(l) - exp(l) * sum * a;
}

/* The upper function's continued fraction, by Lentz' method. */
TMPL_INLINE double special_gamma_fraction(double a, double x) {
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int n = 1; n < 2000; n++) {
        double an = -n * (n - a);
        b += 2;
        d = an * d + b;
        c = b + an / c;
        d = fabs(d) < 1e-300 ? 1e300 : 1 / d;
        c = fabs(c) < 1e-300 ? 1e-300 : c;
        double step = c * d;
        h *= step;
        if (fabs(step - 1) < 1e-16) break;
    }
    return h * a * special_gamma_front(a, x);
}

/* Note [Temme]
 * For large a the incomplete gamma functions are the normal distribution's at eta * sqrt(a), where
 * eta^2 / 2 = x / a - 1 - log(x / a), but for a sum of powers of 1 / a. Its coefficients are
 * smooth in eta; row k of the tables holds the k-th one's series. */
TMPL_INLINE double special_temme(double a, double eta) {
    static const double c0[] = {
        -0x1.5555555555555p-2,  0x1.5555555555555p-4,   -0x1.e573ac901e574p-7,
        0x1.2f684bda12f68p-10,  0x1.71de3a556c734p-12,  -0x1.76e06fec7273bp-13,
        0x1.48c5892f7cd83p-15,  -0x1.255370652afc1p-19, -0x1.f1b22f594c6b5p-20,
        0x1.bd6d21e4b4109p-21,  -0x1.7b5f9a2d0465cp-23, 0x1.ccf5ceb7f0d9fp-28,
        0x1.6097d55c37c1cp-27,  -0x1.2d2197c7a2faap-28, 0x1.f6e66d24d5c8ap-31,
        -0x1.c0d9b6edf2b0bp-36, -0x1.0070a87340428p-34, 0x1.ac9475c463659p-36,
        -0x1.61ca701fd754ap-38, 0x1.ef98008f5eec2p-44,  0x1.7ba0759769d7cp-42,
        -0x1.3989bebb193c0p-43, 0x1.0104fc4369a3cp-45,  -0x1.283fe7950ad7bp-51,
        -0x1.1ca914d71a27cp-49, 0x1.d2e7d5ca48b90p-51};
    static const double c1[] = {
        -0x1.e573ac901e574p-10, -0x1.c71c71c71c71cp-9,  0x1.5ac056b015ac0p-9,
        -0x1.0394f6f09e723p-10, 0x1.af83440e53dbcp-13,  -0x1.af83440e53dbcp-22,
        -0x1.2fa4ae89e5af0p-16, 0x1.00a9cabd6b83ep-17,  -0x1.b0bdfcc629cbap-20,
        0x1.3f59230a8357cp-28,  0x1.280f2cde3f847p-23,  -0x1.ee23d0cba8aeep-25,
        0x1.9aa7a30de114cp-27,  -0x1.349fbca3a377bp-36, -0x1.1564ecff73d58p-30,
        0x1.c9b434bf3c34ep-32,  -0x1.78a5056f8ce45p-34, 0x1.113e3a466db9ep-44,
        0x1.f8041c5540ea2p-38,  -0x1.9ccf2fab4608bp-39, 0x1.519580a10cd82p-41,
        -0x1.f3b7a5dcd1851p-53, -0x1.c068b448455eap-45, 0x1.6d8a9ef5c1827p-46,
        -0x1.29b03783db2a2p-48};
    static const double c2[] = {
        0x1.0ee643b990ee6p-8,   -0x1.5f7268edab4c8p-9,  0x1.948b0fcd6e9e0p-11,
        0x1.0db20a88f4696p-19,  -0x1.c253efaa1a932p-14, 0x1.bbf43daf4fe53p-15,
        -0x1.ac2d05890f2c3p-17, 0x1.26154ae39151dp-25,  0x1.7058929663937p-20,
        -0x1.522cb05171911p-21, 0x1.32ac81c15d3d7p-23,  -0x1.c24bd0e740a6cp-33,
        -0x1.e437343a46f5dp-27, 0x1.ac0d455e25360p-28,  -0x1.77c5829460139p-30,
        0x1.0962774f638bbp-40,  0x1.1b1056c188672p-33,  -0x1.e9778dbc61371p-35,
        0x1.a55da34225759p-37,  -0x1.2c681309d6007p-48, -0x1.33f39f65c6eeep-40,
        0x1.0675f56b95f3bp-41,  -0x1.be16182b001e8p-44};
    static const double c3[] = {
        0x1.547d93b34e2b6p-11,  0x1.e13ce465fa859p-13,  -0x1.ebfb188b7ca00p-12,
        0x1.18b9b5bf2d984p-12,  -0x1.3d2a3a29b5d9dp-14, -0x1.0152a1871f27ap-22,
        0x1.73df462204ef4p-17,  -0x1.7cd6f27b3f020p-18, 0x1.7e0201539310ep-20,
        -0x1.ea23269c140a7p-36, -0x1.6c2dcffbefeefp-23, 0x1.5bde8ef4c4dc7p-24,
        -0x1.4853ced169327p-26, 0x1.50c3f0dd501ebp-39,  0x1.1b66a39794ba9p-29,
        -0x1.040c53b2491f0p-30, 0x1.d9b15465daec1p-33,  -0x1.f46057e1c9d1fp-47,
        -0x1.812d3d94d533bp-36, 0x1.587d7a7c1a668p-37,  -0x1.328e9df2eb8b6p-39};
    static const double c4[] = {
        -0x1.c3e0b02da7bf9p-11, 0x1.9b0ff6874f2c4p-11,  -0x1.3999a85a4237ap-12,
        -0x1.88f2ae1def9d0p-20, 0x1.16908b48ce058p-14,  -0x1.4ce3fd902bcadp-15,
        0x1.7db4c02846e81p-17,  0x1.13b3c5b7cb45ep-32,  -0x1.c71c074985d3fp-20,
        0x1.de37d9f09164cp-21,  -0x1.ec676cf33153cp-23, 0x1.041515bab6adap-35,
        0x1.efe94304ac16bp-26,  -0x1.e78e449f4e3bep-27, 0x1.d9a9f1a8b7696p-29,
        -0x1.033ba70791e5ep-42, -0x1.b14f212618752p-32, 0x1.9911dbca7ce93p-33};
    static const double c5[] = {
        -0x1.6128ac5a4fa71p-12, -0x1.247604839c038p-14, 0x1.22be87360ef1fp-12,
        -0x1.a2042c5148e27p-13, 0x1.1d1e9cb24760bp-14,  0x1.30bdcf208080ep-23,
        -0x1.c823fc1b3cc36p-17, 0x1.0d0e229150428p-17,  -0x1.338eb19652fd9p-19,
        -0x1.659cfde0bb2ebp-32, 0x1.741504e5c87c2p-22,  -0x1.8c267becd0c0fp-23,
        0x1.9e630225a095bp-25,  -0x1.4411c5ac40e35p-46, -0x1.b15bbf334c8c3p-28,
        0x1.b2a3adb58623dp-29};
    static const double c6[] = {
        0x1.168ef1b0931c8p-11,  -0x1.36773bdb97b48p-11, 0x1.1c0950d3ecb9dp-12,
        0x1.a8411da6cab49p-21,  -0x1.5600945495b37p-14, 0x1.d6bdf83130dc1p-15,
        -0x1.3382f4cf48618p-16, -0x1.a74243fa27729p-29, 0x1.d115d4f5dcc68p-19,
        -0x1.10587854fcb37p-19, 0x1.36c8903447d35p-21};
    static const double c7[] = {0x1.691879c01efb4p-12,  0x1.b1d75d3346711p-15,
                                -0x1.5f3385098cebfp-12, 0x1.26eeb5ece1d9fp-12,
                                -0x1.cc642787368cep-14, -0x1.119c70312e0a2p-23,
                                0x1.d179830b113abp-16};
    double s = SERIES_POWERS(c7, eta), z = 1 / a;
    s = s * z + SERIES_POWERS(c6, eta);
    s = s * z + SERIES_POWERS(c5, eta);
    s = s * z + SERIES_POWERS(c4, eta);
    s = s * z + SERIES_POWERS(c3, eta);
    s = s * z + SERIES_POWERS(c2, eta);
    s = s * z + SERIES_POWERS(c1, eta);
    return s * z + SERIES_POWERS(c0, eta);
}

/* The lower or the upper regularised function. */
TMPL_INLINE double special_gamma_part(double a, double x, bool upper) {
    if (!(a >= 0 && x >= 0)) return (double)NAN;
    double all = upper ? 0 : 1, nothing = 1 - all;
    if (a == 0) return x > 0 ? all : (double)NAN;
    if (x == 0) return nothing;
    if (a == (double)INFINITY) return x == (double)INFINITY ? (double)NAN : nothing;
    if (x == (double)INFINITY) return all;
    if (a >= 200 && x > 0.3 * a && x < 2.4 * a) {
        double half = special_deviance(a, x) / a, eta = copysign(sqrt(2 * half), x - a);
        if (fabs(eta) < 0.8) {
            double z = eta * sqrt(a / 2), side = exp(-a * half) / (SPECIAL_SQRT_2PI * sqrt(a));
            double rest = side * special_temme(a, eta);
            return upper ? 0.5 * erfc(z) + rest : 0.5 * erfc(-z) - rest;
        }
    }
    if (x <= 1.1 && a <= 1 && upper) return special_gamma_difference(a, x);
    if (x < a + 1) {
        double p = special_gamma_series(a, x);
        return upper ? 1 - p : p;
    }
    double q = special_gamma_fraction(a, x);
    return upper ? q : 1 - q;
}

/* ---- Orthogonal polynomials --------------------------------------------------------------------
 * The degree is n without its fraction; below 0 the polynomial is 0. A recurrence ends when it
 * has become NaN or after SPECIAL_DEGREES steps, beyond which the value is given as NaN. */
#define SPECIAL_DEGREES INT64_C(50000000)

TMPL_INLINE int64_t special_degree(double n) {
    return !(n > -1) ? -1 : n >= 0x1p62 ? INT64_C(1) << 62 : (int64_t)n;
}

/* p(k + 1) = 2 x p(k) - p(k - 1) from p(0) = 1, p(1) = first. */
TMPL_INLINE double special_chebyshev(double x, double first, int64_t n) {
    double p = 1, q = first;
    if (n == 0) return 1;
    if (n > SPECIAL_DEGREES) return (double)NAN;
    for (int64_t k = 1; k < n && q == q; k++) {
        double r = 2 * x * q - p;
        p = q;
        q = r;
    }
    return q;
}

/* The kinds t, u, v, w at 1 are 1, n + 1, 1, 2n + 1, at -1 the same but for the sign with v and w
 * exchanged; inside a high degree is taken from the angle. */
TMPL_INLINE double special_chebyshev_t(double x, double degree) {
    int64_t n = special_degree(degree);
    if (n < 0) return 0;
    if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
    if (n > 6 && fabs(x) < 1) return cos((double)n * acos(x));
    return special_chebyshev(x, x, n);
}
TMPL_INLINE double special_chebyshev_u(double x, double degree) {
    int64_t n = special_degree(degree);
    if (n < 0) return 0;
    if (fabs(x) == 1) return (x > 0 || n % 2 == 0 ? 1 : -1) * ((double)n + 1);
    if (n > 8 && fabs(x) < 1) {
        double t = acos(x), s = sin(t);
        return s != 0 ? sin((double)(n + 1) * t) / s
                      : (double)(n + 1) * cos((double)(n + 1) * t) / x;
    }
    return special_chebyshev(x, 2 * x, n);
}
TMPL_INLINE double special_chebyshev_v(double x, double degree) {
    int64_t n = special_degree(degree);
    if (n < 0) return 0;
    if (x == 1) return 1;
    if (x == -1) return (n % 2 ? -1 : 1) * (2 * (double)n + 1);
    if (n > 8 && fabs(x) < 1) {
        double t = acos(x);
        return cos(((double)n + 0.5) * t) / cos(t / 2);
    }
    return special_chebyshev(x, 2 * x - 1, n);
}
TMPL_INLINE double special_chebyshev_w(double x, double degree) {
    int64_t n = special_degree(degree);
    if (n < 0) return 0;
    if (x == 1) return 2 * (double)n + 1;
    if (x == -1) return n % 2 ? -1 : 1;
    if (n > 8 && fabs(x) < 1) {
        double t = acos(x);
        return sin(((double)n + 0.5) * t) / sin(t / 2);
    }
    return special_chebyshev(x, 2 * x + 1, n);
}

/* p(k + 1) = (a x p(k) - b k p(k - 1)) with (a, b) = (2, 2) or (1, 1). */
TMPL_INLINE double special_hermite(double x, double degree, double a) {
    int64_t n = special_degree(degree);
    double p = 1, q = a * x;
    if (n < 0) return 0;
    if (n == 0) return 1;
    if (n > SPECIAL_DEGREES) return (double)NAN;
    for (int64_t k = 1; k < n && q == q; k++) {
        double r = a * (x * q - (double)k * p);
        p = q;
        q = r;
    }
    return q;
}
TMPL_INLINE double special_laguerre(double x, double degree) {
    int64_t n = special_degree(degree);
    double p = 1, q = 1 - x;
    if (n < 0) return 0;
    if (n == 0 || x == 0) return 1;
    if (n > SPECIAL_DEGREES) return (double)NAN;
    for (int64_t k = 1; k < n && q == q; k++) {
        double r = ((2 * (double)k + 1 - x) * q - (double)k * p) / ((double)k + 1);
        p = q;
        q = r;
    }
    return q;
}
TMPL_INLINE double special_legendre(double x, double degree) {
    int64_t n = special_degree(degree);
    double p = 1, q = x;
    if (n < 0) return 0;
    if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
    if (n == 0) return 1;
    if (n > SPECIAL_DEGREES) return (double)NAN;
    for (int64_t k = 1; k < n && q == q; k++) {
        double r = ((2 * (double)k + 1) * x * q - (double)k * p) / ((double)k + 1);
        p = q;
        q = r;
    }
    return q;
}

#endif
