/* test_ffi.c: C functions by their declarations, from C: parsing, calls, callbacks, operators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tenon/ops_meta.h>
#include <tenon/tenon.h>

static tn_ffi_scope *scope_with(const char *library, const char *text) {
    tn_ffi_scope *s = NULL;
    assert_int_equal(tn_ffi_scope_new(library, NULL, &s), TN_OK);
    assert_int_equal(tn_ffi_declare(s, text), TN_OK);
    return s;
}

static void types_are_data(void **state) {
    (void)state;
    tn_ffi_scope *s =
        scope_with(NULL, "struct p { char tag; double x[2]; };"
                         "enum { A, B = 7 };"
                         "long f(struct p by_value, const float a[n * 2], size_t n);");
    const tn_ffi_record *p = tn_ffi_records(s);
    assert_string_equal(p->name, "p");
    assert_int_equal(p->nfields, 2);
    assert_int_equal(p->fields[1].offset, 8);
    assert_int_equal(p->size, 24);
    const tn_ffi_function *f = tn_ffi_functions(s);
    assert_int_equal(f->nparams, 3);
    assert_int_equal(f->result->kind, TN_FFI_I64);
    assert_true(f->params[1].type->to->is_const);
    assert_int_equal(f->params[1].dims[0].factor, 2);
    assert_int_equal(f->params[1].dims[0].params[0], 2);
    assert_false(f->params[2].is_length); /* twice its value is */
    assert_false(tn_ffi_is_elementwise(f));
    const char *name;
    int64_t value;
    assert_true(tn_ffi_constant_at(s, 0, &name, &value));
    assert_string_equal(name, "B");
    assert_int_equal(value, 7);
    assert_false(tn_ffi_constant_at(s, 2, &name, &value));
    tn_ffi_scope_unref(&s);
    assert_null(s);
}

static void faults_leave_no_trace(void **state) {
    (void)state;
    tn_ffi_scope *s = scope_with(NULL, "struct p;");
    assert_int_equal(tn_ffi_declare(s, "struct p { int a; }; int f(int); nope g(void);"),
                     TN_E_VALUE);
    assert_non_null(strstr(tn_error_last()->message, "column 34: there is no type 'nope'"));
    assert_null(tn_ffi_functions(s));
    assert_int_equal(tn_ffi_records(s)->size, 0);
    assert_int_equal(tn_ffi_declare(s, "struct p { double a; };"), TN_OK);
    assert_int_equal(tn_ffi_records(s)->size, 8);
    tn_ffi_scope_unref(&s);
}

static void lengths_that_are_none(void **state) {
    static const struct {
        const char *text, *words;
    } faulty[] = {
        {"y[3]", "column 2: f has no pointer parameter 'y'"},
        {"n[3]", "column 2: f has no pointer parameter 'n'"},
        {"x", "column 2: '[' is expected"},
        {"3[n]", "column 1: a parameter's name is expected"},
        {"x[n] z", "column 6: ',' is expected"},
        {"x[n],", "column 6: a parameter's name is expected"},
        {"x[m]", "column 3: the length 'm' is no parameter"},
    };
    (void)state;
    tn_ffi_scope *s = scope_with(NULL, "void f(int n, double *x);");
    tn_ffi_function *f = tn_ffi_functions(s);
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++) {
        assert_int_equal(tn_ffi_set_lengths(s, f, faulty[i].text), TN_E_VALUE);
        assert_non_null(strstr(tn_error_last()->message, faulty[i].words));
    }
    assert_int_equal(tn_ffi_set_lengths(s, f, "x[2 * n] "), TN_OK);
    assert_int_equal(f->params[1].ndims, 1);
    assert_int_equal(f->params[1].dims[0].factor, 2);
    tn_ffi_scope_unref(&s);
}

static void refused(tn_status st, tn_status want, const char *words) {
    assert_int_equal(st, want);
    assert_non_null(strstr(tn_error_last()->message, words));
}

static void compare(void *ctx, void *result, void **args) {
    const int *a, *b;
    memcpy(&a, args[0], sizeof a);
    memcpy(&b, args[1], sizeof b);
    const int order = (*a > *b) - (*a < *b);
    memcpy(result, &order, sizeof order);
    ++*(int *)ctx;
}

