/* txn_priv.h: transactions, which change what is in force (txn.c). */
#ifndef TENON_TXN_PRIV_H
#define TENON_TXN_PRIV_H

#include "device_priv.h"

/* One at a time; begin takes the registry's lock, commit and rollback drop it. */
tn_status tni_txn_begin(tni_plugin *plugin, tn_txn **ret_txn);
tn_status tni_txn_commit(tn_txn *txn);
void tni_txn_rollback(tn_txn *txn);
tn_status tni_register_device(tn_txn *txn, const tn_device_desc *desc, int32_t *ret_slot);
tn_status tni_register_dtype(tn_txn *txn, const tn_dtype_desc *desc, int32_t *ret_slot);
tn_status tni_register_kernels(tn_txn *txn, int32_t device_slot, const tn_kernel_row *rows,
                               uint32_t row_size, uint32_t n);
tn_status tni_register_kernels_for(tn_txn *txn, const char *device, const tn_kernel_row *rows,
                                   uint32_t row_size, uint32_t n);
tn_status tni_register_op(tn_txn *txn, const tn_op_desc *desc);
tn_status tni_register_layer(tn_txn *txn, const tn_layer_desc *desc);
/* Withdraws every kernel, operator and layer of a plugin and retires its devices. TN_E_MEMORY:
 * nothing was changed. */
tn_status tni_registry_withdraw(tni_plugin *plugin);

#endif
