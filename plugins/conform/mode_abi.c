/* mode_abi.c: the plugin's tables as the shim saw them, and the six functions by themselves. What core refuses
 * is refused before anything here runs; what stands here would be noticed late or never. */
#include "conform.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/op_args.h>

#include "facts.h"

/* The facts; NULL, with a note, for a device that came with Tenon, or where the shim is not let in. */
static const cf_facts *facts_of(cf_run *r) {
    const cf_facts *f = cf_facts_get();
    if (f)
        r->cases++;
    else
        cf_add(&r->note, "%s", cf_facts_why());
    return f;
}

static bool empty(const char *s) { return !s || !*s; }

/* ---- Tables ------------------------------------------------------------------------------------*/

static void check_plugin(cf_run *r) {
    const cf_facts *f = facts_of(r);
    if (!f) return;
    const tn_plugin *p = &f->plugin;
    if (f->early) cf_fail(r, "the entry function registers something; that belongs into activate");
    if (empty(p->version)) cf_fail(r, "tn_plugin.version is empty");
    if (empty(p->summary)) cf_fail(r, "tn_plugin.summary is empty");
    if (p->struct_size != sizeof *p)
        cf_fail(r, "tn_plugin.struct_size was changed to %u; it is the host's", p->struct_size);
    if (p->min_minor > p->built_minor)
        cf_fail(r, "tn_plugin.min_minor is %u, but it was built with minor %u", p->min_minor,
                p->built_minor);
    cf_add(&r->note, "%s %s, built for ABI %u.%u", p->name, empty(p->version) ? "" : p->version,
           p->abi_major, p->built_minor);
}

static void check_device(cf_run *r) {
    const cf_facts *f = facts_of(r);
    if (!f) return;
    const tn_device_desc *d = &f->device;
    const uint32_t known = TN_DEV_ADDRESSABLE | TN_DEV_HOST;
    if (d->struct_size != sizeof *d)
        cf_fail(r, "tn_device_desc.struct_size is %u, this header's is %zu", d->struct_size,
                sizeof *d);
    if (d->flags & ~known) cf_fail(r, "tn_device_desc.flags has unknown bits: 0x%x", d->flags);
    if ((d->flags & TN_DEV_HOST) && !(d->flags & TN_DEV_ADDRESSABLE))
        cf_fail(r, "tn_device_desc.flags: TN_DEV_HOST without TN_DEV_ADDRESSABLE");
    if (!d->describe) cf_add(&r->note, "there is no describe; ");
    cf_add(&r->note, "%d devices, %s", d->count,
           d->flags & TN_DEV_ADDRESSABLE ? "addresses" : "handles");
}

static void check_six(cf_run *r) {
    const cf_facts *f = facts_of(r);
    if (!f) return;
    const tn_device_desc *d = &f->device;
    const struct {
        const char *name;
        bool there;
    } six[] = {{"alloc", d->alloc != NULL},
               {"free", d->free != NULL},
               {"copy_in", d->copy_in != NULL},
               {"copy_out", d->copy_out != NULL},
               {"copy_within", d->copy_within != NULL},
               {"sync", d->sync != NULL}};
    for (int i = 0; i < 6; i++)
        if (!six[i].there) cf_fail(r, "tn_device_desc.%s is NULL; it is required", six[i].name);
}

static const char NO_SUCH_NAME[] = "com.example.no-such-interface/1";

/* Named interfaces: a size, a reserved word, then functions only. */
static const struct {
    const char *name, *members;
    uint32_t size;
} interfaces[] = {
    {"tn.stream/1",
     "create destroy sync done wait_event event_create event_destroy event_record event_sync "
     "event_done event_elapsed",
     sizeof(tn_stream_iface)},
    {"tn.peer/1", "copy", sizeof(tn_peer_iface)},
    {"tn.allocator/1", "alloc free use", sizeof(tn_allocator_iface)},
    {"tn.memory/1", "stats reset_peak empty_cache", sizeof(tn_memory_iface)},
    {"tn.pinned/1", "alloc free copy_in copy_out", sizeof(tn_pinned_iface)},
    {"tn.generator/1", "create destroy seed get_state set_state", sizeof(tn_generator_iface)},
    {"tn.graph/1", "begin end launch destroy", sizeof(tn_graph_iface)},
    {"tn.ipc/1", "share open close", sizeof(tn_ipc_iface)},
    {"tn.collectives/1", "unique_id create destroy all_reduce all_gather reduce_scatter broadcast",
     sizeof(tn_collectives_iface)},
    {"tn.profiler/1", "push pop mark", sizeof(tn_profiler_iface)},
    {"tn.codegen/1", "compile run destroy", sizeof(tn_codegen_iface)},
    {"tn.codegen/2", "compile run destroy", sizeof(tn_codegen_iface)},
    {"tn.program/1", "takes compile run destroy", sizeof(tn_program_iface)},
    {"tn.threads/1", "get set parallel", sizeof(tn_threads_iface)},
};

