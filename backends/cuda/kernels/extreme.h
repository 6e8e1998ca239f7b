/* extreme.h: the largest or smallest element of some, and where it stands. A NaN counts as more extreme
 * than everything. Joining does not depend on the order. */
#ifndef CUDA_EXTREME_H
#define CUDA_EXTREME_H

#include "scalar.h"

struct alignas(16) extreme {
    A value[8 / sizeof(A)]; /* the first one; the others fill up: no byte is left unwritten */
    int64_t at;             /* negative: of no elements */
};

/* Of equal elements the first is named, or the last. */
template <bool largest, bool last> struct extreme_join {
    CUDA_MEMBER extreme operator()(extreme p, extreme q) const {
        if (p.at < 0 || q.at < 0) return p.at < 0 ? q : p;
        A x = p.value[0], y = q.value[0];
        bool x_nan = x != x, y_nan = y != y;
        if (x_nan != y_nan) return x_nan ? p : q;
        if (x_nan || x == y) return (p.at > q.at) == last ? p : q;
        return (x > y) == largest ? p : q;
    }
};

#endif
