"""`ops.aten`: the operators of the op table under the names that PyTorch's library has for them.

`ops.aten.add` is all forms of an operator, `ops.aten.add.Tensor` one of them. Which form a call
takes follows from its arguments, here as everywhere; the name of the form says what is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._submodules import imported
from tenon._tensor.dims import wrapped_dim

# Names that PyTorch gives to forms. Those of the op table come on top of them.
_FORMS = frozenset((
    "default", "Tensor", "Scalar", "out", "self", "int", "float", "dim", "dim_IntList", "other",
    "Tensor_Scalar", "Tensor_Tensor", "Scalar_Tensor", "Tensor_out", "Scalar_out", "correction",
    "Tensor_mode", "Scalar_mode", "ScalarOther", "ScalarSelf", "value", "vec", "stable", "start",
    "start_step", "source", "dtype", "memory_format", "unary_out", "sizes", "IntList", "divisor",
    "using_ints", "List", "reduce", "two", "padding", "dim_int", "dtype_layout", "device", "dims",
    "src", "value_reduce", "generator", "low", "low_generator", "from", "to", "n_scalar",
    "x_scalar", "n_scalar_out", "x_scalar_out", "ScalarList", "ScalarOpt_dim", "ScalarOpt_dtype",
    "ScalarOpt_dim_dtype", "dim_dtype", "dtype_out", "dim_out", "int_out", "int_Scalar",
    "int_Tensor", "Tensor_mode_out", "decimals", "sections", "indices", "output", "input",
    "values", "self_Tensor", "self_Scalar", "size", "step", "ord_str", "p_str", "tensor_qparams",
    "Tensor_Scalar_out", "Tensor_Tensor_out", "Scalar_Tensor_out", "correction_out", "tensor_lr",
    "self_int",
))  # fmt: skip
_ARITHMETIC = frozenset(
    f"{name}{end}"
    for name in ("add", "sub", "rsub", "mul", "div", "bitwise_and", "bitwise_or", "bitwise_xor")
    for end in ("", "_")
)  # fmt: skip
_COMPARISONS = frozenset(
    f"{name}{end}"
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod")
    for end in ("", "_")
)
# Forms for a number in a place, and for a tensor there.
_BY_KIND = {
    "fill_": (1, "value", "Scalar", "Tensor"), "masked_fill": (2, "value", "Scalar", "Tensor"),
    "masked_fill_": (2, "value", "Scalar", "Tensor"), "lerp": (2, "weight", "Scalar", "Tensor"),
    "lerp_": (2, "weight", "Scalar", "Tensor"), "scatter": (3, "value", "value", "src"),
    "scatter_": (3, "value", "value", "src"),
}  # fmt: skip
_REDUCED = {
    "sum": "dim_IntList", "mean": "dim", "prod": "dim_int", "any": "dim", "all": "dim",
    "median": "dim", "nanmedian": "dim",
}  # fmt: skip
# Operators of which PyTorch calls one form alone.
_ONE_FORM = {
    "flatten": "using_ints", "softmax": "int", "log_softmax": "int", "transpose": "int",
    "select": "int", "unbind": "int", "unflatten": "int", "split": "Tensor", "slice": "Tensor",
    "index": "Tensor", "where": "self", "std": "correction", "var": "correction",
    "std_mean": "correction", "var_mean": "correction", "empty": "memory_format",
    "searchsorted": "Tensor", "bucketize": "Tensor", "randint": "low",
}  # fmt: skip


def _to_copy(x: Tensor, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    """A copy with another dtype, on another device."""
    kwargs = {k: v for k, v in kwargs.items() if k in ("non_blocking", "memory_format")}
    return x.to(device=device or x.device, dtype=dtype or x.dtype, copy=True, **kwargs)


def _slice(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Every step-th element of a dimension, from start up to end."""
    return x[(slice(None),) * wrapped_dim(dim, x.dim()) + (slice(start, end, step),)]


def _gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of gelu's input."""
    name = "_gelu_tanh_backward" if approximate == "tanh" else "_gelu_backward"
    result: Tensor = _C._op(name)(grad, x)
    return result


def _in(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(imported(f"tenon._tensor.{module}"), name)(*args, **kwargs)

    call.__doc__ = f"See tenon._tensor.{module}.{name}."
    return call


def _nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Any,
    reduction: int,
    ignored: int,
    total: Tensor,
) -> Any:
    call = _C._op("_nll_loss_backward")
    return call(grad, target, weight, total, list(x.shape), reduction, ignored)


