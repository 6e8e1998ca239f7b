/* order.cu: sorting along a dimension and its relatives, for one element type.
 *
 * A row becomes items, pairs of a key and a position, which are all different: every order of working
 * gives one answer, and it is stable. Blocks sort tiles in shared memory, by digits of the keys from the
 * lowest on, for which items stand in the order of their positions at first. Longer rows are merged run by
 * run, or scattered by digits as a whole. Where only the first items are wanted, tiles leave those and the
 * rest is sorted again; of a few, each thread's first one tells which others can be among them.
 *
 * types: real */
#include "device.h"

#include "args_order.h"
#include "order.h"
#include "radix.h"
#include "scalar.h"

/* Stands behind every item, in a tile that is not full. */
#define ORDER_NOBODY UINT32_MAX

TMPL_INLINE bool order_before(K a, uint32_t a_at, K b, uint32_t b_at) {
    return a < b || (a == b && a_at < b_at);
}

/* Element offset of a row's first element in operand k. */
TMPL_INLINE int64_t order_row(const cuda_order_args &a, int64_t row, int k) {
    int64_t at = 0;
    for (int d = 0; d < a.dims; d++) {
        int64_t q = row / a.size[d];
        at += (row - q * a.size[d]) * a.stride[d][k];
        row = q;
    }
    return at;
}

/* ---- Results -----------------------------------------------------------------------------------*/

/* Result i of a row is the element at that position. */
TMPL_INLINE void order_store(const cuda_order_args &a, int64_t row, int64_t i, uint32_t at) {
    const T *x = (const T *)a.x + order_row(a, row, 0);
    ((T *)a.values)[order_row(a, row, 1) + i * a.step[1]] = x[(int64_t)at * a.step[0]];
    a.indices[order_row(a, row, 2) + i * a.step[2]] = at;
}

