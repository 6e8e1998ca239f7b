/* args.c: argument structs as lists of tensors and as text; results as a whole. */
#include "args_priv.h"

#include <stdio.h>

int tni_op_inputs(const tn_op *op, const void *args, tn_tensor **ret, int max) {
    int n = 0;
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, args, i);
        for (int64_t k = 0; k < s.n; k++, n++)
            if (n < max) ret[n] = s.v[k];
    }
    return n;
}

void tni_results_clear(const tn_op *op, tn_tensor **rets) {
    if (tni_returns_list(op)) *(tn_tensor_list *)(void *)rets = (tn_tensor_list){NULL, 0};
    for (int i = 0; i < op->nout && !tni_returns_list(op); i++) rets[i] = NULL;
}

void tni_results_drop(const tn_op *op, tn_tensor **rets) {
    if (tni_returns_list(op)) tn_tensor_list_free((tn_tensor_list *)(void *)rets);
    for (int i = 0; i < op->nout && !tni_returns_list(op); i++) tn_tensor_unref(&rets[i]);
}

/* Appends "input: float32(2, 3), " for one tensor. */
static size_t describe(char *dst, size_t size, const char *name, const tn_tensor *t) {
    if (!t) return 0;
    const char *dtype = tn_dtype_name(tn_view_dtype(&t->v));
    int n = snprintf(dst, size, "%s: %s%s, ", name, dtype ? dtype : "?", tni_shape_text_of(&t->v));
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

tn_status tni_error_add_op(tn_status st, const tn_op *op, const void *args) {
    enum { SHOWN = 8 }; /* of a list */
    size_t size = 0, at = 0;
    char *text = tni_error_detail(st, op->info.name, &size);
    for (int i = 0; text && i < op->nin; i++) {
        tni_span s = tni_in_span(op, args, i);
        for (int64_t k = 0; s.v && k < s.n && k < SHOWN; k++)
            at += describe(text + at, size - at, tni_in_field(op, i)->name, s.v[k]);
    }
    if (at >= 2) text[at - 2] = '\0';
    return st;
}
