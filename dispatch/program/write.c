/* write.c: programs as .tng files (file_priv.h). */
#include "program_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "added_priv.h"
#include "file_priv.h"
#include "os_priv.h"

static void put_u32(tni_sink *s, uint32_t v) { tni_sink_bytes(s, &v, sizeof v); }
static void put_i32(tni_sink *s, int32_t v) { tni_sink_bytes(s, &v, sizeof v); }
static void put_u64(tni_sink *s, uint64_t v) { tni_sink_bytes(s, &v, sizeof v); }
static void put_i64(tni_sink *s, int64_t v) { tni_sink_bytes(s, &v, sizeof v); }

static void put_text(tni_sink *s, const char *text) {
    size_t n = strlen(text);
    put_u32(s, (uint32_t)n);
    tni_sink_bytes(s, text, n);
}

/* A text that may be missing: the first count is one more. */
static void put_text_opt(tni_sink *s, const char *text) {
    put_u32(s, text != NULL);
    if (text) put_text(s, text);
}

static void put_dtype(tni_sink *s, int64_t dtype) {
    put_text(s, dtype < 0 ? "" : tn_dtype_name((int32_t)dtype));
}

static void put_device(tni_sink *s, int64_t slot, int64_t index) {
    char text[80];
    snprintf(text, sizeof text, "%s:%d", tn_device_name((int32_t)slot), (int)index);
    put_text(s, slot < 0 ? "" : text);
}

static void put_scalar(tni_sink *s, const tn_scalar *v) {
    put_i32(s, v->kind);
    put_i64(s, v->i);
    tni_sink_bytes(s, &v->re, sizeof v->re);
    tni_sink_bytes(s, &v->im, sizeof v->im);
}

/* ---- Weights -----------------------------------------------------------------------------------*/

static uint64_t bytes_of(const tn_tensor *t) {
    return (uint64_t)(t->v.numel * tn_view_itemsize(&t->v));
}

/* ---- The graph ---------------------------------------------------------------------------------*/

static void put_values(tni_sink *s, const tn_program *p) {
    uint64_t at = 0;
    put_i32(s, p->nvalues);
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tni_pvalue *v = &p->value[i];
        put_u32(s, (uint32_t)v->role);
        put_i32(s, v->kind);
        put_i32(s, v->place);
        put_text_opt(s, v->name);
        put_dtype(s, v->dtype);
        put_device(s, v->device.slot, v->device.index);
        put_i32(s, v->ndim);
        tni_sink_bytes(s, v->shape, sizeof *v->shape * (size_t)v->ndim);
        put_u32(s, v->symbol != NULL);
        if (v->symbol) tni_sink_bytes(s, v->symbol, sizeof *v->symbol * (size_t)v->ndim);
        if (v->role != TNI_P_WEIGHT) continue;
        put_u64(s, at);
        put_u64(s, bytes_of(v->t));
        at += tni_file_aligned(bytes_of(v->t));
    }
}

/* The operators that nodes call, each once; *ret_index: by node. */
static tn_status put_operators(tni_sink *s, const tn_program *p, int32_t **ret_index) {
    int32_t *index = malloc(sizeof *index * (size_t)(p->nnodes + 1)), n = 0;
    if (!index) return tni_p_memory();
    for (int32_t k = 0; k < p->nnodes; k++) {
        index[k] = -1;
        for (int32_t j = 0; j < k && index[k] < 0; j++)
            if (p->node[j].op == p->node[k].op) index[k] = index[j];
        if (index[k] < 0) index[k] = n++;
    }
    put_i32(s, n);
    for (int32_t k = 0, next = 0; k < p->nnodes; k++) {
        const tn_op *op = p->node[k].op;
        char name[TNI_NAME_BYTES];
        if (index[k] != next) continue;
        next++;
        tni_name_write(op, name);
        put_text(s, name);
        put_i32(s, op->nfields);
        for (int i = 0; i < op->nfields; i++) {
            put_text(s, op->fields[i].name);
            put_u32(s, op->fields[i].kind);
        }
    }
    *ret_index = index;
    return TN_OK;
}

