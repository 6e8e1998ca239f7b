/* test_refused_calls.c: functions of the C API whose arguments are missing or out of range. Each fails
 * with the status of its kind and words that say which argument is meant, and changes nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <tenon/autograd.h>
#include <tenon/device_ext.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/optim.h>
#include <tenon/program.h>
#include <tenon/random.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>
#include <tenon/wrapped.h>

static void ok(tn_status st, const char *call, int line) {
    if (st != TN_OK) fail_msg("line %d: %s: %s", line, call, tn_error_last()->message);
}
#define OK(call) ok(call, #call, __LINE__)

static void refused(tn_status st, tn_status want, const char *words, int line) {
    if (st != want) fail_msg("line %d: status %d, not %d", line, (int)st, (int)want);
    if (!strstr(tn_error_last()->message, words))
        fail_msg("line %d: '%s' is not in '%s'", line, words, tn_error_last()->message);
}
#define REFUSED(want, words, call) refused(call, want, words, __LINE__)

static const tn_device cpu = {0, 0};

static tn_tensor *ones(int32_t dtype, int64_t n) {
    tn_tensor *t = NULL;
    OK(tn_full(tn_ints_of(&n, 1), tn_scalar_int(1), dtype, -1, &t));
    return t;
}

static void test_tensors(void **state) {
    int64_t two[] = {2, 2}, back[] = {-1, 1}, far[] = {INT64_MAX / 2, INT64_MAX / 2};
    int64_t most[] = {INT64_MAX, 1}, three[] = {3, 3, 3};
    float numbers[4] = {1, 2, 3, 4};
    const float all_ones[4] = {1, 1, 1, 1};
    char room[64] = {0};
    tn_tensor *t = NULL, *x = ones(TN_F32, 4), *image = NULL;
    (void)state;
    OK(tn_zeros(tn_ints_of(three, 3), TN_F32, -1, &image));
    REFUSED(TN_E_DTYPE, "there is no dtype 9999", tn_tensor_new(9999, cpu, 1, two, &t));
    REFUSED(TN_E_VALUE, "shape is NULL", tn_tensor_new(TN_F32, cpu, 1, NULL, &t));
    REFUSED(TN_E_TYPE, "no place to go", tn_tensor_new(TN_F32, cpu, 1, two, NULL));
    REFUSED(TN_E_SHAPE, "strides must not be negative, got [-1, 1]",
            tn_tensor_new_strided(TN_F32, cpu, 2, two, back, &t));
    REFUSED(TN_E_SHAPE, "reaches too far", tn_tensor_new_strided(TN_F32, cpu, 2, two, far, &t));
    REFUSED(TN_E_VALUE, "data is NULL", tn_tensor_from_data(TN_F32, 2, two, NULL, &t));
    REFUSED(TN_E_TYPE, "no place to go", tn_tensor_from_data(TN_F32, 2, two, numbers, NULL));
    REFUSED(TN_E_VALUE, "data is NULL",
            tn_tensor_from_foreign(TN_F32, cpu, 2, two, NULL, NULL, 0, NULL, NULL, &t));
    REFUSED(TN_E_VALUE, "larger than the address space",
            tn_tensor_from_foreign(TN_F32, cpu, 2, two, far, numbers, 0, NULL, NULL, &t));
    REFUSED(TN_E_VALUE, "strides [9223372036854775807, 1] reach too far",
            tn_tensor_from_foreign(TN_F32, cpu, 2, three, most, numbers, 0, NULL, NULL, &t));
    REFUSED(TN_E_SHAPE, "`shifts` required", tn_roll(x, tn_ints_none(), tn_ints_none(), &t));
    REFUSED(TN_E_STATE, "kernel size should be 2 numbers, but got 0",
            tn_im2col(image, tn_ints_of(two, 0), tn_ints_of(two, 2), tn_ints_of(two, 2),
                      tn_ints_of(two, 2), &t));
    REFUSED(TN_E_STATE, "stride should be 2 numbers, but got 1",
            tn_im2col(image, tn_ints_of(two, 2), tn_ints_of(two, 2), tn_ints_of(two, 2),
                      tn_ints_of(two, 1), &t));
    REFUSED(TN_E_DTYPE, "there is no dtype -5", tn_tensor_alias(x, -5, 1, two, two, 0, &t));
    REFUSED(TN_E_SHAPE, "storage_offset must not be negative, got -1",
            tn_tensor_alias(x, TN_F32, 1, two, two, -1, &t));
    REFUSED(TN_E_TYPE, "a pointer that must be set",
            tn_tensor_alias(x, TN_F32, 1, NULL, two, 0, &t));
    REFUSED(TN_E_TYPE, "a pointer that must be set",
            tn_tensor_alias(x, TN_F32, 1, two, NULL, 0, &t));
    REFUSED(TN_E_VALUE, "needs two tensors", tn_tensor_set_data(x, NULL));
    REFUSED(TN_E_VALUE, "needs two tensors", tn_tensor_set_data(NULL, x));
    REFUSED(TN_E_VALUE, "the tensor has 16 bytes, the buffer 15", tn_tensor_read(x, room, 15));
    REFUSED(TN_E_VALUE, "the buffer is NULL", tn_tensor_read(x, NULL, 16));
    REFUSED(TN_E_TYPE, "the tensor is NULL", tn_tensor_read(NULL, room, 16));
    REFUSED(TN_E_VALUE, "the tensor has 16 bytes, the buffer 17", tn_tensor_write(x, room, 17));
    REFUSED(TN_E_TYPE, "the handle is NULL", tn_tensor_open_shared(NULL, -1, &t));
    REFUSED(TN_E_TYPE, "the tensor is NULL", tn_tensor_record_stream(NULL, NULL));
    REFUSED(TN_E_TYPE, "the stream is NULL", tn_tensor_record_stream(x, NULL));
    REFUSED(TN_E_TYPE, "data of what is no tensor", tn_data(NULL, &t));
    REFUSED(TN_E_TYPE, "no place to go", tn_data(x, NULL));
    assert_null(t);
    OK(tn_tensor_read(x, room, 16));
    assert_memory_equal(room, all_ones, sizeof all_ones);
    tn_tensor_unref(&image);
    tn_tensor_unref(&x);
}

static void test_gradients(void **state) {
    tn_tensor *x = ones(TN_F64, 2), *y = NULL, *got[1] = {NULL}, *none[1] = {NULL};
    tn_scalar_box box;
    double found[2] = {0};
    (void)state;
    OK(tn_set_requires_grad(x, 1));
    OK(tn_sum(x, tn_ints_none(), 0, -1, &y));
    REFUSED(TN_E_VALUE, "roots is NULL", tn_backward(NULL, NULL, 1, NULL, 0, 0, 0));
    REFUSED(TN_E_TYPE, "root 0 is NULL", tn_backward(none, NULL, 1, NULL, 0, 0, 0));
    REFUSED(TN_E_TYPE, "inputs is NULL", tn_backward(&y, NULL, 1, NULL, 1, 0, 0));
    REFUSED(TN_E_TYPE, "input 0 is NULL", tn_backward(&y, NULL, 1, none, 1, 0, 0));
    REFUSED(TN_E_STATE, "cannot be empty", tn_grad(&y, NULL, 1, &x, 0, 0, 0, 0, got));
    REFUSED(TN_E_TYPE, "a list is NULL", tn_grad(&y, NULL, 1, NULL, 1, 0, 0, 0, got));
    REFUSED(TN_E_TYPE, "a list is NULL", tn_grad(&y, NULL, 1, &x, 1, 0, 0, 0, NULL));
    REFUSED(TN_E_TYPE, "input 0 is NULL", tn_grad(&y, NULL, 1, none, 1, 0, 0, 0, got));
    REFUSED(TN_E_STATE, "grad_output[0] has a shape of [2] and output[0] has a shape of []",
            tn_grad(&y, &x, 1, &x, 1, 0, 0, 0, got));
    REFUSED(TN_E_TYPE, "the tensor is NULL", tn_set_requires_grad(NULL, 1));
    REFUSED(TN_E_TYPE, "a number cannot require a gradient",
            tn_set_requires_grad(tn_scalar_box_init(&box, tn_scalar_float(1)), 1));
    assert_null(got[0]);
    assert_null(tn_grad_get(x));
    OK(tn_backward(&y, NULL, 1, NULL, 0, 0, 0));
    OK(tn_tensor_read(tn_grad_get(x), found, sizeof found));
    assert_true(found[0] == 1 && found[1] == 1);
    tn_tensor_unref(&y);
    tn_tensor_unref(&x);
}

static tn_status pass_on(void *ctx, tn_node *node, tn_tensor *const *grads, int64_t n,
                         tn_tensor **ret_grads, int64_t m) {
    (void)ctx, (void)node, (void)n, (void)m;
    ret_grads[0] = tn_tensor_ref(grads[0]);
    return TN_OK;
}

static void test_functions_of_a_host(void **state) {
    tn_host_node own = {.name = "OwnBackward", .apply = pass_on, .ctx = &own},
                 empty = {.name = "EmptyBackward"};
    tn_tensor *x = ones(TN_F64, 2), *other = ones(TN_F64, 2), *none[1] = {NULL}, *out[1] = {NULL};
    tn_tensor *kept = NULL;
    char name[32];
    const uint32_t dirty = TN_OUTPUT_DIRTY;
    tn_node *n = NULL;
    (void)state;
    OK(tn_set_requires_grad(x, 1));
    REFUSED(TN_E_VALUE, "needs an apply callback", tn_host_node_new(NULL, &x, 1, &n));
    REFUSED(TN_E_VALUE, "needs an apply callback", tn_host_node_new(&empty, &x, 1, &n));
    REFUSED(TN_E_VALUE, "bad number of inputs", tn_host_node_new(&own, &x, -1, &n));
    REFUSED(TN_E_TYPE, "a pointer that must be set", tn_host_node_new(&own, NULL, 1, &n));
    REFUSED(TN_E_TYPE, "a pointer that must be set", tn_host_node_new(&own, &x, 1, NULL));
    assert_null(n);
    REFUSED(TN_E_VALUE, "no node of a host function", tn_host_node_finish(NULL, &x, 1, NULL, out));
    OK(tn_host_node_new(&own, &x, 1, &n));
    assert_non_null(n);
    assert_ptr_equal(tn_host_node_ctx(n), &own);
    assert_null(tn_host_node_ctx(NULL));
    REFUSED(TN_E_VALUE, "no node of a host function",
            tn_host_node_finish(n, &other, -1, NULL, out));
    REFUSED(TN_E_TYPE, "output 0 of a host function is NULL",
            tn_host_node_finish(n, none, 1, NULL, out));
    REFUSED(TN_E_STATE, "output 0 was marked dirty but is not an input",
            tn_host_node_finish(n, &other, 1, &dirty, out));
    REFUSED(TN_E_TYPE, "the saved tensor is NULL", tn_saved_unpack(NULL, n, &kept));
    assert_null(out[0]);
    OK(tn_host_node_finish(n, &other, 1, NULL, out));
    assert_int_equal(tn_node_output_count(n), 1);
    assert_int_equal(tn_node_output_count(NULL), 0);
    REFUSED(TN_E_STATE, "OwnBackward has its outputs already",
            tn_host_node_finish(n, &other, 1, NULL, out));
    tn_node_call(n, "another name"); /* only nodes of operators take one */
    assert_string_equal(tn_node_name(n, name, sizeof name), "OwnBackward");
    tn_node_call(NULL, "another name");
    tn_node_unref(&n);
    tn_tensor_unref(&out[0]);
    tn_tensor_unref(&other);
    tn_tensor_unref(&x);
}

