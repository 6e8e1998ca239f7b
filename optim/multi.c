/* multi.c: checks and layouts of parallel lists of tensors; see multi_priv.h. */
#include <stdlib.h>

#include <tenon/ops_create.h>

#include "multi_priv.h"

static bool same_shape(const tn_view *a, const tn_view *b) {
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) == 0);
}

/* Both dense, with the elements in the same order in memory. */
static bool same_layout(const tn_view *a, const tn_view *b) {
    uint64_t both = a->word & b->word;
    if (both & TN_W_CONTIGUOUS) return true;
    if (!(both & TN_W_DENSE)) return false;
    for (int32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] > 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

static tn_status check_counter(const tni_multi *m, const tni_role *r, const tn_view *p,
                               const tn_view *t) {
    if (t->numel != 1 || (tn_view_dtype(t) != TN_F32 && tn_view_dtype(t) != TN_F64))
        return tn_fail(TN_E_DTYPE, -1, "%s: %s must be float32 or float64 numbers", m->op, r->name);
    if (tn_view_device(t) != 0 && ((p->word ^ t->word) & (TN_W_DEVICE | TN_W_INDEX)))
        return tn_fail(TN_E_DEVICE, -1, "%s: %s must be on the CPU or where the parameter is",
                       m->op, r->name);
    return TN_OK;
}

static tn_status check_one(const tni_multi *m, const tni_role *r, int64_t i) {
    const tn_view *p = m->role[0].in.v[i], *t = r->in.v[i];
    if (!t || !p)
        return tn_fail(TN_E_TYPE, -1, "%s: %s[%lld] is missing", m->op, r->name, (long long)i);
    if (r->written && tni_is_readonly(tni_t(t)))
        return tn_fail(TN_E_VALUE, -1, "%s: the memory of %s[%lld] is read-only", m->op, r->name,
                       (long long)i);
    if (r->counter) return check_counter(m, r, p, t);
    if (!same_shape(p, t))
        return tn_fail(TN_E_SHAPE, -1, "%s: %s[%lld] has another shape than its parameter", m->op,
                       r->name, (long long)i);
    if ((p->word ^ t->word) & TN_W_ALIKE)
        return tn_fail(TN_E_DTYPE, -1,
                       "%s: %s[%lld] has another dtype or device than its parameter", m->op,
                       r->name, (long long)i);
    if (tn_dtype_category(tn_view_dtype(t)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_DTYPE, -1, "%s: %s[%lld] is not a floating point tensor", m->op,
                       r->name, (long long)i);
    return TN_OK;
}

/* Packs what belongs to parameter i, unless all of it lies in memory in one order. */
static tn_status lay_out(tni_multi *m, int64_t i) {
    const tn_view *p = m->role[0].in.v[i];
    bool flat = true;
    for (int k = 0; k < m->roles; k++) {
        const tni_role *r = &m->role[k];
        if (r->in.n == 0) continue;
        m->used[k * m->n + i] = tni_t(r->in.v[i]);
        if (!r->counter && !same_layout(p, r->in.v[i])) flat = false;
    }
    if (flat && (p->word & (TN_W_DENSE | TN_W_CONTIGUOUS))) return TN_OK;
    for (int k = 0; k < m->roles; k++) {
        const tni_role *r = &m->role[k];
        if (r->in.n == 0 || r->counter || (r->in.v[i]->word & TN_W_CONTIGUOUS)) continue;
        tn_tensor **temp = &m->temps[k * m->n + i];
        TN_TRY(tn_clone(tni_t(r->in.v[i]), TN_FORMAT_CONTIGUOUS, temp));
        m->used[k * m->n + i] = *temp;
    }
    return TN_OK;
}

static tn_status check_lists(tni_multi *m) {
    m->n = m->role[0].in.n;
    for (int k = 0; k < m->roles; k++)
        if (m->role[k].in.n < 0 || (m->role[k].in.n > 0 && !m->role[k].in.v))
            return tn_fail(TN_E_TYPE, -1, "%s: the list of %s is NULL", m->op, m->role[k].name);
    for (int k = 1; k < m->roles; k++)
        if (m->role[k].in.n != 0 && m->role[k].in.n != m->n)
            return tn_fail(TN_E_VALUE, -1, "%s: %lld %s for %lld %s", m->op,
                           (long long)m->role[k].in.n, m->role[k].name, (long long)m->n,
                           m->role[0].name);
    for (int k = 0; k < m->roles; k++)
        for (int64_t i = 0; i < m->role[k].in.n; i++) TN_TRY(check_one(m, &m->role[k], i));
    return TN_OK;
}

tn_status tni_multi_begin(tni_multi *m) {
    TN_TRY(check_lists(m));
    if (m->n == 0) return TN_OK;
    size_t each = 2 * (size_t)m->roles * sizeof *m->used;
    m->used = calloc((size_t)m->n, each);
    if (!m->used) return tn_fail(TN_E_MEMORY, -1, "%s: no memory for lists of tensors", m->op);
    m->temps = m->used + m->roles * m->n;
    for (int64_t i = 0; i < m->n; i++) TN_TRY(lay_out(m, i));
    return TN_OK;
}

/* Whether one kernel call can take parameters i and j: what is no counter is like its parameter. */
static bool are_alike(const tni_multi *m, int64_t i, int64_t j) {
    for (int k = 0; k < m->roles; k++) {
        const tni_role *r = &m->role[k];
        if ((k == 0 || r->counter) && r->in.n &&
            ((r->in.v[i]->word ^ r->in.v[j]->word) & TN_W_ALIKE))
            return false;
    }
    return true;
}

int64_t tni_multi_run_end(const tni_multi *m, int64_t begin) {
    int64_t end = begin + 1;
    while (end < m->n && are_alike(m, begin, end)) end++;
    return end;
}

tn_tensors tni_multi_slice(const tni_multi *m, int role, int64_t begin, int64_t end) {
    tn_tensors none = {NULL, 0};
    if (role >= m->roles || m->role[role].in.n == 0) return none;
    tn_tensors some = {m->used + role * m->n + begin, end - begin};
    return some;
}

tn_status tni_multi_end(tni_multi *m, tn_status st) {
    if (!m->used) return st;
    for (int k = 0; k < m->roles; k++) {
        const tni_role *r = &m->role[k];
        for (int64_t i = 0; i < r->in.n; i++) {
            tn_tensor *t = tni_t(r->in.v[i]), *same = NULL;
            tn_tensor **temp = &m->temps[k * m->n + i];
            if (r->written && st == TN_OK && *temp) {
                st = tn_copy_(t, *temp, 0, &same);
                tn_tensor_unref(&same);
            } else if (r->written) {
                tni_bump_version(t);
            }
            tn_tensor_unref(temp);
        }
    }
    free(m->used);
    return st;
}

tn_status tni_multi_infer(tn_infer *inf, tni_multi *m) {
    m->op = inf->op->info.name;
    if (m->role[0].in.n < 1) return tn_fail(TN_E_VALUE, 0, "%s: an empty list", m->op);
    TN_TRY(check_lists(m));
    for (int k = 0; k < m->roles; k++)
        for (int64_t i = 0; i < m->role[k].in.n; i++) {
            const tn_view *p = m->role[0].in.v[i], *t = m->role[k].in.v[i];
            if (!same_layout(p, m->role[k].counter ? p : t))
                return tn_fail(TN_E_SHAPE, k, "%s: %s[%lld] lies in memory unlike its parameter",
                               m->op, m->role[k].name, (long long)i);
        }
    for (int64_t i = 1; i < m->n; i++)
        if (!are_alike(m, 0, i))
            return tn_fail(TN_E_DTYPE, 0, "%s: one call takes one dtype and device", m->op);
    inf->compute = tn_view_dtype(m->role[0].in.v[0]);
    return TN_OK;
}

/* ---- Learning rates and counters ---------------------------------------------------------------*/

static bool is_beside(const tn_view *t, const tn_view *param) {
    return !((t->word ^ param->word) & (TN_W_DEVICE | TN_W_INDEX));
}

static bool is_counter(const tn_view *t) {
    return t->numel == 1 && (tn_view_dtype(t) == TN_F32 || tn_view_dtype(t) == TN_F64);
}

tn_status tni_multi_rate(const tni_multi *m, const tn_view *rate, const tn_view *param,
                         const tn_view *step, double *lr, tn_tensor **ret_rate) {
    tn_scalar value;
    if (!rate) return TN_OK;
    if (rate->numel != 1 || tn_dtype_category(tn_view_dtype(rate)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_VALUE, -1, "%s: the learning rate must be one floating point number",
                       m->op);
    bool counts_there = !step || tn_view_device(step) != 0;
    if (tn_view_device(rate) == 0 || !is_beside(rate, param) || !counts_there) {
        TN_TRY(tn_tensor_item(tni_t(rate), &value));
        *lr = value.re;
        return TN_OK;
    }
    if (!is_counter(rate)) {
        int64_t device = (int64_t)tn_view_device(rate) << 8 | tn_view_index(rate);
        return tn__to_copy(tni_t(rate), TN_F32, device, 0, TN_FORMAT_CONTIGUOUS, ret_rate);
    }
    *ret_rate = tn_tensor_ref(tni_t(rate));
    return TN_OK;
}

tn_status tni_multi_check_rate(const tni_multi *m, const tn_view *rate, const tn_view *param,
                               const tn_view *step) {
    if (!rate) return TN_OK;
    bool counts_there = !step || tn_view_device(step) != 0;
    bool there = tn_view_device(rate) != 0 && is_beside(rate, param);
    if (is_counter(rate) && there && counts_there) return TN_OK;
    return tn_fail(
        TN_E_DEVICE, -1,
        "%s: the learning rate must be one number of float32 or float64 on the device, not "
        "the CPU, where the parameters and their steps are",
        m->op);
}

tn_status tni_multi_check_capture(const tni_multi *m, const tn_view *param, const tn_view *step) {
    if (tn_view_device(step) != 0) return TN_OK;
    return tni_forbid_native(tn_tensor_device(tni_t(param)),
                             "counting on the host (capturable=True counts on the device)", m->op);
}