static tn_status put_field(tni_sink *s, const tni_pnode *n, const tn_field *f) {
    const void *at = tni_p_at(n, f);
    switch (f->kind) {
    case TN_F_TENSORS: put_i64(s, ((const tn_views *)at)->n); break;
    case TN_F_INT:
    case TN_F_DIM:
    case TN_F_BOOL:
    case TN_F_FORMAT:
    case TN_F_FLOAT: tni_sink_bytes(s, at, 8); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
    case TN_F_FLOAT_OPT: tni_sink_bytes(s, at, 16); break;
    case TN_F_INTS:
    case TN_F_DIMS: {
        const tn_ints *list = at;
        put_i64(s, list->n);
        if (list->n > 0) tni_sink_bytes(s, list->v, sizeof *list->v * (size_t)list->n);
        break;
    }
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: put_scalar(s, at); break;
    case TN_F_DTYPE: put_dtype(s, *(const int64_t *)at); break;
    case TN_F_DEVICE: {
        int64_t device = *(const int64_t *)at;
        put_device(s, device < 0 ? -1 : device >> 8, device & 255);
        break;
    }
    case TN_F_STR: put_text_opt(s, *(const char *const *)at); break;
    case TN_F_GENERATOR:
        if (*(tn_generator *const *)at)
            return tn_fail(TN_E_UNSUPPORTED, -1,
                           "%s draws from a generator of its own, which a file cannot hold",
                           n->op->info.name);
        break;
    default: break; /* tensors are told by value */
    }
    return TN_OK;
}

static void put_derived(tni_sink *s, const tni_pderived *list, int32_t n, uint32_t version) {
    put_i32(s, n);
    for (int32_t i = 0; i < n; i++) {
        const tni_pderived *d = &list[i];
        put_i32(s, d->field);
        put_i32(s, d->index);
        put_i32(s, d->symbol);
        put_i64(s, d->num);
        put_i64(s, d->den);
        put_i64(s, d->add);
        if (version > 1) put_i32(s, d->step);
    }
}

static tn_status put_node(tni_sink *s, const tni_pnode *n, int32_t op, uint32_t version) {
    put_i32(s, op);
    put_u32(s, n->no_grad);
    put_dtype(s, n->cast - 1);
    put_u32(s, n->fresh);
    put_i32(s, n->nin);
    tni_sink_bytes(s, n->in, sizeof *n->in * (size_t)n->nin);
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] == TNI_P_NUMBER) put_scalar(s, &n->number[i]);
    put_u32(s, n->wrote != NULL);
    if (n->wrote) tni_sink_bytes(s, n->wrote, (size_t)n->nin);
    put_i32(s, n->nout);
    tni_sink_bytes(s, n->out, sizeof *n->out * (size_t)n->nout);
    tni_sink_bytes(s, n->given, sizeof *n->given * (size_t)n->op->nout);
    put_derived(s, n->derived, n->nderived, version);
    for (int i = 0; i < n->op->nfields; i++) TN_TRY(put_field(s, n, &n->op->fields[i]));
    return TN_OK;
}

static tn_status put_graph(tni_sink *s, const tn_program *p, uint32_t version) {
    int32_t *index = NULL;
    put_text(s, p->note ? p->note : "");
    put_i32(s, p->nsymbols);
    for (int32_t i = 0; i < p->nsymbols; i++) {
        put_text(s, p->symbol[i].name);
        put_i64(s, p->symbol[i].low);
        put_i64(s, p->symbol[i].high);
        put_i64(s, p->symbol[i].seen);
    }
    put_values(s, p);
    TN_TRY(put_operators(s, p, &index));
    put_i32(s, p->nnodes);
    tn_status st = TN_OK;
    for (int32_t k = 0; k < p->nnodes && st == TN_OK; k++)
        st = put_node(s, &p->node[k], index[k], version);
    free(index);
    put_i32(s, p->ninputs);
    tni_sink_bytes(s, p->input, sizeof *p->input * (size_t)p->ninputs);
    put_i32(s, p->noutputs);
    tni_sink_bytes(s, p->output, sizeof *p->output * (size_t)p->noutputs);
    for (int32_t i = 0; i < p->nvalues && version > 2; i++)
        put_derived(s, p->value[i].rule, p->value[i].nrules, version);
    return st;
}

static void pad(tni_sink *s) {
    static const char zeros[TNI_FILE_ALIGN];
    tni_sink_bytes(s, zeros, tni_file_aligned(s->n) - s->n);
}

/* sum: where the checksums of the weights go. */
static tn_status put_weights(tni_sink *s, const tn_program *p, uint32_t *sum) {
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tn_tensor *t = p->value[i].t;
        if (p->value[i].role != TNI_P_WEIGHT) continue;
        uint64_t n = bytes_of(t);
        void *room = malloc(n + 1);
        tn_status st = room ? tn_tensor_read(t, room, n) : tni_p_memory();
        if (st == TN_OK) {
            tni_sink_bytes(s, room, n);
            *sum++ = tn_crc32(0, room, n);
        }
        free(room);
        if (st != TN_OK) return st;
        pad(s);
    }
    return TN_OK;
}

