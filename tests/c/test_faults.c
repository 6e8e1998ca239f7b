/* test_faults.c: every allocation of a scenario fails once, then all from there on. The call must return
 * TN_E_MEMORY, leave the process usable, and lose nothing: neither the call that failed nor, when the
 * fault is gone, repeating the scenario leaves more live blocks than there were. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/program.h>
#include <tenon/runtime.h>
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

static void unref_all(tn_tensor **t, int n) {
    for (int i = 0; i < n; i++) tn_tensor_unref(&t[i]);
}

/* Twice the gradient that comes to each of three outputs; the second input gets nothing. */
static tn_status twice(void *ctx, tn_node *node, tn_tensor *const *grads, int64_t n,
                       tn_tensor **ret_grads, int64_t m) {
    tn_tensor *x = NULL;
    (void)m;
    tn_status st = tn_saved_unpack(*(tn_saved **)ctx, node, &x);
    if (!st && n > 1) st = tn_add(grads[0], grads[1], tn_scalar_int(1), &ret_grads[0]);
    tn_tensor_unref(&x);
    return st;
}

/* A node with a result of its own, an input that is returned as it is, a written input and an integer
 * one. */
static tn_status host_function(void) {
    tn_tensor *t[12] = {NULL};
    tn_node *n = NULL;
    tn_saved *saved = NULL;
    tn_host_node cb = {"TwiceBackward", twice, NULL, NULL, &saved, 1};
    uint32_t flags[4] = {0, 0, TN_OUTPUT_DIRTY, TN_OUTPUT_NO_GRAD};
    tn_status st = small(&t[0]);
    if (!st) st = small(&t[1]);
    if (!st) st = tn_set_requires_grad(t[0], 1);
    if (!st) st = tn_host_node_new(&cb, t, 2, &n);
    int old = tn_grad_set_enabled(0);
    if (!st) st = tn_mul(t[0], t[1], &t[2]);
    if (!st) st = tn_argsort(t[0], 0, 0, 0, &t[3]);
    tn_grad_set_enabled(old);
    tn_tensor *outputs[4] = {t[2], t[0], t[1], t[3]};
    if (!st) st = tn_host_node_finish(n, outputs, 4, flags, &t[4]);
    if (!st) st = tn_saved_new(t[2], n, &saved);
    if (!st) st = tn_add(t[4], t[5], tn_scalar_int(1), &t[8]);
    if (!st) st = tn_sum(t[8], tn_ints_none(), 0, -1, &t[9]);
    if (!st) st = tn_backward(&t[9], NULL, 1, NULL, 0, 0, 0);
    unref_all(t, 12);
    tn_saved_free(&saved);
    tn_node_unref(&n);
    return st;
}

static tn_status keep_grad(void *ctx, tn_tensor *grad, tn_tensor **ret_grad) {
    (void)ctx;
    return tn_mul_scalar(grad, tn_scalar_int(2), ret_grad);
}
static tn_status see_leaf(void *ctx, tn_tensor *leaf) {
    (void)ctx;
    (void)leaf;
    return TN_OK;
}
static tn_status see_before(void *ctx, tn_tensor *const *grads, int64_t n, tn_tensor **ret_grads) {
    (void)ctx;
    return n ? tn_mul_scalar(grads[0], tn_scalar_int(3), &ret_grads[0]) : TN_OK;
}
static tn_status see_after(void *ctx, tn_tensor *const *results, int64_t n, tn_tensor *const *grads,
                           int64_t ngrads, tn_tensor **ret_results) {
    (void)ctx;
    (void)grads;
    (void)ngrads;
    return n && results[0] ? tn_mul_scalar(results[0], tn_scalar_int(1), &ret_results[0]) : TN_OK;
}
static tn_status pack(void *ctx, tn_tensor *t, void **ret_handle) {
    (void)ctx;
    *ret_handle = tn_tensor_ref(t);
    return TN_OK;
}
static tn_status unpack(void *ctx, void *handle, tn_tensor **ret_tensor) {
    (void)ctx;
    *ret_tensor = tn_tensor_ref(handle);
    return TN_OK;
}
static void drop_handle(void *ctx, void *handle) {
    tn_tensor *t = handle;
    (void)ctx;
    tn_tensor_unref(&t);
}