static void check_interface(cf_run *r, const char *name, const char *members, uint32_t size,
                            const void *table) {
    uint32_t has;
    memcpy(&has, table, sizeof has);
    if (has < size) {
        cf_fail(r, "%s: struct_size is %u, this header's is %u", name, has, size);
        return;
    }
    for (uint32_t at = 8; at < size; at += (uint32_t)sizeof(void *)) {
        void *member;
        int n = (int)strcspn(members, " ");
        memcpy(&member, (const char *)table + at, sizeof member);
        if (!member) cf_fail(r, "%s: %.*s is NULL", name, n, members);
        members += n + (members[n] == ' ');
    }
}

static void check_interfaces(cf_run *r) {
    const cf_facts *f = facts_of(r);
    if (!f) return;
    const tn_device_desc *d = &f->device;
    if (f->plugin.query && f->plugin.query(NO_SUCH_NAME))
        cf_fail(r, "query of the plugin returns a table for a name that it cannot know");
    if (d->query && d->query(d->ctx, NO_SUCH_NAME)) {
        cf_fail(r, "query of the device returns a table for a name that it cannot know");
        return; /* so its other answers mean nothing */
    }
    for (size_t i = 0; d->query && i < sizeof interfaces / sizeof *interfaces; i++) {
        const void *table = d->query(d->ctx, interfaces[i].name);
        if (!table) continue;
        cf_add(&r->note, "%s%s", r->note.n ? ", " : "", interfaces[i].name);
        check_interface(r, interfaces[i].name, interfaces[i].members, interfaces[i].size, table);
    }
    if (!r->note.n) cf_add(&r->note, "none");
}

static void check_row(cf_run *r, const cf_fact_row *row) {
    tn_op_meta meta;
    const uint32_t known = TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC | TN_K_LAID;
    if (tn_op_meta_find(row->op, &meta) != TN_OK)
        cf_fail(r, "a kernel row names '%s', which is no operator of this Tenon", row->op);
    else if (row->row.sig && row->row.sig != meta.info->sig)
        cf_fail(r,
                "the row of '%s' was compiled with another argument struct: sig 0x%" PRIx64
                ", here 0x%" PRIx64,
                row->op, row->row.sig, meta.info->sig);
    if (row->row.flags & ~known)
        cf_fail(r, "the row of '%s' has unknown flags: 0x%x", row->op, row->row.flags);
    if (row->row.dtype != TN_DTYPE_ANY && !tn_dtype_name(row->row.dtype))
        cf_fail(r, "the row of '%s' has a dtype that there is not: %d", row->op, row->row.dtype);
}

static void check_rows(cf_run *r) {
    const cf_facts *f = facts_of(r);
    if (!f) return;
    if (f->bad_rows) cf_fail(r, "%d kernel rows have no operator or no function", f->bad_rows);
    for (int32_t i = 0; i < f->nrows && i < CF_FACT_ROWS; i++) check_row(r, &f->rows[i]);
    cf_add(&r->note, "%d kernels", f->nrows);
}

/* ---- The six functions -------------------------------------------------------------------------*/

