/* sparse_product.c: products of matrices of which at least one is sparse. */
#include <tenon/args_linalg.h>
#include <tenon/args_nn.h>
#include <tenon/args_sparse.h>

#include "infer_priv.h"
#include "op_linalg.h"
#include "op_sparse.h"
#include "rule_priv.h"
#include "sparse_scope_priv.h"

/* ---- The two operators that have kernels -------------------------------------------------------*/

static tn_status check_parts(const tn_view *index, const tn_view *plain, const tn_view *a,
                             const tn_view *b) {
    if (tn_view_dtype(a) != tn_view_dtype(b))
        return tn_fail(TN_E_DTYPE, 3, "expected both of one dtype, got %s and %s",
                       tni_type_text(tn_view_dtype(a)), tni_type_text(tn_view_dtype(b)));
    if (tn_view_dtype(index) == TN_I64 && tn_view_dtype(plain) == TN_I64 && index->ndim == 1 &&
        plain->ndim == 1 && index->numel > 0)
        return TN_OK;
    return tn_fail(TN_E_VALUE, 0, "a pattern is two int64 vectors, the first not empty");
}

tn_status tni_infer__spmm(tn_infer *inf, const void *args) {
    const tn__spmm_args *a = args;
    TN_TRY(check_parts(a->index, a->plain, a->values, a->dense));
    if (a->values->ndim != 1 || a->values->numel != a->plain->numel || a->dense->ndim != 2)
        return tn_fail(TN_E_SHAPE, 2, "_spmm: a value for each index and a matrix, got %s and %s",
                       tni_shape_text_of(a->values), tni_shape_text_of(a->dense));
    const int64_t shape[2] = {a->index->numel - 1, a->dense->shape[1]};
    return tni_infer_set(inf, 0, 2, shape);
}

tn_status tni_infer__sddmm(tn_infer *inf, const void *args) {
    const tn__sddmm_args *a = args;
    TN_TRY(check_parts(a->index, a->plain, a->left, a->right));
    if (a->left->ndim != 2 || a->right->ndim != 2 || a->left->shape[1] != a->right->shape[1] ||
        a->left->shape[0] != a->index->numel - 1)
        return tn_fail(TN_E_SHAPE, 2, "_sddmm: matrices of shapes %s and %s do not fit",
                       tni_shape_text_of(a->left), tni_shape_text_of(a->right));
    return tni_infer_set(inf, 0, 1, a->plain->shape);
}

/* The row of each element. */
static tn_tensor *rows_of(tni_scope *s, tn_tensor *index, tn_tensor *plain) {
    tn_tensor *each = sparse_arange(s, plain->v.numel, plain);
    return sparse_plus(s, sparse_found(s, index, each, true), -1);
}

tn_status tni_composite__spmm(const void *args, tn_tensor **rets) {
    const tn__spmm_args *a = args;
    tni_scope s = {0};
    tn_tensor *index = tni_t(a->index), *plain = tni_t(a->plain);
    tn_tensor *taken = sparse_pick(&s, tni_t(a->dense), 0, plain);
    tn_tensor *each = scope_mul(&s, scope_unsqueeze(&s, tni_t(a->values), 1), taken);
    tn_tensor *rows = rows_of(&s, index, plain);
    return scope_finish(&s, sparse_gathered(&s, index->v.numel - 1, rows, each), rets);
}

tn_status tni_composite__sddmm(const void *args, tn_tensor **rets) {
    const tn__sddmm_args *a = args;
    tni_scope s = {0};
    tn_tensor *index = tni_t(a->index), *plain = tni_t(a->plain);
    tn_tensor *left = sparse_pick(&s, tni_t(a->left), 0, rows_of(&s, index, plain));
    tn_tensor *right = sparse_pick(&s, tni_t(a->right), 0, plain);
    tn_tensor *r = scope_sum(&s, scope_mul(&s, left, right), TN_INTS(1), 0);
    return scope_finish(&s, scope_convert(&s, r, tn_view_dtype(a->left)), rets);
}

static tn_tensor *conjugated(tni_scope *s, tn_tensor *t) { return scope_unary(s, tn_conj, t); }

/* Both in the dtype that they promote to. */
static void promote(tni_scope *s, tn_tensor **a, tn_tensor **b) {
    tn_tensor *both[2] = {*a, *b};
    if (s->st != TN_OK) return;
    int32_t dtype = tni_result_dtype(both, 2);
    *a = scope_convert(s, *a, dtype);
    *b = scope_convert(s, *b, dtype);
}