static void test_streams_and_generators(void **state) {
    char room[8];
    uint64_t small = sizeof room, bytes = 0;
    tn_generator *gen = NULL;
    tn_stream *stream = NULL;
    tn_event *event = NULL;
    double ms = 0;
    int done = 0;
    (void)state;
    OK(tn_stream_default(cpu, &stream));
    OK(tn_event_new(cpu, 1, &event));
    REFUSED(TN_E_TYPE, "stream and event must not be NULL", tn_stream_wait(NULL, event));
    REFUSED(TN_E_TYPE, "stream and event must not be NULL", tn_stream_wait(stream, NULL));
    REFUSED(TN_E_TYPE, "the event is NULL", tn_event_record(NULL, stream));
    REFUSED(TN_E_TYPE, "the event is NULL", tn_event_sync(NULL));
    REFUSED(TN_E_TYPE, "the event is NULL", tn_event_done(NULL, &done));
    REFUSED(TN_E_TYPE, "the event is NULL", tn_event_elapsed(event, NULL, &ms));
    REFUSED(TN_E_TYPE, "the event is NULL", tn_event_elapsed(NULL, event, &ms));
    REFUSED(TN_E_UNSUPPORTED, "does not measure time between events",
            tn_event_elapsed(event, event, &ms));
    OK(tn_generator_new(cpu, &gen));
    REFUSED(TN_E_TYPE, "the generator or the size is NULL",
            tn_generator_get_state(NULL, NULL, &bytes));
    REFUSED(TN_E_TYPE, "the generator or the size is NULL",
            tn_generator_get_state(gen, NULL, NULL));
    REFUSED(TN_E_VALUE, "there is room for 8", tn_generator_get_state(gen, room, &small));
    REFUSED(TN_E_TYPE, "the generator or its state is NULL", tn_generator_set_state(gen, NULL, 8));
    REFUSED(TN_E_TYPE, "the generator or its state is NULL", tn_generator_set_state(NULL, room, 8));
    tn_generator_unref(&gen);
    tn_event_unref(&event);
    tn_stream_unref(&stream);
    assert_true(!gen && !event && !stream);
    tn_generator_unref(&gen); /* nothing is there any more */
    tn_event_unref(&event);
    tn_stream_unref(&stream);
    tn_generator_unref(NULL);
    tn_event_unref(NULL);
    tn_stream_unref(NULL);
}

