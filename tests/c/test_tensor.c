/* test_tensor.c: tensors through the public C API: sizes, aliases, foreign memory, element access,
 * numbers, devices. Every failing call must leave its results untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <tenon/device_ext.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/tensor.h>

static const tn_device cpu = {0, 0};

static tn_tensor *ramp(int64_t n) {
    tn_tensor *t = NULL;
    float *data = malloc(sizeof *data * (size_t)(n ? n : 1));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) data[i] = (float)i;
    assert_int_equal(tn_tensor_from_data(TN_F32, 1, &n, data, &t), TN_OK);
    free(data);
    return t;
}

static void test_new_is_packed(void **state) {
    int64_t shape[] = {2, 3, 4};
    tn_tensor *t = NULL;
    (void)state;
    assert_int_equal(tn_tensor_new(TN_F64, cpu, 3, shape, &t), TN_OK);
    assert_int_equal(tn_tensor_numel(t), 24);
    assert_int_equal(tn_tensor_strides(t)[0], 12);
    assert_int_equal(tn_tensor_strides(t)[2], 1);
    assert_true(tn_view_is_contiguous(tn_tensor_view(t)));
    assert_int_equal((uintptr_t)tn_tensor_view(t)->data % 64, 0);
    tn_tensor_unref(&t);
    assert_null(t);
    tn_tensor_unref(&t); /* NULL is fine */
}

static void test_sizes_are_checked(void **state) {
    const int64_t big = INT64_C(1) << 32;
    int64_t square[] = {big, big}, huge[] = {INT64_C(1) << 62}, edge[] = {INT64_MAX, 2};
    int64_t negative[] = {2, -1}, empty[] = {0, INT64_C(1) << 40, INT64_C(1) << 40};
    int64_t many[65];
    tn_tensor *t = NULL;
    (void)state;
    for (int i = 0; i < 65; i++) many[i] = 1;
    assert_int_not_equal(tn_tensor_new(TN_F32, cpu, 2, square, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, 1, huge, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, 2, edge, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, 2, negative, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, 65, many, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, -1, many, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, cpu, 1, NULL, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(99, cpu, 1, many, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, (tn_device){30, 0}, 1, many, &t), TN_OK);
    assert_int_not_equal(tn_tensor_new(TN_U8, (tn_device){0, 1}, 1, many, &t), TN_OK);
    assert_null(t);
    assert_true(strlen(tn_error_last()->message) > 0);
    assert_int_equal(tn_tensor_new(TN_F32, cpu, 3, empty, &t), TN_OK);
    assert_int_equal(tn_tensor_numel(t), 0);
    tn_tensor_unref(&t);
    assert_int_equal(tn_tensor_new(TN_F32, cpu, 64, many, &t), TN_OK);
    assert_int_equal(tn_tensor_numel(t), 1);
    tn_tensor_unref(&t);
}

__extension__ typedef __int128 wide;

/* The rule of an alias, in 128-bit arithmetic. */
static int fits(int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, int64_t n) {
    wide lo = offset, hi = offset;
    if (offset < 0) return 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return 0;
        if (shape[i] == 0) return 1;
        wide span = (wide)(shape[i] - 1) * strides[i];
        if (span < 0)
            lo += span;
        else
            hi += span;
    }
    return lo >= 0 && hi < n;
}