static tn_tensor *spmm(tni_scope *s, tn_tensor *index, tn_tensor *plain, tn_tensor *values,
                       tn_tensor *dense) {
    tn_tensor *r = NULL;
    promote(s, &values, &dense);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__spmm(index, plain, values, dense, &r);
    return scope_take(s, st, r);
}

static tn_tensor *sddmm(tni_scope *s, tn_tensor *index, tn_tensor *plain, tn_tensor *left,
                        tn_tensor *right) {
    tn_tensor *r = NULL;
    promote(s, &left, &right);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sddmm(index, plain, left, right, &r);
    return scope_take(s, st, r);
}

/* Transposed rows times a matrix: the pattern in the order of its columns. */
static tn_tensor *spmm_transposed(tni_scope *s, tn_tensor *index, tn_tensor *plain,
                                  tn_tensor *values, int64_t columns, tn_tensor *dense) {
    tn_tensor *t = NULL, *other = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sparse_make(index, plain, values, TN_INTS(index->v.numel - 1, columns),
                                   TN_LAYOUT_CSR, 0, &t);
    t = scope_take(s, st, t);
    if (s->st != TN_OK) return NULL;
    st = tn__to_compressed(t, TN_LAYOUT_CSC, (tn_ints){NULL, 0}, 0, &other);
    other = scope_take(s, st, other);
    if (s->st != TN_OK) return NULL;
    const tni_sparse *c = tni_sparse_of(other);
    return spmm(s, c->index, c->plain, sparse_values(s, other), dense);
}

tn_status tni_grad__spmm(tn_gctx *c) {
    const tn__spmm_args *a = c->args;
    tn_tensor *index = tni_t(a->index), *plain = tni_t(a->plain), *values = tni_t(a->values);
    tn_tensor *dense = tni_t(a->dense);
    if (TN_GNEEDS(c, 2)) {
        tni_scope s = {0};
        tn_tensor *r = sddmm(&s, index, plain, c->g[0], conjugated(&s, dense));
        TN_TRY(scope_finish(&s, r, &c->ret[2]));
    }
    if (TN_GNEEDS(c, 3)) {
        tni_scope s = {0};
        tn_tensor *r =
            spmm_transposed(&s, index, plain, conjugated(&s, values), dense->v.shape[0], c->g[0]);
        TN_TRY(scope_finish(&s, r, &c->ret[3]));
    }
    return TN_OK;
}

tn_status tni_grad__sddmm(tn_gctx *c) {
    const tn__sddmm_args *a = c->args;
    tn_tensor *index = tni_t(a->index), *plain = tni_t(a->plain);
    tn_tensor *left = tni_t(a->left), *right = tni_t(a->right);
    if (TN_GNEEDS(c, 2)) {
        tni_scope s = {0};
        tn_tensor *r = spmm(&s, index, plain, c->g[0], conjugated(&s, right));
        TN_TRY(scope_finish(&s, r, &c->ret[2]));
    }
    if (TN_GNEEDS(c, 3)) {
        tni_scope s = {0};
        tn_tensor *r =
            spmm_transposed(&s, index, plain, c->g[0], right->v.shape[0], conjugated(&s, left));
        TN_TRY(scope_finish(&s, r, &c->ret[3]));
    }
    return TN_OK;
}

/* ---- Sparse times strided ----------------------------------------------------------------------*/

/* A matrix as compressed rows with int64 indices and its values; a batch lies along the diagonal. */
typedef struct rows {
    tn_tensor *index, *plain, *values;
    int64_t batch, height, width;
} rows;

