/* plugin.c: the entry of the CUDA plugin: opens the driver, registers the devices and the kernels. A
 * family of kernels is one name in one of the lists below. */
#include "cuda_priv.h"

#define CUDA_FAMILIES(X) X(conv) X(copy) X(softmax) X(loss) X(matmul) X(norm) X(scan) X(take)
#define CUDA_DATA_FAMILIES(X)                                                                      \
    X(element_loss) X(join) X(optim) X(order) X(random) X(runs) X(sample) X(nonzero)
#define CUDA_LAYER_FAMILIES(X)                                                                     \
    X(attention) X(linear) X(pad) X(pool) X(rnn) X(rnn_cudnn) X(triangle) X(upsample)
#define CUDA_DTYPE_FAMILIES(X) X(map) X(reduce)

const tn_host *cuda_host;

/* The element types that kernels exist for. */
#define WHOLE_TYPES(X, family)                                                                     \
    X(family, b8) X(family, u8) X(family, i8) X(family, i16) X(family, i32) X(family, i64)
#define FLOAT_TYPES(X, family) X(family, f16) X(family, bf16) X(family, f32) X(family, f64)
#define COMPLEX_TYPES(X, family) X(family, c64) X(family, c128)
#define DTYPES(X, family) WHOLE_TYPES(X, family) FLOAT_TYPES(X, family) COMPLEX_TYPES(X, family)

#define DECLARE(family) extern const cuda_rows cuda_##family##_rows;
#define ADDRESS(family) &cuda_##family##_rows,
#define DECLARE_DTYPE(family, dtype) extern const cuda_rows cuda_##family##_rows_##dtype##_baseline;
#define ADDRESS_DTYPE(family, dtype) &cuda_##family##_rows_##dtype##_baseline,
#define DECLARE_DTYPES(family) DTYPES(DECLARE_DTYPE, family)
#define ADDRESS_DTYPES(family) DTYPES(ADDRESS_DTYPE, family)

CUDA_FAMILIES(DECLARE)
CUDA_DATA_FAMILIES(DECLARE)
CUDA_LAYER_FAMILIES(DECLARE)
CUDA_DTYPE_FAMILIES(DECLARE_DTYPES)
static const cuda_rows *const plain_rows[] = {CUDA_FAMILIES(ADDRESS) CUDA_DATA_FAMILIES(ADDRESS)
                                                  CUDA_LAYER_FAMILIES(ADDRESS)};
static const cuda_rows *const dtype_rows[] = {CUDA_DTYPE_FAMILIES(ADDRESS_DTYPES)};

static tn_status add_rows(tn_txn *txn, int32_t slot, const cuda_rows *const *list, size_t n) {
    tn_status st = TN_OK;
    for (size_t i = 0; i < n && st == TN_OK; i++)
        st = cuda_host->register_kernels(txn, slot, list[i]->rows, (uint32_t)sizeof(tn_kernel_row),
                                         list[i]->n);
    return st;
}
#define ADD_ROWS(list) add_rows(txn, slot, list, sizeof(list) / sizeof((list)[0]))

static tn_status activate(const tn_host *host, tn_txn *txn) {
    int count;
    int32_t slot;
    cuda_read_settings();
    tn_status st = cuda_open_driver(&count);
    if (st == TN_OK) st = cuda_register_device(host, txn, count, &slot);
    if (st == TN_OK) st = ADD_ROWS(plain_rows);
    if (st == TN_OK) st = ADD_ROWS(dtype_rows);
    return st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    cuda_host = host;
    return tn_plugin_fill(ret_plugin, "tenon-cuda", CUDA_PLUGIN_VERSION, "NVIDIA GPUs", activate);
}
