/* test_tape.c: recording and backward through the C API: values, ownership, long chains on a small
 * stack, versions, second derivatives, changes in place and through views, hooks, host functions. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/runtime.h>

static void ok(tn_status st, const char *call, int line) {
    if (st != TN_OK) fail_msg("line %d: %s: %s", line, call, tn_error_last()->message);
}
#define OK(call) ok(call, #call, __LINE__)

/* ---- Helpers -----------------------------------------------------------------------------------*/

static tn_tensor *of(int64_t n, const float *data) {
    tn_tensor *t = NULL;
    OK(tn_tensor_from_data(TN_F32, 1, &n, data, &t));
    return t;
}

static tn_tensor *leaf(int64_t n, const float *data) {
    tn_tensor *t = of(n, data);
    OK(tn_set_requires_grad(t, 1));
    return t;
}

static tn_tensor *number(tn_scalar_box *box, double v) {
    return tn_scalar_box_init(box, tn_scalar_float(v));
}

static tn_tensor *mul(tn_tensor *a, tn_tensor *b) {
    tn_tensor *r = NULL;
    OK(tn_mul(a, b, &r));
    return r;
}

static tn_tensor *add(tn_tensor *a, tn_tensor *b) {
    tn_tensor *r = NULL;
    OK(tn_add(a, b, tn_scalar_int(1), &r));
    return r;
}

static tn_tensor *total(tn_tensor *a) {
    tn_tensor *r = NULL;
    OK(tn_sum(a, tn_ints_none(), 0, -1, &r));
    return r;
}

static void backward(tn_tensor *root) { OK(tn_backward(&root, NULL, 1, NULL, 0, 0, 0)); }

static void expect(const tn_tensor *t, int64_t n, const float *want) {
    float have[16];
    assert_non_null(t);
    assert_int_equal(tn_tensor_numel(t), n);
    OK(tn_tensor_read(t, have, sizeof *have * (uint64_t)n));
    for (int64_t i = 0; i < n; i++)
        if (fabsf(have[i] - want[i]) > 1e-5f * (1.0f + fabsf(want[i])))
            fail_msg("element %d: %g instead of %g", (int)i, (double)have[i], (double)want[i]);
}
#define EXPECT(t, ...)                                                                             \
    expect(t, (int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

static void expect_failure(tn_status st, tn_status code, const char *words) {
    assert_int_equal(st, code);
    if (!strstr(tn_error_last()->message, words))
        fail_msg("'%s' does not say '%s'", tn_error_last()->message, words);
}

static void drop(tn_tensor *a, tn_tensor *b, tn_tensor *c, tn_tensor *d) {
    tn_tensor_unref(&a);
    tn_tensor_unref(&b);
    tn_tensor_unref(&c);
    tn_tensor_unref(&d);
}

/* ---- Values ------------------------------------------------------------------------------------*/

static void test_product(void **state) {
    (void)state;
    tn_tensor *a = leaf(3, (float[]){1, 2, 3}), *b = leaf(3, (float[]){4, 5, 6});
    tn_tensor *y = mul(a, b), *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 4, 5, 6);
    EXPECT(tn_grad_get(b), 1, 2, 3);
    drop(y, s, NULL, NULL);
    y = mul(a, a); /* both edges lead to one leaf; gradients add up over passes */
    s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 6, 9, 12);
    drop(a, b, y, s);
}

static void test_unbroadcast(void **state) {
    int64_t column[] = {2, 1};
    tn_tensor *a = NULL;
    (void)state;
    OK(tn_tensor_from_data(TN_F32, 2, column, (float[]){1, 2}, &a));
    OK(tn_set_requires_grad(a, 1));
    tn_tensor *b = leaf(3, (float[]){1, 2, 3}), *y = mul(a, b), *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 6, 6);
    EXPECT(tn_grad_get(b), 3, 3, 3);
    assert_int_equal(tn_tensor_ndim(tn_grad_get(a)), 2);
    drop(a, b, y, s);
}

