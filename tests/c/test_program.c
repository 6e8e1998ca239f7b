/* test_program.c: programs through the public C API: recording, passes, files, and files that are
 * damaged in every way. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/program.h>
#include <tenon/runtime.h>

static tn_tensor *row(const float *data, int64_t n) {
    tn_tensor *t = NULL;
    assert_int_equal(tn_tensor_from_data(TN_F32, 1, &n, data, &t), TN_OK);
    return t;
}

static tn_tensor *pair(float a, float b) {
    const float data[2] = {a, b};
    return row(data, 2);
}

static void assert_pair(const tn_tensor *t, float a, float b) {
    float data[2];
    assert_int_equal(tn_tensor_read(t, data, sizeof data), TN_OK);
    assert_true(data[0] == a && data[1] == b);
}

static void run_pair(const tn_program *p, float a, float b, float c, float d) {
    tn_tensor *x = pair(a, b), *y = NULL;
    assert_int_equal(tn_program_run(p, &x, 1, &y, 1), TN_OK);
    assert_pair(y, c, d);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
}

/* y = (x * w + w) with x * w computed twice, something that nobody needs, and 2 + 3 of constants. */
static tn_program *record(void) {
    tn_tensor *x = pair(1, 2), *w = pair(3, 4), *k = pair(2, 2);
    tn_tensor *a = NULL, *b = NULL, *c = NULL, *dead = NULL, *five = NULL, *y = NULL;
    tn_program *p = NULL;
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_true(tn_program_is_recording());
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_program_add_weight(p, w, "w", TN_PROGRAM_PARAMETER), TN_OK);
    assert_int_equal(tn_mul(x, w, &a), TN_OK);
    assert_int_equal(tn_exp(a, &dead), TN_OK);
    assert_int_equal(tn_mul(x, w, &b), TN_OK);
    assert_int_equal(tn_add(k, k, tn_scalar_int(1), &five), TN_OK);
    assert_int_equal(tn_add(a, b, tn_scalar_int(1), &c), TN_OK);
    assert_int_equal(tn_add(c, five, tn_scalar_int(2), &y), TN_OK);
    tn_tensors outputs = {&y, 1};
    assert_int_equal(tn_program_end(p, outputs), TN_OK);
    assert_false(tn_program_is_recording());
    tn_tensor *all[] = {x, w, k, a, b, c, dead, five, y};
    for (int i = 0; i < 9; i++) tn_tensor_unref(&all[i]);
    return p;
}

static void test_record_and_run(void **state) {
    tn_program *p = record();
    tn_program_slot slot;
    (void)state;
    assert_int_equal(tn_program_nodes(p), 6);
    run_pair(p, 1, 2, 2 * 3 + 8, 2 * 8 + 8);
    run_pair(p, -1, 0, -6 + 8, 8);
    assert_int_equal(tn_program_input_at(p, 0, &slot), TN_OK);
    assert_string_equal(slot.name, "x");
    assert_true(slot.ndim == 1 && slot.shape[0] == 2 && slot.dtype == TN_F32);
    assert_int_equal(tn_program_input_at(p, 1, &slot), TN_E_INDEX);
    tn_program_unref(&p);
    assert_null(p);
}

static void test_passes(void **state) {
    tn_program *p = record();
    (void)state;
    assert_int_equal(tn_program_optimize(p, TN_PROGRAM_DEAD), TN_OK);
    assert_int_equal(tn_program_nodes(p), 5); /* without exp */
    assert_int_equal(tn_program_optimize(p, TN_PROGRAM_FOLD), TN_OK);
    assert_int_equal(tn_program_nodes(p), 4); /* without k + k */
    assert_int_equal(tn_program_optimize(p, TN_PROGRAM_COMMON | TN_PROGRAM_DEAD), TN_OK);
    assert_int_equal(tn_program_nodes(p), 3); /* with one product */
    assert_int_equal(tn_program_verify(p), TN_OK);
    run_pair(p, 1, 2, 2 * 3 + 8, 2 * 8 + 8);
    tn_program_unref(&p);
}

