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

/* Elements are moved within 16 bytes, which takes half the instructions of moving them across. LOW and
 * HIGH: the halves of every 16 bytes of two vectors, element by element in turn; EVEN and ODD take that
 * apart. Numbers that follow each other are therefore loaded in an order of their own: lane_of. BACKWARD is
 * the opposite order of lanes. Blocks of 16 bytes are exchanged by NEAR and FAR, and where there are four of
 * them by OUTER and INNER before. */
#if (TMPL_DTYPE == TMPL_F64 && FFT_BYTES == 16)
#define LANES 2
#define LOW 0, 2
#define HIGH 1, 3
#define EVEN 0, 2
#define ODD 1, 3
#define BACKWARD 1, 0
#elif TMPL_DTYPE == TMPL_F32 && FFT_BYTES == 16
#define LANES 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define BACKWARD 3, 2, 1, 0
#elif TMPL_DTYPE == TMPL_F64 && FFT_BYTES == 32
#define LANES 4
#define LOW 0, 4, 2, 6
#define HIGH 1, 5, 3, 7
#define EVEN LOW
#define ODD HIGH
#define BACKWARD 3, 2, 1, 0
#define NEAR 0, 1, 4, 5
#define FAR 2, 3, 6, 7
#elif TMPL_DTYPE == TMPL_F64
#define LANES 8
#define LOW 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH 1, 9, 3, 11, 5, 13, 7, 15
#define EVEN LOW
#define ODD HIGH
#define BACKWARD 7, 6, 5, 4, 3, 2, 1, 0
#define NEAR 0, 1, 4, 5, 8, 9, 12, 13
#define FAR 2, 3, 6, 7, 10, 11, 14, 15
#define OUTER 0, 1, 2, 3, 8, 9, 10, 11
#define INNER 4, 5, 6, 7, 12, 13, 14, 15
#elif FFT_BYTES == 32
#define LANES 8
#define LOW 0, 8, 1, 9, 4, 12, 5, 13
#define HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define EVEN 0, 2, 8, 10, 4, 6, 12, 14
#define ODD 1, 3, 9, 11, 5, 7, 13, 15
#define BACKWARD 7, 6, 5, 4, 3, 2, 1, 0
#define NEAR 0, 1, 2, 3, 8, 9, 10, 11
#define FAR 4, 5, 6, 7, 12, 13, 14, 15
#else
#define LANES 16
#define LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#define BACKWARD 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
#define NEAR 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define FAR 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define OUTER 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define INNER 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
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

/* The lane that holds number i of LANES numbers in a row. */
FFT_INLINE int lane_of(int i) {
    const int half = LANES / 2, in = i % half;
    return TMPL_DTYPE == TMPL_F64 ? 2 * in + i / half : in / 2 * 4 + i / half * 2 + in % 2;
}

/* One complex number per lane. */
typedef struct wave {
    lanes re, im;
} wave;

/* LANES complex numbers in a row, number i in lane_of(i). */
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

/* LANES complex numbers, the last of which is at p, in the opposite order: the last one in lane_of(0). */
FFT_INLINE wave wave_load_back(const T *p) {
    wave v = wave_load(p - 2 * (LANES - 1));
    return (wave){__builtin_shufflevector(v.re, v.re, BACKWARD),
                  __builtin_shufflevector(v.im, v.im, BACKWARD)};
}
FFT_INLINE void wave_store_back(T *p, wave v) {
    wave_store(p - 2 * (LANES - 1), (wave){__builtin_shufflevector(v.re, v.re, BACKWARD),
                                           __builtin_shufflevector(v.im, v.im, BACKWARD)});
}

/* Rows become columns: within squares of 16 bytes' breadth, then the squares. */
FFT_INLINE void lanes_transpose(lanes *v) {
    enum { SIDE = 16 / sizeof(T) };
    TMPL_UNROLL
    for (int i = 0; i < LANES; i += SIDE) {
        lanes *q = v + i;
#if TMPL_DTYPE == TMPL_F64
        lanes low = lanes_low(q[0], q[1]);
        q[1] = lanes_high(q[0], q[1]);
        q[0] = low;
#else
        lanes a = lanes_low(q[0], q[2]), b = lanes_high(q[0], q[2]);
        lanes c = lanes_low(q[1], q[3]), d = lanes_high(q[1], q[3]);
        q[0] = lanes_low(a, c);
        q[1] = lanes_high(a, c);
        q[2] = lanes_low(b, d);
        q[3] = lanes_high(b, d);
#endif
    }
    TMPL_UNROLL
    for (int i = 0; LANES > SIDE && i < SIDE; i++) {
        lanes *q = v + i;
#if defined(OUTER)
        lanes a = __builtin_shufflevector(q[0], q[SIDE], OUTER);
        lanes b = __builtin_shufflevector(q[0], q[SIDE], INNER);
        lanes c = __builtin_shufflevector(q[2 * SIDE], q[3 * SIDE], OUTER);
        lanes d = __builtin_shufflevector(q[2 * SIDE], q[3 * SIDE], INNER);
        q[0] = __builtin_shufflevector(a, c, NEAR);
        q[SIDE] = __builtin_shufflevector(a, c, FAR);
        q[2 * SIDE] = __builtin_shufflevector(b, d, NEAR);
        q[3 * SIDE] = __builtin_shufflevector(b, d, FAR);
#elif defined(NEAR)
        lanes near = __builtin_shufflevector(q[0], q[SIDE], NEAR);
        q[SIDE] = __builtin_shufflevector(q[0], q[SIDE], FAR);
        q[0] = near;
#else
        (void)q;
#endif
    }
}

#endif
