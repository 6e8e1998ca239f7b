/* plugin.c: the entry of the simulated device, its switches, and the functions of its table. */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tn_host *sim_host;
sim_config sim_settings;

static sim_device devices[SIM_DEVICES];
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

sim_device *sim_device_at(int32_t index) { return &devices[index]; }

/* ---- Switches ----------------------------------------------------------------------------------*/

static tn_status fail_switch(const char *name, const char *text, const char *want) {
    return sim_host->fail(TN_E_VALUE, -1, "%s is '%s' and must be %s", name, text, want);
}

static tn_status read_number(const char *name, uint64_t least, uint64_t most, uint64_t otherwise,
                             uint64_t *ret_value) {
    const char *text = getenv(name);
    char *end = NULL, want[80];
    *ret_value = otherwise;
    if (!text || !text[0]) return TN_OK;
    uint64_t value = strtoull(text, &end, 10);
    snprintf(want, sizeof want, "a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    if (*end || text[0] == '-' || value < least || value > most)
        return fail_switch(name, text, want);
    *ret_value = value;
    return TN_OK;
}

/* One of "kernel:OP:N", "kernel:N", "overrun:OP:N", "overrun:N", "oom:N", "lost:N". */
static bool read_fault(const char *text, size_t n, sim_fault *ret_fault) {
    static const char *const kinds[] = {"kernel", "overrun", "oom", "lost"};
    char copy[64];
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *op = strchr(copy, ':'), *number = strrchr(copy, ':');
    if (!op) return false;
    *op++ = *number++ = '\0';
    sim_fault f = {0};
    bool known = false;
    for (int k = 0; k < 4; k++) {
        if (strcmp(copy, kinds[k]) != 0) continue;
        f.kind = (sim_fault_kind)k;
        known = true;
    }
    if (number > op && strlen(op) < sizeof f.op) memcpy(f.op, op, strlen(op) + 1);
    f.left = strtoull(number, NULL, 10);
    *ret_fault = f;
    return known && f.left > 0 && strspn(number, "0123456789") == strlen(number);
}

static tn_status read_faults(sim_config *c) {
    const char *all = getenv("TENON_SIM_FAULT"), *text = all;
    c->nfaults = 0;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        if (c->nfaults == SIM_FAULTS || !read_fault(text, n, &c->faults[c->nfaults++]))
            return fail_switch("TENON_SIM_FAULT", all, "kernel:OP:N, overrun:OP:N, oom:N, lost:N");
        text += n + (text[n] == ',');
    }
    return TN_OK;
}