/* A view of x is written between two equal products: both are computed, and x has changed. */
static void test_writes_stay(void **state) {
    tn_tensor *x = pair(1, 2), *first = NULL, *a = NULL, *same = NULL, *b = NULL, *y = NULL;
    tn_program *p = NULL;
    (void)state;
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_mul(x, x, &a), TN_OK);
    assert_int_equal(tn_narrow(x, 0, 0, 1, &first), TN_OK);
    assert_int_equal(tn_fill_(first, tn_scalar_float(10), &same), TN_OK);
    assert_int_equal(tn_mul(x, x, &b), TN_OK);
    assert_int_equal(tn_add(a, b, tn_scalar_int(1), &y), TN_OK);
    tn_tensors outputs = {&y, 1};
    assert_int_equal(tn_program_end(p, outputs), TN_OK);
    assert_int_equal(tn_program_optimize(p, TN_PROGRAM_DEAD | TN_PROGRAM_COMMON | TN_PROGRAM_FOLD),
                     TN_OK);
    tn_tensor *z = pair(3, 4), *out = NULL;
    assert_int_equal(tn_program_run(p, &z, 1, &out, 1), TN_OK);
    assert_pair(out, 9 + 100, 16 + 16);
    assert_pair(z, 10, 4);
    tn_tensor *all[] = {x, first, a, same, b, y, z, out};
    for (int i = 0; i < 8; i++) tn_tensor_unref(&all[i]);
    tn_program_unref(&p);
}

static void test_bad_calls(void **state) {
    tn_program *p = record(), *q = NULL;
    tn_tensor *x = pair(1, 2), *y = NULL, *wide = NULL;
    const int64_t three = 3;
    const float data[3] = {1, 2, 3};
    (void)state;
    assert_int_equal(tn_program_run(NULL, &x, 1, &y, 1), TN_E_TYPE);
    assert_int_equal(tn_program_run(p, &x, 2, &y, 1), TN_E_VALUE);
    assert_int_equal(tn_program_run(p, &x, 1, &y, 0), TN_E_VALUE);
    assert_int_equal(tn_tensor_from_data(TN_F32, 1, &three, data, &wide), TN_OK);
    assert_int_equal(tn_program_run(p, &wide, 1, &y, 1), TN_E_SHAPE);
    assert_non_null(strstr(tn_error_last()->message, "'x'"));
    assert_null(y);
    assert_int_equal(tn_program_begin(&q), TN_OK);
    assert_int_equal(tn_program_run(q, &x, 1, &y, 1), TN_E_STATE);
    tn_program *r = NULL;
    assert_int_equal(tn_program_begin(&r), TN_E_STATE);
    assert_null(r);
    tn_program_cancel(q);
    assert_false(tn_program_is_recording());
    tn_program_unref(&q);
    assert_int_equal(tn_program_load("/nowhere/at/all.tng", &q), TN_E_VALUE);
    assert_int_equal(tn_program_load(NULL, &q), TN_E_TYPE);
    assert_int_equal(tn_program_print(p, 99, NULL), TN_E_TYPE);
    tn_tensor_unref(&x);
    tn_tensor_unref(&wide);
    tn_program_unref(&p);
}

/* A write to a tensor that nobody declared could not be made again. */
static void test_constant_is_written(void **state) {
    tn_tensor *x = pair(1, 2), *hidden = pair(0, 0), *same = NULL;
    tn_program *p = NULL;
    (void)state;
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_copy_(hidden, x, 0, &same), TN_E_UNSUPPORTED);
    tn_tensors outputs = {&hidden, 1};
    assert_int_equal(tn_program_end(p, outputs), TN_E_UNSUPPORTED);
    assert_false(tn_program_is_recording());
    tn_program_unref(&p);
    tn_tensor_unref(&x);
    tn_tensor_unref(&hidden);
}

static void test_text(void **state) {
    static const char *const expected[] = {"program(%x: float32[2])", "digraph program",
                                           "\"nodes\""};
    tn_program *p = record();
    (void)state;
    for (int form = TN_PROGRAM_TEXT; form <= TN_PROGRAM_JSON; form++) {
        char *text = NULL;
        assert_int_equal(tn_program_print(p, form, &text), TN_OK);
        assert_non_null(strstr(text, expected[form]));
        tn_free(text);
    }
    tn_program_unref(&p);
}