static void test_numbers_and_dtypes(void **state) {
    tn_scalar_box box;
    tn_tensor *wide = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2});
    tn_tensor *y = mul(a, number(&box, 2.5)), *s = total(y);
    memset(&box, 0, sizeof box); /* the number must have been copied */
    backward(s);
    EXPECT(tn_grad_get(a), 2.5, 2.5);
    drop(y, s, NULL, NULL);
    OK(tn_grad_set(a, NULL));
    OK(tn__to_copy(a, TN_F64, -1, 0, TN_FORMAT_PRESERVE, &wide));
    y = mul(wide, wide);
    s = total(y);
    backward(s);
    assert_int_equal(tn_tensor_dtype(tn_grad_get(a)), TN_F32);
    EXPECT(tn_grad_get(a), 2, 4);
    drop(a, wide, y, s);
}

static void test_saves_only_what_is_read(void **state) {
    tn_node *n = NULL;
    tn_tensor *kept = NULL;
    int64_t nr;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = of(2, (float[]){3, 4}), *y = mul(a, b);
    OK(tn_grad_fn(y, &n, &nr));
    OK(tn_node_saved(n, "other", &kept));
    assert_ptr_equal(kept, b);
    tn_tensor_unref(&kept);
    OK(tn_node_saved(n, "input", &kept)); /* only the gradient of `other` would read it */
    assert_null(kept);
    char name[32];
    assert_string_equal(tn_node_name(n, name, sizeof name), "MulBackward0");
    assert_string_equal(tn_node_name(n, name, 1), ""); /* no room for more */
    assert_ptr_equal(tn_node_edge(n, 0).leaf, a);
    assert_null(tn_node_edge(n, 1).leaf);
    drop(a, b, y, NULL);
}

static void test_grad(void **state) {
    tn_tensor *grads[2] = {NULL, NULL};
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = leaf(2, (float[]){3, 4});
    tn_tensor *y = mul(a, a), *z = mul(y, y), *s = total(z), *inputs[2] = {a, y};
    OK(tn_grad(&s, NULL, 1, inputs, 2, 1, 0, 0, grads));
    EXPECT(grads[0], 4, 32);
    EXPECT(grads[1], 2, 8);
    assert_null(tn_grad_get(a));
    drop(grads[0], grads[1], NULL, NULL);
    inputs[1] = b;
    grads[0] = grads[1] = NULL;
    expect_failure(tn_grad(&s, NULL, 1, inputs, 2, 1, 0, 0, grads), TN_E_STATE,
                   "The differentiated Tensor at index 1 appears to not have been used");
    assert_null(grads[0]);
    OK(tn_grad(&s, NULL, 1, inputs, 2, 0, 0, 1, grads));
    assert_null(grads[1]);
    tn_tensor_unref(&grads[0]);
    drop(a, b, y, z);
    tn_tensor_unref(&s);
}

static void test_inputs_restrict(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = leaf(2, (float[]){3, 4});
    tn_tensor *y = mul(a, b), *s = total(y);
    OK(tn_backward(&s, NULL, 1, &b, 1, 0, 0));
    assert_null(tn_grad_get(a));
    EXPECT(tn_grad_get(b), 1, 2);
    drop(a, b, y, s);
}

static void test_second_derivative(void **state) {
    tn_tensor *first = NULL, *second = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){2, 3}), *y = NULL, *s, *s2;
    OK(tn_exp(a, &y)); /* reads its own result */
    tn_tensor *z = mul(y, a);
    s = total(z);
    OK(tn_grad(&s, NULL, 1, &a, 1, 1, 1, 0, &first));
    assert_true(tn_requires_grad(first));
    s2 = total(first);
    OK(tn_grad(&s2, NULL, 1, &a, 1, 0, 0, 0, &second));
    EXPECT(first, 3 * expf(2), 4 * expf(3));
    EXPECT(second, 4 * expf(2), 5 * expf(3));
    drop(a, y, s, s2);
    drop(z, first, second, NULL);
}