static void test_settings(void **state) {
    tn_autocast wide = {.dtype = TN_I64};
    tn_span span;
    char *text = NULL;
    tn_group *group = NULL;
    tn_tensors empty = {NULL, 0};
    (void)state;
    REFUSED(TN_E_VALUE, "there is no fallback policy -1", tn_fallback_set_policy(-1));
    REFUSED(TN_E_VALUE, "there is no fallback policy 3", tn_fallback_set_policy(3));
    REFUSED(TN_E_DTYPE, "there is no dtype 9999", tn_explain("add", cpu, 9999, &text));
    REFUSED(TN_E_VALUE, "there is no operator 'no_such'",
            tn_explain("no_such", cpu, TN_F32, &text));
    REFUSED(TN_E_DEVICE, "there is no device slot 77",
            tn_explain("add", (tn_device){77, 0}, TN_F32, &text));
    assert_null(text);
    REFUSED(TN_E_TYPE, "the region is NULL", tn_autocast_set(0, NULL));
    REFUSED(TN_E_DTYPE, "computes in a floating dtype", tn_autocast_set(0, &wide));
    REFUSED(TN_E_STATE, "no recording is running", tn_profiler_stop());
    REFUSED(TN_E_TYPE, "profiler_push(): the name is NULL", tn_profiler_push(NULL));
    REFUSED(TN_E_TYPE, "profiler_mark(): the name is NULL", tn_profiler_mark(NULL));
    REFUSED(TN_E_STATE, "has entered no span", tn_profiler_pop());
    assert_false(tn_profiler_is_running());
    OK(tn_profiler_start());
    assert_true(tn_profiler_is_running());
    REFUSED(TN_E_STATE, "a recording is running already", tn_profiler_start());
    OK(tn_profiler_stop());
    assert_false(tn_profiler_is_running());
    REFUSED(TN_E_INDEX, "there is no span -1", tn_profiler_at(-1, &span));
    REFUSED(TN_E_TYPE, "no place to go", tn_profiler_at(0, NULL));
    REFUSED(TN_E_VALUE, "expected 1 to 256 devices", tn_group_new(NULL, 1, 1, 0, NULL, &group));
    REFUSED(TN_E_VALUE, "expected 1 to 256 devices", tn_group_new(&cpu, 0, 1, 0, NULL, &group));
    REFUSED(TN_E_VALUE, "from rank 1 on of 1", tn_group_new(&cpu, 1, 1, 1, NULL, &group));
    assert_null(group);
    REFUSED(TN_E_TYPE, "sgd: the options are NULL", tn_sgd_update(empty, empty, empty, NULL));
    REFUSED(TN_E_TYPE, "adam: the options are NULL",
            tn_adam_update(empty, empty, empty, empty, empty, empty, NULL));
}