static tn_status put_data(tni_sink *s, const tn_program *p, uint64_t *ret_n) {
    tni_file_sums sums = {0};
    uint64_t at = s->n;
    for (int32_t i = 0; i < p->nvalues; i++) sums.count += p->value[i].role == TNI_P_WEIGHT;
    size_t bytes = sums.count * sizeof(uint32_t);
    uint32_t *sum = malloc(bytes + 1);
    tn_status st = sum ? put_weights(s, p, sum) : tni_p_memory();
    *ret_n = s->n - at;
    if (st == TN_OK && sums.count) {
        memcpy(sums.magic, TNI_FILE_SUMS_MAGIC, sizeof sums.magic);
        sums.sum = tn_crc32(0, sum, bytes);
        tni_sink_bytes(s, &sums, sizeof sums);
        tni_sink_bytes(s, sum, bytes);
    }
    free(sum);
    return st;
}

/* A weight that is written and lies within another one would be two in a file. */
typedef struct shared {
    const tn_program *p;
    const char *op;
} shared;

static void look_shared(void *ctx, int32_t id) {
    shared *c = ctx;
    const tn_program *p = c->p;
    const tn_tensor *t = p->value[id].t;
    for (int32_t i = 0; i < p->nvalues && p->value[id].role == TNI_P_WEIGHT; i++)
        if (i != id && p->value[i].role == TNI_P_WEIGHT && tni_p_shares(p->value[i].t, t))
            c->op = c->op ? c->op : "";
}

static tn_status check_shared(const tn_program *p) {
    for (int32_t k = 0; k < p->nnodes; k++) {
        shared c = {p, NULL};
        tni_p_each_written(&p->node[k], look_shared, &c);
        if (c.op)
            return tn_fail(
                TN_E_UNSUPPORTED, -1,
                "%s writes to a weight that shares memory with another one, which a file "
                "cannot hold",
                p->node[k].op->info.name);
    }
    return TN_OK;
}

/* The oldest that can hold the program. */
static uint32_t version_of(const tn_program *p) {
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role == TNI_P_WEIGHT) return TNI_FILE_VERSION;
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].nrules) return 3;
    for (int32_t k = 0; k < p->nnodes; k++)
        for (int32_t i = 0; i < p->node[k].nderived; i++)
            if (p->node[k].derived[i].step != TNI_P_IS) return 2;
    return 1;
}

tn_status tn_program_write(const tn_program *p, void **ret_bytes, uint64_t *ret_n) {
    const uint16_t one = 1;
    tni_sink s = {0};
    tni_file_header h = {.bytes = TNI_FILE_HEADER};
    if (!p || !ret_bytes || !ret_n)
        return tn_fail(TN_E_TYPE, -1, "program_write() needs a program");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    if (*(const unsigned char *)&one != 1)
        return tn_fail(TN_E_UNSUPPORTED, -1, "files of programs are for little-endian machines");
    TN_TRY(check_shared(p));
    memcpy(h.magic, TNI_FILE_MAGIC, sizeof h.magic);
    tni_sink_bytes(&s, &h, sizeof h);
    h.version = version_of(p);
    tn_status st = put_graph(&s, p, h.version);
    h.graph_at = sizeof h;
    h.graph_n = s.n - sizeof h;
    pad(&s);
    h.data_at = s.n;
    if (st == TN_OK) st = put_data(&s, p, &h.data_n);
    if (st == TN_OK && s.failed) st = tni_p_memory();
    if (st != TN_OK) {
        free(s.at);
        return st;
    }
    h.hash = tni_file_hash(s.at + h.graph_at, h.graph_n);
    memcpy(s.at, &h, sizeof h);
    *ret_bytes = s.at;
    *ret_n = s.n;
    return TN_OK;
}

tn_status tn_program_save(const tn_program *p, const char *path) {
    void *bytes = NULL;
    uint64_t n = 0;
    const char *why = NULL;
    if (!path) return tn_fail(TN_E_TYPE, 1, "program_save() needs a path");
    TN_TRY(tn_program_write(p, &bytes, &n));
    tn_status st = tni_os_replace_file(path, bytes, n, &why)
                       ? TN_OK
                       : tn_fail(TN_E_VALUE, 1, "%s cannot be written: %s", path, why);
    free(bytes);
    return st;
}
