/* args_attention.h: what the kernels of attention take. */
#ifndef CUDA_ARGS_ATTENTION_H
#define CUDA_ARGS_ATTENTION_H

#include "args.h"

enum { ATTENTION_SIDE = 16 }; /* a block's threads form a square of that side */

/* Rows of a tile, of queries or keys, so that what a block shares fits into 48 KiB; `bytes` are those of a
 * row of the widest head that the kernel takes. */
#define ATTENTION_ROWS(bytes) ((bytes) <= 256 ? 64 : (bytes) <= 512 ? 32 : 16)

/* A tensor of heads: (batch, head, row, column), strides in elements. */
typedef struct cuda_heads {
    void *data;
    int64_t stride[4];
    int32_t vectors; /* four columns can be read at once */
    int32_t reserved;
} cuda_heads;

typedef struct cuda_attention_args {
    cuda_heads q, k, v, y, grad, grad_q, grad_k, grad_v;
    cuda_heads mask; /* an entry for each score, (batch, head, query, key); data NULL: none */
    void *lse;   /* logsumexp of each row of scores, (batch, head, query), in the type of sums */
    void *delta; /* for each row, the sum of grad * y; likewise */
    int64_t heads, share;        /* of queries; of them, how many share a head of keys */
    int64_t queries, keys, rows; /* rows: of all heads of queries */
    int32_t width, value_width, causal;
    int32_t bool_mask; /* true keeps a score; else the mask's numbers are added */
    double scale;
} cuda_attention_args;

#endif
