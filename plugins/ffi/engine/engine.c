/* engine.c: everything that needs libffi, as a table of functions; built as tenon_ffi.so.
 *
 * Its own file, so that libtenon has no need of libffi before a C function is bound. */
#include <ffi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine_priv.h"

/* A prepared call. Types of structs are made for it and hang on `made`. */
typedef struct made_type {
    ffi_type type;
    struct made_type *next;
    ffi_type *elements[];
} made_type;

typedef struct plan {
    ffi_cif cif;
    made_type *made;
    int64_t small; /* bytes of an integer result that is narrower than ffi_arg; 0: another result */
    int32_t is_signed;
    ffi_type *args[TN_FFI_PARAMS];
} plan;

static ffi_type *type_of(plan *p, const tn_ffi_type *t);

/* Appends a field's types; arrays are spread, as libffi wants them. False: out of memory. */
static bool spread(plan *p, const tn_ffi_type *t, ffi_type **elements, int64_t *n) {
    if (t->kind != TN_FFI_ARRAY) return (elements[(*n)++] = type_of(p, t)) != NULL;
    for (int64_t i = 0; i < t->count; i++)
        if (!spread(p, t->to, elements, n)) return false;
    return true;
}

static int64_t leaves(const tn_ffi_type *t) {
    return t->kind == TN_FFI_ARRAY ? t->count * leaves(t->to) : 1;
}

static ffi_type *record_type(plan *p, const tn_ffi_record *r) {
    int64_t count = 0, n = 0;
    for (int32_t i = 0; i < r->nfields; i++) count += leaves(r->fields[i].type);
    made_type *m = calloc(1, sizeof *m + sizeof(ffi_type *) * (size_t)(count + 1));
    if (!m) return NULL;
    m->next = p->made;
    p->made = m;
    m->type = (ffi_type){.type = FFI_TYPE_STRUCT, .elements = m->elements};
    for (int32_t i = 0; i < r->nfields; i++)
        if (!spread(p, r->fields[i].type, m->elements, &n)) return NULL;
    return &m->type;
}

static ffi_type *type_of(plan *p, const tn_ffi_type *t) {
    static ffi_type *const types[TN_FFI_KIND_COUNT] = {
        [TN_FFI_VOID] = &ffi_type_void,       [TN_FFI_BOOL] = &ffi_type_uint8,
        [TN_FFI_I8] = &ffi_type_sint8,        [TN_FFI_U8] = &ffi_type_uint8,
        [TN_FFI_I16] = &ffi_type_sint16,      [TN_FFI_U16] = &ffi_type_uint16,
        [TN_FFI_I32] = &ffi_type_sint32,      [TN_FFI_U32] = &ffi_type_uint32,
        [TN_FFI_I64] = &ffi_type_sint64,      [TN_FFI_U64] = &ffi_type_uint64,
        [TN_FFI_F32] = &ffi_type_float,       [TN_FFI_F64] = &ffi_type_double,
        [TN_FFI_POINTER] = &ffi_type_pointer, [TN_FFI_CALLBACK] = &ffi_type_pointer};
    if (t->kind == TN_FFI_CHAR) return (char)-1 < 0 ? &ffi_type_sint8 : &ffi_type_uint8;
    return t->kind == TN_FFI_RECORD ? record_type(p, t->record) : types[t->kind];
}

static void plan_free(void *plan_) {
    plan *p = plan_;
    while (p->made) {
        made_type *m = p->made;
        p->made = m->next;
        free(m);
    }
    free(p);
}

static void *plan_new(const tn_ffi_function *f) {
    plan *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    ffi_type *result = type_of(p, f->result);
    bool sound = result != NULL;
    for (int32_t i = 0; i < f->nparams; i++)
        sound = (p->args[i] = type_of(p, f->params[i].type)) != NULL && sound;
    int32_t kind = f->result->kind;
    if (kind >= TN_FFI_BOOL && kind <= TN_FFI_U64 && f->result->size < (int64_t)sizeof(ffi_arg))
        p->small = f->result->size;
    p->is_signed = sound && (result->type == FFI_TYPE_SINT8 || result->type == FFI_TYPE_SINT16 ||
                             result->type == FFI_TYPE_SINT32);
    if (sound &&
        ffi_prep_cif(&p->cif, FFI_DEFAULT_ABI, (unsigned)f->nparams, result, p->args) == FFI_OK)
        return p;
    plan_free(p);
    return NULL;
}

/* libffi widens small integer results to ffi_arg; callers of this file see their own types. */
static void narrow(ffi_arg wide, int64_t bytes, void *result) {
    const uint8_t v8 = (uint8_t)wide;
    const uint16_t v16 = (uint16_t)wide;
    const uint32_t v32 = (uint32_t)wide;
    memcpy(result, bytes == 1 ? &v8 : bytes == 2 ? (const void *)&v16 : &v32, (size_t)bytes);
}

static ffi_arg widen(const void *result, int64_t bytes, int32_t is_signed) {
    uint8_t v8 = 0;
    uint16_t v16 = 0;
    uint32_t v32 = 0;
    memcpy(bytes == 1 ? &v8 : bytes == 2 ? (void *)&v16 : &v32, result, (size_t)bytes);
    if (!is_signed) return (ffi_arg)v8 + v16 + v32;
    return (ffi_arg)(ffi_sarg)(bytes == 1 ? (int8_t)v8 : bytes == 2 ? (int16_t)v16 : (int32_t)v32);
}

static void call(const void *plan_, void *address, void *result, void **args) {
    const plan *p = plan_;
    ffi_cif *cif = (ffi_cif *)(uintptr_t)&p->cif; /* libffi only reads it */
    void (*fn)(void);
    memcpy(&fn, &address, sizeof fn);
    if (!p->small) {
        ffi_call(cif, fn, result, args);
        return;
    }
    ffi_arg wide = 0;
    ffi_call(cif, fn, &wide, args);
    narrow(wide, p->small, result);
}

typedef struct closure {
    ffi_closure *writable;
    const plan *plan;
    tn_ffi_callback fn;
    void *ctx;
} closure;

static void enter(ffi_cif *cif, void *result, void **args, void *data) {
    const closure *c = data;
    (void)cif;
    if (!c->plan->small) {
        c->fn(c->ctx, result, args);
        return;
    }
    uint64_t value = 0;
    c->fn(c->ctx, &value, args);
    *(ffi_arg *)result = widen(&value, c->plan->small, c->plan->is_signed);
}

static void closure_free(void *closure_) {
    closure *c = closure_;
    if (c->writable) ffi_closure_free(c->writable);
    free(c);
}

static void *closure_new(const void *plan_, tn_ffi_callback fn, void *ctx, void **ret_code) {
    const plan *p = plan_;
    closure *c = calloc(1, sizeof *c);
    void *code = NULL;
    if (!c) return NULL;
    *c = (closure){ffi_closure_alloc(sizeof(ffi_closure), &code), p, fn, ctx};
    if (c->writable && ffi_prep_closure_loc(c->writable, (ffi_cif *)(uintptr_t)&p->cif, enter, c,
                                            code) == FFI_OK) {
        *ret_code = code;
        return c;
    }
    closure_free(c);
    return NULL;
}

TN_PLUGIN_EXPORT const tni_ffi_engine *tni_ffi_engine_v1(void);
const tni_ffi_engine *tni_ffi_engine_v1(void) {
    static const tni_ffi_engine table = {sizeof table, 0,           plan_new,    plan_free,
                                         call,         closure_new, closure_free};
    return &table;
}
