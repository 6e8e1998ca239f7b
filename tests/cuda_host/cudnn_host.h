/* cudnn_host.h: what the parts of the stand-in for cuDNN share. A graph is read into a `problem`, which is
 * numbers alone, so that a plan can be written as text and read back; a part knows one kind of graph. */
#ifndef CUDNN_HOST_H
#define CUDNN_HOST_H

#include "../../backends/cuda/libs/cudnn.h"
#include "number.h"
#include "queue.h"

enum { ATTRIBUTES = 24, MOST_OPERANDS = 48, MOST_NUMBERS = 256, MOST_DIMS = 5 };

typedef struct attribute {
    unsigned name, type;
    int64_t n;
    void *data;
} attribute;

struct cudnnContext {
    CUstream stream;
};

/* A tensor of a graph: in memory, passing between operations, or a number that the host gives. */
typedef struct operand {
    int64_t id, type, alignment, passing, by_value, dims, size[MOST_DIMS], stride[MOST_DIMS];
} operand;

typedef struct problem {
    int64_t part, engine, operands, numbers;
    operand operand[MOST_OPERANDS];
    int64_t number[MOST_NUMBERS]; /* what else a part wants to know */
} problem;

typedef struct descriptor {
    unsigned type;
    bool finalized;
    int n;
    attribute a[ATTRIBUTES];
    int64_t engine;
    problem *p; /* of a graph, a configuration, a plan */
} descriptor;

/* One execution: addresses, or values. */
typedef struct job {
    problem p;
    char *data[MOST_OPERANDS];
    double value[MOST_OPERANDS];
    char *workspace;
} job;

/* cudnn_conv.c, cudnn_attention.c, cudnn_norm.c: whether operations are such a graph that there are engines for. */
bool conv_read(const descriptor *const *operations, int64_t n, problem *ret);
bool conv_run(job *j);
bool attention_read(const descriptor *const *operations, int64_t n, problem *ret);
bool attention_run(job *j);
bool norm_read(const descriptor *const *operations, int64_t n, problem *ret);
bool norm_run(job *j);

/* ---- cudnn.c -----------------------------------------------------------------------------------*/
const attribute *cudnn_find(const descriptor *d, unsigned name, unsigned type);
/* A finalized descriptor that is an attribute, or NULL. */
const descriptor *cudnn_linked(const descriptor *d, unsigned name, unsigned of_type);
bool cudnn_numbers(const descriptor *d, unsigned name, int64_t n, int64_t *ret);
bool cudnn_code(const descriptor *d, unsigned name, unsigned type, int64_t *ret);
/* Adds the tensor that is an attribute to the operands, if it is not there; its place, or -1. */
int64_t cudnn_operand(const descriptor *operation, unsigned name, problem *p);
/* The number of an operand's type that number.h knows. */
int cudnn_number_type(const operand *o);

#endif