static void what_is_missing(void **state) {
    tn_ffi_scope *s = NULL;
    tn_ffi_closure *closure = NULL;
    const tn_ffi_op op = {.struct_size = sizeof op, .dtype = -1, .name = "ctest::f"};
    const char *name = NULL;
    void *code = NULL;
    int64_t value;
    (void)state;
    refused(tn_ffi_scope_new(NULL, NULL, NULL), TN_E_VALUE, "a new scope needs a place");
    refused(tn_ffi_scope_new("libnowhere.so.1", NULL, &s), TN_E_IO, "no library 'libnowhere.so.1'");
    assert_null(s);
    s = scope_with(NULL, "double f(double x); enum { A };");
    tn_ffi_function *f = tn_ffi_functions(s);
    refused(tn_ffi_declare(NULL, ""), TN_E_VALUE, "needs a scope and a text");
    refused(tn_ffi_declare(s, NULL), TN_E_VALUE, "needs a scope and a text");
    refused(tn_ffi_set_lengths(NULL, f, ""), TN_E_VALUE, "need a function and a text");
    refused(tn_ffi_set_lengths(s, NULL, ""), TN_E_VALUE, "need a function and a text");
    refused(tn_ffi_set_lengths(s, f, NULL), TN_E_VALUE, "need a function and a text");
    refused(tn_ffi_resolve(NULL, f), TN_E_VALUE, "the scope or the function is NULL");
    refused(tn_ffi_resolve(s, NULL), TN_E_VALUE, "the scope or the function is NULL");
    refused(tn_ffi_closure_new(NULL, compare, NULL, &closure, &code), TN_E_VALUE,
            "a closure needs a signature");
    refused(tn_ffi_closure_new(f, NULL, NULL, &closure, &code), TN_E_VALUE,
            "a closure needs a signature");
    refused(tn_ffi_closure_new(f, compare, NULL, NULL, &code), TN_E_VALUE,
            "a closure needs a signature");
    refused(tn_ffi_closure_new(f, compare, NULL, &closure, NULL), TN_E_VALUE,
            "a closure needs a signature");
    refused(tn_ffi_operator(f, &op, &name), TN_E_VALUE, "made of a resolved function");
    refused(tn_ffi_operator(NULL, &op, &name), TN_E_VALUE, "made of a resolved function");
    refused(tn_ffi_operator(f, NULL, &name), TN_E_VALUE, "made of a resolved function");
    refused(tn_ffi_operator(f, &op, NULL), TN_E_VALUE, "made of a resolved function");
    assert_false(tn_ffi_constant_at(s, 0, NULL, &value));
    assert_false(tn_ffi_constant_at(s, 0, &name, NULL));
    assert_false(tn_ffi_constant_at(NULL, 0, &name, &value));
    assert_null(tn_ffi_functions(NULL));
    assert_null(tn_ffi_records(NULL));
    assert_int_equal(tn_ffi_dtype(-1), -1);
    assert_int_equal(tn_ffi_dtype(TN_FFI_POINTER), -1);
    assert_int_equal(tn_ffi_dtype(TN_FFI_U16), TN_I16);
    tn_ffi_call(f, &value, NULL); /* it has no address: nothing is called */
    tn_ffi_call(NULL, &value, NULL);
    tn_ffi_closure_free(NULL);
    tn_ffi_scope_unref(NULL);
    tn_ffi_scope_unref(&s);
}

