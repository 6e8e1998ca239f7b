/* adam.h: how long a step of Adam is, for every backend. */
#ifndef ADAM_H
#define ADAM_H

#include <math.h>

#include "tmpl.h"

/* Of step number `step`, from 1 on: -lr / (1 - beta1^step) and sqrt(1 - beta2^step). */
TMPL_INLINE void adam_size(double lr, double beta1, double beta2, double step,
                           double *ret_minus_step, double *ret_root) {
    *ret_minus_step = -(lr / (1.0 - pow(beta1, step)));
    *ret_root = sqrt(1.0 - pow(beta2, step));
}

#endif
