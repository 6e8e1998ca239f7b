/* special_many.h: the functions of special.h and bessel.h that scripts use on many numbers, for loops that
 * compilers vectorise: every branch is computed, a choice takes the fitting one. What has a near and a far part stands as two, _close and _away, so
 * that blocks of one kind need not compute both (map_habits.h). Not for a GPU, where
 * branches cost little. Angles beyond F64_ANGLE_MAX go to the C library (map_habits.h). */
#ifndef SPECIAL_MANY_H
#define SPECIAL_MANY_H

#include "special.h"

#if !defined(TMPL_CUDA)
TMPL_INLINE double many_least(double x, double most) { return x > most ? most : x; }

/* ---- The normal distribution -------------------------------------------------------------------*/

TMPL_INLINE double many_erfcx(double x) {
    double a = f64_abs(x), r = f64_erfcx_right(a);
    double left = 2 * f64_exp_square(many_least(a, 27.5), 1) - r;
    return x != x ? x : x < 0 ? left : r;
}

/* Left of 0 the square stands outside the logarithm. */
TMPL_INLINE double many_log_ndtr(double x) {
    double a = f64_abs(x), t = 0.5 * f64_erfcx_right(a * SPECIAL_SQRT_HALF);
    double right = f64_log1p(-t * f64_exp_square(many_least(a, 38.9), -0.5));
    return x > 0 ? right : f64_log(t) - 0.5 * x * x;
}

/* erfinv(x) / x of w = -log(1 - x * x): for w < 6.25, and by its root up to w = 750. */
TMPL_INLINE double many_erfinv_near(double w) {
    static const double c[] = {
        0x1.a755e7c99ae86p+0,   0x1.ebd80d9b13e2bp-3,  -0x1.8b6c33114eae7p-8,
        -0x1.84576948514e9p-11, 0x1.879c2a20bb963p-13, -0x1.d1d1f7b799e14p-17,
        -0x1.6e8a53d8b2f84p-20, 0x1.c6b4f5b4485bep-22, -0x1.f36ce9a1f1537p-26,
        -0x1.1a9e34ea80b32p-28, 0x1.20f50c65994a5p-30, -0x1.dc58e86640cd4p-35,
        -0x1.c89af9a5a861dp-37, 0x1.72a472e24d62fp-39, -0x1.6d16abb83554bp-44,
        -0x1.6d477ac908a6ep-45, 0x1.da47a520e32a3p-48, 0x1.8fbd6d8bfb534p-56,
        -0x1.299d9e862c5a3p-53, 0x1.9a782918c0eefp-57, 0x1.457b7c7ee27bcp-60,
        -0x1.8c612fe6d4cc6p-63, -0x1.1d97cd0a28444p-72};
    return SERIES_POWERS(c, w - 3.125);
}
TMPL_INLINE double many_erfinv_far(double w) {
    static const double middle[] = {
        0x1.8abcc380d5a48p+1,  0x1.0158a6d641d39p+0,   0x1.5ffcfe5b6db7ap-8,
        -0x1.ebadabb88eb36p-9, 0x1.468eeca887021p-9,   -0x1.ba924133966efp-10,
        0x1.f3cc54ba4185ap-11, -0x1.7448a8807fc16p-12, 0x1.932deb51d5effp-16,
        0x1.1e684a09f878bp-14, -0x1.8cf1ea476ca5dp-15, 0x1.a29a626bd0bb9p-17,
        0x1.88e7be48aa51ap-19, -0x1.0d5f12f3cb324p-18, 0x1.918866d43073fp-20,
        0x1.3acdcdc26635cp-26, -0x1.206ae34abd5a9p-22, 0x1.85a326c1cb527p-24,
        -0x1.a53a301e22b57p-32};
    static const double far[] = {
        0x1.f28072b9997a9p-1,   0x1.2a29b5274eab2p-4,   -0x1.4b5787581c341p-4,
        0x1.88970c9ba6e87p-5,   0x1.56d31e0a7b6a7p-10,  -0x1.ddca9039e24fbp-5,
        0x1.d464469912c83p-4,   -0x1.50ff0453d5978p-3,  0x1.b6d860d702d9fp-3,
        -0x1.65262ef1f7a47p-2,  0x1.33c7b382dcbc3p+0,   -0x1.a26bc597dce68p+2,
        0x1.1011a952b22e2p+5,   -0x1.221ecbfd4b0bap+7,  0x1.d17bc646cb361p+8,
        -0x1.adbf69066dbe5p+9,  -0x1.0825f91076fcep+10, 0x1.a6cd056ecb070p+13,
        -0x1.1ac97d511c33cp+15, -0x1.ab541157905f4p+12, 0x1.b37e0d46d347bp+17,
        -0x1.4422622b1ed9fp+18};
    static const double tail[] = {
        0x1.fd0d42f29d045p-1,  0x1.30dda9008e59dp-6,  -0x1.d1005bc51dc3dp-6, 0x1.0890abc76301ap-5,
        -0x1.10d5e2bca1489p-5, 0x1.0637b52e49599p-5,  -0x1.db890c32f98cbp-6, 0x1.93ceb2968222ep-6,
        -0x1.3a533ecc699c0p-6, 0x1.a4f584393922bp-7,  -0x1.7f600728f94fep-8, -0x1.9e7430518fb75p-10,
        0x1.30a249eff9a6fp-7,  -0x1.2793b17cfc5cep-6, 0x1.b72fed8300a5cp-6,  -0x1.aeb3ab14f17d6p-6,
        0x1.d18f684544b12p-6,  -0x1.53359026c00b6p-4, 0x1.affedd33dcbcap-4};
    double root = TMPL_BUILTIN(sqrt)(w);
    double r = root * SERIES_POWERS(tail, (root - 15) / (root + 15));
    double s = root * SERIES_POWERS(far, (root - 5.5) / (root + 5.5));
    double t = SERIES_POWERS(middle, root - 3.25);
    return root < 4 ? t : root < 8 ? s : r;
}

