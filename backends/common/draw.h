/* draw.h: drawing an index by its weight. */
#ifndef DRAW_H
#define DRAW_H

#include "tmpl.h"

/* The first of n ascending sums that is not below x; n where all are. */
TMPL_INLINE int64_t draw_find(const double *sums, int64_t n, double x) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sums[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