static tn_status doubled(void *ctx, tn_tensor *const *in, int64_t n, tn_tensor **ret) {
    tn_tensor *twice = NULL;
    (void)n;
    OK(tn_add(in[0], in[0], tn_scalar_int(1), &twice));
    tn_status st = tn__to_copy(twice, *(int32_t *)ctx, -1, 0, TN_FORMAT_PRESERVE, ret);
    tn_tensor_unref(&twice);
    return st;
}

static void test_gradcheck(void **state) {
    tn_tensor *x = ones(TN_F64, 2), *low = ones(TN_F32, 2), *in[2] = {x, NULL};
    int32_t dtype = TN_F64;
    double worst = 1.0;
    (void)state;
    REFUSED(TN_E_VALUE, "no input requires", tn_gradcheck(doubled, &dtype, in, 2, 1, 0, 0, NULL));
    OK(tn_set_requires_grad(x, 1));
    OK(tn_set_requires_grad(low, 1));
    REFUSED(TN_E_VALUE, "bad arguments", tn_gradcheck(NULL, NULL, in, 2, 1, 0, 0, NULL));
    REFUSED(TN_E_VALUE, "bad arguments", tn_gradcheck(doubled, &dtype, NULL, 2, 1, 0, 0, NULL));
    REFUSED(TN_E_VALUE, "bad arguments", tn_gradcheck(doubled, &dtype, in, 0, 1, 0, 0, NULL));
    REFUSED(TN_E_VALUE, "bad arguments", tn_gradcheck(doubled, &dtype, in, 2, 0, 0, 0, NULL));
    REFUSED(TN_E_VALUE, "bad arguments", tn_gradcheck(doubled, &dtype, in, 2, NAN, 0, 0, NULL));
    REFUSED(TN_E_VALUE, "input 0 must be a float64 leaf",
            tn_gradcheck(doubled, &dtype, &low, 1, 1, 0, 0, NULL));
    OK(tn_gradcheck(doubled, &dtype, in, 2, 1e-3, 1e-9, 0, &worst)); /* an input may be left out */
    assert_true(worst < 1e-9);
    dtype = TN_F32;
    REFUSED(TN_E_DTYPE, "output must be float64",
            tn_gradcheck(doubled, &dtype, in, 2, 1, 0, 0, NULL));
    tn_tensor_unref(&low);
    tn_tensor_unref(&x);
}

