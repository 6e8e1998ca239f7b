/* generator.c: random number generators. A generator holds a seed and two positions that follow from
 * it: a Philox4x32-10 counter (in blocks of four words) and an mt19937 state as PyTorch's CPU
 * generator has it. One of the two is in force for all CPU generators (tn_rng_set_kind). Generators
 * of other devices use Philox, and beside it what the device's "tn.generator/1" makes: its kernels
 * draw from that, and its calls that run on the CPU from the Philox half. Kernels draw under the
 * generator's lock, between tni_rng_acquire and tni_rng_release. */
#include <stdlib.h>

#include <tenon/random.h>

#include "catch_priv.h"
#include "os_priv.h"
#include "tensor_priv.h"

enum { MT_WORDS = 624, MT_STATE_BYTES = 5056, PHILOX_STATE_BYTES = 16 };
/* What a generator starts with when nobody seeds it; PyTorch's number. */
static const uint64_t first_seed = UINT64_C(67280421310721);

struct tn_generator {
    _Atomic uint32_t refs;
    uint32_t mt_ready; /* the mt19937 fields follow `seed`; filled at their first use */
    tni_os_mutex lock;
    tn_device device;
    uint64_t seed;
    uint64_t offset; /* the first Philox block that nobody has drawn */
    int32_t mt_left, mt_next;
    int32_t cache_flags;
    float next_normal_f32;
    double next_normal_f64;
    uint32_t mt_state[MT_WORDS];
    const tni_device *maker; /* of the handle; NULL: there is none yet */
    void *handle;            /* the device's own generator */
    bool unseeded;           /* the handle has not been given `seed` yet */
    tn_generator *next;      /* of the default generators */
};

/* ---- Kind --------------------------------------------------------------------------------------*/

static _Atomic uint32_t rng_kind = TN_RNG_PHILOX;
static tni_os_once kind_once = TNI_OS_ONCE_INIT;

static void read_kind(void) {
    static const char *const words[] = {"philox", "torch", "mt19937"};
    if (tni_setting("TENON_RNG", words, TN_COUNT(words), 0) > 0)
        atomic_store(&rng_kind, TN_RNG_MT19937);
}

uint32_t tn_rng_kind(void) {
    tni_os_call_once(&kind_once, read_kind);
    return atomic_load(&rng_kind);
}

tn_status tn_rng_set_kind(uint32_t kind) {
    if (kind != TN_RNG_PHILOX && kind != TN_RNG_MT19937)
        return tn_fail(TN_E_VALUE, 0, "there is no kind %u of random number generator", kind);
    tni_os_call_once(&kind_once, read_kind);
    atomic_store(&rng_kind, kind);
    return TN_OK;
}

/* What the device of a generator offers; NULL: nothing. */
static const tn_generator_iface *own_method(const tn_generator *gen) {
    int32_t slot = gen->device.slot;
    const tni_device *dev = slot > 0 && slot < TN_DEVICE_SLOTS ? tni_device_at(slot) : NULL;
    return dev ? dev->ifaces.generator : NULL;
}

static uint32_t kind_of(const tn_generator *gen) {
    if (gen->device.slot == 0) return tn_rng_kind();
    return own_method(gen) ? TN_RNG_DEVICE : TN_RNG_PHILOX;
}

/* ---- The device's half. The lock is held -------------------------------------------------------*/

static void drop_handle(tn_generator *gen) {
    const tni_device *dev = gen->maker;
    if (dev) dev->ifaces.generator->destroy(dev->desc.ctx, gen->device.index, gen->handle);
    tni_caught_any();
    gen->maker = NULL;
    gen->handle = NULL;
}

