/* order.cu: sorting along a dimension and its relatives, for one element type.
 *
 * A row becomes items, pairs of a key and a position, which are all different: every order of working
 * gives one answer, and it is stable. Blocks sort tiles in shared memory; longer rows are merged run by
 * run. Where only the first items are wanted, tiles leave those and the rest is sorted again.
 *
 * types: real */
#include "device.h"

#include "args_order.h"
#include "order.h"
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

/* A block sorts a tile of a row. */
KERNEL(TN_(order_tiles), cuda_order_args) {
    SHARED(K, key, CUDA_TILE);
    SHARED(uint32_t, at, CUDA_TILE);
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles, begin = tile * CUDA_TILE;
    int count = a.count - begin < CUDA_TILE ? (int)(a.count - begin) : CUDA_TILE, size = 1;
    const T *x = (const T *)a.x + order_row(a, row, 0);
    const K flip = a.reversed ? KEY_LAST : 0;
    while (size < count) size *= 2;
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
        int64_t from = begin + i;
        key[i] = KEY_LAST;
        at[i] = ORDER_NOBODY;
        if (i >= count) continue;
        if (a.from_x) {
            key[i] = (K)(key_of(x[from * a.step[0]]) ^ flip);
            at[i] = (uint32_t)from;
        } else {
            key[i] = ((const K *)a.in.key)[row * a.count + from];
            at[i] = a.in.at[row * a.count + from];
        }
    }
    order_sort_tile(key, at, size);
    if (a.finishes && a.what != CUDA_ORDER_FIRST) {
        order_pick(a, row, key, at);
        return;
    }
    int64_t most = a.count - (a.tiles - 1) * CUDA_TILE; /* of the last tile */
    int64_t left = (a.tiles - 1) * a.keep + (most < a.keep ? most : a.keep);
    for (int i = (int)threadIdx.x; i < count && i < a.keep; i += (int)blockDim.x) {
        int64_t to = row * left + tile * a.keep + i;
        if (a.finishes) {
            order_store(a, row, i, at[i]);
        } else {
            ((K *)a.out.key)[to] = key[i];
            a.out.at[to] = at[i];
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
