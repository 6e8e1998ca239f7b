/* rule_size.h: what an optimizer other than SGD and Adam is told, and what a tensor's count of steps
 * decides once. rules.h has the rest of it, for each element. */
#ifndef RULE_SIZE_H
#define RULE_SIZE_H

#include <math.h>

#include "tmpl.h"

/* The numbers of TN_RULE_STEP_*, which kernels do not see. */
enum {
    RULE_RMSPROP,
    RULE_ADAGRAD,
    RULE_ADADELTA,
    RULE_ADAMAX,
    RULE_NADAM,
    RULE_RADAM,
    RULE_ASGD,
    RULE_RPROP
};
enum { RULE_STATES = 3, RULE_NUMBERS = 2 };

/* What a call says about all tensors; a .. d as in the entry of `_rule_`. */
typedef struct rule_options {
    double lr, a, b, c, d, eps, decay;
    int32_t rule, decoupled;
} rule_options;

/* What depends on how many steps a tensor has made. */
typedef struct rule_size {
    double by;     /* the factor of the direction */
    double also;   /* nadam: that of the running mean; asgd: how far the average moves */
    double left;   /* 1 - beta2^step; radam: 0 while the variance is not known */
    double shrink; /* the parameter is multiplied by it first */
} rule_size;

/* How many states of a rule are numbers of the whole tensor; they are its last lists. */
TMPL_INLINE int rule_numbers(int rule) { return rule == RULE_ASGD ? 2 : rule == RULE_NADAM; }

/* Of step number `step`, from 1 on; moves the tensor's numbers, which are float64 (wide) or float32. */
TMPL_INLINE rule_size rule_size_of(const rule_options *o, double lr, double step, int wide,
                                   double *number) {
    rule_size s = {-lr, 0.0, 1.0, o->decoupled ? 1.0 - lr * o->decay : 1.0};
    if (o->rule == RULE_ADAGRAD) s.by = -(lr / (1.0 + (step - 1.0) * o->a));
    if (o->rule == RULE_ADAMAX || o->rule == RULE_RADAM) s.by = -(lr / (1.0 - pow(o->a, step)));
    if (o->rule == RULE_NADAM || o->rule == RULE_RADAM) s.left = 1.0 - pow(o->b, step);
    if (o->rule == RULE_NADAM) {
        double mu = o->a * (1.0 - 0.5 * pow(0.96, step * o->c));
        double next = o->a * (1.0 - 0.5 * pow(0.96, (step + 1.0) * o->c));
        number[0] = wide ? number[0] * mu : (double)((float)number[0] * (float)mu);
        s.by = -lr * (1.0 - mu) / (1.0 - number[0]);
        s.also = -lr * next / (1.0 - number[0] * next);
    }
    if (o->rule == RULE_RADAM) {
        double longest = 2.0 / (1.0 - o->b) - 1.0;
        double length = longest - 2.0 * step * (1.0 - s.left) / s.left;
        double share = (length - 4.0) * (length - 2.0) * longest;
        double whole = (longest - 4.0) * (longest - 2.0) * length;
        bool known = length > 5.0;
        s.by *= known ? sqrt(s.left) * sqrt(share / whole) : 1.0;
        s.left = known ? s.left : 0.0;
    }
    if (o->rule == RULE_ASGD) {
        s.by = -number[0];
        s.also = number[1];
        s.shrink = 1.0 - o->a * number[0];
        number[0] = lr / pow(1.0 + o->a * lr * step, o->b);
        number[1] = 1.0 / fmax(1.0, step - o->c);
    }
    return s;
}

#endif
