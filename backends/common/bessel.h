/* bessel.h: Bessel functions and Airy's function of a double, for every backend. Series in powers of
 * x * x / 4 where x is small, and beyond a Chebyshev series in 1 / x of what is left when the
 * leading behaviour is divided out. The coefficients were computed with 40 digits. */
#ifndef BESSEL_H
#define BESSEL_H

#include <math.h>

#include "series.h"

#define BESSEL_PI 0x1.921fb54442d18p+1
#define BESSEL_GAMMA 0x1.2788cfc6fb619p-1 /* Euler's constant */

/* ---- Modified Bessel functions -----------------------------------------------------------------*/

/* I0 and I1 / (x / 2) for |x| <= 8: the terms are all positive. */
TMPL_INLINE double bessel_i0_near(double x) {
    static const double c[] = {
        0x1.0000000000000p+0,   0x1.0000000000000p+0,   0x1.0000000000000p-2,
        0x1.c71c71c71c71cp-6,   0x1.c71c71c71c71cp-10,  0x1.23456789abcdfp-14,
        0x1.02e85c0898b71p-19,  0x1.522a43f65486ap-25,  0x1.522a43f65486ap-31,
        0x1.0b313289be0b9p-37,  0x1.5601885e63e5dp-44,  0x1.69ca9cf3b7f54p-51,
        0x1.4197a7f5154bcp-58,  0x1.e725594ee52e9p-66,  0x1.3e22d70ef3b5fp-73,
        0x1.69f7da8510bcdp-81,  0x1.69f7da8510bcdp-89,  0x1.40a2dc2460523p-97,
        0x1.faaf2fa1c79e5p-106, 0x1.674f8e46c208cp-114, 0x1.cbeaf38dc529fp-123,
        0x1.0afb53e9cec0bp-131, 0x1.1a6d4e307528fp-140, 0x1.1159d2b18fe1fp-149,
        0x1.e5f504c9e358cp-159, 0x1.8e189760fbc74p-168};
    return SERIES_POWERS(c, x * x / 4);
}
TMPL_INLINE double bessel_i1_near(double x) {
    static const double c[] = {
        0x1.0000000000000p+0,   0x1.0000000000000p-1,   0x1.5555555555555p-4,
        0x1.c71c71c71c71cp-8,   0x1.6c16c16c16c17p-12,  0x1.845c8a0ce5129p-17,
        0x1.27e4fb7789f5cp-22,  0x1.522a43f65486ap-28,  0x1.2c9758daf5cd0p-34,
        0x1.ab81ea75fcdf4p-41,  0x1.f17697cf1cf13p-48,  0x1.e2637bef9ff1ap-55,
        0x1.8bce58901a35ep-62,  0x1.165e7c2d153f3p-69,  0x1.53585cdcbfb10p-77,
        0x1.69f7da8510bcdp-85,  0x1.54ad09e6a6575p-93,  0x1.1d028acb00491p-101,
        0x1.aaae78f4066a6p-110, 0x1.1f72d8389b3a3p-118, 0x1.5e69de22df5cep-127,
        0x1.84564b82a1184p-136, 0x1.88f11edf3ed4cp-145, 0x1.6c77c3976a829p-154,
        0x1.37033643c4b3bp-163, 0x1.e9f6e1b270f54p-173};
    return SERIES_POWERS(c, x * x / 4);
}