/* ---- Files -------------------------------------------------------------------------------------*/

static unsigned char *file_of(const tn_program *p, uint64_t *ret_n) {
    void *bytes = NULL;
    assert_int_equal(tn_program_write(p, &bytes, ret_n), TN_OK);
    return bytes;
}

static void test_file(void **state) {
    char path[] = "/tmp/tenon-program-XXXXXX";
    tn_program *p = record(), *q = NULL;
    uint64_t n, m;
    (void)state;
    assert_int_equal(tn_program_set_note(p, "by hand"), TN_OK);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tn_program_save(p, path), TN_OK);
    assert_int_equal(tn_program_load(path, &q), TN_OK);
    assert_int_equal(unlink(path), 0);
    run_pair(q, 1, 2, 2 * 3 + 8, 2 * 8 + 8);
    assert_string_equal(tn_program_note(q), "by hand");
    unsigned char *a = file_of(p, &n), *b = file_of(q, &m);
    assert_true(n == m && memcmp(a, b, n) == 0);
    tn_program_unref(&p);
    tn_program_unref(&q);
    assert_int_equal(tn_program_parse(a, n, &q), TN_OK);
    free(a);
    run_pair(q, -1, 0, -6 + 8, 8);
    tn_program_unref(&q);
    free(b);
}

static uint64_t u64_at(const unsigned char *f, int at) {
    uint64_t v;
    memcpy(&v, f + at, sizeof v);
    return v;
}

/* The hash is no protection: the reader has to look at everything itself. */
static void sign(unsigned char *f) {
    uint64_t h = UINT64_C(14695981039346656037), at = u64_at(f, 16), n = u64_at(f, 24);
    for (uint64_t i = 0; i < n; i++) h = (h ^ f[at + i]) * UINT64_C(1099511628211);
    memcpy(f + 48, &h, sizeof h);
}

/* Whatever comes of it, it is a program that can be run, or an error with a text. */
static void try_file(const unsigned char *f, uint64_t n) {
    tn_program *p = NULL;
    tn_tensor *x = pair(1, 2), *y[4] = {NULL};
    tn_status st = tn_program_parse(f, n, &p);
    assert_int_equal(st == TN_OK, p != NULL);
    if (p && tn_program_inputs(p) <= 1 && tn_program_outputs(p) <= 4)
        (void)tn_program_run(p, &x, tn_program_inputs(p), y, tn_program_outputs(p));
    if (st != TN_OK) assert_true(tn_error_last()->message[0] != 0);
    for (int i = 0; i < 4; i++) tn_tensor_unref(&y[i]);
    tn_tensor_unref(&x);
    tn_program_unref(&p);
}

