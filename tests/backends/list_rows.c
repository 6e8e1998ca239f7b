/* list_rows.c: prints the rows that a backend would register, for check_rows.py: family, set, operator,
 * dtype and priority. Linked with the backend's own objects, so that no device is needed. */
#include <stdio.h>

#include "common/rows.h"

int main(void) {
    for (const kernel_family *f = kernel_families; f->name; f++)
        for (uint32_t i = 0; i < f->rows->n; i++) {
            const tn_kernel_row *r = &f->rows->rows[i];
            printf("%s %d %s %d %d\n", f->name, (int)f->set, r->op, (int)r->dtype,
                   (int)r->priority);
        }
    return 0;
}