static tn_status read_settings(sim_config *ret_config) {
    const char *name = getenv("TENON_SIM_NAME"), *pointers = getenv("TENON_SIM_POINTERS");
    const char *unsafe = getenv("TENON_SIM_UNSAFE"), *spans = getenv("TENON_SIM_SPANS");
    const char *without = getenv("TENON_SIM_WITHOUT");
    sim_config c = {.name = "sim"};
    uint64_t count, level, delay, names, generator;
    tn_status st = read_number("TENON_SIM_COUNT", 1, SIM_DEVICES, 2, &count);
    if (st == TN_OK) st = read_number("TENON_SIM_LEVEL", 0, 3, 3, &level);
    if (st == TN_OK) st = read_number("TENON_SIM_SEED", 0, UINT32_MAX, 1, &c.seed);
    if (st == TN_OK) st = read_number("TENON_SIM_DELAY", 0, 1000000, 20, &delay);
    if (st == TN_OK)
        st = read_number("TENON_SIM_MEMORY", 1, UINT64_C(1) << 36, UINT64_C(1) << 30, &c.memory);
    if (st == TN_OK) st = read_number("TENON_SIM_NAMES", 0, 1, 1, &names);
    if (st == TN_OK) st = read_number("TENON_SIM_GENERATOR", 0, 1, 0, &generator);
    if (st == TN_OK) st = read_faults(&c);
    if (st != TN_OK) return st;
    if (name && strlen(name) >= sizeof c.name)
        return fail_switch("TENON_SIM_NAME", name, "a name of at most 23 characters");
    if (name && name[0]) memcpy(c.name, name, strlen(name) + 1);
    if (unsafe && strlen(unsafe) >= sizeof c.unsafe)
        return fail_switch("TENON_SIM_UNSAFE", unsafe, "an operator's name");
    if (unsafe) memcpy(c.unsafe, unsafe, strlen(unsafe) + 1);
    if (spans && strlen(spans) >= sizeof c.spans)
        return fail_switch("TENON_SIM_SPANS", spans, "a path of at most 255 characters");
    if (spans) memcpy(c.spans, spans, strlen(spans) + 1);
    if (pointers && strcmp(pointers, "opaque") != 0 && strcmp(pointers, "address") != 0)
        return fail_switch("TENON_SIM_POINTERS", pointers, "opaque or address");
    if (without && strlen(without) > sizeof c.without - 3)
        return fail_switch("TENON_SIM_WITHOUT", without, "names of tables: allocator,pinned");
    snprintf(c.without, sizeof c.without, ",%s,", without ? without : "");
    c.opaque = pointers && strcmp(pointers, "opaque") == 0;
    c.count = (int32_t)count;
    c.level = (int32_t)level;
    c.delay_us = (uint32_t)delay;
    c.names = names != 0;
    c.generator = generator != 0;
    *ret_config = c;
    return TN_OK;
}

bool sim_fault_now(sim_fault_kind kind, const char *op) {
    bool now = false;
    if (!sim_settings.nfaults) return false;
    pthread_mutex_lock(&fault_lock);
    for (int i = 0; i < sim_settings.nfaults; i++) {
        sim_fault *f = &sim_settings.faults[i];
        if (f->kind != kind || !f->left || (f->op[0] && strcmp(f->op, op) != 0)) continue;
        if (--f->left == 0) now = true;
    }
    pthread_mutex_unlock(&fault_lock);
    return now;
}

/* ---- Counts ------------------------------------------------------------------------------------*/

enum { COUNTED = 512 };
static struct {
    const char *op; /* Tenon's own text, which stays */
    uint64_t launches;
} counts[COUNTED];

/* The row of an operator, made when there is room; -1: there is none. */
static int count_row(const char *op) {
    for (int i = 0; i < COUNTED; i++) {
        if (!counts[i].op) counts[i].op = op;
        if (strcmp(counts[i].op, op) == 0) return i;
    }
    return -1;
}

void sim_count_launch(const char *op) {
    pthread_mutex_lock(&count_lock);
    int i = count_row(op);
    if (i >= 0) counts[i].launches++;
    pthread_mutex_unlock(&count_lock);
}

static uint64_t launches_of(const char *op) {
    uint64_t n = 0;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < COUNTED && counts[i].op; i++)
        if (strcmp(counts[i].op, op) == 0) n = counts[i].launches;
    pthread_mutex_unlock(&count_lock);
    return n;
}

/* ---- The six functions -------------------------------------------------------------------------*/

static tn_status sim_alloc(void *ctx, int32_t index, uint64_t bytes, void **ret_data) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    if (st == TN_OK) st = sim_memory_alloc(d, bytes, ret_data);
    pthread_mutex_unlock(&d->lock);
    return st;
}

static void sim_free(void *ctx, int32_t index, void *data, uint64_t bytes) {
    sim_device *d = sim_device_at(index);
    (void)ctx, (void)bytes;
    if (!data) return;
    pthread_mutex_lock(&d->lock);
    sim_memory_free(d, data);
    pthread_mutex_unlock(&d->lock);
}

static void run_copy(sim_work *w) { memcpy(w->dst, w->src, w->bytes); }

