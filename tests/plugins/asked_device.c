/* asked_device.c: a device in the host's memory, "asked", that takes every node it is asked about and compiles no
 * region. It writes down what it hears, one line each, in the file that ASKED_FILE names: the operator with the
 * shapes of its values, a constant's with its first number, and what reshape makes; or how many nodes, inputs and
 * outputs a region has. With ASKED_LIE it says that it has compiled, and its code does what it must not do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/op_args.h>
#include <tenon/plugin.h>

static const tn_host *host;

static tn_status asked_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    *ret_data = calloc(1, bytes);
    return *ret_data ? TN_OK : host->fail(TN_E_MEMORY, -1, "asked: no room");
}

static void asked_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)bytes;
    free(data);
}

static tn_status asked_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                          const void *src, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy((char *)dst + dst_offset, src, bytes);
    return TN_OK;
}

static tn_status asked_out(void *ctx, int32_t device, void *dst, const void *src,
                           uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(dst, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status asked_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                              const void *src, uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy((char *)dst + dst_offset, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status asked_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

/* ---- What it hears -----------------------------------------------------------------------------*/

static FILE *open_file(void) {
    const char *path = getenv("ASKED_FILE");
    return path ? fopen(path, "a") : NULL;
}

static void put_value(FILE *f, const tn_region *r, int32_t i) {
    const tn_region_value *v = (const void *)((const char *)r->values + (size_t)i * r->value_size);
    fprintf(f, "[");
    for (int32_t d = 0; d < v->ndim; d++) fprintf(f, "%s%" PRId64, d ? "," : "", v->shape[d]);
    fprintf(f, "]");
    if (v->constant && v->dtype == TN_F32)
        fprintf(f, "=%g", (double)*(const float *)v->constant->data);
}

static tn_status asked_takes(void *ctx, int32_t device, const tn_region *r) {
    const tn_region_node *n = r->nodes;
    FILE *f = open_file();
    (void)ctx, (void)device;
    if (!f || r->nnodes != 1) return TN_DECLINE;
    fprintf(f, "%s", n->op);
    for (int32_t i = 0; i < n->nin; i++) {
        fprintf(f, " ");
        if (n->in[i] >= 0)
            put_value(f, r, n->in[i]);
        else
            fprintf(f, "%g", n->in[i] == TN_REGION_NUMBER ? n->number[i].re : -1.0);
    }
    if (n->sig == TN_SIG_reshape) {
        const tn_ints *shape = &((const tn_reshape_args *)n->args)->shape;
        for (int64_t i = 0; i < shape->n; i++) fprintf(f, " %" PRId64, shape->v[i]);
    }
    fprintf(f, "\n");
    fclose(f);
    return TN_OK;
}

static tn_status asked_compile(void *ctx, int32_t device, const tn_region *r, void **ret_code) {
    FILE *f = open_file();
    (void)ctx, (void)device;
    if (!f) return TN_DECLINE;
    *ret_code = getenv("ASKED_LIE");
    fprintf(f, "region of %d: %d in, %d out\n", (int)r->nnodes, (int)r->ninputs, (int)r->noutputs);
    fclose(f);
    return *ret_code ? TN_OK : TN_DECLINE;
}

static tn_status asked_run(void *ctx, int32_t device, void *code, const tn_view *const *values,
                           void *stream) {
    tn_view *result = (tn_view *)(uintptr_t)values[0];
    float *to = result->data, *from = values[1]->data;
    (void)ctx, (void)device, (void)stream;
    for (int64_t i = 0; i < result->numel; i++) to[i] = from[i];
    if (strcmp(code, "behind") == 0) to[result->numel] = 1;
    if (strcmp(code, "before") == 0) to[-1] = 1;
    if (strcmp(code, "input") == 0) from[1] += 1;
    if (strcmp(code, "header") == 0) result->ndim = 0;
    if (strcmp(code, "size") == 0) result->shape[0] = 1;
    return strcmp(code, "fails") == 0 ? host->fail(TN_E_MEMORY, -1, "asked: no room") : TN_OK;
}

static void asked_destroy(void *ctx, int32_t device, void *code) {
    (void)ctx, (void)device, (void)code;
}

static const tn_program_iface program = {
    .struct_size = sizeof program,
    .takes = asked_takes,
    .compile = asked_compile,
    .run = asked_run,
    .destroy = asked_destroy,
};

static const void *asked_query(void *ctx, const char *name) {
    (void)ctx;
    return strcmp(name, "tn.program/1") == 0 ? &program : NULL;
}

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static tn_device_desc asked = {
        .struct_size = sizeof asked,
        .flags = TN_DEV_ADDRESSABLE,
        .name = "asked",
        .dl_device = 12,
        .count = 2,
        .alloc = asked_alloc,
        .free = asked_free,
        .copy_in = asked_in,
        .copy_out = asked_out,
        .copy_within = asked_within,
        .sync = asked_sync,
        .query = asked_query,
    };
    int32_t slot;
    host = h;
    if (getenv("ASKED_LIE")) asked.flags |= TN_DEV_HOST;
    return h->register_device(txn, &asked, &slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "asked", "1.0", "hears of programs", activate);
}
