/* table.c: the functions by which the rooms below know this one. */
#include <string.h>

#include "tape_priv.h"

/* The node of what a composite made goes by the name that its entry says, or that it says for such a node. */
static void show_node(const tn_op *op, tn_tensor *t) {
    tn_node *n;
    int64_t nr;
    if (tn_grad_fn(t, &n, &nr) != TN_OK || !n || n->kind != TNI_NODE_OP) return;
    char now[128];
    tn_node_name(n, now, sizeof now);
    for (const char *word = op->node; word; word = strchr(word, ' ')) {
        word += *word == ' ';
        size_t length = strcspn(word, "= ");
        bool renames = word[length] == '=';
        if (renames && (strlen(now) != length || strncmp(now, word, length) != 0)) continue;
        tn_node_call(n, renames ? word + length + 1 : word);
        return;
    }
}

/* Runs when the library is mapped, before any call can record. */
__attribute__((constructor)) static void fill_hooks(void) {
    tni_ag.record = tni_record;
    tni_ag.recompute = tni_recompute;
    tni_ag.check_inplace = tni_check_inplace;
    tni_ag.copy_original = tni_copy_original;
    tni_ag.show = show_node;
    tni_ag.own = tni_meta_own;
    tni_ag.note_view = tni_note_view;
    tni_ag.each_alias = tni_each_alias;
    tni_ag.node_unref = tni_node_unref;
    tni_ag.meta_free = tni_meta_free;
}