static void open_rows(tni_scope *s, tn_tensor *t, rows *ret) {
    bool batched = t->v.ndim == 3;
    ret->batch = batched ? t->v.shape[0] : 1;
    ret->height = t->v.shape[batched];
    ret->width = t->v.shape[batched + 1];
    if (tn_tensor_layout(t) == TN_LAYOUT_CSR && !batched) {
        const tni_sparse *c = tni_sparse_of(t);
        ret->index = scope_convert(s, c->index, TN_I64);
        ret->plain = scope_convert(s, c->plain, TN_I64);
        ret->values = sparse_values(s, t);
        return;
    }
    sparse_places p;
    t = sparse_distinct(s, sparse_to_coo(s, t), true);
    if (s->st != TN_OK) return;
    if (tn_sparse_dim(t) != t->v.ndim) {
        s->st = tn_fail(TN_E_UNSUPPORTED, -1,
                        "a product of matrices takes no sparse tensor with dense dimensions");
        return;
    }
    sparse_places_of(s, t, &p);
    tn_tensor *row = sparse_keys(s, &p, 0, p.n - 1), *starts = NULL;
    tn_tensor *column = scope_select(s, p.at, 0, p.n - 1);
    if (batched) {
        tn_tensor *member = scope_select(s, p.at, 0, 0);
        column = scope_add(s, column, sparse_times(s, member, ret->width));
    }
    starts = sparse_arange(s, ret->batch * ret->height + 1, p.at);
    tn_tensor *packed = NULL;
    if (s->st == TN_OK) s->st = tn_contiguous(row, TN_FORMAT_CONTIGUOUS, &packed);
    packed = scope_take(s, s->st, packed);
    ret->index = sparse_found(s, packed, starts, false);
    ret->plain = column;
    ret->values = sparse_values(s, t);
}

/* Blocks times the rows of blocks that they meet, added up by row. */
static tn_tensor *block_product(tni_scope *s, tn_tensor *t, tn_tensor *dense) {
    sparse_places p;
    int64_t block[2], k = dense->v.shape[1];
    sparse_block_of(t, block);
    sparse_places_of(s, t, &p);
    if (s->st != TN_OK) return NULL;
    int64_t inner = t->v.shape[1] / block[1];
    tn_tensor *cut = scope_reshape(s, dense, TN_INTS(inner, block[1], k));
    tn_tensor *met = sparse_pick(s, cut, 0, scope_select(s, p.at, 0, 1));
    tn_tensor *each = scope_binary(s, tn_bmm, sparse_rows(s, t), met);
    tn_tensor *sums =
        sparse_gathered(s, t->v.shape[0] / block[0], scope_select(s, p.at, 0, 0), each);
    return scope_reshape(s, sums, TN_INTS(t->v.shape[0], k));
}

static tn_tensor *times_dense(tni_scope *s, tn_tensor *t, tn_tensor *dense) {
    rows r;
    bool batched = t->v.ndim == 3;
    if (tni_by_blocks(tn_tensor_layout(t)) && !batched &&
        tn_tensor_dtype(t) == tn_tensor_dtype(dense))
        return block_product(s, t, dense);
    open_rows(s, t, &r);
    if (s->st != TN_OK) return NULL;
    int64_t k = dense->v.shape[batched + 1];
    if (batched) dense = scope_reshape(s, dense, TN_INTS(r.batch * r.width, k));
    tn_tensor *product = spmm(s, r.index, r.plain, r.values, dense);
    return batched ? scope_reshape(s, product, TN_INTS(r.batch, r.height, k)) : product;
}

/* ---- Sparse times sparse -----------------------------------------------------------------------*/

/* Every element of a with every element of the row of b that it meets. */
static tn_tensor *times_sparse(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    sparse_places p;
    rows r;
    a = sparse_distinct(s, sparse_to_coo(s, a), true);
    open_rows(s, b, &r);
    if (s->st != TN_OK) return NULL;
    sparse_places_of(s, a, &p);
    tn_tensor *row = scope_select(s, p.at, 0, 0), *column = scope_select(s, p.at, 0, 1);
    tn_tensor *first = sparse_pick(s, r.index, 0, column);
    tn_tensor *last = sparse_pick(s, r.index, 0, sparse_plus(s, column, 1));
    tn_tensor *of_a = NULL, *of_b = NULL;
    sparse_spread(s, first, last, &of_a, &of_b);
    tn_tensor *x = sparse_pick(s, sparse_values(s, a), 0, of_a);
    tn_tensor *y = sparse_pick(s, r.values, 0, of_b);
    tn_tensor *line[2] = {sparse_pick(s, row, 0, of_a), sparse_pick(s, r.plain, 0, of_b)};
    tn_tensor *at = NULL, *sum = NULL, *values = scope_mul(s, x, y);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_stack((tn_tensors){line, 2}, 0, &at);
    at = scope_take(s, st, at);
    tn_tensor *all = sparse_coo(s, at, values, TN_INTS(a->v.shape[0], b->v.shape[1]), false);
    if (s->st != TN_OK) return NULL;
    st = tn_coalesce(all, &sum);
    return scope_take(s, st, sum);
}