static void results_of_operators(void **state) {
    (void)state;
    if (tn_ffi_available() != TN_OK) skip();
    tn_ffi_scope *s = scope_with("libm.so.6", "double erf(double x);");
    tn_ffi_function *f = tn_ffi_functions(s);
    const char *name = NULL;
    char wide[200];
    memset(wide, 'n', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    tn_ffi_op op = {.struct_size = sizeof op, .dtype = TN_F16, .name = "ctest::g"};
    assert_int_equal(tn_ffi_resolve(s, f), TN_OK);
    const int32_t none[] = {TN_F16, TN_BF16, TN_C64};
    for (int i = 0; i < 3; i++) {
        op.dtype = none[i];
        refused(tn_ffi_operator(f, &op, &name), TN_E_DTYPE, "a result's dtype is bool, an integer");
    }
    op.dtype = -1;
    op.name = wide;
    refused(tn_ffi_operator(f, &op, &name), TN_E_VALUE, "name has at most 94 characters");
    op.name = NULL;
    refused(tn_ffi_operator(f, &op, &name), TN_E_VALUE, "name has at most 94 characters");
    tn_ffi_scope_unref(&s);
}

static void a_call(void **state) {
    (void)state;
    if (tn_ffi_available() != TN_OK) skip();
    tn_ffi_scope *s = scope_with("libm.so.6", "double pow(double x, double y); double none(int);");
    tn_ffi_function *missing = tn_ffi_functions(s), *f = missing->next;
    assert_int_equal(tn_ffi_resolve(s, missing), TN_E_INDEX);
    assert_int_equal(tn_ffi_resolve(s, f), TN_OK);
    double x = 2, y = 10, result = 0;
    void *args[] = {&x, &y};
    tn_ffi_call(f, &result, args);
    assert_true(result == 1024);
    tn_ffi_scope_unref(&s);
}

static void a_callback(void **state) {
    (void)state;
    if (tn_ffi_available() != TN_OK) skip();
    tn_ffi_scope *s = scope_with(
        NULL, "void qsort(int *v, size_t n, size_t size, int (*f)(const int *, const int *));");
    tn_ffi_function *f = tn_ffi_functions(s);
    tn_ffi_closure *closure = NULL;
    void *code = NULL;
    int calls = 0, v[] = {5, -3, 4, 0}, *at = v;
    size_t n = 4, size = sizeof *v;
    uint64_t unused;
    assert_int_equal(tn_ffi_resolve(s, f), TN_OK);
    assert_int_equal(
        tn_ffi_closure_new(f->params[3].type->signature, compare, &calls, &closure, &code), TN_OK);
    void *args[] = {&at, &n, &size, &code};
    tn_ffi_call(f, &unused, args);
    for (int i = 0; i < 3; i++) assert_true(v[i] < v[i + 1]);
    assert_true(calls >= 3);
    tn_ffi_closure_free(closure);
    tn_ffi_scope_unref(&s);
}

static void an_operator(void **state) {
    (void)state;
    if (tn_ffi_available() != TN_OK) skip();
    tn_ffi_scope *s = scope_with("libm.so.6", "double erf(double x);");
    tn_ffi_function *f = tn_ffi_functions(s);
    const tn_ffi_op op = {.struct_size = sizeof op, .dtype = -1, .name = "ctest::erf"};
    const char *name = NULL, *again = NULL;
    const double values[] = {-1, 0, 0.5};
    double got[3];
    const int64_t n = 3;
    assert_int_equal(tn_ffi_resolve(s, f), TN_OK);
    assert_int_equal(tn_ffi_operator(f, &op, &name), TN_OK);
    assert_string_equal(name, "ctest::erf@1");
    assert_int_equal(tn_ffi_operator(f, &op, &again), TN_OK);
    assert_ptr_equal(name, again);
    tn_op_meta meta;
    assert_int_equal(tn_op_meta_find(name, &meta), TN_OK);
    tn_tensor *x = NULL, *y = NULL;
    assert_int_equal(tn_tensor_from_data(TN_F64, 1, &n, values, &x), TN_OK);
    struct {
        const tn_plan *plan;
        tn_tensor *x, *out;
    } args = {NULL, x, NULL};
    tn_ffi_scope_unref(&s); /* the operator needs it no more */
    assert_int_equal(tn_op_invoke(meta.info, &args, &y), TN_OK);
    assert_int_equal(tn_tensor_read(y, got, sizeof got), TN_OK);
    for (int i = 0; i < 3; i++) assert_true(got[i] == erf(values[i]));
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    assert_int_equal(tn_ffi_unbind("ctest::erf"), TN_OK);
    assert_int_equal(tn_ffi_unbind("ctest::erf"), TN_E_VALUE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_data),  cmocka_unit_test(faults_leave_no_trace),
        cmocka_unit_test(a_call),          cmocka_unit_test(a_callback),
        cmocka_unit_test(an_operator),     cmocka_unit_test(lengths_that_are_none),
        cmocka_unit_test(what_is_missing), cmocka_unit_test(results_of_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
