/* nccl_open.c: opens libnccl and libcuda, finds the device of this rank, and lends memory that exchanges
 * of the host's memory go through. Nothing of NVIDIA's is linked. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folders.h"
#include "nccl_priv.h"

nccl_library nccl;
cuda_driver nccl_driver;

tn_status nccl_fail(char *why, tn_status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, TN_ENGINE_WHY, fmt, ap);
    va_end(ap);
    return st;
}

tn_status nccl_driver_fail(char *why, CUresult r, const char *what) {
    const char *text = NULL;
    if (r == CUDA_OK) return TN_OK;
    if (nccl_driver.error_text(r, &text) != CUDA_OK || !text) text = "an unknown error";
    return nccl_fail(why, r == CUDA_NO_MEMORY ? TN_E_MEMORY : TN_E_DEVICE, "%s: %s", what, text);
}

/* ---- Libraries ---------------------------------------------------------------------------------*/

#define DRIVER_SYMBOL(member, symbol, params) {#symbol, offsetof(cuda_driver, member)},
static const cuda_symbol driver_symbols[] = {CUDA_DRIVER_LIST(DRIVER_SYMBOL)};
#define NCCL_SYMBOL(member, symbol, result, params) {#symbol, offsetof(nccl_library, member)},
static const cuda_symbol nccl_symbols[] = {NCCL_LIST(NCCL_SYMBOL)};

static tn_status open_one(const char *stem, const int *versions, const cuda_symbol *symbols,
                          size_t n, void *ret_table, const char *without, char *why) {
    void *library = cuda_look_for(stem, versions, secure_getenv("TENON_CUDA_PATH"));
    if (!library) return nccl_fail(why, TN_E_DEVICE, "%s", without);
    const char *missing = cuda_find_symbols(library, symbols, n, ret_table);
    if (!missing) return TN_OK;
    return nccl_fail(why, TN_E_DEVICE, "%s.so.%d lacks the function %s; install a newer one", stem,
                     versions[0], missing);
}

/* NCCL looks for a network when it is opened. */
static void choose_interface(const char *name) {
    char exact[64];
    snprintf(exact, sizeof exact, "=%s", name ? name : "lo");
    setenv("NCCL_SOCKET_IFNAME", exact, 0);
}

static tn_status open_libraries(const tn_engine_place *place, char *why) {
    static const int cuda_versions[] = {1, 0}, nccl_versions[] = {2, 0};
    static bool opened;
    if (opened) return TN_OK;
    choose_interface(place->interface);
    tn_status st = open_one("libcuda", cuda_versions, driver_symbols,
                            sizeof driver_symbols / sizeof *driver_symbols, &nccl_driver,
                            "there is no CUDA driver (libcuda.so.1)", why);
    if (st == TN_OK)
        st = open_one("libnccl", nccl_versions, nccl_symbols,
                      sizeof nccl_symbols / sizeof *nccl_symbols, &nccl,
                      "there is no libnccl.so.2: install NVIDIA's NCCL, such as the package "
                      "nvidia-nccl-cu13, or name its folder in TENON_CUDA_PATH",
                      why);
    opened = st == TN_OK;
    return st;
}

/* ---- The device --------------------------------------------------------------------------------*/

/* The rank's number on its machine, as its launcher says it. */
static int32_t local_rank(int32_t rank) {
    static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        long number = text ? strtol(text, NULL, 10) : -1;
        if (number >= 0 && number < INT32_MAX) return (int32_t)number;
    }
    return rank;
}

static tn_status choose_device(const tn_engine_place *place, int *ret_device, char *why) {
    int count = 0;
    CUresult r = nccl_driver.init(0);
    if (r == CUDA_OK) r = nccl_driver.device_count(&count);
    if (r != CUDA_OK) return nccl_driver_fail(why, r, "starting the CUDA driver");
    if (count < 1) return nccl_fail(why, TN_E_DEVICE, "the CUDA driver finds no GPU");
    bool says = place->struct_size >= offsetof(tn_engine_place, reserved2);
    *ret_device = says ? place->device : -1;
    if (*ret_device < 0) *ret_device = local_rank(place->rank) % count;
    if (*ret_device < count) return TN_OK;
    return nccl_fail(why, TN_E_DEVICE, "there is no cuda:%d: the driver finds %d GPUs", *ret_device,
                     count);
}

tn_status nccl_enter(const nccl_home *home, char *why) {
    return nccl_driver_fail(why, nccl_driver.context_set(home->context), "choosing the device");
}

tn_status nccl_home_open(const tn_engine_place *place, nccl_home **ret_home, char *why) {
    int index = 0;
    CUdevice device = 0;
    tn_status st = open_libraries(place, why);
    if (st == TN_OK) st = choose_device(place, &index, why);
    if (st != TN_OK) return st;
    nccl_home *home = calloc(1, sizeof *home);
    if (!home) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    home->device = index;
    CUresult r = nccl_driver.device_get(&device, index);
    if (r == CUDA_OK) r = nccl_driver.context_retain(&home->context, device);
    st = r == CUDA_OK ? nccl_enter(home, why) : nccl_driver_fail(why, r, "making the context");
    if (st == TN_OK)
        *ret_home = home;
    else
        free(home);
    return st;
}

void nccl_home_close(nccl_home *home) {
    if (home->groups > 0) return;
    while (home->unused) {
        nccl_stage *stage = home->unused;
        home->unused = stage->next;
        nccl_driver.host_free(stage->host);
        nccl_driver.memory_free((CUdeviceptr)(uintptr_t)stage->device);
        free(stage);
    }
    free(home);
}

/* ---- Memory ------------------------------------------------------------------------------------*/

enum { SMALLEST = 4096 };

bool nccl_bytes(int64_t a, int64_t b, size_t c, size_t *ret_bytes) {
    size_t product;
    return a >= 0 && b >= 0 && !__builtin_mul_overflow((size_t)a, (size_t)b, &product) &&
           !__builtin_mul_overflow(product, c, ret_bytes) && *ret_bytes < PTRDIFF_MAX / 2;
}

/* Memory comes in powers of two, and is never given back before the end: giving back waits for what
 * runs on the device, and that may wait for another rank. */
tn_status nccl_stage_take(nccl_home *home, size_t bytes, nccl_stage **ret_stage, char *why) {
    size_t room = SMALLEST;
    while (room < bytes) room *= 2;
    nccl_stage **at = &home->unused;
    while (*at && (*at)->bytes != room) at = &(*at)->next;
    nccl_stage *stage = *at;
    if (stage) {
        *at = stage->next;
        *ret_stage = stage;
        return TN_OK;
    }
    stage = calloc(1, sizeof *stage);
    if (!stage) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    void *host = NULL;
    CUdeviceptr device = 0;
    CUresult r = nccl_driver.host_alloc(&host, room, CUDA_HOST_PORTABLE);
    if (r == CUDA_OK) r = nccl_driver.memory_alloc(&device, room);
    if (r != CUDA_OK) {
        if (host) nccl_driver.host_free(host);
        free(stage);
        return nccl_driver_fail(why, r, "memory for an exchange");
    }
    *stage =
        (nccl_stage){.bytes = room, .host = host, .device = (unsigned char *)(uintptr_t)device};
    *ret_stage = stage;
    return TN_OK;
}

void nccl_stage_return(nccl_home *home, nccl_stage *stage) {
    if (!stage) return;
    stage->next = home->unused;
    home->unused = stage;
}