static void ended(void *ctx) { (void)ctx; }

static void test_groups_and_wrapped_tensors(void **state) {
    int64_t two = 2;
    tn_tensor *t = NULL, *r = NULL;
    tn_tensors none = {NULL, 0};
    (void)state;
    REFUSED(TN_E_TYPE, "all_reduce(): the group is NULL", tn_group_all_reduce(NULL, none, none, 0));
    REFUSED(TN_E_TYPE, "all_gather(): the group is NULL", tn_group_all_gather(NULL, none, none));
    REFUSED(TN_E_TYPE, "broadcast(): the group is NULL", tn_group_broadcast(NULL, none, none, 0));
    REFUSED(TN_E_TYPE, "reduce_scatter(): the group is NULL",
            tn_group_reduce_scatter(NULL, none, none, 0));
    REFUSED(TN_E_VALUE, "wrapped_new(): a pointer is NULL",
            tn_wrapped_new(TN_F32, cpu, 1, &two, NULL, NULL, &two, &t));
    REFUSED(TN_E_VALUE, "wrapped_new(): a pointer is NULL",
            tn_wrapped_new(TN_F32, cpu, 1, &two, NULL, ended, NULL, &t));
    REFUSED(TN_E_VALUE, "wrapped_new(): a pointer is NULL",
            tn_wrapped_new(TN_F32, cpu, 1, NULL, NULL, ended, &two, &t));
    REFUSED(TN_E_VALUE, "or ndim is -1",
            tn_wrapped_new(TN_F32, cpu, -1, &two, NULL, ended, &two, &t));
    REFUSED(TN_E_VALUE, "or ndim is 65",
            tn_wrapped_new(TN_F32, cpu, 65, &two, NULL, ended, &two, &t));
    REFUSED(TN_E_DTYPE, "there is no dtype 9999",
            tn_wrapped_new(9999, cpu, 1, &two, NULL, ended, &two, &t));
    assert_null(t);
    assert_null(tn_wrapped_ctx(NULL));
    OK(tn_wrapped_new(TN_F32, cpu, 1, &two, NULL, ended, &two, &t));
    assert_ptr_equal(tn_wrapped_ctx(t), &two);
    REFUSED(TN_E_STATE, "no host computes wrapped tensors", tn_neg(t, &r));
    assert_null(r);
    tn_tensor_unref(&t);
}

