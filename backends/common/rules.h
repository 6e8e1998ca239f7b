/* rules.h: how one element moves in a step of an optimizer other than SGD and Adam, for every backend. */
#ifndef RULES_H
#define RULES_H

#include "rule_size.h"
#include "scalar.h"

/* A tensor's rule_size and the options, in the type computed in. */
typedef struct rule_values {
    A by, also, left, shrink;
    A a, b, c, d, eps, decay;
    A rest_a, rest_b; /* 1 - a, 1 - b */
    bool coupled;     /* the decay goes through the gradient */
    bool uses[RULE_STATES];
} rule_values;

TMPL_INLINE rule_values rule_values_of(const rule_options *o, const rule_size *s) {
    rule_values v;
    v.by = (A)s->by;
    v.also = (A)s->also;
    v.left = (A)s->left;
    v.shrink = (A)s->shrink;
    v.a = (A)o->a;
    v.b = (A)o->b;
    v.c = (A)o->c;
    v.d = (A)o->d;
    v.eps = (A)o->eps;
    v.decay = (A)o->decay;
    v.rest_a = (A)(1.0 - o->a);
    v.rest_b = (A)(1.0 - o->b);
    v.coupled = o->decay != 0.0 && !o->decoupled;
    for (int k = 0; k < RULE_STATES; k++) v.uses[k] = false;
    return v;
}

/* A running mean of squares. */
TMPL_INLINE A rule_squares(A mean, A x, A keep, A rest) { return mean * keep + rest * x * x; }

TMPL_INLINE A rule_rmsprop(const rule_values *v, A w, A g, A *s) {
    A square = rule_squares(s[0], g, v->a, v->rest_a);
    s[0] = square;
    if (v->uses[2]) {
        s[2] = f_lerp(s[2], g, v->rest_a);
        square = square - s[2] * s[2];
    }
    A d = g / (f_sqrt(square) + v->eps);
    if (v->uses[1]) d = s[1] = s[1] * v->b + d;
    return w + v->by * d;
}

TMPL_INLINE A rule_adagrad(const rule_values *v, A w, A g, A *s) {
    s[0] = s[0] + g * g;
    return w + v->by * g / (f_sqrt(s[0]) + v->eps);
}

TMPL_INLINE A rule_adadelta(const rule_values *v, A w, A g, A *s) {
    s[0] = rule_squares(s[0], g, v->a, v->rest_a);
    A d = f_sqrt(s[1] + v->eps) / f_sqrt(s[0] + v->eps) * g;
    s[1] = rule_squares(s[1], d, v->a, v->rest_a);
    return w + v->by * d;
}

TMPL_INLINE A rule_adamax(const rule_values *v, A w, A g, A *s) {
    s[0] = f_lerp(s[0], g, v->rest_a);
    s[1] = f_maximum(s[1] * v->b, f_abs(g) + v->eps);
    return w + v->by * s[0] / s[1];
}

TMPL_INLINE A rule_nadam(const rule_values *v, A w, A g, A *s) {
    s[0] = f_lerp(s[0], g, v->rest_a);
    s[1] = rule_squares(s[1], g, v->b, v->rest_b);
    A root = f_sqrt(s[1] / v->left) + v->eps;
    return w + v->by * g / root + v->also * s[0] / root;
}

TMPL_INLINE A rule_radam(const rule_values *v, A w, A g, A *s) {
    s[0] = f_lerp(s[0], g, v->rest_a);
    s[1] = rule_squares(s[1], g, v->b, v->rest_b);
    A d = v->by * s[0];
    return v->left > 0 ? w + d / (f_sqrt(s[1]) + v->eps) : w + d;
}

TMPL_INLINE A rule_asgd(const rule_values *v, A w, A g, A *s) {
    w = w + v->by * g;
    s[0] = f_lerp(s[0], w, v->also);
    return w;
}

/* Where the sign turned, this step is left out. */
TMPL_INLINE A rule_rprop(const rule_values *v, A w, A g, A *s) {
    A turn = g * s[0], size = s[1];
    if (turn > 0) size = size * v->b;
    if (turn < 0) size = size * v->a;
    if (turn < 0) g = 0;
    s[0] = g;
    s[1] = f__clamp(size, v->c, v->d);
    return w - f_sign(g) * s[1];
}

/* Where element w goes, by its gradient g; moves its state s. */
TMPL_INLINE A rule_move(int rule, const rule_values *v, A w, A g, A *s) {
    if (v->coupled) g = g + v->decay * w;
    w = w * v->shrink;
    switch (rule) {
    case RULE_RMSPROP: return rule_rmsprop(v, w, g, s);
    case RULE_ADAGRAD: return rule_adagrad(v, w, g, s);
    case RULE_ADADELTA: return rule_adadelta(v, w, g, s);
    case RULE_ADAMAX: return rule_adamax(v, w, g, s);
    case RULE_NADAM: return rule_nadam(v, w, g, s);
    case RULE_RADAM: return rule_radam(v, w, g, s);
    case RULE_ASGD: return rule_asgd(v, w, g, s);
    default: return rule_rprop(v, w, g, s);
    }
}

#endif