TMPL_INLINE double many_erfinv_close(double x) {
    return x == 0 ? x : x * many_erfinv_near(-f64_log((1 - x) * (1 + x)));
}
TMPL_INLINE double many_erfinv_away(double x) {
    double r = x * many_erfinv_far(-f64_log((1 - x) * (1 + x)));
    return f64_abs(x) == 1 ? x * (double)INFINITY : r;
}
TMPL_INLINE bool many_erfinv_past(double x) { return !(f64_abs(x) <= 0.999); }

TMPL_INLINE double many_ndtri_close(double p) {
    double w = -f64_log(4 * p * (1 - p));
    return (p + p - 1) * (many_erfinv_near(w) * (2 * SPECIAL_SQRT_HALF));
}
TMPL_INLINE double many_ndtri_away(double p) {
    double low = p < 0.5 ? p : 1 - p, w = -f64_log(4 * low * (1 - low));
    double r = (p + p - 1) * (many_erfinv_far(w) * (2 * SPECIAL_SQRT_HALF));
    r = p == 0 ? -(double)INFINITY : p == 1 ? (double)INFINITY : r;
    return p >= 0 && p <= 1 ? r : (double)NAN;
}
TMPL_INLINE bool many_ndtri_past(double p) { return !(p >= 0.0005 && p <= 0.9995); }

TMPL_INLINE double many_entr(double x) {
    double r = x == 0 ? 0 : -x * f64_log(x);
    r = x == (double)INFINITY ? -x : r;
    return x < 0 ? -(double)INFINITY : r;
}

TMPL_INLINE double many_xlog1py(double x, double y) {
    double r = x * f64_log1p(y);
    return y != y ? y : x == 0 ? 0 : r;
}

/* ---- Of the factorial --------------------------------------------------------------------------*/

