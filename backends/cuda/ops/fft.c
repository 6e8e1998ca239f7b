/* fft.c: Fourier transforms, complex, from real and to real: host side of kernels/fft.cu. Several
 * dimensions are done one after the other, in the result. Tables of factors are made for each call, by
 * the device.
 *
 * family: fft */
#include "cuda_priv.h"

#include <math.h>
#include <string.h>

#include <tenon/args_fft.h>

#include "common/tmpl.h"

#include "common/fft.h"
#include "kernels/args/args_fft.h"

static cuda_float_kernels lines_kernels = CUDA_FLOAT_KERNELS(fft, fft_lines),
                          pack_kernels = CUDA_FLOAT_KERNELS(fft, fft_pack),
                          unpack_kernels = CUDA_FLOAT_KERNELS(fft, fft_unpack),
                          filter_kernels = CUDA_FLOAT_KERNELS(fft, fft_filter),
                          roots_kernels = CUDA_FLOAT_KERNELS(fft, fft_roots),
                          chirp_kernels = CUDA_FLOAT_KERNELS(fft, fft_chirp);

static bool is_double(const tn_call *call) {
    return call->dtype == TN_F64 || call->dtype == TN_C128;
}

static tn_status launch(const tn_call *call, cuda_float_kernels kernels, int64_t threads,
                        const void *args) {
    cuda_kernel *k = &kernels[(is_double(call) ? TN_F64 : TN_F32) - TN_F16];
    return cuda_launch_each(call, k, threads, args);
}

static size_t number_bytes(const tn_call *call) { return is_double(call) ? 16 : 8; }

/* Numbers that the lines of a block have together. */
static int64_t room_of(const tn_call *call) { return CUDA_FFT_BYTES / (int64_t)number_bytes(call); }

static tn_status numbers(const tn_call *call, int64_t lines, int64_t n, void **ret) {
    return room_scratch(call, room_mul(lines, n), number_bytes(call), ret);
}

/* The radices of n, 0 where it has a prime that has none. */
static int32_t radices(int64_t n, int32_t *ret) {
    static const int32_t all[] = {4, 2, 3, 5, 7};
    int32_t count = 0;
    for (int i = 0; i < 5; i++) {
        for (; n % all[i] == 0 && n > 1; n /= all[i])
            if (count < CUDA_FFT_PASSES) ret[count++] = all[i];
    }
    return n == 1 ? count : 0;
}

static bool is_easy(int64_t n) {
    int32_t radix[CUDA_FFT_PASSES];
    return n == 1 || radices(n, radix) > 0;
}

static tn_status make_roots(const tn_call *call, int64_t n, const void **ret) {
    cuda_fft_table_args a = {.n = n};
    tn_status st = numbers(call, 1, n, &a.roots);
    *ret = a.roots;
    return st == TN_OK ? launch(call, roots_kernels, n, &a) : st;
}

/* ---- Lines of easy lengths ---------------------------------------------------------------------*/

/* Lines that a block's room holds; a is complete but for the factors. */
static tn_status run_short(const tn_call *call, cuda_fft_args *a) {
    enum { FEW_BLOCKS = 256, BESIDE = 4 }; /* and lines that share sectors of memory */
    int64_t most = room_of(call) / a->n;
    if (most > CUDA_FFT_LINES) most = CUDA_FFT_LINES;
    while (most > BESIDE && a->lines / most < FEW_BLOCKS) most = (most + 1) / 2;
    a->each = (int32_t)most;
    a->passes = radices(a->n, a->radix);
    tn_status st = make_roots(call, a->n, &a->roots);
    int64_t blocks = (a->lines + most - 1) / most;
    return st == TN_OK ? launch(call, lines_kernels, blocks * CUDA_BLOCK, a) : st;
}

/* In front of all others, a dimension of lines. */
static void add_dim(cuda_fft_args *a, int64_t size, int64_t x_stride, int64_t y_stride) {
    memmove(a->size + 1, a->size, (size_t)a->dims * sizeof(int64_t));
    memmove(a->x_stride + 1, a->x_stride, (size_t)a->dims * sizeof(int64_t));
    memmove(a->y_stride + 1, a->y_stride, (size_t)a->dims * sizeof(int64_t));
    a->size[0] = size;
    a->x_stride[0] = x_stride;
    a->y_stride[0] = y_stride;
    a->dims++;
}

