/* test_dispatch.c: which kernel runs: priorities, declining, ties, withdrawal; what explain says;
 * layers; results given by the caller. The kernels are those of tests/plugins/rows.c. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>

static const tn_device cpu = {0, 0};

static tn_status load(const char *name) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/tenon_%s.so", getenv("TENON_TEST_PLUGINS"), name);
    assert_true(n > 0 && n < PATH_MAX);
    return tn_plugin_load(path);
}

static tn_tensor *full(int32_t dtype, int64_t n, double value) {
    tn_tensor *t = NULL;
    assert_int_equal(tn_full(TN_INTS(n), tn_scalar_float(value), dtype, -1, &t), TN_OK);
    return t;
}

/* Both operands are consumed; so is the result, of which the first element comes back. */
static double first_of(tn_status st, tn_tensor *a, tn_tensor *b, tn_tensor *y) {
    double value;
    tn_tensor *first = NULL;
    tn_scalar s;
    assert_int_equal(st, TN_OK);
    assert_int_equal(tn_select(y, 0, 0, &first), TN_OK);
    assert_int_equal(tn_tensor_item(first, &s), TN_OK);
    value = s.re;
    tn_tensor_unref(&first);
    tn_tensor_unref(&a);
    tn_tensor_unref(&b);
    tn_tensor_unref(&y);
    return value;
}

static double angle(int32_t dtype, int64_t n) {
    tn_tensor *a = full(dtype, n, 1.0), *b = full(dtype, n, 2.0), *y = NULL;
    tn_status st = tn_atan2(a, b, &y);
    return first_of(st, a, b, y);
}

static void assert_mentions(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' does not mention '%s'", text, part);
}

