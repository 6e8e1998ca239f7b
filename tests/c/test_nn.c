/* test_nn.c: a C program that makes, initialises and trains a layer with the public headers alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include <tenon/tenon.h>

static const tn_device cpu = {0, 0};

static tn_tensor *empty(int64_t rows, int64_t cols) {
    tn_tensor *t = NULL;
    assert_int_equal(tn_empty(TN_INTS(rows, cols), TN_F32, -1, TN_FORMAT_CONTIGUOUS, &t), TN_OK);
    return t;
}

static double item(tn_tensor *t) {
    tn_scalar value = {0};
    assert_int_equal(tn_tensor_item(t, &value), TN_OK);
    return value.re;
}

/* The root of the mean square of all elements. */
static double spread(tn_tensor *t) {
    tn_tensor *square = NULL, *mean = NULL;
    assert_int_equal(tn_mul(t, t, &square), TN_OK);
    assert_int_equal(tn_mean(square, tn_ints_none(), 0, -1, &mean), TN_OK);
    double result = sqrt(item(mean));
    tn_tensor_unref(&square);
    tn_tensor_unref(&mean);
    return result;
}

static void test_spread(void **state) {
    tn_tensor *t = empty(200, 50);
    double gain = 0.0;
    int64_t in = 0, out = 0;
    (void)state;
    assert_int_equal(tn_init_fans(t, &in, &out), TN_OK);
    assert_int_equal(in, 50);
    assert_int_equal(out, 200);
    assert_int_equal(tn_init_gain("relu", 0.0, &gain), TN_OK);
    assert_int_equal(tn_init_kaiming_normal(t, gain, TN_FAN_IN, NULL), TN_OK);
    assert_float_equal((float)spread(t), (float)(sqrt(2.0 / 50)), 0.01F);
    assert_int_equal(tn_init_kaiming_uniform(t, gain, TN_FAN_OUT, NULL), TN_OK);
    assert_float_equal((float)spread(t), (float)(sqrt(2.0 / 200)), 0.01F);
    assert_int_equal(tn_init_xavier_uniform(t, 1.0, NULL), TN_OK);
    assert_float_equal((float)spread(t), (float)(sqrt(2.0 / 250)), 0.01F);
    assert_int_equal(tn_init_orthogonal(t, 2.0, NULL), TN_OK);
    assert_float_equal((float)spread(t), (float)(2.0 / sqrt(200)), 1e-4F);
    assert_int_equal(tn_init_constant(t, -3.0), TN_OK);
    assert_float_equal((float)spread(t), (float)(3.0), 1e-6F);
    assert_int_equal(tn_init_gain("cosine", 0.0, &gain), TN_E_VALUE);
    tn_tensor_unref(&t);
}

static void test_seeds(void **state) {
    tn_tensor *a = empty(5, 4), *b = empty(5, 4);
    tn_generator *gen = NULL;
    int64_t same = 0;
    (void)state;
    assert_int_equal(tn_generator_new(cpu, &gen), TN_OK);
    for (int i = 0; i < 2; i++) {
        tn_generator_seed(gen, 7);
        tn_tensor *t = i ? b : a;
        assert_int_equal(tn_init_trunc_normal(t, 0.0, 1.0, -0.5, 0.5, gen), TN_OK);
    }
    tn_tensor *equal = NULL, *all = NULL;
    assert_int_equal(tn_eq(a, b, &equal), TN_OK);
    assert_int_equal(tn_all(equal, tn_ints_none(), 0, &all), TN_OK);
    same = (int64_t)item(all);
    assert_int_equal(same, 1);
    tn_tensor_unref(&equal);
    tn_tensor_unref(&all);
    tn_tensor_unref(&a);
    tn_tensor_unref(&b);
    tn_generator_unref(&gen);
}

/* Values are set although the tensor is a leaf that requires a gradient, and nothing is recorded. */
static void test_leaves(void **state) {
    tn_tensor *w = empty(3, 3);
    (void)state;
    assert_int_equal(tn_set_requires_grad(w, 1), TN_OK);
    assert_int_equal(tn_init_eye(w), TN_OK);
    assert_int_equal(tn_init_sparse(w, 1.0, 1.0, NULL), TN_OK);
    assert_float_equal((float)spread(w), 0.0F, 0.0F);
    assert_int_equal(tn_init_dirac(w, 1), TN_E_VALUE);
    for (int on = 0; on < 2; on++) {
        tn_grad_set_enabled(on);
        assert_int_equal(tn_init_constant(w, 2.0), TN_OK);
        assert_int_equal(tn_init_uniform(w, 0.0, 1.0, NULL), TN_OK);
        assert_int_equal(tn_init_normal(w, 0.0, 1.0, NULL), TN_OK);
        assert_int_equal(tn_init_xavier_uniform(w, 1.0, NULL), TN_OK);
        assert_int_equal(tn_init_xavier_normal(w, 1.0, NULL), TN_OK);
        assert_int_equal(tn_init_kaiming_uniform(w, 1.0, TN_FAN_IN, NULL), TN_OK);
        assert_int_equal(tn_init_kaiming_normal(w, 1.0, TN_FAN_IN, NULL), TN_OK);
        assert_int_equal(tn_init_trunc_normal(w, 0.0, 1.0, -2.0, 2.0, NULL), TN_OK);
        assert_int_equal(tn_init_trunc_normal(w, 0.0, 1.0, 3.0, 4.0, NULL), TN_OK);
        assert_int_equal(tn_init_orthogonal(w, 1.0, NULL), TN_OK);
        assert_int_equal(tn_init_eye(w), TN_OK);
        assert_int_equal(tn_init_sparse(w, 0.5, 1.0, NULL), TN_OK);
        assert_int_equal(tn_grad_enabled(), on);
    }
    assert_int_equal(tn_requires_grad(w), 1);
    assert_int_equal(tn_init_orthogonal(NULL, 1.0, NULL), TN_E_TYPE);
    assert_int_equal(tn_init_kaiming_normal(NULL, 1.0, TN_FAN_IN, NULL), TN_E_TYPE);
    assert_int_equal(tn_init_constant(NULL, 1.0), TN_E_TYPE);
    assert_int_equal(tn_grad_enabled(), 1);
    tn_tensor_unref(&w);
}

/* Two tensors whose norm is 5 together. */
static void test_clip_norm(void **state) {
    tn_tensor *both[] = {empty(1, 1), empty(1, 4)};
    double norm = 0.0;
    (void)state;
    assert_int_equal(tn_init_constant(both[0], 3.0), TN_OK);
    assert_int_equal(tn_init_constant(both[1], 2.0), TN_OK);
    assert_int_equal(tn_clip_norm((tn_tensors){both, 2}, 10.0, &norm), TN_OK);
    assert_float_equal((float)norm, 5.0F, 1e-6F);
    assert_float_equal((float)spread(both[1]), 2.0F, 0.0F);
    assert_int_equal(tn_clip_norm((tn_tensors){both, 2}, 1.0, &norm), TN_OK);
    assert_float_equal((float)norm, 5.0F, 1e-6F);
    assert_float_equal((float)spread(both[0]), 0.6F, 1e-6F);
    assert_float_equal((float)spread(both[1]), 0.4F, 1e-6F);
    tn_tensor_unref(&both[0]);
    tn_tensor_unref(&both[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_clip_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
