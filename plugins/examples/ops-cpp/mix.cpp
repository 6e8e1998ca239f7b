// mix.cpp: an operator in C++ with two backward results, and with C++ kept on its own side.
//
// mix(a, b, weight) is a + weight * (b - a), on tensors that broadcast. Its backward is one operator that
// computes both gradients in one pass over the data; the two formulas pick theirs by [0] and [1], and the
// call is made once.
#include <tenon/plugin.h>

namespace {

struct MixArgs { // mix(Tensor a, Tensor b, float weight) -> Tensor
    const tn_plan *plan;
    const tn_view *a, *b;
    double weight;
    tn_view *out;
};

struct BackwardArgs { // mix_backward(Tensor grad, float weight) -> (Tensor da, Tensor db)
    const tn_plan *plan;
    const tn_view *grad;
    double weight;
    tn_view *da, *db;
};

// One template per operator, one instance per dtype. No exception may leave a kernel.
template <typename T> tn_status mix(const tn_call *, const void *args) {
    const MixArgs *a = static_cast<const MixArgs *>(args);
    const T weight = static_cast<T>(a->weight);
    tn_rows r;
    for (tn_rows_start(&r, a->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            const T x = *TN_ROW(const T, r, 1, i), y = *TN_ROW(const T, r, 2, i);
            *TN_ROW(T, r, 0, i) = x + weight * (y - x);
        }
    return TN_OK;
}

// A structured kernel gets whole tensors. TN_OPF_PACK makes the input row-major without gaps, and
// results are made that way, so that flat pointers will do.
template <typename T> tn_status mix_backward(const tn_call *, const void *args) {
    const BackwardArgs *a = static_cast<const BackwardArgs *>(args);
    const T weight = static_cast<T>(a->weight);
    const T *g = static_cast<const T *>(a->grad->data);
    T *da = static_cast<T *>(a->da->data), *db = static_cast<T *>(a->db->data);
    for (int64_t i = 0; i < a->grad->numel; i++) {
        da[i] = (1 - weight) * g[i];
        db[i] = weight * g[i];
    }
    return TN_OK;
}

tn_status add_kernels(const tn_host *host, tn_txn *txn, const char *op, tn_kernel_fn f32,
                      tn_kernel_fn f64) {
    const tn_kernel_row rows[] = {
        {op, 0, f32, nullptr, TN_F32, 0, 0, 0},
        {op, 0, f64, nullptr, TN_F64, 0, 0, 0},
    };
    return host->register_kernels(txn, 0, rows, sizeof rows[0], 2);
}

tn_status activate(const tn_host *host, tn_txn *txn) {
    tn_op_desc forward = tn_op_desc(), backward = tn_op_desc();
    forward.struct_size = backward.struct_size = sizeof(tn_op_desc);

    forward.kind = TN_OP_POINTWISE;
    forward.args_bytes = sizeof(MixArgs);
    forward.schema = "examplecpp::mix(Tensor a, Tensor b, float weight=0.5) -> Tensor";
    forward.dtype = "float";
    forward.gradient = "a: examplecpp::mix_backward(grad, weight)[0];"
                       "b: examplecpp::mix_backward(grad, weight)[1]";
    forward.doc = "a + weight * (b - a).";

    backward.kind = TN_OP_STRUCTURED;
    backward.flags = TN_OPF_PACK;
    backward.args_bytes = sizeof(BackwardArgs);
    backward.schema =
        "examplecpp::mix_backward(Tensor grad, float weight) -> (Tensor da, Tensor db)";
    backward.shape = "same(grad)";
    backward.gradient = "grad: (1 - weight) * grad_da + weight * grad_db";
    backward.doc = "Both gradients of mix.";

    tn_status st = host->register_op(txn, &forward);
    if (st == TN_OK) st = host->register_op(txn, &backward);
    if (st == TN_OK) st = add_kernels(host, txn, "examplecpp::mix", mix<float>, mix<double>);
    if (st == TN_OK)
        st = add_kernels(host, txn, "examplecpp::mix_backward", mix_backward<float>,
                         mix_backward<double>);
    return st;
}

} // namespace

extern "C" TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *, tn_plugin *ret_plugin) {
    return tn_plugin_fill(ret_plugin, "examplecpp", "0.1.0", "mix in C++", activate);
}
