/* gemm_priv.h: what the files of the matrix product share. */
#ifndef TENON_CPU_GEMM_PRIV_H
#define TENON_CPU_GEMM_PRIV_H

#include "cpu_priv.h"
#include "gemm.h"
#include "row.h"

/* C^T = B^T @ A^T: makes a column-major result row-major. */
static inline gemm_args gemm_transposed(const gemm_args *g) {
    gemm_args t = *g;
    t.m = g->n;
    t.n = g->m;
    t.a = (gemm_mat){g->b.data, g->b.cs, g->b.rs, g->b.bs};
    t.b = (gemm_mat){g->a.data, g->a.cs, g->a.rs, g->a.bs};
    t.init = (gemm_mat){g->init.data, g->init.cs, g->init.rs, g->init.bs};
    t.c_rs = g->c_cs;
    t.c_cs = g->c_rs;
    return t;
}
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
bool cpu_gemm_has_few(const gemm_args *g);
tn_status cpu_gemm_few(const gemm_args *g);
/* The same of matrices that are worth packing. */
bool cpu_gemm_has_block(const gemm_args *g);
tn_status cpu_gemm_block(const gemm_args *g);
/* The product of integer matrices, modulo 2^bits. */
typedef tn_status gemm_int_fn(const gemm_args *g);
gemm_int_fn cpu_gemm_int_baseline, cpu_gemm_int_avx2, cpu_gemm_int_avx512;

#endif
