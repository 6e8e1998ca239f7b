/* map_tu.c: the pointwise kernels of one element type and instruction set, and their rows.
 *
 * family: map; types: all; isa: each; small: f16 bf16 */
#include "map.h"

#include <tenon/args_pointwise.h>

#include "common/scalar.h"
#include "copy.h"
#include "map_complex.h"
#include "map_habits.h"
#include "map_wide.h"

#include "pointwise_ops.inc"

#include "map_pow.h"

#define MAP_ROW(op) {#op, TN_SIG_##op, TN_(k_##op), NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0},
static const tn_kernel_row rows[] = {
#include "pointwise_rows.inc"
#if !TMPL_IS_BOOL
    {"pow", TN_SIG_pow, pow_by_number, NULL, TMPL_DTYPE, 1, TN_K_CAPTURE_SAFE, 0},
#endif
#if TMPL_IS_FLOAT
    {"_pow_backward", TN_SIG__pow_backward, pow_backward_by_number, NULL, TMPL_DTYPE, 1,
     TN_K_CAPTURE_SAFE, 0},
#endif
};
const cpu_rows TN_(cpu_map_rows) = CPU_ROWS_OF(rows);
