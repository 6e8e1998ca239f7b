/* share.c: memory that other processes open ("tn.ipc/1"). The host's comes from pieces.c; a device that has
 * no such memory sends a copy in it. */
#include <stddef.h>
#include <stdlib.h>

#include <tenon/device_ext.h>

#include "pieces_priv.h"
#include "catch_priv.h"
#include "memory_priv.h"
#include "move_priv.h"
#include "sparse_priv.h"
#include "tensor_priv.h"

enum {
    MAPPED,
    COPIED,
    NATIVE
}; /* a piece that is the memory, one that holds a copy, the device's */

/* What goes to the other process. */
typedef struct handle {
    char magic[8];
    uint32_t kind;
    int32_t index;
    char device[32];
    uint64_t bytes;
    tni_piece_name piece; /* MAPPED, COPIED */
    unsigned char native[TN_IPC_HANDLE_BYTES];
    uint64_t check; /* of what stands above */
} handle;
_Static_assert(sizeof(handle) <= TN_SHARE_HANDLE_BYTES, "the public size has room for it");

static const char magic[8] = "tnshare";
static const tn_device cpu = {0, 0};

/* FNV-1a: handles that were damaged on the way are noticed. */
static uint64_t check_of(const handle *h) {
    const unsigned char *p = (const void *)h;
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < offsetof(handle, check); i++)
        sum = (sum ^ p[i]) * UINT64_C(1099511628211);
    return sum;
}

static tn_status bad_handle(const char *why) {
    return tn_fail(TN_E_VALUE, 0, "open_shared(): the handle cannot be opened: %s", why);
}

/* ---- Shared memory of the host -----------------------------------------------------------------*/

/* A storage over a piece, which it takes over, also when it fails. */
static tn_status storage_of(tni_piece *p, uint64_t bytes, tn_storage **ret_storage) {
    void *data = tni_piece_data(p);
    tn_status st =
        tni_storage_foreign(cpu, data, bytes, TNI_ST_SHARED, tni_piece_free, p, ret_storage);
    if (st != TN_OK) tni_piece_free(p);
    return st;
}

static tn_status new_shared(uint64_t bytes, tn_storage **ret_storage) {
    tni_piece *p;
    TN_TRY(tni_piece_new(bytes, &p));
    return storage_of(p, bytes, ret_storage);
}

static bool is_shared(const tn_storage *s) { return s && (s->flags & TNI_ST_SHARED); }

/* A sparse tensor has no memory but that of its components. */
static void components_of(const tn_tensor *t, tn_tensor *ret_parts[3]) {
    const tni_sparse *s = tni_sparse_of(t);
    ret_parts[0] = s->index, ret_parts[1] = s->values, ret_parts[2] = s->plain;
}

int tn_tensor_in_shared_memory(const tn_tensor *t) {
    if (!t || !t->storage || !tni_is_sparse(t)) return t && is_shared(t->storage);
    tn_tensor *parts[3];
    components_of(t, parts);
    for (int i = 0; i < 3; i++)
        if (parts[i] && !is_shared(parts[i]->storage)) return 0;
    return 1;
}

/* The tensors that look at one storage, counted and then moved to another. */
typedef struct aliases {
    tn_storage *from, *to; /* to NULL: count */
    uint32_t count;
} aliases;

static void visit(void *ctx, tn_tensor *t) {
    aliases *a = ctx;
    if (t->storage != a->from) return;
    a->count++;
    if (!a->to) return;
    uint64_t offset = tni_offset_bytes(t);
    t->v.word &= ~TN_W_READONLY;
    tni_attach(t, tni_storage_ref(a->to), offset);
    tni_storage_unref(a->from, &t->spare);
}