static void test_damaged_files(void **state) {
    tn_program *p = record(), *q = NULL;
    uint64_t n, seed = 1;
    (void)state;
    unsigned char *good = file_of(p, &n), *bad = malloc(n + 64);
    assert_non_null(bad);
    uint64_t data = u64_at(good, 32), sums = data + u64_at(good, 40);
    assert_true(data < sums && sums < n);
    for (uint64_t k = 0; k < n; k++) { /* cut off anywhere */
        assert_int_equal(tn_program_parse(good, k, &q), TN_E_VALUE);
        assert_null(q);
    }
    uint64_t graph = u64_at(good, 16), length = u64_at(good, 24);
    for (uint64_t k = 0; k < graph + length; k++) { /* a byte wrong, with and without the hash */
        for (int how = 0; how < 4; how++) {
            memcpy(bad, good, n);
            bad[k] = (unsigned char)(how == 0   ? bad[k] ^ 0xff
                                     : how == 1 ? bad[k] + 1
                                     : how == 2 ? 0x80
                                                : bad[k] ^ 1);
            if (memcmp(bad, good, n) == 0) continue;
            if (k >= graph) assert_int_equal(tn_program_parse(bad, n, &q), TN_E_VALUE);
            if (k >= graph) sign(bad);
            try_file(bad, n);
        }
    }
    for (uint64_t bit = 0; bit < 8 * n; bit++) { /* a bit wrong anywhere, and what fills up */
        memcpy(bad, good, n);
        bad[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(tn_program_parse(bad, n, &q), TN_E_VALUE);
        assert_null(q);
    }
    memcpy(bad, good, n);
    memset(bad + sums, 0, 64); /* more data, and no checksums */
    bad[40] += 64;
    bad[8] = 3; /* a version without them */
    assert_int_equal(tn_program_parse(bad, sums + 64, &q), TN_E_VALUE);
    assert_non_null(strstr(tn_error_last()->message, "something follows the weights"));
    memcpy(bad, good, n); /* as it was written before there were checksums */
    bad[8] = 3;
    assert_int_equal(tn_program_parse(bad, sums, &q), TN_OK);
    run_pair(q, 1, 2, 2 * 3 + 8, 2 * 8 + 8);
    tn_program_unref(&q);
    for (int round = 0; round < 20000; round++) { /* several wrong */
        memcpy(bad, good, n);
        for (int i = 0; i < 1 + round % 5; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            bad[graph + (seed >> 33) % length] = (unsigned char)(seed >> 25);
        }
        sign(bad);
        try_file(bad, n);
    }
    free(good);
    free(bad);
    tn_program_unref(&p);
}

/* Where in f the 64-bit number v is, for the first time behind `from`. */
static uint64_t place_of(const unsigned char *f, uint64_t n, uint64_t from, int64_t v) {
    for (uint64_t k = from; k + 8 <= n; k++)
        if (memcmp(f + k, &v, 8) == 0) return k;
    return 0;
}

/* A number whose two forms differ is what its kind says, to whoever reads it. */
static void test_numbers_of_two_minds(void **state) {
    tn_tensor *x = pair(1, 2), *y = NULL;
    tn_program *p = NULL, *q = NULL;
    uint64_t n = 0;
    const double half = 0.5, seven = 7.0;
    (void)state;
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_mul_scalar(x, tn_scalar_float(half), &y), TN_OK);
    assert_int_equal(tn_program_end(p, (tn_tensors){&y, 1}), TN_OK);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    unsigned char *f = file_of(p, &n);
    int64_t bits, other;
    memcpy(&bits, &half, 8);
    memcpy(&other, &seven, 8);
    uint64_t at = place_of(f, n, 64, bits); /* kind, integer, float, imaginary part */
    assert_true(at > 12);
    const int32_t whole = TN_CAT_INT;
    const int64_t three = 3, none = 0;
    memcpy(f + at - 8, &three, 8);
    sign(f);
    assert_int_equal(tn_program_parse(f, n, &q), TN_OK);
    run_pair(q, 2, 4, 1, 2);
    free(f);
    f = file_of(q, &n);
    assert_memory_equal(f + at - 8, &none, 8); /* written as one number again */
    tn_program_unref(&q);
    memcpy(f + at - 12, &whole, 4);
    memcpy(f + at - 8, &three, 8);
    memcpy(f + at, &other, 8);
    sign(f);
    assert_int_equal(tn_program_parse(f, n, &q), TN_OK);
    run_pair(q, 2, 4, 6, 12);
    char *text = NULL;
    assert_int_equal(tn_program_print(q, TN_PROGRAM_TEXT, &text), TN_OK);
    assert_non_null(strstr(text, "other=3)"));
    tn_free(text);
    free(f);
    tn_program_unref(&q);
    tn_program_unref(&p);
}

