/* gemm_priv.h: what the files of the matrix product share. */
#ifndef TENON_CPU_GEMM_PRIV_H
#define TENON_CPU_GEMM_PRIV_H

#include "cpu_priv.h"
#include "gemm.h"
#include "row.h"

/* Whether a (rows, cols) matrix is better read column by column. */
int gemm_across(const gemm_mat *mat, int64_t rows, int64_t cols);
/* A product in half precision with few rows; a: its left operand in f32, packed by
 * rows or by columns. */
tn_status cpu_gemm_half(const gemm_args *g, const gemm_mat *a);
/* The product of bfloat16 matrices by the processor's instruction for it, and whether there is one. */
bool cpu_gemm_has_bf16(const gemm_args *g);
tn_status cpu_gemm_bf16(const tn_call *call, const gemm_args *g);
/* A product in single or double precision with few rows, whose operands lie as its kernels read them, and
 * whether g is one. C may have any strides. */
void cpu_gemm_few_init(cpu_isa picked);
bool cpu_gemm_has_few(const gemm_args *g);
tn_status cpu_gemm_few(const gemm_args *g);
/* The product of integer matrices, modulo 2^bits. */
tn_status cpu_gemm_int(const gemm_args *g);

#endif