/* Queues a copy; `payload` is freed when it is done. */
static tn_status queue_copy(sim_device *d, const char *what, unsigned char *dst,
                            const unsigned char *src, uint64_t bytes, void *payload, void *stream) {
    sim_work *w = sim_work_new(d, what, run_copy);
    if (!w) {
        free(payload);
        return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    }
    w->dst = dst;
    w->src = src;
    w->bytes = bytes;
    w->payload = payload;
    return sim_submit(d, stream, w);
}

static tn_status sim_copy_in(void *ctx, int32_t index, void *dst, uint64_t offset, const void *src,
                             uint64_t bytes, void *stream) {
    sim_device *d = sim_device_at(index);
    unsigned char *to = sim_reach(d, dst, offset, bytes);
    (void)ctx;
    if (!to) return TN_E_INTERNAL;
    void *payload = malloc(bytes ? bytes : 1);
    if (!payload) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(payload, src, bytes);
    return queue_copy(d, "copy_in", to, payload, bytes, payload, stream);
}

static tn_status sim_copy_out(void *ctx, int32_t index, void *dst, const void *src, uint64_t offset,
                              uint64_t bytes, void *stream) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    tn_status st = sim_wait(d, stream);
    if (st != TN_OK) return st;
    const unsigned char *from = sim_reach(d, src, offset, bytes);
    if (!from) return TN_E_INTERNAL;
    memcpy(dst, from, bytes);
    return TN_OK;
}

static tn_status sim_copy_within(void *ctx, int32_t index, void *dst, uint64_t dst_offset,
                                 const void *src, uint64_t src_offset, uint64_t bytes,
                                 void *stream) {
    sim_device *d = sim_device_at(index);
    unsigned char *to = sim_reach(d, dst, dst_offset, bytes);
    const unsigned char *from = to ? sim_reach(d, src, src_offset, bytes) : NULL;
    (void)ctx;
    if (!from) return TN_E_INTERNAL;
    return queue_copy(d, "copy_within", to, from, bytes, NULL, stream);
}

static tn_status sim_sync(void *ctx, int32_t index) {
    (void)ctx;
    return sim_wait_all(sim_device_at(index));
}

static const char *sim_describe(void *ctx, int32_t index) {
    static const char *const texts[] = {
        "simulated device, level 0: memory only",
        "simulated device, level 1: primitive kernels",
        "simulated device, level 2: and fused kernels",
        "simulated device, level 3: and streams, graphs, peer copies, float16",
    };
    (void)ctx, (void)index;
    return texts[sim_settings.level];
}

/* ---- Named interfaces --------------------------------------------------------------------------*/

static const sim_counts_iface counts_iface = {
    .struct_size = sizeof counts_iface,
    .launches = launches_of,
};

/* The tables, and from which level on they are offered. */
static const struct {
    const char *name;
    int32_t level;
    const void *table;
} tables[] = {
    {"tn.memory/1", 0, &sim_memory_iface},           {"tenon.sim/1", 0, &counts_iface},
    {"tn.stream/1", 3, &sim_stream_iface},           {"tn.peer/1", 3, &sim_peer_iface},
    {"tn.allocator/1", 3, &sim_allocator_iface},     {"tn.graph/1", 3, &sim_graph_iface},
    {"tn.codegen/1", 3, &sim_codegen_iface},         {"tn.ipc/1", 3, &sim_ipc_iface},
    {"tn.collectives/1", 3, &sim_collectives_iface}, {"tn.profiler/1", 3, &sim_profiler_iface},
    {"tn.pinned/1", 3, &sim_pinned_iface},           {"tn.generator/1", 3, &sim_generator_iface},
    {"tn.program/1", 3, &sim_program_iface},
};

/* Whether TENON_SIM_WITHOUT names the table: "stream" for "tn.stream/1". */
static bool is_left_out(const char *iface) {
    const char *name = strchr(iface, '.') + 1;
    char listed[40];
    snprintf(listed, sizeof listed, ",%.*s,", (int)strcspn(name, "/"), name);
    return strstr(sim_settings.without, listed) != NULL;
}