/* The first of n keys in order that is not below the wanted one. */
TMPL_INLINE int64_t order_find(const K *key, int64_t n, K wanted) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (key[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Which item of a sorted row the result is; not for the mode. */
TMPL_INLINE int64_t order_rank(const cuda_order_args &a, const K *key) {
    int64_t numbers = a.n;
    if (a.what == CUDA_ORDER_KTH) return a.k - 1;
#if TMPL_IS_FLOAT
    numbers = order_find(key, a.n, KEY_LAST);
    if (a.what == CUDA_ORDER_MEDIAN && numbers < a.n) return numbers;
#else
    (void)key;
#endif
    return numbers > 0 ? (numbers - 1) / 2 : 0;
}

/* The longest run of equal keys; of runs of one length the first. Its last item, known to thread 0. */
TMPL_INLINE int64_t order_mode(const K *key, int64_t n) {
    SHARED(int64_t, length, CUDA_BLOCK);
    SHARED(int64_t, last, CUDA_BLOCK);
    int lane = (int)threadIdx.x;
    int64_t most = 0, end = 0;
    for (int64_t i = lane; i < n; i += (int)blockDim.x) {
        if (i + 1 < n && key[i + 1] == key[i]) continue;
        int64_t here = i + 1 - order_find(key, i + 1, key[i]);
        if (here <= most) continue;
        most = here;
        end = i;
    }
    length[lane] = most;
    last[lane] = end;
    __syncthreads();
    for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
        int other = lane + half;
        bool better = lane < half && (length[other] > length[lane] ||
                                      (length[other] == length[lane] && last[other] < last[lane]));
        if (better) {
            length[lane] = length[other];
            last[lane] = last[other];
        }
        __syncthreads();
    }
    return last[0];
}

/* One result from a sorted row; every thread of the block takes part. */
TMPL_INLINE void order_pick(const cuda_order_args &a, int64_t row, const K *key,
                            const uint32_t *at) {
    int64_t rank = 0;
    if (a.what == CUDA_ORDER_MODE)
        rank = order_mode(key, a.n);
    else if (threadIdx.x == 0)
        rank = order_rank(a, key);
    if (threadIdx.x == 0) order_store(a, row, 0, at[rank]);
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

/* Bitonic sort of `size` items, a power of two. */
TMPL_INLINE void order_sort_tile(K *key, uint32_t *at, int size) {
    for (int width = 2; width <= size; width *= 2) {
        for (int step = width / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int t = (int)threadIdx.x; t < size / 2; t += (int)blockDim.x) {
                int i = 2 * t - (t & (step - 1)), j = i + step;
                bool rises = (i & width) == 0;
                if (order_before(key[j], at[j], key[i], at[i]) != rises) continue;
                K k = key[i];
                uint32_t p = at[i];
                key[i] = key[j];
                at[i] = at[j];
                key[j] = k;
                at[j] = p;
            }
        }
    }
    __syncthreads();
}

enum { ORDER_EACH = CUDA_TILE / CUDA_BLOCK };

/* Sorts `count` items that stand in the order of their positions where keys are equal. */
TMPL_INLINE void order_sort_digits(K *key, uint32_t *at, int count) {
    SHARED(uint32_t, counts, RADIX_WARPS * CUDA_DIGITS);
    SHARED(uint32_t, sums, RADIX_WARPS);
    const radix_room room = {counts, sums};
    const int rounds = (count + CUDA_BLOCK - 1) / CUDA_BLOCK, begin = radix_begin(rounds);
    for (int shift = 0; shift < (int)sizeof(K) * 8; shift += CUDA_DIGIT_BITS) {
        K k[ORDER_EACH];
        uint32_t p[ORDER_EACH], rank[ORDER_EACH];
        radix_clear(room);
#pragma unroll
        for (int j = 0; j < ORDER_EACH; j++) {
            int i = begin + 32 * j;
            if (j >= rounds) break;
            k[j] = i < count ? key[i] : 0;
            p[j] = i < count ? at[i] : 0;
            rank[j] = radix_note(room, radix_digit(k[j], shift), i < count);
        }
        radix_settle(room);
#pragma unroll
        for (int j = 0; j < ORDER_EACH; j++) {
            if (j >= rounds || begin + 32 * j >= count) break;
            uint32_t to = radix_place(room, radix_digit(k[j], shift), rank[j]);
            key[to] = k[j];
            at[to] = p[j];
        }
        __syncthreads();
    }
}

/* The key of a row's item i, of those that the launch takes. */
TMPL_INLINE K order_key(const cuda_order_args &a, const T *x, int64_t row, int64_t i) {
    if (!a.from_x) return ((const K *)a.in.key)[row * a.count + i];
    return (K)(key_of(x[i * a.step[0]]) ^ (a.reversed ? KEY_LAST : 0));
}
TMPL_INLINE uint32_t order_at(const cuda_order_args &a, int64_t row, int64_t i) {
    return a.from_x ? (uint32_t)i : a.in.at[row * a.count + i];
}

/* Of a row's parts of `size` items each leaves the first `keep`: where those of one part go. */
TMPL_INLINE int64_t order_left(const cuda_order_args &a, int64_t row, int64_t part, int64_t size) {
    int64_t last = a.count - (a.tiles - 1) * size;
    return row * ((a.tiles - 1) * a.keep + (last < a.keep ? last : a.keep)) + part * a.keep;
}

/* A block sorts a tile of a row. */
KERNEL(TN_(order_tiles), cuda_order_args) {
    SHARED(K, key, CUDA_TILE);
    SHARED(uint32_t, at, CUDA_TILE);
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles, begin = tile * CUDA_TILE;
    int count = a.count - begin < CUDA_TILE ? (int)(a.count - begin) : CUDA_TILE, size = 1;
    const T *x = (const T *)a.x + order_row(a, row, 0);
    while (size < count) size *= 2;
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
        key[i] = i < count ? order_key(a, x, row, begin + i) : KEY_LAST;
        at[i] = i < count ? order_at(a, row, begin + i) : ORDER_NOBODY;
    }
    __syncthreads();
    if (blockDim.x == CUDA_BLOCK)
        order_sort_digits(key, at, count);
    else
        order_sort_tile(key, at, size);
    if (a.finishes && a.what != CUDA_ORDER_FIRST) {
        order_pick(a, row, key, at);
        return;
    }
    int64_t to = order_left(a, row, tile, CUDA_TILE);
    for (int i = (int)threadIdx.x; i < count && i < a.keep; i += (int)blockDim.x) {
        if (a.finishes) {
            order_store(a, row, i, at[i]);
        } else {
            ((K *)a.out.key)[to + i] = key[i];
            a.out.at[to + i] = at[i];
        }
    }
}

