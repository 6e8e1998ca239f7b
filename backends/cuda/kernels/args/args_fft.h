/* args_fft.h: Fourier transforms of lines. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_FFT_H
#define CUDA_ARGS_FFT_H

#include "args.h"

enum {
    CUDA_FFT_BYTES = 21 << 10, /* that the lines of a block take, twice */
    CUDA_FFT_LINES = 256,      /* most lines of a block */
    CUDA_FFT_PASSES = 16
};

/* What is read and written: complex numbers, real ones, the half that determines the transform of real
 * ones, or all of that, whose second half then mirrors the first. */
enum { CUDA_FFT_COMPLEX, CUDA_FFT_REAL, CUDA_FFT_HALF, CUDA_FFT_MIRRORED };

/* Lines of n numbers; strides and steps count numbers of x and of y. */
typedef struct cuda_fft_args {
    const void *x;
    void *y;
    const void *roots; /* exp(-2 pi i k / n) */
    const void
        *turns; /* NULL, or the same of a longer line, of which number k of line l is multiplied */
    int64_t inner; /* by number k * (l % inner) */
    int64_t lines, n;
    int64_t padded; /* numbers of a line that is filled up with zeros, or read from such a line */
    const void *chirp;
    double scale;
    int64_t x_step, y_step;
    int32_t from, to;           /* CUDA_FFT_* */
    int32_t turned, turns_back; /* parts are exchanged on the way in and out: an inverse */
    int32_t each;               /* lines of a block */
    int32_t dims, passes;
    int32_t radix[CUDA_FFT_PASSES];
    int64_t size[CUDA_DIMS], x_stride[CUDA_DIMS], y_stride[CUDA_DIMS];
} cuda_fft_args;

/* A table: roots of n, or with `padded` Bluestein's: the chirp, and its conjugate as it is folded. */
typedef struct cuda_fft_table_args {
    void *roots, *folded;
    int64_t n, padded;
} cuda_fft_table_args;

#endif
