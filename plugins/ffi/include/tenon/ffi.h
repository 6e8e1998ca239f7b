/* tenon/ffi.h: C functions of existing libraries, bound by their declarations.
 *
 * A scope holds one library and what was declared for it: functions, structs, typedefs, enums. A
 * function can be called with values of its C types (tn_ffi_call), and one of numbers alone can be
 * made an operator on tensors (tn_ffi_operator), registered like those of plugins.
 *
 * The declarations are a part of C: functions, also with arrays and callbacks, structs, enums and
 * typedefs over bool, char, the integers, float, double and pointers. An array parameter may be
 * given its length by other parameters: `void scale(size_t n, double x[n])`.
 *
 * Every function needs the room to have been built with libffi (-Dffi), except where it says
 * otherwise; the library is loaded when it is first needed. */
#ifndef TENON_FFI_H
#define TENON_FFI_H

#include <tenon/plugin.h>
#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tn_ffi_kind {
    TN_FFI_VOID,
    TN_FFI_BOOL,
    TN_FFI_CHAR, /* char itself; a `const char *` is text */
    TN_FFI_I8,
    TN_FFI_U8,
    TN_FFI_I16,
    TN_FFI_U16,
    TN_FFI_I32,
    TN_FFI_U32,
    TN_FFI_I64,
    TN_FFI_U64,
    TN_FFI_F32,
    TN_FFI_F64,
    TN_FFI_POINTER,
    TN_FFI_CALLBACK, /* pointer to a function */
    TN_FFI_ARRAY,    /* inside structs */
    TN_FFI_RECORD,   /* a struct */
    TN_FFI_KIND_COUNT
};

typedef struct tn_ffi_type {
    int32_t kind;
    int32_t is_const;
    int64_t size, align;
    const struct tn_ffi_type *to; /* pointer and array: of what */
    int64_t count;                /* array */
    const struct tn_ffi_record *record;
    const struct tn_ffi_function *signature; /* callback: without name and address */
} tn_ffi_type;

typedef struct tn_ffi_field {
    const char *name;
    const tn_ffi_type *type;
    int64_t offset;
} tn_ffi_field;

typedef struct tn_ffi_record {
    const char *name;
    int64_t size, align; /* 0 while only the name is known */
    int32_t nfields;
    const tn_ffi_field *fields;
    struct tn_ffi_record *next;
} tn_ffi_record;

/* One dimension of an array parameter: factor times the values of parameters. */
enum { TN_FFI_FACTORS = 3, TN_FFI_DIMS = 4, TN_FFI_PARAMS = 32 };
typedef struct tn_ffi_length {
    int64_t factor;
    int32_t nparams;
    int32_t params[TN_FFI_FACTORS];
} tn_ffi_length;

typedef struct tn_ffi_param {
    const char *name;
    const tn_ffi_type *type;
    int32_t ndims;     /* 0: any number of elements will do */
    int32_t is_length; /* some array's dimension is this parameter's value alone */
    tn_ffi_length dims[TN_FFI_DIMS];
} tn_ffi_param;

typedef struct tn_ffi_function {
    const char *name, *text; /* text: the declaration */
    const tn_ffi_type *result;
    int32_t nparams;
    tn_ffi_param *params;
    void *address;
    void *plan; /* libffi's */
    struct tn_ffi_function *next;
} tn_ffi_function;

typedef struct tn_ffi_scope tn_ffi_scope;

/* Whether libffi is there; else TN_E_PLUGIN with what to do. */
TN_API tn_status tn_ffi_available(void);

/* A scope over a library, named as dlopen does; NULL: the program itself. What `parent` (or NULL)
 * declares is known in it. TN_E_IO: there is no such library. */
TN_API tn_status tn_ffi_scope_new(const char *library, tn_ffi_scope *parent,
                                  tn_ffi_scope **ret_scope);
