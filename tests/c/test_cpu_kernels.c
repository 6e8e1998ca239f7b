/* test_cpu_kernels.c: the CPU plugin alone, loaded with a host made here: vector math against the C
 * library in double, sums that do not depend on the number of threads, division by zero, the
 * allocator and the worker pool. The plugin lies in the build tree beside TENON_TEST_PLUGINS, or it is the
 * one that TENON_TEST_CPU names. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tenon/op_args.h>
#include <tenon/plugin.h>

#define MAX_ROWS 8192

static tn_kernel_row rows[MAX_ROWS];
static uint32_t row_count;
static tn_device_desc device;
static char failure[200];

/* ---- The host ----------------------------------------------------------------------------------*/

static tn_status host_fail(tn_status code, int32_t arg, const char *fmt, ...) {
    va_list ap;
    (void)arg;
    va_start(ap, fmt);
    vsnprintf(failure, sizeof failure, fmt, ap);
    va_end(ap);
    return code;
}

static tn_status host_device(tn_txn *txn, const tn_device_desc *desc, int32_t *ret_slot) {
    (void)txn;
    device = *desc;
    *ret_slot = 0;
    return TN_OK;
}

static tn_status host_kernels(tn_txn *txn, int32_t slot, const tn_kernel_row *list, uint32_t size,
                              uint32_t n) {
    (void)txn;
    (void)slot;
    if (size != sizeof *list || row_count + n > MAX_ROWS) return TN_E_PLUGIN;
    memcpy(rows + row_count, list, n * sizeof *list);
    row_count += n;
    return TN_OK;
}

static tn_status poll_answer;

static tn_status host_poll(void) { return poll_answer; }

static void host_log(int32_t level, const char *fmt, ...) {
    (void)level;
    (void)fmt;
}

static const tn_host host = {
    .struct_size = sizeof host,
    .fail = host_fail,
    .register_device = host_device,
    .register_kernels = host_kernels,
    .poll = host_poll,
    .log = host_log,
};

static tn_status run(const char *op, int32_t dtype, const void *args) {
    tn_call call = {.host = &host, .dtype = dtype};
    for (int32_t priority = 1; priority >= 0; priority--) {
        for (uint32_t i = 0; i < row_count; i++) {
            if (rows[i].priority != priority || rows[i].dtype != dtype) continue;
            if (strcmp(rows[i].op, op) != 0) continue;
            tn_status st = rows[i].fn(&call, args);
            if (st != TN_DECLINE) return st;
        }
    }
    return TN_E_UNSUPPORTED;
}

/* A plan over packed operands of one dimension. */
static void flat_plan(tn_plan *p, int64_t n, int32_t operands, int64_t size, void *const *data) {
    memset(p, 0, sizeof *p);
    p->ndim = 1;
    p->noperands = operands;
    p->noutputs = 1;
    p->flags = TN_PLAN_FLAT;
    p->numel = p->shape[0] = n;
    for (int32_t k = 0; k < operands; k++) {
        p->data[k] = data[k];
        p->stride[0][k] = size;
    }
}

/* ---- Vector math -------------------------------------------------------------------------------*/

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double gelu(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }

static double ulps(float got, double want) {
    float near = (float)want, next = nextafterf(fabsf(near), INFINITY);
    return fabs((double)got - want) / ((double)next - (double)fabsf(near));
}

