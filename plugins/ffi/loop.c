/* loop.c: loops that call a C function directly, for the signatures that most functions of
 * mathematics have: one to three arguments of the type of the result, double or float. */
#include <string.h>

#include "loop_priv.h"

#define T double
#define C double
#define LOOP(name) name##_f64_of_double
#include "loop_tmpl.h"

#define T float
#define C double
#define LOOP(name) name##_f32_of_double
#include "loop_tmpl.h"

#define T double
#define C float
#define LOOP(name) name##_f64_of_float
#include "loop_tmpl.h"

#define T float
#define C float
#define LOOP(name) name##_f32_of_float
#include "loop_tmpl.h"

void tni_ffi_choose_loops(tni_ffi_element *e) {
    static const struct {
        tni_ffi_loop f32, f64;
    } loops[2][3] = {{{unary_f32_of_double, unary_f64_of_double},
                      {binary_f32_of_double, binary_f64_of_double},
                      {ternary_f32_of_double, ternary_f64_of_double}},
                     {{unary_f32_of_float, unary_f64_of_float},
                      {binary_f32_of_float, binary_f64_of_float},
                      {ternary_f32_of_float, ternary_f64_of_float}}};
    if (e->nparams < 1 || e->nparams > 3) return;
    int of_float = e->result == TN_FFI_F32;
    e->f32 = loops[of_float][e->nparams - 1].f32;
    e->f64 = loops[of_float][e->nparams - 1].f64;
}
