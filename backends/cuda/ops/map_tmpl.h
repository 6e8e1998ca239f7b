/* map_tmpl.h: one pointwise operator for one element type, host side. Included once per operator by
 * the generated pointwise_ops.inc (its macros: backends/README.md). */

static void TN_(TMPL_PASTE2(numbers, OP))(const void *args, cuda_number *ret_numbers) {
    const OP_ARGS *a = args;
    (void)a;
    (void)ret_numbers;
#if OP_NPARAMS > 0
    ret_numbers[0] = TMPL_PASTE2(number, OP_P0_KIND)(OP_P0(a));
#endif
#if OP_NPARAMS > 1
    ret_numbers[1] = TMPL_PASTE2(number, OP_P1_KIND)(OP_P1(a));
#endif
#if OP_NPARAMS > 2
    ret_numbers[2] = TMPL_PASTE2(number, OP_P2_KIND)(OP_P2(a));
#endif
#if OP_NPARAMS > 3
    ret_numbers[3] = TMPL_PASTE2(number, OP_P3_KIND)(OP_P3(a));
#endif
}

static map_op TN_(TMPL_PASTE2(map, OP)) = {
    {.module = "map_" TMPL_TEXT(TMPL_NAME),
     .name = "map_" TMPL_TEXT(OP) "_" TMPL_TEXT(TMPL_NAME) "_cuda"},
    TN_(TMPL_PASTE2(numbers, OP)),
#if TMPL_IS_INT && TMPL_PASTE2(CUDA_DIVIDES, OP)
    true,
#else
    false,
#endif
};
