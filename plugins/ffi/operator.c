/* operator.c: functions of numbers as operators on tensors.
 *
 * An operator is registered as a plugin's would be: one descriptor and kernels for the CPU, in a
 * transaction of a plugin called "ffi". Kernels walk the plan's rows and call the function on each
 * element: directly where all its types are double, or all float, else through libffi.
 *
 * Note [Bound for ever]
 * A thread may be inside a kernel while its operator is withdrawn, so what kernels look at is never
 * freed. Binding the same function in the same way again takes up what was there, so that binding
 * and unbinding over and over takes no memory; another binding of a name is its next version. */
#include "txn_priv.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ffi_priv.h"
#include "loop_priv.h"
#include "os_priv.h"

enum { MAX_INPUTS = TN_MAX_OPERANDS - 1, BLOCK = 4096, NAME_BYTES = 95, SCHEMA_BYTES = 1200 };

/* One operator, bound now or earlier. */
typedef struct bound {
    tni_ffi_element element;
    tni_plugin plugin; /* each has its own, so that each can be withdrawn alone */
    char name[NAME_BYTES];
    char *key;                  /* how it was described the last time, or NULL */
    tn_ffi_composite composite; /* NULL: a C function */
    void *ctx;
    bool active;
    struct bound *next;
} bound;

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static bound *all;

/* ---- Elements ----------------------------------------------------------------------------------*/

/* Results of unsigned types take the next dtype that has room for them; there is none for uint64. */
static int32_t result_dtype(int32_t kind) {
    if (kind == TN_FFI_U16) return TN_I32;
    if (kind == TN_FFI_U32) return TN_I64;
    return tn_ffi_dtype(kind);
}

int32_t tn_ffi_dtype(int32_t kind) {
    static const int8_t dtypes[TN_FFI_F64 + 1] = {
        [TN_FFI_VOID] = -1,    [TN_FFI_BOOL] = TN_BOOL, [TN_FFI_CHAR] = TN_I8,
        [TN_FFI_I8] = TN_I8,   [TN_FFI_U8] = TN_U8,     [TN_FFI_I16] = TN_I16,
        [TN_FFI_U16] = TN_I16, [TN_FFI_I32] = TN_I32,   [TN_FFI_U32] = TN_I32,
        [TN_FFI_I64] = TN_I64, [TN_FFI_U64] = TN_I64,   [TN_FFI_F32] = TN_F32,
        [TN_FFI_F64] = TN_F64};
    return kind >= 0 && kind <= TN_FFI_F64 ? dtypes[kind] : -1;
}

int tn_ffi_is_elementwise(const tn_ffi_function *f) {
    if (!f || f->nparams < 1 || f->nparams > MAX_INPUTS || !tni_ffi_is_number(f->result)) return 0;
    for (int32_t i = 0; i < f->nparams; i++)
        if (!tni_ffi_is_number(f->params[i].type)) return 0;
    return 1;
}

static bool has_float(const tn_ffi_function *f) {
    bool any = tni_ffi_is_float(f->result);
    for (int32_t i = 0; i < f->nparams; i++) any = any || tni_ffi_is_float(f->params[i].type);
    return any;
}

/* ---- The loop through libffi -------------------------------------------------------------------*/

typedef union value {
    int8_t i8;
    uint8_t u8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
} value;

static int64_t load_int(int32_t dtype, const char *p) {
    switch (dtype) {
    case TN_BOOL: return *(const uint8_t *)p != 0;
    case TN_U8: return *(const uint8_t *)p;
    case TN_I8: return *(const int8_t *)p;
    case TN_I16: return *(const int16_t *)(const void *)p;
    case TN_I32: return *(const int32_t *)(const void *)p;
    default: return *(const int64_t *)(const void *)p;
    }
}