/* As special_digamma; the fractions that lead beyond 10 are added over one denominator. */
TMPL_INLINE double many_digamma_close(double x) {
    double over = 0, under = 1;
    SERIES_UNROLL
    for (int k = 0; k < 10; k++) {
        over = over * (x + k) + under;
        under *= x + k;
    }
    double v = x < 10 ? x + 10 : x, least = x < 10 ? over / under : 0;
    double z = 1 / (v * v), s = 691.0 / 32760 - z * (1.0 / 12);
    s = 1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * s));
    s = z * (1.0 / 12 - z * (1.0 / 120 - z * s));
    return f64_log(v) - 0.5 / v - s - least;
}
/* Left of 0, of the right side at 1 - x. */
TMPL_INLINE double many_digamma_left(double x, double right) {
    const double pi = 0x1.921fb54442d18p+1;
    f64_angle a = f64_reduce(pi * (x - TMPL_BUILTIN(rint)(x)));
    double sine = f64_sin_part(a), cosine = f64_cos_part(a);
    double over = a.quadrant & 1u ? -sine : cosine, under = a.quadrant & 1u ? cosine : sine;
    return x == TMPL_BUILTIN(floor)(x) ? (double)NAN : right - pi * over / under;
}
TMPL_INLINE double many_digamma_away(double x) {
    return many_digamma_left(x, many_digamma_close(1 - x));
}
TMPL_INLINE double many_digamma(double x) {
    double right = many_digamma_close(x < 0 ? 1 - x : x), left = many_digamma_left(x, right);
    return x < 0 ? left : right;
}
TMPL_INLINE bool many_digamma_past(double x) { return x < 0; }

/* sin(pi y) for |y| <= 1/2. */
TMPL_INLINE double many_sin_pi(double y) {
    static const double c[] = {0x1.921fb54442d18p+1,  -0x1.4abbce625be53p+2,  0x1.466bc6775aae2p+1,
                               -0x1.32d2cce62bd57p-1, 0x1.50783487ec19ap-4,   -0x1.e3074fdc520eap-8,
                               0x1.e8f4338e03a66p-12, -0x1.6fad488852625p-16, 0x1.aabbe3815eb60p-21,
                               -0x1.7ed4cd7222586p-26};
    return y * SERIES_POWERS(c, y * y);
}

/* Left of 0 by the sine's product; close to the zeros there some digits are lost. */
TMPL_INLINE double many_lgamma_close(double x) { return f64_lgamma(x); }
TMPL_INLINE double many_lgamma_left(double a, double right) {
    double wave = f64_abs(many_sin_pi(a - TMPL_BUILTIN(rint)(a)));
    double r = 0x1.250d048e7a1bdp+0 - f64_log(a * wave) - right; /* log(pi) */
    return a == TMPL_BUILTIN(floor)(a) ? (double)INFINITY : r;
}
TMPL_INLINE double many_lgamma_away(double x) { return many_lgamma_left(-x, f64_lgamma(-x)); }
TMPL_INLINE double many_lgamma(double x) {
    double a = f64_abs(x), right = f64_lgamma(a), left = many_lgamma_left(a, right);
    return x < 0 ? left : right;
}
TMPL_INLINE bool many_lgamma_past(double x) { return x < 0; }

/* ---- Modified Bessel functions -----------------------------------------------------------------*/

TMPL_INLINE bool many_i_past(double x) { return f64_abs(x) > 8; }
TMPL_INLINE double many_i0_close(double x) { return bessel_i0_near(x); }
TMPL_INLINE double many_i0_away(double x) {
    double a = f64_abs(x), half = f64_exp(0.5 * a);
    double r = half * (half * (bessel_i0_far(a) / TMPL_BUILTIN(sqrt)(a)));
    return a == (double)INFINITY ? a : r;
}
TMPL_INLINE double many_i0e_close(double x) { return f64_exp(-f64_abs(x)) * bessel_i0_near(x); }
TMPL_INLINE double many_i0e_away(double x) {
    double a = f64_abs(x);
    return bessel_i0_far(a) / TMPL_BUILTIN(sqrt)(a);
}
TMPL_INLINE double many_i1_close(double x) { return x / 2 * bessel_i1_near(x); }
TMPL_INLINE double many_i1_away(double x) {
    double a = f64_abs(x), half = f64_exp(0.5 * a);
    double r = half * (half * (bessel_i1_far(a) / TMPL_BUILTIN(sqrt)(a)));
    return TMPL_BUILTIN(copysign)(a == (double)INFINITY ? a : r, x);
}
TMPL_INLINE double many_i1e_close(double x) {
    return f64_exp(-f64_abs(x)) * (x / 2) * bessel_i1_near(x);
}
TMPL_INLINE double many_i1e_away(double x) {
    double a = f64_abs(x);
    return TMPL_BUILTIN(copysign)(bessel_i1_far(a) / TMPL_BUILTIN(sqrt)(a), x);
}

