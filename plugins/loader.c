/* loader.c: finds plugins by their manifests, decides about versions, activates.
 *
 * Finding reads data only: `*.json` manifests in the folder `plugins` beside libtenon and in the
 * folders of TENON_PLUGIN_PATH (absolute, separated by ':'; never the current folder). A library is
 * mapped when its device is first asked for. A plugin that cannot be used keeps a line that says
 * which file, why, and what to do; everything else works on. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "json_priv.h"
#include "os_priv.h"
#include "registry_priv.h"

enum { MANIFEST_BYTES = 1 << 20, MANIFEST_VALUES = 4096, PATH_BYTES = 4096 };

/* A manifest that was found. `plugin` is filled when its library is loaded. */
typedef struct found {
    char *name, *version, *summary, *library; /* library: absolute path */
    char *devices;                            /* ",cpu,acme," */
    int32_t major, min_minor;
    char *problem;
    tni_plugin *plugin;
    struct found *next;
} found;

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static found *all;          /* in the order of discovery */
static bool discovered;

static char *copy_text(const char *s) {
    size_t n = strlen(s ? s : "") + 1;
    char *c = malloc(n);
    if (c) memcpy(c, s ? s : "", n);
    return c;
}

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return copy_text(text);
}

static void append(found *f) {
    found **at = &all;
    while (*at) at = &(*at)->next;
    *at = f;
}

/* ---- Manifests ---------------------------------------------------------------------------------*/

static const char *text_of(const tni_json *v, const tni_json *root, const char *key) {
    const tni_json *m = tni_json_get(v, root, key);
    return m && m->kind == TNI_JSON_TEXT ? m->text : NULL;
}

static int32_t number_of(const tni_json *v, const tni_json *object, const char *key, int32_t none) {
    const tni_json *m = tni_json_get(v, object, key);
    return m && m->kind == TNI_JSON_NUMBER && m->number >= 0 && m->number < 1e6 ? (int32_t)m->number
                                                                                : none;
}

static char *device_list(const tni_json *v, const tni_json *root) {
    char text[512];
    size_t at = 0;
    const tni_json *list = tni_json_get(v, root, "devices");
    text[at++] = ',';
    for (int32_t i = list && list->kind == TNI_JSON_ARRAY ? list->first : -1; i >= 0; i = v[i].next) {
        size_t n = v[i].text ? strlen(v[i].text) : 0;
        if (n == 0 || at + n + 2 >= sizeof text) continue;
        memcpy(text + at, v[i].text, n);
        at += n;
        text[at++] = ',';
    }
    text[at] = '\0';
    return copy_text(text);
}

/* What is wrong with a manifest, or NULL; fills f from it. */
static char *read_manifest(found *f, const char *folder, const char *path, char *text, tni_json *v) {
    const char *bad = tni_json_read(text, v, MANIFEST_VALUES);
    if (bad) return format("%s is not a manifest: %s", path, bad);
    const char *name = text_of(v, &v[0], "name"), *library = text_of(v, &v[0], "library");
    if (!name || !library) return format("%s is not a manifest: 'name' or 'library' is missing", path);
    if (strchr(library, '/') || library[0] == '.')
        return format("%s names its library '%s'; it must be a file beside the manifest", path, library);
    const tni_json *abi = tni_json_get(v, &v[0], "abi");
    free(f->name);
    f->name = copy_text(name);
    f->version = copy_text(text_of(v, &v[0], "version"));
    f->summary = copy_text(text_of(v, &v[0], "summary"));
    free(f->library);
    f->library = format("%s/%s", folder, library);
    f->devices = device_list(v, &v[0]);
    f->major = number_of(v, abi, "major", -1);
    f->min_minor = number_of(v, abi, "min_minor", -1);
    if (f->major != TN_ABI_MAJOR || f->min_minor < 0 || f->min_minor > TN_ABI_MINOR)
        return format("%s needs plugin ABI %d.%d, this Tenon serves %d.0 to %d.%d: install a version of "
                      "'%s' for this Tenon, or another Tenon",
                      path, (int)f->major, (int)f->min_minor, TN_ABI_MAJOR, TN_ABI_MAJOR, TN_ABI_MINOR,
                      name);
    return NULL;
}