def _layer_norm_backward(
    grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any,
    output_mask: Any,
) -> Any:  # fmt: skip
    call = _C._op("_layer_norm_backward")
    return call(grad, x, shape, mean, rstd, weight, *map(bool, output_mask))


def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Any, running_mean: Any, running_var: Any, save_mean: Any,
    save_invstd: Any, train: bool, eps: float, output_mask: Any,
) -> Any:  # fmt: skip
    if not train and save_mean is None:
        save_mean, save_invstd = running_mean, (running_var + eps).rsqrt()
    call = _C._op("_batch_norm_backward")
    return call(grad, x, weight, save_mean, save_invstd, train, *map(bool, output_mask))


def _expanded(mask: Any, query: Tensor, key: Tensor) -> Any:
    """A mask of attention for each batch and head."""
    return None if mask is None else mask.expand(*query.shape[:-1], key.shape[-2])


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """Attention, and the logarithms of its sums."""
    if dropout_p:
        raise NotImplementedError(
            f"attention with its sums has no dropout, got dropout_p={dropout_p}"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    mask = _expanded(attn_mask, query, key)
    return _C._op("_flash_attention")(query, key, value, mask, is_causal, scale)


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    call, mask = _C._op("_flash_attention_backward"), _expanded(attn_mask, query, key)
    return call(grad, query, key, value, mask, out, lse, is_causal, scale)


def _avg_pool2d_backward(grad: Tensor, x: Tensor, *rest: Any) -> Any:
    return _C._op("_avg_pool2d_backward")(grad, list(x.shape), *rest)


def _elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    """elu, with factors on all of it and on the input where it is below 0."""
    y: Tensor = _C._nn.elu(x if input_scale == 1 else tenon.where(x > 0, x, x * input_scale), alpha)
    return y if scale == 1 else y * scale


def _elu_backward(
    grad: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor
) -> Any:
    if is_result:
        return grad * tenon.where(x <= 0, (x + alpha * scale) * input_scale, scale)
    slope = _C._op("_elu_backward")(grad * scale, x * input_scale, alpha)
    return tenon.where(x <= 0, slope * input_scale, slope)


# Operators that have no name of their own here.
PARTS: dict[str, Callable[..., Any]] = {
    "alias": lambda x: x.view_as(x),
    "lift_fresh": lambda x: x,
    "_to_copy": _to_copy,
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "slice": _slice,
    "convolution": _in("convolution", "convolution"),
    "convolution_backward": _in("convolution", "convolution_backward"),
    "threshold_backward": lambda *args: _C._op("_threshold_backward")(*args),
    "hardtanh_backward": lambda g, x, low, high: _C._op("_hardtanh_backward")(g, x, low, high),
    "hardswish_backward": lambda g, x: _C._op("_hardswish_backward")(g, x),
    "mish_backward": lambda g, x: _C._op("_mish_backward")(g, x),
    "sigmoid_backward": lambda g, y: _C._op("_sigmoid_backward")(g, y),
    "tanh_backward": lambda g, y: _C._op("_tanh_backward")(g, y),
    "select_backward": lambda *args: _C._op("_select_backward")(*args),
    "slice_backward": lambda *args: _C._op("_slice_backward")(*args),
    "embedding_dense_backward": lambda *args: _C._op("_embedding_backward")(*args),
    "silu_backward": lambda g, x: _C._op("_silu_backward")(g, x),
    "gelu_backward": _gelu_backward,
    "_softmax_backward_data": lambda g, y, dim, dtype: _C._op("_softmax_backward")(g, y, dim),
    "_log_softmax_backward_data": lambda g, y, dim, dtype: _C._op("_log_softmax_backward")(
        g, y, dim
    ),
    "log_sigmoid_forward": lambda x: (tenon.nn.functional.logsigmoid(x), x.new_empty(0)),
    "nll_loss_forward": lambda *args: _C._op("_nll_loss")(*args),
    "nll_loss_backward": _nll_loss_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm_backward": _batch_norm_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "avg_pool2d_backward": _avg_pool2d_backward,
    "max_pool2d_with_indices_backward": lambda grad, x, *rest: _C._op("_max_pool2d_backward")(
        grad, rest[-1], x.shape
    ),
    "upsample_nearest2d_backward": lambda grad, out, size, high=None, wide=None: _C._op(
        "_upsample_nearest2d_backward"
    )(grad, size, high, wide),
    "upsample_bilinear2d_backward": lambda grad, out, size, align, high=None, wide=None: _C._op(
        "_upsample_bilinear2d_backward"
    )(grad, size, align, high, wide),
    "_batch_norm_with_update": _in("inner", "_batch_norm_with_update"),
    "elu": _elu,
    "elu_": lambda x, *factors, **named: x.copy_(_elu(x, *factors, **named)),
    "elu_backward": _elu_backward,
    "softplus_backward": lambda *args: _C._op("_softplus_backward")(*args),
    "_local_scalar_dense": lambda x: x.item(),
    "_softmax": lambda x, dim, half_to_float=False: x.softmax(dim),
    "_log_softmax": lambda x, dim, half_to_float=False: x.log_softmax(dim),
    "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
}


def _sym_size(x: Tensor, dim: int | None = None) -> Any:
    """The sizes, or that of one dimension."""
    return x.size() if dim is None else x.size(dim)


def _sym_stride(x: Tensor, dim: int | None = None) -> Any:
    """The strides, or that of one dimension."""
    return x.stride() if dim is None else x.stride(dim)


def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Always three tensors, those without elements that were not asked for."""
    values, inverse, counts = tenon.unique_consecutive(x, True, True, dim)
    none = inverse.new_empty(0)
    return values, inverse if return_inverse else none, counts if return_counts else none


PARTS |= {
    "unique_consecutive": _unique_consecutive,
    "sym_size": _sym_size, "sym_stride": _sym_stride, "sym_numel": lambda x: x.numel(),
    "sym_storage_offset": lambda x: x.storage_offset(),
    "block_diag": lambda tensors: tenon.block_diag(*tensors),
    "chain_matmul": lambda matrices: tenon.chain_matmul(*matrices),
}  # fmt: skip
_MODULES = ("linalg", "special", "fft")
# Operators that are functions or methods in Python.
_IN_PYTHON = frozenset((
    "can_cast", "cholesky_inverse", "cholesky_solve", "fill_diagonal_", "gradient", "histogram",
    "histogramdd", "is_conj", "is_neg", "is_same_size", "isin", "istft", "lu_solve", "lu_unpack",
    "matrix_power", "nuclear_norm", "orgqr", "pinverse", "promote_types", "qr", "record_stream",
    "resize_", "resize_as_", "result_type", "scalar_tensor", "segment_reduce", "svd", "to_sparse",
    "to_sparse_bsc", "to_sparse_bsr", "to_sparse_csc", "to_sparse_csr", "triangular_solve",
    "vander",
))  # fmt: skip


def _written_in_python(name: str) -> Callable[..., Any] | None:
    """An operator of those, or of a module of functions: linalg_det."""
    module, _, inside = name.partition("_")
    if inside and module in _MODULES:
        found = getattr(imported(f"tenon.{module}"), inside, None)
        return found if callable(found) and not isinstance(found, type) else None
    if name not in _IN_PYTHON:
        return None
    found = getattr(tenon, name, None)
    return getattr(Tensor, name) if found is None else found


def _find(name: str) -> Callable[..., Any] | None:
    """The function or method of an operator."""
    if name in PARTS:
        return PARTS[name]
    for place in (_C._ops, _C._nn):
        if hasattr(place, name):
            return getattr(place, name)
    if isinstance(getattr(Tensor, name, None), type(Tensor.add)):
        return getattr(Tensor, name)
    found = _written_in_python(name) or getattr(tenon.nn.functional, name, None)
    return _absent(name) if found is None and name.startswith("_") else found


def _absent(name: str) -> Callable[..., Any]:
    """A part of PyTorch's library that packages name without calling it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"Tenon has no operator 'aten::{name}'")

    return call


proxies: list[type] = []  # fx.Proxy, once there is one


def _proxy_in(values: Any) -> Any:
    """What stands for a value that is not there yet, in arguments or lists of them; or None."""
    for value in values:
        if isinstance(value, (list, tuple)):
            value = _proxy_in(value)
        if type(value) in proxies:
            return value
    return None


class OpOverload:
    """One form of an operator."""

    def __init__(self, packet: OpOverloadPacket, form: str) -> None:
        self.overloadpacket = packet
        self.namespace = packet.namespace
        self._overloadname = form
        self.__name__ = f"{packet.__name__}.{form}"
        self.__module__ = f"tenon.ops.{packet.namespace}"
        self.__doc__ = packet.__doc__

    @property
    def _overloadpacket(self) -> OpOverloadPacket:
        """The packet by its older name."""
        return self.overloadpacket

    @property
    def op(self) -> Callable[..., Any]:
        """The function that it calls."""
        return self.overloadpacket.op

    @property
    def _schema(self) -> Any:
        """Its arguments and results; `str` is the text of them."""
        parts = imported("tenon._plugin.schema_parts")
        return parts.aten(self.overloadpacket.__name__, self._overloadname)

    @property
    def is_view(self) -> bool:
        """Whether its result shares memory with its first argument."""
        row = imported("tenon._plugin.schema_parts").row_of(self.overloadpacket.__name__)
        return row is not None and row["kind"] == "view"

    def name(self) -> str:
        """'aten::add.Tensor'; the default form has no name."""
        packet = self.overloadpacket
        end = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{packet.namespace}::{packet.__name__}{end}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        proxy = _proxy_in(args) if proxies else None
        if proxy is not None:
            return proxy.__torch_function__(self, (), args, kwargs)
        return self.overloadpacket.op(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.overloadpacket, self._overloadname)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """All forms of an operator."""

    def __init__(self, namespace: str, name: str, op: Callable[..., Any]) -> None:
        self.namespace = namespace
        self.op = op
        self.__name__ = name
        self.__doc__ = op.__doc__
        self._forms: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """Forms that were named so far, and the default one."""
        return sorted({"default", *self._forms})

    def __getattr__(self, form: str) -> OpOverload:
        if form.startswith("_") or (
            form not in _FORMS and not hasattr(_C._ops, f"{self.__name__}.{form}")
        ):
            raise AttributeError(
                f"The underlying op of '{self}' has no overload name '{form}'", name=form, obj=self
            )
        return self._forms.setdefault(form, OpOverload(self, form))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _packet, (self.__name__,)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class Aten:
    """The namespace `ops.aten`."""

    __name__ = "aten"

    def __getattr__(self, name: str) -> OpOverloadPacket:
        op = None if name.startswith("__") else _find(name)
        if op is None:
            raise AttributeError(f"there is no operator 'aten::{name}'", name=name, obj=self)
        self.__dict__[name] = OpOverloadPacket("aten", name, op)
        return self.__dict__[name]

    def __reduce__(self) -> str:
        return "namespace"

    def __dir__(self) -> list[str]:
        return sorted(n for n in {*dir(_C._ops), *dir(_C._nn)} if n.isidentifier())


namespace = Aten()


def _packet(name: str) -> OpOverloadPacket:
    """The operator of a name, which copies and pickles of it are."""
    return getattr(namespace, name)


def overload_for(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload | None:
    """The form that PyTorch names for a call; None: the name is not an operator's."""
    other = args[1] if len(args) > 1 else kwargs.get("other")
    if name in ("max", "min") and isinstance(other, Tensor):
        name += "imum"
    if name == "split" and isinstance(other, list | tuple):
        name = "split_with_sizes"
    packet = getattr(namespace, name, None)
    if packet is None:
        return None
    if name == "rsub":
        return packet.Tensor if isinstance(other, Tensor) else packet.Scalar
    if name in _ARITHMETIC:
        return packet.Tensor
    if name in _COMPARISONS:
        return packet.Tensor if isinstance(other, Tensor) else packet.Scalar
    if name in ("pow", "pow_"):
        if not isinstance(args[0], Tensor):
            return packet.Scalar
        by_tensor = packet.Tensor if name == "pow_" else packet.Tensor_Tensor
        return (
            by_tensor
            if isinstance(other, Tensor)
            else getattr(packet, "Scalar" if name == "pow_" else "Tensor_Scalar")
        )
    if name in ("rand", "randn") and kwargs.get("generator") is not None:
        return packet.generator
    if name in _BY_KIND:
        place, word, number, tensor = _BY_KIND[name]
        value = args[place] if len(args) > place else kwargs.get(word)
        return getattr(packet, tensor if isinstance(value, Tensor) else number)
    if name == "arange" and len(args) > 1:
        return packet.start_step if len(args) > 2 else packet.start
    if name == "view" and not isinstance(other, list | tuple):
        return packet.dtype
    if name in _ONE_FORM:
        return getattr(packet, _ONE_FORM[name])
    if name in ("max", "min", "squeeze") and (other is not None or "dim" in kwargs):
        return packet.dim
    if name in _REDUCED and (other is not None or "dim" in kwargs):
        return getattr(packet, _REDUCED[name])
    return packet.default