/* Strides of packed lines of n numbers. */
static void pack_strides(const cuda_fft_args *a, int64_t n, int64_t *ret_stride) {
    for (int32_t d = 0; d < a->dims; d++) {
        ret_stride[d] = n;
        n *= a->size[d];
    }
}

/* The columns of a matrix of rows of n / columns numbers that fit, near the root of n. */
static int64_t cut_of(int64_t n, int64_t most) {
    int64_t best = 1;
    for (int64_t d = 2; d <= most && d <= n / d; d++)
        if (n % d == 0) best = d;
    return best;
}

/* Complex lines of an easy length. A long one is a matrix: its columns are transformed, multiplied by
 * factors and, in another place, its rows. y may be x, in the same layout. */
static tn_status run_easy(const tn_call *call, const cuda_fft_args *whole) {
    cuda_fft_args a = *whole, b = *whole;
    int64_t n = a.n, m;
    void *between = NULL;
    if (n <= room_of(call)) return run_short(call, &a);
    if (a.dims == CUDA_DIMS) return TN_DECLINE;
    m = cut_of(n, room_of(call) / 2);
    tn_status st = numbers(call, a.lines, n, &between);
    if (st == TN_OK) st = make_roots(call, n, &a.turns);
    if (st != TN_OK) return st;
    int64_t columns = n / m;
    a.n = m;
    a.lines *= columns;
    a.inner = columns;
    a.y = between;
    pack_strides(&a, n, a.y_stride);
    add_dim(&a, columns, a.x_step, 1);
    a.x_step *= columns;
    a.y_step = columns;
    a.scale = 1;
    a.turns_back = 0;
    st = run_short(call, &a);
    if (st != TN_OK) return st;
    b.x = between;
    b.n = columns;
    b.lines *= m;
    pack_strides(&b, n, b.x_stride);
    add_dim(&b, m, columns, b.y_step);
    b.x_step = 1;
    b.y_step *= m;
    b.turned = 0;
    return run_easy(call, &b);
}

/* Packed complex lines of an easy length, in place. */
static tn_status run_packed(const tn_call *call, void *z, int64_t lines, int64_t n, bool inverse) {
    cuda_fft_args a = {.x = z,
                       .y = z,
                       .lines = lines,
                       .n = n,
                       .scale = 1,
                       .x_step = 1,
                       .y_step = 1,
                       .turned = inverse,
                       .turns_back = inverse};
    add_dim(&a, lines, n, n);
    return run_easy(call, &a);
}

/* ---- Any lines ---------------------------------------------------------------------------------*/

/* Through packed lines that are filled up to `padded` numbers. */
static tn_status run_padded(const tn_call *call, cuda_fft_args *a) {
    cuda_fft_args in = *a;
    cuda_fft_table_args table = {.n = a->n, .padded = a->padded};
    bool easy = a->padded == a->n;
    void *z = NULL;
    tn_status st = numbers(call, a->lines, a->padded, &z);
    if (st == TN_OK && !easy) st = numbers(call, 1, a->n, &table.roots);
    if (st == TN_OK && !easy) st = numbers(call, 1, a->padded, &table.folded);
    if (st == TN_OK && !easy) st = launch(call, chirp_kernels, a->padded, &table);
    if (st == TN_OK && !easy) st = run_packed(call, table.folded, 1, a->padded, false);
    in.y = z;
    in.chirp = a->chirp = table.roots;
    a->x = z;
    if (st == TN_OK) st = launch(call, pack_kernels, a->lines * a->padded, &in);
    if (st == TN_OK) st = run_packed(call, z, a->lines, a->padded, false);
    if (st != TN_OK) return st;
    if (!easy) {
        in.chirp = table.folded;
        st = launch(call, filter_kernels, a->lines * a->padded, &in);
        if (st == TN_OK) st = run_packed(call, z, a->lines, a->padded, true);
    }
    return st == TN_OK ? launch(call, unpack_kernels, a->lines * a->n, a) : st;
}

enum {
    LONGEST = 1 << 28
}; /* whose squares and padded lengths count in 64 bits with room to spare */

