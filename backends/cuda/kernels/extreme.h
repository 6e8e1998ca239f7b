/* extreme.h: the largest or smallest element of some, and where it stands. A NaN counts as more extreme
 * than everything. Joining does not depend on the order. */
#ifndef CUDA_EXTREME_H
#define CUDA_EXTREME_H

#include "scalar.h"

struct alignas(16) extreme {
    A value[8 / sizeof(A)]; /* the first one; the others fill up: no byte is left unwritten */
    int64_t at;             /* negative: of no elements */
};

/* The same where places have 32 bits, in as few bytes. */
template <int item> struct extreme_place { typedef int32_t type; };
template <> struct extreme_place<8> { typedef int64_t type; };
struct alignas(8) extreme_near {
    A value[sizeof(A) < 4 ? 4 / sizeof(A) : 1];
    extreme_place<sizeof(A)>::type at;
};

/* Of equal elements the first is named, or the last. */
template <bool largest, bool last> struct extreme_join {
    template <typename E> CUDA_MEMBER E operator()(E p, E q) const {
        if (p.at < 0 || q.at < 0) return p.at < 0 ? q : p;
        A x = p.value[0], y = q.value[0];
        bool x_nan = x != x, y_nan = y != y;
        if (x_nan != y_nan) return x_nan ? p : q;
        if (x_nan || x == y) return (p.at > q.at) == last ? p : q;
        return (x > y) == largest ? p : q;
    }
};

#endif
