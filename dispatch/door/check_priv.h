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

/* Code that a device has made of several operators, and what it gets. */
typedef struct tni_made {
    const struct tni_device *dev;
    const tn_view *const *views; /* results, then inputs */
    int32_t nout, n;
    tn_plan *plan; /* with the same operands; NULL: the code walks the views */
    tn_status (*run)(const void *arg);
    const void *arg;
} tni_made;
/* Runs it; *ret_st: what it returned. In check mode also looks at what it did: TN_E_PLUGIN. */
tn_status tni_check_made(const tni_made *m, tn_status *ret_st);

#endif
