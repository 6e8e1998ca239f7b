/* order_tmpl.c: sorting and its relatives along a dimension, for one element type with an order.
 *
 * A row is turned into pairs (key, position): unsigned keys in the order of the elements, NaN
 * last, both zeros alike. Pairs are all different, so every algorithm here is stable and gives one
 * answer.
 *
 * family: order; types: real */
#include <string.h>

#include <tenon/args_index.h>

#include "common/order.h"

#include "axis.h"
#include "cpu_priv.h"

enum { GRAIN = 1 << 12, SMALL = 40, DIGITS = 256, FEW_ROOM = 256, GLANCE = 32, ORDERED = 16 };
enum { TURN = 1 << 17 }; /* steps between looks for an interrupt */
/* Rows that are sorted by all threads, their parts at least, and into how many buckets. */
enum {
    LONG = 1 << 16,
    PART = 1 << 14,
    MOST_PARTS = 64,
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS
};

/* ---- Items ------------------------------------------------------------------------------------*/

static inline bool is_nan(T x) {
#if TMPL_IS_FLOAT
    A a = LOAD(x);
    return a != a;
#else
    (void)x;
    return false;
#endif
}

typedef struct item {
    K key;
    uint32_t at;
} item;

static inline bool before(item a, item b) {
    return a.key < b.key || (a.key == b.key && a.at < b.at);
}

/* ---- Sorting items -----------------------------------------------------------------------------*/

static void insertion(item *v, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        item x = v[i];
        int64_t j = i;
        for (; j > 0 && before(x, v[j - 1]); j--) v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Byte b of a key, from the lowest. */
static inline uint32_t digit(K key, size_t b) { return (uint32_t)((uint64_t)key >> 8 * b & 255u); }

/* By the lowest `bytes` of the keys, those above being the same; a byte that is the same everywhere costs
 * nothing. Positions must rise. spare: room for n more. Returns where the result is, or NULL when
 * interrupted. */
static item *radix(item *v, item *spare, int64_t n, size_t bytes) {
    uint32_t counts[sizeof(K)][DIGITS];
    memset(counts, 0, bytes * sizeof counts[0]);
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++)
            for (size_t b = 0; b < bytes; b++) counts[b][digit(v[i].key, b)]++;
    for (size_t b = 0; b < bytes && s.st == TN_OK; b++) {
        uint32_t *c = counts[b], sum = 0;
        if (c[digit(v[0].key, b)] == (uint32_t)n) continue;
        for (int d = 0; d < DIGITS; d++) {
            uint32_t here = c[d];
            c[d] = sum;
            sum += here;
        }
        s = (cpu_stretch){.n = n, .cost = 1};
        while (cpu_next_stretch(&s))
            for (int64_t i = s.begin; i < s.end; i++) spare[c[digit(v[i].key, b)]++] = v[i];
        item *t = v;
        v = spare;
        spare = t;
    }
    return s.st == TN_OK ? v : NULL;
}

static item *sort_items(item *v, item *spare, int64_t n, size_t bytes) {
    if (n > SMALL) return radix(v, spare, n, bytes);
    insertion(v, n);
    return v;
}

/* Merging runs of twice the length each time: for items whose positions are in no order. NULL: interrupted. */
static item *merge_items(item *v, item *spare, int64_t n) {
    for (int64_t i = 0; i < n; i += SMALL) insertion(v + i, n - i < SMALL ? n - i : SMALL);
    for (int64_t run = SMALL; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t mid = i + run < n ? i + run : n, end = i + 2 * run < n ? i + 2 * run : n;
            int64_t a = i, b = mid;
            cpu_stretch s = {.n = end - i, .cost = 1};
            while (cpu_next_stretch(&s))
                for (int64_t k = i + s.begin; k < i + s.end; k++)
                    spare[k] = b == end || (a < mid && before(v[a], v[b])) ? v[a++] : v[b++];
            if (s.st != TN_OK) return NULL;
        }
        item *t = v;
        v = spare;
        spare = t;
    }
    return v;
}

