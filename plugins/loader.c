/* loader.c: finds plugins by their manifests, decides about versions, activates.
 *
 * Finding reads data only: the manifests `*.json` in the folders of TENON_PLUGIN_PATH (absolute,
 * separated by ':'; never the current folder), in `plugins` beside libtenon, in the plugins.d of
 * the installation, the user and the system, and what the host language's packages declare. A
 * library is mapped when its device is first asked for. A plugin that cannot be used keeps a line
 * that says which file, why, and what to do; everything else works on. See note [Shortages].
 *
 * One lock covers this file, and is held while a plugin activates. What the plugin logs meanwhile is
 * shown when the lock is free again. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "catch_priv.h"
#include "check_priv.h"
#include "json_priv.h"
#include "os_priv.h"
#include "sha256_priv.h"
#include "text_priv.h"
#include "txn_priv.h"

enum { MANIFEST_BYTES = 64 << 10, LOCK_BYTES = 1 << 20, PATH_BYTES = 4096, TABLE_BYTES = 4096 };

/* A name that a manifest lists: what the plugin is loaded for. */
typedef struct offer {
    tni_offer kind;
    char *name;
    struct offer *next;
} offer;

/* One plugin: found by its manifest, or loaded by path. Never freed: statuses point into it. */
typedef struct found {
    tni_plugin plugin; /* what the registry refers to; its texts are set when the library is */
    char *name, *version, *summary, *library, *manifest; /* manifest: NULL when loaded by path */
    offer *offers;
    int64_t format, major, min_minor;
    char *problem;
    bool ours;    /* from the folder beside libtenon: whoever writes there could replace libtenon */
    bool tried;   /* its library was mapped, or that failed */
    bool retired; /* after that, with success */
    bool passing; /* its problem is none of the plugin's: the next use tries again */
    bool half_read; /* such a problem came when its manifest was read */
    char *variable; /* NAME=value, in the environment while its library is mapped; ours alone */
    struct found *next;
} found;

/* Texts live as long as the process because tn_plugin_at hands them out; the list keeps them
 * reachable when a later text replaces one. */
typedef struct text_block {
    struct text_block *next;
    char text[];
} text_block;

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static found *all; /* in the order of discovery */
static text_block *texts;
static bool discovered;
static TN_TLS tn_status lack;  /* TN_OK, or what this thread's search or load ran into */
static TN_TLS int32_t loading; /* a plugin's entry or activate function runs on this thread */
static atomic_bool host_asked;
static const char *own_folder; /* `plugins` beside libtenon */
static char no_memory[] = "out of memory";

/* Note [Shortages]
 * A lack of memory or of file descriptors, and an exception of the host, say nothing about a plugin.
 * Whoever runs into one sets `lack`. The search is then not over, and the problem of the plugin at hand
 * is `passing`: it is told, and the next use begins anew. What the caller gets is TN_E_MEMORY, or
 * whatever was lacking, and never the sentence about a plugin that cannot be used. */
static void note_status(tn_status st) {
    if (st == TN_E_MEMORY || st == TN_E_IO || st == TN_E_HOST || st == TN_E_INTERRUPTED) lack = st;
}

/* After a function of the system has failed. */
static void note_shortage(void) { note_status(tni_os_shortage()); }

static void enter_again(void) {
    tni_host_log_hold();
    tni_os_lock(&lock);
}

/* A plugin that starts has the lock: on its thread nobody else may. */
static tn_status enter(const char *what) {
    if (loading)
        return tn_fail(TN_E_PLUGIN, -1, "%s, and nothing is loaded while a plugin starts", what);
    enter_again();
    return TN_OK;
}

static void leave(void) {
    tni_os_unlock(&lock);
    tni_host_log_release();
}

/* A text that is there already is taken, so that loading a plugin over and over adds none. */
static char *copy_text(const char *s) {
    size_t n = strlen(s) + 1;
    for (text_block *block = texts; block; block = block->next)
        if (strcmp(block->text, s) == 0) return block->text;
    text_block *block = malloc(sizeof *block + n);
    if (!block) {
        lack = TN_E_MEMORY;
        return no_memory;
    }
    memcpy(block->text, s, n);
    block->next = texts;
    texts = block;
    return block->text;
}

