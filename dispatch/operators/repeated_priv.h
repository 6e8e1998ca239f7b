/* repeated_priv.h: writing to tensors whose elements share places; see repeated.c. */
#ifndef TENON_REPEATED_PRIV_H
#define TENON_REPEATED_PRIV_H

#include <tenon/ops_meta.h>

void tni_warn_repeated(const char *name);
tn_status tni_index_put_repeated(tn_tensor *self, tn_tensors indices, tn_tensor *values,
                                 int64_t accumulate);
tn_status tni_index_fill_repeated(tn_tensor *self, int64_t dim, tn_tensor *index, tn_tensor *value);

#endif
