/* tenon/nn.h: initial values of parameters, for C programs.
 *
 * Every function overwrites t in place, on any device; nothing is recorded, also where t requires a
 * gradient. gen is borrowed; NULL: the device's default generator. With TN_RNG_MT19937 the numbers
 * are those that PyTorch gives for the same seed. TN_E_VALUE: t has no such shape, nothing was
 * written. The fans of a weight (out, in, ...) are in and out times the size of what follows. */
#ifndef TENON_NN_H
#define TENON_NN_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TN_FAN_IN, TN_FAN_OUT };

/* The factor that makes up for a function behind the layer: "linear", "sigmoid", "tanh", "relu",
 * "leaky_relu" (whose slope below zero is `slope`; of no meaning for the others), "selu". */
TN_API tn_status tn_init_gain(const char *nonlinearity, double slope, double *ret_gain);
TN_API tn_status tn_init_fans(const tn_tensor *t, int64_t *ret_fan_in, int64_t *ret_fan_out);

TN_API tn_status tn_init_constant(tn_tensor *t, double value);
TN_API tn_status tn_init_uniform(tn_tensor *t, double low, double high, tn_generator *gen);
TN_API tn_status tn_init_normal(tn_tensor *t, double mean, double std, tn_generator *gen);
/* Normal, drawn again until all values lie in [low, high]. */
TN_API tn_status tn_init_trunc_normal(tn_tensor *t, double mean, double std, double low,
                                      double high, tn_generator *gen);

/* Variance 2 gain^2 / (fan_in + fan_out). */
TN_API tn_status tn_init_xavier_uniform(tn_tensor *t, double gain, tn_generator *gen);
TN_API tn_status tn_init_xavier_normal(tn_tensor *t, double gain, tn_generator *gen);
/* Variance gain^2 / fan, the fan being TN_FAN_IN or TN_FAN_OUT. */
TN_API tn_status tn_init_kaiming_uniform(tn_tensor *t, double gain, int fan, tn_generator *gen);
TN_API tn_status tn_init_kaiming_normal(tn_tensor *t, double gain, int fan, tn_generator *gen);

/* t as a matrix (first size, all others): orthonormal rows, or columns where there are fewer, times
 * gain. */
TN_API tn_status tn_init_orthogonal(tn_tensor *t, double gain, tn_generator *gen);
/* A matrix with ones on its diagonal. */
TN_API tn_status tn_init_eye(tn_tensor *t);
/* A weight of 3 to 5 dimensions that hands its input on, as many channels of a group as there are. */
TN_API tn_status tn_init_dirac(tn_tensor *t, int64_t groups);
/* A normal matrix with that share of zeros in every column. */
TN_API tn_status tn_init_sparse(tn_tensor *t, double sparsity, double std, tn_generator *gen);

#ifdef __cplusplus
}
#endif
#endif
