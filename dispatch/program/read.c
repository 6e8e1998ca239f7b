/* read.c: programs out of .tng files (file_priv.h).
 *
 * Nothing in a file is believed: every count is held against the bytes that are left, every name is
 * looked up, every number of a value is checked by tn_program_verify, and what arguments mean is the
 * dispatcher's business, as for any caller. */
#include "program_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include <tenon/ops.h>
#include <tenon/ops_meta.h>

#include "file_priv.h"
#include "os_priv.h"

/* The file, for as long as a weight of it is used. */
typedef struct mapping {
    _Atomic uint32_t refs;
    unsigned char *data;
    uint64_t n;
    bool mapped; /* else allocated */
} mapping;

static void mapping_unref(void *ctx) {
    mapping *m = ctx;
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
    if (m->mapped)
        tni_os_unmap(m->data, m->n);
    else
        free(m->data);
    free(m);
}

typedef struct reader {
    tn_program *p;
    mapping *file;
    tni_file_header h;
    const unsigned char *at, *end;
    const unsigned char *sum; /* checksums of weights, NULL: a file of before they were written */
    uint32_t nsums, nweights;
    uint64_t data_n;  /* bytes of the weights so far, with what fills them up */
    const tn_op **op; /* by number in the file */
    int32_t nops;
    tn_status st; /* the first failure; everything reads as 0 after it */
} reader;

static tn_status damaged(const reader *r, const char *what) {
    return tn_fail(TN_E_VALUE, -1, "the file is damaged at byte %llu: %s",
                   (unsigned long long)(r->at - r->file->data), what);
}

static void fault(reader *r, const char *what) {
    if (r->st == TN_OK) r->st = damaged(r, what);
}

/* ---- Parts -------------------------------------------------------------------------------------*/

static void take(reader *r, void *dst, size_t n) {
    memset(dst, 0, n);
    if (r->st != TN_OK) return;
    if ((size_t)(r->end - r->at) < n) {
        fault(r, "it ends too early");
        return;
    }
    memcpy(dst, r->at, n);
    r->at += n;
}

static uint32_t take_u32(reader *r) {
    uint32_t v;
    take(r, &v, sizeof v);
    return v;
}
static int32_t take_i32(reader *r) {
    int32_t v;
    take(r, &v, sizeof v);
    return v;
}
static uint64_t take_u64(reader *r) {
    uint64_t v;
    take(r, &v, sizeof v);
    return v;
}
static int64_t take_i64(reader *r) {
    int64_t v;
    take(r, &v, sizeof v);
    return v;
}

/* How many items of at least `bytes` follow. */
static int32_t take_count(reader *r, size_t bytes) {
    int32_t n = take_i32(r);
    if (n >= 0 && (size_t)n <= (size_t)(r->end - r->at) / bytes) return n;
    fault(r, "a count that is too large");
    return 0;
}

static bool take_bool(reader *r) {
    uint32_t v = take_u32(r);
    if (v > 1) fault(r, "neither 0 nor 1");
    return v == 1;
}

/* A copy, NULL after a failure. */
static char *take_text(reader *r) {
    int32_t n = take_count(r, 1);
    if (r->st != TN_OK) return NULL;
    char *text = malloc((size_t)n + 1);
    if (!text) {
        r->st = tni_p_memory();
        return NULL;
    }
    take(r, text, (size_t)n);
    text[n] = 0;
    if (strlen(text) == (size_t)n) return text;
    fault(r, "a text with a zero");
    free(text);
    return NULL;
}

static char *take_text_opt(reader *r) { return take_bool(r) ? take_text(r) : NULL; }

static void *take_block(reader *r, size_t n) {
    void *block = r->st == TN_OK ? malloc(n + 1) : NULL;
    if (r->st == TN_OK && !block) r->st = tni_p_memory();
    if (block) take(r, block, n);
    return block;
}

static void *zeros(reader *r, size_t n, size_t item) {
    void *block = r->st == TN_OK ? calloc(n + 1, item) : NULL;
    if (r->st == TN_OK && !block) r->st = tni_p_memory();
    return block;
}

/* -1: none is named. */
static int32_t take_dtype(reader *r) {
    int32_t dtype = -1;
    char *name = take_text(r);
    if (name && *name) r->st = tn_dtype_parse(name, &dtype);
    free(name);
    return dtype;
}

static bool take_device(reader *r, tn_device *ret_device) {
    char *name = take_text(r);
    bool given = name && *name;
    if (given) r->st = tn_device_parse(name, ret_device);
    free(name);
    return given && r->st == TN_OK;
}