static void test_lists(void **state) {
    tn_tensor_list parts = {NULL, 0};
    (void)state;
    tn_tensor *a = leaf(4, (float[]){1, 2, 3, 4});
    OK(tn_split_with_sizes(a, TN_INTS(1, 3), 0, &parts));
    tn_tensor *y = mul(parts.v[1], parts.v[1]), *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 0, 4, 6, 8);
    drop(y, s, NULL, NULL);
    OK(tn_grad_set(a, NULL));
    OK(tn_cat((tn_tensors){parts.v, 2}, 0, &y));
    expect_failure(tn_mul_(parts.v[0], y), TN_E_STATE, "is a view and is being modified inplace");
    drop(y, a, NULL, NULL);
    tn_tensor_list_free(&parts);
}

/* ---- Mistakes ----------------------------------------------------------------------------------*/

static void test_messages(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = of(2, (float[]){3, 4}), *y = mul(a, a);
    expect_failure(tn_backward(&b, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "element 0 of tensors does not require grad and does not have a grad_fn");
    expect_failure(tn_backward(&y, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "grad can be implicitly created only for scalar outputs");
    expect_failure(tn_add_(a, b, tn_scalar_int(1)), TN_E_STATE,
                   "a leaf Variable that requires grad is being used in an in-place operation.");
    tn_tensor *s = total(y);
    backward(s);
    expect_failure(tn_backward(&s, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "Trying to backward through the graph a second time");
    tn_tensor *ints = NULL;
    OK(tn_tensor_from_data(TN_I64, 0, NULL, &(int64_t){1}, &ints));
    expect_failure(tn_set_requires_grad(ints, 1), TN_E_STATE,
                   "only Tensors of floating point and complex dtype");
    expect_failure(tn_set_requires_grad(y, 0), TN_E_STATE,
                   "you can only change requires_grad flags");
    drop(a, b, y, s);
    tn_tensor_unref(&ints);
}

static void test_version(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = of(2, (float[]){3, 4});
    tn_tensor *y = mul(a, b), *s = total(y), *c = mul(a, a);
    OK(tn_add_(b, b, tn_scalar_int(1)));
    expect_failure(tn_backward(&s, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "[torch.FloatTensor [2]] is at version 1; expected version 0 instead");
    tn_tensor *e = NULL, *s2;
    OK(tn_exp(c, &e));
    OK(tn_add_(e, b, tn_scalar_int(1)));
    s2 = total(e);
    expect_failure(tn_backward(&s2, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "which is output 0 of Exp, is at version 1; expected version 0");
    drop(a, b, y, s);
    drop(c, e, s2, NULL);
}

/* ---- In place ----------------------------------------------------------------------------------*/

static void test_inplace(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = leaf(2, (float[]){3, 4});
    tn_tensor *y = add(a, a);
    OK(tn_mul_(y, b)); /* the gradient of b reads y as it was */
    tn_tensor *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 6, 8);
    EXPECT(tn_grad_get(b), 2, 4);
    drop(a, b, y, s);
}

/* A comparison in place is flat wherever it has a derivative. */
static void test_inplace_comparison(void **state) {
    tn_scalar_box box;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *y = mul(a, a);
    OK(tn_gt_(y, number(&box, 1.5)));
    EXPECT(y, 0, 1);
    tn_tensor *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(a), 0, 0);
    drop(a, y, s, NULL);
}

static void test_missing_derivative(void **state) {
    tn_scalar_box box;
    char name[64];
    tn_node *node;
    int64_t nr;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *y = NULL;
    OK(tn_floor_divide(a, number(&box, 2), &y));
    OK(tn_grad_fn(y, &node, &nr));
    assert_string_equal(tn_node_name(node, name, sizeof name), "NotImplemented");
    tn_tensor *s = total(y);
    expect_failure(tn_backward(&s, NULL, 1, NULL, 0, 0, 0), TN_E_STATE,
                   "derivative for floor_divide is not implemented");
    drop(a, y, s, NULL);
}

static void test_inplace_on_view(void **state) {
    tn_tensor *v = NULL, *w = NULL;
    (void)state;
    tn_tensor *a = leaf(4, (float[]){1, 2, 3, 4}), *b = leaf(2, (float[]){10, 20});
    tn_tensor *x = add(a, a);
    OK(tn_narrow(x, 0, 1, 2, &v));
    OK(tn_narrow(x, 0, 2, 2, &w)); /* shares one element with v */
    assert_ptr_equal(tn_view_base(v), x);
    OK(tn_mul_(v, b));
    EXPECT(x, 2, 40, 120, 8);
    tn_tensor *y = mul(w, w), *s = total(y);
    backward(s); /* (2 a2 b1)^2 + (2 a3)^2 */
    EXPECT(tn_grad_get(a), 0, 0, 2 * 120 * 40, 2 * 8 * 2);
    EXPECT(tn_grad_get(b), 0, 2 * 120 * 6);
    char name[32];
    tn_node *n;
    int64_t nr;
    OK(tn_grad_fn(x, &n, &nr));
    assert_string_equal(tn_node_name(n, name, sizeof name), "CopySlices");
    drop(a, b, x, v);
    drop(w, y, s, NULL);
}

static void test_view_of_plain_base(void **state) {
    tn_tensor *v = NULL, *early = NULL;
    (void)state;
    tn_tensor *x = of(3, (float[]){1, 2, 3}), *b = leaf(1, (float[]){5});
    OK(tn_narrow(x, 0, 0, 1, &v));
    OK(tn_narrow(x, 0, 0, 2, &early));
    assert_false(tn_requires_grad(early));
    OK(tn_copy_(v, b, 0, &(tn_tensor *){NULL}));
    tn_tensor_unref(&(tn_tensor *){v}); /* copy_ handed back another reference */
    assert_true(tn_requires_grad(x));
    assert_true(tn_requires_grad(early));
    assert_false(tn_is_leaf(early));
    tn_tensor *y = mul(early, early), *s = total(y);
    backward(s);
    EXPECT(tn_grad_get(b), 10);
    drop(x, v, b, early);
    drop(y, s, NULL, NULL);
}

static void test_view_of_leaf(void **state) {
    tn_tensor *v = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2});
    OK(tn_narrow(a, 0, 0, 1, &v));
    expect_failure(tn_mul_(v, v), TN_E_STATE,
                   "a view of a leaf Variable that requires grad is being used in an in-place");
    int old = tn_grad_set_enabled(0);
    OK(tn_mul_(v, v));
    tn_grad_set_enabled(old);
    drop(a, v, NULL, NULL);
}

static void test_second_derivative_through_view(void **state) {
    tn_tensor *v = NULL, *first = NULL, *second = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){2, 3}), *x = mul(a, a);
    OK(tn_narrow(x, 0, 0, 1, &v));
    OK(tn_exp_(v)); /* x = [exp(a0^2), a1^2] */
    tn_tensor *y = mul(x, x), *s = total(y);
    OK(tn_grad(&s, NULL, 1, &a, 1, 1, 1, 0, &first));
    EXPECT(first, 4 * 2 * expf(8), 4 * 27);
    tn_tensor *s2 = total(first);
    OK(tn_grad(&s2, NULL, 1, &a, 1, 0, 0, 0, &second));
    EXPECT(second, (4 + 16 * 4) * expf(8), 12 * 9);
    drop(a, x, v, y);
    drop(s, s2, first, second);
}

