/* tenon/random.h: who draws random numbers. The generators are in tensor.h. */
#ifndef TENON_RANDOM_H
#define TENON_RANDOM_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often the calling thread has drawn from a generator. */
TN_API uint64_t tn_generator_draws(void);

#ifdef __cplusplus
}
#endif
#endif