/* Brings the k smallest items to the front, the k-th of them to v[k - 1]; false: interrupted. */
static bool select_items(item *v, int64_t n, int64_t k) {
    int64_t lo = 0, hi = n - 1, at = k - 1, swaps = 0;
    while (hi - lo > SMALL) {
        int64_t mid = lo + (hi - lo) / 2;
        item a = v[lo], b = v[mid], c = v[hi];
        item pivot = before(a, b) ? (before(b, c)   ? b
                                     : before(a, c) ? c
                                                    : a)
                                  : (before(a, c)   ? a
                                     : before(b, c) ? c
                                                    : b);
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (before(v[i], pivot)) i++;
            while (before(pivot, v[j])) j--;
            if (i > j) break;
            item t = v[i];
            v[i++] = v[j];
            v[j--] = t;
            if (++swaps % TURN == 0 && cpu_poll() != TN_OK) return false;
        }
        if (at <= j)
            hi = j;
        else if (at >= i)
            lo = i;
        else
            return true;
    }
    insertion(v + lo, hi - lo + 1);
    return true;
}

/* The k-th smallest item: of those whose keys begin alike with it, byte by byte. Positions must rise; false:
 * interrupted. */
static bool nth_item(item *v, int64_t n, int64_t k, item *ret) {
    for (size_t b = sizeof(K); b-- > 0 && n > SMALL;) {
        uint32_t counts[DIGITS] = {0};
        cpu_stretch s = {.n = n, .cost = 1};
        while (cpu_next_stretch(&s))
            for (int64_t i = s.begin; i < s.end; i++) counts[digit(v[i].key, b)]++;
        if (s.st != TN_OK) return false;
        uint32_t d = 0;
        for (; counts[d] < k; d++) k -= counts[d];
        if (counts[d] == (uint32_t)n) continue;
        int64_t kept = 0;
        s = (cpu_stretch){.n = n, .cost = 1};
        while (cpu_next_stretch(&s)) {
            for (int64_t i = s.begin; i < s.end; i++) {
                v[kept] = v[i];
                kept += digit(v[i].key, b) == d;
            }
        }
        if (s.st != TN_OK) return false;
        n = kept;
    }
    if (n <= SMALL) insertion(v, n);
    *ret = v[k - 1];
    return true;
}

/* ---- Rows --------------------------------------------------------------------------------------*/

typedef enum task { SORT, TOPK, KTH, MEDIAN, NANMEDIAN, MODE } task;

typedef struct job {
    const tn_call *call;
    axis ax; /* of the input; for SORT, where all shapes agree, of the results too */
    const T *x;
    T *values;
    int64_t *indices;
    task what;
    int64_t k;
    int64_t inner, length; /* packed results: elements below dim, size along dim */
    bool reversed, sorted;
} job;

/* Where a row's results go. */
typedef struct target {
    T *values;
    int64_t *indices;
    int64_t step_v, step_i;
} target;

/* Items [begin, end) of a row. */
static bool fill_some(const job *j, const T *x, item *v, int64_t begin, int64_t end) {
    int64_t step = j->ax.step[0];
    K flip = j->reversed ? KEY_LAST : 0;
    cpu_stretch s = {.n = end - begin, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = begin + s.begin; i < begin + s.end; i++) {
            v[i].key = (K)(key_of(x[i * step]) ^ flip);
            v[i].at = (uint32_t)i;
        }
    }
    return s.st == TN_OK;
}

static bool fill(const job *j, const T *x, item *v) { return fill_some(j, x, v, 0, j->ax.n); }

/* What a glance compares, numbers in their order. Those of half precision go by their bits, where a NaN
 * has to be told apart. */
#if TMPL_IS_HALF
typedef int16_t glanced;
typedef int16_t glance_mask;
TMPL_INLINE glanced glance_of(T x) { return (glanced)(x ^ (x & 0x8000 ? 0x7fff : 0)); }
TMPL_INLINE bool glance_nan(T x) {
    return (x & 0x7fff) > (TMPL_DTYPE == TMPL_F16 ? 0x7c00 : 0x7f80);
}
#else
typedef A glanced;
typedef int glance_mask;
TMPL_INLINE glanced glance_of(T x) { return LOAD(x); }
TMPL_INLINE bool glance_nan(T x) { return is_nan(x); }
#endif