static void assert_explained(const char *op, int32_t dtype, const char *first, const char *then) {
    char *text = NULL;
    assert_int_equal(tn_explain(op, cpu, dtype, &text), TN_OK);
    assert_mentions(text, first);
    assert_mentions(strstr(text, first), then);
    tn_free(text);
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static void broken_plugins_change_nothing(void **state) {
    static const char *const cases[][2] = {{"rows_function", "lacks its operator or function"},
                                           {"rows_dtype", "there is no dtype 200"},
                                           {"rows_slot", "there is no device in slot 99"},
                                           {"rows_category", "category"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(cases[i][0]), TN_E_PLUGIN);
        assert_mentions(tn_error_last()->message, cases[i][1]);
    }
    assert_true(fabs(angle(TN_F32, 2) - atan2(1.0, 2.0)) < 1e-6);
    assert_true(tn_dtype_find("rows_category_quarter") < 0);
}

static void the_highest_priority_runs_and_may_decline(void **state) {
    (void)state;
    assert_int_equal(load("rows"), TN_OK);
    assert_true(angle(TN_F32, 2) == 42.0);
    assert_true(fabs(angle(TN_F32, 1) - atan2(1.0, 2.0)) < 1e-6);
    assert_explained("atan2", TN_F32,
                     "runs: kernel for this dtype, plugin 'rows' 1.2, priority 100",
                     "then: kernel for this dtype, plugin 'tenon-cpu'");
}

static void equal_priorities_go_by_name(void **state) {
    (void)state;
    assert_true(angle(TN_F64, 2) == 43.0); /* "rows" comes before "tenon-cpu" */
    assert_explained("atan2", TN_F64, "plugin 'rows'", "plugin 'tenon-cpu'");
}

static void rows_that_do_not_fit_are_left_out(void **state) {
    tn_plugin_status s;
    int32_t i = 0;
    (void)state;
    while (tn_plugin_at(i, &s) == TN_OK && strcmp(s.name, "rows") != 0) i++;
    assert_string_equal(s.name, "rows");
    assert_int_equal(s.kernels, 4);
}

static void a_failure_is_no_reason_to_go_on(void **state) {
    tn_tensor *a = full(TN_F32, 2, 1.0), *b = full(TN_F32, 2, -2.0), *y = NULL;
    (void)state;
    assert_int_equal(tn_maximum(a, b, &y), TN_E_VALUE);
    assert_null(y);
    assert_mentions(tn_error_last()->message, "the kernel says no 7");
    assert_string_equal(tn_error_last()->op, "maximum");
    tn_tensor_unref(&a);
    tn_tensor_unref(&b);
}

static void dtypes_of_plugins_are_listed_once(void **state) {
    int32_t d = tn_dtype_find("rows_quarter");
    (void)state;
    assert_true(d >= TN_DTYPE_BUILTIN_COUNT);
    assert_int_equal(tn_dtype_size(d), 1);
    assert_int_equal(tn_dtype_category(d), TN_CAT_FLOAT);
    tn_tensor *t = full(d, 3, 1.75);
    tn_scalar s;
    assert_int_equal(tn_tensor_item(t, &s), TN_E_STATE); /* three elements */
    assert_true(first_of(TN_OK, NULL, NULL, t) == 1.75);
}

static void withdrawn_kernels_run_no_more(void **state) {
    (void)state;
    assert_int_equal(tn_plugin_retire("rows"), TN_OK);
    assert_true(fabs(angle(TN_F32, 2) - atan2(1.0, 2.0)) < 1e-6);
    assert_true(fabs(angle(TN_F64, 2) - atan2(1.0, 2.0)) < 1e-12);
    char *text = NULL;
    assert_int_equal(tn_explain("atan2", cpu, TN_F32, &text), TN_OK);
    assert_null(strstr(text, "'rows'"));
    tn_free(text);
}

static void explain_knows_the_kinds(void **state) {
    char *text = NULL;
    const tn_device nowhere = {30, 0}, outside = {-1, 0};
    (void)state;
    assert_explained("transpose", TN_F32, "entry:", "a view: no kernel");
    assert_explained("einsum", TN_F32, "entry:", "composite of other operators");
    assert_explained("bitwise_and", TN_F32, "entry:", "cannot run");
    assert_int_equal(tn_explain("no_such", cpu, TN_F32, &text), TN_E_VALUE);
    assert_int_equal(tn_explain("add", nowhere, TN_F32, &text), TN_E_DEVICE);
    assert_int_equal(tn_explain("add", outside, TN_F32, &text), TN_E_DEVICE);
    assert_int_equal(tn_explain("add", cpu, 77, &text), TN_E_DTYPE);
    assert_null(text);
}

/* ---- Layers ------------------------------------------------------------------------------------*/

static char order[32];

static tn_status note(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                      tn_tensor **rets) {
    const char *name = ctx;
    tn_tensor *own = NULL;
    size_t n = strlen(order);
    if (n + 1 < sizeof order) order[n] = name[0];
    tn_status st = tn_ones(TN_INTS(2), -1, -1, &own); /* seen by no layer */
    tn_tensor_unref(&own);
    if (st == TN_OK) st = tn_layer_next(next, op, args, rets);
    if (n + 2 < sizeof order) order[strlen(order)] = (char)(name[0] - 'a' + 'A');
    return st;
}

static tn_status refuse(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                        tn_tensor **rets) {
    (void)ctx, (void)next, (void)args, (void)rets;
    return tn_fail(TN_E_UNSUPPORTED, -1, "no %s here", op->name);
}

static void layers_run_by_priority(void **state) {
    const tn_layer low = {.name = "low", .priority = 1, .call = note, .ctx = "l"};
    const tn_layer high = {.name = "high", .priority = 5, .call = note, .ctx = "h"};
    const tn_layer wall = {.name = "wall", .priority = 3, .call = refuse};
    int32_t l, h, w;
    (void)state;
    assert_int_equal(tn_layer_register(&low, &l), TN_OK);
    assert_int_equal(tn_layer_register(&high, &h), TN_OK);
    assert_int_equal(tn_layer_register(&wall, &w), TN_OK);
    tn_tensor *a = full(TN_F32, 2, 3.0), *y = NULL;
    assert_int_equal(tn_layer_enable(l, 1), 0);
    assert_int_equal(tn_layer_enable(h, 1), 0);
    assert_int_equal(tn_exp(a, &y), TN_OK);
    assert_string_equal(order, "hlLH");
    tn_tensor_unref(&y);
    assert_int_equal(tn_layer_enable(h, 0), 1);
    memset(order, 0, sizeof order);
    assert_int_equal(tn_layer_enable(w, 1), 0); /* above the one that is left */
    assert_int_equal(tn_exp(a, &y), TN_E_UNSUPPORTED);
    assert_null(y);
    assert_string_equal(order, "");
    assert_mentions(tn_error_last()->message, "no exp here");
    assert_int_equal(tn_layer_enable(w, 0), 1);
    assert_int_equal(tn_layer_enable(l, 0), 1);
    assert_int_equal(tn_exp(a, &y), TN_OK);
    assert_string_equal(order, "");
    tn_tensor_unref(&y);
    tn_tensor_unref(&a);
}

static void layers_are_checked_and_counted(void **state) {
    const tn_layer nameless = {.call = note}, empty = {.name = "empty"};
    const tn_layer good = {.name = "good", .call = note, .ctx = "g"};
    char longest[49] = "";
    const tn_layer blank = {.name = "", .call = note}, full_name = {.name = longest, .call = note};
    int32_t id = -7;
    tn_status st = TN_OK;
    (void)state;
    memset(longest, 'n', 48);
    const tn_layer *const wrong[] = {NULL, &nameless, &empty, &blank, &full_name};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tn_layer_register(wrong[i], &id), TN_E_VALUE);
        assert_non_null(strstr(tn_error_last()->message,
                               "a layer needs a function and a name of 1 to 47 characters"));
    }
    assert_int_equal(id, -7);
    longest[47] = '\0';
    assert_int_equal(tn_layer_register(&full_name, &id), TN_OK);
    assert_true(id >= 0);
    assert_int_equal(tn_layer_enable(-1, 1), 0);
    assert_int_equal(tn_layer_enable(999, 1), 0);
    for (int i = 0; i < 100 && st == TN_OK; i++) st = tn_layer_register(&good, &id);
    assert_int_equal(st, TN_E_STATE);
}

