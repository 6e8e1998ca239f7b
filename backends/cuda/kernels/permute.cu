/* permute.cu: the permutation that exchanging each position i in turn with a random one behind it leads
 * to (Fisher and Yates), as on the CPU. Exchanges that touch different positions may run at once. One block
 * takes some hundred of them at a time: each pending exchange puts its number on its two positions, the
 * lowest number stays there, and those that hold both of theirs are done. So exchanges that share a
 * position keep their order, and the lowest one always goes. */
#include "device.h"

#include "args_sample.h"
#include "philox.h"

enum { PERMUTE_EACH = 4 }; /* exchanges that a thread takes at a time */
#define PERMUTE_NOBODY UINT32_MAX

KERNEL(permute_start, cuda_permute_args) {
    int64_t i = cuda_thread();
    if (i >= a.n) return;
    a.data[i] = i;
    a.holder[i] = PERMUTE_NOBODY;
}

/* Where position i goes to. */
TMPL_INLINE int64_t permute_partner(const cuda_permute_args &a, const cuda_draws &d, int64_t i) {
    uint64_t word = rnd_word64(d.seed, d.offset, i);
    return i + (int64_t)__umul64hi(word, (uint64_t)(a.n - i));
}

/* The exchanges of a thread; -1: none, or done. */
typedef struct permute_turn {
    int64_t at[PERMUTE_EACH], with[PERMUTE_EACH];
} permute_turn;

TMPL_INLINE void permute_claim(const cuda_permute_args &a, const permute_turn &t) {
    for (int k = 0; k < PERMUTE_EACH; k++) {
        if (t.at[k] < 0) continue;
        atomicMin(&a.holder[t.at[k]], (uint32_t)t.at[k]);
        atomicMin(&a.holder[t.with[k]], (uint32_t)t.at[k]);
    }
}

/* Exchanges where both positions are held; `ret_done` by exchange. */
TMPL_INLINE void permute_exchange(const cuda_permute_args &a, const permute_turn &t,
                                  bool *ret_done) {
    for (int k = 0; k < PERMUTE_EACH; k++) {
        int64_t i = t.at[k], j = t.with[k];
        ret_done[k] = i >= 0 && a.holder[i] == (uint32_t)i && a.holder[j] == (uint32_t)i;
        if (!ret_done[k]) continue;
        int64_t x = a.data[i];
        a.data[i] = a.data[j];
        a.data[j] = x;
    }
}

/* Positions are given back; true when an exchange is left to do. */
TMPL_INLINE bool permute_release(const cuda_permute_args &a, permute_turn *t, const bool *done) {
    bool left = false;
    for (int k = 0; k < PERMUTE_EACH; k++) {
        if (t->at[k] < 0) continue;
        a.holder[t->at[k]] = PERMUTE_NOBODY;
        a.holder[t->with[k]] = PERMUTE_NOBODY;
        if (done[k])
            t->at[k] = -1;
        else
            left = true;
    }
    return left;
}

/* One block. */
KERNEL(permute_run, cuda_permute_args) {
    SHARED(int32_t, pending, 1);
    const cuda_draws draws = cuda_find_draws(a.draws, a.launch);
    for (int64_t first = 0; first < a.n - 1; first += (int)blockDim.x * PERMUTE_EACH) {
        permute_turn t;
        bool done[PERMUTE_EACH], more = true;
        for (int k = 0; k < PERMUTE_EACH; k++) {
            int64_t i = first + k * (int)blockDim.x + (int)threadIdx.x;
            t.at[k] = i < a.n - 1 ? i : -1;
            t.with[k] = i < a.n - 1 ? permute_partner(a, draws, i) : -1;
        }
        while (more) {
            permute_claim(a, t);
            if (threadIdx.x == 0) pending[0] = 0;
            __syncthreads();
            permute_exchange(a, t, done);
            __syncthreads();
            if (permute_release(a, &t, done)) pending[0] = 1;
            __syncthreads();
            more = pending[0] != 0;
            __syncthreads();
        }
    }
}
