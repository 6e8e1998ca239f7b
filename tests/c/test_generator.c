/* test_generator.c: random number generators through the public C API: seeds, states, kinds, and the
 * states that must be refused because drawing from them would leave their memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/tensor.h>

static const tn_device cpu = {0, 0};
enum { MT_BYTES = 5056, PHILOX_BYTES = 16 };

static void draw(tn_generator *gen, float *dst, int64_t n) {
    tn_tensor *t = NULL;
    assert_int_equal(tn_randn(tn_ints_of(&n, 1), gen, TN_F32, -1, &t), TN_OK);
    assert_int_equal(tn_tensor_read(t, dst, sizeof *dst * (uint64_t)n), TN_OK);
    tn_tensor_unref(&t);
}

/* A state taken in the middle gives the same numbers again, also in another generator. */
static void state_round_trip(uint32_t kind, uint64_t bytes) {
    unsigned char saved[MT_BYTES];
    uint64_t room = sizeof saved, asked = 0;
    float a[41], b[41];
    tn_generator *gen = NULL, *other = NULL;
    assert_int_equal(tn_rng_set_kind(kind), TN_OK);
    assert_int_equal(tn_generator_new(cpu, &gen), TN_OK);
    assert_int_equal(tn_generator_new(cpu, &other), TN_OK);
    tn_generator_seed(gen, 42);
    assert_int_equal(tn_generator_initial_seed(gen), 42);
    draw(gen, a, 7); /* an odd number leaves a cached normal number behind */
    assert_int_equal(tn_generator_get_state(gen, NULL, &asked), TN_OK);
    assert_int_equal(asked, bytes);
    assert_int_equal(tn_generator_get_state(gen, saved, &room), TN_OK);
    assert_int_equal(room, bytes);
    draw(gen, a, 41);
    assert_int_equal(tn_generator_set_state(other, saved, bytes), TN_OK);
    draw(other, b, 41);
    assert_memory_equal(a, b, sizeof a);
    assert_int_not_equal(tn_generator_set_state(other, saved, bytes - 1), TN_OK);
    room = bytes - 1;
    assert_int_not_equal(tn_generator_get_state(other, saved, &room), TN_OK);
    tn_generator_unref(&gen);
    tn_generator_unref(&other);
    assert_null(gen);
}

static void test_states(void **state) {
    (void)state;
    state_round_trip(TN_RNG_PHILOX, PHILOX_BYTES);
    state_round_trip(TN_RNG_MT19937, MT_BYTES);
    assert_int_equal(tn_rng_set_kind(TN_RNG_PHILOX), TN_OK);
    assert_int_not_equal(tn_rng_set_kind(7), TN_OK);
    assert_int_equal(tn_rng_kind(), TN_RNG_PHILOX);
}

/* Bytes 8 to 11 count the words left, 12 to 15 say that it was seeded, 16 to 23 the next word. */
static void test_broken_states_are_refused(void **state) {
    static const struct {
        int32_t left, seeded;
        uint64_t next;
    } broken[] = {{0, 1, 0}, {625, 1, 0}, {-1, 1, 0},         {600, 1, 624},
                  {2, 1, 0}, {1, 0, 0},   {1, 1, UINT64_MAX}, {300, 1, 324}};
    unsigned char bytes[MT_BYTES], now[MT_BYTES];
    uint64_t room = sizeof bytes;
    tn_generator *gen = NULL;
    (void)state;
    assert_int_equal(tn_rng_set_kind(TN_RNG_MT19937), TN_OK);
    assert_int_equal(tn_generator_new(cpu, &gen), TN_OK);
    assert_int_equal(tn_generator_get_state(gen, bytes, &room), TN_OK);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        unsigned char bad[MT_BYTES];
        memcpy(bad, bytes, sizeof bad);
        memcpy(bad + 8, &broken[i].left, sizeof broken[i].left);
        memcpy(bad + 12, &broken[i].seeded, sizeof broken[i].seeded);
        memcpy(bad + 16, &broken[i].next, sizeof broken[i].next);
        assert_int_not_equal(tn_generator_set_state(gen, bad, sizeof bad), TN_OK);
    }
    assert_int_equal(tn_generator_get_state(gen, now, &room), TN_OK);
    assert_memory_equal(bytes, now, sizeof now);
    tn_generator_unref(&gen);
    assert_int_equal(tn_rng_set_kind(TN_RNG_PHILOX), TN_OK);
}

static void test_default_generator(void **state) {
    float a[5], b[5];
    tn_generator *gen = tn_generator_default(cpu);
    (void)state;
    assert_non_null(gen);
    assert_ptr_equal(gen, tn_generator_default(cpu));
    tn_generator_seed(gen, 3);
    draw(NULL, a, 5);
    tn_generator_seed(gen, 3);
    draw(gen, b, 5);
    assert_memory_equal(a, b, sizeof a);
    uint64_t seed = tn_generator_seed_from_system(gen);
    assert_int_equal(tn_generator_initial_seed(gen), seed);
    assert_int_equal(tn_generator_device(gen).slot, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_broken_states_are_refused),
        cmocka_unit_test(test_default_generator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
