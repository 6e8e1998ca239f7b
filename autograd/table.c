/* table.c: the functions by which the rooms below know this one. */
#include "tape_priv.h"

/* Runs when the library is mapped, before any call can record. */
__attribute__((constructor)) static void fill_hooks(void) {
    tni_ag.record = tni_record;
    tni_ag.recompute = tni_recompute;
    tni_ag.check_inplace = tni_check_inplace;
    tni_ag.copy_original = tni_copy_original;
    tni_ag.own = tni_meta_own;
    tni_ag.note_view = tni_note_view;
    tni_ag.each_alias = tni_each_alias;
    tni_ag.node_unref = tni_node_unref;
    tni_ag.meta_free = tni_meta_free;
}
