/* map_complex.h: products and quotients of complex numbers on whole vectors, which compilers take apart and put together
 * again. Included by map_tu.c beside map_wide.h, whose conventions these are. A vector is as wide as every
 * processor's, since the complex types are compiled for the baseline alone. */
#ifndef CPU_MAP_COMPLEX_H
#define CPU_MAP_COMPLEX_H

#if TMPL_IS_COMPLEX
#define WIDE_add 1
#define WIDE_sub 1
#define WIDE_mul 1
#define WIDE__mul_conj 1
#define WIDE_square 1
#define WIDE_conj_physical 1

typedef RA vec __attribute__((vector_size(16)));
#if TMPL_DTYPE == TMPL_C64
typedef uint32_t vec_bits __attribute__((vector_size(16)));
#define VL 2
#define COMPLEX_TURN(v, re, im) __builtin_shufflevector(v, v, re, im, 2 + (re), 2 + (im))
#define COMPLEX_SIGNS(re, im)                                                                      \
    (vec_bits) { (re) << 31, (im) << 31, (re) << 31, (im) << 31 }
#define COMPLEX_ALL(re, im)                                                                        \
    (vec) { re, im, re, im }
#else
typedef uint64_t vec_bits __attribute__((vector_size(16)));
#define VL 1
#define COMPLEX_TURN(v, re, im) __builtin_shufflevector(v, v, re, im)
#define COMPLEX_SIGNS(re, im)                                                                      \
    (vec_bits) { (uint64_t)(re) << 63, (uint64_t)(im) << 63 }
#define COMPLEX_ALL(re, im)                                                                        \
    (vec) { re, im }
#endif

TMPL_INLINE vec vec_load_t(const T *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
TMPL_INLINE void vec_store_t(T *p, vec v) { memcpy(p, &v, sizeof v); }
TMPL_INLINE vec vec_load_t_n(const T *p, int64_t n, int fill) {
    T t[VL] = {0};
    (void)fill;
    memcpy(t, p, (size_t)n * sizeof *t);
    return vec_load_t(t);
}
TMPL_INLINE void vec_store_t_n(T *p, vec v, int64_t n) { memcpy(p, &v, (size_t)n * sizeof *p); }

/* The same multiplications and additions as f_mul's: to take away is to add with the other sign. */
TMPL_INLINE vec wide_mul(vec x, vec y) {
    vec p = x * COMPLEX_TURN(y, 0, 0), q = COMPLEX_TURN(x, 1, 0) * COMPLEX_TURN(y, 1, 1);
    return p + (vec)((vec_bits)q ^ COMPLEX_SIGNS(1u, 0u));
}
TMPL_INLINE vec wide_conj_physical(vec x) { return (vec)((vec_bits)x ^ COMPLEX_SIGNS(0u, 1u)); }
TMPL_INLINE vec wide__mul_conj(vec x, vec y) { return wide_mul(x, wide_conj_physical(y)); }
TMPL_INLINE vec wide_square(vec x) { return wide_mul(x, x); }
/* As complex_scale. */
TMPL_INLINE vec wide_scale(vec x, A k) {
    return IM_(k) == 0 ? x * RE_(k) : wide_mul(x, COMPLEX_ALL(RE_(k), IM_(k)));
}
TMPL_INLINE vec wide_add(vec x, vec y, A alpha) { return x + wide_scale(y, alpha); }
TMPL_INLINE vec wide_sub(vec x, vec y, A alpha) { return x - wide_scale(y, alpha); }

#if TMPL_DTYPE == TMPL_C64
#define WIDE_true_divide 1
#define WIDE__div_conj 1
#define WIDE_reciprocal 1

/* Two real or two imaginary parts. */
typedef double vec_parts __attribute__((vector_size(16)));
typedef int64_t vec_mask __attribute__((vector_size(16)));
typedef float vec_narrow __attribute__((vector_size(8)));
#define COMPLEX_PARTS(v, k)                                                                        \
    __builtin_convertvector(__builtin_shufflevector(v, v, k, 2 + (k)), vec_parts)

TMPL_INLINE vec_parts wide_size(vec_parts re, vec_parts im) {
    const vec_mask size = {INT64_MAX, INT64_MAX};
    return (vec_parts)((vec_mask)re & size) + (vec_parts)((vec_mask)im & size);
}

/* As f_true_divide; says whether an element is complex_divide_far. */
TMPL_INLINE vec wide_quotient(vec x, vec y, bool *ret_far) {
    vec_parts a = COMPLEX_PARTS(x, 0), b = COMPLEX_PARTS(x, 1);
    vec_parts c = COMPLEX_PARTS(y, 0), d = COMPLEX_PARTS(y, 1);
    vec_parts q = 1 / (c * c + d * d), re = (a * c + b * d) * q, im = (b * c - a * d) * q;
    vec_parts under = wide_size(c, d), all = wide_size(a, b) + under;
    vec_mask far = (under == 0) | ~(all < INFINITY);
    *ret_far = (far[0] | far[1]) != 0;
    return __builtin_shufflevector(__builtin_convertvector(re, vec_narrow),
                                   __builtin_convertvector(im, vec_narrow), 0, 2, 1, 3);
}
TMPL_INLINE vec wide_true_divide(vec x, vec y) {
    bool far;
    vec r = wide_quotient(x, y, &far);
    if (!far) return r;
    T p[VL], q[VL], o[VL];
    vec_store_t(p, x);
    vec_store_t(q, y);
    vec_store_t(o, r);
    for (int i = 0; i < VL; i++)
        o[i] = complex_divide_far(p[i], q[i]) ? complex_ratio(p[i], q[i]) : o[i];
    return vec_load_t(o);
}
TMPL_INLINE vec wide__div_conj(vec x, vec y) { return wide_true_divide(x, wide_conj_physical(y)); }
TMPL_INLINE vec wide_reciprocal(vec x) {
    bool far;
    vec r = wide_quotient(COMPLEX_ALL(1, 0), x, &far);
    if (!far) return r;
    T q[VL], o[VL];
    vec_store_t(q, x);
    vec_store_t(o, r);
    for (int i = 0; i < VL; i++) o[i] = complex_divide_far(1, q[i]) ? 1 / q[i] : o[i];
    return vec_load_t(o);
}
#endif
#endif

#endif
