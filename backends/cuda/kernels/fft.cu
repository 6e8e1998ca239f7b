/* fft.cu: Fourier transforms of lines of complex numbers, for float or double parts. Lines that fit into
 * shared memory are done there, several side by side, by Stockham's passes of the radices 4, 2, 3, 5 and
 * 7; longer ones are matrices whose columns and then rows are such lines. Bluestein's sum, for other
 * primes, is three passes over lines that are filled up.
 *
 * types: f32 f64 */
#include "device.h"

#include "args_fft.h"
#include "fft.h"

typedef tmpl_complex<T> fft_number;
enum { FFT_ROOM = CUDA_FFT_BYTES / (int)sizeof(fft_number) };

TMPL_INLINE fft_number fft_times(fft_number a, fft_number b) {
    return fft_number(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
TMPL_INLINE fft_number fft_swapped(fft_number a) { return fft_number(a.im, a.re); }

/* ---- In and out --------------------------------------------------------------------------------*/

/* Number k of the line that begins at `at`. */
TMPL_INLINE fft_number fft_load(const cuda_fft_args &a, int64_t at, int64_t k) {
    fft_number v;
    bool mirrored = a.from == CUDA_FFT_HALF && 2 * k > a.n;
    int64_t i = at + (mirrored ? a.n - k : k) * a.x_step;
    if (a.from == CUDA_FFT_REAL)
        v = fft_number(((const T *)a.x)[i], 0);
    else
        v = ((const fft_number *)a.x)[i];
    if (mirrored) v.im = -v.im;
    if (a.from == CUDA_FFT_HALF && (k == 0 || 2 * k == a.n)) v.im = 0;
    return a.turned ? fft_swapped(v) : v;
}

TMPL_INLINE void fft_store(const cuda_fft_args &a, int64_t at, int64_t k, fft_number v) {
    int64_t i = at + k * a.y_step;
    T scale = (T)a.scale;
    if (a.turns_back) v = fft_swapped(v);
    v = fft_number(v.re * scale, v.im * scale);
    fft_number *y = (fft_number *)a.y;
    if (a.to == CUDA_FFT_COMPLEX) {
        y[i] = v;
    } else if (a.to == CUDA_FFT_REAL) {
        ((T *)a.y)[i] = v.re;
    } else if (2 * k <= a.n) {
        bool real = k == 0 || 2 * k == a.n;
        if (real) v.im = 0;
        y[i] = v;
        if (a.to == CUDA_FFT_MIRRORED && !real)
            y[at + (a.n - k) * a.y_step] = fft_number(v.re, -v.im);
    }
}

/* ---- Passes ------------------------------------------------------------------------------------*/

/* The transform of R numbers; `w` are roots of R where it is odd. */
template <int R> TMPL_INLINE void fft_small(fft_number *v, const fft_number *w) {
    fft_number y[R];
    if (R == 2) {
        y[0] = v[0] + v[1];
        y[1] = v[0] - v[1];
    } else if (R == 4) {
        fft_number a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = v[1] - v[3];
        y[0] = a + c;
        y[1] = fft_number(b.re + d.im, b.im - d.re);
        y[R / 2] = a - c;
        y[R - 1] = fft_number(b.re - d.im, b.im + d.re);
    } else {
#pragma unroll
        for (int k = 0; k < R; k++) {
            y[k] = v[0];
#pragma unroll
            for (int j = 1; j < R; j++)
                y[k] = y[k] + (k == 0 ? v[j] : fft_times(v[j], w[j * k % R]));
        }
    }
#pragma unroll
    for (int k = 0; k < R; k++) v[k] = y[k];
}

/* One pass over lines that are `lines` abreast: `s` numbers that are done alike stand beside each other,
 * groups of R m of them are left to transform. */
template <int R>
TMPL_INLINE void fft_pass(const cuda_fft_args &a, int lines, int m, int s, const fft_number *x,
                          fft_number *y) {
    const fft_number *roots = (const fft_number *)a.roots;
    int step = s / lines, part = (int)a.n / R;
    fft_number w[R];
#pragma unroll
    for (int k = 0; k < R; k++)
        if (R % 2 == 1) w[k] = roots[k * part];
    for (int i = (int)threadIdx.x; i < m * s; i += (int)blockDim.x) {
        int p = i / s, q = i - p * s;
        fft_number v[R];
#pragma unroll
        for (int k = 0; k < R; k++) v[k] = x[q + s * (p + m * k)];
        fft_small<R>(v, w);
        y[q + s * R * p] = v[0];
#pragma unroll
        for (int k = 1; k < R; k++) y[q + s * (R * p + k)] = fft_times(v[k], roots[p * k * step]);
    }
}

/* All lines of a block, in one of the halves of its room; *ret_x is where they end. */
TMPL_INLINE void fft_passes(const cuda_fft_args &a, int lines, fft_number **ret_x,
                            fft_number **ret_y) {
    int m = (int)a.n, s = lines;
    for (int i = 0; i < a.passes; i++) {
        fft_number *x = *ret_x, *y = *ret_y;
        int r = a.radix[i];
        m /= r;
        switch (r) {
        case 2: fft_pass<2>(a, lines, m, s, x, y); break;
        case 3: fft_pass<3>(a, lines, m, s, x, y); break;
        case 4: fft_pass<4>(a, lines, m, s, x, y); break;
        case 5: fft_pass<5>(a, lines, m, s, x, y); break;
        default: fft_pass<7>(a, lines, m, s, x, y); break;
        }
        s *= r;
        *ret_x = y;
        *ret_y = x;
        __syncthreads();
    }
}

/* Which number of which of a block's lines: those that lie beside each other go to threads that do. */
typedef struct fft_spot {
    int line, k;
} fft_spot;
TMPL_INLINE fft_spot fft_find(int i, int n, int lines, int64_t step) {
    fft_spot s;
    s.line = step == 1 ? i / n : i % lines;
    s.k = step == 1 ? i - s.line * n : i / lines;
    return s;
}

KERNEL(TN_(fft_lines), cuda_fft_args) {
    SHARED(fft_number, room, 2 * FFT_ROOM);
    SHARED(int64_t, x_at, CUDA_FFT_LINES);
    SHARED(int64_t, y_at, CUDA_FFT_LINES);
    int64_t first = (int64_t)blockIdx.x * a.each, left = a.lines - first;
    int lines = left < a.each ? (int)left : a.each, n = (int)a.n, all = n * lines;
    fft_number *x = room, *y = room + FFT_ROOM;
    for (int i = (int)threadIdx.x; i < lines; i += (int)blockDim.x) {
        x_at[i] = cuda_offset(first + i, a.dims, a.size, a.x_stride);
        y_at[i] = cuda_offset(first + i, a.dims, a.size, a.y_stride);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < all; i += (int)blockDim.x) {
        fft_spot s = fft_find(i, n, lines, a.x_step);
        x[s.k * lines + s.line] = fft_load(a, x_at[s.line], s.k);
    }
    __syncthreads();
    fft_passes(a, lines, &x, &y);
    const fft_number *turns = (const fft_number *)a.turns;
    for (int i = (int)threadIdx.x; i < all; i += (int)blockDim.x) {
        fft_spot s = fft_find(i, n, lines, a.y_step);
        fft_number v = x[s.k * lines + s.line];
        if (turns) v = fft_times(v, turns[s.k * ((first + s.line) % a.inner)]);
        fft_store(a, y_at[s.line], s.k, v);
    }
}

/* ---- Around long lines and Bluestein's sum ------------------------------------------------------*/

/* Packed lines of `padded` numbers from where they lie, times the chirp. */
KERNEL(TN_(fft_pack), cuda_fft_args) {
    int64_t i = cuda_thread();
    if (i >= a.lines * a.padded) return;
    int64_t line = i / a.padded, k = i - line * a.padded;
    fft_number v(0, 0);
    if (k < a.n) v = fft_load(a, cuda_offset(line, a.dims, a.size, a.x_stride), k);
    if (k < a.n && a.chirp) v = fft_times(v, ((const fft_number *)a.chirp)[k]);
    ((fft_number *)a.y)[i] = v;
}

/* And back. */
KERNEL(TN_(fft_unpack), cuda_fft_args) {
    int64_t i = cuda_thread();
    if (i >= a.lines * a.n) return;
    int64_t line = i / a.n, k = i - line * a.n;
    fft_number v = ((const fft_number *)a.x)[line * a.padded + k];
    if (a.chirp) v = fft_times(v, ((const fft_number *)a.chirp)[k]);
    fft_store(a, cuda_offset(line, a.dims, a.size, a.y_stride), k, v);
}

/* Packed lines of `padded` numbers times a spectrum, in place. */
KERNEL(TN_(fft_filter), cuda_fft_args) {
    int64_t i = cuda_thread();
    if (i >= a.lines * a.padded) return;
    fft_number *y = (fft_number *)a.y + i;
    *y = fft_times(*y, ((const fft_number *)a.chirp)[i % a.padded]);
}

KERNEL(TN_(fft_roots), cuda_fft_table_args) {
    int64_t i = cuda_thread();
    double re, im;
    if (i >= a.n) return;
    fft_unit(i, a.n, &re, &im);
    ((fft_number *)a.roots)[i] = fft_number((T)re, (T)im);
}

/* jk = (j^2 + k^2 - (k - j)^2) / 2: times a chirp, a convolution with its conjugate, times the chirp. */
KERNEL(TN_(fft_chirp), cuda_fft_table_args) {
    int64_t i = cuda_thread();
    double re = 0, im = 0, scale = 1.0 / (double)a.padded;
    if (i >= a.padded) return;
    int64_t j = i < a.n ? i : a.padded - i;
    if (j < a.n) fft_unit(j * j % (2 * a.n), 2 * a.n, &re, &im);
    if (i < a.n) ((fft_number *)a.roots)[i] = fft_number((T)re, (T)im);
    ((fft_number *)a.folded)[i] = fft_number((T)(re * scale), (T)(-im * scale));
}
