/* real_cudnn.c: asks NVIDIA's own cuDNN for plans of our backend's graphs, on a machine without a GPU: it
 * also plans for a device that is described by text. The backend's own files are linked to this one,
 * which gives them what the rest of the backend would; nothing is executed. Writes a line for each
 * case. Arguments: the device, its major version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>

#include "../../backends/cuda/libs/attention.h"
#include "../../backends/cuda/libs/dnn_plan.h"
#include "../../backends/cuda/libs/norm.h"

/* The first cuDNN that reads such a text, and what is returned to say that this one is older. */
enum { OLDEST = 91100, TOO_OLD = 3 };
/* NVIDIA's CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, its text, and the attributes that refer to it. */
enum { DEVICE = 38, DEVICE_TEXT = 2702, SEARCH_DEVICE = 204, PLAN_DEVICE = 407 };

/* ---- What the backend's files ask of the others ------------------------------------------------*/

static cuda_device device;
static int deterministic, executed, searched;

cuda_driver cuda;

static tn_status fail(tn_status code, int32_t arg, const char *format, ...) {
    printf("%s (argument %d)\n", format, (int)arg);
    return code;
}

/* Addresses that nobody follows. */
static void *address(void) {
    static uintptr_t next = 4096;
    return (void *)(next += 4096);
}

static tn_status scratch(const tn_call *call, uint64_t bytes, void **ret_data) {
    (void)call;
    *ret_data = bytes ? address() : NULL;
    return TN_OK;
}

static const tn_host host = {.struct_size = sizeof host, .fail = fail, .scratch = scratch};
const tn_host *cuda_host = &host;

const char *cuda_getenv(const char *name) { return getenv(name); }

int32_t cuda_option_value(cuda_option option) {
    if (option == CUDA_DETERMINISTIC) return deterministic;
    return option == CUDA_CUDNN || option == CUDA_CUDNN_SDP;
}

tn_status cuda_enter(int32_t index, cuda_device **ret_device) {
    (void)index;
    *ret_device = &device;
    return TN_OK;
}

tn_status cuda_packed(const tn_call *call, const tn_view *v, const void **ret_data) {
    (void)v;
    return call->host->fail(TN_E_INTERNAL, -1, "a layout was not taken", ret_data);
}

void *cuda_open_library(const char *stem, const int *versions) {
    char name[64];
    snprintf(name, sizeof name, "%s.so.%d", stem, versions[0]);
    return dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

const char *cuda_find_symbols(void *library, const cuda_symbol *symbols, size_t n,
                              void *ret_table) {
    static const char *const names[] = {
#define NAME(member, symbol, result, params) #symbol,
        CUDNN_LIST(NAME)
#undef NAME
    };
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, names[i]);
        if (!found) return names[i];
        memcpy((char *)ret_table + symbols[i].at, &found, sizeof found);
    }
    return NULL;
}

/* ---- cuDNN, with a device in place of a handle -------------------------------------------------*/

static cuda_cudnn real;
static cudnnBackendDescriptor_t described;

static cudnnStatus_t create_handle(cudnnHandle_t *ret_handle) {
    *ret_handle = address();
    return CUDNN_OK;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudnnStream stream) {
    (void)handle, (void)stream;
    return CUDNN_OK;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *elements) {
    unsigned refers = name == CUDNN_SEARCH_GRAPH ? SEARCH_DEVICE : PLAN_DEVICE;
    if (name == CUDNN_GRAPH_HANDLE) return CUDNN_OK;
    searched += name == CUDNN_SEARCH_GRAPH;
    if (name == CUDNN_SEARCH_GRAPH || name == CUDNN_PLAN_HANDLE) {
        cudnnStatus_t st = real.set(d, refers, CUDNN_IS_DESCRIPTOR, 1, &described);
        if (st != CUDNN_OK || name == CUDNN_PLAN_HANDLE) return st;
    }
    return real.set(d, name, type, n, elements);
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack) {
    (void)handle;
    executed += plan && pack;
    return CUDNN_OK;
}

static bool start(const char *text) {
    cuda_cudnn *api = (cuda_cudnn *)(uintptr_t)cuda_cudnn_open();
    char report[300];
    cuda_cudnn_describe(report, sizeof report);
    printf("%s", report);
    if (!api) return false;
    real = *api;
    api->create_handle = create_handle;
    api->set_stream = set_stream;
    api->set = set;
    api->execute = execute;
    return real.create(DEVICE, &described) == CUDNN_OK &&
           real.set(described, DEVICE_TEXT, CUDNN_IS_CHAR, (int64_t)strlen(text), text) ==
               CUDNN_OK &&
           real.finalize(described) == CUDNN_OK;
}

/* ---- Cases -------------------------------------------------------------------------------------*/

typedef struct box {
    tn_view v;
    int64_t shape[5], strides[5];
} box;

/* A tensor whose memory goes through the dimensions in this order, the last one fastest. */
static tn_view *view(box *b, int32_t dtype, int32_t n, const int64_t *shape, const int *order) {
    b->v = (tn_view){.word = (uint64_t)dtype, .numel = 1, .data = address(), .ndim = n};
    b->v.dl_bits = dtype == TN_F32 ? 32 : 16;
    b->v.shape = b->shape;
    b->v.strides = b->strides;
    bool ordered = true;
    for (int k = n - 1; k >= 0; k--) {
        int d = order ? order[k] : k;
        b->shape[d] = shape[d];
        b->strides[d] = b->v.numel;
        b->v.numel *= shape[d];
        ordered &= d == k;
    }
    b->v.word |= ordered ? TN_W_CONTIGUOUS : TN_W_CHANNELS_LAST;
    return &b->v;
}

