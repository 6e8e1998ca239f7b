/* args.h: what the host passes to kernels: every kernel has one parameter, a struct of this file, by
 * value. Part of both sides: C11 here, CUDA C there. */
#ifndef CUDA_ARGS_H
#define CUDA_ARGS_H

#include <stdint.h>

enum {
    CUDA_DIMS = 12,    /* most dimensions of a plan, after merging */
    CUDA_OPERANDS = 5, /* a result and up to four inputs */
    CUDA_GROUP = 4,    /* neighbouring elements that one thread of a row's kernel takes */
    CUDA_BLOCK = 256   /* most threads of a block */
};

/* Neighbouring elements that one thread of a plan's kernel computes, by the bytes of the widest operand:
 * enough of them are on their way at a time to keep the memory busy. */
#define CUDA_SPAN(bytes) ((bytes) < 8 ? 8 : 4)

/* How a 32-bit index is divided by a size without a division: (high word of n * magic + n) >> shift,
 * for n below 2^31. */
typedef struct cuda_divisor {
    uint32_t magic, shift;
} cuda_divisor;

enum {
    CUDA_PLAN_WIDE = 1,    /* indices or offsets need 64 bits */
    CUDA_PLAN_STRIDED = 2, /* some operand is neither packed nor a number */
    CUDA_PLAN_VECTORS = 4, /* packed operands allow loads of whole groups */
    CUDA_PLAN_ROWS = 8 /* strided, but whole groups lie in dimension 0, packed or all one element */
};

/* Operands are the result, then the inputs. Dimension 0 is the fastest; strides in bytes. */
typedef struct cuda_plan {
    int64_t numel;
    int32_t ndim;
    uint32_t flags;  /* CUDA_PLAN_* */
    uint32_t values; /* by operand: it is the number in `value` */
    int32_t span;    /* CUDA_SPAN of its operands */
    void *data[CUDA_OPERANDS];
    int64_t value[CUDA_OPERANDS][2];
    int64_t size[CUDA_DIMS];
    cuda_divisor by[CUDA_DIMS];
    int64_t stride[CUDA_DIMS][CUDA_OPERANDS];
} cuda_plan;

/* What a kernel found wrong in its input, in memory that both sides see: the first one to set `set`
 * fills it, and the next check of the host reports it. */
enum { CUDA_FAULT_INDEX, CUDA_FAULT_DIVISION, CUDA_FAULT_PROBABILITY };
typedef struct cuda_fault {
    uint32_t set;
    uint32_t kind; /* CUDA_FAULT_* */
    uint64_t op;   /* the operator's name, a pointer of the host */
    int64_t index, size;
} cuda_fault;

/* A number of the call: d for floats, and im of complex ones; i for integers and bool. */
typedef struct cuda_number {
    union {
        double d;
        int64_t i;
    };
    double im;
} cuda_number;

typedef struct cuda_map_args {
    cuda_plan plan;
    cuda_number number[4];
    cuda_fault *fault; /* for integer divisions */
    uint64_t op;
} cuda_map_args;

/* Integer operators that report a zero among their divisors, operand 1 of the inputs. */
#define CUDA_DIVIDES_floor_divide 1
#define CUDA_DIVIDES__trunc_divide 1
#define CUDA_DIVIDES_remainder 1
#define CUDA_DIVIDES_fmod 1

/* Where Philox numbers begin. In a graph that is told at each launch: there `launch` points to it, and
 * the kernel's own offset counts from there. */
typedef struct cuda_draws {
    uint64_t seed, offset;
} cuda_draws;

/* The first step of a graph's launch. */
typedef struct cuda_draws_args {
    cuda_draws *launch;
    cuda_draws draws;
} cuda_draws_args;

/* Random numbers for operand 0 of the plan, in the order of its indices; operand 1 is what they are
 * compared with. A thread draws one of the `blocks` Philox blocks. */
typedef struct cuda_random_args {
    cuda_plan plan;
    cuda_draws draws;
    const cuda_draws *launch; /* NULL outside of graphs */
    int64_t blocks;
    double a, b;    /* the distribution's parameters */
    uint64_t range; /* whole numbers: how many there are; 0: 2^64 */
    int64_t base;   /* and the smallest one */
    cuda_fault *fault;
    uint64_t op;
} cuda_random_args;

/* Dropout of n elements that lie one after the other; the mask has a byte for each. */
typedef struct cuda_dropout_args {
    const void *in;
    void *out;
    uint8_t *mask;
    int64_t n, blocks;
    cuda_draws draws;
    const cuda_draws *launch; /* NULL outside of graphs */
    double keep, scale;       /* how likely an element stays, and what it is multiplied by */
} cuda_dropout_args;

/* element i = start + i * step; or n elements from `start` to `step` */
typedef struct cuda_range_args {
    void *data;
    int64_t n, stride; /* in elements */
    cuda_number start, step;
} cuda_range_args;

/* Rows along one dimension: `n` elements, `step` apart, in bytes; operands are inputs, then the result.
 * A block takes `width` neighbouring rows. */
enum { CUDA_ROW_OPERANDS = 3 };
typedef struct cuda_rows_args {
    void *data[CUDA_ROW_OPERANDS];
    int64_t rows, n;
    int32_t width, dims;
    int64_t step[CUDA_ROW_OPERANDS];
    int64_t size[CUDA_DIMS], stride[CUDA_DIMS][CUDA_ROW_OPERANDS];
} cuda_rows_args;

#endif