/* A file holds a number as an integer and as a float: which one counts is up to its kind, and the
 * other follows from it, so that all that read it see the same. */
static tn_scalar take_scalar(reader *r) {
    tn_scalar v = {.kind = take_i32(r), .i = take_i64(r)};
    take(r, &v.re, sizeof v.re);
    take(r, &v.im, sizeof v.im);
    switch (v.kind) {
    case TN_SCALAR_NONE: return tn_scalar_none();
    case TN_CAT_BOOL: return tn_scalar_bool(v.i != 0);
    case TN_CAT_INT:
        return tn_scalar_is_beyond(&v) ? tn_scalar_uint((uint64_t)v.i) : tn_scalar_int(v.i);
    case TN_CAT_FLOAT: return tn_scalar_float(v.re);
    case TN_CAT_COMPLEX: return tn_scalar_complex(v.re, v.im);
    default: fault(r, "a number of no kind"); return tn_scalar_none();
    }
}

/* ---- Values ------------------------------------------------------------------------------------*/

/* Whether a weight's bytes are those that were written. */
static tn_status check_weight(reader *r, const tni_pvalue *v, const void *bytes, uint64_t n) {
    uint32_t sum;
    uint32_t i = r->nweights++;
    if (!r->sum) return TN_OK;
    if (i >= r->nsums) return damaged(r, "a weight without a checksum");
    memcpy(&sum, r->sum + i * sizeof sum, sizeof sum);
    if (tn_crc32(0, bytes, n) == sum) return TN_OK;
    return tn_fail(
        TN_E_VALUE, -1,
        "the file is damaged: the values of the weight '%s' are not those that were written",
        v->name ? v->name : "");
}

/* What fills a part up, which has n bytes, is zeros. */
static bool filled(const unsigned char *part, uint64_t n) {
    for (uint64_t i = n; i < tni_file_aligned(n); i++)
        if (part[i]) return false;
    return true;
}

/* A tensor over the file's memory, or a copy of it on its device. */
static tn_status weight(reader *r, tni_pvalue *v, uint64_t at, uint64_t n) {
    const tn_device cpu = {0, 0};
    int64_t numel;
    tn_tensor *t = NULL;
    TN_TRY(tni_numel(v->ndim, v->shape, tn_dtype_size(v->dtype), &numel));
    unsigned char *bytes = r->file->data + r->h.data_at + r->data_n;
    if (n != (uint64_t)(numel * tn_dtype_size(v->dtype)) || at != r->data_n || n > r->h.data_n - at)
        return damaged(r, "a weight does not lie where the one before it ends");
    if (!filled(bytes, n)) return damaged(r, "what stands behind a weight is not what was written");
    r->data_n += tni_file_aligned(n);
    TN_TRY(check_weight(r, v, bytes, n));
    atomic_fetch_add_explicit(&r->file->refs, 1, memory_order_relaxed);
    tn_status st = tn_tensor_from_foreign(v->dtype, cpu, v->ndim, v->shape, NULL, bytes, 0,
                                          mapping_unref, r->file, &t);
    if (st != TN_OK) {
        mapping_unref(r->file);
        return st;
    }
    if (v->device.slot != 0) {
        tn_tensor *there = NULL;
        st = tn__move(t, -1, (int64_t)v->device.slot << 8 | v->device.index, &there);
        tn_tensor_unref(&t);
        t = there;
    }
    v->t = t;
    return st;
}

static void take_value(reader *r, tni_pvalue *v) {
    uint32_t role = take_u32(r);
    v->kind = take_i32(r);
    v->place = take_i32(r);
    v->name = take_text_opt(r);
    v->dtype = take_dtype(r);
    if (!take_device(r, &v->device)) fault(r, "a value without a device");
    v->ndim = take_count(r, 8);
    if (role > TNI_P_WEIGHT || v->kind < 0 || v->kind > TN_PROGRAM_BUFFER || v->dtype < 0 ||
        v->ndim > TN_MAX_DIMS)
        fault(r, "a value of no kind");
    if (r->st != TN_OK) {
        v->ndim = 0;
        return;
    }
    v->role = (tni_prole)role;
    v->shape = take_block(r, sizeof *v->shape * (size_t)v->ndim);
    if (take_bool(r)) v->symbol = take_block(r, sizeof *v->symbol * (size_t)v->ndim);
    for (int32_t d = 0; d < v->ndim && r->st == TN_OK; d++)
        if (v->shape[d] < (v->role == TNI_P_WEIGHT ? 0 : -1)) fault(r, "a negative size");
    if (v->role != TNI_P_WEIGHT) return;
    uint64_t at = take_u64(r), n = take_u64(r);
    if (r->st == TN_OK) r->st = weight(r, v, at, n);
}