tn_status tn_tensor_share_memory(tn_tensor *t) {
    tn_storage *spare = NULL;
    if (!t || !t->storage) return tn_fail(TN_E_TYPE, 0, "share_memory(): the tensor has no memory");
    TN_TRY(tn_tensor_show(t));
    if (tni_is_meta(&t->v))
        return tn_fail(TN_E_STATE, 0, "share_memory(): a tensor on 'meta' has no memory");
    if (tni_is_sparse(t)) {
        tn_tensor *parts[3];
        components_of(t, parts);
        for (int i = 0; i < 3; i++)
            if (parts[i]) TN_TRY(tn_tensor_share_memory(parts[i]));
        return TN_OK;
    }
    if (is_shared(t->storage) || tn_view_device(&t->v) != 0) return TN_OK;
    aliases a = {.from = t->storage};
    tni_ag.each_alias(t, visit, &a);
    if (atomic_load_explicit(&a.from->refs, memory_order_acquire) != a.count)
        return tn_fail(TN_E_STATE, 0,
                       "share_memory(): tensors that are no views of this one, or are saved for a "
                       "gradient, look at the same memory, which would move away from under them");
    TN_TRY(new_shared(a.from->bytes, &a.to));
    if (a.from->bytes) memcpy(a.to->data, a.from->data, a.from->bytes);
    atomic_store_explicit(&a.to->version, tn_tensor_version(t), memory_order_relaxed);
    tni_ag.each_alias(t, visit, &a);
    tni_storage_unref(a.to, &spare);
    free(spare);
    return TN_OK;
}

/* ---- Handles -----------------------------------------------------------------------------------*/

static void finish(handle *h, void *ret_handle) {
    h->check = check_of(h);
    memset(ret_handle, 0, TN_SHARE_HANDLE_BYTES);
    memcpy(ret_handle, h, sizeof *h);
}

/* A piece with what a storage holds now, that is kept for the other process alone. */
static tn_status send_copy(tn_storage *from, tni_piece_name *ret_name, int32_t *ret_file) {
    tn_storage *to, *spare = NULL;
    TN_TRY(new_shared(from->bytes, &to));
    tn_status st = TN_OK;
    if (from->device.slot == 0 && from->bytes)
        memcpy(to->data, from->data, from->bytes);
    else
        st = tni_move_bytes(&(tni_move){to, from, 0, 0, from->bytes});
    if (st == TN_OK) st = tni_piece_send(to->ctx, ret_name, ret_file);
    tni_storage_unref(to, &spare);
    free(spare);
    return st;
}

static tn_status share_native(const tn_storage *s, void *ret_native) {
    const tni_device *dev = tni_device_at(s->device.slot);
    if (!dev->ifaces.ipc || !s->data || !(s->flags & TNI_ST_BLOCK)) return TN_DECLINE;
    TN_TRY(tn_device_sync(s->device));
    tni_block_keep_single(s->ctx);
    tn_status st =
        tni_caught(dev->ifaces.ipc->share(dev->desc.ctx, s->device.index, s->data, ret_native));
    return tni_device_said(dev, st, "share");
}

tn_status tn_tensor_share(const tn_tensor *t, void *ret_handle, int32_t *ret_file) {
    if (!t || !t->storage || !ret_handle || !ret_file)
        return tn_fail(TN_E_TYPE, -1,
                       "share(): a tensor with memory and places for the results "
                       "must be given");
    TN_TRY(tn_tensor_show((tn_tensor *)(uintptr_t)t));
    if (tni_is_sparse(t))
        return tn_fail(TN_E_TYPE, 0, "share(): a sparse tensor is sent by its components");
    tn_storage *s = t->storage;
    handle h = {.index = s->device.index, .bytes = s->bytes};
    memcpy(h.magic, magic, sizeof magic);
    strncpy(h.device, tn_device_name(s->device.slot), sizeof h.device - 1);
    tn_status st;
    *ret_file = -1;
    if (is_shared(s)) {
        h.kind = MAPPED;
        st = tni_piece_send(s->ctx, &h.piece, ret_file);
    } else {
        st = share_native(s, h.native);
        h.kind = st == TN_OK ? NATIVE : COPIED;
        if (st == TN_DECLINE) st = send_copy(s, &h.piece, ret_file);
    }
    if (st == TN_OK) finish(&h, ret_handle);
    return st;
}

