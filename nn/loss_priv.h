/* loss_priv.h: what the files of losses share. */
#ifndef TENON_LOSS_PRIV_H
#define TENON_LOSS_PRIV_H

#include <tenon/tensor.h>

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

/* The number of 'none', 'mean' or 'sum'. */
tn_status tni_reduction_of(const char *text, int *ret);

#endif