/* K has an end at 0 and nothing left of it. */
TMPL_INLINE bool many_k_past(double x) { return x > 1; }
TMPL_INLINE double many_k_end(double x, double r) {
    return x > 0 ? r : x == 0 ? (double)INFINITY : (double)NAN;
}
TMPL_INLINE double many_k0_close(double x) {
    double less = f64_log(0.5 * x) + BESSEL_GAMMA;
    return many_k_end(x, bessel_k0_sum(x) - less * bessel_i0_near(x));
}
TMPL_INLINE double many_k1_close(double x) {
    double wave = f64_log(0.5 * x) * (0.5 * x) * bessel_i1_near(x);
    return many_k_end(x, 1 / x + wave - bessel_k1_sum(x));
}
TMPL_INLINE double many_k0e_close(double x) { return f64_exp(x) * many_k0_close(x); }
TMPL_INLINE double many_k1e_close(double x) { return f64_exp(x) * many_k1_close(x); }
TMPL_INLINE double many_k0e_away(double x) { return bessel_k0_far(x) / TMPL_BUILTIN(sqrt)(x); }
TMPL_INLINE double many_k1e_away(double x) { return bessel_k1_far(x) / TMPL_BUILTIN(sqrt)(x); }
TMPL_INLINE double many_k0_away(double x) { return f64_exp(-x) * many_k0e_away(x); }
TMPL_INLINE double many_k1_away(double x) { return f64_exp(-x) * many_k1e_away(x); }

/* ---- Bessel functions --------------------------------------------------------------------------
 * Up to 8 Chebyshev series in x * x, to which Y adds the logarithm's part. Beyond waves of
 * angle x - pi / 4 or x - 3 pi / 4 with two amplitudes that hardly vary, series in (8 / x)^2. */

TMPL_INLINE double many_j0_near(double u) {
    static const double c[] = {
        0x1.4306e1f9314dbp-3,   -0x1.1dd989ce98ea2p-7,  0x1.0f8afb7d3a552p-2,
        -0x1.7afa2e9c62a9ep-2,  0x1.43b8af58b7ffap-3,   -0x1.1dd989ce98ea2p-5,
        0x1.3bd46ccab9da0p-8,   -0x1.e300651cd3ae3p-12, 0x1.104c067d74d17p-15,
        -0x1.d8f811cd3e853p-20, 0x1.46c4a4b32aa3bp-24,  -0x1.703bda6758f6fp-29,
        0x1.593076e904d04p-34,  -0x1.1192067e71726p-39, 0x1.73936aa3d0207p-45,
        -0x1.b5729d242acaep-51, 0x1.c2c89ea282aaap-57};
    return SERIES_CHEBYSHEV(c, u);
}
/* Over x. */
TMPL_INLINE double many_j1_near(double u) {
    static const double c[] = {
        0x1.4bf5ae47a6150p-4,   -0x1.3119e17fdbffdp-3,  0x1.49b9fb3408e33p-3,
        -0x1.52a8c7827daa8p-4,  0x1.6bf2c1f5f71e1p-6,   -0x1.de030538b55b0p-9,
        0x1.a8b56cedfe580p-12,  -0x1.11188227a5012p-15, 0x1.0a8a3a628fc7bp-19,
        -0x1.98f754605f635p-24, 0x1.fac17c7273311p-29,  -0x1.030d00d42d6f4p-33,
        0x1.bcc0916376113p-39,  -0x1.453d2b4e985cbp-44, 0x1.9a36afedba862p-50,
        -0x1.c2dff424052f8p-56};
    return SERIES_CHEBYSHEV(c, u);
}
TMPL_INLINE double many_y0_near(double u) {
    static const double c[] = {
        -0x1.0f88700652ecbp-5,  -0x1.190fcad75eca2p-2,  0x1.6ea98ade961a1p-3,
        0x1.0bd84f7777bd6p-2,   -0x1.6b1d515347a69p-3,  0x1.82a2a1c96271fp-5,
        -0x1.dd9fb881100e6p-8,  0x1.8ad9320695af0p-11,  -0x1.d873fa854ed4dp-15,
        0x1.ae5f9e7adde46p-19,  -0x1.35649a4058471p-23, 0x1.68b1c63f94e89p-28,
        -0x1.5c457ea1daccep-33, 0x1.1b53ed8a54178p-38,  -0x1.89f1fa5209ce6p-44,
        0x1.d9b425efafdd8p-50,  -0x1.f1a7711576130p-56};
    return SERIES_CHEBYSHEV(c, u);
}
TMPL_INLINE double many_y1_near(double u) {
    static const double c[] = {
        0x1.4ca997b04b826p-9,   -0x1.07927e87fd36bp-6,  -0x1.88db11a1e0337p-4,
        0x1.59ea4fc627f66p-4,   -0x1.d020c3798a51ap-6,  0x1.5aadc0f38e31dp-8,
        -0x1.504ea6f6291cdp-11, 0x1.cde014f53622dp-15,  -0x1.dadf80f6e35f9p-19,
        0x1.7c45af600d3dcp-23,  -0x1.e8a21e8e1cb71p-28, 0x1.01c33ee943bc5p-32,
        -0x1.c6f1d25aa2e2ap-38, 0x1.54fcf661706ffp-43,  -0x1.b7b8e4b5d24fcp-49,
        0x1.ed24ebd671b40p-55};
    return SERIES_CHEBYSHEV(c, u);
}

