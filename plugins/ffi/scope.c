/* scope.c: libraries, their functions, and libffi behind a table.
 *
 * What needs libffi lies in a file of its own, tenon_ffi.so beside the plugins, which is mapped at the
 * first call of a bound function: Tenon starts without libffi being installed. */
#include <stdio.h>
#include <stdlib.h>

#include "ffi_priv.h"
#include "os_priv.h"

/* ---- The engine --------------------------------------------------------------------------------*/

static const tni_ffi_engine *engine;
static char engine_problem[512];

static void load_engine(void) {
    static const char file[] = "/plugins/tenon_ffi.so";
    char path[4096];
    const char *why = "the folder of libtenon is unknown";
    const tni_ffi_engine *(*entry)(void);
    void *library = NULL, *symbol = NULL;
    if (tni_os_own_folder(path, sizeof path - sizeof file)) {
        memcpy(path + strlen(path), file, sizeof file);
        library = tni_os_exists(path) ? tni_os_library_open(path, NULL, &why) : NULL;
        if (!tni_os_exists(path)) why = "this Tenon was built without libffi";
    }
    if (library) symbol = tni_os_library_symbol(library, TNI_FFI_ENGINE);
    if (symbol) {
        memcpy(&entry, &symbol, sizeof entry);
        engine = entry();
        return;
    }
    snprintf(engine_problem, sizeof engine_problem,
             "C functions cannot be bound: %s; install libffi (Debian: libffi8, to build with it "
             "libffi-dev) and build Tenon with -Dffi=enabled",
             library ? "tenon_ffi.so belongs to another version" : why);
}

const tni_ffi_engine *tni_ffi_engine_get(void) {
    static tni_os_once once = TNI_OS_ONCE_INIT;
    tni_os_call_once(&once, load_engine);
    if (!engine) tn_fail(TN_E_PLUGIN, -1, "%s", engine_problem);
    return engine;
}

tn_status tn_ffi_available(void) { return tni_ffi_engine_get() ? TN_OK : TN_E_PLUGIN; }

/* ---- Scopes ------------------------------------------------------------------------------------*/

tn_status tn_ffi_scope_new(const char *library, tn_ffi_scope *parent, tn_ffi_scope **ret_scope) {
    const char *why = NULL;
    if (!ret_scope) return tn_fail(TN_E_VALUE, 2, "a new scope needs a place to be put");
    tn_ffi_scope *s = calloc(1, sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store(&s->refs, 1);
    s->parent = tn_ffi_scope_ref(parent);
    s->path = tni_arena_text(&s->arena, library ? library : "the program",
                             strlen(library ? library : "the program"));
    /* A library stays mapped: pointers into it may be anywhere. */
    s->library = s->path ? tni_os_library_open(library, NULL, &why) : NULL;
    if (s->library) {
        *ret_scope = s;
        return TN_OK;
    }
    tn_status st = why ? tn_fail(TN_E_IO, 0, "no library '%s': %s", s->path, why) : TN_E_MEMORY;
    tn_ffi_scope_unref(&s);
    return st;
}

tn_ffi_scope *tn_ffi_scope_ref(tn_ffi_scope *scope) {
    if (scope) atomic_fetch_add_explicit(&scope->refs, 1, memory_order_relaxed);
    return scope;
}

void tn_ffi_scope_unref(tn_ffi_scope **scope) {
    tn_ffi_scope *s = scope ? *scope : NULL;
    if (s) *scope = NULL;
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1) return;
    for (tn_ffi_function *f = s->names.functions; f; f = f->next)
        if (f->plan) engine->plan_free(f->plan);
    tn_ffi_scope_unref(&s->parent);
    tni_arena_free(&s->arena);
    free(s);
}

tn_ffi_function *tn_ffi_functions(tn_ffi_scope *scope) {
    return scope ? scope->names.functions : NULL;
}

const tn_ffi_record *tn_ffi_records(const tn_ffi_scope *scope) {
    return scope ? scope->names.records : NULL;
}

int tn_ffi_constant_at(const tn_ffi_scope *scope, int32_t i, const char **ret_name,
                       int64_t *ret_value) {
    const tni_ffi_constant *c = scope ? scope->names.constants : NULL;
    while (c && i-- > 0) c = c->next;
    if (!c || !ret_name || !ret_value) return 0;
    *ret_name = c->name;
    *ret_value = c->value;
    return 1;
}

/* ---- Functions ---------------------------------------------------------------------------------*/

static tn_status make_plan(const tn_ffi_function *f, void **ret_plan) {
    const tni_ffi_engine *e = tni_ffi_engine_get();
    if (!e) return TN_E_PLUGIN;
    *ret_plan = e->plan_new(f);
    if (*ret_plan) return TN_OK;
    return tn_fail(TN_E_VALUE, -1, "%s: libffi cannot pass these types, or memory ran out",
                   f->name[0] ? f->name : "callback");
}

tn_status tn_ffi_resolve(tn_ffi_scope *scope, tn_ffi_function *f) {
    if (!scope || !f) return tn_fail(TN_E_VALUE, -1, "the scope or the function is NULL");
    if (f->plan) return TN_OK;
    void *address = tni_os_library_symbol(scope->library, f->name);
    if (!address)
        return tn_fail(TN_E_INDEX, -1, "library '%s' has no function '%s'", scope->path, f->name);
    if (!tni_os_is_code(address))
        return tn_fail(TN_E_TYPE, -1, "'%s' of library '%s' is data, no function", f->name,
                       scope->path);
    TN_TRY(make_plan(f, &f->plan));
    f->address = address;
    return TN_OK;
}

void tn_ffi_call(const tn_ffi_function *f, void *result, void **args) {
    if (!f || !f->plan || !result || (!args && f->nparams)) return;
    engine->call(f->plan, f->address, result, args);
}

/* ---- Closures ----------------------------------------------------------------------------------*/

struct tn_ffi_closure {
    void *plan, *code;
};

tn_status tn_ffi_closure_new(const tn_ffi_function *signature, tn_ffi_callback fn, void *ctx,
                             tn_ffi_closure **ret_closure, void **ret_code) {
    if (!signature || !fn || !ret_closure || !ret_code)
        return tn_fail(TN_E_VALUE, -1, "a closure needs a signature, a function and a place");
    tn_ffi_closure *c = calloc(1, sizeof *c);
    if (!c) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = make_plan(signature, &c->plan);
    if (st == TN_OK && !(c->code = engine->closure_new(c->plan, fn, ctx, ret_code)))
        st = tn_fail(TN_E_STATE, -1,
                     "no callback can be made: memory ran out, or this system forbids code that is "
                     "made at run time");
    if (st != TN_OK)
        tn_ffi_closure_free(c);
    else
        *ret_closure = c;
    return st;
}

void tn_ffi_closure_free(tn_ffi_closure *closure) {
    if (!closure) return;
    if (closure->code) engine->closure_free(closure->code);
    if (closure->plan) engine->plan_free(closure->plan);
    free(closure);
}
