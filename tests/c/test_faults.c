/* test_faults.c: every allocation of a scenario fails once, then all from there on. The call must return
 * TN_E_MEMORY, leave the process usable, and lose nothing: when the fault is gone the scenario passes,
 * and repeating it leaves the number of live blocks as it was. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/tensor.h>

/* ---- The allocator under test: glibc's, behind a counter ---------------------------------------*/

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAVE_FAULTS 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static _Thread_local long countdown = -1; /* < 0: off; 0: this one fails */
static _Thread_local int keep_failing;
static _Atomic long live; /* blocks that are allocated, of all threads */

static int fails(void) {
    if (countdown < 0) return 0;
    if (countdown == 0) {
        if (!keep_failing) countdown = -1;
        return 1;
    }
    countdown--;
    return 0;
}

static void *counted(void *p) {
    if (p) live++;
    return p;
}

#define SEEN __attribute__((visibility("default"))) /* or libtenon keeps the other ones */
SEEN void *malloc(size_t n) { return fails() ? NULL : counted(__libc_malloc(n)); }
SEEN void *calloc(size_t n, size_t size) {
    return fails() ? NULL : counted(__libc_calloc(n, size));
}
SEEN void *realloc(void *p, size_t n) {
    if (fails()) return NULL;
    void *q = __libc_realloc(p, n);
    if (!p) counted(q);
    return q;
}
SEEN void *aligned_alloc(size_t align, size_t n) {
    return fails() ? NULL : counted(__libc_memalign(align, n));
}
SEEN void free(void *p) {
    if (p) live--;
    __libc_free(p);
}
#endif

/* ---- Scenarios ---------------------------------------------------------------------------------*/

static tn_status small(tn_tensor **ret) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    int64_t shape[] = {2, 3};
    return tn_tensor_from_data(TN_F32, 2, shape, data, ret);
}

static tn_status make_and_view(void) {
    tn_tensor *a = NULL, *b = NULL, *c = NULL;
    int64_t deep[] = {1, 1, 1, 1, 1, 1, 2, 3}; /* more dimensions than lie inside a header */
    tn_status st = small(&a);
    if (!st) st = tn_reshape(a, tn_ints_of(deep, 8), &b);
    if (!st) st = tn_transpose(b, 6, 7, &c);
    tn_tensor_unref(&c);
    tn_tensor_unref(&b);
    tn_tensor_unref(&a);
    return st;
}

static tn_status arithmetic(void) {
    tn_tensor *a = NULL, *row = NULL, *b = NULL, *c = NULL, *d = NULL;
    tn_status st = small(&a);
    if (!st) st = tn_select(a, 0, 1, &row);
    if (!st) st = tn_add(a, row, tn_scalar_int(1), &b);
    if (!st) st = tn_mul_scalar(b, tn_scalar_float(2.5), &c);
    if (!st) st = tn_sum(c, TN_INTS(1), 0, -1, &d);
    if (!st) st = tn_exp_(c);
    tn_tensor_unref(&d);
    tn_tensor_unref(&c);
    tn_tensor_unref(&b);
    tn_tensor_unref(&row);
    tn_tensor_unref(&a);
    return st;
}

static tn_status conversions(void) {
    tn_tensor *a = NULL, *h = NULL, *s = NULL, *m = NULL;
    tn_tensor *both[2];
    tn_status st = small(&a);
    if (!st) st = tn__to_copy(a, TN_F16, -1, 0, TN_FORMAT_PRESERVE, &h);
    if (!st) st = tn_add(a, h, tn_scalar_int(1), &s);
    both[0] = a;
    both[1] = s;
    if (!st) st = tn_cat((tn_tensors){both, 2}, 0, &m);
    tn_tensor_unref(&m);
    tn_tensor_unref(&s);
    tn_tensor_unref(&h);
    tn_tensor_unref(&a);
    return st;
}

static tn_status products(void) {
    tn_tensor *a = NULL, *t = NULL, *p = NULL, *s = NULL;
    tn_status st = small(&a);
    if (!st) st = tn_transpose(a, 0, 1, &t);
    if (!st) st = tn_matmul(a, t, &p);
    if (!st) st = tn_softmax(p, 1, -1, &s);
    tn_tensor_unref(&s);
    tn_tensor_unref(&p);
    tn_tensor_unref(&t);
    tn_tensor_unref(&a);
    return st;
}

