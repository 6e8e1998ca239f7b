/* library.c: finds an engine in a library, and sees that its table can be used. */
#include <stddef.h>

#include "world_priv.h"

/* Version 1 of the door: the engine's table only grows at its end, and whoever changes what is there
 * raises TN_ENGINE_VERSION. */
enum { FIRST_SIZE = offsetof(tn_engine, test_from) };
_Static_assert(TN_ENGINE_VERSION == 1 && FIRST_SIZE == 64 && sizeof(tn_exchange) == 72 &&
                   sizeof(tn_engine_place) == 48,
               "tables of tenon/engine.h have the sizes of their version");

static tn_status fail_engine(const char *path, const char *why) {
    return tn_fail(TN_E_PLUGIN, -1, "%s: %s", path, why);
}

static const char *missing_in(const tn_engine *e) {
    if (e->struct_size < FIRST_SIZE) return "its table is shorter than tenon/engine.h's";
    if (e->version != TN_ENGINE_VERSION) return "its table has another version";
    if (!e->name || !e->open || !e->part || !e->start || !e->test || !e->close || !e->abort)
        return "a function of its table is missing";
    return NULL;
}

static bool reaches(const tn_engine *e, size_t end) { return e->struct_size >= end; }

tni_test_from tni_engine_test_from(const tn_engine *e) {
    return reaches(e, offsetof(tn_engine, device)) ? e->test_from : NULL;
}

bool tni_engine_has_device(const tn_engine *e) {
    return reaches(e, offsetof(tn_engine, give_up)) && e->device && e->takes && e->start_there &&
           e->follow;
}

void tni_engine_give_up(const tn_engine *e, void *group) {
    if (reaches(e, sizeof *e) && e->give_up) e->give_up(group);
}

tn_status tni_engine_find(const char *path, const tn_engine **ret_engine) {
    const char *why = tni_os_untrusted(path);
    if (why) return fail_engine(path, why);
    void *library = tni_os_library_open(path, NULL, &why);
    if (!library) return fail_engine(path, why);
    void *symbol = tni_os_library_symbol(library, "tn_engine_main");
    if (!symbol || !tni_os_is_code(symbol)) return fail_engine(path, "has no tn_engine_main");
    tn_engine_main_fn enter;
    memcpy(&enter, &symbol, sizeof enter);
    const tn_engine *engine = enter(TN_ENGINE_VERSION);
    if (!engine) return fail_engine(path, "serves no engine of this version");
    why = missing_in(engine);
    if (why) return fail_engine(path, why);
    *ret_engine = engine;
    return TN_OK;
}