static void test_graphs_and_devices(void **state) {
    tn_graph *g = NULL;
    tn_event *event = NULL;
    (void)state;
    REFUSED(TN_E_TYPE, "the graph is NULL", tn_graph_begin(NULL, cpu, NULL));
    REFUSED(TN_E_TYPE, "the graph is NULL", tn_graph_end(NULL));
    REFUSED(TN_E_TYPE, "the graph is NULL", tn_graph_cancel(NULL));
    REFUSED(TN_E_TYPE, "the graph is NULL", tn_graph_replay(NULL));
    REFUSED(TN_E_TYPE, "the graph is NULL", tn_graph_reset(NULL));
    REFUSED(TN_E_TYPE, "the tensor is NULL", tn_graph_check_read(NULL));
    OK(tn_event_new(cpu, 0, &event));
    OK(tn_graph_new(&g));
    REFUSED(TN_E_STATE, "nothing has been captured", tn_graph_replay(g));
    OK(tn_graph_begin(g, cpu, NULL));
    REFUSED(TN_E_STATE, "graph_begin(): the thread is capturing", tn_graph_begin(g, cpu, NULL));
    REFUSED(TN_E_STATE, "graph_replay(): the thread is capturing", tn_graph_replay(g));
    REFUSED(TN_E_STATE, "graph_reset(): the graph is being captured", tn_graph_reset(g));
    REFUSED(TN_E_STATE, "waiting for an event", tn_event_sync(event));
    OK(tn_graph_cancel(g));
    OK(tn_event_sync(event));
    tn_event_unref(&event);
    tn_graph_unref(&g);
    assert_int_equal(tn_device_count(0), 1);
    assert_int_equal(tn_device_count(77), 0);
    assert_int_equal(tn_device_count(-1), 0);
    assert_int_equal(tn_is_deterministic(), 0);
    tn_set_deterministic(1);
    assert_int_equal(tn_is_deterministic(), 1);
    tn_set_deterministic(0);
    assert_int_equal(tn_is_deterministic(), 0);
}

