/* ffi_sample.c: a C library as anybody may have written it, for the tests of tenon.ffi. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int axpy(int n, double a, const double *x, double *y) {
    if (a != a) return 3;
    for (int i = 0; i < n; i++) y[i] += a * x[i];
    return 0;
}

/* y = a x for a matrix of `rows` rows. */
void gemv(size_t rows, size_t columns, const float *a, const float *x, float *y) {
    for (size_t i = 0; i < rows; i++) {
        y[i] = 0;
        for (size_t k = 0; k < columns; k++) y[i] += a[i * columns + k] * x[k];
    }
}

struct point {
    double x, y;
};
struct shape {
    char tag;
    struct point corner[2];
    const double *weights;
    int32_t n;
};
struct point middle(struct point a, struct point b) {
    struct point r = {(a.x + b.x) / 2, (a.y + b.y) / 2};
    return r;
}
void move(struct point *p, double dx) { p->x += dx; }
double weigh(const struct shape *s) {
    double sum = s->tag;
    for (int32_t i = 0; i < s->n; i++) sum += s->weights[i] * s->corner[1].x;
    return sum;
}

/* Every kind of number as it was passed, in one. */
double numbers(bool b, signed char c, unsigned char uc, short s, unsigned short us, int i,
               unsigned u, long l, unsigned long ul, float f, double d) {
    return b + c + uc + s + us + i + u + (double)l + (double)ul + (double)f + d;
}
int8_t narrow(int8_t x) { return (int8_t)(x - 1); }
uint8_t wrap(uint8_t x) { return (uint8_t)(x - 1); }
uint64_t highest(void) { return UINT64_MAX; }

struct counter {
    int value;
};
int counter_open(struct counter **out, int start) {
    *out = malloc(sizeof **out);
    if (!*out) return 1;
    (*out)->value = start;
    return 0;
}
int counter_next(struct counter *c) { return ++c->value; }
void counter_close(struct counter *c) { free(c); }

void *find(int known) {
    static int there;
    if (known) return &there;
    errno = known ? 0 : ENOENT;
    return NULL;
}
void *nothing(void) { return NULL; }
int failing(int code) {
    errno = code;
    return code ? -1 : 7;
}
const char *greet(int formal) { return formal ? "good day" : NULL; }
size_t count(const char *text) { return strlen(text); }
double maybe(const double *x) { return x ? *x : -1; }

/* Returns when somebody else has set the flag, or after many turns. */
int64_t wait_for(volatile int32_t *flag, int64_t turns) {
    while (!*flag && turns > 0) turns--;
    return turns;
}

static double (*kept)(double);
void keep(double (*fn)(double)) { kept = fn; }
double use(double x) { return kept(x); }
double apply(double (*fn)(double, int), double x, int times) {
    for (int i = 0; i < times; i++) x = fn(x, i);
    return x;
}
struct point walk(struct point (*step)(struct point), struct point p) {
    return step(step(p));
}
int variable = 3;