/* ---- Rules -------------------------------------------------------------------------------------*/

static tn_status check_product(const tn_op *op, const tn_tensor *a, const tn_tensor *b, int32_t n) {
    bool fits = a->v.ndim == n && b->v.ndim == n && a->v.shape[n - 1] == b->v.shape[n - 2] &&
                (n == 2 || a->v.shape[0] == b->v.shape[0]);
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, -1, "%s(): shapes cannot be multiplied (%s and %s)", op->info.name,
                   tni_shape_text_of(&a->v), tni_shape_text_of(&b->v));
}

static tn_tensor *product(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    int64_t last = a->v.ndim - 1;
    if (tni_is_sparse(a) && tni_is_sparse(b)) {
        if (last != 1) {
            s->st =
                tn_fail(TN_E_UNSUPPORTED, -1, "bmm(): there is no rule for layouts %s and %s",
                        tn_layout_name(tn_tensor_layout(a)), tn_layout_name(tn_tensor_layout(b)));
            return NULL;
        }
        tn_tensor *r = times_sparse(s, a, b);
        return tni_by_blocks(tn_tensor_layout(a)) ? r : sparse_to_layout_of(s, r, a);
    }
    if (tni_is_sparse(a)) return times_dense(s, a, b);
    tn_tensor *r = times_dense(s, scope_transpose(s, b, last - 1, last),
                               scope_transpose(s, a, last - 1, last));
    return scope_transpose(s, r, last - 1, last);
}

tn_status tni_sparse_mm(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_mm_args *call = args;
    tn_tensor *a = tni_t(call->input), *b = tni_t(call->mat2), *r;
    tni_scope s = {0};
    _Static_assert(offsetof(tn_mv_args, vec) == offsetof(tn_mm_args, mat2) &&
                       offsetof(tn_bmm_args, mat2) == offsetof(tn_mm_args, mat2),
                   "one reads all");
    if (op == &tni_op_mv) {
        if (tni_is_sparse(b) || b->v.ndim != 1)
            return tn_fail(TN_E_STATE, 1, "mv(): the vector must be strided and have 1 dimension");
        b = scope_unsqueeze(&s, b, 1);
        if (s.st == TN_OK) s.st = check_product(op, a, b, 2);
        r = s.st == TN_OK ? product(&s, a, b) : NULL;
        if (s.st == TN_OK) r = scope_select(&s, r, 1, 0);
        return scope_finish(&s, r, rets);
    }
    TN_TRY(check_product(op, a, b, op == &tni_op_bmm ? 3 : 2));
    return scope_finish(&s, product(&s, a, b), rets);
}

static tn_tensor *weighted(tni_scope *s, tn_tensor *t, tn_scalar by) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || tni_scalar_is(by, 1)) return t;
    tn_status st = tn_mul_scalar(t, by, &r);
    return scope_take(s, st, r);
}

/* beta * input + alpha * r, of the shape of r. */
static tn_status added(tni_scope *s, tn_tensor *input, tn_scalar beta, tn_tensor *r,
                       tn_scalar alpha, tn_tensor **rets) {
    r = weighted(s, r, alpha);
    if (s->st == TN_OK) s->st = rule_expandable(&input->v, r->v.ndim, r->v.shape);
    if (!tni_scalar_is(beta, 0)) r = scope_add(s, weighted(s, input, beta), r);
    return scope_finish(s, r, rets);
}

tn_status tni_sparse_addmm(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_addmm_args *a = args;
    tn_tensor *mat1 = tni_t(a->mat1), *mat2 = tni_t(a->mat2);
    tni_scope s = {0};
    TN_TRY(check_product(op, mat1, mat2, 2));
    tn_tensor *r = tni_is_sparse(mat1) || tni_is_sparse(mat2) ? product(&s, mat1, mat2)
                                                              : scope_binary(&s, tn_mm, mat1, mat2);
    return added(&s, tni_t(a->input), a->beta, r, a->alpha, rets);
}