/* Every operator of one operand has the argument struct {plan, input, out}. */
static void check_math(const char *op, double (*want)(double), float lo, float hi, double limit) {
    enum { N = 200001 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    tn_plan plan;
    assert_non_null(x);
    assert_non_null(y);
    for (int i = 0; i < N; i++) x[i] = lo + (hi - lo) * (float)i / (float)(N - 1);
    flat_plan(&plan, N, 2, sizeof *x, (void *[]){y, x});
    tn_exp_args args = {.plan = &plan};
    assert_int_equal(run(op, TN_F32, &args), TN_OK);
    double worst = 0;
    for (int i = 0; i < N; i++) worst = fmax(worst, ulps(y[i], want((double)x[i])));
    if (worst > limit) print_message("%s: %.2f ulp\n", op, worst);
    assert_true(worst <= limit);
    free(x);
    free(y);
}

static void test_math(void **state) {
    (void)state;
    check_math("exp", exp, -87, 88, 1.0);
    check_math("log", log, 1e-6f, 100, 1.0);
    check_math("tanh", tanh, -12, 12, 2.0);
    check_math("sigmoid", sigmoid, -80, 20, 2.0);
    check_math("erf", erf, -5, 5, 2.0);
    check_math("sin", sin, -1000, 1000, 1.0);
    check_math("log1p", log1p, -0.99f, 50, 1.0);
    /* map_wide.h says how exact gelu's tail is with AVX-512; without fused multiply-adds it is less so. */
    const char *isa = device.describe(device.ctx, 0);
    double limit = strstr(isa, "avx512") ? 3.1 : strstr(isa, "avx") ? 2.0 : 3.6;
    check_math("_gelu", gelu, -9, 9, limit);
}

/* A result depends on its element alone, not on where it stands and what stands beside it. */
static void test_neighbours(void **state) {
    static const char *const ops[] = {"exp", "tanh", "sigmoid", "silu", "erf", "_gelu"};
    enum { N = 1003 };
    float x[N], y[N], one;
    tn_plan plan;
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)(i * 7919 % N) / 50.0f - 10.0f;
    for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
        tn_exp_args args = {.plan = &plan};
        flat_plan(&plan, N, 2, sizeof *x, (void *[]){y, x});
        assert_int_equal(run(ops[k], TN_F32, &args), TN_OK);
        for (int i = 0; i < N; i++) {
            flat_plan(&plan, 1, 2, sizeof *x, (void *[]){&one, &x[i]});
            assert_int_equal(run(ops[k], TN_F32, &args), TN_OK);
            assert_memory_equal(&one, &y[i], sizeof one);
        }
    }
}

static void test_special_values(void **state) {
    (void)state;
    float x[4] = {NAN, INFINITY, -INFINITY, -0.0f}, y[4];
    tn_plan plan;
    flat_plan(&plan, 4, 2, sizeof *x, (void *[]){y, x});
    tn_exp_args args = {.plan = &plan};
    assert_int_equal(run("exp", TN_F32, &args), TN_OK);
    assert_true(isnan(y[0]) && isinf(y[1]) && y[2] == 0 && y[3] == 1);
    assert_int_equal(run("tanh", TN_F32, &args), TN_OK);
    assert_true(isnan(y[0]) && y[1] == 1 && y[2] == -1 && y[3] == 0);
    assert_int_equal(run("log", TN_F32, &args), TN_OK);
    assert_true(isnan(y[0]) && isinf(y[1]) && isnan(y[2]) && y[3] == -INFINITY);
}

/* ---- Arithmetic --------------------------------------------------------------------------------*/

static void test_integer_division(void **state) {
    (void)state;
    int32_t a[5] = {7, -7, 7, -7, INT32_MIN}, b[5] = {2, 2, -2, -2, -1}, q[5], r[5];
    tn_plan plan;
    flat_plan(&plan, 5, 3, sizeof *a, (void *[]){q, a, b});
    tn_floor_divide_args divide = {.plan = &plan};
    assert_int_equal(run("floor_divide", TN_I32, &divide), TN_OK);
    const int32_t floors[5] = {3, -4, -4, 3, INT32_MIN};
    assert_memory_equal(q, floors, sizeof q);
    plan.data[0] = r;
    tn_remainder_args rest = {.plan = &plan};
    assert_int_equal(run("remainder", TN_I32, &rest), TN_OK);
    const int32_t rests[5] = {1, 1, -1, -1, 0};
    assert_memory_equal(r, rests, sizeof r);
    b[3] = 0;
    assert_int_equal(run("remainder", TN_I32, &rest), TN_E_STATE);
    assert_non_null(strstr(failure, "ZeroDivisionError"));
    assert_memory_equal(r, rests, sizeof r);
}

static void test_strided_and_scalar(void **state) {
    (void)state;
    float a[12], b = 10, out[6];
    tn_plan plan;
    for (int i = 0; i < 12; i++) a[i] = (float)i;
    flat_plan(&plan, 6, 3, sizeof *a, (void *[]){out, a, &b});
    plan.flags = 0;
    plan.stride[0][1] = 2 * sizeof *a;
    plan.stride[0][2] = 0;
    plan.scalar_mask = 1u << 2;
    tn_mul_args args = {.plan = &plan};
    assert_int_equal(run("mul", TN_F32, &args), TN_OK);
    for (int i = 0; i < 6; i++) assert_true(out[i] == 20.0f * (float)i);
}