static tn_program *recorded(int64_t n, tn_tensor **weight) {
    tn_program *p = NULL;
    tn_tensor *x = ones(TN_F32, n), *y = NULL;
    OK(tn_program_begin(&p));
    OK(tn_program_add_input(p, x, "x"));
    OK(tn_program_add_weight(p, *weight, "w", 0));
    OK(tn_mul(x, *weight, &y));
    OK(tn_program_end(p, (tn_tensors){&y, 1}));
    tn_tensor_unref(&y);
    tn_tensor_unref(&x);
    return p;
}

static void test_programs(void **state) {
    tn_tensor *w = ones(TN_F32, 1), *wide = ones(TN_F64, 1), *long_w = ones(TN_F32, 2), *y = NULL;
    tn_program *p = recorded(3, &w), *other = recorded(4, &w), *open = NULL, *empty = NULL;
    tn_program_slot slot;
    tn_program_look look;
    int32_t first, count, value;
    uint64_t bytes;
    char *text = NULL;
    void *file = NULL;
    (void)state;
    REFUSED(TN_E_TYPE, "place for the slot", tn_program_input_at(p, 0, NULL));
    REFUSED(TN_E_TYPE, "place for the slot", tn_program_input_at(NULL, 0, &slot));
    REFUSED(TN_E_INDEX, "the program has 1 of them", tn_program_input_at(p, 1, &slot));
    REFUSED(TN_E_INDEX, "the program has 1 of them", tn_program_output_at(p, -1, &slot));
    REFUSED(TN_E_INDEX, "the program has 1 weights", tn_program_weight_at(p, 1, &slot, NULL));
    REFUSED(TN_E_TYPE, "place for the slot", tn_program_weight_at(p, 0, NULL, NULL));
    REFUSED(TN_E_INDEX, "the program has 0 looks", tn_program_look_at(p, 0, &look));
    REFUSED(TN_E_TYPE, "place for the look", tn_program_look_at(p, 0, NULL));
    REFUSED(TN_E_TYPE, "needs a program and a tensor", tn_program_set_weight(p, 0, NULL));
    REFUSED(TN_E_INDEX, "the program has 1 weights", tn_program_set_weight(p, 1, w));
    REFUSED(TN_E_VALUE, "weight 'w' has another dtype", tn_program_set_weight(p, 0, wide));
    REFUSED(TN_E_VALUE, "weight 'w' has another dtype", tn_program_set_weight(p, 0, long_w));
    REFUSED(TN_E_TYPE, "needs a program and a text", tn_program_set_note(p, NULL));
    REFUSED(TN_E_TYPE, "needs a program and places", tn_program_fused_at(p, 0, NULL, &count));
    REFUSED(TN_E_TYPE, "needs a program and places", tn_program_region_at(p, 0, &first, NULL));
    REFUSED(TN_E_TYPE, "program_optimize() needs", tn_program_optimize(NULL, 0));
    REFUSED(TN_E_TYPE, "program_verify() needs", tn_program_verify(NULL));
    REFUSED(TN_E_TYPE, "program_print() needs", tn_program_print(NULL, 0, &text));
    REFUSED(TN_E_TYPE, "program_save() needs a path", tn_program_save(p, NULL));
    REFUSED(TN_E_VALUE, "/no/such/folder/p cannot be written",
            tn_program_save(p, "/no/such/folder/p"));
    REFUSED(TN_E_TYPE, "program_write() needs", tn_program_write(NULL, &file, &bytes));
    REFUSED(TN_E_TYPE, "program_parse() needs bytes", tn_program_parse(NULL, 4, &open));
    REFUSED(TN_E_TYPE, "program_run() needs", tn_program_run(NULL, NULL, 0, &y, 1));
    REFUSED(TN_E_TYPE, "two recordings", tn_program_agrees(p, NULL));
    REFUSED(TN_E_TYPE, "two recordings and a name",
            tn_program_generalize(p, NULL, 1, 0, 1, 9, "n"));
    REFUSED(TN_E_TYPE, "two recordings and a name",
            tn_program_generalize(p, other, 1, 0, 1, 9, NULL));
    REFUSED(TN_E_VALUE, "no size is from 9 to 8", tn_program_generalize(p, other, 1, 0, 9, 8, "n"));
    REFUSED(TN_E_VALUE, "no size is from -1 to 8",
            tn_program_generalize(p, other, 1, 0, -1, 8, "n"));
    REFUSED(TN_E_INDEX, "has no dimension 1", tn_program_generalize(p, other, 1, 1, 1, 9, "n"));
    REFUSED(TN_E_TYPE, "program_agrees() needs two", tn_program_agrees(NULL, p));
    OK(tn_program_begin(&empty));
    OK(tn_program_end(empty, (tn_tensors){NULL, 0}));
    REFUSED(TN_E_VALUE, "other recording has other inputs", tn_program_agrees(p, empty));
    REFUSED(TN_E_VALUE, "other recording has other inputs",
            tn_program_generalize(p, empty, 1, 0, 1, 9, "n"));
    tn_program_unref(&empty);
    REFUSED(TN_E_STATE, "the thread does not defer", tn_deferred_end());
    REFUSED(TN_E_TYPE, "no place for the program", tn_program_begin(NULL));
    OK(tn_program_begin(&open));
    tn_program *second = NULL;
    REFUSED(TN_E_STATE, "recording already", tn_program_begin(&second));
    assert_null(second);
    REFUSED(TN_E_TYPE, "input or weight is NULL", tn_program_add_input(open, NULL, "x"));
    REFUSED(TN_E_TYPE, "input or weight is NULL", tn_program_add_input(open, w, NULL));
    OK(tn_program_add_input(open, w, "x"));
    REFUSED(TN_E_VALUE, "'y' is an input or weight of the program already",
            tn_program_add_input(open, w, "y"));
    REFUSED(TN_E_TYPE, "a list of names is needed", tn_program_take_apart(open, NULL, 1));
    REFUSED(TN_E_TYPE, "a list of names is needed", tn_program_take_apart(open, NULL, -2));
    REFUSED(TN_E_TYPE, "a place for its result", tn_program_value(open, w, NULL));
    REFUSED(TN_E_TYPE, "needs a tensor", tn_program_value(open, NULL, &value));
    REFUSED(TN_E_TYPE, "output 0 is NULL", tn_program_end(open, (tn_tensors){&y, 1}));
    REFUSED(TN_E_STATE, "does not record this program", tn_program_end(open, (tn_tensors){&w, 1}));
    assert_null(y);
    tn_program_unref(&open);
    tn_program_unref(&other);
    tn_program_unref(&p);
    tn_tensor_unref(&long_w);
    tn_tensor_unref(&wide);
    tn_tensor_unref(&w);
}