/* ---- The first few -----------------------------------------------------------------------------*/

/* f(i, key) of the calling thread's items, of n from `begin` on. */
template <typename F>
TMPL_INLINE void order_walk(const cuda_order_args &a, const T *x, int64_t row, int64_t begin,
                            int64_t n, F f) {
    enum { AHEAD = 8 };
    int64_t i = (int)threadIdx.x;
    for (; i + (AHEAD - 1) * CUDA_BLOCK < n; i += AHEAD * CUDA_BLOCK) {
        K k[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) k[u] = order_key(a, x, row, begin + i + u * CUDA_BLOCK);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) f(begin + i + u * CUDA_BLOCK, k[u]);
    }
    for (; i < n; i += CUDA_BLOCK) f(begin + i, order_key(a, x, row, begin + i));
}

/* Pads `count` items to a power of two, and sorts them. */
TMPL_INLINE void order_sort_some(K *key, uint32_t *at, int count) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = count + (int)threadIdx.x; i < size; i += CUDA_BLOCK) {
        key[i] = KEY_LAST;
        at[i] = ORDER_NOBODY;
    }
    order_sort_tile(key, at, size);
}

/* The first k of n items, however they are spread: a tile of them at a time, with the first k so far. */
TMPL_INLINE void order_best_by_tiles(const cuda_order_args &a, const T *x, int64_t row,
                                     int64_t begin, int64_t n, K *key, uint32_t *at) {
    int kept = 0;
    for (int64_t from = 0; from < n;) {
        int take = n - from < CUDA_TILE - kept ? (int)(n - from) : CUDA_TILE - kept;
        for (int i = (int)threadIdx.x; i < take; i += CUDA_BLOCK) {
            key[kept + i] = order_key(a, x, row, begin + from + i);
            at[kept + i] = order_at(a, row, begin + from + i);
        }
        order_sort_some(key, at, kept + take);
        from += take;
        kept = kept + take < a.k ? kept + take : (int)a.k;
    }
}

/* A block finds the first k items of a part of a row. Each thread has a first one; of these the k-th is
 * behind k items at least, so that what is behind it is not wanted. */
KERNEL(TN_(order_best), cuda_order_args) {
    SHARED(K, key, CUDA_TILE);
    SHARED(uint32_t, at, CUDA_TILE);
    SHARED(uint32_t, found, 1);
    int64_t row = blockIdx.x / a.tiles, part = blockIdx.x % a.tiles, begin = part * a.part;
    int64_t n = a.count - begin < a.part ? a.count - begin : a.part;
    const T *x = (const T *)a.x + order_row(a, row, 0);
    K first = KEY_LAST;
    order_walk(a, x, row, begin, n, [&](int64_t, K k) { first = k < first ? k : first; });
    key[threadIdx.x] = first;
    at[threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 0) found[0] = 0;
    order_sort_tile(key, at, CUDA_BLOCK);
    const K bound = key[a.k - 1];
    __syncthreads();
    order_walk(a, x, row, begin, n, [&](int64_t i, K k) {
        if (k > bound) return;
        uint32_t to = atomicAdd(found, 1u);
        if (to >= CUDA_TILE) return;
        key[to] = k;
        at[to] = order_at(a, row, i);
    });
    __syncthreads();
    if (found[0] <= CUDA_TILE)
        order_sort_some(key, at, (int)found[0]);
    else
        order_best_by_tiles(a, x, row, begin, n, key, at);
    int64_t to = order_left(a, row, part, a.part);
    for (int i = (int)threadIdx.x; i < a.k && i < n; i += CUDA_BLOCK) {
        if (a.finishes) {
            order_store(a, row, i, at[i]);
        } else {
            ((K *)a.out.key)[to + i] = key[i];
            a.out.at[to + i] = at[i];
        }
    }
}

/* ---- Scattering by digits ----------------------------------------------------------------------*/