/* sqrt(x) e^-x times I0 and I1, for x > 8. */
TMPL_INLINE double bessel_i0_far(double x) {
    static const double c[] = {
        0x1.9be62aca809cbp-2,   0x1.b998ca2e59049p-9,   0x1.20fa378999e52p-14,
        0x1.8412bc101c586p-19,  0x1.b8007d9cd616ep-23,  0x1.8569280d6d56dp-26,
        0x1.d2c64a9225b87p-29,  0x1.0f9ccc0f46f75p-31,  0x1.a24feabe8004fp-37,
        -0x1.1511d08397425p-35, -0x1.d0fd7357e7bf2p-37, -0x1.f904303178d66p-40,
        0x1.94347fa268cecp-41,  0x1.b1c8c6b83c073p-42,  0x1.156ff0d5fc545p-46,
        -0x1.75d99cf68bb32p-45, -0x1.583fe7e65629ap-47, 0x1.12a919094e6d7p-48,
        0x1.fee7da3eafb1fp-50,  -0x1.8aee7d908de38p-52, -0x1.4600babd21fe4p-52,
        0x1.3f3dd076041cdp-55,  0x1.9be1812d98421p-55,  -0x1.646da66119130p-58,
        -0x1.0adb754ca8b19p-57, 0x1.24d48c789b293p-60,  0x1.604db61ad3debp-60};
    return SERIES_CHEBYSHEV(c, 16 / x - 1);
}
TMPL_INLINE double bessel_i1_far(double x) {
    static const double c[] = {
        0x1.8ea18b55b1514p-2,   -0x1.3fda053fcdb4cp-7,  -0x1.cfd7f804aa9a6p-14,
        -0x1.048df49ca0373p-18, -0x1.0dbfd2e9e5443p-22, -0x1.c415394bb46c1p-26,
        -0x1.0790b9ad53528p-28, -0x1.334ca5423dd80p-31, -0x1.4dcf9d4504c0cp-36,
        0x1.1e1a1f1587865p-35,  0x1.f101f653c457bp-37,  0x1.1e7d3f6439fa3p-39,
        -0x1.953e1076ab493p-41, -0x1.cbc458e73e255p-42, -0x1.7a9482e6d22a0p-46,
        0x1.80d3c26b3281ep-45,  0x1.776e1762d31e8p-47,  -0x1.12db5138afbc7p-48,
        -0x1.0efcd8bc4d22ap-49, 0x1.7d68e5f04a2d1p-52,  0x1.55915fceb588ap-52,
        -0x1.2806c9c773320p-55, -0x1.acea3b2532277p-55, 0x1.45b8aea87b950p-58,
        0x1.1556db352e8e6p-57,  -0x1.12e7f21d2c006p-60, -0x1.6ea1785f94461p-60};
    return SERIES_CHEBYSHEV(c, 16 / x - 1);
}

/* Beyond 709 the exponential is out of range before the function is. */
TMPL_INLINE double bessel_grow(double x, double rest) {
    double half = exp(x / 2);
    return half * (half * (rest / sqrt(x)));
}

TMPL_INLINE double bessel_i0(double x) {
    double a = fabs(x);
    if (a <= 8) return bessel_i0_near(a);
    return a == (double)INFINITY ? a : bessel_grow(a, bessel_i0_far(a));
}
TMPL_INLINE double bessel_i0e(double x) {
    double a = fabs(x);
    return a <= 8 ? exp(-a) * bessel_i0_near(a) : bessel_i0_far(a) / sqrt(a);
}
TMPL_INLINE double bessel_i1(double x) {
    double a = fabs(x);
    if (a <= 8) return x / 2 * bessel_i1_near(a);
    return a == (double)INFINITY ? x : copysign(bessel_grow(a, bessel_i1_far(a)), x);
}
TMPL_INLINE double bessel_i1e(double x) {
    double a = fabs(x);
    if (a <= 8) return exp(-a) * (x / 2) * bessel_i1_near(a);
    return copysign(bessel_i1_far(a) / sqrt(a), x);
}