static void find_manifest(void *ctx, const char *file) {
    const char *folder = ctx, *why = NULL;
    size_t n = strlen(file);
    char path[PATH_BYTES];
    if (n < 6 || strcmp(file + n - 5, ".json") != 0) return;
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return;
    found *f = calloc(1, sizeof *f);
    tni_json *values = malloc(sizeof *values * MANIFEST_VALUES);
    if (!f || !values) {
        free(f);
        free(values);
        return;
    }
    f->name = copy_text(file);
    f->library = copy_text(path);
    why = tni_os_untrusted(path);
    char *text = why ? NULL : tni_os_read_file(path, MANIFEST_BYTES, &why);
    if (text)
        f->problem = read_manifest(f, folder, path, text, values);
    else
        f->problem = format("%s was not read: %s", path, why);
    free(text);
    free(values);
    append(f);
}

static void discover(void) {
    char folder[PATH_BYTES];
    size_t n;
    if (discovered) return;
    discovered = true;
    if (tni_os_own_folder(folder, sizeof folder - sizeof "/plugins")) {
        n = strlen(folder);
        memcpy(folder + n, "/plugins", sizeof "/plugins");
        tni_os_list(folder, find_manifest, folder);
    }
    const char *path = tni_os_getenv("TENON_PLUGIN_PATH");
    while (path && *path) {
        n = strcspn(path, ":");
        if (n > 0 && path[0] == '/' && n < sizeof folder) {
            memcpy(folder, path, n);
            folder[n] = '\0';
            tni_os_list(folder, find_manifest, folder);
        }
        path += n + (path[n] == ':');
    }
}

/* ---- Activation --------------------------------------------------------------------------------*/

/* NULL, or why the plugin cannot be used. */
static char *activate(tni_plugin *p, const char *path) {
    const char *why = tni_os_untrusted(path);
    tn_txn *txn;
    if (why) return format("%s was not loaded: %s; make it yours and not writable by others", path, why);
    p->library = tni_os_library_open(path, &why);
    if (!p->library) return format("%s could not be loaded: %s", path, why);
    void *symbol = tni_os_library_symbol(p->library, TN_PLUGIN_ENTRY);
    if (!symbol)
        return format("%s exports no " TN_PLUGIN_ENTRY ": it is no Tenon plugin, or one for another "
                      "major version", path);
    tn_plugin_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    tn_plugin theirs = {.struct_size = sizeof theirs};
    if (entry(&tni_host, &theirs) != TN_OK)
        return format("%s refused to start: %s", path, tn_error_last()->message);
    memset(&p->table, 0, sizeof p->table);
    memcpy(&p->table, &theirs,
           theirs.struct_size < sizeof p->table ? theirs.struct_size : sizeof p->table);
    if (p->table.abi_major != TN_ABI_MAJOR || p->table.min_minor > TN_ABI_MINOR)
        return format("%s needs plugin ABI %u.%u, this Tenon serves %d.%d: install a version that fits",
                      path, (unsigned)p->table.abi_major, (unsigned)p->table.min_minor, TN_ABI_MAJOR,
                      TN_ABI_MINOR);
    if (!p->table.name || !p->table.activate)
        return format("%s fills in no name or no activate function", path);
    free(p->name);
    p->name = copy_text(p->table.name);
    p->version = copy_text(p->table.version);
    p->summary = copy_text(p->table.summary);
    if (!p->name || !p->version || !p->summary) return copy_text("out of memory");
    if (tni_txn_begin(p, &txn) != TN_OK) return copy_text("out of memory");
    if (p->table.activate(&tni_host, txn) != TN_OK) {
        tni_txn_rollback(txn);
        return format("%s could not activate: %s", path, tn_error_last()->message);
    }
    if (tni_txn_commit(txn) != TN_OK) return copy_text("out of memory");
    p->active = 1;
    return NULL;
}

