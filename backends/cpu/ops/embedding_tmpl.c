/* embedding_tmpl.c: gathering rows of a table, and the gradient of that.
 *
 * The gradient sorts the positions by row (a counting sort keeps their order), so that each row is
 * summed by one thread, in the order of the indices, whatever the number of threads.
 *
 * family: embedding; types: all; isa: each */
#include <tenon/args_nn.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"

typedef struct job {
    int64_t rows, width; /* of the table */
    int64_t n;           /* indices */
    int64_t padding;     /* row without gradient, or -1 */
    const int64_t *index;
    const T *from;
    int64_t rs, cs; /* strides of `from` when it is the table */
    T *to;
    const int64_t *start; /* (rows + 1): where a row's positions begin in `order` */
    const int64_t *order;
    int by_count; /* each row's gradient is divided by how often the row was taken */
} job;

/* Indices as packed int64, checked. */
static tn_status read_indices(const tn_call *call, const tn_view *v, int64_t rows,
                              const int64_t **ret) {
    const void *p;
    tn_status st = cpu_packed(call, v, &p);
    if (st) return st;
    if (tn_view_dtype(v) == TN_I32) {
        void *wide;
        st = room_scratch(call, v->numel + 1, sizeof(int64_t), &wide);
        if (st) return st;
        for (int64_t i = 0; i < v->numel; i++) ((int64_t *)wide)[i] = ((const int32_t *)p)[i];
        p = wide;
    }
    *ret = p;
    for (int64_t i = 0; i < v->numel; i++) {
        if ((*ret)[i] < 0 || (*ret)[i] >= rows) {
            return call->host->fail(TN_E_INDEX, 1, "index out of range in self");
        }
    }
    return TN_OK;
}

static tn_status gather_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const T *s = j->from + j->index[i] * j->rs;
        T *d = j->to + i * j->width;
        if (j->padding >= 0 && j->index[i] == j->padding) {
            memset(d, 0, (size_t)j->width * sizeof(T));
        } else if (j->cs == 1) {
            memcpy(d, s, (size_t)j->width * sizeof(T));
        } else {
            for (int64_t k = 0; k < j->width; k++) d[k] = s[k * j->cs];
        }
    }
    return TN_OK;
}

static tn_status gather(const tn_call *call, const tn_view *table, const tn_view *indices,
                        int64_t padding, const tn_view *out) {
    job j = {.rows = table->shape[0],
             .width = table->shape[1],
             .n = indices->numel,
             .padding = padding,
             .from = table->data,
             .rs = table->strides[0],
             .cs = table->strides[1],
             .to = out->data};
    tn_status st = read_indices(call, indices, j.rows, &j.index);
    return st ? st : cpu_parallel(j.n, 1 + 16384 / (j.width + 1), gather_rows, &j);
}

static tn_status embedding(const tn_call *call, const void *args) {
    const tn_embedding_args *a = args;
    return gather(call, a->weight, a->indices, -1, a->out);
}

#if TMPL_IS_FLOAT
/* The derivative of the backward pass: a gather, over the rows' counts where those divide. */
static tn_status embedding_gather(const tn_call *call, const void *args) {
    const tn__embedding_gather_args *a = args;
    int64_t rows = a->weight->shape[0], width = a->weight->shape[1];
    const int64_t *index;
    void *room;
    tn_status st = gather(call, a->weight, a->indices, a->padding_idx, a->out);
    if (st || !a->scale_grad_by_freq) return st;
    st = read_indices(call, a->indices, rows, &index);
    if (!st) st = room_scratch(call, rows + 1, sizeof(int64_t), &room);
    if (st) return st;
    int64_t *count = room, n = a->indices->numel;
    T *out = a->out->data;
    memset(count, 0, (size_t)rows * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) count[index[i]]++;
    for (int64_t i = 0; i < n * width; i++) {
        A v = LOAD(out[i]) / (A)count[index[i / width]];
        out[i] = STORE(v);
    }
    return TN_OK;
}

static tn_status sum_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t width = j->width;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(width, sizeof(A), &bytes, &room);
    if (st) return st;
    for (int64_t r = begin; r < end && st == TN_OK; r++) {
        int64_t first = j->start[r], last = r == j->padding ? first : j->start[r + 1];
        T *d = j->to + r * width;
        if (first == last) {
            memset(d, 0, (size_t)width * sizeof(T));
            continue;
        }
        A scale = j->by_count ? (A)1 / (A)(last - first) : (A)1;
        if (last - first == 1) {
            memcpy(d, j->from + j->order[first] * width, (size_t)width * sizeof(T));
            continue;
        }
        A *sum = room;
        memset(sum, 0, (size_t)bytes);
        cpu_stretch all = {.n = last - first, .cost = width};
        while (cpu_next_stretch(&all)) {
            for (int64_t i = first + all.begin; i < first + all.end; i++) {
                const T *s = j->from + j->order[i] * width;
                for (int64_t k = 0; k < width; k++) sum[k] += LOAD(s[k]);
            }
        }
        st = all.st;
        for (int64_t k = 0; k < width; k++) d[k] = STORE(sum[k] * scale);
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

static tn_status embedding_backward(const tn_call *call, const void *args) {
    const tn__embedding_backward_args *a = args;
    job j = {.rows = a->num_weights,
             .width = a->out->shape[1],
             .n = a->indices->numel,
             .padding = a->padding_idx,
             .by_count = a->scale_grad_by_freq != 0,
             .to = a->out->data};
    const void *g;
    void *room;
    tn_status st = read_indices(call, a->indices, j.rows, &j.index);
    if (!st) st = cpu_packed(call, a->grad, &g);
    if (!st) {
        st = room_scratch(call, room_add(j.rows, j.n + 2), sizeof(int64_t), &room);
    }
    if (st) return st;
    int64_t *start = room, *order = start + j.rows + 2;
    memset(start, 0, (size_t)(j.rows + 2) * sizeof(int64_t));
    /* Counting sort with the counts shifted by two: filling moves each start to its place. */
    cpu_stretch count = {.n = j.n, .cost = 1}, fill = count;
    while (cpu_next_stretch(&count))
        for (int64_t i = count.begin; i < count.end; i++) start[j.index[i] + 2]++;
    for (int64_t r = 0; r < j.rows; r++) start[r + 2] += start[r + 1];
    while (count.st == TN_OK && cpu_next_stretch(&fill))
        for (int64_t i = fill.begin; i < fill.end; i++) order[start[j.index[i] + 1]++] = i;
    if (count.st != TN_OK || fill.st != TN_OK) return count.st ? count.st : fill.st;
    j.from = g;
    j.start = start;
    j.order = order;
    return cpu_parallel(j.rows, 1 + 16384 / (j.width + 1), sum_rows, &j);
}
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(embedding, embedding),
#if TMPL_IS_FLOAT
    ROW(_embedding_gather, embedding_gather),
    ROW(_embedding_backward, embedding_backward),
#endif
};
const cpu_rows TN_(cpu_embedding_rows) = CPU_ROWS_OF(rows);
