/* ffi_priv.h: what the files behind tenon.ffi share. */
#ifndef TENON_PYTHON_FFI_PRIV_H
#define TENON_PYTHON_FFI_PRIV_H

#include <tenon/ffi.h>

#include "binding_priv.h"

/* ---- ffi_memory.c: structs and pointers --------------------------------------------------------*/

/* A library and its declarations. */
typedef struct tnp_ffi_scope_object {
    PyObject_HEAD tn_ffi_scope *scope;
} tnp_ffi_scope_object;

/* A struct in memory of its own, or inside another one. */
typedef struct tnp_ffi_struct_object {
    PyObject_HEAD const tn_ffi_record *record;
    char *memory;
    PyObject *owner; /* the struct that this one lies in, or the scope */
    PyObject *kept;  /* offset -> what a pointer field points to; NULL inside another struct */
    bool inside;
} tnp_ffi_struct_object;

/* A pointer that C gave us, or one that C is to fill in. */
typedef struct tnp_ffi_pointer_object {
    PyObject_HEAD void *address;
    const tn_ffi_type *to; /* NULL: it is to be filled in */
    PyObject *scope;       /* keeps `to` alive; may be NULL */
    bool is_const;
    bool expired; /* it was an argument of a callback that has returned */
} tnp_ffi_pointer_object;

extern PyTypeObject *tnp_ffi_scope_type, *tnp_ffi_struct_type, *tnp_ffi_pointer_type;

PyObject *tnp_ffi_struct_new(PyObject *scope, const tn_ffi_record *record, const void *from);
PyObject *tnp_ffi_pointer_new(PyObject *scope, void *address, const tn_ffi_type *to);
bool tnp_ffi_memory_init(PyObject *module);

/* ---- ffi_convert.c: Python values as C values and back ------------------------------------------*/

/* Whom an error is about. */
typedef struct tnp_ffi_place {
    const char *function, *name; /* name: of the argument or field */
    int position;                /* from 1; 0: of no argument */
} tnp_ffi_place;

/* "erf(): argument 'x' (position 1) must be a number, not str"; `must` ends before "not". */
int tnp_ffi_type_error(const tnp_ffi_place *at, const char *must, PyObject *o);
/* An exception of class `cls` about the place; -1 always. */
int tnp_ffi_error(PyObject *cls, const tnp_ffi_place *at, const char *fmt, ...);

/* A number into memory of its C type. -1: exception. */
int tnp_ffi_store_number(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, void *dst);
/* A C value as a Python object. `scope` owns the types. */
PyObject *tnp_ffi_load(PyObject *scope, const tn_ffi_type *t, const void *src);
/* Whether a pointer to `have` may be passed for one to `want`. */
bool tnp_ffi_same_type(const tn_ffi_type *have, const tn_ffi_type *want);
/* The name of a type, as messages say it; in a buffer of the calling thread. */
const char *tnp_ffi_type_text(const tn_ffi_type *t);

/* What a pointer is made of: where it points, how many elements there are, what has to be kept. */
typedef struct tnp_ffi_target {
    void *address;
    int64_t bytes;    /* -1: unknown */
    tn_tensor *t;     /* borrowed; NULL: no tensor */
    PyObject *holder; /* borrowed from the argument, or the new reference `made` */
    PyObject *made;   /* a copy that takes the tensor's place, or NULL */
} tnp_ffi_target;
/* Any object as a pointer of type t. -1: exception. */
int tnp_ffi_point(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, bool copy,
                  tnp_ffi_target *ret);

/* ---- ffi_callback.c ----------------------------------------------------------------------------*/

typedef struct tnp_ffi_callback_object {
    PyObject_HEAD tn_ffi_closure *closure;
    void *code;
    const tn_ffi_function *signature;
    PyObject *scope, *fn;
    PyObject *error; /* the first exception while a call that was given this runs */
    int32_t running; /* calls that were given this and have not returned */
} tnp_ffi_callback_object;
extern PyTypeObject *tnp_ffi_callback_type;
/* A C function that calls fn; NULL: exception. */
PyObject *tnp_ffi_callback_new(PyObject *scope, const tn_ffi_function *signature, PyObject *fn);
/* Around a call that is given the callback. `leave` raises what fn raised: -1. */
void tnp_ffi_callback_enter(PyObject *callback);
int tnp_ffi_callback_leave(PyObject *callback);
bool tnp_ffi_callback_init(PyObject *module);

/* ---- ffi_function.c, ffi_scope.c ----------------------------------------------------------------*/
extern PyTypeObject *tnp_ffi_function_type;
PyObject *tnp_ffi_function_new(PyObject *scope, tn_ffi_function *f, PyObject *options);
bool tnp_ffi_function_init(PyObject *module);

#endif