/* Loads f's library once; f->problem says why not. */
static void load(found *f) {
    static uint32_t order;
    if (f->plugin || f->problem) return;
    tni_plugin *p = calloc(1, sizeof *p);
    if (!p) {
        f->problem = copy_text("out of memory");
        return;
    }
    p->name = copy_text(f->name);
    p->path = copy_text(f->library);
    p->order = ++order;
    f->problem = activate(p, f->library);
    f->plugin = p;
}

tn_status tn_plugin_load(const char *path) {
    if (!path || path[0] != '/')
        return tn_fail(TN_E_PLUGIN, 0, "a plugin is loaded by its absolute path, not '%s'",
                       path ? path : "NULL");
    tni_os_lock(&lock);
    discover();
    found *f = all;
    while (f && strcmp(f->library, path) != 0) f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        if (f) {
            f->name = copy_text(path);
            f->library = copy_text(path);
            append(f);
        }
    }
    if (f) load(f);
    const char *problem = f ? f->problem : "out of memory";
    tni_os_unlock(&lock);
    return problem ? tn_fail(TN_E_PLUGIN, -1, "%s", problem) : TN_OK;
}

tn_status tni_loader_load_device(const char *name) {
    char key[64];
    char problems[768] = "";
    bool served = false;
    snprintf(key, sizeof key, ",%s,", name);
    tni_os_lock(&lock);
    discover();
    for (found *f = all; f && !served; f = f->next) {
        if (f->devices && !strstr(f->devices, key)) continue;
        if (f->devices) load(f);
        served = f->plugin && f->plugin->active;
        if (f->problem && strlen(problems) + strlen(f->problem) + 4 < sizeof problems) {
            size_t at = strlen(problems);
            snprintf(problems + at, sizeof problems - at, "%s%s", at ? "; " : "", f->problem);
        }
    }
    tni_os_unlock(&lock);
    if (served) return TN_OK;
    if (problems[0])
        return tn_fail(TN_E_DEVICE, -1, "device '%s' cannot be used: %s", name, problems);
    return tn_fail(TN_E_DEVICE, -1,
                   "no plugin serves device '%s': install one, or name its folder in TENON_PLUGIN_PATH",
                   name);
}

tn_status tn_plugin_retire(const char *name) {
    tn_status st = tn_fail(TN_E_PLUGIN, 0, "no active plugin is called '%s'", name ? name : "NULL");
    tni_os_lock(&lock);
    for (found *f = all; name && f; f = f->next) {
        tni_plugin *p = f->plugin;
        if (!p || !p->active || strcmp(p->name, name) != 0) continue;
        st = tni_registry_withdraw(p);
        if (p->table.retire) p->table.retire();
        p->active = 0;
        f->problem = copy_text("it was retired in this process");
        break;
    }
    tni_os_unlock(&lock);
    return st;
}

tn_status tn_plugin_at(int32_t i, tn_plugin_status *ret_status) {
    tni_os_lock(&lock);
    discover();
    found *f = all;
    while (f && i-- > 0) f = f->next;
    tni_os_unlock(&lock);
    if (!f || i >= 0) return tn_fail(TN_E_INDEX, 0, "there is no such plugin");
    const tni_plugin *p = f->plugin;
    *ret_status = (tn_plugin_status){
        p && p->active ? p->name : f->name,
        p && p->active ? p->version : f->version ? f->version : "",
        p && p->active ? p->summary : f->summary ? f->summary : "",
        f->library,
        f->problem,
        p ? p->active : 0,
        p ? p->kernels : 0,
    };
    return TN_OK;
}
