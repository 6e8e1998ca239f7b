/* rows.c: a plugin without a device, for the tests of the dispatcher: kernels for the CPU that win,
 * decline and tie, rows that do not fit, a dtype. ROWS_FAULT names what is wrong with a build. */
#include <string.h>

#include <tenon/op_args.h>
#include <tenon/plugin.h>

#define ROWS_GOOD 0
#define ROWS_NO_FUNCTION 1
#define ROWS_NO_DTYPE 2 /* a kernel for a dtype that does not exist */
#define ROWS_NO_SLOT 3  /* kernels for a device that does not exist */
#define ROWS_NO_CATEGORY 4

/* Leaves single elements to others; everything else is 42. */
static tn_status answer_f32(const tn_call *call, const void *args) {
    const tn_atan2_args *a = args;
    (void)call;
    if (a->plan->numel == 1) return TN_DECLINE;
    for (int64_t i = 0; i < a->plan->numel; i++) ((float *)a->plan->data[0])[i] = 42.0f;
    return TN_OK;
}

static tn_status answer_f64(const tn_call *call, const void *args) {
    const tn_atan2_args *a = args;
    double *scratch;
    tn_status st = call->host->scratch(call, 8, (void **)&scratch);
    if (st != TN_OK) return st;
    *scratch = 43.0;
    for (int64_t i = 0; i < a->plan->numel; i++) ((double *)a->plan->data[0])[i] = *scratch;
    return TN_OK;
}

static tn_status decline(const tn_call *call, const void *args) {
    (void)call;
    (void)args;
    return TN_DECLINE;
}

static tn_status fail(const tn_call *call, const void *args) {
    (void)args;
    return call->host->fail(TN_E_VALUE, 1, "the kernel says no %d", 7);
}

static void to_f32(const void *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = (float)((const signed char *)src)[i] / 4.0f;
}
static void from_f32(const float *src, void *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) ((signed char *)dst)[i] = (signed char)(src[i] * 4.0f);
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    const tn_kernel_row rows[] = {
        {.op = "atan2", .sig = TN_SIG_atan2, .fn = answer_f32, .dtype = TN_F32, .priority = 100},
        {.op = "atan2", .sig = TN_SIG_atan2, .fn = answer_f64, .dtype = TN_F64},
        {.op = "atan2", .sig = TN_SIG_atan2 + 1, .fn = fail, .dtype = TN_F64, .priority = 200},
        {.op = "no_such_operator", .sig = 1, .fn = fail, .dtype = TN_F64},
        {.op = "maximum", .sig = TN_SIG_maximum, .fn = decline, .dtype = TN_F32, .priority = 9},
        {.op = "maximum", .sig = TN_SIG_maximum, .fn = fail, .dtype = TN_F32, .priority = 8},
        {.op = "atan2", .sig = TN_SIG_atan2, .fn = NULL, .dtype = TN_F16},
        {.op = "atan2", .sig = TN_SIG_atan2, .fn = fail, .dtype = 200},
    };
    tn_dtype_desc quarter = {.struct_size = sizeof quarter,
                             .bits = 8,
                             .name = ROWS_NAME "_quarter",
                             .category = ROWS_FAULT == ROWS_NO_CATEGORY ? 9 : TN_CAT_FLOAT,
                             .to_f32 = to_f32,
                             .from_f32 = from_f32};
    int32_t slot;
    tn_status st = host->register_dtype(txn, &quarter, &slot);
    if (st != TN_OK) return st;
    if (host->query("no such interface")) return TN_E_INTERNAL;
    uint32_t n = ROWS_FAULT == ROWS_NO_FUNCTION ? 7 : 6;
    const tn_kernel_row *from = ROWS_FAULT == ROWS_NO_DTYPE ? rows + 7 : rows;
    if (ROWS_FAULT == ROWS_NO_DTYPE) n = 1;
    return host->register_kernels(txn, ROWS_FAULT == ROWS_NO_SLOT ? 99 : 0, from, sizeof rows[0],
                                  n);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    *ret_plugin = (tn_plugin){.struct_size = sizeof *ret_plugin,
                              .abi_major = TN_ABI_MAJOR,
                              .built_minor = TN_ABI_MINOR,
                              .name = ROWS_NAME,
                              .version = "1.2",
                              .activate = activate};
    return TN_OK;
}