static tn_status backward(void) {
    tn_tensor *w = NULL, *x = NULL, *y = NULL, *z = NULL, *loss = NULL;
    tn_status st = small(&w);
    if (!st) st = small(&x);
    if (!st) st = tn_set_requires_grad(w, 1);
    if (!st) st = tn_mul(w, x, &y);
    if (!st) st = tn_tanh(y, &z);
    if (!st) st = tn_sum(z, tn_ints_none(), 0, -1, &loss);
    if (!st) st = tn_backward(&loss, NULL, 1, NULL, 0, 0, 0);
    tn_tensor_unref(&loss);
    tn_tensor_unref(&z);
    tn_tensor_unref(&y);
    tn_tensor_unref(&x);
    tn_tensor_unref(&w);
    return st;
}

static tn_status lists(void) {
    tn_tensor *a = NULL;
    tn_tensor_list parts = {NULL, 0};
    tn_status st = small(&a);
    if (!st) st = tn_chunk(a, 2, 0, &parts);
    if (!st) tn_tensor_list_free(&parts);
    tn_tensor_unref(&a);
    return st;
}

static const struct {
    const char *name;
    tn_status (*run)(void);
} scenarios[] = {
    {"make and view", make_and_view}, {"arithmetic", arithmetic}, {"conversions", conversions},
    {"products", products},           {"backward", backward},     {"lists", lists},
};

#ifdef HAVE_FAULTS
/* One run, in a thread of its own: its free lists are empty, so that every block is allocated, and end
 * with it, so that every block is given back. */
typedef struct attempt {
    tn_status (*run)(void);
    long k; /* which allocation fails; -1: none */
    int keep;
    int reached;
    tn_status st;
} attempt;

/* Thread-local data of a library is allocated at its first use, and the C library ends the process
 * when that fails. OpenBLAS has some, which a product touches. */
static void touch_libraries(void) {
    static tn_tensor *a, *b; /* made by the main thread */
    tn_tensor *y = NULL;
    if (!a) {
        assert_int_equal(small(&a), TN_OK);
        assert_int_equal(tn_transpose(a, 0, 1, &b), TN_OK);
    }
    (void)tn_matmul(a, b, &y);
    tn_tensor_unref(&y);
}

static void *attempt_body(void *arg) {
    attempt *a = arg;
    touch_libraries();
    keep_failing = a->keep;
    countdown = a->k;
    a->st = a->run();
    a->reached = countdown <= 0;
    countdown = -1;
    return NULL;
}

static void try_once(attempt *a) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, attempt_body, a), 0);
    pthread_join(thread, NULL);
}

/* Returns the number of points at which an allocation was made to fail. */
static long inject(tn_status (*run)(void), int keep) {
    for (long k = 0; k < 10000; k++) {
        attempt a = {.run = run, .k = k, .keep = keep};
        try_once(&a);
        if (!a.reached) {
            assert_int_equal(a.st, TN_OK);
            return k;
        }
        /* A spare allocation may fail without harm; nothing else than lack of memory may come. */
        assert_true(a.st == TN_OK || a.st == TN_E_MEMORY);
    }
    fail_msg("the scenario never ends");
    return 0;
}

static void test_every_allocation_fails_once(void **state) {
    long points = 0;
    (void)state;
    touch_libraries();
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        attempt clean = {.run = scenarios[i].run, .k = -1};
        assert_int_equal(scenarios[i].run(), TN_OK); /* loads what is loaded once */
        for (int keep = 0; keep < 2; keep++) points += inject(scenarios[i].run, keep);
        for (int k = 0; k < 5; k++) try_once(&clean);
        long before = live;
        for (int k = 0; k < 20; k++) {
            try_once(&clean);
            assert_int_equal(clean.st, TN_OK);
        }
        assert_int_equal(live, before);
    }
    print_message("%ld allocations failed\n", points);
    assert_true(points > 30);
}
#else
/* A sanitizer owns the allocator: the scenarios run without faults, and it watches them. */
static void test_every_allocation_fails_once(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        assert_int_equal(scenarios[i].run(), TN_OK);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
