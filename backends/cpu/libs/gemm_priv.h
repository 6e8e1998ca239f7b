/* gemm_priv.h: what the files of the matrix product share. */
#ifndef TENON_CPU_GEMM_PRIV_H
#define TENON_CPU_GEMM_PRIV_H

#include "cpu_priv.h"
#include "gemm.h"

/* Bytes of one element of a built-in dtype. */
int64_t gemm_item(int32_t dtype);
/* n elements of `item` bytes, strides in elements. */
void gemm_copy_row(int64_t item, const char *src, int64_t ss, char *dst, int64_t ds, int64_t n);
/* The same with a conversion between a half precision type and f32, or none. */
void gemm_convert_row(int32_t from, const char *src, int64_t ss, int32_t to, char *dst, int64_t ds,
                      int64_t n);
/* Picks the conversions of the instruction set in use. */
void gemm_half_init(cpu_isa isa);
/* Whether a (rows, cols) matrix is better read column by column. */
int gemm_across(const gemm_mat *mat, int64_t rows, int64_t cols);
/* A product in half precision with few rows; a: its left operand in f32, packed by
 * rows or by columns. */
tn_status cpu_gemm_half(const gemm_args *g, const gemm_mat *a);
/* The product of integer matrices, modulo 2^bits. */
tn_status cpu_gemm_int(const gemm_args *g);

#endif