static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void test_alias_against_oracle(void **state) {
    static const int64_t extremes[] = {0,
                                       1,
                                       2,
                                       3,
                                       5,
                                       10,
                                       -1,
                                       -3,
                                       INT64_MAX,
                                       INT64_MIN,
                                       INT64_C(1) << 62,
                                       INT64_C(9223372036854765808),
                                       INT64_C(7546629512955761371)};
    const int count = (int)(sizeof extremes / sizeof extremes[0]);
    tn_tensor *base = ramp(64);
    uint64_t seed = 42;
    int accepted = 0;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        int64_t shape[3], strides[3], offset;
        int ndim = (int)(next_random(&seed) % 4);
        int wild = next_random(&seed) % 4 == 0;
        for (int i = 0; i < ndim; i++) {
            shape[i] = wild ? extremes[next_random(&seed) % (uint64_t)count]
                            : (int64_t)(next_random(&seed) % 6);
            strides[i] = wild ? extremes[next_random(&seed) % (uint64_t)count]
                              : (int64_t)(next_random(&seed) % 24) - 4;
        }
        offset = wild ? extremes[next_random(&seed) % (uint64_t)count]
                      : (int64_t)(next_random(&seed) % 70);
        tn_tensor *view = NULL;
        tn_status st = tn_tensor_alias(base, TN_F32, ndim, shape, strides, offset, &view);
        if (st == TN_OK) {
            accepted++;
            if (tn_tensor_numel(view) > 0) assert_true(fits(ndim, shape, strides, offset, 64));
            tn_tensor_unref(&view);
        } else {
            /* An empty view may be refused for its other sizes, one that repeats elements more often
             * than there are bytes to address for its own. */
            double numel = 1.0;
            for (int i = 0; i < ndim; i++) numel *= shape[i] > 0 ? (double)shape[i] : 0.0;
            if (numel > 0.0 && numel < 0x1p59) assert_false(fits(ndim, shape, strides, offset, 64));
            assert_null(view);
        }
    }
    assert_true(accepted > 1000);
    tn_tensor_unref(&base);
}

static int released;
static void release(void *ctx) { released += *(int *)ctx; }

static void test_foreign_memory(void **state) {
    float data[6] = {0, 1, 2, 3, 4, 5};
    int64_t shape[] = {2, 3}, back[] = {6}, minus[] = {-1};
    int one = 1;
    tn_tensor *t = NULL, *view = NULL;
    (void)state;
    released = 0;
    assert_int_equal(
        tn_tensor_from_foreign(TN_F32, cpu, 2, shape, NULL, data, 1, release, &one, &t), TN_OK);
    assert_int_equal(tn_tensor_alias(t, TN_F32, 1, back, (int64_t[]){1}, 0, &view), TN_OK);
    tn_tensor_unref(&t);
    assert_int_equal(released, 0); /* the view still uses it */
    assert_int_equal(tn_tensor_write(view, data, sizeof data), TN_E_VALUE);
    assert_non_null(strstr(tn_error_last()->message, "write: the tensor's memory is read-only"));
    tn_tensor_unref(&view);
    assert_int_equal(released, 1);
    /* strides that run backwards: element 0 is the last of the memory */
    assert_int_equal(
        tn_tensor_from_foreign(TN_F32, cpu, 1, back, minus, &data[5], 0, release, &one, &t), TN_OK);
    float copy[6];
    assert_int_equal(tn_tensor_read(t, copy, sizeof copy), TN_OK);
    for (int i = 0; i < 6; i++) assert_true(copy[i] == (float)(5 - i));
    tn_tensor_unref(&t);
    assert_int_equal(released, 2);
}

static void test_read_write_item(void **state) {
    float got[6];
    tn_scalar s;
    tn_tensor *t = ramp(6), *turned = NULL, *one = NULL;
    int64_t shape[] = {3, 2}, strides[] = {1, 3};
    (void)state;
    assert_int_equal(tn_tensor_alias(t, TN_F32, 2, shape, strides, 0, &turned), TN_OK);
    assert_int_equal(tn_tensor_read(turned, got, sizeof got), TN_OK);
    assert_true(got[1] == 3.0f && got[4] == 2.0f);
    uint32_t version = tn_tensor_version(t);
    assert_int_equal(tn_tensor_write(turned, got, sizeof got), TN_OK);
    assert_int_equal(tn_tensor_version(t), version + 1);
    assert_int_equal(tn_tensor_read(t, got, 5), TN_E_VALUE);
    assert_int_equal(tn_tensor_item(t, &s), TN_E_STATE);
    assert_int_equal(tn_tensor_alias(t, TN_F32, 0, NULL, NULL, 5, &one), TN_OK);
    assert_int_equal(tn_tensor_item(one, &s), TN_OK);
    assert_true(s.re == 5.0);
    assert_int_equal(tn_tensor_item(NULL, &s), TN_E_TYPE);
    tn_tensor_unref(&one);
    tn_tensor_unref(&turned);
    tn_tensor_unref(&t);
}