static int64_t resident_bytes(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Memory that was given back is used again, or the process or the device would run out. */
static void check_memory(cf_run *r) {
    enum { BLOCK = 4 << 20, BLOCKS = 64 };
    int64_t shape = BLOCK, before = 0;
    unsigned char *host = cf_alloc(BLOCK);
    r->cases++;
    for (int i = 0; i < BLOCKS; i++) {
        tn_tensor *t = NULL;
        tn_status st = tn_tensor_new(TN_U8, r->device, 1, &shape, &t);
        if (st == TN_OK) st = tn_tensor_write(t, host, BLOCK);
        tn_tensor_unref(&t);
        if (st == TN_OK) st = tn_device_sync(r->device);
        if (i == 0) before = resident_bytes(); /* the first use may take more, once */
        if (st == TN_OK) continue;
        cf_fail(r, "leak: block %d of %d MiB, all freed before the next: %s", i + 1, BLOCK >> 20,
                cf_why());
        break;
    }
    free(host);
    int64_t grown = resident_bytes() - before;
    if (grown > (int64_t)BLOCK * BLOCKS / 2)
        cf_fail(r, "leak: free gives nothing back: the process grew by %lld MiB",
                (long long)(grown >> 20));
}

/* More than any device has: an error with a code, and the device goes on. */
static void check_out_of_memory(cf_run *r) {
    int64_t huge = INT64_C(1) << 60, small = 16;
    tn_tensor *t = NULL;
    r->cases++;
    tn_status st = tn_tensor_new(TN_U8, r->device, 1, &huge, &t);
    tn_tensor_unref(&t);
    if (st == TN_OK)
        cf_fail(r, "alloc of 2^60 bytes succeeds");
    else if (st != TN_E_MEMORY)
        cf_fail(r, "alloc of 2^60 bytes fails with '%s', not with TN_E_MEMORY: %s",
                tn_status_text(st), cf_why());
    if (tn_tensor_new(TN_U8, r->device, 1, &small, &t) != TN_OK)
        cf_fail(r, "after that 16 bytes cannot be allocated either: %s", cf_why());
    tn_tensor_unref(&t);
}

/* Odd sizes at odd offsets, in, within and out. */
static tn_status copies(const tn_device_desc *d, int32_t index, unsigned char *back) {
    enum { BYTES = 256 };
    unsigned char bytes[BYTES];
    void *a = NULL, *b = NULL;
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)i;
    tn_status st = d->alloc(d->ctx, index, BYTES, &a);
    if (st == TN_OK) st = d->alloc(d->ctx, index, BYTES, &b);
    if (st == TN_OK) st = d->copy_in(d->ctx, index, a, 0, bytes, BYTES, NULL);
    if (st == TN_OK) st = d->copy_in(d->ctx, index, a, 3, bytes + 100, 5, NULL);
    memset(bytes, 0, sizeof bytes); /* the source may change once copy_in returns */
    if (st == TN_OK) st = d->copy_within(d->ctx, index, b, 0, a, 0, BYTES, NULL);
    if (st == TN_OK) st = d->copy_within(d->ctx, index, b, 50, a, 1, 7, NULL);
    if (st == TN_OK) st = d->copy_within(d->ctx, index, b, 201, b, 3, 5, NULL);
    if (st == TN_OK) st = d->copy_out(d->ctx, index, back, b, 0, BYTES, NULL);
    if (st == TN_OK) st = d->copy_out(d->ctx, index, back + BYTES, b, 201, 9, NULL);
    if (st == TN_OK) st = d->sync(d->ctx, index);
    if (a) d->free(d->ctx, index, a, BYTES);
    if (b) d->free(d->ctx, index, b, BYTES);
    return st;
}

static void check_copies(cf_run *r) {
    unsigned char want[265], back[265];
    const cf_facts *f = facts_of(r);
    if (!f) return;
    for (int i = 0; i < 256; i++) want[i] = (unsigned char)i;
    memcpy(want + 3, (unsigned char[]){100, 101, 102, 103, 104}, 5);
    memcpy(want + 50, (unsigned char[]){1, 2, 100, 101, 102, 103, 104}, 7);
    memcpy(want + 201, want + 3, 5);
    memcpy(want + 256, want + 201, 9);
    for (int32_t index = 0; index < f->device.count; index++) {
        cf_at(r, "device %d", index);
        memset(back, 0, sizeof back);
        if (copies(&f->device, index, back) != TN_OK) {
            cf_fail(r, "device %d: raised: %s", index, cf_why());
            continue;
        }
        for (int i = 0; i < 265; i++) {
            if (back[i] == want[i]) continue;
            cf_fail(r, "device %d: byte %d is %d after copies in, within and out, expected %d",
                    index, i, back[i], want[i]);
            break;
        }
    }
}

const cf_check cf_abi_checks[] = {
    {"plugin table", check_plugin},
    {"device table", check_device},
    {"six functions", check_six},
    {"interfaces", check_interfaces},
    {"kernel rows", check_rows},
    {"copies", check_copies},
    {"memory", check_memory},
    {"out of memory", check_out_of_memory},
    {NULL, NULL},
};