enum { ORDER_SCATTER = CUDA_SCATTER(sizeof(K)), ORDER_ROUNDS = ORDER_SCATTER / CUDA_BLOCK };

/* A block counts the digits of a tile. */
KERNEL(TN_(order_count), cuda_order_args) {
    SHARED(uint32_t, counts, CUDA_DIGITS);
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles, begin = tile * ORDER_SCATTER;
    int count = a.count - begin < ORDER_SCATTER ? (int)(a.count - begin) : ORDER_SCATTER;
    const T *x = (const T *)a.x + order_row(a, row, 0);
    counts[threadIdx.x] = 0;
    __syncthreads();
    order_walk(a, x, row, begin, count,
               [&](int64_t, K k) { atomicAdd(&counts[radix_digit(k, a.shift)], 1u); });
    __syncthreads();
    a.counts[(row * CUDA_DIGITS + threadIdx.x) * a.tiles + tile] = counts[threadIdx.x];
}

/* Of a row and digit: how many items earlier tiles have. A thread sums up a short line, a warp a longer
 * one. */
KERNEL(TN_(order_sum), cuda_order_args) {
    int lanes = a.tiles <= CUDA_SHORT_LINE ? 1 : 32, lane = (int)threadIdx.x & (lanes - 1);
    int64_t line = cuda_thread() / lanes;
    if (line >= a.rows * CUDA_DIGITS) return;
    uint32_t *count = a.counts + line * a.tiles, sum = 0;
    if (lanes == 1) {
        for (int t = 0; t < (int)a.tiles; t++) {
            uint32_t here = count[t];
            count[t] = sum;
            sum += here;
        }
        a.totals[line] = sum;
        return;
    }
    enum { SOME = 4 };
    for (int64_t begin = 0; begin < a.tiles; begin += 32 * SOME) {
        uint32_t here[SOME], own = 0;
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            int64_t t = begin + lane * SOME + u;
            here[u] = t < a.tiles ? count[t] : 0;
            own += here[u];
        }
        uint32_t upto = own;
        for (int by = 1; by < 32; by *= 2) {
            uint32_t other = __shfl_up_sync(RADIX_ALL, upto, (unsigned)by);
            if (lane >= by) upto += other;
        }
        uint32_t before = sum + upto - own;
        sum += __shfl_sync(RADIX_ALL, upto, 31);
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            int64_t t = begin + lane * SOME + u;
            if (t < a.tiles) count[t] = before;
            before += here[u];
        }
    }
    if (lane == 0) a.totals[line] = sum;
}

/* A block brings the items of a tile to their places by one digit, in runs of one digit. */
KERNEL(TN_(order_scatter), cuda_order_args) {
    SHARED(K, key, ORDER_SCATTER);
    SHARED(uint32_t, at, ORDER_SCATTER);
    SHARED(uint32_t, base, CUDA_DIGITS);
    SHARED(uint32_t, counts, RADIX_WARPS * CUDA_DIGITS);
    SHARED(uint32_t, sums, RADIX_WARPS);
    const radix_room room = {counts, sums};
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles, begin = tile * ORDER_SCATTER;
    int count = a.count - begin < ORDER_SCATTER ? (int)(a.count - begin) : ORDER_SCATTER;
    const T *x = (const T *)a.x + order_row(a, row, 0);
    const int mine = radix_begin(ORDER_ROUNDS);
    const int64_t line = row * CUDA_DIGITS + threadIdx.x;
    K k[ORDER_ROUNDS];
    uint32_t rank[ORDER_ROUNDS];
#pragma unroll
    for (int j = 0; j < ORDER_ROUNDS; j++) {
        int i = mine + 32 * j;
        k[j] = i < count ? order_key(a, x, row, begin + i) : 0;
    }
    radix_clear(room);
#pragma unroll
    for (int j = 0; j < ORDER_ROUNDS; j++)
        rank[j] = radix_note(room, radix_digit(k[j], a.shift), mine + 32 * j < count);
    uint32_t first = radix_settle(room), lower = radix_before(room, a.totals[line]);
    base[threadIdx.x] = lower + a.counts[line * a.tiles + tile] - first;
#pragma unroll
    for (int j = 0; j < ORDER_ROUNDS; j++) {
        if (mine + 32 * j >= count) break;
        uint32_t to = radix_place(room, radix_digit(k[j], a.shift), rank[j]);
        key[to] = k[j];
        at[to] = order_at(a, row, begin + mine + 32 * j);
    }
    __syncthreads();
    T *values = (T *)a.values + order_row(a, row, 1);
    int64_t *indices = a.indices + order_row(a, row, 2);
    for (int i = (int)threadIdx.x; i < count; i += CUDA_BLOCK) {
        uint32_t to = base[radix_digit(key[i], a.shift)] + (uint32_t)i;
        if (!a.finishes) {
            ((K *)a.out.key)[row * a.count + to] = key[i];
            a.out.at[row * a.count + to] = at[i];
        } else if (to < a.k) {
            values[to * a.step[1]] = x[at[i] * a.step[0]];
            indices[to * a.step[2]] = at[i];
        }
    }
}