tn_status tni_sparse_addmv(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_addmv_args *a = args;
    tn_tensor *mat = tni_t(a->mat), *vec = tni_t(a->vec);
    tni_scope s = {0};
    (void)op;
    if (tni_is_sparse(tni_t(a->input)) || tni_is_sparse(vec))
        return tn_fail(TN_E_UNSUPPORTED, tni_is_sparse(vec) ? 2 : 0,
                       "addmv(): the matrix may be sparse, not the vectors");
    tn_tensor *r = SCOPE(&s, tn_mv(mat, vec, scope_slot(&s)));
    return added(&s, tni_t(a->input), a->beta, r, a->alpha, rets);
}

/* A strided input of any rank is the matrix of its last dimension's vectors. */
tn_status tni_sparse_layer(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_linear_args *a = args;
    tn_tensor *input = tni_t(a->input), *bias = tni_t(a->bias), *matrix = input;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    int32_t last = input->v.ndim - 1;
    if (a->weight->ndim != 2)
        return tn_fail(TN_E_SHAPE, 1, "linear(): the weight must have 2 dimensions, not %d",
                       (int)a->weight->ndim);
    bool flat = last == 1 || last < 0 || tni_is_sparse(input) || input->v.numel == 0;
    if (!flat) matrix = scope_reshape(&s, input, TN_INTS(-1, input->v.shape[last]));
    tn_tensor *turned = scope_transpose(&s, tni_t(a->weight), 0, 1);
    if (s.st == TN_OK) s.st = check_product(op, matrix, turned, 2);
    tn_tensor *r = s.st == TN_OK ? product(&s, matrix, turned) : NULL;
    if (!flat) {
        memcpy(shape, input->v.shape, sizeof shape[0] * (size_t)last);
        shape[last] = a->weight->shape[0];
        r = scope_reshape(&s, r, tn_ints_of(shape, last + 1));
    }
    return scope_finish(&s, bias ? scope_add(&s, r, bias) : r, rets);
}

/* ---- Sparse times strided, reduced otherwise ---------------------------------------------------*/

/* One of the products of each row: the first that is the largest or smallest; zeros where a row has
 * no element. Written with gather, so that its gradient goes to that product alone. */
static tn_tensor *extreme_of_rows(tni_scope *s, const rows *r, tn_tensor *count, tn_tensor *each,
                                  const char *how) {
    int64_t n = each->v.shape[0], k = each->v.shape[1];
    tn_ints size = TN_INTS(r->height, k), all = TN_INTS(n, k);
    tn_tensor *row = rows_of(s, r->index, r->plain);
    tn_tensor *at = scope_expand(s, scope_unsqueeze(s, row, 1), all);
    tn_tensor *known = scope_unary(s, tn_detach, each);
    tn_tensor *none = SCOPE(s, tn_new_zeros(each, size, -1, -1, scope_slot(s)));
    tn_tensor *best = SCOPE(s, tn_scatter_reduce(none, 0, at, known, how, 0, scope_slot(s)));
    tn_tensor *hit = scope_binary(s, tn_eq, known, sparse_pick(s, best, 0, row));
    hit = scope_binary(s, tn_logical_or, hit, scope_unary(s, tn_isnan, known));
    tn_tensor *place = scope_expand(s, scope_unsqueeze(s, sparse_arange(s, n, row), 1), all);
    tn_scalar_box past, zero;
    place = scope_where(s, hit, place, tn_scalar_box_init(&past, tn_scalar_int(n)));
    tn_tensor *first = SCOPE(s, tn_new_zeros(row, size, -1, -1, scope_slot(s)));
    first = SCOPE(s, tn_scatter_reduce(first, 0, at, place, "amin", 0, scope_slot(s)));
    tn_tensor *taken = SCOPE(s, tn_gather(each, 0, first, 0, scope_slot(s)));
    return scope_where(s, count, taken, tn_scalar_box_init(&zero, tn_scalar_int(0)));
}

static tn_status check_reduced(const tn_tensor *a, const tn_tensor *b) {
    if (tn_tensor_layout(a) != TN_LAYOUT_CSR || tni_is_sparse(b))
        return tn_fail(
            TN_E_UNSUPPORTED, 0,
            "sparse.mm: with reduce it takes a matrix of layout sparse_csr and a strided "
            "one, got %s and %s",
            tn_layout_name(tn_tensor_layout(a)), tn_layout_name(tn_tensor_layout(b)));
    if (a->v.ndim != 2 || b->v.ndim != 2 || b->v.shape[0] != a->v.shape[1])
        return tn_fail(TN_E_STATE, 1, "sparse.mm: shapes cannot be multiplied (%s and %s)",
                       tni_shape_text_of(&a->v), tni_shape_text_of(&b->v));
    if (tn_tensor_dtype(a) != tn_tensor_dtype(b))
        return tn_fail(TN_E_STATE, 1, "sparse.mm: expected the dtype of sparse, %s, but got %s",
                       tni_type_text(tn_tensor_dtype(a)), tni_type_text(tn_tensor_dtype(b)));
    return TN_OK;
}