static tn_status hooks(void) {
    tn_tensor *t[8] = {NULL};
    tn_hook *kept = NULL;
    tn_node *n = NULL;
    int64_t nr = 0;
    tn_saved_hooks packing = {pack, unpack, drop_handle, NULL, NULL};
    tn_status st = small(&t[0]);
    if (!st) st = tn_set_requires_grad(t[0], 1);
    if (!st) st = tn_hook_leaf(t[0], see_leaf, NULL, NULL, NULL);
    if (!st) st = tn_hook_tensor(t[0], keep_grad, NULL, NULL, &kept);
    bool packs = !st && !(st = tn_saved_hooks_push(&packing));
    if (!st) st = tn_mul(t[0], t[0], &t[1]);
    if (!st) st = tn_tanh(t[1], &t[2]);
    if (packs) tn_saved_hooks_pop();
    if (!st) st = tn_retain_grad(t[1]);
    if (!st) st = tn_grad_fn(t[2], &n, &nr);
    if (!st) st = tn_hook_node_pre(n, see_before, NULL, NULL, NULL);
    if (!st) st = tn_hook_node_post(n, see_after, NULL, NULL, NULL);
    if (!st) st = tn_sum(t[2], tn_ints_none(), 0, -1, &t[3]);
    if (!st) st = tn_backward(&t[3], NULL, 1, NULL, 0, 0, 0);
    tn_hook_remove(&kept);
    unref_all(t, 8);
    return st;
}

static tn_status second_order(void) {
    tn_tensor *t[8] = {NULL}, *grads[1] = {NULL};
    tn_status st = small(&t[0]);
    if (!st) st = tn_set_requires_grad(t[0], 1);
    if (!st) st = tn_mul(t[0], t[0], &t[1]);
    if (!st) st = tn_tanh(t[1], &t[2]);
    if (!st) st = tn_sum(t[2], tn_ints_none(), 0, -1, &t[3]);
    if (!st) st = tn_grad(&t[3], NULL, 1, t, 1, 1, 1, 0, grads);
    if (!st) st = tn_sum(grads[0], tn_ints_none(), 0, -1, &t[4]);
    if (!st) st = tn_backward(&t[4], NULL, 1, NULL, 0, 0, 0);
    unref_all(grads, 1);
    unref_all(t, 8);
    return st;
}

/* Recorded with free sizes' names, lists, texts, numbers and a write; changed, printed, written, read. */
static tn_status record(tn_program **ret_program, int64_t rows) {
    tn_tensor *t[12] = {NULL};
    tn_tensor_list parts = {NULL, 0};
    tn_program *p = NULL;
    int64_t shape[] = {rows, 3};
    tn_status st = tn_full(tn_ints_of(shape, 2), tn_scalar_float(0.5), TN_F32, -1, &t[0]);
    if (!st) st = small(&t[1]);
    if (!st) st = tn_program_begin(&p);
    if (!st) st = tn_program_add_input(p, t[0], "x");
    if (!st) st = tn_program_add_weight(p, t[1], "w", TN_PROGRAM_PARAMETER);
    if (!st) st = tn_einsum("ij,kj->ik", (tn_tensors){t, 2}, &t[2]);
    if (!st) st = tn_mul_scalar(t[2], tn_scalar_float(2.5), &t[3]);
    if (!st) st = tn_relu(t[3], &t[4]);
    if (!st) st = tn_chunk(t[4], 2, 1, &parts);
    if (!st) st = tn_cat((tn_tensors){parts.v, parts.n}, 0, &t[5]);
    if (!st) st = tn_reshape(t[5], TN_INTS(rows * 2), &t[6]);
    if (!st) st = tn_fill_(t[6], tn_scalar_float(1), &t[7]);
    if (!st) st = tn_add(t[5], t[5], tn_scalar_int(1), &t[8]);
    tn_tensors outputs = {&t[8], 1};
    if (!st)
        st = tn_program_end(p, outputs);
    else if (p)
        tn_program_cancel(p);
    tn_tensor_list_free(&parts);
    unref_all(t, 12);
    if (st)
        tn_program_unref(&p);
    else
        *ret_program = p;
    return st;
}