/* A pipe makes nobody wait and is not replaced; a link stays, and so do the file's rights. */
static void test_places(void **state) {
    char folder[] = "/tmp/tenon-places-XXXXXX", pipe[64], file[64], link[64];
    struct stat info;
    tn_program *p = record(), *q = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(tn_program_load(pipe, &q), TN_E_VALUE);
    assert_int_equal(tn_program_save(p, pipe), TN_E_VALUE);
    assert_int_equal(tn_program_save(p, folder), TN_E_VALUE);
    assert_true(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
    assert_int_equal(tn_program_save(p, file), TN_OK);
    assert_int_equal(chmod(file, 0640), 0);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(tn_program_save(p, link), TN_OK);
    assert_true(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    assert_true(lstat(file, &info) == 0 && (info.st_mode & 0777) == 0640);
    assert_int_equal(tn_program_load(link, &q), TN_OK);
    tn_program_unref(&q);
    tn_program_unref(&p);
    assert_true(unlink(pipe) == 0 && unlink(file) == 0 && unlink(link) == 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else is left there */
}

static void expect_refused(unsigned char *f, uint64_t n, const char *why) {
    tn_program *q = NULL;
    sign(f);
    assert_int_equal(tn_program_parse(f, n, &q), TN_E_VALUE);
    assert_null(q);
    assert_non_null(strstr(tn_error_last()->message, why));
}

/* What is a choice in the file is 0 or 1. */
static void test_choices(void **state) {
    tn_program *p = record();
    uint64_t n = 0;
    (void)state;
    unsigned char *f = file_of(p, &n);
    const unsigned char named[] = {1, 0, 0, 0, 1, 0, 0, 0, 'x'}; /* x has a name: a text follows */
    uint64_t at = 64;
    while (at + sizeof named < n && memcmp(f + at, named, sizeof named) != 0) at++;
    assert_true(at + sizeof named < n);
    f[at] = 2;
    expect_refused(f, n, "neither 0 nor 1");
    free(f);
    tn_program_unref(&p);
}

/* x[n, 3] flattened: the number 3n follows from the free size of an input, and of nothing else. */
static void test_sizes_of_nothing(void **state) {
    tn_program *p[2] = {NULL};
    uint64_t n = 0;
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_tensor *x = NULL, *y = NULL;
        assert_int_equal(tn_full(TN_INTS(5 + k, 3), tn_scalar_float(1), TN_F32, -1, &x), TN_OK);
        assert_int_equal(tn_program_begin(&p[k]), TN_OK);
        assert_int_equal(tn_program_add_input(p[k], x, "x"), TN_OK);
        assert_int_equal(tn_reshape(x, TN_INTS((5 + k) * 3), &y), TN_OK);
        assert_int_equal(tn_program_end(p[k], (tn_tensors){&y, 1}), TN_OK);
        tn_tensor_unref(&x);
        tn_tensor_unref(&y);
    }
    assert_int_equal(tn_program_generalize(p[0], p[1], 1, 0, 1, 77, "rows"), TN_OK);
    unsigned char *good = file_of(p[0], &n), *f = malloc(n);
    assert_non_null(f);
    uint64_t size = place_of(good, n, 64, -1); /* of x: [-1, 3], and then its symbols: 0, -1 */
    assert_true(size > 0);
    const int64_t three = 3;
    const int32_t none = -1, flag = 1;
    assert_memory_equal(good + size + 8, &three, 8);
    assert_memory_equal(good + size + 16, &flag, 4);
    memcpy(f, good, n);
    memcpy(f + size, &three, 8);
    memcpy(f + size + 20, &none, 4);
    expect_refused(f, n, "no input of the program has the size rows");
    memcpy(f, good, n);
    memcpy(f + size + 20, &none, 4); /* a size that is neither known nor free */
    expect_refused(f, n, "unknown size");
    memcpy(f, good, n);
    memcpy(f + size + 8, &three, 8);
    memcpy(f + size, &three, 8); /* known and free */
    expect_refused(f, n, "unknown size");
    free(good);
    free(f);
    tn_program_unref(&p[0]);
    tn_program_unref(&p[1]);
}

static void given_back(void *ctx) { ++*(int *)ctx; }

static void test_weights_are_given_back(void **state) {
    const tn_device cpu = {0, 0};
    float data[2] = {3, 4};
    const int64_t two = 2;
    int times = 0;
    tn_tensor *x = pair(1, 2), *w = NULL, *y = NULL;
    tn_program *p = NULL;
    (void)state;
    assert_int_equal(
        tn_tensor_from_foreign(TN_F32, cpu, 1, &two, NULL, data, 0, given_back, &times, &w), TN_OK);
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_program_add_weight(p, w, "w", TN_PROGRAM_PARAMETER), TN_OK);
    assert_int_equal(tn_mul(x, w, &y), TN_OK);
    assert_int_equal(tn_program_end(p, (tn_tensors){&y, 1}), TN_OK);
    tn_tensor_unref(&x);
    tn_tensor_unref(&w);
    tn_tensor_unref(&y);
    run_pair(p, 1, 2, 3, 8);
    assert_int_equal(times, 0);
    tn_program_unref(&p);
    assert_int_equal(times, 1);
}

/* Two weights of one memory would be two in a file: what is written to one would not reach the other. */
static void test_weights_that_lie_in_each_other(void **state) {
    (void)state;
    for (int writes = 0; writes < 2; writes++) {
        tn_tensor *x = pair(1, 2), *whole = pair(3, 4), *part = NULL, *y = NULL, *same = NULL;
        tn_program *p = NULL;
        void *bytes = NULL;
        uint64_t n = 0;
        assert_int_equal(tn_narrow(whole, 0, 0, 1, &part), TN_OK);
        assert_int_equal(tn_program_begin(&p), TN_OK);
        assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
        assert_int_equal(tn_program_add_weight(p, whole, "whole", TN_PROGRAM_BUFFER), TN_OK);
        assert_int_equal(tn_program_add_weight(p, part, "part", TN_PROGRAM_BUFFER), TN_OK);
        if (writes) assert_int_equal(tn_copy_(whole, x, 0, &same), TN_OK);
        assert_int_equal(tn_mul(x, part, &y), TN_OK);
        assert_int_equal(tn_program_end(p, (tn_tensors){&y, 1}), TN_OK);
        assert_int_equal(tn_program_write(p, &bytes, &n), writes ? TN_E_UNSUPPORTED : TN_OK);
        if (writes)
            assert_non_null(strstr(tn_error_last()->message,
                                   "copy_ writes to a weight that shares memory with another one"));
        free(bytes);
        tn_tensor *all[] = {x, whole, part, y, same};
        for (int i = 0; i < 5; i++) tn_tensor_unref(&all[i]);
        tn_program_unref(&p);
    }
}

/* Inputs are named by the bits of a number: what comes behind the last bit cannot be. */
static void test_more_inputs_than_bits(void **state) {
    enum { INPUTS = 66 };
    tn_program *p[2] = {NULL};
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_tensor *x[INPUTS] = {NULL}, *y = NULL;
        for (int i = 0; i < INPUTS; i++) {
            int64_t size = 5 + k;
            assert_int_equal(
                tn_full(tn_ints_of(&size, i == 0), tn_scalar_float(1), TN_F32, -1, &x[i]), TN_OK);
        }
        assert_int_equal(tn_program_begin(&p[k]), TN_OK);
        for (int i = 0; i < INPUTS; i++) {
            char name[8];
            snprintf(name, sizeof name, "x%d", i);
            assert_int_equal(tn_program_add_input(p[k], x[i], name), TN_OK);
        }
        assert_int_equal(tn_add(x[0], x[INPUTS - 1], tn_scalar_int(1), &y), TN_OK);
        assert_int_equal(tn_program_end(p[k], (tn_tensors){&y, 1}), TN_OK);
        for (int i = 0; i < INPUTS; i++) tn_tensor_unref(&x[i]);
        tn_tensor_unref(&y);
    }
    assert_int_equal(tn_program_generalize(p[0], p[1], 1, 0, 1, 77, "rows"), TN_OK);
    assert_int_equal(tn_program_generalize(p[0], p[1], 1, 0, 1, 77, "again"), TN_E_STATE);
    assert_non_null(strstr(tn_error_last()->message, "dimension 0 of 'x0' is free already"));
    tn_program_unref(&p[0]);
    tn_program_unref(&p[1]);
}