typedef struct many_wave {
    double sum, apart, p, q; /* of sine and cosine; the amplitudes over sqrt(pi a) */
} many_wave;

TMPL_INLINE many_wave many_wave_at(double a, double p, double q) {
    f64_angle at = f64_reduce(a);
    double s = f64_sin_part(at), c = f64_cos_part(at);
    double sine = at.quadrant & 1u ? c : s, cosine = at.quadrant & 1u ? s : c;
    double scale = 1 / TMPL_BUILTIN(sqrt)(BESSEL_PI * a);
    sine = at.quadrant & 2u ? -sine : sine;
    cosine = (at.quadrant + 1u) & 2u ? -cosine : cosine;
    many_wave w = {sine + cosine, sine - cosine, p * scale, q * scale / a};
    return w;
}
TMPL_INLINE many_wave many_wave_0(double a) {
    static const double c[] = {
        0x1.ffb944543151ep-1,   -0x1.194ac5283c04ap-11, 0x1.9cbe8b7395851p-19,
        -0x1.bc26938a82ce2p-25, 0x1.c03a8b38ca73cp-30,  -0x1.59ddcc28538a7p-34,
        0x1.6baf23642c61dp-38,  -0x1.e4a709e747714p-42, 0x1.85b4816718575p-45,
        -0x1.6d432cb51317bp-48, 0x1.84fff7d2c5a14p-51,  -0x1.cdb311279632bp-54,
        0x1.2cca261b828c8p-56,  -0x1.a918460f94a50p-59};
    static const double d[] = {
        -0x1.fdbbf76547cafp-4,  0x1.1ed40c7bf4761p-11,  -0x1.8e1017183d060p-18,
        0x1.34c3b3f0f3e19p-23,  -0x1.8fc71e52a5280p-28, 0x1.7334b27ad2882p-32,
        -0x1.c34f407df8aecp-36, 0x1.52763be909651p-39,  -0x1.2c827d7f508ddp-42,
        0x1.329f0c18557fdp-45,  -0x1.5fa31426619c0p-48, 0x1.bd963f97eece7p-51,
        -0x1.33cd2e4db12aep-53, 0x1.caa1fec43bb20p-56,  -0x1.6c7842f8c83a8p-58};
    double u = 128 / (a * a) - 1;
    return many_wave_at(a, SERIES_CHEBYSHEV(c, u), SERIES_CHEBYSHEV(d, u));
}
TMPL_INLINE many_wave many_wave_1(double a) {
    static const double c[] = {
        0x1.003b2e82f5f12p+0,   0x1.d7545f75d7da9p-11,  -0x1.0b9505ce79bbap-18,
        0x1.0953cdc0829efp-24,  -0x1.01454cf5d6ac0p-29, 0x1.83c5742be2cc2p-34,
        -0x1.9171afe32fbc8p-38, 0x1.088a8b6783875p-41,  -0x1.a5ead8be92912p-45,
        0x1.88e81929b3dfcp-48,  -0x1.a045d1abafaccp-51, 0x1.ebf5d14ee38bap-54,
        -0x1.3f5ab17ca3a56p-56, 0x1.c1f2f3897e227p-59};
    static const double d[] = {
        0x1.7f34213492af6p-2,   -0x1.93d0e4fa70662p-11, 0x1.eaa02bf61504bp-18,
        -0x1.681617e8645adp-23, 0x1.c467999a69933p-28,  -0x1.9c37875f5ebbcp-32,
        0x1.eeb91abca80a5p-36,  -0x1.6f877e53f9e9bp-39, 0x1.43f80579f89b9p-42,
        -0x1.48ac416af9b6bp-45, 0x1.772d4d7ef1623p-48,  -0x1.d994a83ad3709p-51,
        0x1.4611abde3931cp-53,  -0x1.e47c71a542d0ep-56, 0x1.801439c284428p-58};
    double u = 128 / (a * a) - 1;
    return many_wave_at(a, SERIES_CHEBYSHEV(c, u), SERIES_CHEBYSHEV(d, u));
}

