/* oplog.c: a layer that writes a line per operator call to a file: name, shapes and dtypes of what
 * goes in and comes out, microseconds. OPLOG_FILE names the file; else it is oplog.txt.
 *
 *     with tn.layer("oplog"):
 *         loss = model(x)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tenon/plugin.h>

enum { MOST = 16 };

static const tn_layer_iface *layers;
static FILE *out;

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int put(char *text, size_t room, int at, tn_view *const *views, int32_t n) {
    for (int32_t i = 0; i < n && i < MOST && (size_t)at < room; i++) {
        const tn_view *v = views[i];
        if (!v) continue;
        at += snprintf(text + at, room - (size_t)at, " %d:[", (int)tn_view_dtype(v));
        for (int32_t d = 0; d < v->ndim && (size_t)at < room; d++)
            at += snprintf(text + at, room - (size_t)at, d ? ",%lld" : "%lld",
                           (long long)v->shape[d]);
        if ((size_t)at < room) at += snprintf(text + at, room - (size_t)at, "]");
    }
    return at;
}

static tn_status call(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                      tn_view **rets) {
    (void)ctx;
    char text[1024];
    tn_view *views[MOST];
    const int room = (int)sizeof text;
    int at = snprintf(text, sizeof text, "%s", op->name);
    at = put(text, sizeof text, at, views, layers->inputs(op, args, views, MOST));
    double start = now();
    tn_status st = layers->next(next, op, args, rets);
    double took = now() - start;
    if (at < room) at += snprintf(text + at, sizeof text - (size_t)at, " ->");
    if (st == TN_OK && at < room)
        put(text, sizeof text, at, views, layers->results(op, rets, views, MOST));
    fprintf(out, "%s %.1f us%s\n", text, took, st == TN_OK ? "" : " failed"); /* one write a line */
    return st;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    const char *file = getenv("OPLOG_FILE");
    const tn_layer_desc desc = {
        .struct_size = sizeof desc,
        .priority = 1000, /* above others, so that its time is that of everything below */
        .name = "oplog",
        .call = call,
    };
    layers = (const tn_layer_iface *)host->query("tn.layer/1");
    if (!layers) return host->fail(TN_E_PLUGIN, -1, "oplog needs a Tenon with layers");
    if (!file) file = "oplog.txt";
    out = fopen(file, "w");
    if (!out) return host->fail(TN_E_IO, -1, "oplog cannot write %s", file);
    setvbuf(out, NULL, _IOLBF, 0);
    return host->register_layer(txn, &desc);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "oplog", "0.1.0", "logs every operator call", activate);
}