static char *format_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format_text(const char *fmt, ...) {
    char text[PATH_BYTES + 1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return copy_text(text);
}

static found *append(const char *name, const char *library) {
    found *f = calloc(1, sizeof *f), **at = &all;
    if (!f) lack = TN_E_MEMORY;
    if (!f) return NULL;
    f->name = copy_text(name);
    f->library = copy_text(library);
    f->version = f->summary = copy_text("");
    f->major = f->min_minor = f->format = -1;
    while (*at) at = &(*at)->next;
    *at = f;
    return f;
}

/* ---- Selection ---------------------------------------------------------------------------------*/

/* Whether a text matches a pattern of n characters with '*' and '?'. */
static bool matches(const char *pattern, size_t n, const char *text) {
    if (n == 0) return !*text;
    if (*pattern == '*')
        return matches(pattern + 1, n - 1, text) || (*text && matches(pattern, n, text + 1));
    return *text && (*pattern == '?' || *pattern == *text) && matches(pattern + 1, n - 1, text + 1);
}

/* Whether TENON_PLUGINS, "none" or patterns of names separated by ',', leaves a plugin out. A plugin
 * that is loaded by its path has no name yet (NULL) and obeys "none" alone. */
static bool left_out(const char *name) {
    const char *list = tni_os_getenv("TENON_PLUGINS");
    if (!list || !list[0]) return false;
    if (strcmp(list, "none") == 0 || !name) return strcmp(list, "none") == 0;
    while (*list) {
        size_t n = strcspn(list, ",");
        if (matches(list, n, name)) return false;
        list += n + (list[n] == ',');
    }
    return true;
}

/* NULL, or why a file must not be used. */
static char *trust_problem(const char *path, const char *verb) {
    const char *why = tni_os_untrusted(path);
    if (!why) return NULL;
    note_shortage();
    return format_text(
        "%s was not %s: %s; make the file and the folders on its path yours or root's "
        "and not writable by others",
        path, verb, why);
}

/* ---- The lock file -----------------------------------------------------------------------------*/

/* The file that names the libraries which may be loaded; false: there is none. */
static bool lock_file(char path[PATH_BYTES]) {
    const char *named = tni_os_getenv("TENON_PLUGINS_LOCK");
    static const char tail[] = "/tenon/plugins.lock";
    if (named && named[0]) {
        size_t n = strlen(named) + 1;
        memcpy(path, n <= PATH_BYTES ? named : "", n <= PATH_BYTES ? n : 1);
        return true;
    }
    if (!tni_os_config_folder(path, PATH_BYTES - sizeof tail)) return false;
    memcpy(path + strlen(path), tail, sizeof tail);
    return tni_os_exists(path);
}

/* NULL, or why the lock file does not let a library in. A lock that cannot be read lets nothing in. */
static char *lock_problem(const char *library) {
    char path[PATH_BYTES], hash[TNI_SHA256_TEXT];
    const char *why = NULL;
    if (!lock_file(path)) return NULL;
    if (path[0] != '/') return copy_text("TENON_PLUGINS_LOCK must be an absolute path");
    why = tni_os_untrusted(path);
    char *text = why ? NULL : tni_os_read_file(path, LOCK_BYTES, &why);
    if (!text) note_shortage();
    if (!text) return format_text("%s was not loaded: lock file %s: %s", library, path, why);
    bool listed = false, read = tni_sha256_file(library, hash, &why);
    for (const char *line = text; read && line && !listed; line = strchr(line, '\n')) {
        line += *line == '\n';
        listed = strncmp(line, hash, TNI_SHA256_TEXT - 1) == 0;
    }
    if (!read) note_shortage();
    free(text);
    if (!read) return format_text("%s could not be read: %s", library, why);
    if (listed) return NULL;
    return format_text("%s was not loaded: its sha256 is not in %s; if you trust the file, "
                       "`tenon plugin lock` writes the list anew",
                       library, path);
}

/* ---- Manifests ---------------------------------------------------------------------------------*/

static const struct {
    const char *path, *word;
    tni_offer kind;
} offer_lists[] = {{"devices[]", "device", TNI_OFFER_DEVICE},
                   {"dtypes[]", "dtype", TNI_OFFER_DTYPE},
                   {"ops[]", "operator", TNI_OFFER_OP},
                   {"layers[]", "layer", TNI_OFFER_LAYER}};

static const char *visit_text(found *f, const char *path, const char *text) {
    if (strcmp(path, "name") == 0) f->name = copy_text(text);
    if (strcmp(path, "version") == 0) f->version = copy_text(text);
    if (strcmp(path, "summary") == 0) f->summary = copy_text(text);
    if (strcmp(path, "library") == 0) f->library = copy_text(text);
    if (strcmp(path, "load_with") == 0) f->variable = copy_text(text);
    for (int i = 0; i < TN_COUNT(offer_lists); i++) {
        if (strcmp(path, offer_lists[i].path) != 0) continue;
        offer *o = malloc(sizeof *o);
        if (!o) lack = TN_E_MEMORY;
        if (!o) return no_memory;
        *o = (offer){offer_lists[i].kind, copy_text(text), f->offers};
        f->offers = o;
    }
    return NULL;
}

/* Unknown names are skipped, so that a manifest may say more to newer versions. */
static const char *visit(void *ctx, const char *path, const tni_json_value *value) {
    static const char *const text_names[] = {"name",     "version",   "summary",
                                             "library",  "load_with", "devices[]",
                                             "dtypes[]", "ops[]",     "layers[]"};
    static const char *const int_names[] = {"manifest", "abi.major", "abi.min_minor"};
    found *f = ctx;
    int64_t *const ints[] = {&f->format, &f->major, &f->min_minor};
    for (int i = 0; i < TN_COUNT(text_names); i++) {
        if (strcmp(path, text_names[i]) != 0) continue;
        return value->kind == TNI_JSON_STRING ? visit_text(f, path, value->text)
                                              : "a value that must be text is not";
    }
    for (int i = 0; i < TN_COUNT(int_names); i++) {
        if (strcmp(path, int_names[i]) != 0) continue;
        if (!value->is_int || value->integer < 0 || value->integer > INT32_MAX)
            return "a value that must be a small whole number is not";
        *ints[i] = value->integer;
    }
    return NULL;
}

static bool version_fits(int64_t major, int64_t min_minor) {
    return major == TN_ABI_MAJOR && min_minor >= 0 && min_minor <= TN_ABI_MINOR;
}

static char *version_problem(const char *file, int64_t major, int64_t min_minor) {
    return format_text("%s needs plugin ABI %lld.%lld and this Tenon serves %d.0 to %d.%d: install "
                       "a version of the plugin for this Tenon, or another Tenon",
                       file, (long long)major, (long long)min_minor, TN_ABI_MAJOR, TN_ABI_MAJOR,
                       TN_ABI_MINOR);
}

/* "acme::gelu" stands for every version of an operator, in a manifest and in a question. */
static bool is_offer(const offer *o, tni_offer kind, const char *name) {
    if (o->kind != kind) return false;
    if (strcmp(o->name, name) == 0) return true;
    size_t mine = strcspn(o->name, "@"), other = strcspn(name, "@");
    bool any = !o->name[mine] || !name[other];
    return kind == TNI_OFFER_OP && any && mine == other && memcmp(o->name, name, mine) == 0;
}

static bool serves(const found *f, tni_offer kind, const char *name) {
    const offer *o = f->offers;
    while (o && !is_offer(o, kind, name)) o = o->next;
    return o != NULL;
}

/* What is wrong with a manifest, or NULL; fills f from it. */
static char *read_manifest(found *f, const char *folder, const char *path) {
    int line = 1;
    const char *why = NULL;
    char *problem = trust_problem(path, "read");
    if (problem) return problem;
    char *text = tni_os_read_file(path, MANIFEST_BYTES, &why);
    if (!text) note_shortage();
    if (!text) return format_text("%s was not read: %s", path, why);
    char *file = f->name;
    f->name = f->library = NULL;
    why = tni_json_read(text, strlen(text), visit, f, &line);
    free(text);
    const char *name = f->name, *library = f->library;
    if (!name) f->name = file;
    f->library = copy_text(path);
    if (why) return format_text("%s, line %d: %s; reinstall the plugin", path, line, why);
    if (f->format != 1)
        return format_text("%s: 'manifest' must be 1, the manifest format that this Tenon reads",
                           path);
    if (!name || !library || f->major < 0 || f->min_minor < 0)
        return format_text("%s lacks 'name', 'library' or 'abi'; reinstall the plugin", path);
    if (strchr(library, '/') || library[0] == '.' || !library[0])
        return format_text("%s: 'library' is '%s' and must be a file beside the manifest", path,
                           library);
    f->library = format_text("%s/%s", folder, library);
    if (!f->ours && left_out(f->name))
        return format_text("left out by TENON_PLUGINS=%s", tni_os_getenv("TENON_PLUGINS"));
    return version_fits(f->major, f->min_minor) ? NULL
                                                : version_problem(path, f->major, f->min_minor);
}

/* What an earlier try to read a manifest left behind. */
static void forget(found *f, const char *file) {
    while (f->offers) {
        offer *o = f->offers;
        f->offers = o->next;
        free(o);
    }
    f->name = copy_text(file);
    f->version = f->summary = copy_text("");
    f->major = f->min_minor = f->format = -1;
    f->problem = NULL;
    f->passing = false;
}

/* Finds the manifest again whose reading ran into a shortage, or makes room for a new one; NULL: it is
 * known, or there is no room. */
static found *unread(const char *file, const char *path) {
    for (found *f = all; f; f = f->next) {
        if (!f->manifest || strcmp(f->manifest, path) != 0) continue;
        return f->half_read ? f : NULL;
    }
    char *manifest = copy_text(path);
    found *f = lack ? NULL : append(file, path);
    if (f) f->manifest = manifest;
    return f;
}

static void find_manifest(void *ctx, const char *file) {
    const char *folder = ctx;
    size_t n = strlen(file);
    char path[PATH_BYTES];
    if (n < 6 || strcmp(file + n - 5, ".json") != 0) return;
    if (strcmp(file, "compile_commands.json") == 0)
        return; /* Meson's and CMake's, in build folders */
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return;
    tn_status before = lack;
    lack = TN_OK;
    found *f = unread(file, path);
    if (f) {
        forget(f, file);
        f->ours = own_folder && strcmp(folder, own_folder) == 0;
        f->plugin.ours = f->ours;
        f->problem = read_manifest(f, folder, path);
        if (!f->problem && !f->ours && serves(f, TNI_OFFER_DEVICE, "cpu"))
            f->problem = format_text("%s: device 'cpu' is Tenon's own and cannot be offered", path);
        for (const found *other = all; other != f && !f->problem; other = other->next)
            if ((!other->problem || other->passing) && strcmp(other->name, f->name) == 0)
                f->problem = format_text("%s is hidden by %s, which has the same name", path,
                                         other->manifest ? other->manifest : other->library);
        f->half_read = f->passing = lack != TN_OK;
        if (f->passing && !f->problem) f->problem = no_memory;
    }
    if (!lack) lack = before;
}

/* Calls fn for a folder whose name is put together; leaves out what is too long. */
static void join_folder(void (*fn)(const char *folder, char *note), char *note, const char *folder,
                        size_t n, const char *tail) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%.*s%s", (int)n, folder, tail) < (int)sizeof path)
        fn(path, note);
}