/* Whether one of GLANCE elements may come before `limit`, as whole vectors find out: where none does, their
 * keys need not be made. */
static bool any_before(const T *x, T limit, bool reversed) {
    const glanced mark = glance_of(limit);
    glance_mask found = 0;
    if (is_nan(limit)) return true;
    if (reversed) {
        TMPL_VECTOR
        for (int i = 0; i < GLANCE; i++)
            found |= (glance_mask)((glance_of(x[i]) > mark) | glance_nan(x[i]));
    } else {
        TMPL_VECTOR
        for (int i = 0; i < GLANCE; i++) found |= (glance_mask)(glance_of(x[i]) < mark);
    }
    return found != 0;
}

/* For few of many: the items among which the k smallest are, at the front; returns how many, 0 when interrupted. A few
 * are kept in order. More gather until there is no more room; then the k smallest of them stay. What follows
 * must be smaller than the last of these, so most elements only meet that one. */
static int64_t keep_few(const job *j, const T *x, item *v) {
    int64_t step = j->ax.step[0], n = j->ax.n, k = j->k, kept = k, i = 0;
    bool ordered = k <= ORDERED;
    int64_t room = ordered ? k : k * 4 > FEW_ROOM ? k * 4 : FEW_ROOM; /* no more than n */
    K flip = j->reversed ? KEY_LAST : 0;
    for (; i < room; i++) v[i] = (item){(K)(key_of(x[i * step]) ^ flip), (uint32_t)i};
    if (ordered)
        insertion(v, k);
    else if (!select_items(v, room, k))
        return 0;
    K limit = v[k - 1].key;
    for (int64_t looks = 1; i < n; looks++) {
        bool wide = step == 1 && n - i > GLANCE;
        int64_t stop = wide ? i + GLANCE : n - i < TURN ? n : i + TURN;
        if (looks % (wide ? TURN / GLANCE : 1) == 0 && cpu_poll() != TN_OK) return 0;
        if (wide && !any_before(x + i, x[(int64_t)v[k - 1].at * step], j->reversed)) {
            i = stop;
            continue;
        }
        for (; i < stop; i++) {
            item new = {(K)(key_of(x[i * step]) ^ flip), (uint32_t)i};
            if (CPU_LIKELY(new.key >= limit)) continue;
            if (ordered) {
                int64_t at = k - 1;
                for (; at > 0 && new.key < v[at - 1].key; at--) v[at] = v[at - 1];
                v[at] = new;
            } else {
                v[kept++] = new;
                if (kept < room) continue;
                if (!select_items(v, kept, k)) return 0;
                kept = k;
            }
            limit = v[k - 1].key;
        }
    }
    return kept;
}

static void store(const job *j, const T *x, const target *to, int64_t i, uint32_t at) {
    to->values[i * to->step_v] = x[(int64_t)at * j->ax.step[0]];
    to->indices[i * to->step_i] = at;
}

/* The results from `first` on. */
static bool store_all(const job *j, const T *x, const target *to, int64_t first, const item *v,
                      int64_t n) {
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) store(j, x, to, first + i, v[i].at);
    return s.st == TN_OK;
}

/* The longest run of equal keys; of runs of one length the first, and its last item. -1: interrupted. */
static int64_t most_frequent(const item *v, int64_t n) {
    int64_t best = 0, run = 0, at = 0;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            run = i > 0 && v[i].key == v[i - 1].key ? run + 1 : 1;
            if (run > best) {
                best = run;
                at = v[i].at;
            }
        }
    }
    return s.st == TN_OK ? at : -1;
}