static void test_versions_and_names(void **state) {
    tn_program *p = record(), *q = NULL;
    uint64_t n;
    (void)state;
    unsigned char *f = file_of(p, &n);
    unsigned char version = f[8];
    f[8] = 5;
    assert_int_equal(tn_program_parse(f, n, &q), TN_E_VALUE);
    assert_non_null(strstr(tn_error_last()->message, "version 5"));
    f[8] = version;
    for (uint64_t k = 64; k + 5 < n; k++) /* an operator that is not there */
        if (memcmp(f + k, "mul@1", 5) == 0) memcpy(f + k, "mux@1", 5);
    sign(f);
    assert_int_equal(tn_program_parse(f, n, &q), TN_E_VALUE);
    assert_non_null(strstr(tn_error_last()->message, "mux"));
    free(f);
    tn_program_unref(&p);
}

/* y = exp(x) is looked at between two multiplications, the second of which nobody sees. */
static void test_looks_and_pauses(void **state) {
    tn_tensor *x = pair(1, 2), *y = NULL, *hidden = NULL, *z = NULL;
    tn_program *p = NULL;
    tn_program_look look;
    int32_t value = -7;
    (void)state;
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_exp(x, &y), TN_OK);
    tn_program_note_read(y);
    assert_int_equal(tn_program_pause(p, 1), TN_OK);
    assert_false(tn_program_is_recording());
    assert_int_equal(tn_mul(y, y, &hidden), TN_OK);
    tn_program_note_read(hidden);
    assert_int_equal(tn_program_pause(p, 0), TN_OK);
    assert_int_equal(tn_program_add_input(p, hidden, "hidden"), TN_OK);
    assert_int_equal(tn_mul(hidden, x, &z), TN_OK);
    assert_int_equal(tn_program_value(p, y, &value), TN_OK);
    assert_int_equal(value, 1);
    tn_tensors outputs = {&z, 1};
    assert_int_equal(tn_program_end(p, outputs), TN_OK);
    assert_int_equal(tn_program_nodes(p), 2);
    assert_int_equal(tn_program_look_at(p, 0, &look), TN_OK);
    assert_true(look.position == 1 && look.value == 1 && look.tensor == y && look.version == 0);
    assert_true(look.nlive == 1 && look.live[0] == 1);
    assert_int_equal(tn_program_look_at(p, 1, &look), TN_E_INDEX);
    assert_int_equal(tn_program_value(p, y, &value), TN_E_STATE);
    assert_int_equal(tn_program_pause(p, 1), TN_E_STATE);
    tn_tensor **all[] = {&x, &y, &hidden, &z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tn_tensor_unref(all[i]);
    tn_program_unref(&p);
}

