/* dnn_plan.h: plans of cuDNN's engines for graphs of operations. An operation says what its plan depends
 * on, and how its graph is described; searching for a plan, keeping and running it is the same for all. */
#ifndef CUDA_DNN_PLAN_H
#define CUDA_DNN_PLAN_H

#include "dnn.h"

/* What plans of every operation depend on, besides the device. */
typedef struct cuda_dnn_key {
    int32_t operation; /* its descriptor's type in cudnn.h */
    int32_t dtype;
    int32_t tf32, deterministic;
    int32_t benchmark; /* the fastest engine is wanted, so that several are run */
    int32_t alignment; /* of all operands, in bytes */
} cuda_dnn_key;

/* An operation on operands: those are numbered from 1 on in its graph. */
typedef struct cuda_dnn_problem {
    const cuda_dnn_key *key; /* the first member of a struct of `bytes`, compared as bytes */
    size_t bytes;
    /* Adds the descriptors of the graph to a build; called when there is no plan yet. */
    cudnnBackendDescriptor_t (*describe)(cuda_dnn_build *b, const cuda_dnn_key *key,
                                         cudnnHandle_t handle);
    /* Of operands: on the device, or on the host if they are by value; NULL: the graph has none. */
    const void *const *data;
    int operands;
} cuda_dnn_problem;

/* The functions of cuDNN, or NULL where it is not to be had or not wanted. */
const cuda_cudnn *cuda_dnn_wanted(void);
/* A key for the call's dtype and the settings; benchmark is 0. */
cuda_dnn_key cuda_dnn_key_of(const tn_call *call, unsigned operation);
/* The greatest power of two up to 16 that divides all addresses. */
int32_t cuda_dnn_alignment(const void *const *data, int n);
/* Queues the operation; TN_DECLINE: no engine takes it, and nothing was written. The device is
 * current. */
tn_status cuda_dnn_run(const tn_call *call, cuda_device *d, const cuda_dnn_problem *problem);

#endif
