/* wrapped_priv.h: what calls of the host language have in common (wrapped.c, watched.c). */
#ifndef TENON_WRAPPED_PRIV_H
#define TENON_WRAPPED_PRIV_H

#include <tenon/wrapped.h>

#include "call_priv.h"

tn_wrapped_call tni_wrapped_host(void); /* NULL: there is none */
/* The tensor that an in-place form writes, NULL for others. */
tn_tensor *tni_wrapped_written(const tn_op *op, void *args);

#endif
