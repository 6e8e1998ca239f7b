/* plugin.c: the entry of the CUDA plugin: opens the driver, registers the devices and the kernels. */
#include "cuda_priv.h"
#include "cuda_rows_list.h"

const tn_host *cuda_host;

#define DECLARE(rows, set) extern const cuda_rows rows;
#define FAMILY(rows, set) {#rows, KERNEL_SET_##set, &rows},
CUDA_ROWS_LIST(DECLARE)
const kernel_family kernel_families[] = {CUDA_ROWS_LIST(FAMILY){NULL, 0, NULL}};

static tn_status activate(const tn_host *host, tn_txn *txn) {
    int count;
    int32_t slot;
    cuda_read_settings();
    tn_status st = cuda_open_driver(&count);
    if (st == TN_OK) st = cuda_register_device(host, txn, count, &slot);
    if (st == TN_OK) st = kernel_families_register(host, txn, slot, KERNEL_SET_ANY);
    return st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    cuda_host = host;
    return tn_plugin_fill(ret_plugin, "tenon-cuda", CUDA_PLUGIN_VERSION, "NVIDIA GPUs", activate);
}