/* False: the value is no such integer. */
static bool store_int(int32_t kind, int64_t v, value *ret) {
    ret->i64 = v;
    switch (kind) {
    case TN_FFI_BOOL: ret->u8 = v != 0; return true;
    case TN_FFI_CHAR: ret->i8 = (int8_t)v; return v >= INT8_MIN && v <= UINT8_MAX;
    case TN_FFI_I8: ret->i8 = (int8_t)v; return v >= INT8_MIN && v <= INT8_MAX;
    case TN_FFI_U8: ret->u8 = (uint8_t)v; return v >= 0 && v <= UINT8_MAX;
    case TN_FFI_I16: ret->i16 = (int16_t)v; return v >= INT16_MIN && v <= INT16_MAX;
    case TN_FFI_U16: ret->u16 = (uint16_t)v; return v >= 0 && v <= UINT16_MAX;
    case TN_FFI_I32: ret->i32 = (int32_t)v; return v >= INT32_MIN && v <= INT32_MAX;
    case TN_FFI_U32: ret->u32 = (uint32_t)v; return v >= 0 && v <= UINT32_MAX;
    case TN_FFI_U64: return v >= 0;
    default: return true;
    }
}

/* A whole number out of a floating one. float32 holds all of them only up to 2^24: beyond, what
 * was meant can be another one. */
static bool whole(int32_t dtype, double v, int64_t *ret) {
    double limit = dtype == TN_F32 ? 16777216.0 : 9223372036854774784.0;
    if (!(fabs(v) <= limit) || v != trunc(v)) return false;
    *ret = (int64_t)v;
    return true;
}

static bool load(int32_t dtype, const char *p, int32_t kind, value *ret) {
    bool floating = dtype == TN_F32 || dtype == TN_F64;
    double v = !floating         ? (double)load_int(dtype, p)
               : dtype == TN_F32 ? (double)*(const float *)(const void *)p
                                 : *(const double *)(const void *)p;
    int64_t i = floating ? 0 : load_int(dtype, p);
    if (kind == TN_FFI_F64) {
        ret->f64 = v;
        return true;
    }
    if (kind == TN_FFI_F32) {
        ret->f32 = (float)v;
        return true;
    }
    return (!floating || whole(dtype, v, &i)) && store_int(kind, i, ret);
}

/* The result as both kinds of number. */
static void read_result(int32_t kind, const value *v, double *ret_float, int64_t *ret_int) {
    int64_t i = 0;
    switch (kind) {
    case TN_FFI_F32: *ret_float = (double)v->f32; break;
    case TN_FFI_F64: *ret_float = v->f64; break;
    case TN_FFI_BOOL: i = v->u8 != 0; break;
    case TN_FFI_CHAR:
    case TN_FFI_I8: i = v->i8; break;
    case TN_FFI_U8: i = v->u8; break;
    case TN_FFI_I16: i = v->i16; break;
    case TN_FFI_U16: i = v->u16; break;
    case TN_FFI_I32: i = v->i32; break;
    case TN_FFI_U32: i = v->u32; break;
    default: i = v->i64; break;
    }
    *ret_int = i;
    if (kind != TN_FFI_F32 && kind != TN_FFI_F64)
        *ret_float = kind == TN_FFI_U64 ? (double)v->u64 : (double)i;
}

/* The result in the dtype of the output. False: it is an integer that the dtype cannot hold. */
static bool store(int32_t dtype, char *p, int32_t kind, const value *v) {
    double f = 0;
    int64_t i;
    read_result(kind, v, &f, &i);
    switch (dtype) {
    case TN_BOOL: *(uint8_t *)p = f != 0; return true;
    case TN_U8: *(uint8_t *)p = (uint8_t)i; return i >= 0 && i <= UINT8_MAX;
    case TN_I8: *(int8_t *)p = (int8_t)i; return i >= INT8_MIN && i <= INT8_MAX;
    case TN_I16: *(int16_t *)(void *)p = (int16_t)i; return i >= INT16_MIN && i <= INT16_MAX;
    case TN_I32: *(int32_t *)(void *)p = (int32_t)i; return i >= INT32_MIN && i <= INT32_MAX;
    case TN_I64: *(int64_t *)(void *)p = i; return kind != TN_FFI_U64 || i >= 0;
    case TN_F32: *(float *)(void *)p = (float)f; return true;
    default: *(double *)(void *)p = f; return true;
    }
}

