/* ffi_priv.h: what the files of the room share. */
#ifndef TENON_FFI_PRIV_H
#define TENON_FFI_PRIV_H

#include "added_priv.h"
#include "engine_priv.h"

typedef struct tni_ffi_alias { /* a typedef */
    const char *name;
    const tn_ffi_type *type;
    struct tni_ffi_alias *next;
} tni_ffi_alias;

typedef struct tni_ffi_constant { /* of an enum; the enum itself is an alias of int */
    const char *name;
    int64_t value;
    struct tni_ffi_constant *next;
} tni_ffi_constant;

/* What declarations add to. Lists start with the latest. */
typedef struct tni_ffi_names {
    tn_ffi_record *records;
    tn_ffi_function *functions;
    tni_ffi_alias *aliases;
    tni_ffi_constant *constants;
} tni_ffi_names;

struct tn_ffi_scope {
    atomic_int refs;
    tn_ffi_scope *parent;
    void *library;
    char *path; /* for messages */
    tni_arena arena;
    tni_ffi_names names;
};

/* The engine, loaded at the first call; NULL: a failure is recorded. */
const tni_ffi_engine *tni_ffi_engine_get(void);

static inline bool tni_ffi_is_number(const tn_ffi_type *t) {
    return t->kind >= TN_FFI_BOOL && t->kind <= TN_FFI_F64;
}
static inline bool tni_ffi_is_float(const tn_ffi_type *t) {
    return t->kind == TN_FFI_F32 || t->kind == TN_FFI_F64;
}

#endif