/* sqrt(x) e^x times K0 and K1, for x > 1. */
TMPL_INLINE double bessel_k0_far(double x) {
    static const double c[] = {
        0x1.31c65db79c8fbp+0,   -0x1.b92ecc8a4bfb9p-5,  0x1.1dde37a367071p-8,
        -0x1.21793c77d0caap-11, 0x1.77ca9a455c295p-14,  -0x1.1f8a4576c2ee4p-16,
        0x1.eff440bada34bp-19,  -0x1.d51452f4c83a4p-21, 0x1.ddd3366216b0bp-23,
        -0x1.02c7f57636f4ep-24, 0x1.2743c49bda1c9p-26,  -0x1.6056c20b9073ep-28,
        0x1.b54208db7a627p-30,  -0x1.18e6fdce1a4afp-31, 0x1.7448b5debfa40p-33,
        -0x1.fb62b65d32eb7p-35, 0x1.62a6822f1a6b6p-36,  -0x1.fb6cbf7aa4bebp-38,
        0x1.72d48d0fca1f0p-39,  -0x1.1465822ef5e5ep-40, 0x1.a39e418bbc5c4p-42,
        -0x1.43fe094831b76p-43, 0x1.fc55c8d33b5e4p-45,  -0x1.94c54d8803d6bp-46,
        0x1.46dadd5277bfep-47,  -0x1.0b72c03435bffp-48, 0x1.bb2d8c4c221a3p-50,
        -0x1.738e43e600cd5p-51, 0x1.3b06a3da359a4p-52,  -0x1.0df6e01c1cfabp-53,
        0x1.d36daed3fabc3p-55,  -0x1.989c91b4371a5p-56, 0x1.6886b2ee116e5p-57,
        -0x1.40f01afaf31c4p-58, 0x1.2023cfca24905p-59};
    return SERIES_CHEBYSHEV(c, 2 / x - 1);
}
TMPL_INLINE double bessel_k1_far(double x) {
    static const double c[] = {
        0x1.7409dfc8635b9p+0,   0x1.862bf164ffe97p-3,   -0x1.137890a84eaafp-7,
        0x1.ce2dcd31f6214p-11,  -0x1.109ef28704556p-13, 0x1.894912a1e5056p-16,
        -0x1.45b6502ea539fp-18, 0x1.2b09499df467ep-20,  -0x1.29b79b7c94431p-22,
        0x1.3ca52f6c12a89p-24,  -0x1.63ee40d16ba0cp-26, 0x1.a3761d7a3a414p-28,
        -0x1.0187bc12c8b12p-29, 0x1.47de3f001a6f5p-31,  -0x1.af11f4ace0a07p-33,
        0x1.23b0c4024d31cp-34,  -0x1.95390af999f4bp-36, 0x1.2044ba0c8456dp-37,
        -0x1.a335b2ebc76dbp-39, 0x1.3705ffc2e9fb2p-40,  -0x1.d636739e51ee3p-42,
        0x1.69aa2df456debp-43,  -0x1.1ab82d53ecb6dp-44, 0x1.c0c58ac9b8598p-46,
        -0x1.694a19e67a2e6p-47, 0x1.26cabc9bde6b0p-48,  -0x1.e7346b2fd0e8bp-50,
        0x1.977698134bc9fp-51,  -0x1.58ac793f0ff4ep-52, 0x1.26bb1a2c31a21p-53,
        -0x1.fd44864cca99dp-55, 0x1.bc53cc6aefd94p-56,  -0x1.8752cbc45490cp-57,
        0x1.5bc03e336910dp-58,  -0x1.37b342365f3d4p-59};
    return SERIES_CHEBYSHEV(c, 2 / x - 1);
}
/* What K0 and K1 add to their logarithm's part. */
TMPL_INLINE double bessel_k0_sum(double x) {
    static const double c[] = {0x0.0p+0,
                               0x1.0000000000000p+0,
                               0x1.8000000000000p-2,
                               0x1.a12f684bda12fp-5,
                               0x1.da12f684bda13p-9,
                               0x1.4c88d634a424bp-13,
                               0x1.3d2970bdbb137p-18,
                               0x1.b6682a64d5cf7p-24,
                               0x1.cb8acea43b17dp-30,
                               0x1.79f068734aa1bp-36,
                               0x1.f4dcc2465f674p-43,
                               0x1.1124367d45fb2p-49,
                               0x1.f2fc07de40da8p-57};
    return SERIES_POWERS(c, x * x / 4);
}
TMPL_INLINE double bessel_k0_near(double x) {
    return bessel_k0_sum(x) - (log(x / 2) + BESSEL_GAMMA) * bessel_i0_near(x);
}
TMPL_INLINE double bessel_k1_sum(double x) {
    static const double c[] = {-0x1.3c467e37db0c8p-3, 0x1.58773039049e7p-1,  0x1.73ddae5ee6a28p-3,
                               0x1.3a47ef81a33cfp-6,  0x1.2462822a45268p-10, 0x1.5b7a177f5639bp-15,
                               0x1.1fa413136952dp-20, 0x1.5f60a13589756p-26, 0x1.4a1428fc835c7p-32,
                               0x1.ec021b49cd260p-39, 0x1.2a217002356e7p-45, 0x1.2b9a5940d0c02p-52,
                               0x1.fb8381808c20cp-60};
    return x / 4 * SERIES_POWERS(c, x * x / 4);
}
TMPL_INLINE double bessel_k1_near(double x) {
    return 1 / x + log(x / 2) * (x / 2) * bessel_i1_near(x) - bessel_k1_sum(x);
}
TMPL_INLINE double bessel_k_end(double x) { return x == 0 ? (double)INFINITY : (double)NAN; }

