/* fft_vec_tmpl.h: vectors of T in one register, and the moves of elements that transforms need: real and
 * imaginary parts apart and together again, and squares of vectors transposed. */
#ifndef TENON_CPU_FFT_VEC_TMPL_H
#define TENON_CPU_FFT_VEC_TMPL_H

#if defined(__AVX512F__)
#define FFT_BYTES 64
#elif defined(__AVX__)
#define FFT_BYTES 32
#else
#define FFT_BYTES 16
#endif
typedef T lanes __attribute__((vector_size(FFT_BYTES)));

/* LOW and HIGH: the halves of two vectors, element by element in turn; EVEN and ODD take that
 * apart. BACKWARD is the opposite order. */
#if (TMPL_DTYPE == TMPL_F64 && FFT_BYTES == 16)
#define LANES 2
#define LOW 0, 2
#define HIGH 1, 3
#define EVEN 0, 2
#define ODD 1, 3
#define BACKWARD 1, 0
#elif (TMPL_DTYPE == TMPL_F64 && FFT_BYTES == 32) || (TMPL_DTYPE == TMPL_F32 && FFT_BYTES == 16)
#define LANES 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define BACKWARD 3, 2, 1, 0
#elif (TMPL_DTYPE == TMPL_F64 && FFT_BYTES == 64) || (TMPL_DTYPE == TMPL_F32 && FFT_BYTES == 32)
#define LANES 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define BACKWARD 7, 6, 5, 4, 3, 2, 1, 0
#else
#define LANES 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define BACKWARD 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
#endif

#define FFT_INLINE static inline __attribute__((always_inline, unused))

FFT_INLINE lanes lanes_load(const T *p) {
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}
FFT_INLINE void lanes_store(T *p, lanes v) { memcpy(p, &v, sizeof v); }
FFT_INLINE lanes lanes_low(lanes a, lanes b) { return __builtin_shufflevector(a, b, LOW); }
FFT_INLINE lanes lanes_high(lanes a, lanes b) { return __builtin_shufflevector(a, b, HIGH); }

/* One complex number per lane. */
typedef struct wave {
    lanes re, im;
} wave;

/* LANES complex numbers in a row. */
FFT_INLINE wave wave_load(const T *p) {
    lanes a = lanes_load(p), b = lanes_load(p + LANES);
    return (wave){__builtin_shufflevector(a, b, EVEN), __builtin_shufflevector(a, b, ODD)};
}
FFT_INLINE void wave_store(T *p, wave v) {
    lanes_store(p, lanes_low(v.re, v.im));
    lanes_store(p + LANES, lanes_high(v.re, v.im));
}
FFT_INLINE wave wave_add(wave a, wave b) { return (wave){a.re + b.re, a.im + b.im}; }
FFT_INLINE wave wave_sub(wave a, wave b) { return (wave){a.re - b.re, a.im - b.im}; }
FFT_INLINE wave wave_scale(wave a, T s) { return (wave){a.re * s, a.im * s}; }
/* a times the complex number re + i im. */
FFT_INLINE wave wave_turn(wave a, T re, T im) {
    return (wave){a.re * re - a.im * im, a.re * im + a.im * re};
}
FFT_INLINE wave wave_mul(wave a, wave b) {
    return (wave){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
/* a times -i. */
FFT_INLINE wave wave_back(wave a) { return (wave){a.im, -a.re}; }

/* A number in every lane. */
FFT_INLINE wave wave_all(T re, T im) { return (wave){re - (lanes){0}, im - (lanes){0}}; }

/* LANES complex numbers in the opposite order, the last of which is at p. */
FFT_INLINE wave wave_load_back(const T *p) {
    wave v = wave_load(p - 2 * (LANES - 1));
    return (wave){__builtin_shufflevector(v.re, v.re, BACKWARD),
                  __builtin_shufflevector(v.im, v.im, BACKWARD)};
}
FFT_INLINE void wave_store_back(T *p, wave v) {
    wave_store(p - 2 * (LANES - 1), (wave){__builtin_shufflevector(v.re, v.re, BACKWARD),
                                           __builtin_shufflevector(v.im, v.im, BACKWARD)});
}

/* Rows become columns: as many steps of taking rows of the two halves in turn as LANES has bits. */
FFT_INLINE void lanes_transpose(lanes *v) {
    lanes t[LANES];
    TMPL_UNROLL
    for (int size = 1; size < LANES; size *= 2) {
        TMPL_UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = lanes_low(v[i], v[i + LANES / 2]);
            t[2 * i + 1] = lanes_high(v[i], v[i + LANES / 2]);
        }
        TMPL_UNROLL
        for (int i = 0; i < LANES; i++) v[i] = t[i];
    }
}

#endif
