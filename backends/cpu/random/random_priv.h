/* random_priv.h: what the files that draw random numbers share: the order in which a tensor's
 * elements are drawn (random_walk.c) and PyTorch's mt19937 stream (random_mt.c). */
#ifndef CPU_RANDOM_PRIV_H
#define CPU_RANDOM_PRIV_H

#include "common/philox.h"

#include "cpu_priv.h"

/* Numbers as they are drawn, before they become elements of some dtype. */
enum rnd_number { RND_F32, RND_F64, RND_I64, RND_U8 };

enum { RND_BATCH = 512 }; /* numbers drawn at a time; a multiple of every Philox group */

/* The elements of a tensor in the order of drawing; dimension 0 is the innermost. Complex elements
 * are two real ones. `other` is a second operand, broadcast, or NULL. Strides are in bytes. */
typedef struct rnd_walk {
    char *data;
    const char *other;
    int64_t numel;
    int64_t itemsize;
    int32_t dtype, other_dtype;
    int32_t ndim;
    bool packed; /* the k-th element lies at data + k * itemsize */
    int64_t shape[TN_MAX_DIMS + 1];
    int64_t stride[TN_MAX_DIMS + 1];
    int64_t other_stride[TN_MAX_DIMS + 1];
} rnd_walk;

/* by_memory: in the order of the elements' addresses (PyTorch's), else in the order of indices. */
void rnd_walk_init(rnd_walk *w, const tn_view *self, const tn_view *other, bool by_memory);
/* Elements at .. at + n - 1 (n <= RND_BATCH) become these numbers, rounded to their dtype. */
void rnd_store(const rnd_walk *w, int64_t at, int64_t n, enum rnd_number kind, const void *numbers);
/* The same elements of the second operand. */
void rnd_load_other(const rnd_walk *w, int64_t at, int64_t n, double *dst);
/* Where numbers of that kind may be written in place of rnd_store, or NULL. */
void *rnd_direct(const rnd_walk *w, int64_t at, int64_t n, enum rnd_number kind);

/* ---- Jobs (random_job.c) -----------------------------------------------------------------------*/

typedef struct rnd_job rnd_job;
struct rnd_job {
    rnd_walk walk;
    enum rnd_number fill_kind, draw_kind;
    /* Philox: n numbers from `at` on, and what is left of the last group of RND_GROUP_WORDS. */
    void (*fill)(const rnd_job *j, int64_t at, int64_t n, void *numbers);
    /* mt19937: the next n numbers of the stream. */
    void (*draw)(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers);
    int words; /* Philox words per number */
    uint64_t seed, offset;
    double a, b;    /* the distribution's parameters */
    uint64_t range; /* whole numbers: how many there are; 0: 2^64 */
    int64_t base;   /* and the smallest one */
    bool half;      /* results are rounded to dtype before they are compared */
};
tn_status rnd_run(const tn_call *call, tn_generator *gen, rnd_job *j, const tn_view *self,
                  const tn_view *other);
/* The parts of rnd_run. Reserves Philox blocks, or takes the mt19937; the caller releases only the
 * latter. */
tn_status rnd_begin(const tn_call *call, tn_generator *gen, rnd_job *j, const tn_view *self,
                    tn_rng *ret_rng);
tn_status rnd_fill_batches(void *job, int64_t begin, int64_t end);
/* Takes the mt19937 of a draw once more, after its release. */
tn_status rnd_mt_take(const tn_call *call, tn_generator *gen, tn_rng *rng);
/* Draws from an mt19937 that is held, and stays so only where this succeeds. */
tn_status rnd_draw_batches(const tn_call *call, tn_generator *gen, const rnd_job *j, tn_rng *rng);

/* ---- mt19937 -----------------------------------------------------------------------------------*/
uint32_t rnd_mt_word(tn_rng *rng);
static inline uint64_t rnd_mt_word64(tn_rng *rng) {
    uint64_t high = rnd_mt_word(rng);
    return high << 32 | rnd_mt_word(rng);
}
void rnd_mt_words(tn_rng *rng, uint32_t *dst, int64_t n);
/* Spread evenly over [0, 1): 24 and 53 bits. */
static inline float rnd_mt_f32(tn_rng *rng) {
    return (float)(rnd_mt_word(rng) & 0xffffffu) * 0x1p-24f;
}
static inline double rnd_mt_f64(tn_rng *rng) {
    return (double)(rnd_mt_word64(rng) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}
/* One of a Box-Muller pair; the other one waits in the generator. */
double rnd_mt_normal(tn_rng *rng);

#endif
