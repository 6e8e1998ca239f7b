/* check_priv.h: check mode, TENON_CHECK=1: kernels run inside a function that looks whether they keep
 * the promises of the header (check.c). Off, a kernel is called as always and nothing is asked. */
#ifndef TENON_CHECK_PRIV_H
#define TENON_CHECK_PRIV_H

#include "core_priv.h"

/* In check mode, puts the function that checks into a cell; done before the cell is compared with others
 * and published, under the registry's lock. TN_E_MEMORY: the cell is as it was. */
tn_status tni_check_wrap(tn_cell *cell);

/* The table that plugins get: tni_host, in check mode with services that look at their caller. */
const tn_host *tni_check_host(void);

/* What foreign code the calling thread runs, for the line that a crash writes in check mode; returns what
 * was set before. NULL: none. Both texts are borrowed. */
typedef struct tni_check_at {
    const char *plugin, *what;
} tni_check_at;
tni_check_at tni_check_enter(tni_check_at at);

#endif