TN_API tn_ffi_scope *tn_ffi_scope_ref(tn_ffi_scope *scope);
TN_API void tn_ffi_scope_unref(tn_ffi_scope **scope);

/* Reads declarations, all of them or none. TN_E_VALUE with line, column and fault. Does not need
 * libffi. */
TN_API tn_status tn_ffi_declare(tn_ffi_scope *scope, const char *text);
/* What was declared, the latest first; NULL: nothing. Alive as long as the scope. */
TN_API tn_ffi_function *tn_ffi_functions(tn_ffi_scope *scope);
TN_API const tn_ffi_record *tn_ffi_records(const tn_ffi_scope *scope);
/* Enumeration constant i, false behind the last. */
TN_API int tn_ffi_constant_at(const tn_ffi_scope *scope, int32_t i, const char **ret_name,
                              int64_t *ret_value);
/* Lengths for a function that is declared without: "x[n]", "a[rows][columns]". */
TN_API tn_status tn_ffi_set_lengths(tn_ffi_scope *scope, tn_ffi_function *f, const char *text);

/* Finds a declared function in the library and makes it callable. TN_E_INDEX: no such symbol. */
TN_API tn_status tn_ffi_resolve(tn_ffi_scope *scope, tn_ffi_function *f);

/* Calls it. args[i] points to a value of parameter i's type, result to room for the result, at
 * least 8 bytes. */
TN_API void tn_ffi_call(const tn_ffi_function *f, void *result, void **args);

/* A C function that calls `fn`; alive until tn_ffi_closure_free. `signature` outlives it. */
typedef void (*tn_ffi_callback)(void *ctx, void *result, void **args);
typedef struct tn_ffi_closure tn_ffi_closure;
TN_API tn_status tn_ffi_closure_new(const tn_ffi_function *signature, tn_ffi_callback fn, void *ctx,
                                    tn_ffi_closure **ret_closure, void **ret_code);
TN_API void tn_ffi_closure_free(tn_ffi_closure *closure);

/* ---- Operators ---------------------------------------------------------------------------------
 * A function of at least one number, with a number as its result, as an operator "space::name" over
 * tensors: broadcast, on every device. It computes in the C types; the result has the dtype that
 * the operands promote to, integers the default float where the function takes or returns a float;
 * a function of integers alone, and an integer result, gives the C type's dtype. */
typedef struct tn_ffi_op {
    uint32_t struct_size;
    int32_t dtype;        /* of the result; -1: by the rule above */
    const char *name;     /* "ffi::erf" */
    const char *gradient; /* as in tn_op_desc, or NULL */
    const char *doc;
} tn_ffi_op;
/* A name may be bound more than once: what differs is its next version, "ffi::erf@2", beside the earlier
 * ones. *ret_name: the name with its version, kept for ever. TN_E_PLUGIN: the name or the gradient
 * cannot be read. */
TN_API tn_status tn_ffi_operator(const tn_ffi_function *f, const tn_ffi_op *op,
                                 const char **ret_name);
/* A composite in the host language, "space::name(Operand x, ...)" with the function's parameters;
 * `fn` fills in a new reference. Serves as a derivative; for the same C function the latest one. */
typedef tn_status (*tn_ffi_composite)(void *ctx, const tn_view *const *args, int32_t nargs,
                                      tn_view **ret_result);
TN_API tn_status tn_ffi_composite_operator(const tn_ffi_function *f, const char *name,
                                           tn_ffi_composite fn, void *ctx, const char **ret_name);
/* Withdraws an operator: one version, or all of a name. TN_E_VALUE: there is none. */
TN_API tn_status tn_ffi_unbind(const char *name);

/* The dtype whose elements a kind's values are; -1: none. Does not need libffi. */
TN_API int32_t tn_ffi_dtype(int32_t kind);
/* Whether the function can be an operator. Does not need libffi. */
TN_API int tn_ffi_is_elementwise(const tn_ffi_function *f);

#ifdef __cplusplus
}
#endif
#endif