static void test_what_no_tensor_is_asked(void **state) {
    (void)state;
    assert_int_equal(tn_tensor_version(NULL), 0);
    assert_int_equal(tn_tensor_storage_bytes(NULL), 0);
    assert_int_equal(tn_tensor_storage_id(NULL), 0);
    assert_int_equal(tn_tensor_storage_offset(NULL), 0);
    assert_null(tn_tensor_storage_data(NULL));
    assert_int_equal(tn_tensor_same_storage(NULL, NULL), 0);
    assert_int_equal(tn_tensor_settle(NULL), TN_E_TYPE);
    assert_int_equal(tn_tensor_show(NULL), TN_E_TYPE);
    tn_tensor_note_write(NULL);
    tn_tensor_note_change(NULL);
}

static void test_set_data_moves_geometry(void **state) {
    int64_t many[8] = {1, 1, 1, 1, 1, 1, 1, 6};
    tn_tensor *t = ramp(4), *src = NULL;
    (void)state;
    assert_int_equal(tn_tensor_new(TN_F32, cpu, 8, many, &src), TN_OK);
    assert_int_equal(tn_tensor_set_data(t, src), TN_OK); /* sizes on the heap */
    assert_int_equal(tn_tensor_ndim(t), 8);
    assert_true(tn_tensor_same_storage(t, src));
    tn_tensor_unref(&src);
    assert_int_equal(tn_tensor_shape(t)[7], 6);
    src = ramp(3);
    assert_int_equal(tn_tensor_set_data(t, src), TN_OK); /* and back inside */
    assert_int_equal(tn_tensor_shape(t)[0], 3);
    tn_tensor_unref(&src);
    tn_tensor_unref(&t);
}

static void test_promotion_is_a_lattice(void **state) {
    (void)state;
    for (int a = 0; a < TN_DTYPE_BUILTIN_COUNT; a++) {
        assert_int_equal(tn_dtype_promote(a, a), a);
        for (int b = 0; b < TN_DTYPE_BUILTIN_COUNT; b++) {
            int ab = tn_dtype_promote(a, b);
            assert_int_equal(ab, tn_dtype_promote(b, a));
            assert_int_equal(tn_dtype_promote(ab, a), ab);
        }
    }
    assert_int_equal(tn_dtype_promote(TN_U8, TN_I8), TN_I16);
    assert_int_equal(tn_dtype_promote(TN_F16, TN_BF16), TN_F32);
    assert_int_equal(tn_dtype_promote(TN_I64, TN_F16), TN_F16);
    assert_int_equal(tn_dtype_promote(TN_C64, TN_F64), TN_C128);
}

/* Small pieces lie together in one file, a large one has its own. */
static void test_shared_pieces(void **state) {
    enum { MANY = 40 };
    const int64_t sizes[] = {1, 15, 300, 5000, 100000};
    unsigned char handle[TN_SHARE_HANDLE_BYTES];
    tn_tensor *kept[MANY], *bytes = NULL;
    (void)state;
    for (int i = 0; i < MANY; i++) {
        int64_t n = sizes[i % 5];
        int32_t file = 7;
        kept[i] = ramp(n);
        assert_int_equal(tn_tensor_in_shared_memory(kept[i]), 0);
        assert_int_equal(tn_tensor_share_memory(kept[i]), TN_OK);
        assert_int_equal(tn_tensor_in_shared_memory(kept[i]), 1);
        assert_int_equal(tn_tensor_share(kept[i], handle, &file), TN_OK);
        assert_true((file >= 0) == (n == 100000));
        assert_int_equal(tn_tensor_open_shared(handle, file, &bytes), TN_OK);
        assert_int_equal(tn_tensor_numel(bytes), 4 * n);
        ((float *)tn_tensor_view(bytes)->data)[n - 1] = -8.0f;
        assert_true(((float *)tn_tensor_view(kept[i])->data)[n - 1] == -8.0f);
        tn_tensor_unref(&bytes);
        if (file >= 0) close(file);
        if (i % 3 == 0) tn_tensor_unref(&kept[i]);
    }
    for (int i = 0; i < MANY; i++) { /* no piece lies in another */
        if (i % 3 == 0) continue;
        int64_t n = tn_tensor_numel(kept[i]);
        const float *data = tn_tensor_view(kept[i])->data;
        for (int64_t k = 0; k < n - 1; k++) assert_true(data[k] == (float)k);
        assert_true(data[n - 1] == -8.0f);
        tn_tensor_unref(&kept[i]);
    }
}