static tn_status general(const tni_ffi_element *e, const tn_rows *r, int64_t begin, int64_t end,
                         int64_t *ret_bad) {
    value args[MAX_INPUTS], result;
    void *at[MAX_INPUTS];
    const tni_ffi_engine *engine = tni_ffi_engine_get();
    for (int32_t k = 0; k < e->nparams; k++) at[k] = &args[k];
    for (int64_t i = begin; i < end; i++) {
        for (int32_t k = 0; k < e->nparams; k++) {
            *ret_bad = k;
            if (!load(r->plan->dtype[k + 1], TN_ROW(char, *r, k + 1, i), e->kinds[k], &args[k]))
                return TN_E_VALUE;
        }
        result.i64 = 0;
        engine->call(e->plan, e->address, &result, at);
        *ret_bad = -1;
        if (!store(r->plan->dtype[0], TN_ROW(char, *r, 0, i), e->result, &result))
            return TN_E_VALUE;
    }
    return TN_OK;
}

/* ---- The kernel --------------------------------------------------------------------------------*/

static tn_status bad_value(const tn_call *call, int64_t bad) {
    if (bad < 0)
        return tn_fail(TN_E_VALUE, -1, "%s: a result does not fit the result's dtype",
                       call->op->name);
    return tn_fail(TN_E_VALUE, (int32_t)bad,
                   "%s: argument %d has a value that its C type, an integer, cannot hold exactly",
                   call->op->name, (int)bad + 1);
}

static tn_status run(const tn_call *call, const void *args) {
    const tni_ffi_element *e = call->ctx;
    const tn_plan *plan = *(const tn_plan *const *)args;
    tni_ffi_loop loop = plan->dtype[0] != call->dtype ? NULL
                        : call->dtype == TN_F32       ? e->f32
                        : call->dtype == TN_F64       ? e->f64
                                                      : NULL;
    tn_rows r;
    for (tn_rows_start(&r, plan); tn_rows_next(&r);) {
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            int64_t bad = 0, end = i + BLOCK < r.n ? i + BLOCK : r.n;
            if (loop)
                loop(e, &r, i, end);
            else if (general(e, &r, i, end, &bad) != TN_OK)
                return bad_value(call, bad);
            TN_TRY(call->host->poll());
        }
    }
    return TN_OK;
}

static tn_status run_composite(const tn_host *host, void *ctx, const void *args, tn_view **rets) {
    const bound *b = ctx;
    (void)host;
    const tn_view *const *inputs = (const void *)((const char *)args + sizeof(void *));
    return b->composite(b->ctx, inputs, b->element.nparams, rets);
}

/* ---- Binding -----------------------------------------------------------------------------------*/

