/* copy.h: strided copies of elements by their size; the element type does not matter. */
#ifndef CPU_COPY_H
#define CPU_COPY_H

#include "cpu_priv.h"

/* Operand 0 = operand 1 over a plan of two operands with items of `size` bytes. */
tn_status cpu_copy_plan(const tn_plan *plan, int32_t size);
/* A plan over two views of the same shape, for kernels that get none. */
void cpu_plan_pair(const tn_view *out, const tn_view *in, tn_plan *ret);

/* n elements of `size` bytes between strided and packed memory; strides in bytes. */
void cpu_gather(void *dst, const void *src, int64_t n, int64_t stride, int32_t size);
void cpu_scatter(void *dst, const void *src, int64_t n, int64_t stride, int32_t size);
/* dst[0 .. n) = the one element at src. */
void cpu_spread(void *dst, const void *src, int64_t n, int32_t size);
/* transpose.c: dst[r * ds + c * size] = src[r * size + c * ss], strides in bytes. */
typedef void cpu_transpose_fn(char *dst, int64_t ds, const char *src, int64_t ss, int64_t rows,
                              int64_t cols, int32_t size);
cpu_transpose_fn cpu_transpose_baseline, cpu_transpose_avx2, cpu_transpose_avx512;
/* The same with the instruction set in use, which cpu_copy_init is told. */
void cpu_gather_tile(void *dst, int64_t ds, const void *src, int64_t ss, int64_t rows, int64_t cols,
                     int32_t size);
void cpu_copy_init(cpu_isa isa);
/* dst = src past the caches; both 16-byte aligned or it is a plain copy. cpu_stream_end makes the
 * stores visible to other threads. */
void cpu_stream(void *dst, const void *src, uint64_t bytes);
void cpu_stream_end(void);

#endif
