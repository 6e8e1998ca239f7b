/* explain.c: says in words what would run for (op, device, dtype), and why. Which way a call goes is
 * decided by tni_way_of alone. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "call_priv.h"

typedef struct text {
    char *data;
    size_t used, room;
    bool failed;
} text;

static void say(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *fmt, ...) {
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (t->used + length + 1 > t->room) {
        size_t room = 2 * (t->used + length + 1);
        char *data = realloc(t->data, room);
        if (!data) {
            t->failed = true;
            return;
        }
        t->data = data;
        t->room = room;
    }
    memcpy(t->data + t->used, line, length + 1);
    t->used += length;
}

/* One line per candidate; true when there is any. */
static bool list_kernels(text *t, const tn_op *op, int32_t slot, int32_t dtype) {
    const tn_row *row = atomic_load_explicit(&op->row[slot], memory_order_acquire);
    const tn_cell *c = row ? atomic_load_explicit(&row->cell[dtype], memory_order_acquire) : NULL;
    const tn_cell *any = row ? atomic_load_explicit(&row->any, memory_order_acquire) : NULL;
    const char *what = "kernel for this dtype";
    if (!c) {
        c = any;
        what = "kernel for any dtype";
    }
    const tn_cell *first = c;
    for (; c; c = tni_cell_next(c))
        say(t, "  %s %s, plugin '%s' %s, priority %d%s\n", c == first ? "runs:" : "then:", what,
            c->plugin->name, c->plugin->version, (int)c->priority,
            c->flags & TNI_CELL_PREFERRED ? ", preferred" : "");
    return first != NULL;
}

static void explain(text *t, const tn_op *op, tn_device device, int32_t dtype) {
    say(t, "%s on %s for %s\n", op->info.name, tn_device_name(device.slot), tn_dtype_name(dtype));
    if (op->flags & TNI_OP_ADDED)
        say(t, "  added by plugin '%s'  %s\n  gradient: %s\n", op->file, op->info.schema,
            op->formula                        ? op->formula
            : op->info.kind == TN_OP_COMPOSITE ? "through its parts"
            : op->grad                         ? "missing: backward raises"
                                               : "none: not differentiable");
    else
        say(t, "  entry: %s:%d  %s\n", op->file, (int)op->line, op->info.schema);
    switch (tni_way_of(op, device, dtype)) {
    case TN_WAY_CORE: say(t, "  runs: in the core, for every device (a view: no kernel)\n"); break;
    case TN_WAY_KERNEL:
        if (!list_kernels(t, op, device.slot, dtype))
            say(t, "  runs: shapes and dtypes are inferred, nothing is computed\n");
        else if (op->info.kind == TN_OP_COMPOSITE)
            say(t, "  then: composite of other operators%s\n",
                op->grad ? "" : ", which a gradient runs again");
        break;
    case TN_WAY_COMPOSITE:
        say(t, "  no kernel on this device; runs: composite of other operators\n");
        break;
    case TN_WAY_WIDER:
        say(t, "  no kernel for this dtype; runs: in float32, converted on both sides\n");
        list_kernels(t, op, device.slot, TN_F32);
        break;
    case TN_WAY_HOST:
        say(t, "  no kernel on this device; runs: on the CPU, with copies both ways\n");
        list_kernels(t, op, 0, dtype);
        break;
    default:
        say(t,
            "  cannot run: no kernel for this dtype, none for any dtype, none for a wider "
            "dtype, no composite%s\n",
            device.slot ? "; the CPU may not be used (TENON_FALLBACK=error)" : "");
    }
}

static tn_status find_all(const char *name, tn_device device, int32_t dtype, const tn_op **ret_op) {
    *ret_op = name ? tni_op_find(name) : NULL;
    if (!*ret_op) return tn_fail(TN_E_VALUE, 0, "there is no operator '%s'", name ? name : "NULL");
    if (!tn_device_name(device.slot))
        return tn_fail(TN_E_DEVICE, 1, "there is no device slot %d", (int)device.slot);
    if (!tn_dtype_name(dtype)) return tn_fail(TN_E_DTYPE, 2, "there is no dtype %d", (int)dtype);
    return tni_device_ready(device.slot);
}

tn_status tn_explain_way(const char *name, tn_device device, int32_t dtype, int32_t *ret_way) {
    const tn_op *op;
    if (!ret_way) return tn_fail(TN_E_TYPE, 3, "explain_way(): the result has no place to go");
    TN_TRY(find_all(name, device, dtype, &op));
    *ret_way = tni_way_of(op, device, dtype);
    return TN_OK;
}

tn_status tn_explain(const char *name, tn_device device, int32_t dtype, char **ret_text) {
    if (!ret_text) return tn_fail(TN_E_TYPE, -1, "explain(): the result has no place to go");
    text t = {NULL, 0, 0, false};
    const tn_op *op;
    TN_TRY(find_all(name, device, dtype, &op));
    explain(&t, op, device, dtype);
    if (t.failed) {
        free(t.data);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    *ret_text = t.data;
    return TN_OK;
}
