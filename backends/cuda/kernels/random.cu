/* random.cu: random numbers of one element type from Philox words (common/philox.h): the numbers that
 * every device draws from the same seed and offset.
 *
 * types: real */
#include "device.h"

#include "philox.h"
#include "scalar.h"

/* ---- Walking -----------------------------------------------------------------------------------*/

/* Element i of an operand, by its index. */
TMPL_INLINE char *random_at(const cuda_plan &p, int64_t i, int k) {
    int64_t at[CUDA_OPERANDS];
    if (!(p.flags & CUDA_PLAN_STRIDED)) return (char *)p.data[k] + i * (int64_t)sizeof(T);
    cuda_find(p, i, at);
    return (char *)p.data[k] + at[k];
}

/* Whether there are all n elements of a block's numbers, and all are packed. */
TMPL_INLINE bool random_is_whole(const cuda_plan &p, int64_t first, int n) {
    return !(p.flags & CUDA_PLAN_STRIDED) && first + (n - 1) * RND_GROUP_BLOCKS < p.numel;
}

/* A drawn number as an element; one that no int64_t holds becomes the largest. */
#if TMPL_IS_FLOAT && TMPL_DTYPE != TMPL_F64
TMPL_INLINE T random_element(float x) { return STORE(x); }
#endif
TMPL_INLINE T random_element(uint8_t x) { return STORE((A)x); }
TMPL_INLINE T random_element(int64_t x) {
#if TMPL_IS_BOOL
    return x != 0;
#else
    return STORE((A)x);
#endif
}
TMPL_INLINE T random_element(double x) {
#if TMPL_IS_FLOAT
    return STORE((A)x);
#else
    return random_element(x < 0x1p63 ? (int64_t)x : INT64_MAX);
#endif
}

/* The four words of one of the launch's blocks. */
TMPL_INLINE void random_block(const cuda_draws &own, const cuda_draws *launch, int64_t block,
                              uint32_t *words) {
    cuda_draws d = cuda_find_draws(own, launch);
    rnd_block(d.seed, d.offset + (uint64_t)block, words);
}

