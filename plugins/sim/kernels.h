/* kernels.h: what the kernels share: elements, operands, walks. A kernel has two halves. Its first
 * half runs on the caller's thread and fills a sim_work; the second is a `run_*` function that
 * computes, on the queue's thread, and sees nothing but that work. */
#ifndef SIM_KERNELS_H
#define SIM_KERNELS_H

#include "sim.h"

/* ---- value.c: elements by dtype; every real dtype that Tenon has -------------------------------*/
int64_t sim_itemsize(int32_t dtype);
bool sim_is_float(int32_t dtype);
double sim_load(int32_t dtype, const void *p);
int64_t sim_load_whole(int32_t dtype, const void *p);
void sim_store(int32_t dtype, void *p, double x);
void sim_store_whole(int32_t dtype, void *p, int64_t x);

/* ---- launch.c ----------------------------------------------------------------------------------*/
/* Empty work for a call; NULL after host->fail. */
sim_work *sim_launch(const tn_call *call, void (*run)(sim_work *w));
/* The same, with a copy of a block as its payload: the block may be gone before the work's turn. */
sim_work *sim_launch_with(const tn_call *call, void (*run)(sim_work *w), const void *block,
                          size_t bytes);
/* Hand over the operands, results first. What is wrong with one is reported by sim_go. */
void sim_give_plan(sim_work *w, const tn_plan *plan);
sim_view *sim_give(sim_work *w, const tn_view *v);
/* Puts the work into the call's queue. Takes w in any case. */
tn_status sim_go(const tn_call *call, sim_work *w);

/* Steps through a plan along the dimensions of a mask; false when all of them are back at 0. */
typedef struct sim_walk {
    int64_t index[TN_MAX_DIMS];
    unsigned char *at[SIM_OPERANDS];
} sim_walk;
#define SIM_ALL_DIMS UINT64_MAX
void sim_walk_start(const tn_plan *p, sim_walk *ret);
bool sim_walk_next(const tn_plan *p, sim_walk *w, uint64_t dims);

/* The next index of a shape in row-major order; false after the last. */
bool sim_next(const int64_t *shape, int32_t ndim, int64_t *index);
unsigned char *sim_at(const sim_view *v, const int64_t *index);

/* ---- map.c: the formulas of pointwise operators, for expressions and programs ------------------*/
/* NULL: there is none for real numbers. */
const void *sim_formula_find(const char *op);
/* The number among the operator's arguments; 1, by which nothing is changed: it has none. */
double sim_formula_number(const void *formula, const void *args);
double sim_formula_real(const void *formula, const double *x, double number);

/* ---- Registration: one function per file of kernels --------------------------------------------*/
/* Adds a row of the current transaction; dtype TN_DTYPE_ANY or a slot. */
typedef struct sim_registrar {
    const tn_host *host;
    tn_txn *txn;
    int32_t slot;
    tn_status status; /* the first failure */
} sim_registrar;
void sim_register(sim_registrar *r, const char *op, uint64_t sig, tn_kernel_fn fn, const void *ctx,
                  int32_t dtype);
/* The same for float32, and for float16 from level 3 on. */
void sim_register_floats(sim_registrar *r, const char *op, uint64_t sig, tn_kernel_fn fn,
                         const void *ctx);

void sim_register_copy(sim_registrar *r);
void sim_register_map(sim_registrar *r);
void sim_register_reduce(sim_registrar *r);
void sim_register_index(sim_registrar *r);
void sim_register_matmul(sim_registrar *r);
void sim_register_fused(sim_registrar *r);
void sim_register_random(sim_registrar *r);

#endif