/* A write to a constant goes through where the recording tolerates it, and is what its end says. */
static void test_tolerance(void **state) {
    tn_tensor *x = pair(1, 2), *k = pair(0, 0), *y = NULL;
    tn_program *p = NULL;
    (void)state;
    assert_int_equal(tn_program_tolerate(p), TN_E_STATE);
    assert_int_equal(tn_program_begin(&p), TN_OK);
    assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
    assert_int_equal(tn_program_tolerate(p), TN_OK);
    assert_int_equal(tn_copy_(k, x, 0, &y), TN_OK);
    assert_pair(k, 1, 2);
    tn_tensors outputs = {&y, 1};
    assert_int_equal(tn_program_end(p, outputs), TN_E_UNSUPPORTED);
    assert_non_null(strstr(tn_error_last()->message, "copy_ writes to a tensor"));
    tn_tensor_unref(&x);
    tn_tensor_unref(&k);
    tn_tensor_unref(&y);
    tn_program_unref(&p);
}

/* A composite is recorded as its parts where it is named, and as one node otherwise. */
static void test_taken_apart(void **state) {
    const char *const names[] = {"no_such_operator", "kron"};
    const int32_t nodes[] = {1, 4, 4};
    (void)state;
    for (int32_t which = 0; which < 3; which++) {
        tn_tensor *x = pair(1, 2), *y = NULL, *again = NULL;
        tn_program *p = NULL;
        assert_int_equal(tn_program_take_apart(p, names, 2), TN_E_STATE);
        assert_int_equal(tn_program_begin(&p), TN_OK);
        assert_int_equal(tn_program_add_input(p, x, "x"), TN_OK);
        assert_int_equal(tn_program_take_apart(p, NULL, 1), TN_E_TYPE);
        assert_int_equal(tn_program_take_apart(p, names, -2), TN_E_TYPE);
        assert_int_equal(tn_program_take_apart(p, names, which == 2 ? -1 : which + 1), TN_OK);
        assert_int_equal(tn_kron(x, x, &y), TN_OK);
        tn_tensors outputs = {&y, 1};
        assert_int_equal(tn_program_end(p, outputs), TN_OK);
        assert_int_equal(tn_program_nodes(p), nodes[which]);
        assert_int_equal(tn_program_run(p, &x, 1, &again, 1), TN_OK);
        float data[4];
        assert_int_equal(tn_tensor_read(again, data, sizeof data), TN_OK);
        assert_true(data[0] == 1 && data[1] == 2 && data[2] == 2 && data[3] == 4);
        tn_tensor_unref(&x);
        tn_tensor_unref(&y);
        tn_tensor_unref(&again);
        tn_program_unref(&p);
    }
}