/* Calls fn for each folder that is searched, those that the user named first. */
static void each_folder(void (*fn)(const char *folder, char *note), char *note) {
    char folder[PATH_BYTES];
    const char *path = tni_os_getenv("TENON_PLUGIN_PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if (n > 0 && path[0] == '/' && n < sizeof folder) {
            memcpy(folder, path, n);
            folder[n] = '\0';
            fn(folder, note);
        }
        path += n + (path[n] == ':');
    }
    if (tni_os_own_folder(folder, sizeof folder - sizeof "/plugins")) {
        size_t n = strlen(folder);
        memcpy(folder + n, "/plugins", sizeof "/plugins");
        if (!own_folder || own_folder == no_memory) own_folder = copy_text(folder);
        if (own_folder == no_memory) return; /* what lies there would not be known as ours */
        fn(folder, note);
        /* The prefix of the installation is what stands before lib, lib64 or lib/<target>. */
        while (n > 0 && strncmp(folder + n, "/lib/", 5) != 0 &&
               strncmp(folder + n, "/lib64/", 7) != 0)
            n--;
        if (n > 0) join_folder(fn, note, folder, n, "/share/tenon/plugins.d");
    }
    if (tni_os_config_folder(folder, sizeof folder))
        join_folder(fn, note, folder, strlen(folder), "/tenon/plugins.d");
    fn("/etc/tenon/plugins.d", note);
    fn("/usr/share/tenon/plugins.d", note);
}