tn_status tni_composite__sparse_mm_reduce(const void *args, tn_tensor **rets) {
    const tn__sparse_mm_reduce_args *a = args;
    tn_tensor *t = tni_t(a->sparse), *dense = tni_t(a->dense), *out;
    const char *how = a->reduce;
    bool most = !strcmp(how, "amax") || !strcmp(how, "max");
    bool least = !strcmp(how, "amin") || !strcmp(how, "min"), mean = !strcmp(how, "mean");
    tni_scope s = {0};
    rows r;
    if (!most && !least && !mean && strcmp(how, "sum") != 0)
        return tn_fail(TN_E_STATE, 2, "sparse.mm: reduce is sum, mean, amax or amin, not %s", how);
    TN_TRY(check_reduced(t, dense));
    open_rows(&s, t, &r);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    tn_tensor *count = scope_sub(&s, scope_narrow(&s, r.index, 0, 1, r.height),
                                 scope_narrow(&s, r.index, 0, 0, r.height));
    count = scope_unsqueeze(&s, count, 1);
    if (s.st == TN_OK && (most || least) && r.plain->v.numel > 0) {
        tn_tensor *each =
            scope_mul(&s, scope_unsqueeze(&s, r.values, 1), sparse_pick(&s, dense, 0, r.plain));
        tn_scalar_box none;
        tn_tensor *zero = tn_scalar_box_init(&none, tn_scalar_int(0));
        tn_tensor *some = scope_binary(&s, tn_gt, count, zero);
        out = s.st == TN_OK ? extreme_of_rows(&s, &r, some, each, most ? "amax" : "amin") : NULL;
        return scope_finish(&s, out, rets);
    }
    out = spmm(&s, r.index, r.plain, r.values, dense);
    if (mean && s.st == TN_OK) {
        tn_scalar_box one;
        count = scope_binary(&s, tn_maximum, count, tn_scalar_box_init(&one, tn_scalar_int(1)));
        out = scope_true_divide(&s, out, count);
    }
    return scope_finish(&s, out, rets);
}

/* ---- Products at places ------------------------------------------------------------------------*/

tn_status tni_composite__sampled_addmm(const void *args, tn_tensor **rets) {
    const tn__sampled_addmm_args *a = args;
    tn_tensor *t = tni_t(a->input), *left = tni_t(a->mat1), *right = tni_t(a->mat2);
    tni_scope s = {0};
    rows r;
    if (tn_tensor_layout(t) != TN_LAYOUT_CSR || tni_is_sparse(left) || tni_is_sparse(right))
        return tn_fail(TN_E_STATE, 0,
                       "sampled_addmm: Expected self to be of layout sparse_csr and matrices to be "
                       "strided, got %s, %s and %s",
                       tn_layout_name(tn_tensor_layout(t)), tn_layout_name(tn_tensor_layout(left)),
                       tn_layout_name(tn_tensor_layout(right)));
    if (t->v.ndim != 2 || left->v.ndim != 2 || right->v.ndim != 2 ||
        left->v.shape[1] != right->v.shape[0] || left->v.shape[0] != t->v.shape[0] ||
        right->v.shape[1] != t->v.shape[1])
        return tn_fail(TN_E_STATE, 0, "sampled_addmm: shapes %s, %s and %s do not fit",
                       tni_shape_text_of(&t->v), tni_shape_text_of(&left->v),
                       tni_shape_text_of(&right->v));
    open_rows(&s, t, &r);
    tn_tensor *turned = scope_transpose(&s, right, 0, 1);
    tn_tensor *values = NULL;
    if (s.st == TN_OK) values = sddmm(&s, r.index, r.plain, left, turned);
    values = weighted(&s, values, a->alpha);
    if (s.st == TN_OK && !tni_scalar_is(a->beta, 0))
        values = scope_add(&s, values, weighted(&s, r.values, a->beta));
    return scope_finish(&s, sparse_like(&s, t, values), rets);
}