/* ---- Reductions and threads --------------------------------------------------------------------*/

static float sum_of(float *x, int64_t n) {
    float out = 0;
    tn_plan plan;
    flat_plan(&plan, n, 2, sizeof *x, (void *[]){&out, x});
    plan.flags = 0;
    plan.reduce_mask = 1;
    plan.stride[0][0] = 0;
    tn_sum_args args = {.plan = &plan};
    assert_int_equal(run("sum", TN_F32, &args), TN_OK);
    return out;
}

static void test_sum_is_the_same_on_any_threads(void **state) {
    (void)state;
    enum { N = 3000001 };
    const tn_threads_iface *threads = device.query(device.ctx, "tn.threads/1");
    float *x = malloc(N * sizeof *x);
    double exact = 0;
    assert_non_null(x);
    assert_non_null(threads);
    for (int i = 0; i < N; i++) {
        x[i] = 0.1f + (float)(i % 7);
        exact += (double)x[i];
    }
    int32_t before = threads->get(device.ctx);
    float first = 0;
    for (int32_t t = 1; t <= 5; t++) {
        assert_int_equal(threads->set(device.ctx, t), TN_OK);
        float s = sum_of(x, N);
        if (t == 1) first = s;
        assert_memory_equal(&s, &first, sizeof s);
    }
    assert_true(ulps(first, exact) <= 2.0);
    assert_int_equal(threads->set(device.ctx, before), TN_OK);
    free(x);
}

typedef struct tally {
    _Atomic int64_t items;
    int64_t fail_at;
} tally;

static tn_status count_items(void *arg, int64_t begin, int64_t end) {
    tally *t = arg;
    t->items += end - begin;
    return t->fail_at >= begin && t->fail_at < end ? TN_E_VALUE : TN_OK;
}

