/* codegen_priv.h: formulas of pointwise parts as one kernel (codegen.c). */
#ifndef TENON_CODEGEN_PRIV_H
#define TENON_CODEGEN_PRIV_H

#include "added_priv.h"

/* The forward formula of o as one kernel; TN_DECLINE: it has to run part by part. */
tn_status tni_fused_run(const tni_added *o, const void *args, tn_tensor **ret);
/* Frees what a device has made, when it is retired. */
void tni_codes_forget(const tni_device *dev);

#endif