static const void *sim_query(void *ctx, const char *iface) {
    (void)ctx;
    if (strcmp(iface, "tn.profiler/1") == 0 && !sim_settings.spans[0]) return NULL;
    if (strcmp(iface, "tn.generator/1") == 0 && !sim_settings.generator) return NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(iface, tables[i].name) == 0 && sim_settings.level >= tables[i].level)
            return is_left_out(iface) ? NULL : tables[i].table;
    return NULL;
}

/* ---- The door ----------------------------------------------------------------------------------*/

static void init_devices(void) {
    for (int32_t i = 0; i < SIM_DEVICES; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
        pthread_cond_init(&devices[i].changed, NULL);
        devices[i].index = i;
    }
}

void sim_register(sim_registrar *r, const char *op, uint64_t sig, tn_kernel_fn fn, const void *ctx,
                  int32_t dtype) {
    tn_kernel_row row = {.op = op, .sig = sig, .fn = fn, .dtype = dtype};
    row.flags = strcmp(op, sim_settings.unsafe) == 0 ? 0 : TN_K_CAPTURE_SAFE;
    row.ctx = (void *)(uintptr_t)ctx;
    if (r->status == TN_OK)
        r->status = r->host->register_kernels(r->txn, r->slot, &row, sizeof row, 1);
}

void sim_register_floats(sim_registrar *r, const char *op, uint64_t sig, tn_kernel_fn fn,
                         const void *ctx) {
    sim_register(r, op, sig, fn, ctx, TN_F32);
    if (sim_settings.level >= 3) sim_register(r, op, sig, fn, ctx, TN_F16);
}

static void register_kernels(sim_registrar *r) {
    if (sim_settings.level < 1) return;
    sim_register_copy(r);
    sim_register_map(r);
    sim_register_reduce(r);
    sim_register_index(r);
    sim_register_matmul(r);
    if (sim_settings.level >= 2) sim_register_fused(r);
    if (sim_settings.level >= 3) sim_register_random(r);
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    tn_device_desc desc = {
        .struct_size = sizeof desc,
        .flags = sim_settings.opaque ? 0 : TN_DEV_ADDRESSABLE,
        .name = sim_settings.name,
        .dl_device = 12,
        .count = sim_settings.count,
        .alloc = sim_alloc,
        .free = sim_free,
        .copy_in = sim_copy_in,
        .copy_out = sim_copy_out,
        .copy_within = sim_copy_within,
        .sync = sim_sync,
        .describe = sim_describe,
        .query = sim_query,
    };
    sim_registrar r = {.host = host, .txn = txn};
    r.status = host->register_device(txn, &desc, &r.slot);
    if (r.status == TN_OK) register_kernels(&r);
    return r.status;
}

/* A device that is loaded again is as good as new, but for the memory that tensors still have. */
static void revive_devices(void) {
    for (int32_t i = 0; i < SIM_DEVICES; i++) {
        pthread_mutex_lock(&devices[i].lock);
        devices[i].failed = devices[i].lost = false;
        pthread_mutex_unlock(&devices[i].lock);
    }
}

static void retire(void) {
    for (int32_t i = 0; i < SIM_DEVICES; i++) sim_queues_stop(&devices[i]);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sim_host = host;
    pthread_once(&once, init_devices);
    tn_status st = read_settings(&sim_settings);
    if (st != TN_OK) return st;
    revive_devices();
    ret_plugin->abi_major = TN_ABI_MAJOR;
    ret_plugin->min_minor = 0;
    ret_plugin->built_minor = TN_ABI_MINOR;
    ret_plugin->name = sim_settings.name;
    ret_plugin->version = "1.0";
    ret_plugin->summary = "a simulated device, for tests";
    ret_plugin->activate = activate;
    ret_plugin->retire = retire;
    return TN_OK;
}