/* Where the median is, -1 when interrupted. */
static int64_t median_of(const job *j, const T *x, item *v) {
    int64_t n = j->ax.n, numbers = n;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            if (!is_nan(x[i * j->ax.step[0]])) continue;
            if (j->what == MEDIAN) return i;
            numbers--;
        }
    }
    if (s.st != TN_OK) return -1;
    if (numbers == 0) return 0;
    item found;
    return nth_item(v, n, (numbers - 1) / 2 + 1, &found) ? (int64_t)found.at : -1;
}

/* The smallest of all items, to the front. */
static bool keep_one(const job *j, const T *x, item *v) {
    int64_t step = j->ax.step[0], n = j->ax.n;
    K flip = j->reversed ? KEY_LAST : 0;
    item best = {(K)(key_of(x[0]) ^ flip), 0};
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            K key = (K)(key_of(x[i * step]) ^ flip);
            if (CPU_LIKELY(key >= best.key)) continue;
            best = (item){key, (uint32_t)i};
        }
    }
    v[0] = best;
    return s.st == TN_OK;
}

static tn_status one_row(const job *j, const T *x, const target *to, item *v, item *spare) {
    int64_t n = j->ax.n;
    bool few = j->what == TOPK && j->k > 0 && j->k <= n / 8 && n >= FEW_ROOM, done;
    int64_t at;
    if (j->what == TOPK && j->k == 1)
        done = keep_one(j, x, v), n = 1;
    else if (few)
        done = (n = keep_few(j, x, v)) > 0;
    else
        done = fill(j, x, v);
    if (!done) return TN_E_INTERRUPTED;
    switch (j->what) {
    case SORT:
        v = sort_items(v, spare, n, sizeof(K));
        done = v && store_all(j, x, to, 0, v, n);
        break;
    case TOPK:
        if (j->k < n) done = select_items(v, n, j->k);
        if (done && j->sorted) v = merge_items(v, spare, j->k);
        done = done && v && store_all(j, x, to, 0, v, j->k);
        break;
    case KTH:
        done = nth_item(v, n, j->k, v);
        if (done) store(j, x, to, 0, v[0].at);
        break;
    case MODE:
        v = sort_items(v, spare, n, sizeof(K));
        at = v ? most_frequent(v, n) : -1;
        done = at >= 0;
        if (done) store(j, x, to, 0, (uint32_t)at);
        break;
    default:
        at = median_of(j, x, v);
        done = at >= 0;
        if (done) store(j, x, to, 0, (uint32_t)at);
    }
    return done ? TN_OK : TN_E_INTERRUPTED;
}

/* ---- Long rows: items go into buckets by the first bits in which keys differ, each of which is sorted ---*/

typedef struct long_row {
    const job *j;
    const T *x;
    const target *to;
    item *v, *spare;
    int64_t parts;
    uint32_t *counts;     /* (part, bucket): how many, then where the next one goes */
    K unlike[MOST_PARTS]; /* bits that differ from the first key's */
    K first;
    int32_t shift;         /* of the bits that name the bucket */
    uint32_t end[BUCKETS]; /* of each bucket */
} long_row;

static int64_t part_begin(const long_row *r, int64_t part) { return r->j->ax.n * part / r->parts; }
static size_t bucket_of(const long_row *r, K key) {
    return (size_t)(key >> r->shift) & (BUCKETS - 1);
}

/* The bits in which a key differs from `first`. */
static K unlike_bits(K first, const item *v, int64_t n) {
    K unlike = 0;
    for (int64_t i = 0; i < n; i++) unlike |= (K)(v[i].key ^ first);
    return unlike;
}

static tn_status make_items(void *arg, int64_t begin, int64_t end) {
    long_row *r = arg;
    for (int64_t p = begin; p < end; p++) {
        int64_t from = part_begin(r, p), to = part_begin(r, p + 1);
        if (!fill_some(r->j, r->x, r->v, from, to)) return TN_E_INTERRUPTED;
        r->unlike[p] = unlike_bits(r->first, r->v + from, to - from);
    }
    return TN_OK;
}

