/* long_sum.h: long sums in runs.
 *
 * A run is added up in A, by vectors in turns, and the runs' sums in double: a partial sum in float that
 * takes many more elements grows until what is added to it is rounded away. */
#ifndef CPU_LONG_SUM_H
#define CPU_LONG_SUM_H

#include "vec.h"

enum { VEC_RUN = VEC_TURN * VL * 128 };

/* Calls for each run of n elements: those at from ... end - 1. */
#define EACH_RUN(from, end, n)                                                                     \
    for (int64_t from = 0, end = 0;                                                                \
         from < (n) && (end = (n)-from < VEC_RUN ? (n) : from + VEC_RUN, 1); from = end)

#endif