static void search(const char *folder, char *note) {
    (void)note;
    if (!tni_os_list(folder, find_manifest, (void *)(uintptr_t)folder)) note_shortage();
}

/* At the beginning of whatever looks for a plugin. */
static void discover(void) {
    lack = TN_OK;
    if (discovered) return;
    each_folder(search, NULL);
    discovered = lack == TN_OK;
}

tn_status tn_plugin_add(const char *path) {
    char folder[PATH_BYTES];
    size_t n = path ? strlen(path) : 0;
    if (n == 0 || path[0] != '/' || n >= sizeof folder)
        return tn_fail(TN_E_PLUGIN, 0,
                       "a folder of plugins is named by its absolute path, not '%s'",
                       path ? path : "NULL");
    TN_TRY(enter("this is a call to the loader of plugins"));
    discover();
    memcpy(folder, path, n + 1);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        char *slash = strrchr(folder, '/');
        *slash = '\0';
        find_manifest(folder, slash + 1);
    } else {
        search(folder, NULL);
    }
    tn_status st = lack;
    leave();
    return st == TN_OK ? TN_OK : tn_fail(st, -1, "folder '%s' could not be searched now", path);
}

/* The host's packages, once; with the lock free, because the host hands them over by tn_plugin_add.
 */
static tn_status ask_host(void) {
    bool asked = false;
    tn_status st = atomic_load(&host_asked) ? TN_OK : tni_host_find_plugins(&asked);
    if (asked && st == TN_OK) atomic_store(&host_asked, true);
    return st;
}