/* Nothing of the caller's memory goes to another process. */
static void test_handles_are_written_whole(void **state) {
    unsigned char one[TN_SHARE_HANDLE_BYTES], two[TN_SHARE_HANDLE_BYTES];
    tn_tensor *x = ones(TN_F32, 4), *y = NULL;
    int32_t file = -1;
    (void)state;
    memset(one, 0xaa, sizeof one);
    memset(two, 0x55, sizeof two);
    OK(tn_tensor_share_memory(x));
    OK(tn_tensor_share(x, one, &file));
    OK(tn_tensor_open_shared(one, file, &y));
    tn_tensor_unref(&y);
    OK(tn_tensor_share(x, two, &file));
    OK(tn_tensor_open_shared(two, file, &y));
    tn_tensor_unref(&y);
    for (size_t i = 0; i < sizeof one; i++) assert_false(one[i] == 0xaa && two[i] == 0x55);
    REFUSED(TN_E_TYPE, "no place to go", tn_tensor_open_shared(one, -1, NULL));
    tn_tensor_unref(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_functions_of_a_host),
        cmocka_unit_test(test_streams_and_generators),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_gradcheck),
        cmocka_unit_test(test_groups_and_wrapped_tensors),
        cmocka_unit_test(test_graphs_and_devices),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_handles_are_written_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
