/* test_bad_calls.c: operators called through the C API with arguments that contradict each other,
 * the internal ones included, which no script reaches: they fail with a message and touch nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/error.h>
#include <tenon/op_args.h>
#include <tenon/ops.h>
#include <tenon/ops_meta.h>
#include <tenon/tensor.h>

static void ok(tn_status st, const char *call, int line) {
    if (st != TN_OK) fail_msg("line %d: %s: %s", line, call, tn_error_last()->message);
}
#define OK(call) ok(call, #call, __LINE__)

static void fails(tn_status st, tn_status want, const tn_tensor *ret, const char *call, int line) {
    if (st != want) fail_msg("line %d: %s: status %d", line, call, (int)st);
    assert_null(ret);
    assert_true(strlen(tn_error_last()->message) > 0);
}
#define FAILS(want, ret, call) fails(call, want, ret, #call, __LINE__)

#define SIZES(...) (int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)
#define ONES(dtype, ...) filled(dtype, 1, SIZES(__VA_ARGS__))

static tn_tensor *filled(int32_t dtype, int64_t value, const int64_t *shape, size_t ndim) {
    tn_tensor *t = NULL;
    OK(tn_full(tn_ints_of(shape, (int64_t)ndim), tn_scalar_int(value), dtype, -1, &t));
    return t;
}

static void test_batch_norm_backward(void **state) {
    tn_tensor *x = ONES(TN_F32, 2, 3, 4), *c = ONES(TN_F32, 3), *short_c = ONES(TN_F32, 2);
    tn_tensor *wide = ONES(TN_F64, 3), *short_x = ONES(TN_F32, 2, 3, 1), *row = ONES(TN_F32, 3);
    tn_tensor *gx = NULL, *gw = NULL, *gb = NULL;
    (void)state;
    FAILS(TN_E_SHAPE, gx, tn__batch_norm_backward(x, row, c, c, c, 1, 1, 1, 1, &gx, &gw, &gb));
    FAILS(TN_E_SHAPE, gx, tn__batch_norm_backward(short_x, x, c, c, c, 1, 1, 1, 1, &gx, &gw, &gb));
    FAILS(TN_E_SHAPE, gx, tn__batch_norm_backward(x, x, short_c, c, c, 1, 1, 1, 1, &gx, &gw, &gb));
    FAILS(TN_E_SHAPE, gx, tn__batch_norm_backward(x, x, c, short_c, c, 1, 1, 1, 1, &gx, &gw, &gb));
    FAILS(TN_E_SHAPE, gx, tn__batch_norm_backward(x, x, c, c, short_c, 1, 1, 1, 1, &gx, &gw, &gb));
    FAILS(TN_E_DTYPE, gx, tn__batch_norm_backward(x, x, c, wide, c, 1, 1, 1, 1, &gx, &gw, &gb));
    OK(tn__batch_norm_backward(x, x, c, c, c, 1, 1, 1, 1, &gx, &gw, &gb));
    tn_tensor **all[] = {&x, &c, &short_c, &wide, &short_x, &row, &gx, &gw, &gb};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) tn_tensor_unref(all[i]);
}

static void test_max_pool_places(void **state) {
    tn_tensor *x = ONES(TN_F32, 1, 2, 4, 4), *g = ONES(TN_F32, 1, 2, 2, 2), *y = NULL;
    tn_tensor *at = ONES(TN_I64, 1, 2, 2, 2), *flat = ONES(TN_I64, 8), *row = ONES(TN_F32, 4);
    tn_tensor *planes = ONES(TN_I64, 1, 3, 2, 2), *narrow = ONES(TN_I32, 1, 2, 2, 2);
    tn_tensor *far = filled(TN_I64, 16, SIZES(1, 2, 2, 2));
    tn_tensor *below = filled(TN_I64, -1, SIZES(1, 2, 2, 2));
    tn_ints size = tn_ints_of(tn_tensor_shape(x), 4);
    (void)state;
    FAILS(TN_E_SHAPE, y, tn__max_pool2d_gather(x, flat, &y));
    FAILS(TN_E_SHAPE, y, tn__max_pool2d_gather(x, planes, &y));
    FAILS(TN_E_SHAPE, y, tn__max_pool2d_gather(row, at, &y));
    FAILS(TN_E_DTYPE, y, tn__max_pool2d_gather(x, narrow, &y));
    FAILS(TN_E_INDEX, y, tn__max_pool2d_gather(x, far, &y));
    FAILS(TN_E_INDEX, y, tn__max_pool2d_gather(x, below, &y));
    FAILS(TN_E_INDEX, y, tn__max_pool2d_backward(g, far, size, &y));
    FAILS(TN_E_INDEX, y, tn__max_pool2d_backward(g, below, size, &y));
    OK(tn__max_pool2d_gather(x, at, &y));
    tn_tensor **all[] = {&x, &g, &y, &at, &flat, &row, &planes, &narrow, &far, &below};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) tn_tensor_unref(all[i]);
}

static void test_adaptive_pool_sizes(void **state) {
    tn_tensor *lines = ONES(TN_F32, 1, 2, 6), *planes = ONES(TN_F32, 1, 2, 6, 6), *y = NULL;
    int64_t one = 2;
    (void)state;
    FAILS(TN_E_SHAPE, y, tn_adaptive_avg_pool1d(lines, tn_ints_none(), &y));
    FAILS(TN_E_SHAPE, y, tn_adaptive_avg_pool2d(planes, tn_ints_none(), &y));
    FAILS(TN_E_SHAPE, y, tn_adaptive_avg_pool2d(planes, tn_ints_of(&one, 1), &y));
    tn_tensor_unref(&lines);
    tn_tensor_unref(&planes);
}

/* Arguments as a struct: a text, a list's array and an entry of a list may be missing. */
static void test_invoke_without_pointers(void **state) {
    tn_tensor *x = ONES(TN_F32, 2, 3), *ret = NULL;
    tn_op_meta gelu, sum, cat;
    (void)state;
    OK(tn_op_meta_find("gelu", &gelu));
    OK(tn_op_meta_find("sum", &sum));
    OK(tn_op_meta_find("cat", &cat));
    tn_gelu_args g = {.input = (const tn_view *)x};
    FAILS(TN_E_TYPE, ret, tn_op_invoke(gelu.info, &g, &ret));
    tn_sum_args s = {.input = (const tn_view *)x, .dim = {NULL, 2}, .dtype = -1};
    FAILS(TN_E_TYPE, ret, tn_op_invoke(sum.info, &s, &ret));
    tn_view *holes[2] = {(tn_view *)x, NULL};
    tn_cat_args c = {.tensors = {holes, 2}};
    FAILS(TN_E_TYPE, ret, tn_op_invoke(cat.info, &c, &ret));
    c.tensors.v = NULL;
    FAILS(TN_E_TYPE, ret, tn_op_invoke(cat.info, &c, &ret));
    FAILS(TN_E_TYPE, ret, tn_op_invoke(NULL, &c, &ret));
    FAILS(TN_E_TYPE, ret, tn_op_invoke(cat.info, NULL, &ret));
    tn_tensor_unref(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_norm_backward),
        cmocka_unit_test(test_max_pool_places),
        cmocka_unit_test(test_adaptive_pool_sizes),
        cmocka_unit_test(test_invoke_without_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