static void test_pool(void **state) {
    (void)state;
    const tn_threads_iface *threads = device.query(device.ctx, "tn.threads/1");
    assert_int_equal(threads->set(device.ctx, 4), TN_OK);
    for (int i = 0; i < 200; i++) {
        tally t = {.fail_at = -1};
        assert_int_equal(threads->parallel(device.ctx, 100003, 64, count_items, &t), TN_OK);
        assert_int_equal(t.items, 100003);
    }
    tally t = {.fail_at = 5000};
    assert_int_equal(threads->parallel(device.ctx, 100003, 64, count_items, &t), TN_E_VALUE);
    assert_int_equal(threads->set(device.ctx, 0), TN_E_VALUE);

    pid_t child = fork();
    if (child == 0) {
        tally c = {.fail_at = -1};
        tn_status st = threads->parallel(device.ctx, 100003, 64, count_items, &c);
        _exit(st == TN_OK && c.items == 100003 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(threads->set(device.ctx, 2), TN_OK);
}

typedef struct walkthrough {
    int64_t chunks, longest;
    bool sleeps;
} walkthrough;

static tn_status see_chunk(void *arg, int64_t begin, int64_t end) {
    walkthrough *w = arg;
    if (end - begin > w->longest) w->longest = end - begin;
    if (w->sleeps) usleep(2000);
    return ++w->chunks == 1000 ? TN_E_VALUE : TN_OK;
}

/* However large a job is, its chunks are short, and between them it hears of interrupts. */
static void test_interrupt(void **state) {
    (void)state;
    const tn_threads_iface *threads = device.query(device.ctx, "tn.threads/1");
    int32_t before = threads->get(device.ctx);
    walkthrough large = {0}, slow = {.sleeps = true};
    assert_int_equal(threads->set(device.ctx, 1), TN_OK);
    assert_int_equal(threads->parallel(device.ctx, INT64_C(1) << 40, 64, see_chunk, &large),
                     TN_E_VALUE);
    assert_true(large.longest <= 64 * 64);
    poll_answer = TN_E_INTERRUPTED;
    assert_int_equal(threads->parallel(device.ctx, 100000, 64, see_chunk, &slow), TN_E_INTERRUPTED);
    poll_answer = TN_OK;
    assert_true(slow.chunks < 100);
    assert_int_equal(threads->set(device.ctx, before), TN_OK);
}

/* ---- Memory ------------------------------------------------------------------------------------*/

static tn_memory_stats stats(void) {
    const tn_memory_iface *memory = device.query(device.ctx, "tn.memory/1");
    tn_memory_stats s;
    assert_int_equal(memory->stats(device.ctx, 0, &s), TN_OK);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    enum { SLOTS = 300 };
    static unsigned char *at[SLOTS];
    static uint64_t bytes[SLOTS];
    const tn_memory_iface *memory = device.query(device.ctx, "tn.memory/1");
    uint64_t before = stats().allocated;
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int k = (int)(seed >> 8) % SLOTS;
        if (at[k]) {
            assert_int_equal(at[k][0], k & 0xff);
            assert_int_equal(at[k][bytes[k] - 1], k & 0xff);
            device.free(device.ctx, 0, at[k], bytes[k]);
            at[k] = NULL;
            continue;
        }
        bytes[k] = 1 + (seed >> 4) % (seed & 8 ? 3000u : 2000000u);
        void *p;
        assert_int_equal(device.alloc(device.ctx, 0, bytes[k], &p), TN_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        at[k] = p;
        at[k][0] = at[k][bytes[k] - 1] = (unsigned char)k;
    }
    assert_true(stats().allocated > before);
    for (int k = 0; k < SLOTS; k++) device.free(device.ctx, 0, at[k], bytes[k]);
    memset(at, 0, sizeof at);
    assert_int_equal(stats().allocated, before);
    uint64_t reserved = stats().reserved;
    assert_int_equal(memory->empty_cache(device.ctx, 0), TN_OK);
    assert_true(stats().reserved < reserved);
    void *p;
    assert_int_equal(device.alloc(device.ctx, 0, UINT64_C(1) << 61, &p), TN_E_MEMORY);
    /* Could be mapped, and not filled. */
    assert_int_equal(device.alloc(device.ctx, 0, UINT64_C(1) << 46, &p), TN_E_MEMORY);
}

/* Blocks are one again with free neighbours on either side, and found again, in whatever order they go. */
static void test_free_blocks_join(void **state) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const tn_memory_iface *memory = device.query(device.ctx, "tn.memory/1");
    const uint64_t bytes = UINT64_C(9) << 20; /* three of them fill most of an arena */
    (void)state;
    assert_int_equal(memory->empty_cache(device.ctx, 0), TN_OK);
    uint64_t before = stats().reserved, most = 0;
    for (int i = 0; i < 6; i++) {
        void *p[3], *all;
        for (int k = 0; k < 3; k++)
            assert_int_equal(device.alloc(device.ctx, 0, bytes, &p[k]), TN_OK);
        if (i == 0) most = stats().reserved;
        for (int k = 0; k < 3; k++) device.free(device.ctx, 0, p[orders[i][k]], bytes);
        assert_int_equal(device.alloc(device.ctx, 0, 3 * bytes, &all), TN_OK);
        device.free(device.ctx, 0, all, 3 * bytes);
        assert_int_equal(stats().reserved, most);
    }
    assert_int_equal(memory->empty_cache(device.ctx, 0), TN_OK);
    assert_int_equal(stats().reserved, before);
}

static void *free_elsewhere(void *p) {
    device.free(device.ctx, 0, p, 100);
    return NULL;
}

static void test_free_on_another_thread(void **state) {
    (void)state;
    uint64_t before = stats().allocated;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *p;
        assert_int_equal(device.alloc(device.ctx, 0, 100, &p), TN_OK);
        assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, p), 0);
        pthread_join(thread, NULL);
    }
    assert_int_equal(stats().allocated, before);
}

static int load(void **state) {
    char path[PATH_MAX];
    const char *built = getenv("TENON_TEST_PLUGINS"), *given = getenv("TENON_TEST_CPU");
    tn_plugin plugin = {.struct_size = sizeof plugin};
    tn_plugin_entry_fn entry;
    (void)state;
    if (!built && !given) return -1;
    if (given)
        snprintf(path, sizeof path, "%s", given);
    else
        snprintf(path, sizeof path, "%s/../../backends/cpu/tenon_cpu.so", built);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_message("%s\n", dlerror());
        return -1;
    }
    *(void **)(void *)&entry = dlsym(library, TN_PLUGIN_ENTRY);
    if (!entry || entry(&host, &plugin) != TN_OK) return -1;
    return plugin.activate(&host, NULL) == TN_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_integer_division),
        cmocka_unit_test(test_strided_and_scalar),
        cmocka_unit_test(test_sum_is_the_same_on_any_threads),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_free_blocks_join),
        cmocka_unit_test(test_free_on_another_thread),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
