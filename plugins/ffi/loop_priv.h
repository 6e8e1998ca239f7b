/* loop_priv.h: what a kernel calls for each element, and the loops that need no libffi. */
#ifndef TENON_FFI_LOOP_PRIV_H
#define TENON_FFI_LOOP_PRIV_H

#include <tenon/ffi.h>

struct tni_ffi_element;
/* Elements begin .. end - 1 of a row. */
typedef void (*tni_ffi_loop)(const struct tni_ffi_element *e, const tn_rows *r, int64_t begin,
                             int64_t end);

typedef struct tni_ffi_element {
    void *address, *plan;
    int32_t nparams, result; /* result: a tn_ffi_kind */
    int32_t kinds[TN_MAX_OPERANDS];
    tni_ffi_loop f32, f64; /* for tensors of that dtype; NULL: through libffi */
} tni_ffi_element;

/* For a function whose parameters and result are all of one floating type. */
void tni_ffi_choose_loops(tni_ffi_element *e);

#endif
