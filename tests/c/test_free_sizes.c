/* test_free_sizes.c: sizes of programs that become free by comparison with a recording at another size,
 * and what is refused because something else differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/program.h>
#include <tenon/runtime.h>

static void ok(tn_status st, int line) {
    if (st != TN_OK) fail_msg("line %d: %s", line, tn_error_last()->message);
}
#define OK(call) ok(call, __LINE__)

static void refused(tn_status st, tn_status want, const char *words, int line) {
    if (st != want) fail_msg("line %d: status %d, not %d", line, (int)st, (int)want);
    if (!strstr(tn_error_last()->message, words))
        fail_msg("line %d: '%s' is not in '%s'", line, words, tn_error_last()->message);
}
#define REFUSED(want, words, call) refused(call, want, words, __LINE__)

/* What two recordings do in different ways: `way` says in which. */
typedef void (*calls)(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]);

/* A program on x [rows, cols] and y [rows]. */
static tn_program *recorded(calls fn, int64_t way, int64_t rows, int64_t cols) {
    tn_tensor *x = NULL, *y = NULL, *out[2] = {NULL, NULL};
    tn_program *p = NULL;
    OK(tn_full(TN_INTS(rows, cols), tn_scalar_float(1), TN_F32, -1, &x));
    OK(tn_full(tn_ints_of(&rows, 1), tn_scalar_float(2), TN_F32, -1, &y));
    OK(tn_program_begin(&p));
    OK(tn_program_add_input(p, x, "x"));
    OK(tn_program_add_input(p, y, "y"));
    fn(way, x, y, out);
    OK(tn_program_end(p, (tn_tensors){out, out[1] ? 2 : 1}));
    tn_tensor *all[] = {x, y, out[0], out[1]};
    for (int i = 0; i < 4; i++) tn_tensor_unref(&all[i]);
    return p;
}

/* Rows 2 and 4, in ways a and b: freeing both is refused. */
static void differs(calls fn, int64_t a, int64_t b, const char *words, int line) {
    tn_program *p = recorded(fn, a, 2, 3), *q = recorded(fn, b, 4, 3);
    char *before = NULL, *after = NULL;
    OK(tn_program_print(p, TN_PROGRAM_TEXT, &before));
    refused(tn_program_generalize(p, q, 3, 0, 1, 99, "rows"), TN_E_UNSUPPORTED, words, line);
    OK(tn_program_print(p, TN_PROGRAM_TEXT, &after));
    assert_string_equal(before, after); /* it is as it was */
    tn_free(before);
    tn_free(after);
    tn_program_unref(&p);
    tn_program_unref(&q);
}
#define DIFFERS(fn, a, b, words) differs(fn, a, b, words, __LINE__)

static void plain(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)way, (void)y;
    OK(tn_exp(x, &ret[0]));
}

static void times_whole(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_mul_scalar(x, tn_scalar_int(way), &ret[0]));
}

static void times_part(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_mul_scalar(x, tn_scalar_float(0.5 + (double)way), &ret[0]));
}

static void operators(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK((way ? tn_neg : tn_exp)(x, &ret[0]));
}

static void more(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_exp(x, &ret[0]));
    if (way) OK(tn_exp(x, &ret[1]));
}

static void turned(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    tn_tensor *wide = NULL;
    OK(tn_unsqueeze(y, 1, &wide));
    OK(tn_sub(way ? wide : x, way ? x : wide, tn_scalar_int(1), &ret[0]));
    tn_tensor_unref(&wide);
}

static void either(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    tn_tensor *one = NULL;
    (void)y;
    OK(tn_exp(x, way ? &one : &ret[0]));
    OK(tn_neg(x, way ? &ret[0] : &one));
    tn_tensor_unref(&one);
}

static void constants(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    const float data[3] = {1, 2, (float)way};
    const int64_t three = 3;
    tn_tensor *w = NULL;
    (void)y;
    OK(tn_tensor_from_data(TN_F32, 1, &three, data, &w));
    OK(tn_mul(x, w, &ret[0]));
    tn_tensor_unref(&w);
}

static void sorted(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_sort(x, 1, way, 0, &ret[0], &ret[1]));
}

static void sums(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_sum(x, way ? TN_INTS(0, 1) : TN_INTS(1), 1, -1, &ret[0]));
}

static void equations(int64_t way, tn_tensor *x, tn_tensor *y, tn_tensor *ret[2]) {
    (void)y;
    OK(tn_einsum(way ? "ij->ji" : "ij->ij", (tn_tensors){&x, 1}, &ret[0]));
}

static void test_what_differs(void **state) {
    (void)state;
    DIFFERS(times_part, 0, 1, "node 0 (mul) has another number that is no whole one when it is 4");
    DIFFERS(operators, 0, 1, "node 0 is exp, and neg when it is 4: the program's course depends");
    DIFFERS(more, 0, 1, "the program has 1 nodes, and 2 when it is 4: its course depends on it");
    DIFFERS(turned, 0, 1, "node 1 (sub) takes other values when it is 4");
    DIFFERS(either, 0, 1, "size 2 cannot be made free");
    DIFFERS(constants, 3, 4, "value 2 is another one when it is 4: a tensor is made of numbers");
    DIFFERS(sorted, 0, 1, "node 0 (sort) has another argument when it is 4");
    DIFFERS(sums, 0, 1, "node 0 (sum) has a list of another length when it is 4");
    DIFFERS(equations, 0, 1, "node 0 (einsum) has another text when it is 4");
    /* 2 and 4 rows, and a number that rises by 1: half of them, but for 3 rows and 4 */
    DIFFERS(times_whole, INT64_MAX, -2, "node 0 (mul) has a number out of range when it is 4");
    tn_program *p = recorded(times_whole, 1, 3, 3), *q = recorded(times_whole, 2, 5, 3);
    REFUSED(TN_E_UNSUPPORTED, "node 0 (mul) has a number that does not follow from it when it is 5",
            tn_program_generalize(p, q, 3, 0, 1, 99, "rows"));
    tn_program_unref(&p);
    tn_program_unref(&q);
}