/* Makes or seeds the handle where that is still to be done: here, where failures can be told. */
static tn_status make_device_ready(tn_generator *gen) {
    const tni_device *dev = tni_device_at(gen->device.slot);
    const tn_generator_iface *f = dev->ifaces.generator;
    tn_status st = TN_OK;
    if (!f) return tn_fail(TN_E_DEVICE, -1, "device '%s' was retired meanwhile", dev->name);
    if (gen->maker != dev) { /* it was retired, and another came in its place */
        drop_handle(gen);
        st = tni_caught(f->create(dev->desc.ctx, gen->device.index, gen->seed, &gen->handle));
        if (st == TN_OK) gen->maker = dev;
    } else if (gen->unseeded) {
        st = tni_caught(f->seed(dev->desc.ctx, gen->device.index, gen->handle, gen->seed));
    }
    if (st == TN_OK) gen->unseeded = false;
    return tni_error_of_plugin(st, "generator", dev->name);
}

static tn_status get_device_state(tn_generator *gen, void *ret_state) {
    TN_TRY(make_device_ready(gen));
    const tni_device *dev = gen->maker;
    const tn_generator_iface *f = dev->ifaces.generator;
    memset(ret_state, 0, f->state_bytes);
    tn_status st =
        tni_caught(f->get_state(dev->desc.ctx, gen->device.index, gen->handle, ret_state));
    return tni_error_of_plugin(st, "get_state", dev->name);
}

static tn_status set_device_state(tn_generator *gen, const void *state) {
    TN_TRY(make_device_ready(gen));
    const tni_device *dev = gen->maker;
    tn_status st = tni_caught(
        dev->ifaces.generator->set_state(dev->desc.ctx, gen->device.index, gen->handle, state));
    return tni_error_of_plugin(st, "set_state", dev->name);
}

/* ---- Seeding -----------------------------------------------------------------------------------*/

static void set_seed(tn_generator *gen, uint64_t seed) {
    gen->seed = seed;
    gen->offset = 0;
    gen->mt_ready = 0;
    gen->unseeded = true;
}

/* Knuth's linear recurrence from the seed's low 32 bits, as in the original mt19937. */
static void make_mt_ready(tn_generator *gen) {
    if (gen->mt_ready) return;
    uint32_t word = (uint32_t)gen->seed;
    for (uint32_t i = 0; i < MT_WORDS; i++) {
        if (i > 0) word = UINT32_C(1812433253) * (word ^ word >> 30) + i;
        gen->mt_state[i] = word;
    }
    gen->mt_left = 1; /* the next word twists first */
    gen->mt_next = 0;
    gen->cache_flags = 0;
    gen->mt_ready = 1;
}

/* ---- Life --------------------------------------------------------------------------------------*/

static void init(tn_generator *gen, tn_device device, uint64_t seed) {
    atomic_init(&gen->refs, 1);
    gen->lock = (tni_os_mutex)TNI_OS_MUTEX_INIT;
    gen->device = device;
    set_seed(gen, seed);
}

