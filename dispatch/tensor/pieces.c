/* pieces.c: memory of the host that processes share. Large pieces are files without a name, one each.
 * Small ones lie together in such files, the segments, since a process has few descriptors: a process
 * opens a segment once, by the number that it has in another one.
 *
 * The system counts who maps a segment, so what a killed process had is free at once. No process knows
 * which pieces another one has. A piece that was sent, or that a fork has copied, is therefore used
 * again only with its whole segment, which each process lets go of when it has no piece in it and none
 * that it sent waits to be opened. Pieces of one size class lie together, so that small ones that live
 * long keep small segments. */
#include <stdatomic.h>
#include <stdlib.h>

#include "memory_priv.h"
#include "tensor_priv.h"

#include "pieces_priv.h"

enum {
    ALONE = 3, /* kinds: classes of small pieces, and those that have a file of their own */
    PIECE_GRANULES = 16,  /* the largest piece of a class */
    FEWEST = 64,          /* granules of the first segment of a class */
    MOST = 1024,          /* of the fifth and later ones */
    PATIENCE = 100000000, /* ns between looks at what waits to be opened */
};

enum {
    FREE,
    USED,
    GONE /* other processes may have it */
};

/* A segment begins with one count for each granule: how many names of the piece that starts there were
 * not opened yet. That of the first granule, where no piece can be, is their sum. */
typedef _Atomic uint32_t count;

typedef struct segment {
    struct segment *next;
    void *data;
    uint64_t bytes, inode, device;
    int32_t file;
    uint32_t kind, granules;
    uint32_t room;              /* granules that are FREE */
    uint32_t pieces;            /* of this process */
    bool ours;                  /* this process places pieces in it */
    bool sent;                  /* this process has sent some of them */
    unsigned char states[MOST]; /* of its granules, where it is ours */
} segment;

struct tni_piece {
    segment *of;
    uint64_t offset, bytes;
};

static tni_os_mutex mutex = TNI_OS_MUTEX_INIT; /* guards all below */
static segment *segments;                      /* those that hold several pieces */
static bool watched;                           /* a thread looks at those without pieces */

static uint64_t granule(uint32_t kind) { return UINT64_C(64) << 4 * kind; }
static count *counts(const segment *s) { return s->data; }

/* The granules that n bytes take. */
static uint32_t granules_of(uint32_t kind, uint64_t n) {
    return n ? (uint32_t)((n - 1) / granule(kind) + 1) : 1;
}

/* Those of the counts of a segment. */
static uint32_t counts_take(uint32_t kind, uint32_t granules) {
    return granules_of(kind, granules * sizeof(count));
}

static uint32_t kind_of(uint64_t bytes) {
    uint32_t kind = 0;
    while (kind < ALONE && bytes > PIECE_GRANULES * granule(kind)) kind++;
    return kind;
}

/* ---- Segments ----------------------------------------------------------------------------------*/

static segment *segment_over(int32_t file, void *data, uint64_t bytes, uint32_t kind) {
    segment *s = calloc(1, sizeof *s);
    if (!s) {
        tni_os_shared_unmap(data, bytes);
        tni_os_close(file);
        return NULL;
    }
    s->data = data;
    s->bytes = bytes;
    s->file = file;
    s->kind = kind;
    return s;
}

static void segment_free(segment *s) {
    tni_os_shared_unmap(s->data, s->bytes);
    tni_os_close(s->file);
    free(s);
}

static segment *segment_new(uint64_t bytes, uint32_t kind, const char **ret_why) {
    void *data;
    int32_t file = tni_os_shared_new(bytes, &data, ret_why);
    if (file < 0) return NULL;
    *ret_why = "out of memory";
    return segment_over(file, data, bytes, kind);
}

static segment *segment_open(const tni_piece_name *name, int32_t file, uint64_t bytes,
                             const char **ret_why) {
    void *data;
    int32_t own = tni_os_shared_open(&name->file, file, bytes, &data, ret_why);
    if (own < 0) return NULL;
    *ret_why = "out of memory";
    return segment_over(own, data, bytes, name->kind);
}

/* With the mutex: into the list, under the name of its file. */
static segment *listed(segment *s, uint32_t granules, const tni_os_file *file) {
    s->granules = granules;
    s->inode = file->inode;
    s->device = file->device;
    s->next = segments;
    segments = s;
    return s;
}

