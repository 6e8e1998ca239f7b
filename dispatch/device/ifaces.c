/* ifaces.c: takes the tables that a device offers beyond its six functions, once, at its registration.
 * All of core reads the copies, so that no call asks how large a table is or whether a member is
 * there. */
#include "ifaces_priv.h"

#include "core_priv.h"

/* Every table starts with its size and another number; what follows are functions. */
enum { HEAD = 8 };
typedef void (*any_function)(void);

typedef struct iface_kind {
    const char *name;
    uint32_t bytes;
    uint32_t at_copy, at_pointer; /* in tni_ifaces */
    const char *members;          /* the functions, in order */
} iface_kind;

#define KIND(field, functions) KIND_OF(field, "tn." #field "/1", tn_##field##_iface, functions)
#define KIND_OF(field, text, table, functions)                                                     \
    {                                                                                              \
        .name = (text), .bytes = sizeof(table), .at_copy = offsetof(tni_ifaces, copies.field),     \
        .at_pointer = offsetof(tni_ifaces, field), .members = functions                            \
    }

static const iface_kind kinds[] = {
    KIND(stream, "create destroy sync done wait_event event_create event_destroy event_record "
                 "event_sync event_done event_elapsed"),
    KIND(peer, "copy"),
    KIND(allocator, "alloc free use"),
    KIND(memory, "stats reset_peak empty_cache"),
    KIND(pinned, "alloc free copy_in copy_out"),
    KIND(generator, "create destroy seed get_state set_state"),
    KIND(graph, "begin end launch destroy"),
    KIND(ipc, "share open close"),
    KIND(collectives, "unique_id create destroy all_reduce all_gather reduce_scatter broadcast"),
    KIND(profiler, "push pop mark"),
    KIND(codegen, "compile run destroy"),
    KIND_OF(codegen2, "tn.codegen/2", tn_codegen_iface, "compile run destroy"),
    KIND(program, "takes compile run destroy"),
    KIND(threads, "get set parallel"),
};

/* The first function of a copied table that is NULL, by number; -1: all are there. */
static int missing_member(const iface_kind *kind, const char *table) {
    int n = (int)((kind->bytes - HEAD) / sizeof(any_function));
    for (int i = 0; i < n; i++) {
        any_function f;
        memcpy(&f, table + HEAD + (size_t)i * sizeof f, sizeof f);
        if (!f) return i;
    }
    return -1;
}

static const char *nth_word(const char *words, int n) {
    while (n-- > 0) words = strchr(words, ' ') + 1;
    return words;
}

/* Whether the table may be used; says so if not. */
static bool is_complete(const tn_device_desc *device, const iface_kind *kind, const void *table) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    if (size < kind->bytes) {
        tni_host_log(2, "device '%s': its table \"%s\" has %u bytes instead of %u and is left out",
                     device->name, kind->name, size, kind->bytes);
        return false;
    }
    int missing = missing_member(kind, table);
    if (missing < 0) return true;
    const char *member = nth_word(kind->members, missing);
    tni_host_log(2, "device '%s': its table \"%s\" lacks '%.*s' and is left out", device->name,
                 kind->name, (int)strcspn(member, " "), member);
    return false;
}

void tni_ifaces_take(const tn_device_desc *device, tni_ifaces *ret_ifaces) {
    memset(ret_ifaces, 0, sizeof *ret_ifaces);
    for (int i = 0; device->query && i < TN_COUNT(kinds); i++) {
        const iface_kind *kind = &kinds[i];
        const void *table = device->query(device->ctx, kind->name);
        if (!table || !is_complete(device, kind, table)) continue;
        const void *copy = (char *)ret_ifaces + kind->at_copy;
        memcpy((char *)ret_ifaces + kind->at_copy, table, kind->bytes);
        memcpy((char *)ret_ifaces + kind->at_pointer, &copy, sizeof copy);
    }
}
