/* test_graph.c: graphs through the public C API, on the CPU, which core records for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/device_ext.h>
#include <tenon/error.h>
#include <tenon/ops.h>

static const tn_device cpu = {0, 0};

static tn_tensor *row(float a, float b) {
    const float data[2] = {a, b};
    const int64_t n = 2;
    tn_tensor *t = NULL;
    assert_int_equal(tn_tensor_from_data(TN_F32, 1, &n, data, &t), TN_OK);
    return t;
}

static void assert_row(const tn_tensor *t, float a, float b) {
    float data[2];
    assert_int_equal(tn_tensor_read(t, data, sizeof data), TN_OK);
    assert_true(data[0] == a && data[1] == b);
}

/* y = x * x + 1, captured; the inputs of the call are gone when it is replayed. */
static void test_replay(void **state) {
    tn_tensor *x = row(1, 2), *same = NULL, *squares = NULL, *y = NULL, *other = row(3, 4);
    tn_graph *g = NULL;
    (void)state;
    assert_int_equal(tn_graph_new(&g), TN_OK);
    assert_int_equal(tn_graph_begin(g, cpu, NULL), TN_OK);
    assert_true(tn_graph_is_capturing());
    assert_int_equal(tn_mul(x, x, &squares), TN_OK);
    assert_int_equal(tn_add_scalar(squares, tn_scalar_int(1), tn_scalar_int(1), &y), TN_OK);
    assert_int_equal(tn_graph_end(g), TN_OK);
    assert_false(tn_graph_is_capturing());
    tn_tensor_unref(&squares);
    assert_int_equal(tn_copy_(x, other, 0, &same), TN_OK);
    assert_int_equal(tn_graph_replay(g), TN_OK);
    assert_row(y, 10, 17);
    tn_tensor_unref(&same);
    tn_tensor_unref(&x);
    assert_int_equal(tn_graph_replay(g), TN_OK);
    assert_row(y, 10, 17);
    tn_graph_unref(&g);
    assert_null(g);
    assert_row(y, 10, 17);
    tn_tensor_unref(&y);
    tn_tensor_unref(&other);
}

/* A capture that is given up, or that read a value, leaves everything as it was. */
static void test_failures(void **state) {
    tn_tensor *x = row(1, 2);
    tn_graph *g = NULL;
    float data[2];
    (void)state;
    assert_int_equal(tn_graph_new(&g), TN_OK);
    assert_int_equal(tn_graph_end(g), TN_E_STATE);
    assert_int_equal(tn_graph_begin(g, cpu, NULL), TN_OK);
    assert_int_equal(tn_neg_(x), TN_OK);
    assert_int_equal(tn_graph_cancel(g), TN_OK);
    assert_row(x, 1, 2);
    assert_int_equal(tn_graph_replay(g), TN_E_STATE);
    assert_int_equal(tn_graph_begin(g, cpu, NULL), TN_OK);
    assert_int_equal(tn_neg_(x), TN_OK);
    assert_int_equal(tn_tensor_read(x, data, sizeof data), TN_E_STATE);
    assert_int_equal(tn_graph_check_read(x), TN_E_STATE);
    assert_int_equal(tn_graph_replay(g), TN_E_STATE);
    assert_int_equal(tn_graph_end(g), TN_E_STATE);
    assert_non_null(strstr(tn_error_last()->message, "reading a value"));
    assert_row(x, 1, 2);
    assert_int_equal(tn_graph_begin(g, (tn_device){30, 0}, NULL), TN_E_DEVICE);
    assert_int_equal(tn_graph_reset(g), TN_OK);
    tn_graph_unref(&g);
    tn_tensor_unref(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