TMPL_INLINE double bessel_k0(double x) {
    if (!(x > 0)) return bessel_k_end(x);
    return x <= 1 ? bessel_k0_near(x) : exp(-x) * (bessel_k0_far(x) / sqrt(x));
}
TMPL_INLINE double bessel_k1(double x) {
    if (!(x > 0)) return bessel_k_end(x);
    return x <= 1 ? bessel_k1_near(x) : exp(-x) * (bessel_k1_far(x) / sqrt(x));
}
TMPL_INLINE double bessel_k0e(double x) {
    if (!(x > 0)) return bessel_k_end(x);
    return x <= 1 ? exp(x) * bessel_k0_near(x) : bessel_k0_far(x) / sqrt(x);
}
TMPL_INLINE double bessel_k1e(double x) {
    if (!(x > 0)) return bessel_k_end(x);
    return x <= 1 ? exp(x) * bessel_k1_near(x) : bessel_k1_far(x) / sqrt(x);
}

/* sin(x) / x; near 0 its series, which needs no sine. */
TMPL_INLINE double bessel_spherical_j0(double x) {
    double z = x * x;
    if (fabs(x) == (double)INFINITY) return 0;
    if (fabs(x) >= 0.5) return sin(x) / x;
    return 1 - z / 6 * (1 - z / 20 * (1 - z / 42 * (1 - z / 72 * (1 - z / 110 * (1 - z / 156)))));
}

/* ---- Airy's function ---------------------------------------------------------------------------
 * With zeta = 2/3 |x|^(3/2) it falls like e^-zeta on the right, and on the left it is a wave of
 * angle zeta + pi/4 whose two amplitudes vary slowly. */

TMPL_INLINE double airy_right(double x) {
    static const double c[] = {
        0x1.f803f8dd4194fp-1,   -0x1.e4badf92f0698p-7,  0x1.8027b6119ca99p-11,
        -0x1.00f0eec77d5afp-14, 0x1.caac670d169d2p-18,  -0x1.efeb84cedc369p-21,
        0x1.346d52b669db2p-23,  -0x1.aba96d0e939bcp-26, 0x1.43a78ffb4b7e2p-28,
        -0x1.07707202858f2p-30, 0x1.c834c8a5f387ap-33,  -0x1.a0b1c6e6db0c8p-35,
        0x1.8eda827e9a573p-37,  -0x1.8df6dfaa1aa23p-39, 0x1.9c1e947dc07d1p-41,
        -0x1.b9591e92f35b6p-43, 0x1.e74cc999dbc9ap-45,  -0x1.14a33407d0d9dp-46,
        0x1.42441e5f90db4p-48,  -0x1.8071c47eb60a8p-50, 0x1.d4d85135aae64p-52,
        -0x1.23d2d8fabb65ep-53, 0x1.72547d78958f2p-55,  -0x1.de81ec63c2c96p-57,
        0x1.3a6e9fb7ca75bp-58,  -0x1.a3e66c48282a9p-60};
    double root = sqrt(x), zeta = x * root * (2.0 / 3);
    double u = 2 * 0x1.e2b7dddfefa66p+0 / zeta - 1; /* zeta(2) */
    return SERIES_CHEBYSHEV(c, u) * exp(-zeta) / (2 * sqrt(BESSEL_PI * root));
}

TMPL_INLINE double airy_wave(double x) {
    static const double cosine[] = {
        0x1.ffd50d9b4fff3p-1,   -0x1.555cb8af0ff3dp-12, 0x1.15cbe6ec96533p-19,
        -0x1.4e3b27487acdep-25, 0x1.7718e726f3eabp-30,  -0x1.3f8af8d452af8p-34,
        0x1.705b8868d8666p-38,  -0x1.0b61f33acc18ep-41, 0x1.d1ddccff4eaa7p-45,
        -0x1.d6cdf5580dcd9p-48, 0x1.0d2fadf137134p-50,  -0x1.55cd7fbc96b8dp-53,
        0x1.daedfe20b95c0p-56,  -0x1.64e74a3de2f73p-58};
    static const double sine[] = {
        0x1.1b189fcfa903cp-4,   -0x1.54e5fcb58b29bp-12, 0x1.08cf61a638df8p-18,
        -0x1.cb19ff15f61dbp-24, 0x1.49e061a6ca498p-28,  -0x1.5173ac9656fa5p-32,
        0x1.c0e9074b3b1cfp-36,  -0x1.6e24c2c7d15fcp-39, 0x1.5fb191381b349p-42,
        -0x1.827029bca2789p-45, 0x1.db57d50400a5cp-48,  -0x1.41e7befc4ddd6p-50,
        0x1.d9e1c24b312ebp-53,  -0x1.77351114943a6p-55, 0x1.3ce2894e11579p-57,
        -0x1.1b7e0a004774ep-59, 0x1.0b1888c879d88p-61,  -0x1.07b8cabd82c80p-63};
    double a = -x, root = sqrt(a), zeta = a * root * (2.0 / 3);
    double first = 0x1.dd072035297c2p+2 / zeta; /* zeta(5) */
    double u = 2 * first * first - 1, angle = zeta + BESSEL_PI / 4;
    double p = SERIES_CHEBYSHEV(cosine, u), q = SERIES_CHEBYSHEV(sine, u) / zeta;
    return (sin(angle) * p - cos(angle) * q) / sqrt(BESSEL_PI * root);
}