static void take_symbols(reader *r) {
    tn_program *p = r->p;
    int32_t n = take_count(r, 28);
    p->symbol = zeros(r, (size_t)n, sizeof *p->symbol);
    for (int32_t i = 0; i < n && r->st == TN_OK; i++, p->nsymbols++) {
        tni_psymbol *s = &p->symbol[i];
        s->name = take_text(r);
        s->low = take_i64(r);
        s->high = take_i64(r);
        s->seen = take_i64(r);
        if (s->low < 0 || s->high < s->low || s->seen < 0) fault(r, "a size that no size is");
        if (!s->name) return;
    }
}

static void take_values(reader *r) {
    tn_program *p = r->p;
    int32_t n = take_count(r, 32);
    p->value = zeros(r, (size_t)n, sizeof *p->value);
    p->value_room = p->value ? n + 1 : 0;
    for (int32_t i = 0; i < n && r->st == TN_OK; i++) {
        p->nvalues++;
        take_value(r, &p->value[i]);
    }
}

/* ---- Operators ---------------------------------------------------------------------------------*/

/* The operator of that name with those arguments, in that order. */
static const tn_op *take_operator(reader *r) {
    tn_op_meta meta = {0};
    char *name = take_text(r);
    int32_t n = take_count(r, 8);
    if (r->st == TN_OK) r->st = tn_op_meta_find(name, &meta);
    bool same = meta.nfields == n;
    for (int32_t i = 0; i < n && r->st == TN_OK; i++) {
        char *field = take_text(r);
        uint32_t kind = take_u32(r);
        same =
            same && field && strcmp(field, meta.fields[i].name) == 0 && kind == meta.fields[i].kind;
        free(field);
    }
    if (r->st == TN_OK && !same)
        r->st = tn_fail(TN_E_VALUE, -1, "the file calls %s with other arguments than it has here",
                        name);
    if (r->st == TN_OK && meta.args_bytes > TNI_MAX_ARGS_BYTES)
        r->st =
            tn_fail(TN_E_UNSUPPORTED, -1, "%s has more arguments than a program can hold", name);
    free(name);
    return r->st == TN_OK ? (const void *)meta.info : NULL;
}

static void take_operators(reader *r) {
    r->nops = take_count(r, 8);
    r->op = zeros(r, (size_t)r->nops, sizeof(tn_op *));
    for (int32_t i = 0; i < r->nops && r->st == TN_OK; i++) r->op[i] = take_operator(r);
}

/* ---- Nodes -------------------------------------------------------------------------------------*/

static void take_ints(reader *r, tn_ints *list) {
    int64_t n = take_i64(r);
    if (n < -1 || (n > 0 && (uint64_t)n > (uint64_t)(r->end - r->at) / sizeof *list->v))
        fault(r, "a count that is too large");
    if (r->st != TN_OK) return;
    list->v = n > 0 ? take_block(r, sizeof *list->v * (size_t)n) : NULL;
    list->n = n;
}

static void take_field(reader *r, const tn_field *f, void *at) {
    bool optional = f->flags & TNI_FIELD_OPTIONAL;
    switch (f->kind) {
    case TN_F_TENSORS: {
        tn_views *list = at;
        list->n = take_i64(r);
        if (list->n < 0 || list->n > INT32_MAX) fault(r, "a list of a wrong length");
        if (r->st != TN_OK) list->n = 0;
        break;
    }
    case TN_F_BOOL:
    case TN_F_FORMAT: {
        int64_t v = take_i64(r);
        if (v < 0 || v > (f->kind == TN_F_BOOL ? 1 : TN_FORMAT_CHANNELS_LAST_3D))
            fault(r, "a choice that is none");
        *(int64_t *)at = v;
        break;
    }
    case TN_F_INT:
    case TN_F_DIM:
    case TN_F_FLOAT: take(r, at, 8); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
    case TN_F_FLOAT_OPT: take(r, at, 16); break;
    case TN_F_INTS:
    case TN_F_DIMS: take_ints(r, at); break;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT:
        *(tn_scalar *)at = take_scalar(r);
        if (f->kind == TN_F_SCALAR && ((tn_scalar *)at)->kind == TN_SCALAR_NONE)
            fault(r, "a number is missing");
        break;
    case TN_F_DTYPE: *(int64_t *)at = take_dtype(r); break;
    case TN_F_DEVICE: {
        tn_device device;
        bool given = take_device(r, &device);
        *(int64_t *)at = given ? (int64_t)device.slot << 8 | device.index : -1;
        break;
    }
    case TN_F_STR:
        *(const char **)at = take_text_opt(r);
        if (!*(const char **)at && !optional) fault(r, "a text is missing");
        break;
    default: break;
    }
}

