/* map.h: between the pointwise kernels (map_tmpl.h), which know formulas, and the driver (map.c),
 * which knows plans: blocks, strides, threads. */
#ifndef CPU_MAP_H
#define CPU_MAP_H

#include "cpu_priv.h"

#define CPU_MAP_INPUTS 4

/* A number of the call, in the type its formula takes. */
typedef union cpu_param {
    _Alignas(16) unsigned char bytes[16];
    double d;
    int64_t i;
} cpu_param;

/* n packed elements. Returns 1, before anything is written, when a divisor is an integer zero. */
typedef int (*cpu_map_fn)(int64_t n, void *out, const void *const *in, const cpu_param *params);

typedef struct cpu_map_op {
    cpu_map_fn flat;     /* all operands packed */
    cpu_map_fn scalar_b; /* in[1] is one value; or NULL */
    cpu_map_fn scalar_a; /* in[0] is one value; or NULL */
    int32_t grain;       /* elements that take about 2 us */
    uint8_t nin, out_size;
    uint8_t in_size[CPU_MAP_INPUTS];
} cpu_map_op;

/* Calls up to this size run on the calling thread without further ado. */
#define CPU_MAP_SMALL 2048

tn_status cpu_map_run(const tn_plan *plan, const cpu_map_op *op, const cpu_param *params);
tn_status cpu_map_zero_division(void);
/* The operand as float, where it is one number of a type that holds more than half precision. */
bool cpu_map_number(const tn_view *operand, cpu_param *ret_number);

/* ---- fuse.c: expressions of pointwise operators ------------------------------------------------*/
extern const tn_codegen_iface cpu_codegen_iface;

#endif