/* With the mutex: lets go of segments that nobody asks this process for; whether some still wait. */
static bool sweep(void) {
    bool waiting = false;
    for (segment **at = &segments; *at;) {
        segment *s = *at;
        bool asked = s->sent && atomic_load_explicit(counts(s), memory_order_acquire) != 0;
        if (s->pieces || asked) {
            waiting |= !s->pieces;
            at = &s->next;
        } else {
            *at = s->next;
            segment_free(s);
        }
    }
    return waiting;
}

static void watch(void *unused) {
    (void)unused;
    for (bool more = true; more;) {
        tni_os_sleep_ns(PATIENCE);
        tni_os_lock(&mutex);
        more = watched = sweep();
        tni_os_unlock(&mutex);
    }
}

/* ---- Forks -------------------------------------------------------------------------------------*/

/* A child has the pieces of its parent. */
static void before_fork(void) {
    tni_os_lock(&mutex);
    for (segment *s = segments; s; s = s->next)
        for (uint32_t i = 0; s->ours && i < s->granules; i++)
            if (s->states[i] == USED) s->states[i] = GONE;
}

static void in_parent(void) { tni_os_unlock(&mutex); }

static void in_child(void) {
    for (segment *s = segments; s; s = s->next) s->ours = s->sent = false;
    watched = false;
    sweep();
    tni_os_unlock(&mutex);
}

/* ---- Pieces ------------------------------------------------------------------------------------*/

static tni_os_once once = TNI_OS_ONCE_INIT;
static bool usable; /* processes can open files by their numbers in others */

static void start(void) {
    const char *why;
    tni_os_file name;
    void *data, *again;
    int32_t own = -1, file = tni_os_shared_new(1, &data, &why);
    if (file < 0) return;
    if (tni_os_file_name(file, &name)) own = tni_os_shared_open(&name, -1, 1, &again, &why);
    if (own >= 0) {
        tni_os_shared_unmap(again, 1);
        tni_os_close(own);
        usable = tni_os_at_fork(before_fork, in_parent, in_child);
    }
    tni_os_shared_unmap(data, 1);
    tni_os_close(file);
}

/* The first of n granules that are free and side by side, which are used then; 0: there are none. */
static uint32_t place(segment *s, uint32_t n) {
    if (n > s->room) return 0;
    for (uint32_t i = 0, run = 0; i < s->granules; i++) {
        run = s->states[i] == FREE ? run + 1 : 0;
        if (run < n) continue;
        memset(s->states + i + 1 - n, USED, n);
        s->room -= n;
        return i + 1 - n;
    }
    return 0;
}

/* With the mutex: a segment with room for n granules, and where. */
static segment *with_room(uint32_t kind, uint32_t n, uint32_t *ret_at) {
    uint32_t living = 0;
    for (segment *s = segments; s; s = s->next) {
        if (!s->ours || s->kind != kind) continue;
        if ((*ret_at = place(s, n))) return s;
        living++;
    }
    uint32_t granules = living < 4 ? FEWEST << living : MOST;
    const char *why;
    tni_os_file name;
    segment *s = segment_new(granules * granule(kind), kind, &why);
    if (!s) return NULL;
    if (!tni_os_file_name(s->file, &name)) {
        segment_free(s);
        return NULL;
    }
    uint32_t first = counts_take(kind, granules);
    memset(s->states, GONE, first);
    s->room = granules - first;
    s->ours = true;
    *ret_at = place(listed(s, granules, &name), n);
    return s;
}

tn_status tni_piece_new(uint64_t bytes, tni_piece **ret_piece) {
    const char *why = "out of memory";
    uint32_t kind = kind_of(bytes), at;
    tni_piece *p = malloc(sizeof *p);
    if (!p) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *p = (tni_piece){NULL, 0, bytes};
    tni_os_call_once(&once, start);
    if (kind < ALONE && usable) {
        tni_os_lock(&mutex);
        p->of = with_room(kind, granules_of(kind, bytes), &at);
        if (p->of) {
            p->offset = at * granule(kind);
            p->of->pieces++;
        }
        tni_os_unlock(&mutex);
    }
    if (!p->of) p->of = segment_new(bytes, ALONE, &why);
    if (!p->of) {
        free(p);
        return tn_fail(TN_E_MEMORY, -1, "%llu bytes of shared memory cannot be had: %s",
                       (unsigned long long)bytes, why);
    }
    *ret_piece = p;
    return TN_OK;
}

void *tni_piece_data(const tni_piece *p) { return (char *)p->of->data + p->offset; }