/* Lines along dim, from x to y, of what `job` says; the whole ones have n numbers. */
static tn_status along(const tn_call *call, const cuda_fft_args *job, const tn_view *x,
                       const tn_view *y, int64_t dim, int64_t n) {
    cuda_fft_args a = *job;
    a.x = x->data;
    a.y = y->data;
    a.x_step = x->strides[dim];
    a.y_step = y->strides[dim];
    a.n = a.padded = n;
    a.lines = 1;
    if (n > LONGEST) return TN_DECLINE;
    for (int32_t d = 0; d < x->ndim; d++) {
        if (d == dim || x->shape[d] == 1) continue;
        if (a.dims == CUDA_DIMS - 1) return TN_DECLINE;
        add_dim(&a, x->shape[d], x->strides[d], y->strides[d]);
        a.lines *= x->shape[d];
    }
    bool complex = a.from == CUDA_FFT_COMPLEX && a.to == CUDA_FFT_COMPLEX;
    if (!is_easy(n)) a.padded = fft_easy_length(2 * n - 1);
    if (is_easy(n) && (complex || n <= room_of(call))) return run_easy(call, &a);
    return run_padded(call, &a);
}

/* ---- Operators ---------------------------------------------------------------------------------*/

enum { BY_ROOT = 1, BY_ALL }; /* `normalization` */

static double scale_of(int64_t normalization, const tn_view *signal, tn_ints dims) {
    double n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= (double)signal->shape[dims.v[i]];
    return normalization == BY_ALL ? 1 / n : normalization == BY_ROOT ? 1 / sqrt(n) : 1;
}

/* Complex to complex along dims, the last one first, from x to y and then in y; the first of them
 * scales. */
static tn_status complex_dims(const tn_call *call, const tn_view *x, const tn_view *y, tn_ints dims,
                              bool inverse, double scale) {
    tn_status st = TN_OK;
    for (int64_t i = dims.n - 1; st == TN_OK && i >= 0; i--) {
        cuda_fft_args job = {.turned = inverse, .turns_back = inverse, .scale = scale};
        st = along(call, &job, x, y, dims.v[i], x->shape[dims.v[i]]);
        x = y;
        scale = 1;
    }
    return st;
}

static tn_status fft_c2c(const tn_call *call, const void *args) {
    const tn__fft_c2c_args *in = args;
    if (in->out->numel == 0) return TN_OK;
    double scale = scale_of(in->normalization, in->out, in->dim);
    return complex_dims(call, in->input, in->out, in->dim, !in->forward, scale);
}

static tn_status fft_r2c(const tn_call *call, const void *args) {
    const tn__fft_r2c_args *in = args;
    if (in->out->numel == 0) return TN_OK;
    cuda_fft_args job = {.from = CUDA_FFT_REAL,
                         .to = in->onesided ? CUDA_FFT_HALF : CUDA_FFT_MIRRORED,
                         .scale = scale_of(in->normalization, in->input, in->dim)};
    tn_ints others = {in->dim.v, in->dim.n - 1};
    int64_t dim = in->dim.v[others.n];
    tn_status st = along(call, &job, in->input, in->out, dim, in->input->shape[dim]);
    return st == TN_OK ? complex_dims(call, in->out, in->out, others, false, 1) : st;
}

static tn_status fft_c2r(const tn_call *call, const void *args) {
    const tn__fft_c2r_args *in = args;
    if (in->out->numel == 0) return TN_OK;
    tn_ints others = {in->dim.v, in->dim.n - 1};
    int64_t dim = in->dim.v[others.n], strides[TN_MAX_DIMS], step = 1;
    tn_view half = *in->input;
    if (others.n > 0) {
        for (int32_t d = half.ndim - 1; d >= 0; d--) {
            strides[d] = step;
            step *= half.shape[d];
        }
        half.strides = strides;
        tn_status st = numbers(call, 1, half.numel, &half.data);
        if (st == TN_OK) st = complex_dims(call, in->input, &half, others, true, 1);
        if (st != TN_OK) return st;
    }
    cuda_fft_args job = {.from = CUDA_FFT_HALF,
                         .to = CUDA_FFT_REAL,
                         .turned = 1,
                         .turns_back = 1,
                         .scale = scale_of(in->normalization, in->out, in->dim)};
    return along(call, &job, &half, in->out, dim, in->out->shape[dim]);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROW(_fft_c2c, fft_c2c, TN_C64), CUDA_FLOAT_ROW(_fft_c2c, fft_c2c, TN_C128),
    CUDA_FLOAT_ROW(_fft_r2c, fft_r2c, TN_F32), CUDA_FLOAT_ROW(_fft_r2c, fft_r2c, TN_F64),
    CUDA_FLOAT_ROW(_fft_c2r, fft_c2r, TN_C64), CUDA_FLOAT_ROW(_fft_c2r, fft_c2r, TN_C128),
};
const cuda_rows cuda_fft_rows = CUDA_ROWS_OF(rows);
