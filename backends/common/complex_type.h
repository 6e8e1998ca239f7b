/* complex_type.h: complex numbers for CUDA C, which has none: what the templates do with C's own. Their
 * elementary functions: complex_math.h. */
#ifndef COMPLEX_TYPE_H
#define COMPLEX_TYPE_H

#define COMPLEX_MEMBER __device__ __forceinline__

/* Aligned as its parts are: a view may begin at any of them. */
template <typename F> struct tmpl_complex {
    F re, im;

    tmpl_complex() = default;
    COMPLEX_MEMBER tmpl_complex(F x) : re(x), im(0) {}
    COMPLEX_MEMBER tmpl_complex(F x, F y) : re(x), im(y) {}

    friend COMPLEX_MEMBER tmpl_complex operator-(tmpl_complex a) {
        return tmpl_complex(-a.re, -a.im);
    }
    friend COMPLEX_MEMBER tmpl_complex operator+(tmpl_complex a, tmpl_complex b) {
        return tmpl_complex(a.re + b.re, a.im + b.im);
    }
    friend COMPLEX_MEMBER tmpl_complex operator-(tmpl_complex a, tmpl_complex b) {
        return tmpl_complex(a.re - b.re, a.im - b.im);
    }
    /* A real number has no imaginary part, not one of 0: signs of zeros stay as they are. */
    friend COMPLEX_MEMBER tmpl_complex operator+(F a, tmpl_complex b) {
        return tmpl_complex(a + b.re, b.im);
    }
    friend COMPLEX_MEMBER tmpl_complex operator-(F a, tmpl_complex b) {
        return tmpl_complex(a - b.re, -b.im);
    }
    friend COMPLEX_MEMBER tmpl_complex operator+(tmpl_complex a, F b) { return b + a; }
    friend COMPLEX_MEMBER tmpl_complex operator-(tmpl_complex a, F b) {
        return tmpl_complex(a.re - b, a.im);
    }
    friend COMPLEX_MEMBER tmpl_complex operator*(tmpl_complex a, F k) {
        return tmpl_complex(a.re * k, a.im * k);
    }
    friend COMPLEX_MEMBER bool operator==(tmpl_complex a, tmpl_complex b) {
        return a.re == b.re && a.im == b.im;
    }
    friend COMPLEX_MEMBER bool operator!=(tmpl_complex a, tmpl_complex b) { return !(a == b); }

    /* By the larger part of the divisor (Smith), so that nothing overflows on the way. A divisor of 0
     * leaves infinities, an infinite one leaves zeros, as in C. */
    friend COMPLEX_MEMBER tmpl_complex operator/(tmpl_complex a, tmpl_complex b) {
        bool turned = (b.re < 0 ? -b.re : b.re) < (b.im < 0 ? -b.im : b.im);
        F large = turned ? b.im : b.re, small = turned ? b.re : b.im;
        F re = turned ? a.im : a.re, im = turned ? -a.re : a.im; /* divided by large - i small */
        if (large == 0) return tmpl_complex(a.re / large, a.im / large);
        bool infinite = large - large != 0 && large == large, finite = a.re - a.re == 0;
        F ratio = infinite ? 0 : small / large, whole = large + small * ratio;
        if (infinite && finite && a.im - a.im == 0) return tmpl_complex(re * 0, im * 0);
        if (turned) return tmpl_complex((re + a.re * ratio) / whole, (a.im * ratio + im) / whole);
        return tmpl_complex((re + im * ratio) / whole, (im - re * ratio) / whole);
    }
};

#endif