/* N numbers of one block, which lie 16 elements apart, see Note [Philox order]. */
template <int N, typename V>
TMPL_INLINE void random_put(const cuda_plan &p, int64_t block, const V (&number)[N]) {
    int64_t first = block / RND_GROUP_BLOCKS * (RND_GROUP_BLOCKS * N) + block % RND_GROUP_BLOCKS;
    if (random_is_whole(p, first, N)) {
        T *y = (T *)p.data[0] + first;
#pragma unroll
        for (int k = 0; k < N; k++) y[k * RND_GROUP_BLOCKS] = random_element(number[k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        int64_t i = first + k * RND_GROUP_BLOCKS;
        if (i < p.numel) *(T *)random_at(p, i, 0) = random_element(number[k]);
    }
}

/* f(block, words) for the calling thread's blocks of words, a few of many. */
template <typename F> TMPL_INLINE void random_walk(const cuda_random_args &a, F f) {
    const cuda_draws draws = cuda_find_draws(a.draws, a.launch);
    const int64_t step = (int64_t)gridDim.x * CUDA_BLOCK;
    for (int64_t block = cuda_thread(); block < a.blocks; block += step) {
        uint32_t words[4];
        rnd_block(draws.seed, draws.offset + (uint64_t)block, words);
        f(block, words);
    }
}

/* `draw(words, numbers)` makes N numbers of a block's four words. */
template <int N, typename V, typename F>
TMPL_INLINE void random_fill(const cuda_random_args &a, F draw) {
    random_walk(a, [&](int64_t block, const uint32_t *words) {
        V number[N];
        draw(words, number);
        random_put(a.plan, block, number);
    });
}

/* A number for each word: `of(word)`. */
template <typename V, typename F> TMPL_INLINE void random_words(const cuda_random_args &a, F of) {
    random_fill<4, V>(a, [&](const uint32_t *w, V *x) {
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = of(w[k]);
    });
}

TMPL_INLINE uint64_t random_pair(const uint32_t *w, int k) {
    return (uint64_t)w[2 * k + 1] << 32 | w[2 * k];
}

/* A number for two words. */
template <typename V, typename F> TMPL_INLINE void random_pairs(const cuda_random_args &a, F of) {
    random_fill<2, V>(a, [&](const uint32_t *w, V *x) {
        x[0] = of(random_pair(w, 0));
        x[1] = of(random_pair(w, 1));
    });
}

/* ---- Whole numbers, coin tosses, geometric numbers: every type ---------------------------------*/

KERNEL(TN_(random_ints), cuda_random_args) {
    random_words<int64_t>(
        a, [&](uint32_t w) { return (int64_t)(((uint64_t)w * a.range >> 32) + (uint64_t)a.base); });
}

KERNEL(TN_(random_wide_ints), cuda_random_args) {
    random_pairs<int64_t>(a, [&](uint64_t w) {
        return (int64_t)((a.range ? __umul64hi(w, a.range) : w) + (uint64_t)a.base);
    });
}

KERNEL(TN_(random_toss), cuda_random_args) {
    uint64_t below = rnd_threshold(a.a);
    random_words<uint8_t>(a, [&](uint32_t w) { return (uint8_t)(w < below); });
}

KERNEL(TN_(random_geometric), cuda_random_args) {
    double scale = log1p(-a.a);
    random_pairs<double>(a, [&](uint64_t w) { return ceil(log(rnd_open_f64(w)) / scale); });
}

/* ---- Continuous numbers ------------------------------------------------------------------------*/
#if TMPL_IS_FLOAT

/* float64 draws two words per number, the other types one. */
#if TMPL_DTYPE == TMPL_F64
#define RANDOM_EACH random_pairs<double>
#define RANDOM_WORD uint64_t
#else
#define RANDOM_EACH random_words<float>
#define RANDOM_WORD uint32_t
#endif

#if TMPL_DTYPE == TMPL_F64
TMPL_INLINE double random_uniform(uint64_t word, double from, double to) {
    return rnd_stretch_f64(rnd_f64_of(word), from, to - from, to);
}
#else
/* Bounds are compared as elements, before and after the number becomes one. */
TMPL_INLINE float random_uniform(uint32_t word, float from, float to) {
    float top = LOAD(STORE(to)), bottom = LOAD(STORE(from));
    float v = rnd_stretch_f32(rnd_f32_of(word), from, to - from, top, bottom);
    v = LOAD(STORE(v));
    return v == top ? bottom : v;
}
#endif

KERNEL(TN_(random_uniform), cuda_random_args) {
    RANDOM_EACH(a, [&](RANDOM_WORD w) { return random_uniform(w, (A)a.a, (A)a.b); });
}

TMPL_INLINE void random_normals(const cuda_random_args &a, const uint32_t *w, double *x) {
    rnd_pair_f64(rnd_f64_of(random_pair(w, 0)), rnd_f64_of(random_pair(w, 1)), a.a, a.b, x, x + 1);
}

KERNEL(TN_(random_normal), cuda_random_args) {
#if TMPL_DTYPE == TMPL_F64
    random_fill<2, double>(a, [&](const uint32_t *w, double *x) { random_normals(a, w, x); });
#else
    float mean = (float)a.a, std = (float)a.b;
    random_fill<4, float>(a, [&](const uint32_t *w, float *x) {
        rnd_pair_f32(rnd_f32_of(w[0]), rnd_f32_of(w[1]), mean, std, x, x + 1);
        rnd_pair_f32(rnd_f32_of(w[2]), rnd_f32_of(w[3]), mean, std, x + 2, x + 3);
    });
#endif
}

KERNEL(TN_(random_log_normal), cuda_random_args) {
    random_fill<2, double>(a, [&](const uint32_t *w, double *x) {
        random_normals(a, w, x);
        x[0] = exp(x[0]);
        x[1] = exp(x[1]);
    });
}

KERNEL(TN_(random_exponential), cuda_random_args) {
    double scale = -1.0 / a.a;
#if TMPL_DTYPE == TMPL_F64
    random_pairs<double>(a, [&](uint64_t w) { return scale * log(rnd_open_f64(w)); });
#else
    random_words<float>(a, [&](uint32_t w) { return (float)scale * rnd_log_f32(rnd_open_f32(w)); });
#endif
}

KERNEL(TN_(random_cauchy), cuda_random_args) {
    random_pairs<double>(a, [&](uint64_t w) {
        return fma(a.b, tan(3.14159265358979323846 * (rnd_open_f64(w) - 0.5)), a.a);
    });
}

/* ---- Coin tosses with a probability for each element, dropout ----------------------------------*/

TMPL_INLINE bool random_is_probable(const cuda_random_args &a, int64_t i, double p) {
    bool fits = p >= 0 && p <= 1;
    if (!fits) cuda_report_kind(a.fault, CUDA_FAULT_PROBABILITY, a.op, i, a.plan.numel);
    return fits;
}

/* Results and probabilities are of this type. */
KERNEL(TN_(random_toss_each), cuda_random_args) {
    random_walk(a, [&](int64_t block, const uint32_t *words) {
        int64_t first = rnd_first(block);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64_t i = first + k * RND_GROUP_BLOCKS;
            if (i >= a.plan.numel) continue;
            double p = (double)LOAD(*(const T *)random_at(a.plan, i, 1));
            if (random_is_probable(a, i, p))
                *(T *)random_at(a.plan, i, 0) = STORE((A)(words[k] < rnd_threshold(p)));
        }
    });
}

/* Dropout of a warp's blocks where all their elements are: the elements are on their way while numbers are
 * drawn, and a lane has four of the mask's bytes, of one k, for one word. */
TMPL_INLINE void random_drop_whole(const cuda_dropout_args &a, int64_t block) {
    const uint32_t lane = threadIdx.x % 32;
    const int64_t first = rnd_first(block);
    const T *in = (const T *)a.in + first;
    T *out = (T *)a.out + first, x[4];
    uint32_t words[4], kept = 0;
    uint64_t below = rnd_threshold(a.keep);
#pragma unroll
    for (int k = 0; k < 4; k++) x[k] = in[k * RND_GROUP_BLOCKS];
    random_block(a.draws, a.launch, block, words);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        bool stays = words[k] < below;
        uint32_t of_warp = __ballot_sync(0xffffffffu, stays);
        if (lane % RND_GROUP_BLOCKS / 4 == (uint32_t)k) kept = of_warp;
        out[k * RND_GROUP_BLOCKS] = STORE(LOAD(x[k]) * (stays ? (A)a.scale : (A)0));
    }
    kept = kept >> (lane / RND_GROUP_BLOCKS * RND_GROUP_BLOCKS + lane % 4 * 4) & 15u;
    uint32_t *mask = (uint32_t *)(void *)(a.mask + rnd_first(block - lane));
    mask[lane] = kept * 0x00204081u & 0x01010101u;
}

KERNEL(TN_(random_dropout), cuda_dropout_args) {
    int64_t block = cuda_thread();
    uint64_t below = rnd_threshold(a.keep);
    uint32_t words[4];
    if (block >= a.blocks) return;
    if (rnd_first(block | 31) + 3 * RND_GROUP_BLOCKS < a.n && (uintptr_t)a.mask % 4 == 0) {
        random_drop_whole(a, block);
        return;
    }
    random_block(a.draws, a.launch, block, words);
    int64_t first = rnd_first(block);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t i = first + k * RND_GROUP_BLOCKS;
        if (i >= a.n) continue;
        bool stays = words[k] < below;
        a.mask[i] = stays;
        ((T *)a.out)[i] = STORE(LOAD(((const T *)a.in)[i]) * (stays ? (A)a.scale : (A)0));
    }
}
#endif
