/* formula.c: operators without a kernel, made of others: by a formula, and by a function in C.
 *
 *     cc -O2 -fPIC -shared $(tenon config --include) formula.c -o formula.so
 *
 * They run on every device that has the parts, and are differentiated through them. */
#include <string.h>

#include <tenon/op_args.h>
#include <tenon/plugin.h>

/* swish by a formula. */
static const tn_op_desc swish = {
    .struct_size = sizeof swish,
    .kind = TN_OP_COMPOSITE,
    .schema = "example::swish(Tensor x, *, float beta=1.0) -> Tensor",
    .formula = "x * sigmoid(beta * x)",
    .doc = "x * sigmoid(beta * x).",
};

/* repeated(x, times) is x + x + ...: a loop, which no formula has. */
typedef struct repeated_args {
    const tn_plan *plan;
    const tn_view *x;
    int64_t times;
    tn_view *out;
} repeated_args;

static tn_status repeated(const tn_host *host, void *ctx, const void *args, tn_view **rets) {
    const tn_call_iface *call = (const tn_call_iface *)host->query("tn.call/1");
    const tn_op_info *add = call->find("add");
    const repeated_args *a = args;
    tn_view *sum = call->retain((tn_view *)(uintptr_t)a->x);
    tn_status st = TN_OK;
    (void)ctx;
    if (add->sig != TN_SIG_add || a->times < 1) {
        call->release(sum);
        return host->fail(TN_E_VALUE, 1, "times must be at least 1");
    }
    for (int64_t i = 1; i < a->times && st == TN_OK; i++) {
        tn_add_args parts = {
            .input = sum, .other = a->x, .alpha = {.kind = TN_CAT_INT, .i = 1, .re = 1}};
        tn_view *next = NULL;
        st = call->invoke(add, &parts, &next);
        call->release(sum);
        sum = next;
    }
    if (st == TN_OK) rets[0] = sum;
    return st;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_op_desc repeat = {
        .struct_size = sizeof repeat,
        .kind = TN_OP_COMPOSITE,
        .args_bytes = sizeof(repeated_args),
        .schema = "example::repeated(Tensor x, int times) -> Tensor",
        .composite = repeated,
        .doc = "x + x + ..., so many times.",
    };
    tn_status st = host->register_op(txn, &swish);
    return st == TN_OK ? host->register_op(txn, &repeat) : st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "example_formula", "1.0", "operators made of others",
                          activate);
}
