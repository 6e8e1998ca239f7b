/* grad_linalg.c: gradients of factorisations that depend on the shape of the matrix. The formulas
 * themselves stand in the op table. */
#include "scope_priv.h"

tn_status tni_grad__linalg_qr(tn_gctx *c);
tn_status tni_grad__linalg_svd(tn_gctx *c);

static tn_tensor *qr_backward(tni_scope *s, tn_tensor *gq, tn_tensor *gr, tn_tensor *q,
                              tn_tensor *r) {
    tn_tensor *ga = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__qr_backward(gq, gr, q, r, &ga);
    return scope_take(s, st, ga);
}

/* A wide A = [X Y] has X = Q U and Y = Q V with R = [U V]: Y's gradient is Q gV, and what V = Q^T Y
 * says of Q is added to Q's. */
tn_status tni_grad__linalg_qr(tn_gctx *c) {
    const tn__linalg_qr_args *a = c->args;
    int64_t m = a->A->shape[a->A->ndim - 2], n = a->A->shape[a->A->ndim - 1];
    if (a->complete && m > n) {
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "The QR decomposition is not differentiable when mode='complete' and "
                       "nrows > ncols");
    }
    tn_tensor *q = tni_t(a->Q), *r = tni_t(a->R), *both[2];
    if (m >= n) return tn__qr_backward(c->g[0], c->g[1], q, r, &c->ret[0]);
    tni_scope s = {0};
    tn_tensor *gv = scope_narrow(&s, c->g[1], -1, m, n - m),
              *y = scope_narrow(&s, tni_t(a->A), -1, m, n - m);
    tn_tensor *gvt = s.st == TN_OK ? scope_transpose(&s, gv, -2, -1) : NULL;
    tn_tensor *gq = s.st == TN_OK ? scope_add(&s, c->g[0], scope_matmul(&s, y, gvt)) : NULL;
    both[0] =
        qr_backward(&s, gq, scope_narrow(&s, c->g[1], -1, 0, m), q, scope_narrow(&s, r, -1, 0, m));
    both[1] = scope_matmul(&s, q, gv);
    tn_tensor *joined = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_cat((tn_tensors){both, 2}, -1, &joined);
        scope_take(&s, st, joined);
    }
    return scope_finish(&s, joined, &c->ret[0]);
}

tn_status tni_grad__linalg_svd(tn_gctx *c) {
    const tn__linalg_svd_args *a = c->args;
    if (a->full_matrices && a->A->shape[a->A->ndim - 2] != a->A->shape[a->A->ndim - 1]) {
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "svd_backward: the singular vectors of full_matrices=True have no "
                       "derivative; use full_matrices=False");
    }
    return tn__svd_backward(c->g[0], c->g[1], c->g[2], tni_t(a->U), tni_t(a->S), tni_t(a->Vh),
                            &c->ret[0]);
}
