/* transform.c: functions whose gradients belong to a transform, and what they may write.
 *
 * Note [Captured tensors]: transforms of a thread are numbered as they are entered, and a storage keeps
 * the number of the innermost one that ran when it was made. So memory with a smaller number than the
 * running one's was there before it: what the function has captured, or was given. */
#include <stdlib.h>
#include <string.h>

#include "tape_priv.h"

typedef struct tni_transform {
    struct tni_transform *outer;
    uint32_t outer_number;
    int64_t n;
    tn_tensor *arguments[]; /* owned */
} tni_transform;

tn_status tn_transform_enter(tn_tensor *const *arguments, int64_t n) {
    if (n < 0 || (n && !arguments))
        return tn_fail(TN_E_VALUE, 0, "transform_enter(): %lld arguments without a list of them",
                       (long long)n);
    tni_transform *f = malloc(sizeof *f + (size_t)n * sizeof *arguments);
    if (!f) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    f->outer = tni_agt.transform;
    f->outer_number = tni_tls.transform;
    f->n = n;
    for (int64_t i = 0; i < n; i++) f->arguments[i] = tn_tensor_ref(arguments[i]);
    tni_agt.transform = f;
    if (++tni_agt.transforms == 0) tni_agt.transforms = 1;
    tni_tls.transform = tni_agt.transforms;
    return TN_OK;
}

void tn_transform_leave(void) {
    tni_transform *f = tni_agt.transform;
    if (!f) return;
    tni_agt.transform = f->outer;
    tni_tls.transform = f->outer_number;
    for (int64_t i = 0; i < f->n; i++) tn_tensor_unref(&f->arguments[i]);
    free(f);
}

int tn_transform_runs(void) { return tni_agt.transform != NULL; }

tn_status tni_check_captured(const tn_op *op, const tn_tensor *t) {
    const tni_transform *f = tni_agt.transform;
    if (!t->storage || t->storage->transform >= tni_tls.transform) return TN_OK;
    for (int64_t i = 0; i < f->n; i++)
        if (f->arguments[i]->storage == t->storage) return TN_OK;
    const char *name = op->info.name;
    return tn_fail(
        TN_E_STATE, -1,
        "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call "
        "in-place operation (%s%s) that would mutate a captured Tensor. This is not supported; "
        "please rewrite the function being transformed to explicitly accept the mutated Tensor(s) "
        "as inputs.",
        name, *name && name[strlen(name) - 1] == '_' ? "" : "_");
}