/* ---- Long chains -------------------------------------------------------------------------------*/

enum { CHAIN = 1000000 };

static void *long_chain(void *unused) {
    tn_scalar_box box;
    (void)unused;
    tn_tensor *a = leaf(1, (float[]){1}), *x = tn_tensor_ref(a), *next = NULL;
    tn_tensor *one = tn_scalar_box_init(&box, tn_scalar_float(1e-6));
    for (int i = 0; i < CHAIN; i++) {
        OK(tn_add(x, one, tn_scalar_int(1), &next));
        tn_tensor_unref(&x);
        x = next;
    }
    backward(x);
    EXPECT(tn_grad_get(a), 1);
    tn_tensor_unref(&x); /* frees a million nodes */
    x = tn_tensor_ref(a);
    for (int i = 0; i < CHAIN; i++) { /* and once without a backward */
        OK(tn_mul(x, a, &next));
        tn_tensor_unref(&x);
        x = next;
    }
    drop(a, x, NULL, NULL);
    return NULL;
}

static void test_long_chain_on_small_stack(void **state) {
    pthread_t thread;
    pthread_attr_t attr;
    (void)state;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    assert_int_equal(pthread_create(&thread, &attr, long_chain, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

static void *many_passes(void *arg) {
    for (int i = 0; i < 200; i++) {
        tn_tensor *a = arg, *y = mul(a, a), *s = total(y);
        backward(s);
        drop(y, s, NULL, NULL);
    }
    return NULL;
}

static void test_threads_share_a_leaf(void **state) {
    pthread_t threads[2];
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2});
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_passes, a), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    EXPECT(tn_grad_get(a), 800, 1600);
    tn_tensor_unref(&a);
}

