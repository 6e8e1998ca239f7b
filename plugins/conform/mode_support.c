/* mode_support.c: which way a call of an operator in a dtype takes on the device. Nothing is computed. */
#include "conform.h"

static const char *const ways[] = {"core", "kernel", "wider", "composite", "cpu", "none"};

void cf_mode_support(cf_run *r) {
    int32_t way = TN_WAY_NONE;
    r->cases = 1;
    if (tn_explain_way(r->op->name, r->device, r->row->dtype, &way) != TN_OK)
        cf_fail(r, "tn_explain_way: %s", cf_why());
    else if (way == TN_WAY_NONE)
        cf_fail(r, "there is no way to run it, not even on the CPU");
    cf_add(&r->note, "%s", ways[way]);
}