static tn_call call_of(int32_t dtype) {
    static const tn_op_info op = {.name = "case"};
    return (tn_call){.host = &host, .op = &op, .dtype = dtype};
}

static void say(const char *what, tn_status st) {
    printf("%s: %s\n", what, st == TN_OK ? "planned" : st == TN_DECLINE ? "declined" : "failed");
}

typedef struct sizes {
    const char *name;
    int32_t dtype;
    int64_t n, heads, kv_heads, queries, keys, width, value_width;
    bool causal, heads_inside, deterministic;
} sizes;

static void attend(const sizes *s) {
    static const int inside[] = {0, 2, 1, 3};
    const int *order = s->heads_inside ? inside : NULL;
    const int64_t q[] = {s->n, s->heads, s->queries, s->width},
                  k[] = {s->n, s->kv_heads, s->keys, s->width},
                  v[] = {s->n, s->kv_heads, s->keys, s->value_width},
                  y[] = {s->n, s->heads, s->queries, s->value_width};
    box b[9];
    tn_call call = call_of(s->dtype);
    char name[80];
    deterministic = s->deterministic;
    const tn__flash_attention_args forward = {.query = view(&b[0], s->dtype, 4, q, order),
                                              .key = view(&b[1], s->dtype, 4, k, order),
                                              .value = view(&b[2], s->dtype, 4, v, order),
                                              .is_causal = s->causal,
                                              .scale = 0.125,
                                              .y = view(&b[3], s->dtype, 4, y, order),
                                              .lse = view(&b[4], TN_F32, 3, q, NULL)};
    const tn__flash_attention_backward_args backward = {
        .grad = view(&b[5], s->dtype, 4, y, order),
        .query = forward.query,
        .key = forward.key,
        .value = forward.value,
        .y = forward.y,
        .lse = forward.lse,
        .is_causal = s->causal,
        .scale = 0.125,
        .grad_query = view(&b[6], s->dtype, 4, q, order),
        .grad_key = view(&b[7], s->dtype, 4, k, order),
        .grad_value = view(&b[8], s->dtype, 4, v, order)};
    snprintf(name, sizeof name, "attention %s", s->name);
    say(name, cuda_attention_by_cudnn(&call, &forward));
    snprintf(name, sizeof name, "attention backward %s", s->name);
    say(name, cuda_attention_backward_by_cudnn(&call, &backward));
    deterministic = 0;
}

static void normalise(const char *name, int32_t dims, const int64_t *size) {
    static const int last4[] = {0, 2, 3, 1}, last5[] = {0, 2, 3, 4, 1};
    const int *order = dims == 4 ? last4 : last5;
    box b[9];
    tn_call call = call_of(TN_F32);
    char text[80];
    tn_view *x = view(&b[0], TN_F32, dims, size, order), *of_channels[5];
    for (int i = 0; i < 5; i++) of_channels[i] = view(&b[1 + i], TN_F32, 1, size + 1, NULL);
    const tn_native_batch_norm_args forward = {.input = x,
                                               .weight = of_channels[0],
                                               .bias = of_channels[1],
                                               .training = 1,
                                               .eps = 1e-5,
                                               .y = view(&b[6], TN_F32, dims, size, order),
                                               .save_mean = of_channels[2],
                                               .save_invstd = of_channels[3]};
    const tn__batch_norm_backward_args backward = {.grad = view(&b[7], TN_F32, dims, size, order),
                                                   .input = x,
                                                   .weight = of_channels[0],
                                                   .mean = of_channels[2],
                                                   .invstd = of_channels[3],
                                                   .training = 1,
                                                   .need_input = 1,
                                                   .need_weight = 1,
                                                   .need_bias = 1,
                                                   .grad_input =
                                                       view(&b[8], TN_F32, dims, size, order),
                                                   .grad_weight = of_channels[1],
                                                   .grad_bias = of_channels[4]};
    snprintf(text, sizeof text, "batch_norm %s", name);
    say(text, cuda_batch_norm_by_cudnn(&call, &forward));
    snprintf(text, sizeof text, "batch_norm backward %s", name);
    say(text, cuda_batch_norm_backward_by_cudnn(&call, &backward));
}

int main(int argc, char **argv) {
    static const sizes cases[] = {
        {"full", TN_BF16, 2, 4, 4, 128, 128, 64, 64, false, false, false},
        {"causal", TN_BF16, 4, 12, 12, 1024, 1024, 64, 64, true, true, false},
        {"odd", TN_F16, 2, 6, 6, 100, 77, 72, 40, true, true, false},
        {"shared heads", TN_F16, 2, 8, 2, 256, 300, 128, 128, true, false, false},
        {"narrow", TN_BF16, 1, 2, 1, 40, 9, 8, 8, false, false, false},
        {"ordered", TN_BF16, 2, 12, 12, 512, 512, 64, 64, true, true, true},
    };
    if (argc < 3) return 2;
    device.major = atoi(argv[2]);
    if (cuda_cudnn_version() > 0 && cuda_cudnn_version() < OLDEST) return TOO_OLD;
    if (!start(argv[1])) return 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) attend(&cases[i]);
    normalise("planes", 4, (const int64_t[]){8, 64, 14, 14});
    normalise("volumes", 5, (const int64_t[]){2, 12, 3, 5, 7});
    normalise("one position", 4, (const int64_t[]){16, 4, 1, 1});
    printf("searched %d, executed %d\n", searched, executed);
    printf("cuDNN %d\n", cuda_cudnn_version());
    return 0;
}