/* The address of a result is NULL until it is settled; that of an operand is shown before it is written. */
static void test_deferred(void **state) {
    int64_t n = 1 << 18;
    tn_tensor *x = NULL, *y = NULL, *z = NULL, *w = NULL;
    (void)state;
    assert_int_equal(tn_ones(tn_ints_of(&n, 1), TN_F32, 0, &x), TN_OK);
    assert_int_equal(tn_deferred_end(), TN_E_STATE);
    assert_int_equal(tn_deferred_begin(), TN_OK);
    assert_int_equal(tn_add(x, x, tn_scalar_int(1), &y), TN_OK);
    assert_int_equal(tn_mul(y, y, &z), TN_OK);
    assert_int_equal(tn_deferred_calls(), 2);
    assert_true(tn_tensor_numel(z) == n && !tn_tensor_view(z)->data);
    assert_int_equal(tn_tensor_settle(z), TN_OK);
    assert_int_equal(tn_deferred_calls(), 0);
    assert_true(((const float *)tn_tensor_view(z)->data)[n - 1] == 4);
    assert_true(((const float *)tn_tensor_view(y)->data)[0] == 2);
    assert_int_equal(tn_add(x, x, tn_scalar_int(1), &w), TN_OK);
    assert_int_equal(tn_deferred_calls(), 1);
    assert_int_equal(tn_tensor_show(x), TN_OK);
    assert_int_equal(tn_deferred_calls(), 0);
    ((float *)tn_tensor_view(x)->data)[0] = 7;
    assert_true(((const float *)tn_tensor_view(w)->data)[0] == 2);
    tn_tensor_unref(&w);
    assert_int_equal(tn_add(x, x, tn_scalar_int(1), &w), TN_OK);
    assert_int_equal(tn_deferred_calls(), 0);
    assert_true(((const float *)tn_tensor_view(w)->data)[0] == 14);
    assert_int_equal(tn_deferred_end(), TN_OK);
    assert_int_equal(tn_tensor_settle(NULL), TN_E_TYPE);
    assert_int_equal(tn_tensor_show(NULL), TN_E_TYPE);
    tn_tensor *all[] = {x, y, z, w};
    for (int i = 0; i < 4; i++) tn_tensor_unref(&all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_and_run),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_writes_stay),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_constant_is_written),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_sizes_of_nothing),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_numbers_of_two_minds),
        cmocka_unit_test(test_weights_are_given_back),
        cmocka_unit_test(test_weights_that_lie_in_each_other),
        cmocka_unit_test(test_more_inputs_than_bits),
        cmocka_unit_test(test_versions_and_names),
        cmocka_unit_test(test_looks_and_pauses),
        cmocka_unit_test(test_tolerance),
        cmocka_unit_test(test_taken_apart),
        cmocka_unit_test(test_deferred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
