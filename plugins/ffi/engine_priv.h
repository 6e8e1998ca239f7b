/* engine_priv.h: the table between libtenon and tenon_ffi.so. */
#ifndef TENON_FFI_ENGINE_PRIV_H
#define TENON_FFI_ENGINE_PRIV_H

#include <tenon/ffi.h>

/* What tenon_ffi.so, the one file that needs libffi, exports as `tni_ffi_engine_v1`. */
typedef struct tni_ffi_engine {
    uint32_t struct_size;
    uint32_t reserved;
    /* NULL: out of memory, or a type that libffi cannot pass. */
    void *(*plan_new)(const tn_ffi_function *f);
    void (*plan_free)(void *plan);
    void (*call)(const void *plan, void *address, void *result, void **args);
    /* NULL: out of memory, or the system forbids writable code. */
    void *(*closure_new)(const void *plan, tn_ffi_callback fn, void *ctx, void **ret_code);
    void (*closure_free)(void *closure);
} tni_ffi_engine;
#define TNI_FFI_ENGINE "tni_ffi_engine_v1"

#endif