/* "ffi::ldexp(Operand x, Operand y) -> Tensor"; a first version is not told. */
static void write_schema(const tn_ffi_function *f, const char *name, char *dst, size_t size) {
    const char *version = strchr(name, '@');
    bool first = version && strcmp(version, "@1") == 0;
    size_t shown = first ? (size_t)(version - name) : strlen(name);
    size_t n = (size_t)snprintf(dst, size, "%.*s(", (int)shown, name);
    for (int32_t i = 0; i < f->nparams && n < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%sOperand %s", i ? ", " : "", f->params[i].name);
    if (n < size) snprintf(dst + n, size - n, ") -> Tensor");
}

static void write_rule(const tn_ffi_function *f, int32_t dtype, char *dst, size_t size) {
    bool floats = has_float(f);
    int32_t result = dtype >= 0                              ? dtype
                     : floats && tni_ffi_is_float(f->result) ? -1
                                                             : result_dtype(f->result->kind);
    snprintf(dst, size, "%s%s%s", floats ? "float" : "promote", result >= 0 ? " -> " : "",
             result >= 0 ? tn_dtype_name(result) : "");
}

static void fill_element(tni_ffi_element *e, const tn_ffi_function *f) {
    int32_t kind = f->result->kind;
    bool uniform = tni_ffi_is_float(f->result);
    e->address = f->address;
    e->nparams = f->nparams;
    e->result = kind;
    for (int32_t i = 0; i < f->nparams; i++) {
        e->kinds[i] = f->params[i].type->kind;
        uniform = uniform && e->kinds[i] == kind;
    }
    if (uniform) tni_ffi_choose_loops(e);
}

static bool same_function(const bound *b, const tn_ffi_function *f) {
    const tni_ffi_element *e = &b->element;
    bool same =
        e->address == f->address && e->nparams == f->nparams && e->result == f->result->kind;
    for (int32_t i = 0; same && i < f->nparams; i++) same = e->kinds[i] == f->params[i].type->kind;
    return same;
}

static tn_status register_all(bound *b, tn_txn *txn, const tn_op_desc *desc) {
    static const int8_t floats[] = {TN_F32, TN_F64};
    static const int8_t ints[] = {TN_BOOL, TN_U8, TN_I8, TN_I16, TN_I32, TN_I64};
    bool is_float = desc->dtype && desc->dtype[0] == 'f';
    const int8_t *dtypes = is_float ? floats : ints;
    int n = is_float ? TN_COUNT(floats) : TN_COUNT(ints);
    TN_TRY(tni_host.register_op(txn, desc));
    for (int i = 0; i < n && desc->kind == TN_OP_POINTWISE; i++) {
        tn_kernel_row row = {.op = b->name, .fn = run, .ctx = &b->element, .dtype = dtypes[i]};
        TN_TRY(tni_host.register_kernels(txn, 0, &row, sizeof row, 1));
    }
    return TN_OK;
}

/* All texts of a descriptor as one; NULL: out of memory. */
static char *key_of(const tn_op_desc *d) {
    const char *const texts[] = {d->schema, d->dtype, d->gradient, d->doc};
    size_t n = 1, at = 0;
    for (int i = 0; i < TN_COUNT(texts); i++) n += 1 + (texts[i] ? strlen(texts[i]) : 0);
    char *key = malloc(n);
    for (int i = 0; i < TN_COUNT(texts) && key; i++)
        at += (size_t)snprintf(key + at, n - at, "%s\n", texts[i] ? texts[i] : "");
    return key;
}

static tn_status publish(bound *b, const tn_op_desc *desc) {
    tn_txn *txn;
    if (b->active) return TN_OK;
    TN_TRY(tni_txn_begin(&b->plugin, &txn));
    tn_status st = register_all(b, txn, desc);
    if (st != TN_OK) {
        tni_txn_rollback(txn);
        return st;
    }
    TN_TRY(tni_txn_commit(txn));
    b->active = true;
    return TN_OK;
}

/* Whether an entry stands for that name, of whatever version; "ffi::erf@2" is its own name. */
static bool is_called(const bound *b, const char *name) {
    size_t n = strlen(name);
    return strncmp(b->name, name, n) == 0 && (!b->name[n] || b->name[n] == '@');
}

/* The entry for this function described by this key (taken over), which may have been bound before;
 * else a new one, which is the next version of the name. See note [Bound for ever]. */
static tn_status entry_of(const char *name, const tn_ffi_function *f, char *key,
                          bound **ret_bound) {
    int version = 1;
    for (bound *b = all; b && key; b = b->next) {
        if (!is_called(b, name)) continue;
        version++;
        if (!same_function(b, f) || strcmp(b->key, key) != 0) continue;
        free(key);
        *ret_bound = b;
        return TN_OK;
    }
    bound *b = key ? calloc(1, sizeof *b) : NULL;
    if (!b) {
        free(key);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    snprintf(b->name, sizeof b->name, "%s@%d", name, version);
    b->key = key;
    b->plugin.name = b->plugin.version = b->plugin.summary = (char *)(uintptr_t) "ffi";
    fill_element(&b->element, f);
    b->next = all;
    all = b;
    *ret_bound = b;
    return TN_OK;
}

static tn_status check_name(const char *name) {
    if (!name || strlen(name) >= NAME_BYTES)
        return tn_fail(TN_E_VALUE, -1, "an operator's name has at most %d characters",
                       NAME_BYTES - 1);
    return TN_OK;
}

static tn_status bind_function(const tn_ffi_function *f, const tn_ffi_op *op,
                               const char **ret_name) {
    const tni_ffi_engine *engine = tni_ffi_engine_get();
    char schema[SCHEMA_BYTES], rule[48];
    bound *b;
    if (!engine) return TN_E_PLUGIN;
    write_rule(f, op->dtype, rule, sizeof rule);
    tn_op_desc desc = {.struct_size = sizeof desc,
                       .kind = TN_OP_POINTWISE,
                       .dtype = rule,
                       .gradient = op->gradient,
                       .doc = op->doc};
    write_schema(f, "", schema, sizeof schema);
    desc.schema = schema;
    TN_TRY(entry_of(op->name, f, key_of(&desc), &b));
    if (!b->element.plan) b->element.plan = engine->plan_new(f);
    if (!b->element.plan) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    write_schema(f, b->name, schema, sizeof schema);
    *ret_name = b->name;
    return publish(b, &desc);
}

tn_status tn_ffi_operator(const tn_ffi_function *f, const tn_ffi_op *op, const char **ret_name) {
    if (!f || !op || !ret_name || !f->address || !tn_ffi_is_elementwise(f))
        return tn_fail(TN_E_VALUE, -1,
                       "an operator is made of a resolved function of one to %d numbers that "
                       "returns a number",
                       MAX_INPUTS);
    TN_TRY(check_name(op->name));
    if (op->dtype >= 0 && (op->dtype > TN_F64 || op->dtype == TN_F16 || op->dtype == TN_BF16))
        return tn_fail(TN_E_DTYPE, -1, "a result's dtype is bool, an integer, float32 or float64");
    tni_os_lock(&lock);
    tn_status st = bind_function(f, op, ret_name);
    tni_os_unlock(&lock);
    return st;
}

tn_status tn_ffi_composite_operator(const tn_ffi_function *f, const char *name, tn_ffi_composite fn,
                                    void *ctx, const char **ret_name) {
    char schema[SCHEMA_BYTES];
    bound *b;
    if (!f || !fn || !ret_name)
        return tn_fail(TN_E_VALUE, -1, "a composite needs parameters, a function and a place");
    TN_TRY(check_name(name));
    tn_op_desc desc = {.struct_size = sizeof desc,
                       .kind = TN_OP_COMPOSITE,
                       .schema = schema,
                       .composite = run_composite};
    write_schema(f, "", schema, sizeof schema);
    tni_os_lock(&lock);
    tn_status st = entry_of(name, f, key_of(&desc), &b);
    if (st == TN_OK) {
        b->composite = fn;
        b->ctx = ctx;
        desc.ctx = b;
        write_schema(f, b->name, schema, sizeof schema);
        st = publish(b, &desc);
        *ret_name = b->name;
    }
    tni_os_unlock(&lock);
    return st;
}

tn_status tn_ffi_unbind(const char *name) {
    tn_status st = TN_OK;
    bool any = false;
    if (!name) return tn_fail(TN_E_VALUE, 0, "an operator is unbound by its name");
    tni_os_lock(&lock);
    for (bound *b = all; b && st == TN_OK; b = b->next) {
        if (!b->active || !is_called(b, name)) continue;
        st = tni_registry_withdraw(&b->plugin);
        b->active = st != TN_OK;
        any = true;
    }
    tni_os_unlock(&lock);
    return any ? st : tn_fail(TN_E_VALUE, 0, "no bound operator is called '%s'", name);
}