/* Where all keys are the same. */
static tn_status store_parts(void *arg, int64_t begin, int64_t end) {
    const long_row *r = arg;
    int64_t from = part_begin(r, begin), to = part_begin(r, end);
    return store_all(r->j, r->x, r->to, from, r->v + from, to - from) ? TN_OK : TN_E_INTERRUPTED;
}

static tn_status count_buckets(void *arg, int64_t begin, int64_t end) {
    const long_row *r = arg;
    for (int64_t p = begin; p < end; p++) {
        uint32_t *counts = r->counts + p * BUCKETS;
        memset(counts, 0, BUCKETS * sizeof *counts);
        for (int64_t i = part_begin(r, p); i < part_begin(r, p + 1); i++)
            counts[bucket_of(r, r->v[i].key)]++;
    }
    return TN_OK;
}

static tn_status to_buckets(void *arg, int64_t begin, int64_t end) {
    const long_row *r = arg;
    for (int64_t p = begin; p < end; p++) {
        uint32_t *next = r->counts + p * BUCKETS;
        for (int64_t i = part_begin(r, p); i < part_begin(r, p + 1); i++)
            r->spare[next[bucket_of(r, r->v[i].key)]++] = r->v[i];
    }
    return TN_OK;
}

static tn_status sort_buckets(void *arg, int64_t begin, int64_t end) {
    const long_row *r = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b ? r->end[b - 1] : 0, n = r->end[b] - from;
        if (n == 0) continue;
        item *v = r->spare + from;
        size_t bytes = 0;
        for (K unlike = unlike_bits(v[0].key, v, n); unlike; unlike = (K)((uint64_t)unlike >> 8))
            bytes++;
        item *sorted = bytes ? sort_items(v, r->v + from, n, bytes) : v;
        if (!sorted || !store_all(r->j, r->x, r->to, from, sorted, n)) return TN_E_INTERRUPTED;
    }
    return TN_OK;
}

/* From the counts of each part where its items of a bucket go, and where buckets end. */
static void place_buckets(long_row *r) {
    uint32_t sum = 0;
    for (int64_t b = 0; b < BUCKETS; b++) {
        for (int64_t p = 0; p < r->parts; p++) {
            uint32_t *count = r->counts + p * BUCKETS + b, here = *count;
            *count = sum;
            sum += here;
        }
        r->end[b] = sum;
    }
}

static tn_status long_row_run(const job *j, const T *x, const target *to) {
    long_row r = {.j = j, .x = x, .to = to, .parts = j->ax.n / PART};
    if (r.parts > MOST_PARTS) r.parts = MOST_PARTS;
    uint64_t bytes, count_bytes = 0;
    void *room, *counts = NULL;
    tn_status st = cpu_room(j->ax.n, 2 * sizeof(item), &bytes, &room);
    if (st) return st;
    st = cpu_room(r.parts, BUCKETS * sizeof *r.counts, &count_bytes, &counts);
    if (st) goto out;
    r.v = room;
    r.spare = r.v + j->ax.n;
    r.counts = counts;
    r.first = (K)(key_of(x[0]) ^ (j->reversed ? KEY_LAST : 0));
    st = cpu_parallel(r.parts, 1, make_items, &r);
    if (st) goto out;
    K unlike = 0;
    for (int64_t p = 0; p < r.parts; p++) unlike |= r.unlike[p];
    if (unlike == 0) {
        st = cpu_parallel(r.parts, 1, store_parts, &r);
        goto out;
    }
    for (unlike >>= BUCKET_BITS; unlike; unlike >>= 1) r.shift++;
    st = cpu_parallel(r.parts, 1, count_buckets, &r);
    if (st) goto out;
    place_buckets(&r);
    st = cpu_parallel(r.parts, 1, to_buckets, &r);
    if (!st) st = cpu_parallel(BUCKETS, 1, sort_buckets, &r);
out:
    if (counts) cpu_free(NULL, 0, counts, count_bytes);
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* ---- All rows ----------------------------------------------------------------------------------*/

/* Row r and where its results go. */
static target find_row(const job *j, int64_t r, const T **ret_x) {
    int64_t at[AXIS_MAX];
    axis_offset(&j->ax, r, at);
    *ret_x = j->x + at[0];
    if (j->what == SORT)
        return (target){j->values + at[1], j->indices + at[2], j->ax.step[1], j->ax.step[2]};
    int64_t first = r / j->inner * j->inner * j->length + r % j->inner;
    return (target){j->values + first, j->indices + first, j->inner, j->inner};
}

static tn_status some_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    uint64_t bytes;
    void *p;
    tn_status st = cpu_room(j->ax.n, 2 * sizeof(item), &bytes, &p);
    if (st != TN_OK) return st;
    item *room = p;
    for (int64_t r = begin; r < end && st == TN_OK; r++) {
        const T *x;
        target to = find_row(j, r, &x);
        st = one_row(j, x, &to, room, room + j->ax.n);
    }
    cpu_free(NULL, 0, p, bytes);
    return st;
}