/* ---- Results that the caller gives -------------------------------------------------------------*/

static int warned;

static void count_warnings(int32_t level, const char *text) {
    if (level == 2 && strstr(text, "was resized")) warned++;
}

static void given_results_are_checked(void **state) {
    const tn_host_hooks hooks = {.struct_size = sizeof hooks, .log = count_warnings};
    const tn_host_hooks none = {.struct_size = sizeof none};
    tn_tensor *a = full(TN_F32, 6, 2.0), *ints = full(TN_I64, 6, 0.0), *wide = NULL, *part = NULL;
    tn_tensor *one = full(TN_F32, 1, 0.0), *small = full(TN_F32, 2, 0.0);
    (void)state;
    assert_int_equal(tn_exp_out(ints, a), TN_E_DTYPE); /* floats do not go into integers */
    assert_int_equal(tn_expand(one, TN_INTS(6), 0, &wide), TN_OK);
    assert_int_not_equal(tn_exp_out(wide, a), TN_OK); /* elements share their memory */
    assert_int_not_equal(tn_add_(wide, a, tn_scalar_int(1)), TN_OK);
    assert_int_equal(tn_narrow(a, 0, 1, 5, &part), TN_OK);
    tn_tensor *shifted = NULL;
    assert_int_equal(tn_narrow(a, 0, 0, 5, &shifted), TN_OK);
    assert_int_not_equal(tn_exp_out(shifted, part), TN_OK); /* would read what it has written */
    tn_host_set_hooks(&hooks);
    assert_int_equal(tn_exp_out(small, a), TN_OK);
    tn_host_set_hooks(&none);
    assert_int_equal(warned, 1);
    assert_int_equal(tn_tensor_shape(small)[0], 6);
    assert_int_equal(tn_set_requires_grad(a, 1), TN_OK);
    assert_int_equal(tn_exp_out(small, a), TN_E_STATE); /* recorded calls have no out= */
    tn_tensor_unref(&shifted);
    tn_tensor_unref(&part);
    tn_tensor_unref(&wide);
    tn_tensor_unref(&small);
    tn_tensor_unref(&one);
    tn_tensor_unref(&ints);
    tn_tensor_unref(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_plugins_change_nothing),
        cmocka_unit_test(the_highest_priority_runs_and_may_decline),
        cmocka_unit_test(equal_priorities_go_by_name),
        cmocka_unit_test(rows_that_do_not_fit_are_left_out),
        cmocka_unit_test(a_failure_is_no_reason_to_go_on),
        cmocka_unit_test(dtypes_of_plugins_are_listed_once),
        cmocka_unit_test(withdrawn_kernels_run_no_more),
        cmocka_unit_test(explain_knows_the_kinds),
        cmocka_unit_test(layers_run_by_priority),
        cmocka_unit_test(layers_are_checked_and_counted),
        cmocka_unit_test(given_results_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