/* ---- Hooks -------------------------------------------------------------------------------------*/

typedef struct counter {
    int calls, released;
    tn_hook *mine;
} counter;

static void released(void *ctx) { ((counter *)ctx)->released++; }

static tn_status twice(void *ctx, tn_tensor *grad, tn_tensor **ret_grad) {
    ((counter *)ctx)->calls++;
    return tn_add(grad, grad, tn_scalar_int(1), ret_grad);
}

static tn_status count_leaf(void *ctx, tn_tensor *t) {
    ((counter *)ctx)->calls++;
    assert_non_null(tn_grad_get(t));
    return TN_OK;
}

static tn_status remove_self(void *ctx, tn_tensor *grad, tn_tensor **ret_grad) {
    counter *c = ctx;
    (void)grad;
    (void)ret_grad;
    c->calls++;
    tn_hook_remove(&c->mine);
    assert_int_equal(c->released, 0); /* not while it runs */
    return TN_OK;
}

static tn_status fails(void *ctx, tn_tensor *grad, tn_tensor **ret_grad) {
    (void)ctx;
    (void)grad;
    (void)ret_grad;
    return tn_fail(TN_E_VALUE, -1, "the hook does not like it");
}

static void test_tensor_hooks(void **state) {
    counter c = {0, 0, NULL}, once = {0, 0, NULL}, after = {0, 0, NULL};
    tn_hook *h = NULL, *h2 = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *y = mul(a, a), *s = total(y);
    OK(tn_hook_tensor(y, twice, &c, released, &h));
    OK(tn_hook_tensor(a, twice, &c, released, &h2));
    OK(tn_hook_tensor(a, remove_self, &once, released, &once.mine));
    OK(tn_hook_leaf(a, count_leaf, &after, released, NULL));
    OK(tn_retain_grad(y));
    OK(tn_backward(&s, NULL, 1, NULL, 0, 1, 0));
    EXPECT(tn_grad_get(a), 8, 16);
    EXPECT(tn_grad_get(y), 2, 2);
    assert_int_equal(c.calls, 2);
    assert_int_equal(once.released, 1);
    assert_int_equal(after.calls, 1);
    tn_hook_remove(&h);
    tn_hook_remove(&h2);
    assert_int_equal(c.released, 2);
    OK(tn_grad_set(a, NULL));
    OK(tn_backward(&s, NULL, 1, NULL, 0, 1, 0));
    EXPECT(tn_grad_get(a), 2, 4);
    assert_int_equal(c.calls, 2);
    assert_int_equal(once.calls, 1);
    OK(tn_hook_tensor(y, fails, NULL, NULL, NULL));
    expect_failure(tn_backward(&s, NULL, 1, NULL, 0, 1, 0), TN_E_VALUE, "does not like it");
    drop(a, y, s, NULL);
    assert_int_equal(after.released, 1);
}

static tn_status see_grads(void *ctx, tn_tensor *const *grads, int64_t n, tn_tensor **ret) {
    ((counter *)ctx)->calls++;
    assert_int_equal(n, 1);
    return tn_add(grads[0], grads[0], tn_scalar_int(1), &ret[0]);
}

