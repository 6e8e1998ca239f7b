/* adam.h: how long a step of Adam is, and counters of steps, for every backend. */
#ifndef ADAM_H
#define ADAM_H

#include <math.h>

#include "tmpl.h"

/* What depends on how many steps a tensor has made. */
typedef struct adam_size {
    double minus_step; /* -lr / (1 - beta1^step) */
    double root;       /* sqrt(1 - beta2^step) */
    double shrink;     /* 1 - lr * decay: the parameter is multiplied by it first */
} adam_size;

/* Of step number `step`, from 1 on; decay: of the parameter by itself. */
TMPL_INLINE adam_size adam_size_of(double lr, double beta1, double beta2, double decay,
                                   double step) {
    adam_size s = {-(lr / (1.0 - pow(beta1, step))), sqrt(1.0 - pow(beta2, step)),
                   1.0 - lr * decay};
    return s;
}

/* A number of float64 (wide) or float32. */
TMPL_INLINE double step_number(const void *x, int wide) {
    return wide ? *(const double *)x : (double)*(const float *)x;
}
TMPL_INLINE void step_set_number(void *x, int wide, double value) {
    if (wide)
        *(double *)x = value;
    else
        *(float *)x = (float)value;
}

/* Advances a counter and returns its new value. */
TMPL_INLINE double step_advance(void *counter, int wide) {
    step_set_number(counter, wide, step_number(counter, wide) + 1.0);
    return step_number(counter, wide);
}

#endif