/* ---- Activation --------------------------------------------------------------------------------*/

/* NULL, or why the plugin cannot be used. Everything a plugin hands over is copied here. */
static char *activate(tni_plugin *p, const char *path, const char *variable) {
    /* A newer plugin may fill the whole table that its header knows, which is longer than ours. */
    union {
        unsigned char room[TABLE_BYTES];
        tn_plugin table;
    } theirs = {.room = {0}};
    tn_plugin_entry_fn entry;
    tn_txn *txn;
    const char *why = NULL;
    char *problem = trust_problem(path, "loaded");
    if (problem) return problem;
    p->library = tni_os_library_open(path, variable, &why);
    if (!p->library) note_shortage();
    if (!p->library)
        return format_text(
            "%s could not be loaded: %s; reinstall the plugin, or install what it needs", path,
            why);
    void *symbol = tni_os_library_symbol(p->library, TN_PLUGIN_ENTRY);
    if (!symbol)
        return format_text("%s exports no " TN_PLUGIN_ENTRY ": it is no Tenon plugin, or one for "
                           "another major version; install one for this Tenon",
                           path);
    memcpy(&entry, &symbol, sizeof entry);
    theirs.table.struct_size = sizeof theirs.table;
    tn_status st = tni_error_of_plugin(tni_caught(entry(tni_check_host(), &theirs.table)),
                                       "its entry function", path);
    note_status(st);
    if (st != TN_OK) return format_text("%s refused to start: %s", path, tn_error_last()->message);
    uint32_t size = theirs.table.struct_size;
    p->table = (tn_plugin){0};
    memcpy(&p->table, &theirs, size < sizeof p->table ? size : sizeof p->table);
    if (!version_fits(p->table.abi_major, p->table.min_minor))
        return version_problem(path, p->table.abi_major, p->table.min_minor);
    if (!p->table.name || !p->table.name[0] || !p->table.activate)
        return format_text("%s fills in no name or no activate function; reinstall the plugin",
                           path);
    const char *const said[] = {p->table.name, p->table.version, p->table.summary};
    for (int i = 0; i < TN_COUNT(said); i++)
        if (said[i] && !tni_is_utf8(said[i]))
            return format_text("%s fills in a text that is not UTF-8; reinstall the plugin", path);
    p->name = copy_text(p->table.name);
    p->version = copy_text(p->table.version ? p->table.version : "");
    p->summary = copy_text(p->table.summary ? p->table.summary : "");
    p->path = copy_text(path);
    if (lack) return no_memory;
    st = tni_txn_begin(p, &txn);
    note_status(st);
    if (st != TN_OK) return no_memory;
    st = tni_caught(p->table.activate(tni_check_host(), txn));
    st = tni_error_of_plugin(st, "its activate function", p->name);
    note_status(st);
    if (st != TN_OK) {
        tni_txn_rollback(txn);
        return format_text("%s could not activate: %s", path, tn_error_last()->message);
    }
    st = tni_txn_commit(txn);
    note_status(st);
    if (st != TN_OK)
        return format_text("%s could not activate: %s", path, tn_error_last()->message);
    p->active = 1;
    return NULL;
}