static tn_status see_results(void *ctx, tn_tensor *const *results, int64_t n,
                             tn_tensor *const *grads, int64_t m, tn_tensor **ret) {
    ((counter *)ctx)->calls++;
    assert_int_equal(n, 2);
    assert_int_equal(m, 1);
    assert_non_null(grads[0]);
    return tn_add(results[0], results[0], tn_scalar_int(1), &ret[0]);
}

static void test_node_hooks(void **state) {
    counter c = {0, 0, NULL};
    tn_node *n = NULL;
    int64_t nr;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *b = of(2, (float[]){3, 4});
    tn_tensor *y = mul(a, b), *s = total(y);
    OK(tn_grad_fn(y, &n, &nr));
    OK(tn_hook_node_pre(n, see_grads, &c, released, NULL));
    OK(tn_hook_node_post(n, see_results, &c, released, NULL));
    backward(s);
    EXPECT(tn_grad_get(a), 12, 16);
    drop(a, b, y, s);
    assert_int_equal(c.calls, 2);
    assert_int_equal(c.released, 2);
}

/* A pass inside a hook of another pass, over a part of the same graph. */
static tn_status nested(void *ctx, tn_tensor *grad, tn_tensor **ret_grad) {
    tn_tensor *s = ctx;
    (void)grad;
    (void)ret_grad;
    return tn_backward(&s, NULL, 1, NULL, 0, 1, 0);
}

static void test_nested_pass(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){1, 2}), *y = mul(a, a), *s = total(y), *z = mul(y, y);
    tn_tensor *s2 = total(z);
    OK(tn_hook_tensor(z, nested, s, NULL, NULL));
    backward(s2);
    EXPECT(tn_grad_get(a), 4 + 2, 32 + 4);
    drop(a, y, s, z);
    tn_tensor_unref(&s2);
}

/* ---- Functions of a host -----------------------------------------------------------------------*/

typedef struct scale {
    tn_saved *x;
    int released, calls;
} scale;

/* y = x^2: the gradient is 2 x g. */
static tn_status square_backward(void *ctx, tn_node *node, tn_tensor *const *grads, int64_t n,
                                 tn_tensor **ret_grads, int64_t m) {
    scale *s = ctx;
    tn_tensor *x = NULL, *gx = NULL;
    assert_int_equal(n, 1);
    assert_int_equal(m, 1);
    s->calls++;
    tn_status st = tn_saved_unpack(s->x, node, &x);
    if (st == TN_OK) st = tn_mul(grads[0], x, &gx);
    if (st == TN_OK) st = tn_add(gx, gx, tn_scalar_int(1), &ret_grads[0]);
    tn_tensor_unref(&x);
    tn_tensor_unref(&gx);
    return st;
}

static void square_release(void *ctx) {
    scale *s = ctx;
    s->released++;
    tn_saved_free(&s->x);
}

static void test_host_function(void **state) {
    scale ctx = {NULL, 0, 0};
    tn_node *n = NULL;
    tn_tensor *r = NULL, *first = NULL, *second = NULL;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){3, 4});
    tn_host_node cb = {"SquareBackward", square_backward, NULL, square_release, &ctx, 0};
    OK(tn_host_node_new(&cb, &a, 1, &n));
    int old = tn_grad_set_enabled(0);
    tn_tensor *y = mul(a, a);
    tn_grad_set_enabled(old);
    OK(tn_host_node_finish(n, &y, 1, NULL, &r));
    OK(tn_saved_new(a, n, &ctx.x));
    assert_ptr_equal(r, y);
    assert_true(tn_requires_grad(r));
    tn_node_unref(&n);
    tn_tensor *s = total(r);
    OK(tn_grad(&s, NULL, 1, &a, 1, 1, 1, 0, &first));
    EXPECT(first, 6, 8);
    tn_tensor *s2 = total(first);
    OK(tn_grad(&s2, NULL, 1, &a, 1, 0, 0, 0, &second));
    EXPECT(second, 2, 2);
    drop(y, r, s, s2);
    drop(first, second, a, NULL);
    assert_int_equal(ctx.calls, 1);
    assert_int_equal(ctx.released, 1);
}