/* With the mutex: a new state for granules of a piece that only this process has. */
static void piece_became(tni_piece *p, unsigned char state) {
    segment *s = p->of;
    uint32_t at = (uint32_t)(p->offset / granule(s->kind)), n = granules_of(s->kind, p->bytes);
    if (!s->ours || s->states[at] != USED) return;
    memset(s->states + at, state, n);
    if (state == FREE) s->room += n;
}

void tni_piece_free(void *piece) {
    tni_piece *p = piece;
    segment *s = p->of;
    if (s->kind == ALONE) {
        segment_free(s);
    } else {
        tni_os_lock(&mutex);
        piece_became(p, FREE);
        if (--s->pieces == 0 && sweep() && !watched) watched = tni_os_thread_start(watch, NULL);
        tni_os_unlock(&mutex);
    }
    free(p);
}

/* ---- Between processes -------------------------------------------------------------------------*/

tn_status tni_piece_send(tni_piece *p, tni_piece_name *ret_name, int32_t *ret_file) {
    segment *s = p->of;
    *ret_file = -1;
    *ret_name = (tni_piece_name){
        .kind = s->kind, .granules = s->granules, .offset = p->offset, .bytes = p->bytes};
    if (s->kind == ALONE && (*ret_file = tni_os_dup(s->file)) < 0)
        return tn_fail(TN_E_IO, -1, "share(): there are too many open files");
    if (!tni_os_file_name(s->kind == ALONE ? *ret_file : s->file, &ret_name->file)) {
        if (*ret_file >= 0) tni_os_close(*ret_file);
        return tn_fail(TN_E_IO, -1, "share(): the shared file cannot be looked at");
    }
    if (s->kind == ALONE) return TN_OK;
    tni_os_lock(&mutex);
    piece_became(p, GONE);
    s->sent = true;
    atomic_fetch_add_explicit(counts(s) + p->offset / granule(s->kind), 1, memory_order_relaxed);
    atomic_fetch_add_explicit(counts(s), 1, memory_order_release);
    tni_os_unlock(&mutex);
    return TN_OK;
}

/* One less, unless there is none: a name may be opened more than once. */
static bool take(count *c) {
    uint32_t n = atomic_load_explicit(c, memory_order_relaxed);
    while (n && !atomic_compare_exchange_weak_explicit(c, &n, n - 1, memory_order_acq_rel,
                                                       memory_order_relaxed)) {
    }
    return n != 0;
}

static bool name_fits(const tni_piece_name *name) {
    if (name->kind == ALONE) return name->offset == 0;
    if (name->kind > ALONE || name->granules < FEWEST || name->granules > MOST) return false;
    uint64_t unit = granule(name->kind), whole = name->granules * unit;
    return name->bytes <= PIECE_GRANULES * unit && name->offset % unit == 0 &&
           name->offset / unit >= counts_take(name->kind, name->granules) && name->offset < whole &&
           name->bytes <= whole - name->offset;
}

/* With the mutex: the segment of a name, which is opened once. */
static segment *segment_of(const tni_piece_name *name, const char **ret_why) {
    const tni_os_file *file = &name->file;
    for (segment *s = segments; s; s = s->next) {
        if (s->inode != file->inode || s->device != file->device) continue;
        *ret_why = "it is damaged";
        return s->kind == name->kind && s->granules == name->granules ? s : NULL;
    }
    segment *s = segment_open(name, -1, name->granules * granule(name->kind), ret_why);
    return s ? listed(s, name->granules, file) : NULL;
}

tni_piece *tni_piece_open(const tni_piece_name *name, int32_t file, const char **ret_why) {
    *ret_why = "it is damaged";
    if (!name_fits(name)) return NULL;
    tni_piece *p = malloc(sizeof *p);
    *ret_why = "out of memory";
    if (!p) return NULL;
    *p = (tni_piece){NULL, name->offset, name->bytes};
    if (name->kind == ALONE) {
        p->of = segment_open(name, file, name->bytes, ret_why);
    } else {
        tni_os_call_once(&once, start);
        tni_os_lock(&mutex);
        p->of = segment_of(name, ret_why);
        if (p->of) p->of->pieces++;
        if (p->of && take(counts(p->of) + name->offset / granule(name->kind))) take(counts(p->of));
        tni_os_unlock(&mutex);
    }
    if (p->of) return p;
    free(p);
    return NULL;
}
