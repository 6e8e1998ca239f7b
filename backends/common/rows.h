/* rows.h: how families of kernels present their rows, and their registration. A backend's list of them
 * is made of the heads of its files (families.py). */
#ifndef COMMON_ROWS_H
#define COMMON_ROWS_H

#include <tenon/plugin.h>

typedef struct kernel_rows {
    const tn_kernel_row *rows;
    uint32_t n;
} kernel_rows;
#define KERNEL_ROWS_OF(array)                                                                      \
    { (array), (uint32_t)(sizeof(array) / sizeof((array)[0])) }

/* The rows of one file, of one element type and for one of the sets of which a device takes one; ANY:
 * whatever it takes. */
#define KERNEL_SET_ANY (-1)
typedef struct kernel_family {
    const char *name;
    int32_t set;
    const kernel_rows *rows;
} kernel_family;
/* All of a backend's, ended by one without a name. */
extern const kernel_family kernel_families[];

static inline tn_status kernel_families_register(const tn_host *host, tn_txn *txn, int32_t slot,
                                                 int32_t set) {
    tn_status st = TN_OK;
    for (const kernel_family *f = kernel_families; f->name && st == TN_OK; f++)
        if (f->set == KERNEL_SET_ANY || f->set == set)
            st = host->register_kernels(txn, slot, f->rows->rows, (uint32_t)sizeof(tn_kernel_row),
                                        f->rows->n);
    return st;
}

#endif
