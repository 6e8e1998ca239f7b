/* pivots.c: the permutation that the row exchanges of LU factors amount to.
 *
 * family: pivots */
#include <tenon/args_linalg.h>

#include "cpu_priv.h"
#include "pack.h"

/* Exchange i was of row i and row pivots[i], counted from 1; they are applied in order to 0, 1, 2, ... */
static tn_status permutation(const tn_call *call, const void *args) {
    const tn__lu_permutation_args *a = args;
    int64_t rows = a->rows, k = a->pivots->shape[a->pivots->ndim - 1];
    const void *p;
    tn_status st = cpu_packed(call, a->pivots, &p);
    if (st || rows == 0) return st;
    const int32_t *pivots = p;
    int64_t *to = a->out->data, *end = to + a->out->numel;
    for (; to < end; to += rows, pivots += k) {
        cpu_stretch all = {.n = rows, .cost = 1};
        while (cpu_next_stretch(&all))
            for (int64_t r = all.begin; r < all.end; r++) to[r] = r;
        if (all.st != TN_OK) return all.st;
        for (int64_t r = 0; r < k; r++) {
            int64_t other = (int64_t)pivots[r] - 1;
            if (other < 0 || other >= rows) {
                return call->host->fail(
                    TN_E_SHAPE, 0,
                    "lu_unpack: pivots must be between 1 and LU.size(-2) "
                    "inclusive. Did you properly pass the result of lu_factor?");
            }
            int64_t row = to[r];
            to[r] = to[other];
            to[other] = row;
        }
    }
    return TN_OK;
}

static const tn_kernel_row rows[] = {
    {"_lu_permutation", TN_SIG__lu_permutation, permutation, NULL, TN_I32, 0, 0, 0},
};
const cpu_rows cpu_pivots_rows = CPU_ROWS_OF(rows);
