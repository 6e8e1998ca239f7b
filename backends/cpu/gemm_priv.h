/* gemm_priv.h: what the files of the matrix product share. */
#ifndef TENON_CPU_GEMM_PRIV_H
#define TENON_CPU_GEMM_PRIV_H

#include "gemm.h"

/* Bytes of one element of a built-in dtype. */
int64_t gemm_item(int32_t dtype);
/* n elements of `item` bytes, strides in elements. */
void gemm_copy_row(int64_t item, const char *src, int64_t ss, char *dst, int64_t ds, int64_t n);
/* The same with a conversion between a half precision type and f32, or none. */
void gemm_convert_row(int32_t from, const char *src, int64_t ss, int32_t to, char *dst, int64_t ds,
                      int64_t n);
/* The product of integer matrices, modulo 2^bits. */
tn_status cpu_gemm_int(const gemm_args *g);

#endif