/* A sparse tensor is shared by its components. */
static void test_shared_components(void **state) {
    unsigned char handle[TN_SHARE_HANDLE_BYTES];
    const int64_t places[] = {0, 3}, shape[] = {1, 2}, size = 5;
    int32_t file = 7;
    tn_tensor *index = NULL, *values = ramp(2), *t = NULL, *dense = NULL;
    (void)state;
    assert_int_equal(tn_tensor_from_data(TN_I64, 2, shape, places, &index), TN_OK);
    assert_int_equal(tn__sparse_coo(index, values, tn_ints_of(&size, 1), 1, 1, &t), TN_OK);
    assert_int_equal(tn_tensor_in_shared_memory(t), 0);
    tn_tensor_unref(&index);
    tn_tensor_unref(&values);
    assert_int_equal(tn_tensor_share_memory(t), TN_OK);
    assert_int_equal(tn_tensor_in_shared_memory(t), 1);
    assert_int_equal(tn_tensor_share(t, handle, &file), TN_E_TYPE);
    assert_non_null(strstr(tn_error_last()->message, "a sparse tensor is sent by its components"));
    assert_int_equal(file, 7);
    float want[] = {0, 0, 0, 1, 0}, got[5];
    assert_int_equal(tn_to_dense(t, -1, 0, &dense), TN_OK);
    assert_int_equal(tn_tensor_read(dense, got, sizeof got), TN_OK);
    assert_memory_equal(got, want, sizeof got);
    tn_tensor_unref(&dense);
    tn_tensor_unref(&t);
}

static void test_lists_end(void **state) {
    tn_tensor *x = ramp(4);
    tn_tensor_list parts = {NULL, 0};
    (void)state;
    tn_tensor_list_free(NULL);
    tn_tensor_list_free(&parts);
    assert_int_equal(tn_split(x, 2, 0, &parts), TN_OK);
    assert_int_equal(parts.n, 2);
    tn_tensor_list_free(&parts);
    assert_null(parts.v);
    assert_int_equal(parts.n, 0);
    tn_tensor_list_free(&parts);
    tn_tensor_unref(&x);
}

static void test_device_names(void **state) {
    tn_device d = {7, 7};
    static const char *const bad[] = {"",       "cpu:",
                                      "cpu:x",  "cpu:01",
                                      "cpu:-1", "cpu:1000",
                                      "cpu:1",  "no-such-device",
                                      "../cpu", "a-name-of-more-than-thirty-one-characters"};
    (void)state;
    assert_int_equal(tn_device_parse("cpu", &d), TN_OK);
    assert_int_equal(d.slot, 0);
    d = (tn_device){7, 7};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(tn_device_parse(bad[i], &d), TN_OK);
        assert_int_equal(d.slot, 7);
    }
    assert_int_not_equal(tn_device_parse(NULL, &d), TN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_is_packed),
        cmocka_unit_test(test_sizes_are_checked),
        cmocka_unit_test(test_alias_against_oracle),
        cmocka_unit_test(test_foreign_memory),
        cmocka_unit_test(test_read_write_item),
        cmocka_unit_test(test_set_data_moves_geometry),
        cmocka_unit_test(test_promotion_is_a_lattice),
        cmocka_unit_test(test_device_names),
        cmocka_unit_test(test_shared_pieces),
        cmocka_unit_test(test_shared_components),
        cmocka_unit_test(test_lists_end),
        cmocka_unit_test(test_what_no_tensor_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