tn_status tn_generator_new(tn_device device, tn_generator **ret_gen) {
    if (!ret_gen) return tn_fail(TN_E_TYPE, -1, "generator_new(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    if (device.slot == TN_META_SLOT)
        return tn_fail(TN_E_DEVICE, 0, "Device type 'meta' has no random numbers");
    tn_generator *gen = calloc(1, sizeof *gen);
    if (!gen) return tn_fail(TN_E_MEMORY, -1, "no memory for a random number generator");
    init(gen, device, first_seed);
    *ret_gen = gen;
    return TN_OK;
}

tn_generator *tn_generator_ref(tn_generator *gen) {
    if (gen) atomic_fetch_add_explicit(&gen->refs, 1, memory_order_relaxed);
    return gen;
}

void tn_generator_unref(tn_generator **gen) {
    tn_generator *g = gen ? *gen : NULL;
    if (g) *gen = NULL;
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    drop_handle(g);
    free(g);
}

/* The CPU's default generator is static, so that it is always there; those of other devices are made
 * when they are first asked for and live as long as the process. */
static tn_generator cpu_default;
static tni_os_once default_once = TNI_OS_ONCE_INIT;
static tni_os_mutex default_lock = TNI_OS_MUTEX_INIT;

static void make_default(void) { init(&cpu_default, (tn_device){0, 0}, tni_os_random_seed()); }

tn_generator *tn_generator_default(tn_device device) {
    tni_os_call_once(&default_once, make_default);
    if (device.slot == 0) return &cpu_default;
    uint64_t seed = tn_generator_initial_seed(&cpu_default);
    tni_os_lock(&default_lock);
    tn_generator *gen = cpu_default.next;
    while (gen && (gen->device.slot != device.slot || gen->device.index != device.index))
        gen = gen->next;
    if (!gen && (gen = calloc(1, sizeof *gen))) {
        init(gen, device, seed);
        gen->next = cpu_default.next;
        cpu_default.next = gen;
    }
    tni_os_unlock(&default_lock);
    return gen;
}

tn_device tn_generator_device(const tn_generator *gen) {
    return gen ? gen->device : (tn_device){0, 0};
}

void tn_generator_seed(tn_generator *gen, uint64_t seed) {
    if (!gen) return;
    tni_os_lock(&gen->lock);
    set_seed(gen, seed);
    tni_os_unlock(&gen->lock);
}

void tn_generator_seed_all(uint64_t seed) {
    tn_generator_seed(tn_generator_default((tn_device){0, 0}), seed);
    tni_os_lock(&default_lock);
    tn_generator *gen = cpu_default.next;
    tni_os_unlock(&default_lock);
    /* The list grows at its head alone. Kernels that hold a generator may ask for that lock. */
    for (; gen; gen = gen->next) tn_generator_seed(gen, seed);
}

uint64_t tn_generator_seed_from_system(tn_generator *gen) {
    uint64_t seed = tni_os_random_seed();
    tn_generator_seed(gen, seed);
    return seed;
}

uint64_t tn_generator_initial_seed(const tn_generator *gen) {
    tn_generator *g = (tn_generator *)(uintptr_t)gen; /* the lock is no part of the value */
    if (!g) return 0;
    tni_os_lock(&g->lock);
    uint64_t seed = g->seed;
    tni_os_unlock(&g->lock);
    return seed;
}

/* ---- State -------------------------------------------------------------------------------------
 * Note [mt19937 state]
 * The bytes are those of PyTorch's CPU generator state, so that the two can be exchanged: seed,
 * int32 left, int32 seeded, next word and the 624 words as uint64, three doubles (the middle one is
 * the cached double), int32 whether that is valid, 4 bytes of padding, the cached float, whether
 * that is valid. */
enum {
    AT_SEED = 0,
    AT_LEFT = 8,
    AT_SEEDED = 12,
    AT_NEXT = 16,
    AT_WORDS = 24,
    AT_NORMAL_F64 = 5024,
    AT_VALID_F64 = 5040,
    AT_NORMAL_F32 = 5048,
    AT_VALID_F32 = 5052
};

static void mt_to_bytes(const tn_generator *gen, unsigned char *dst) {
    int32_t seeded = 1, valid = (gen->cache_flags & 2) != 0;
    uint64_t next = (uint64_t)gen->mt_next;
    memset(dst, 0, MT_STATE_BYTES);
    memcpy(dst + AT_SEED, &gen->seed, sizeof gen->seed);
    memcpy(dst + AT_LEFT, &gen->mt_left, sizeof gen->mt_left);
    memcpy(dst + AT_SEEDED, &seeded, sizeof seeded);
    memcpy(dst + AT_NEXT, &next, sizeof next);
    for (int i = 0; i < MT_WORDS; i++) {
        uint64_t word = gen->mt_state[i];
        memcpy(dst + AT_WORDS + 8 * i, &word, sizeof word);
    }
    if (valid) memcpy(dst + AT_NORMAL_F64, &gen->next_normal_f64, sizeof gen->next_normal_f64);
    memcpy(dst + AT_VALID_F64, &valid, sizeof valid);
    if (!(gen->cache_flags & 1)) return;
    memcpy(dst + AT_NORMAL_F32, &gen->next_normal_f32, sizeof gen->next_normal_f32);
    dst[AT_VALID_F32] = 1;
}

/* The words left and the next one must agree, or drawing would leave the state's memory. */
static tn_status mt_from_bytes(tn_generator *gen, const unsigned char *src) {
    int32_t left, seeded, valid;
    uint64_t next;
    memcpy(&left, src + AT_LEFT, sizeof left);
    memcpy(&seeded, src + AT_SEEDED, sizeof seeded);
    memcpy(&next, src + AT_NEXT, sizeof next);
    memcpy(&valid, src + AT_VALID_F64, sizeof valid);
    bool fits = left >= 1 && left <= MT_WORDS && next <= MT_WORDS;
    if (!fits || !seeded || (left != 1 && (uint64_t)left + next != MT_WORDS + 1))
        return tn_fail(TN_E_STATE, 1, "Invalid mt19937 state");
    memcpy(&gen->seed, src + AT_SEED, sizeof gen->seed);
    for (int i = 0; i < MT_WORDS; i++) {
        uint64_t word;
        memcpy(&word, src + AT_WORDS + 8 * i, sizeof word);
        gen->mt_state[i] = (uint32_t)word;
    }
    memcpy(&gen->next_normal_f64, src + AT_NORMAL_F64, sizeof gen->next_normal_f64);
    memcpy(&gen->next_normal_f32, src + AT_NORMAL_F32, sizeof gen->next_normal_f32);
    gen->mt_left = left;
    gen->mt_next = (int32_t)next;
    gen->cache_flags = (valid ? 2 : 0) | (src[AT_VALID_F32] ? 1 : 0);
    gen->offset = 0;
    gen->mt_ready = 1;
    return TN_OK;
}

static uint64_t state_bytes(const tn_generator *gen) {
    const tn_generator_iface *own = own_method(gen);
    if (kind_of(gen) == TN_RNG_MT19937) return MT_STATE_BYTES;
    return PHILOX_STATE_BYTES + (own ? own->state_bytes : 0);
}

tn_status tn_generator_get_state(tn_generator *gen, void *dst, uint64_t *inout_bytes) {
    if (!gen || !inout_bytes) return tn_fail(TN_E_TYPE, 0, "the generator or the size is NULL");
    tn_status st = TN_OK;
    uint32_t kind = kind_of(gen);
    uint64_t bytes = state_bytes(gen), room = *inout_bytes;
    *inout_bytes = bytes;
    if (!dst) return TN_OK;
    if (room < bytes)
        return tn_fail(TN_E_VALUE, 2, "the state takes %llu bytes, there is room for %llu",
                       (unsigned long long)bytes, (unsigned long long)room);
    tni_os_lock(&gen->lock);
    if (kind == TN_RNG_MT19937) {
        make_mt_ready(gen);
        mt_to_bytes(gen, dst);
    } else {
        memcpy(dst, &gen->seed, sizeof gen->seed);
        memcpy((char *)dst + 8, &gen->offset, sizeof gen->offset);
    }
    if (kind == TN_RNG_DEVICE) st = get_device_state(gen, (char *)dst + PHILOX_STATE_BYTES);
    tni_os_unlock(&gen->lock);
    return st;
}

tn_status tn_generator_set_state(tn_generator *gen, const void *src, uint64_t bytes) {
    if (!gen || !src) return tn_fail(TN_E_TYPE, 0, "the generator or its state is NULL");
    static const char *const names[] = {"philox", "mt19937", "the device's own"};
    uint32_t kind = kind_of(gen);
    uint64_t want = state_bytes(gen);
    tn_status st = TN_OK;
    if (bytes != want)
        return tn_fail(TN_E_STATE, 1,
                       "Expected a generator state of size %llu (%s is in force) but found the "
                       "input RNG state size to be %llu",
                       (unsigned long long)want, names[kind], (unsigned long long)bytes);
    tni_os_lock(&gen->lock);
    if (kind == TN_RNG_DEVICE) st = set_device_state(gen, (const char *)src + PHILOX_STATE_BYTES);
    if (kind == TN_RNG_MT19937) {
        st = mt_from_bytes(gen, src);
    } else if (st == TN_OK) {
        memcpy(&gen->seed, src, sizeof gen->seed);
        memcpy(&gen->offset, (const char *)src + 8, sizeof gen->offset);
        gen->mt_ready = 0;
    }
    tni_os_unlock(&gen->lock);
    return st;
}

/* ---- Calls of other devices on the CPU ---------------------------------------------------------*/

static TN_TLS tn_device staged; /* whose call runs on the CPU; slot 0: none */

tn_device tni_generator_stage(tn_device device) {
    tn_device before = staged;
    staged = device;
    return before;
}

/* ---- Host services -----------------------------------------------------------------------------*/

/* Waits for the lock, and may be interrupted: the kernel that has it may be one that never ends. */
static tn_status hold(tn_generator *gen) {
    while (!tni_os_try_lock(&gen->lock)) {
        TN_TRY(tni_host_poll());
        tni_os_sleep_ns(20000);
    }
    return TN_OK;
}

static tn_status pick(const tn_call *call, tn_generator *gen, tn_generator **ret_gen) {
    tn_device device = {(int32_t)call->device_slot, call->device_index};
    bool of_staged = device.slot == 0 && gen && gen->device.slot == staged.slot;
    if (gen && gen->device.slot != device.slot && !of_staged)
        return tn_fail(TN_E_DEVICE, -1, "Expected a '%s' device type for generator but found '%s'",
                       tn_device_name(device.slot), tn_device_name(gen->device.slot));
    if (!gen) gen = tn_generator_default(device);
    if (!gen) return tn_fail(TN_E_MEMORY, -1, "no memory for a random number generator");
    *ret_gen = gen;
    return TN_OK;
}

/* A generator that cannot be lent is not held. */
static tn_status lend_handle(tn_generator *gen, tn_rng *ret_rng) {
    tn_status st = make_device_ready(gen);
    ret_rng->handle = gen->handle;
    if (st != TN_OK) tni_os_unlock(&gen->lock);
    return st;
}

tn_generator *tni_generator_of_staged(tn_device device) {
    const tni_device *dev = tni_device_at(device.slot);
    return dev->ifaces.generator ? tn_generator_default(device) : NULL;
}

static TN_TLS uint64_t draws;

uint64_t tn_generator_draws(void) { return draws; }

tn_status tni_rng_acquire(const tn_call *call, tn_generator *gen, uint64_t blocks,
                          tn_rng *ret_rng) {
    TN_TRY(pick(call, gen, &gen));
    if (tni_tls.watcher) TN_TRY(tni_tls.watcher->draw(gen));
    draws += blocks > 0;
    memset(ret_rng, 0, sizeof *ret_rng);
    TN_TRY(hold(gen));
    ret_rng->kind = kind_of(gen);
    if (ret_rng->kind == TN_RNG_DEVICE && call->device_slot == 0) ret_rng->kind = TN_RNG_PHILOX;
    ret_rng->seed = gen->seed;
    if (ret_rng->kind == TN_RNG_DEVICE) return lend_handle(gen, ret_rng);
    if (ret_rng->kind == TN_RNG_PHILOX) {
        ret_rng->offset = gen->offset;
        gen->offset += blocks;
        return TN_OK;
    }
    make_mt_ready(gen);
    ret_rng->mt_state = gen->mt_state;
    ret_rng->mt_left = &gen->mt_left;
    ret_rng->mt_next = &gen->mt_next;
    ret_rng->cache_flags = &gen->cache_flags;
    ret_rng->next_normal_f32 = &gen->next_normal_f32;
    ret_rng->next_normal_f64 = &gen->next_normal_f64;
    return TN_OK;
}

void tni_rng_release(tn_generator *gen) { tni_os_unlock(&gen->lock); }