static tn_status long_rows(const job *j) {
    tn_status st = TN_OK;
    for (int64_t r = 0; r < j->ax.rows && st == TN_OK; r++) {
        const T *x;
        target to = find_row(j, r, &x);
        st = long_row_run(j, x, &to);
    }
    return st;
}

static tn_status run(const tn_call *call, job *j, const tn_view *x, tn_view *values,
                     tn_view *indices, int64_t dim) {
    const tn_view *views[] = {x, values, indices};
    j->call = call;
    j->x = x->data;
    j->values = values->data;
    j->indices = indices->data;
    axis_init(&j->ax, j->what == SORT ? 3 : 1, views, dim);
    if (j->ax.n > (int64_t)UINT32_MAX)
        return call->host->fail(TN_E_UNSUPPORTED, 0,
                                "rows of more than 2^32 elements cannot be sorted");
    j->inner = 1;
    for (int32_t d = (int32_t)dim + 1; d < x->ndim; d++) j->inner *= x->shape[d];
    if (x->numel == 0 || values->numel == 0) return TN_OK;
    /* One thread sorts short keys sooner without. The result is the same. */
    bool shared = sizeof(K) > 4 || cpu_threads_get() > 1;
    if (j->what == SORT && j->ax.n >= LONG && shared) return long_rows(j);
    return cpu_parallel(j->ax.rows, GRAIN / j->ax.n + 1, some_rows, j);
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static tn_status sort(const tn_call *call, const void *args) {
    const tn_sort_args *a = args;
    job j = {.what = SORT, .reversed = a->descending != 0};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}

static tn_status mode(const tn_call *call, const void *args) {
    const tn_mode_args *a = args;
    job j = {.what = MODE, .length = 1};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}

#if !TMPL_IS_BOOL
static tn_status topk(const tn_call *call, const void *args) {
    const tn_topk_args *a = args;
    int64_t k = a->input->ndim ? a->k : 1; /* of a number there is always one */
    job j = {
        .what = TOPK, .k = k, .length = k, .reversed = a->largest != 0, .sorted = a->sorted != 0};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}

static tn_status kthvalue(const tn_call *call, const void *args) {
    const tn_kthvalue_args *a = args;
    job j = {.what = KTH, .k = a->k, .length = 1};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}

static tn_status median_dim(const tn_call *call, const void *args) {
    const tn_median_dim_args *a = args;
    job j = {.what = MEDIAN, .length = 1};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}

static tn_status nanmedian_dim(const tn_call *call, const void *args) {
    const tn_nanmedian_dim_args *a = args;
    job j = {.what = NANMEDIAN, .length = 1};
    return run(call, &j, a->input, a->values, a->indices, a->dim);
}
#endif

#define ROW(op)                                                                                    \
    { #op, TN_SIG_##op, op, NULL, TMPL_DTYPE, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(sort), ROW(mode),
#if !TMPL_IS_BOOL
    ROW(topk), ROW(kthvalue), ROW(median_dim), ROW(nanmedian_dim),
#endif
};
const cpu_rows TN_(cpu_order_rows) = CPU_ROWS_OF(rows);
