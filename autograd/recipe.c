/* recipe.c: a digest of an operator's field table, so that a record looks at nothing twice. Made once per
 * operator; two threads may both make one, and one of them is thrown away. */
#include <stdlib.h>

#include "tape_priv.h"

const tni_recipe *tni_recipe_make(const tn_op *op) {
    tni_recipe *r = calloc(1, sizeof *r + sizeof r->special[0] * op->nfields);
    const void *none = NULL;
    if (!r) {
        tn_fail(TN_E_MEMORY, -1, "out of memory");
        return NULL;
    }
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        r->in_flags[i] = f->flags;
        if (f->kind == TN_F_TENSORS) r->lists |= (uint8_t)(1u << i);
    }
    for (int i = 0; i < op->nout; i++) r->out_flags[i] = op->fields[op->out_field[i]].flags;
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        bool ints = f->kind == TN_F_INTS || f->kind == TN_F_DIMS;
        if (!ints && f->kind != TN_F_STR && f->kind != TN_F_GENERATOR) continue;
        r->special[r->nspecial].offset = f->offset;
        r->special[r->nspecial++].kind = f->kind;
    }
    r->plain = !r->lists && op->nout == 1 && !(op->flags & TNI_OP_LIST_OUT);
    bool made_of_others = op->info.kind == TN_OP_COMPOSITE || op->info.kind == TN_OP_VIEW;
    r->list_out = (op->flags & TNI_OP_LIST_OUT) != 0;
    r->may_return_input = made_of_others && op->nin > 0 && op->nout == 1 && !(r->lists & 1u) &&
                          !r->list_out && !(r->in_flags[0] & TNI_FIELD_MUTATED);
    _Atomic(const void *) *slot = (_Atomic(const void *) *)(uintptr_t)&op->recipe;
    if (atomic_compare_exchange_strong_explicit(slot, &none, r, memory_order_acq_rel,
                                                memory_order_acquire))
        return r;
    free(r);
    return none;
}