/* Asks the host, then maps f's library. The lock is free while the host is asked, so another thread may
 * have been faster. A refusal of the host may be another one the next time. */
static void try_to_load(found *f) {
    static uint32_t order;
    /* Before a process that tries it maps it. */
    if ((f->problem = trust_problem(f->library, "loaded"))) return;
    leave();
    tn_status st = tni_host_admit_plugin(f->name, f->library, f->ours);
    enter_again();
    if (f->tried || f->problem) return;
    note_status(st);
    if (st != TN_OK) {
        f->problem = format_text("%s was not loaded: %s", f->library, tn_error_last()->message);
        f->passing = true;
    } else if (!f->manifest && left_out(NULL)) {
        f->problem = format_text("%s was not loaded: TENON_PLUGINS is none", f->library);
    } else if (!f->ours) {
        f->problem = lock_problem(f->library);
    }
    if (f->problem) return;
    f->tried = true;
    f->plugin.order = ++order;
    loading++;
    tni_check_at before = tni_check_enter((tni_check_at){f->library, "which was to start"});
    f->problem = activate(&f->plugin, f->library, f->ours ? f->variable : NULL);
    tni_check_enter(before);
    loading--;
}

/* Maps f's library, once; f->problem says why it is not active. */
static void load(found *f) {
    if (f->passing && !f->half_read) {
        f->passing = f->tried = false;
        f->problem = NULL;
    }
    if (f->tried || f->problem) return;
    try_to_load(f);
    if (f->problem && lack) f->passing = true;
}

/* What is told instead of a problem when something was lacking; `what`: device 'acme', say. */
static tn_status shortage(tn_status st, const char *what, const char *why) {
    if (st == TN_E_HOST || st == TN_E_INTERRUPTED) return st; /* its exception is pending */
    return tn_fail(st, -1, "%s could not be used now%s%s", what, why && why[0] ? ": " : "",
                   why ? why : "");
}

tn_status tn_plugin_load(const char *path) {
    if (!path || path[0] != '/')
        return tn_fail(TN_E_PLUGIN, 0, "a plugin is loaded by its absolute path, not '%s'",
                       path ? path : "NULL");
    TN_TRY(enter("this is a call to the loader of plugins"));
    discover();
    found *f = NULL; /* several manifests may name one library: one that works wins */
    for (found *at = all; at; at = at->next)
        if (strcmp(at->library, path) == 0 && (!f || (f->problem && !f->retired))) f = at;
    if (!f) f = append(path, path);
    if (f && f->retired) {
        f->tried = f->retired = false;
        f->problem = NULL;
    }
    if (f) load(f);
    const char *problem = f ? f->problem : no_memory;
    tn_status st = problem ? lack : TN_OK;
    leave();
    if (st != TN_OK) return shortage(st, path, problem);
    return problem ? tn_fail(TN_E_PLUGIN, -1, "%s", problem) : TN_OK;
}

enum { NOTE_BYTES = 700 };

/* Appends to a list of reasons; what does not fit is left out. */
static void add_note(const char *text, char *note) {
    size_t at = strlen(note), n = strlen(text);
    if (at > 0 && at + 2 < NOTE_BYTES) {
        memcpy(note + at, ", ", 3);
        at += 2;
    }
    if (n > NOTE_BYTES - 1 - at) n = NOTE_BYTES - 1 - at;
    memcpy(note + at, text, n);
    note[at + n] = '\0';
}

/* Whether a plugin that lists the name is active now; *ret_known: whether there is one at all. */
static bool load_one(tni_offer kind, const char *name, bool *ret_known, char *note) {
    bool served = false;
    for (found *f = all; f && !served; f = f->next) {
        if (!serves(f, kind, name)) continue;
        load(f);
        served = f->plugin.active;
        *ret_known = true;
        if (f->problem) add_note(f->problem, note);
    }
    return served;
}

