"""Tenon: tensors, automatic differentiation and neural networks, with backends as plugins.

The names are PyTorch's: `import tenon as torch` is how most programs start. Operators, the tensor
type and the modes come from the extension module; submodules are imported when first used.
"""

# ruff: noqa: F401
from __future__ import annotations

from math import e, inf, nan, pi, tau
from typing import Any

from tenon import _C
from tenon._C import (
    Generator,
    OutOfMemoryError,
    Size,
    Tensor,
    as_tensor,
    asarray,
    bfloat16,
    bool,
    cdouble,
    cfloat,
    chalf,
    channels_last,
    channels_last_3d,
    complex32,
    complex64,
    complex128,
    contiguous_format,
    default_generator,
    device,
    double,
    dtype,
    enable_grad,
    explain,
    float,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    from_dlpack,
    from_numpy,
    frombuffer,
    get_default_dtype,
    get_num_threads,
    half,
    inference_mode,
    int,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_tensor,
    layout,
    long,
    memory_format,
    no_grad,
    plugins,
    prefer,
    preserve_format,
    promote_types,
    set_default_dtype,
    set_grad_enabled,
    set_num_threads,
    set_rng,
    short,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
    tensor,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tenon._submodules import imported as _imported
from tenon._tensor import methods as _methods
from tenon._tensor.indexed import (
    allclose,
    block_diag,
    equal,
    isin,
    nonzero,
    unique,
    unique_consecutive,
)
from tenon._tensor.random import (
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__version__ = _C._version
_HOME = __name__  # `tenon run` gives the module another name

newaxis = None

_SUBMODULES = frozenset({
    "accelerator", "amp", "comm", "autograd", "backends", "cuda", "distributed", "distributions",
    "classes", "fft", "func", "quasirandom",
    "hub", "jit", "linalg", "multiprocessing", "nn", "onnx", "ops", "optim",
    "overrides", "profiler", "random", "serialization", "signal", "sparse",
    "special", "testing", "types", "utils", "version", "compiler", "cpu",
    "fx", "futures", "nested", "return_types",
    "array_api", "masked", "__config__", "__future__", "export", "library", "ffi", "storage", "ao",
    "quantization",
})  # fmt: skip

# Names of submodules that are functions of the package.
_LATER = {
    **dict.fromkeys(
        ("load_inline", "load_library", "load_plugin", "retire_plugin"), "_plugin.inline"
    ),
    "save": "serialization", "load": "serialization", "compile": "compiler",
    "PyTorchFileReader": "io.zip_reader",
    "autocast": "amp", "GradScaler": "amp",
    **dict.fromkeys((
        "Storage", "TypedStorage", "UntypedStorage", "from_file", "DoubleStorage", "FloatStorage",
        "HalfStorage", "BFloat16Storage", "LongStorage", "IntStorage", "ShortStorage",
        "CharStorage", "ByteStorage", "BoolStorage", "ComplexDoubleStorage", "ComplexFloatStorage",
    ), "_tensor.storage"),
    **dict.fromkeys((
        "qint8", "quint8", "qint32", "quint4x2", "per_tensor_affine", "per_tensor_symmetric",
        "per_channel_affine", "per_channel_symmetric", "per_channel_affine_float_qparams",
        "int1", "int2", "int3", "int4", "int5", "int6", "int7",
        "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "float4_e2m1fn_x2",
    ), "ao.quantization._grids"),
    **dict.fromkeys((
        "dequantize", "quantize_per_channel", "quantize_per_tensor", "quantize_per_tensor_dynamic",
    ), "ao.quantization._quantized"),
    "set_printoptions": "_tensor.print", "get_printoptions": "_tensor.print",
    **dict.fromkeys(("Stream", "Event", "stream", "current_stream"), "_device.streams"),
    "Future": "futures", "jagged": "nested._tensor",
    "DisableTorchFunctionSubclass": "overrides",
    "SymInt": "types", "SymFloat": "types", "SymBool": "types", "ScriptModule": "jit",
    "Graph": "_device.capture", "graph": "_device.capture",
    "vmap": "_transform.vmap", "cond": "_program.control", "while_loop": "_program.scans",
    "deferred": "_program.deferred",
    **dict.fromkeys((
        "is_autocast_available", "is_autocast_enabled", "set_autocast_enabled",
        "get_autocast_dtype", "set_autocast_dtype", "get_autocast_gpu_dtype",
        "get_autocast_cpu_dtype", "is_autocast_cpu_enabled", "clear_autocast_cache",
        "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_gpu_dtype",
        "set_autocast_cache_enabled", "autocast_increment_nesting", "autocast_decrement_nesting",
    ), "amp"),
    "is_anomaly_enabled": "autograd.anomaly_mode",
    "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
    **dict.fromkeys((
        "chain_matmul", "cholesky_inverse", "cholesky_solve", "frobenius_norm", "lu", "lu_solve",
        "lu_unpack", "matrix_power", "nuclear_norm", "pinverse", "qr", "svd", "triangular_solve",
        "vander",
    ), "_tensor.matrix"),
    "to_dlpack": "utils.dlpack",
    "convolution": "_tensor.convolution",
    "lobpcg": "_tensor.lobpcg",
    "pca_lowrank": "_tensor.lowrank", "svd_lowrank": "_tensor.lowrank",
    **dict.fromkeys((
        "sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor",
        "sparse_bsr_tensor", "sparse_bsc_tensor", "spmm", "dsmm", "hspmm", "smm",
        "sspaddmm",
    ), "_tensor.sparse"),
    **dict.fromkeys((
        "broadcast_shapes", "can_cast", "einsum", "finfo", "get_device_module", "gradient",
        "histogram", "iinfo",
        "is_complex", "is_floating_point", "is_nonzero", "is_storage", "meshgrid", "numel",
        "result_type", "split", "tensor_split", "tensordot", "typename",
    ), "_tensor.functions"),
    **dict.fromkeys(("stft", "istft"), "_tensor.signal"),
    **dict.fromkeys(("histogramdd", "nonzero_static", "segment_reduce"), "_tensor.segments"),
    **dict.fromkeys((
        "_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit",
        "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_upsample_bilinear2d_aa",
        "split_copy", "split_with_sizes_copy", "unbind_copy",
    ), "_tensor.inner"),
    **dict.fromkeys((
        "adaptive_max_pool1d", "alpha_dropout", "alpha_dropout_", "batch_norm",
        "binary_cross_entropy_with_logits", "celu_",
        "cosine_embedding_loss", "ctc_loss", "detach_", "feature_alpha_dropout",
        "feature_alpha_dropout_", "feature_dropout", "feature_dropout_",
        "hinge_embedding_loss", "instance_norm",
        "kl_div", "margin_ranking_loss", "max_pool1d_with_indices", "max_pool3d",
        "pairwise_distance",
        "poisson_nll_loss", "prelu", "relu_", "resize_as_", "rrelu", "rrelu_", "selu_",
        "sigmoid_", "tanh_",
        "threshold_", "triplet_margin_loss",
    ), "_tensor.twins"),
    **dict.fromkeys((
        "_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
        "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value",
        "_check_with",
    ), "_tensor.checks"),
    **dict.fromkeys((
        "_assert", "_softmax_backward_data", "conv_tbc", "embedding_bag", "set_flush_denormal",
        "get_deterministic_debug_mode",
        "get_device", "is_autocast_cache_enabled", "is_conj", "is_inference", "is_neg",
        "is_same_size", "is_signed", "is_warn_always_enabled",
        "orgqr", "resolve_neg", "saddmm",
        "set_anomaly_enabled", "set_deterministic_debug_mode", "set_warn_always", "sym_float",
        "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum",
    ), "_tensor.names"),
    **dict.fromkeys((
        "set_fallback_policy", "get_fallback_policy",
        "set_float32_matmul_precision", "get_float32_matmul_precision",
        "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
        "is_deterministic_algorithms_warn_only_enabled",
        "set_default_device", "get_default_device", "set_default_tensor_type", "layer",
        "set_num_interop_threads", "get_num_interop_threads", "scalar_tensor",
    ), "_tensor.settings"),
}  # fmt: skip

# Functions of the op table; what is defined above or comes later keeps its name. Those of special
# have their names there.
for _name in dir(_C._ops):
    if not _name.startswith(("_", "special_")) and _name not in globals() and _name not in _LATER:
        globals()[_name] = getattr(_C._ops, _name)
del _name
# Names that programs know from PyTorch.
_addmm_activation = _C._ops._addmm_activation
_int_mm, _weight_int8pack_mm = _C._ops._int_mm, _C._ops._weight_int8pack_mm
_standard_gamma = _C._ops._standard_gamma
_standard_gamma_grad = _C._ops._standard_gamma_grad


def __getattr__(name: str) -> Any:
    if name.startswith(("_foreach_", "_amp_")):
        return getattr(_imported(f"{_HOME}._tensor.foreach"), name)
    if name in _SUBMODULES:
        try:
            return _imported(f"{_HOME}.{name}")
        except ModuleNotFoundError as err:
            if err.name != f"{_HOME}.{name}":
                raise
    if name in _LATER:
        try:
            value = getattr(_imported(f"{_HOME}.{_LATER[name]}"), name)
        except ModuleNotFoundError as err:
            if err.name != f"{_HOME}.{_LATER[name]}":
                raise
        else:
            globals()[name] = value
            return value
    if name.startswith("has_"):
        built = _imported(f"{_HOME}._tensor.names").built(name)
        if built is not None:
            return built
    if name.endswith("Tensor"):
        kind = _imported(f"{_HOME}._tensor.tensor_types").find(name, "cpu")
        if kind is not None:
            globals()[name] = kind
            return kind
    if not name.startswith("_"):
        try:
            return _C._named(name)  # a dtype that a plugin offers
        except ValueError:
            pass
        try:
            _C._device_count(name)
        except MemoryError:
            raise
        except RuntimeError:
            if name in ("mps", "mtia", "xpu"):  # kinds that programs ask for, served or not
                return _imported(f"{_HOME}._device.devices").absent(name)
        else:
            globals()[name] = _imported(f"{_HOME}._device.devices").DeviceModule(name)
            return globals()[name]
    raise _NoName(f"module {__name__!r} has no attribute {name!r}", name=name)


class _NoName(AttributeError):
    """Looks for a name that is spelt alike when it is shown: Python does so for small modules."""

    def __str__(self) -> str:
        import difflib

        close = difflib.get_close_matches(self.name, __dir__(), 1)
        return super().__str__() + (f". Did you mean: '{close[0]}'?" if close else "")


_NoName.__name__ = _NoName.__qualname__ = "AttributeError"
_NoName.__module__ = "builtins"  # what a traceback shows


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_LATER})