static void take_derived(reader *r, tni_pderived **ret_list, int32_t *ret_n) {
    int32_t count = take_count(r, 36);
    *ret_list = count ? zeros(r, (size_t)count, sizeof **ret_list) : NULL;
    for (int32_t i = 0; i < count && r->st == TN_OK; i++, ++*ret_n) {
        tni_pderived *d = &(*ret_list)[i];
        d->field = take_i32(r);
        d->index = take_i32(r);
        d->symbol = take_i32(r);
        d->num = take_i64(r);
        d->den = take_i64(r);
        d->add = take_i64(r);
        if (r->h.version > 1) d->step = take_i32(r);
        if (d->step < TNI_P_IS || d->step > TNI_P_PLUS) fault(r, "a number without a rule");
        if (d->den < 1) fault(r, "a size divided by nothing");
    }
}

static void take_node(reader *r, tni_pnode *n) {
    int32_t op = take_i32(r);
    if (r->st == TN_OK && (op < 0 || op >= r->nops)) fault(r, "an operator that is not listed");
    if (r->st != TN_OK) return;
    n->op = r->op[op];
    n->no_grad = take_bool(r);
    int32_t cast = take_dtype(r);
    n->cast = (uint8_t)(cast + 1);
    n->fresh = take_bool(r);
    n->nin = take_count(r, 4);
    n->in = take_block(r, sizeof *n->in * (size_t)n->nin);
    for (int32_t i = 0; i < n->nin && r->st == TN_OK; i++) {
        if (n->in[i] != TNI_P_NUMBER) continue;
        if (!n->number) n->number = zeros(r, (size_t)n->nin, sizeof *n->number);
        if (!n->number) return;
        n->number[i] = take_scalar(r);
        if (n->number[i].kind == TN_SCALAR_NONE) fault(r, "a number is missing");
    }
    if (take_bool(r)) n->wrote = take_block(r, (size_t)n->nin);
    n->nout = take_count(r, 4);
    n->out = take_block(r, sizeof *n->out * (size_t)n->nout);
    n->given = take_block(r, sizeof *n->given * (size_t)n->op->nout);
    take_derived(r, &n->derived, &n->nderived);
    n->args = zeros(r, 1, n->op->args_bytes);
    for (int i = 0; i < n->op->nfields && r->st == TN_OK; i++)
        take_field(r, &n->op->fields[i], tni_p_at(n, &n->op->fields[i]));
}

static void take_nodes(reader *r) {
    tn_program *p = r->p;
    int32_t n = take_count(r, 32);
    p->node = zeros(r, (size_t)n, sizeof *p->node);
    p->node_room = p->node ? n + 1 : 0;
    for (int32_t k = 0; k < n && r->st == TN_OK; k++) {
        p->nnodes++;
        take_node(r, &p->node[k]);
    }
}

static void take_ids(reader *r, int32_t **ret_list, int32_t *ret_n) {
    int32_t n = take_count(r, 4);
    *ret_list = take_block(r, sizeof **ret_list * (size_t)n);
    *ret_n = *ret_list ? n : 0;
}

/* ---- Files -------------------------------------------------------------------------------------*/

static tn_status check_header(reader *r) {
    const mapping *f = r->file;
    tni_file_header *h = &r->h;
    r->at = f->data;
    if (f->n >= sizeof *h) memcpy(h, f->data, sizeof *h);
    if (f->n < 8 || memcmp(f->data, TNI_FILE_MAGIC, 8) != 0)
        return tn_fail(TN_E_VALUE, -1, "this is no program: it does not begin as a .tng file does");
    if (f->n < sizeof *h) return damaged(r, "it ends within its header");
    if (h->version < 1 || h->version > TNI_FILE_VERSION)
        return tn_fail(TN_E_VALUE, -1,
                       "the file has version %u, and this Tenon reads up to %d: write it again",
                       (unsigned)h->version, TNI_FILE_VERSION);
    bool inside = h->graph_at == sizeof *h && h->graph_n <= f->n - sizeof *h &&
                  h->data_at == sizeof *h + tni_file_aligned(h->graph_n) && h->data_at <= f->n &&
                  h->data_n <= f->n - h->data_at && h->data_n % TNI_FILE_ALIGN == 0;
    if (h->bytes != sizeof *h || h->zero || !inside)
        return damaged(r, "its header points out of the file, which may be cut off");
    if (tni_file_hash(f->data + h->graph_at, h->graph_n) != h->hash ||
        !filled(f->data + h->graph_at, h->graph_n))
        return damaged(r, "the graph is not what was written");
    r->at = f->data + h->graph_at;
    r->end = r->at + h->graph_n;
    return TN_OK;
}