static tn_status programs(void) {
    tn_program *p = NULL, *other = NULL, *read = NULL;
    tn_tensor *x = NULL, *y = NULL;
    void *bytes = NULL;
    uint64_t n = 0;
    tn_status st = record(&p, 2);
    if (!st) st = record(&other, 5);
    if (!st) st = tn_program_generalize(p, other, 1, 0, 1, 100, "rows");
    if (!st) st = tn_program_set_note(p, "a note");
    if (!st)
        st = tn_program_optimize(p, TN_PROGRAM_DEAD | TN_PROGRAM_COMMON | TN_PROGRAM_FOLD |
                                        TN_PROGRAM_FREEZE);
    for (int32_t form = 0; form < 3 && !st; form++) {
        char *text = NULL;
        st = tn_program_print(p, form, &text);
        tn_free(text);
    }
    if (!st) st = tn_program_write(p, &bytes, &n);
    if (!st) st = tn_program_parse(bytes, n, &read);
    if (!st) st = tn_full(TN_INTS(3, 3), tn_scalar_float(2), TN_F32, -1, &x);
    for (int k = 0; k < 2 && !st; k++) {
        st = tn_program_run(read, &x, 1, &y, 1);
        tn_tensor_unref(&y);
    }
    /* what the first run had no memory for, the second one finds: not TN_E_INDEX */
    int32_t first = 0, count = 0;
    if (!st) st = tn_program_fused_at(read, 0, &first, &count);
    tn_free(bytes);
    tn_tensor_unref(&x);
    tn_program_unref(&read);
    tn_program_unref(&other);
    tn_program_unref(&p);
    return st;
}

static tn_status sparse_and_random(void) {
    tn_tensor *t[8] = {NULL};
    tn_generator *g = NULL;
    tn_status st = tn_generator_new((tn_device){0, 0}, &g);
    if (!st) tn_generator_seed(g, 3);
    if (!st) st = small(&t[0]);
    if (!st) st = tn__to_sparse_coo(t[0], 2, &t[1]);
    if (!st) st = tn_add(t[1], t[1], tn_scalar_int(1), &t[2]);
    if (!st) st = tn_coalesce(t[2], &t[3]);
    if (!st) st = tn_to_dense(t[3], -1, 0, &t[4]);
    if (!st) st = tn_dropout(t[4], 0.5, 1, &t[5]);
    tn_generator_unref(&g);
    unref_all(t, 8);
    return st;
}

static const struct {
    const char *name;
    tn_status (*run)(void);
} scenarios[] = {
    {"make and view", make_and_view},
    {"arithmetic", arithmetic},
    {"conversions", conversions},
    {"products", products},
    {"backward", backward},
    {"lists", lists},
    {"host function", host_function},
    {"hooks", hooks},
    {"programs", programs},
    {"second order", second_order},
    {"sparse and random", sparse_and_random},
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
static long inject(const char *name, tn_status (*run)(void), int keep) {
    for (long k = 0; k < 10000; k++) {
        attempt a = {.run = run, .k = k, .keep = keep};
        long more = LONG_MAX; /* that each of several tries keeps: tables grow once */
        for (int i = 0; i < 5 && more > 0; i++) {
            long before = live;
            try_once(&a);
            more = live - before < more ? live - before : more;
        }
        if (more > 0) fail_msg("%s: when allocation %ld fails, %ld blocks are lost", name, k, more);
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
        for (int keep = 0; keep < 2; keep++)
            points += inject(scenarios[i].name, scenarios[i].run, keep);
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