static void test_sizes_of_inputs(void **state) {
    tn_program *p = recorded(plain, 0, 2, 3), *q = recorded(plain, 0, 4, 5);
    tn_program *rows = recorded(plain, 0, 4, 3), *cols = recorded(plain, 0, 2, 5);
    (void)state;
    REFUSED(TN_E_VALUE, "input 'x' differs in dimension 1, too",
            tn_program_generalize(p, q, 3, 0, 1, 99, "rows"));
    REFUSED(TN_E_VALUE, "input 'y' differs in dimension 0, too",
            tn_program_generalize(p, rows, 1, 0, 1, 99, "rows"));
    REFUSED(TN_E_VALUE, "the other recording has the same sizes",
            tn_program_generalize(p, p, 3, 0, 1, 99, "rows"));
    REFUSED(TN_E_INDEX, "input 'y' has no dimension 1",
            tn_program_generalize(p, cols, 3, 1, 1, 99, "cols"));
    REFUSED(TN_E_INDEX, "input 'x' has no dimension -2",
            tn_program_generalize(p, rows, 3, -2, 1, 99, "rows"));
    OK(tn_program_generalize(p, rows, 3, 0, 1, 99, "rows"));
    REFUSED(TN_E_STATE, "dimension 0 of 'x' is free already",
            tn_program_generalize(p, rows, 3, 0, 1, 99, "again"));
    tn_program_unref(&p);
    tn_program_unref(&q);
    tn_program_unref(&rows);
    tn_program_unref(&cols);
}

static tn_status run_rows(const tn_program *p, int64_t rows, float want) {
    tn_tensor *in[2] = {NULL, NULL}, *out = NULL;
    float got[64] = {0};
    OK(tn_full(TN_INTS(rows, 3), tn_scalar_float(1), TN_F32, -1, &in[0]));
    OK(tn_full(tn_ints_of(&rows, 1), tn_scalar_float(2), TN_F32, -1, &in[1]));
    tn_status st = tn_program_run(p, in, 2, &out, 1);
    if (st == TN_OK) {
        OK(tn_tensor_read(out, got, (uint64_t)rows * 3 * sizeof *got));
        for (int64_t i = 0; i < rows * 3; i++) assert_true(got[i] == want);
    }
    for (int i = 0; i < 2; i++) tn_tensor_unref(&in[i]);
    tn_tensor_unref(&out);
    return st;
}

/* The number is half of the rows. */
static void test_numbers_that_follow(void **state) {
    tn_program *p = recorded(times_whole, 1, 2, 3), *q = recorded(times_whole, 2, 4, 3);
    (void)state;
    OK(tn_program_generalize(p, q, 3, 0, 1, 10, "rows"));
    OK(run_rows(p, 8, 4));
    OK(run_rows(p, 10, 5));
    OK(run_rows(p, 2, 1));
    REFUSED(TN_E_SHAPE, "the program cannot run with rows = 5", run_rows(p, 5, 0));
    assert_int_equal(run_rows(p, 12, 6), TN_E_SHAPE); /* more than it may have */
    struct {
        int64_t rows, number;
        const char *words;
    } const others[] = {
        {6, 3, NULL},
        {6, 4, "node 0 (mul) has a number that follows from several sizes by no rule when it is 6"},
        {5, 2, "node 0 (mul) has no whole number when it is 5"},
    };
    for (int i = 0; i < 3; i++) {
        tn_program *other = recorded(times_whole, others[i].number, others[i].rows, 3);
        if (others[i].words)
            REFUSED(TN_E_UNSUPPORTED, others[i].words, tn_program_agrees(p, other));
        else
            OK(tn_program_agrees(p, other));
        tn_program_unref(&other);
    }
    tn_program_unref(&p);
    tn_program_unref(&q);
}

/* 5 * rows - 10, and one more at 7 columns: that follows from both by nothing that a program can say. */
static void test_numbers_of_several_sizes(void **state) {
    tn_program *p = recorded(times_whole, 0, 2, 5), *q = recorded(times_whole, 5, 3, 5);
    tn_program *r = recorded(times_whole, 1, 2, 7);
    (void)state;
    OK(tn_program_generalize(p, q, 3, 0, 1, 10, "rows"));
    REFUSED(TN_E_UNSUPPORTED,
            "has a number that follows from several sizes by no rule when it is 7",
            tn_program_generalize(p, r, 1, 1, 1, 10, "cols"));
    tn_program_unref(&p);
    tn_program_unref(&q);
    tn_program_unref(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_differs),
        cmocka_unit_test(test_sizes_of_inputs),
        cmocka_unit_test(test_numbers_that_follow),
        cmocka_unit_test(test_numbers_of_several_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
