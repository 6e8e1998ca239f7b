/* shim.c: a plugin that stands between Tenon and the plugin under test. It opens that library, hands its
 * entry function a host table that writes down what is registered, and puts counters around alloc and
 * free of the device under test. Everything else reaches Tenon unchanged, in the same transaction: ctx,
 * kernels and named interfaces are the plugin's own. */
#include "facts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static cf_facts facts;
static const tn_host *real;
static tn_host ours;
static int32_t entering;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

TN_PLUGIN_EXPORT const cf_facts *cf_shim_facts(void);
const cf_facts *cf_shim_facts(void) { return &facts; }

/* ---- Counting ----------------------------------------------------------------------------------*/

static void count(int64_t bytes) {
    pthread_mutex_lock(&lock);
    facts.bytes += bytes;
    *(bytes < 0 ? &facts.frees : &facts.allocations) += 1;
    pthread_mutex_unlock(&lock);
}

static tn_status counted_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    tn_status st = facts.device.alloc(ctx, device, bytes, ret_data);
    if (st == TN_OK) count((int64_t)bytes);
    return st;
}

static void counted_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    count(-(int64_t)bytes);
    facts.device.free(ctx, device, data, bytes);
}

/* ---- What is registered ------------------------------------------------------------------------*/

static int is_under_test(const tn_device_desc *d) {
    const char *name = getenv(CF_DEVICE_VARIABLE);
    return d->name && name && strcmp(d->name, name) == 0;
}

static tn_status register_device(tn_txn *txn, const tn_device_desc *d, int32_t *ret_slot) {
    facts.early += entering;
    facts.devices++;
    if (!d || d->struct_size < offsetof(tn_device_desc, sync) || !is_under_test(d))
        return real->register_device(txn, d, ret_slot);
    size_t size = d->struct_size < sizeof *d ? d->struct_size : sizeof *d;
    memcpy(&facts.device, d, size);
    tn_device_desc copy = facts.device;
    copy.struct_size = (uint32_t)size;
    if (copy.alloc) copy.alloc = counted_alloc;
    if (copy.free) copy.free = counted_free;
    return real->register_device(txn, &copy, ret_slot);
}

static void note_row(const tn_kernel_row *row) {
    if (!row->op || !row->fn) facts.bad_rows++;
    if (facts.nrows < CF_FACT_ROWS) {
        cf_fact_row *to = &facts.rows[facts.nrows];
        to->row = *row;
        if (row->op) strncpy(to->op, row->op, sizeof to->op - 1);
    }
    facts.nrows++;
}

static tn_status register_kernels(tn_txn *txn, int32_t device, const tn_kernel_row *rows,
                                  uint32_t row_size, uint32_t n) {
    facts.early += entering;
    facts.row_size = row_size;
    const char *at = (const char *)rows;
    for (uint32_t i = 0; rows && row_size >= sizeof *rows && i < n; i++)
        note_row((const tn_kernel_row *)(const void *)(at + (size_t)i * row_size));
    return real->register_kernels(txn, device, rows, row_size, n);
}

/* ---- The entry ---------------------------------------------------------------------------------*/

static tn_status activate(const tn_host *host, tn_txn *txn) {
    (void)host;
    return facts.plugin.activate(&ours, txn);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    const char *path = getenv(CF_LIBRARY_VARIABLE);
    tn_plugin_entry_fn entry = NULL;
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return host->fail(TN_E_PLUGIN, -1, "%s", path ? dlerror() : "no library was named");
    void *symbol = dlsym(library, TN_PLUGIN_ENTRY);
    if (!symbol) return host->fail(TN_E_PLUGIN, -1, "%s exports no " TN_PLUGIN_ENTRY, path);
    memcpy(&entry, &symbol, sizeof entry);
    real = host;
    ours = *host;
    ours.register_device = register_device;
    ours.register_kernels = register_kernels;
    facts.plugin = (tn_plugin){.struct_size = ret_plugin->struct_size};
    entering = 1;
    tn_status st = entry(&ours, &facts.plugin);
    entering = 0;
    if (st != TN_OK) return st;
    facts.entered = 1;
    *ret_plugin = facts.plugin;
    if (facts.plugin.activate) ret_plugin->activate = activate;
    return TN_OK;
}