TMPL_INLINE double airy_middle(double x) {
    static const double right[] = {
        0x1.58c7ef5f33833p-2,   -0x1.ad01b9361fdc1p-5,  -0x1.f583629320c46p-6,
        0x1.05205c093bb71p-8,   0x1.da6a65adf62bdp-12,  -0x1.ae6f59590aa20p-14,
        -0x1.c119e51405237p-22, 0x1.5c55f355d88a9p-20,  -0x1.245153e1b8674p-24,
        -0x1.1d57366025644p-27, 0x1.0d69a6b52fe2ap-30,  0x1.9396c36c3ef46p-37,
        -0x1.e8474779a2d92p-38, 0x1.1e5a5123da970p-42,  0x1.d5943235ed8cdp-46,
        -0x1.5a948c0c89af4p-49, -0x1.417adc577aa8bp-56, 0x1.9537becd3d43ap-57};
    static const double left[] = {
        0x1.a432b9f2d2161p-2,   -0x1.8403f4ffb5edep-5,  -0x1.f49fbc0250cb3p-4,
        -0x1.1dd6c7271147ep-6,  0x1.8ebbebd6e3a91p-9,   0x1.0a68ee8d9627cp-10,
        0x1.ac3840004e3d2p-15,  -0x1.fc7ffcd2ed05fp-17, -0x1.55524c6c4c48bp-19,
        -0x1.556776dc0d262p-25, 0x1.e4b4331db1b43p-26,  0x1.9efec9b7bc7a4p-29,
        -0x1.d92875d4b18b0p-37, -0x1.e477c18b9008cp-36, -0x1.245210a1536b8p-39,
        0x1.66880ba25c104p-45,  0x1.2a48544b7de14p-46,  0x1.0afdb20612de9p-50,
        -0x1.10115472a82cdp-55, -0x1.f1ee4a720f249p-58};
    static const double far_left[] = {
        0x1.530ca78786146p-5,   0x1.5991652e72db9p-3,   0x1.4c043fd04fe27p-2,
        -0x1.c887fdb8c6942p-4,  -0x1.593b3bd382a79p-4,  0x1.e14475f2c1c71p-9,
        0x1.0876bbf14db55p-7,   0x1.a38eb12b90cf1p-11,  -0x1.57cba5eb08c98p-12,
        -0x1.381a9212c58f4p-14, 0x1.b7913c9a3696fp-19,  0x1.68f756b02cf2dp-19,
        0x1.b14e56da097efp-23,  -0x1.748bbad461e66p-25, -0x1.2a42f5d450fcep-27,
        -0x1.ef28c85668256p-37, 0x1.4957158de079cp-33,  0x1.eb4910d21a226p-37,
        -0x1.0838588b44475p-40, -0x1.2f053e8eec864p-42, -0x1.8ce9a9fe7c72fp-47,
        0x1.3f2560faede50p-49,  0x1.5666db3a133c5p-52,  0x1.d84bf9df73eb9p-61,
        -0x1.98d336cc639ccp-59};
    if (x >= 0) return SERIES_CHEBYSHEV(right, x - 1) * exp(-x);
    if (x >= -2) return SERIES_CHEBYSHEV(left, -x - 1);
    return SERIES_CHEBYSHEV(far_left, (-x - 3.5) / 1.5);
}

TMPL_INLINE double airy_ai(double x) {
    if (x != x || fabs(x) == (double)INFINITY) return x == (double)INFINITY ? 0 : (double)NAN;
    return x > 2 ? airy_right(x) : x < -5 ? airy_wave(x) : airy_middle(x);
}

#endif