/* Finds the checksums. */
static tn_status check_sums(reader *r) {
    const unsigned char *at = r->file->data + r->h.data_at + r->h.data_n;
    uint64_t rest = r->file->n - r->h.data_at - r->h.data_n, bytes;
    tni_file_sums sums = {0};
    if (rest == 0 && r->h.version < 4) return TN_OK;
    if (rest >= sizeof sums) memcpy(&sums, at, sizeof sums);
    bytes = sums.count * (uint64_t)sizeof(uint32_t);
    if (memcmp(sums.magic, TNI_FILE_SUMS_MAGIC, sizeof sums.magic) != 0 ||
        rest - sizeof sums != bytes || tn_crc32(0, at + sizeof sums, bytes) != sums.sum)
        return damaged(r, "the checksums behind the weights are not what was written");
    r->sum = at + sizeof sums;
    r->nsums = sums.count;
    return TN_OK;
}

static tn_status read_graph(reader *r) {
    tn_program *p = r->p;
    TN_TRY(check_header(r));
    TN_TRY(check_sums(r));
    p->note = take_text(r);
    take_symbols(r);
    take_values(r);
    take_operators(r);
    take_nodes(r);
    take_ids(r, &p->input, &p->ninputs);
    take_ids(r, &p->output, &p->noutputs);
    for (int32_t i = 0; i < p->nvalues && r->h.version > 2; i++)
        take_derived(r, &p->value[i].rule, &p->value[i].nrules);
    if (r->st == TN_OK && r->at != r->end) fault(r, "something follows the graph");
    if (r->st == TN_OK && r->data_n != r->h.data_n) fault(r, "something follows the weights");
    if (r->st == TN_OK && r->sum && r->nsums != r->nweights) fault(r, "checksums of no weights");
    if (r->st == TN_OK) r->st = tn_program_verify(p);
    if (r->st == TN_OK) r->st = tni_p_settle(p);
    return r->st;
}

/* Takes over the caller's reference to file. */
static tn_status read_file(mapping *file, tn_program **ret_program) {
    reader r = {.file = file};
    tn_status st = tni_p_new(&r.p);
    if (st == TN_OK) st = read_graph(&r);
    if (st == TN_OK) {
        r.p->recorded = true;
        *ret_program = r.p;
    } else {
        /* a node that was not read to its end has no arguments to free */
        tn_program_unref(&r.p);
    }
    free(r.op);
    mapping_unref(file);
    return st;
}

static tn_status mapping_new(unsigned char *data, uint64_t n, bool mapped, mapping **ret_mapping) {
    mapping *m = malloc(sizeof *m);
    if (!m) return tni_p_memory();
    *m = (mapping){.data = data, .n = n, .mapped = mapped};
    atomic_store_explicit(&m->refs, 1, memory_order_relaxed);
    *ret_mapping = m;
    return TN_OK;
}

tn_status tn_program_load(const char *path, tn_program **ret_program) {
    mapping *file = NULL;
    const char *why = NULL;
    uint64_t n = 0;
    if (!path || !ret_program) return tn_fail(TN_E_TYPE, -1, "program_load() needs a path");
    void *data = tni_os_map_file(path, &n, &why);
    if (!data) return tn_fail(TN_E_VALUE, 0, "%s cannot be read: %s", path, why);
    tn_status st = mapping_new(data, n, true, &file);
    if (st != TN_OK) {
        tni_os_unmap(data, n);
        return st;
    }
    return read_file(file, ret_program);
}

tn_status tn_program_parse(const void *bytes, uint64_t n, tn_program **ret_program) {
    mapping *file = NULL;
    if (!bytes || !ret_program) return tn_fail(TN_E_TYPE, -1, "program_parse() needs bytes");
    if (n > SIZE_MAX - 2 * TNI_FILE_ALIGN) return tni_p_memory();
    uint64_t room = (n / TNI_FILE_ALIGN + 1) * TNI_FILE_ALIGN;
    unsigned char *data = aligned_alloc(TNI_FILE_ALIGN, room);
    if (!data) return tni_p_memory();
    memcpy(data, bytes, n);
    tn_status st = mapping_new(data, n, false, &file);
    if (st != TN_OK) {
        free(data);
        return st;
    }
    return read_file(file, ret_program);
}