static tn_status read_handle(const void *bytes, handle *ret, tn_device *ret_device) {
    char text[48];
    if (!bytes) return tn_fail(TN_E_TYPE, 0, "open_shared(): the handle is NULL");
    memcpy(ret, bytes, sizeof *ret);
    if (memcmp(ret->magic, magic, sizeof magic) != 0 || ret->check != check_of(ret) ||
        ret->kind > NATIVE || !memchr(ret->device, '\0', sizeof ret->device) ||
        ret->bytes > UINT64_C(1) << 62)
        return bad_handle("it is damaged");
    size_t n = strlen(ret->device);
    memcpy(text, ret->device, n);
    text[n] = '\0';
    if (ret->index < 0 || ret->index > 255) return bad_handle("it is damaged");
    text[n++] = ':';
    if (ret->index >= 100) text[n++] = (char)('0' + ret->index / 100);
    if (ret->index >= 10) text[n++] = (char)('0' + ret->index / 10 % 10);
    text[n++] = (char)('0' + ret->index % 10);
    text[n] = '\0';
    return tn_device_parse(text, ret_device);
}

static tn_status open_piece(const handle *h, int32_t file, tn_storage **ret_storage) {
    const char *why = "it is damaged";
    tni_piece *p = h->piece.bytes == h->bytes ? tni_piece_open(&h->piece, file, &why) : NULL;
    return p ? storage_of(p, h->bytes, ret_storage) : bad_handle(why);
}

/* Onto the device that the copy was made of. */
static tn_status open_copy(const handle *h, int32_t file, tn_device device,
                           tn_storage **ret_storage) {
    tn_storage *near, *spare = NULL;
    TN_TRY(open_piece(h, file, &near));
    if (device.slot == 0) {
        *ret_storage = near;
        return TN_OK;
    }
    tn_status st = tni_storage_new(device, h->bytes, &spare, ret_storage);
    if (st == TN_OK) {
        st = tni_move_bytes(&(tni_move){*ret_storage, near, 0, 0, h->bytes});
        if (st != TN_OK) tni_storage_unref(*ret_storage, &spare);
    }
    free(spare);
    spare = NULL;
    tni_storage_unref(near, &spare);
    free(spare);
    return st;
}

typedef struct opened {
    tn_device device;
    void *data;
} opened;

static void close_native(void *ctx) {
    opened *o = ctx;
    const tni_device *dev = tni_device_maker(o->device.slot);
    dev->ifaces.ipc->close(dev->desc.ctx, o->device.index, o->data);
    tni_caught_any();
    free(o);
}

static tn_status open_native(const handle *h, tn_device device, tn_storage **ret_storage) {
    const tni_device *dev = tni_device_at(device.slot);
    if (!dev->ifaces.ipc) return bad_handle("the device does not open memory of other processes");
    opened *o = malloc(sizeof *o);
    if (!o) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    o->device = device;
    tn_status st =
        tni_caught(dev->ifaces.ipc->open(dev->desc.ctx, device.index, h->native, &o->data));
    st = tni_device_said(dev, st, "open_shared");
    if (st == TN_DECLINE) st = bad_handle("the device refuses it");
    if (st != TN_OK) {
        free(o);
        return st;
    }
    st = tni_storage_foreign(device, o->data, h->bytes, 0, close_native, o, ret_storage);
    if (st != TN_OK) close_native(o);
    return st;
}

static tn_status open_storage(const void *bytes, int32_t file, tn_storage **ret_storage) {
    tn_device device;
    handle h;
    TN_TRY(read_handle(bytes, &h, &device));
    if (h.kind == NATIVE) return open_native(&h, device, ret_storage);
    if (h.kind == COPIED) return open_copy(&h, file, device, ret_storage);
    return device.slot == 0 ? open_piece(&h, file, ret_storage) : bad_handle("it is damaged");
}

tn_status tn_tensor_open_shared(const void *handle_bytes, int32_t file, tn_tensor **ret_bytes) {
    tn_storage *s, *spare = NULL;
    tn_tensor *t;
    if (!ret_bytes) return tn_fail(TN_E_TYPE, 2, "open_shared(): the result has no place to go");
    TN_TRY(open_storage(handle_bytes, file, &s));
    int64_t n = (int64_t)s->bytes;
    tn_status st = tni_header_new(TN_U8, s->device, 1, &n, NULL, &t);
    if (st != TN_OK) {
        tni_storage_unref(s, &spare);
        free(spare);
        return st;
    }
    tni_attach(t, s, 0);
    *ret_bytes = t;
    return TN_OK;
}
