/* reduce_tmpl.h: the kernels of one reduction, included by common/reduce.h. */
#define RED_NAME(x) TN_(TMPL_PASTE2(x, RED))

struct RED_NAME(op) {
    A center;
    static CUDA_MEMBER A none() { return RED_INIT; }
    CUDA_MEMBER A step(A sum, A x) const { return RED_STEP(sum, x); }
    CUDA_MEMBER A operator()(A p, A q) const { return RED_JOIN(p, q); }
};

KERNEL(RED_NAME(rows), cuda_reduction_args) { reduce_rows<REDUCE_VECTOR, false, RED_NAME(op)>(a); }
#if TMPL_DTYPE != TMPL_C128 /* whose elements are whole vectors */
KERNEL(RED_NAME(odd_rows), cuda_reduction_args) {
    reduce_rows<REDUCE_VECTOR, true, RED_NAME(op)>(a);
}
#endif
KERNEL(RED_NAME(columns), cuda_reduction_args) { reduce_columns<REDUCE_VECTOR, RED_NAME(op)>(a); }
KERNEL(RED_NAME(strided_rows), cuda_reduction_args) { reduce_rows<1, false, RED_NAME(op)>(a); }
KERNEL(RED_NAME(strided_columns), cuda_reduction_args) { reduce_columns<1, RED_NAME(op)>(a); }
KERNEL(RED_NAME(finish), cuda_reduction_args) { reduce_finish<RED_NAME(op)>(a); }

#undef RED_NAME
#undef RED
#undef RED_INIT
#undef RED_STEP
#undef RED_JOIN
#undef RED_PICK