static tn_status pack(void *ctx, tn_tensor *t, void **ret_handle) {
    ++*(int *)ctx;
    *ret_handle = tn_tensor_ref(t);
    return TN_OK;
}
static tn_status unpack(void *ctx, void *handle, tn_tensor **ret_tensor) {
    *(int *)ctx += 100;
    *ret_tensor = tn_tensor_ref(handle);
    return TN_OK;
}
static void drop_handle(void *ctx, void *handle) {
    tn_tensor *t = handle;
    *(int *)ctx += 10000;
    tn_tensor_unref(&t);
}

static void test_saved_tensor_hooks(void **state) {
    int seen = 0;
    (void)state;
    tn_tensor *a = leaf(2, (float[]){3, 4});
    OK(tn_saved_hooks_push(&(tn_saved_hooks){pack, unpack, drop_handle, NULL, &seen}));
    tn_tensor *y = mul(a, a), *s = NULL;
    tn_saved_hooks_pop();
    s = total(y);
    assert_int_equal(seen, 2);
    backward(s);
    assert_int_equal(seen, 20202);
    EXPECT(tn_grad_get(a), 6, 8);
    drop(a, y, s, NULL);
}

static uint64_t held(void) {
    tn_memory_stats stats;
    OK(tn_memory_get_stats((tn_device){0, 0}, &stats));
    return stats.allocated;
}

/* A kept tensor holds its numbers and its history, in itself or behind hooks, until it is freed. */
static void test_kept_tensors_let_go(void **state) {
    enum { LONG = 1 << 20 };
    int seen = 0;
    tn_saved *plain = NULL, *packed = NULL;
    tn_node *n = NULL;
    int64_t nr;
    (void)state;
    uint64_t before = held();
    float *data = calloc(LONG, sizeof *data);
    tn_tensor *x = leaf(LONG, data);
    uint64_t block = held() - before;
    tn_tensor *y = mul(x, x), *z = mul(y, x);
    free(data);
    OK(tn_grad_fn(z, &n, &nr));
    assert_int_equal(tn_node_edge_count(n), 2);
    assert_int_equal(tn_node_edge_count(NULL), 0);
    for (int with_hooks = 0; with_hooks < 2; with_hooks++) {
        if (with_hooks)
            OK(tn_saved_hooks_push(&(tn_saved_hooks){pack, unpack, drop_handle, NULL, &seen}));
        OK(tn_saved_new(with_hooks ? y : z, NULL, with_hooks ? &packed : &plain));
        if (with_hooks) tn_saved_hooks_pop();
    }
    drop(x, y, z, NULL);
    assert_true(seen == 1 && block >= LONG * sizeof *data);
    assert_int_equal(held() - before, 3 * block);
    tn_saved_free(&plain);
    assert_null(plain);
    assert_int_equal(held() - before, 2 * block);
    tn_saved_free(&packed);
    assert_null(packed);
    assert_int_equal(seen, 10001);
    assert_int_equal(held(), before);
    tn_saved_free(&packed);
    tn_saved_free(NULL);
}

/* ---- Modes -------------------------------------------------------------------------------------*/

static void test_modes(void **state) {
    (void)state;
    tn_tensor *a = leaf(2, (float[]){3, 4});
    int old = tn_grad_set_enabled(0);
    tn_tensor *y = mul(a, a);
    assert_false(tn_requires_grad(y));
    tn_grad_set_enabled(old);
    tn_tensor_unref(&y);
    assert_int_equal(tn_inference_set_enabled(1), 0);
    assert_false(tn_grad_enabled());
    y = mul(a, a);
    assert_false(tn_requires_grad(y));
    assert_int_equal(tn_inference_set_enabled(0), 1);
    assert_true(tn_grad_enabled());
    assert_int_not_equal(tn_set_requires_grad(y, 1), TN_OK);
    drop(a, y, NULL, NULL);
}

