/* device.c: loads the plugin under test, through the shim where the library is known, and asks what the
 * shim saw. */
#include "conform.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "facts.h"

static const cf_facts *facts;
static cf_text no_facts; /* why there are none */

/* A file beside the program. */
static bool beside(const char *name, char *dst, size_t size) {
    ssize_t n = readlink("/proc/self/exe", dst, size - 1);
    if (n <= 0) return false;
    dst[n] = '\0';
    char *slash = strrchr(dst, '/');
    if (!slash || (size_t)(slash - dst) + strlen(name) + 2 > size) return false;
    memcpy(slash + 1, name, strlen(name) + 1);
    return true;
}

const char *cf_data_path(void) {
    static char path[4096];
    return beside("conform.data", path, sizeof path) ? path : "conform.data";
}

static void find_facts(const char *shim) {
    void *library = dlopen(shim, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, CF_FACTS_SYMBOL) : NULL;
    cf_facts_fn get = NULL;
    memcpy(&get, &symbol, sizeof get);
    if (get) facts = get();
}

const struct cf_facts *cf_facts_get(void) { return facts; }

/* The name without ":1". */
static void kind_of(const char *device, char *dst, size_t size) {
    size_t n = strcspn(device, ":");
    if (n >= size) n = size - 1;
    memcpy(dst, device, n);
    dst[n] = '\0';
}

const char *cf_facts_why(void) { return no_facts.n ? no_facts.s : "the device came with Tenon"; }

/* A failure before the plugin's own code ran is the shim's: a lock file may keep it out. */
static tn_status load_through_shim(const cf_options *o) {
    char shim[4096], kind[64];
    if (!beside("conform_shim.so", shim, sizeof shim))
        return tn_fail(TN_E_IO, -1, "/proc/self/exe cannot be read");
    kind_of(o->device, kind, sizeof kind);
    setenv(CF_DEVICE_VARIABLE, kind, 1);
    tn_status st = tn_plugin_load(shim);
    find_facts(shim);
    if (st == TN_OK || (facts && facts->entered)) return st;
    facts = NULL;
    cf_add(&no_facts, "not looked at: %s", cf_why());
    return TN_OK;
}

tn_status cf_device_load(const cf_options *o, tn_device *ret_device) {
    const char *library = getenv(CF_LIBRARY_VARIABLE);
    tn_status st = o->manifest ? tn_plugin_add(o->manifest) : TN_OK;
    if (st == TN_OK && library && *library) st = load_through_shim(o);
    if (st == TN_OK && o->plugin && !facts) st = tn_plugin_load(o->plugin);
    return st == TN_OK ? tn_device_parse(o->device, ret_device) : st;
}

enum { PLUGINS = 256 };

static void note_active(bool *active) {
    tn_plugin_status s;
    for (int32_t i = 0; i < PLUGINS && tn_plugin_at(i, &s) == TN_OK; i++) active[i] = s.active != 0;
}

/* The library is that of --plugin, or of the plugin that becomes active when the device is asked for. */
tn_status cf_device_probe(const cf_options *o, const char **ret_library, tn_device *ret_device) {
    bool active[PLUGINS] = {false};
    tn_plugin_status s;
    note_active(active);
    tn_status st = cf_device_load(o, ret_device);
    *ret_library = o->plugin;
    for (int32_t i = 0; st == TN_OK && i < PLUGINS && tn_plugin_at(i, &s) == TN_OK; i++)
        if (s.active && !active[i]) *ret_library = s.path;
    return st;
}

void cf_held_count(tn_device device, cf_held *ret_held) {
    void *ctx;
    const tn_memory_iface *memory = tn_device_query(device.slot, "tn.memory/1", &ctx);
    tn_memory_stats stats = {0};
    *ret_held = (cf_held){-1, -1};
    if (facts) ret_held->handed_out = facts->bytes;
    if (memory && memory->stats(ctx, device.index, &stats) == TN_OK)
        ret_held->reported = (int64_t)stats.allocated;
}