/* The place of the square in the near series. */
TMPL_INLINE double many_place(double x) { return x * x * (1.0 / 32) - 1; }

TMPL_INLINE bool many_j_past(double x) { return f64_abs(x) > 8; }
TMPL_INLINE double many_j0_close(double x) { return many_j0_near(many_place(x)); }
TMPL_INLINE double many_j0_away(double x) {
    many_wave w = many_wave_0(f64_abs(x));
    return w.p * w.sum - w.q * w.apart;
}
TMPL_INLINE double many_j1_close(double x) { return x * many_j1_near(many_place(x)); }
TMPL_INLINE double many_j1_away(double x) {
    many_wave w = many_wave_1(f64_abs(x));
    double r = w.p * w.apart + w.q * w.sum;
    return x < 0 ? -r : r;
}

/* Y has an end at 0 and nothing left of it. */
TMPL_INLINE bool many_y_past(double x) { return x > 8; }
TMPL_INLINE double many_y_end(double x, double r) {
    return x > 0 ? r : x == 0 ? -(double)INFINITY : (double)NAN;
}
TMPL_INLINE double many_y0_close(double x) {
    double u = many_place(x), wave = f64_log(x) * many_j0_near(u);
    return many_y_end(x, many_y0_near(u) + 2 / BESSEL_PI * wave);
}
TMPL_INLINE double many_y0_away(double x) {
    many_wave w = many_wave_0(x);
    return w.p * w.apart + w.q * w.sum;
}
TMPL_INLINE double many_y1_close(double x) {
    double u = many_place(x), wave = f64_log(x) * (x * many_j1_near(u)) - 1 / x;
    return many_y_end(x, x * many_y1_near(u) + 2 / BESSEL_PI * wave);
}
TMPL_INLINE double many_y1_away(double x) {
    many_wave w = many_wave_1(x);
    return w.q * w.apart - w.p * w.sum;
}

/* sin(x) / x; near 0 its series. */
TMPL_INLINE double many_spherical_j0(double x) {
    double z = x * x, far = f64_sin(x) / x;
    double near = 1 - z / 72 * (1 - z / 110 * (1 - z / 156));
    near = 1 - z / 6 * (1 - z / 20 * (1 - z / 42 * near));
    return f64_abs(x) < 0.5 ? near : far;
}

/* ---- Both parts --------------------------------------------------------------------------------*/

#define MANY_(f, past)                                                                             \
    TMPL_INLINE double many_##f(double x) {                                                        \
        double close = many_##f##_close(x), away = many_##f##_away(x);                             \
        return past(x) ? away : close;                                                             \
    }
MANY_(erfinv, many_erfinv_past)
MANY_(ndtri, many_ndtri_past)
MANY_(i0, many_i_past)
MANY_(i0e, many_i_past)
MANY_(i1, many_i_past)
MANY_(i1e, many_i_past)
MANY_(k0, many_k_past)
MANY_(k1, many_k_past)
MANY_(k0e, many_k_past)
MANY_(k1e, many_k_past)
MANY_(j0, many_j_past)
MANY_(j1, many_j_past)
MANY_(y0, many_y_past)
MANY_(y1, many_y_past)
#endif

#endif
