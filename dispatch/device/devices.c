/* devices.c: which devices there are, by slot and by name, and what a name means to a thread.
 *
 * Readers take no lock: a device is published by one atomic store and never freed. */
#include <tenon/device_ext.h>
#include "catch_priv.h"
#include "device_priv.h"

static const tni_device cpu_unloaded = {
    .desc = {.name = "cpu", .dl_device = 1, .count = 1, .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST},
    .name = "cpu",
};

_Atomic(const tni_device *) tni_devices[TN_DEVICE_SLOTS] = {
    [0] = &cpu_unloaded,
    [TN_META_SLOT] = &tni_meta_device,
};

tn_status tni_device_ready(int32_t slot) {
    const tni_device *dev = slot >= 0 && slot < TN_DEVICE_SLOTS ? tni_device_at(slot) : NULL;
    if (!dev) return tn_fail(TN_E_DEVICE, -1, "there is no device in slot %d", (int)slot);
    if (TN_LIKELY(dev->desc.alloc != NULL)) return TN_OK;
    if (!dev->origin) return tni_offers.load(TNI_OFFER_DEVICE, dev->name);
    return tn_fail(TN_E_DEVICE, -1,
                   "device '%s' was retired with its plugin '%s': what its tensors hold can be "
                   "copied away, and loading the plugin again brings the device back",
                   dev->name, dev->plugin->name);
}

tn_status tni_check_device(tn_device device) {
    TN_TRY(tni_device_ready(device.slot));
    const tni_device *dev = tni_device_at(device.slot);
    if (device.index < 0 || device.index >= dev->desc.count)
        return tn_fail(TN_E_DEVICE, -1, "device %s has no index %d (there are %d)", dev->name,
                       (int)device.index, (int)dev->desc.count);
    return TN_OK;
}

/* ---- For users --------------------------------------------------------------------------------*/

const char *tn_device_name(int32_t slot) {
    const tni_device *dev = slot >= 0 && slot < TN_DEVICE_SLOTS ? tni_device_at(slot) : NULL;
    bool awaited = slot > 0 && dev && !dev->desc.alloc && !dev->origin;
    return dev && !awaited ? dev->name : NULL;
}

int32_t tn_device_count(int32_t slot) {
    return tn_device_name(slot) ? tni_device_at(slot)->desc.count : 0;
}

int32_t tn_device_dlpack(int32_t slot) {
    return tn_device_name(slot) ? tni_device_at(slot)->desc.dl_device : 0;
}

const char *tn_device_describe(tn_device device) {
    if (!tn_device_name(device.slot) || tni_device_ready(device.slot) != TN_OK)
        return "not available";
    const tn_device_desc *d = &tni_device_at(device.slot)->desc;
    return d->describe ? d->describe(d->ctx, device.index) : d->name;
}

const void *tn_device_query(int32_t slot, const char *iface, void **ret_ctx) {
    if (!tn_device_name(slot) || tni_device_ready(slot) != TN_OK) return NULL;
    const tn_device_desc *d = &tni_device_at(slot)->desc;
    *ret_ctx = d->ctx;
    return d->query ? d->query(d->ctx, iface) : NULL;
}

/* The slot of a name; of several, which a retired device may have left, the one in use. */
static int32_t slot_of(const char *name, size_t length) {
    int32_t found = -1;
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) {
        const char *have = tn_device_name(i);
        if (!have || strlen(have) != length || strncmp(have, name, length) != 0) continue;
        if (found < 0 || tni_device_at(i)->desc.alloc) found = i;
    }
    return found;
}

/* What a name without an index stands for on this thread, by slot. */
static TN_TLS uint8_t current_index[TN_DEVICE_SLOTS];

int32_t tn_device_current(int32_t slot) {
    return slot >= 0 && slot < TN_DEVICE_SLOTS ? current_index[slot] : 0;
}

tn_status tn_device_set_current(tn_device device) {
    TN_TRY(tni_check_device(device));
    current_index[device.slot] = (uint8_t)device.index;
    return TN_OK;
}

tn_status tn_device_parse(const char *text, tn_device *ret_device) {
    char name[32];
    if (!text || !text[0]) return tn_fail(TN_E_STATE, -1, "Device string must not be empty");
    size_t length = strcspn(text, ":");
    int64_t index = 0;
    bool has_index = text[length] == ':';
    if (has_index) {
        const char *digits = text + length + 1;
        bool ok = digits[0] && strlen(digits) <= 3;
        for (const char *p = digits; ok && *p; p++) {
            ok = *p >= '0' && *p <= '9';
            index = index * 10 + (*p - '0');
        }
        if (!ok || (digits[0] == '0' && digits[1]))
            return tn_fail(TN_E_STATE, -1, "Invalid device string: '%s'", text);
    }
    if (length >= sizeof name) return tn_fail(TN_E_STATE, -1, "Invalid device string: '%s'", text);
    memcpy(name, text, length);
    name[length] = '\0';
    int32_t slot = slot_of(name, length);
    if (slot < 0) {
        TN_TRY(tni_offers.load(TNI_OFFER_DEVICE, name));
        slot = slot_of(name, length);
        if (slot < 0) return tn_fail(TN_E_DEVICE, -1, "no plugin serves device '%s'", name);
    }
    if (!has_index) index = current_index[slot];
    if (slot == TN_META_SLOT) index = 0; /* there is one, whatever it is called */
    tn_device d = {slot, (int32_t)index};
    if (slot != 0) TN_TRY(tni_device_ready(slot));
    if (index >= tn_device_count(slot))
        return tn_fail(TN_E_DEVICE, -1, "device '%s' has no index %d (there are %d)", name,
                       (int)index, (int)tn_device_count(slot));
    *ret_device = d;
    return TN_OK;
}

/* The CPU; NULL when its plugin does not load or has no worker pool. */
static const tni_device *with_threads(void) {
    const tni_device *cpu = tni_device_ready(0) == TN_OK ? tni_device_at(0) : NULL;
    return cpu && cpu->ifaces.threads ? cpu : NULL;
}

int32_t tn_threads_get(void) {
    const tni_device *cpu = with_threads();
    return cpu ? cpu->ifaces.threads->get(cpu->desc.ctx) : 1;
}

tn_status tn_threads_set(int32_t n) {
    if (n < 1 || n > 1024)
        return tn_fail(TN_E_STATE, 0,
                       "set_num_threads expects a positive integer up to 1024, got %d", (int)n);
    const tni_device *cpu = with_threads();
    if (!cpu) return tn_fail(TN_E_DEVICE, -1, "the CPU device has no worker pool");
    return tni_caught(cpu->ifaces.threads->set(cpu->desc.ctx, n));
}