static char *where(void) {
    char *text = malloc(16);
    if (text) strcpy(text, "model.py:42");
    return text;
}

static void test_anomaly(void **state) {
    (void)state;
    tn_host_hooks hooks = {.struct_size = sizeof hooks, .where = where};
    tn_host_set_hooks(&hooks);
    tn_anomaly_set(1, 1);
    tn_tensor *a = leaf(2, (float[]){0, 4}), *y = NULL, *z, *s;
    tn_scalar_box box;
    OK(tn_sqrt(a, &y));
    z = mul(y, number(&box, 0.0)); /* 0 * inf */
    s = total(z);
    tn_status st = tn_backward(&s, NULL, 1, NULL, 0, 0, 0);
    expect_failure(st, TN_E_STATE,
                   "Function 'SqrtBackward0' returned nan values in its 0th output");
    expect_failure(st, TN_E_STATE, "model.py:42");
    tn_anomaly_set(0, 0);
    hooks.where = NULL;
    tn_host_set_hooks(&hooks);
    drop(a, y, z, s);
}

static tn_status smooth(void *ctx, tn_tensor *const *in, int64_t n, tn_tensor **ret) {
    tn_tensor *y = NULL;
    (void)ctx;
    assert_int_equal(n, 2);
    tn_status st = tn_mul(in[0], in[1], &y);
    if (st == TN_OK) st = tn_tanh(y, ret);
    tn_tensor_unref(&y);
    return st;
}

static tn_status wrong(void *ctx, tn_tensor *const *in, int64_t n, tn_tensor **ret) {
    tn_tensor *cut = NULL;
    (void)ctx;
    (void)n;
    tn_status st = tn_detach(in[0], &cut);
    if (st == TN_OK) st = tn_mul(in[0], cut, ret);
    tn_tensor_unref(&cut);
    return st;
}

static void test_gradcheck(void **state) {
    int64_t three = 3;
    double worst = 1.0;
    tn_tensor *in[2] = {NULL, NULL};
    (void)state;
    OK(tn_tensor_from_data(TN_F64, 1, &three, (double[]){0.1, -0.5, 0.7}, &in[0]));
    OK(tn_tensor_from_data(TN_F64, 0, NULL, &(double){0.9}, &in[1]));
    OK(tn_set_requires_grad(in[0], 1));
    OK(tn_set_requires_grad(in[1], 1));
    OK(tn_gradcheck(smooth, NULL, in, 2, 1e-6, 1e-6, 1e-4, &worst));
    assert_true(worst < 1e-7);
    expect_failure(tn_gradcheck(wrong, NULL, in, 2, 1e-6, 1e-6, 1e-4, NULL), TN_E_STATE,
                   "Jacobian mismatch");
    drop(in[0], in[1], NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_unbroadcast),
        cmocka_unit_test(test_numbers_and_dtypes),
        cmocka_unit_test(test_saves_only_what_is_read),
        cmocka_unit_test(test_grad),
        cmocka_unit_test(test_inputs_restrict),
        cmocka_unit_test(test_second_derivative),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_inplace),
        cmocka_unit_test(test_inplace_comparison),
        cmocka_unit_test(test_missing_derivative),
        cmocka_unit_test(test_inplace_on_view),
        cmocka_unit_test(test_view_of_plain_base),
        cmocka_unit_test(test_view_of_leaf),
        cmocka_unit_test(test_second_derivative_through_view),
        cmocka_unit_test(test_long_chain_on_small_stack),
        cmocka_unit_test(test_threads_share_a_leaf),
        cmocka_unit_test(test_tensor_hooks),
        cmocka_unit_test(test_node_hooks),
        cmocka_unit_test(test_nested_pass),
        cmocka_unit_test(test_host_function),
        cmocka_unit_test(test_saved_tensor_hooks),
        cmocka_unit_test(test_kept_tensors_let_go),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_anomaly),
        cmocka_unit_test(test_gradcheck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