static tn_status load_for(tni_offer kind, const char *name) {
    char note[NOTE_BYTES] = "";
    const char *word = offer_lists[kind].word;
    bool known = false;
    snprintf(note, sizeof note, "%s '%s' is not there", word, name);
    TN_TRY(enter(note));
    note[0] = '\0';
    discover();
    bool served = load_one(kind, name, &known, note);
    if (!served && !lack && !atomic_load(&host_asked)) {
        leave();
        tn_status st = ask_host();
        enter_again();
        note_status(st);
        note[0] = '\0';
        served = load_one(kind, name, &known, note);
    }
    tn_status lacked = lack;
    /* A manifest that could not be understood may be the one that was meant. */
    for (found *f = all; f && !known; f = f->next)
        if (f->manifest && f->problem && !f->offers) add_note(f->problem, note);
    if (!known && !note[0]) each_folder(add_note, note);
    leave();
    if (served) return TN_OK;
    if (lacked != TN_OK) {
        char what[NOTE_BYTES];
        snprintf(what, sizeof what, "%s '%s'", word, name);
        return shortage(lacked, what, known ? note : NULL);
    }
    tn_status st = kind == TNI_OFFER_DEVICE ? TN_E_DEVICE : TN_E_PLUGIN;
    if (known) return tn_fail(st, -1, "%s '%s' cannot be used: %s", word, name, note);
    return tn_fail(st, -1,
                   "no plugin serves %s '%s': install one, or name its folder in "
                   "TENON_PLUGIN_PATH (looked at: %s)",
                   word, name, note);
}

static tn_status find_offered(tni_offer kind, const char *name, int32_t (*find)(const char *name),
                              int32_t *ret_id) {
    const char *word = offer_lists[kind].word;
    if (!name) return tn_fail(TN_E_TYPE, 0, "the %s's name is NULL", word);
    int32_t id = find(name);
    if (id < 0) {
        TN_TRY(load_for(kind, name));
        id = find(name);
    }
    if (id < 0) return tn_fail(TN_E_PLUGIN, 0, "its plugin did not register %s '%s'", word, name);
    *ret_id = id;
    return TN_OK;
}

tn_status tn_plugin_retire(const char *name) {
    tn_status st = TN_OK;
    bool known = false;
    TN_TRY(enter("this is a call to the loader of plugins"));
    for (found *f = all; name && f && !known; f = f->next) {
        tni_plugin *p = &f->plugin;
        if (!p->active || strcmp(p->name, name) != 0) continue;
        known = true;
        st = tni_registry_withdraw(p);
        if (st != TN_OK) break;
        if (p->table.retire) p->table.retire();
        p->active = 0;
        f->retired = true;
        f->problem = copy_text("it was retired; loading it by its path brings it back");
    }
    leave();
    if (known) return st;
    return tn_fail(TN_E_PLUGIN, 0, "no active plugin is called '%s'", name ? name : "NULL");
}

/* Another plugin that serves a device of one that waits, and would be taken before it. */
static char *rival_problem(const found *f) {
    if (f->tried || f->problem) return NULL;
    for (const found *other = all; other != f; other = other->next)
        for (const offer *o = other->problem ? NULL : f->offers; o; o = o->next)
            if (o->kind == TNI_OFFER_DEVICE && serves(other, o->kind, o->name))
                return format_text("device '%s' is served by plugin '%s', %s; TENON_PLUGINS=%s "
                                   "takes this one in its place",
                                   o->name, other->name, other->library, f->name);
    return NULL;
}

tn_status tn_plugin_at(int32_t i, tn_plugin_status *ret_status) {
    if (!ret_status) return tn_fail(TN_E_VALUE, 1, "a plugin's status needs a place to be put");
    int32_t left = i;
    TN_TRY(ask_host());
    TN_TRY(enter("this is a call to the loader of plugins"));
    discover();
    found *f = i < 0 ? NULL : all;
    while (f && left-- > 0) f = f->next;
    if (f) {
        const tni_plugin *p = &f->plugin;
        bool named = p->name != NULL;
        *ret_status = (tn_plugin_status){named ? p->name : f->name,
                                         named ? p->version : f->version,
                                         named ? p->summary : f->summary,
                                         f->library,
                                         f->problem ? f->problem : rival_problem(f),
                                         p->active,
                                         p->kernels};
    }
    leave();
    return f ? TN_OK : tn_fail(TN_E_INDEX, 0, "there is no plugin %d", (int)i);
}

/* Runs when the library is mapped, before anybody asks for a name. */
__attribute__((constructor)) static void fill_hooks(void) {
    tni_offers.load = load_for;
    tni_offers.find = find_offered;
}