/* ---- Merging -----------------------------------------------------------------------------------*/

/* How many of the first `diagonal` items of two runs together come from the first one. */
TMPL_INLINE int64_t order_share(const K *key, const uint32_t *at, int64_t first, int64_t second,
                                int64_t diagonal) {
    int64_t low = diagonal > second ? diagonal - second : 0;
    int64_t high = diagonal < first ? diagonal : first;
    while (low < high) {
        int64_t i = low + (high - low) / 2, j = first + diagonal - 1 - i;
        if (order_before(key[i], at[i], key[j], at[j]))
            low = i + 1;
        else
            high = i;
    }
    return low;
}

/* Neighbouring runs of a row become one; each thread writes a few items that lie together. */
KERNEL(TN_(order_merge), cuda_order_args) {
    int64_t each = (a.count + CUDA_MERGE_EACH - 1) / CUDA_MERGE_EACH, t = cuda_thread();
    int64_t row = t / each, begin = (t - row * each) * CUDA_MERGE_EACH;
    if (row >= a.rows) return;
    int64_t pair = begin / (2 * a.run) * (2 * a.run), left = a.count - pair;
    int64_t first = left < a.run ? left : a.run;
    int64_t second = left - first < a.run ? left - first : a.run;
    const K *key = (const K *)a.in.key + row * a.count + pair;
    const uint32_t *at = a.in.at + row * a.count + pair;
    K *to_key = (K *)a.out.key + row * a.count + pair;
    uint32_t *to_at = a.out.at + row * a.count + pair;
    int64_t i = order_share(key, at, first, second, begin - pair), j = first + begin - pair - i;
    for (int64_t n = begin - pair; n < begin - pair + CUDA_MERGE_EACH && n < first + second; n++) {
        bool from_first =
            j >= first + second || (i < first && order_before(key[i], at[i], key[j], at[j]));
        int64_t from = from_first ? i++ : j++;
        to_key[n] = key[from];
        to_at[n] = at[from];
    }
}

/* The first k items of each sorted row are the results. */
KERNEL(TN_(order_finish), cuda_order_args) {
    int64_t t = cuda_thread(), row = t / a.k;
    if (row >= a.rows) return;
    order_store(a, row, t - row * a.k, a.in.at[row * a.count + t - row * a.k]);
}

/* One item of each sorted row is the result: a block for each. */
KERNEL(TN_(order_choose), cuda_order_args) {
    int64_t row = blockIdx.x;
    order_pick(a, row, (const K *)a.in.key + row * a.count, a.in.at + row * a.count);
}

/* ---- Searching ---------------------------------------------------------------------------------*/

/* Comparisons are not turned into < and <=: a NaN must go past everything. */
KERNEL(TN_(order_search), cuda_search_args) {
    int64_t i = cuda_thread(), low = 0, high = a.length;
    if (i >= a.n) return;
    const T *sequence = (const T *)a.sequence + (a.per_row ? i / a.per_row * a.length : 0);
    A x = LOAD(((const T *)a.x)[i]);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        A here = LOAD(sequence[middle]);
        if (a.right ? !(here > x) : !(here >= x))
            low = middle + 1;
        else
            high = middle;
    }
    a.out[i] = low;
}
