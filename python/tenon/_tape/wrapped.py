"""Tensors that a class with `__torch_dispatch__` makes of others.

`Tensor._make_wrapper_subclass` gives a tensor with sizes, a dtype and a device but no memory. The
core hands every operator call with one among its arguments to the class, as one of `ops.aten`,
below the tape: gradients are recorded around the call, and what they compute comes to the class in
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._tape import call_modes

_Field = tuple[str, bool, "str | None", Any]

# Composites that PyTorch makes of other operators, too, before a class sees them.
IMPLICIT = frozenset((
    "selu", "relu6", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "max_pool2d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool1d", "pad", "contiguous", "cdist", "hstack", "vstack", "dstack",
    "column_stack", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid",
    "cartesian_prod", "tile", "repeat_interleave", "fliplr", "flipud", "take_along_dim",
    "argwhere", "diag", "one_hot", "diff", "argsort", "msort", "adjoint", "conj", "resolve_conj",
    "outer", "matmul", "inner", "tensordot", "einsum", "inverse", "logdet", "nll_loss", "l1_loss",
    "kl_div", "hinge_embedding_loss", "margin_ranking_loss", "cosine_similarity", "cross_entropy",
    "poisson_nll_loss", "cosine_embedding_loss", "triplet_margin_loss", "pairwise_distance",
    "multilabel_margin_loss", "ctc_loss", "cross", "kron", "trapezoid", "cumulative_trapezoid",
    "cov", "corrcoef", "quantile", "nanquantile", "bilinear", "scaled_dot_product_attention",
    "layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "float_power", "isreal",
    "sum_to_size", "combinations", "hsplit", "vsplit", "dsplit", "unsafe_chunk", "positive",
    "dropout", "nanmean", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "lstm", "gru",
    "rnn_tanh", "rnn_relu", "reshape", "view_as", "reshape_as", "flatten", "ravel", "unflatten",
    "movedim", "movedim_int", "expand_as", "broadcast_to", "narrow", "chunk", "tensor_split",
    "real", "imag", "diagflat", "to_dense", "grid_sampler", "softmin", "interpolate", "_share",
    "_expand_reduced", "_move",
))  # fmt: skip


# ---- Operators that PyTorch makes of others and Tenon does not ----------------------------------


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or input.dim() == 1:
        result = tenon.matmul(input, weight.t())
        return result if bias is None else result + bias
    rows = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    result = tenon.addmm(bias, rows, weight.t())
    return result if rows is input else result.view(*input.shape[:-1], weight.shape[0])


def _square(input: Tensor) -> Tensor:
    return input**2


def _step(name: str) -> Callable[..., None]:
    def call(*args: Any) -> None:
        getattr(import_module("tenon.optim._by_operators"), name)(*args)

    return call


PARTS: dict[str, Callable[..., Any]] = {
    "linear": _linear, "square": _square, "_sgd_": _step("sgd_"), "_adam_": _step("adam_"),
}  # fmt: skip


# ---- Calls ---------------------------------------------------------------------------------------


@cache
def _public_names() -> dict[str, tuple[str, bool]]:
    """By an operator's name in the table: the one that programs use, and whether they can."""
    from tenon._tensor.op_rows import op_rows

    return {row["name"]: (row["py_name"], bool(row["where"])) for row in op_rows()}


@cache
def _default(text: str) -> Any:
    from tenon._transform.vmap_rules import literal

    try:
        value = literal(text)
    except ValueError:  # a dtype, a layout, a memory format
        return getattr(_C, text.rpartition(".")[2], text)
    return list(value) if isinstance(value, tuple) else value


def _is_default(text: str | None, value: Any) -> bool:
    if text is None or isinstance(value, Tensor):
        return False
    known = _default(text)
    if isinstance(value, list) and not isinstance(known, list):
        return value == [] if known is None else all(v == known for v in value)
    return type(value) is type(known) and bool(value == known)


def _arguments(fields: list[_Field]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments up to the last that is no default, and keywords that are none."""
    args = [f for f in fields if not f[1]]
    while args and _is_default(args[-1][2], args[-1][3]):
        args.pop()
    kwargs = {f[0]: f[3] for f in fields if f[1] and not _is_default(f[2], f[3])}
    return tuple(f[3] for f in args), kwargs


@cache
def _private(name: str) -> Any:
    from tenon._tensor.aten import OpOverloadPacket

    return OpOverloadPacket("aten", name, _C._op(name)).default


# Operators that are PyTorch's under another name, with other arguments, and those that PyTorch
# gives to a class in another form: the name and what it is called with.
_Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def _product(input: Tensor, other: Any) -> _Call:
    turned = isinstance(other, Tensor) and other.is_complex()
    return "mul", (input, other.conj() if turned else other), {}


def _quotient(input: Tensor, other: Any) -> _Call:
    turned = isinstance(other, Tensor) and other.is_complex()
    return "div", (input, other.conj() if turned else other), {}


def _spread(name: str) -> Callable[..., _Call]:
    def call(input: Tensor, dim: Any, correction: float, keepdim: bool) -> _Call:
        return name, (input, dim or None), {"correction": correction, "keepdim": keepdim}

    return call


def _softmax(name: str) -> Callable[..., _Call]:
    def call(input: Tensor, dim: int, dtype: Any = None) -> _Call:
        return name, (input if dtype is None else input.to(dtype), dim, False), {}

    return call


def _conv(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> _Call:
    rest = (stride, padding, dilation, False, [0] * len(stride), groups)
    return "convolution", (input, weight, bias, *rest), {}


_RENAMED: dict[str, Callable[..., _Call]] = {
    "_mul_conj": _product,
    "_scale_conj": _product,
    "_div_conj": _quotient,
    "_sigmoid_backward": lambda grad, out: ("sigmoid_backward", (grad, out), {}),
    "_tanh_backward": lambda grad, out: ("tanh_backward", (grad, out), {}),
    "_relu_backward": lambda grad, out: ("threshold_backward", (grad, out, 0), {}),
    "_silu_backward": lambda grad, x: ("silu_backward", (grad, x), {}),
    "_gelu": lambda x: ("gelu", (x,), {}),
    "_gelu_tanh": lambda x: ("gelu", (x,), {"approximate": "tanh"}),
    "_gelu_backward": lambda grad, x: ("gelu_backward", (grad, x), {}),
    "_gelu_tanh_backward": lambda grad, x: ("gelu_backward", (grad, x), {"approximate": "tanh"}),
    "true_divide": lambda x, other: ("div", (x, other), {}),
    "_select_backward": lambda *args: ("select_backward", args, {}),
    "_slice_backward": lambda *args: ("slice_backward", args, {}),
    "_embedding_backward": lambda *args: ("embedding_dense_backward", args, {}),
    "_alias": lambda x: ("alias", (x,), {}),
    "_var": _spread("var"),
    "_std": _spread("std"),
    "_conv": _conv,
    "softmax": _softmax("_softmax"),
    "log_softmax": _softmax("_log_softmax"),
    "_softmax_backward": lambda g, y, dim: ("_softmax_backward_data", (g, y, dim, y.dtype), {}),
    "_log_softmax_backward": lambda g, y, dim: (
        "_log_softmax_backward_data", (g, y, dim, y.dtype), {},
    ),
}  # fmt: skip


def _call(name: str, inplace: bool, fields: list[_Field]) -> tuple[Any, tuple[Any, ...], Any]:
    """The form of `ops.aten` that a call is, and its arguments."""
    from tenon._tensor import aten

    if name in _RENAMED and not inplace:
        public, args, kwargs = _RENAMED[name](*(f[3] for f in fields))
        return aten.overload_for(public, args, kwargs), args, kwargs
    args, kwargs = _arguments(fields)
    public, known = _public_names().get(name, (name, False))
    if inplace and not public.endswith("_"):
        public += "_"
    known = known or public in aten.PARTS
    func = aten.overload_for(public, args, kwargs) if known else None
    return _private(name) if func is None else func, args, kwargs


@contextmanager
def _below() -> Iterator[None]:
    """Classes with `__torch_function__` have had their say."""
    _C._disable_overrides(1)
    try:
        yield
    finally:
        _C._disable_overrides(-1)


def parts(name: str, inplace: bool, fields: list[_Field]) -> Any:
    """A call of an operator that is made of others."""
    with _below():
        return PARTS[name](*(f[3] for f in fields))


def item(t: Tensor) -> Any:
    """The one element of a tensor, as a number."""
    return whole("_local_scalar_dense", False, [("input", False, None, t)])


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)


def whole(name: str, inplace: bool, fields: list[_Field]) -> Any:
    """What the first class that does not decline makes of a call, subclasses before their bases."""
    func, args, kwargs = _call(name, inplace, fields)
    classes: list[type] = []
    for t in _tensors((args, tuple(kwargs.values()))):
        cls = type(t)
        if cls not in classes and hasattr(cls, "__torch_dispatch__"):
            at = next((i for i, c in enumerate(classes) if issubclass(cls, c)), len(classes))
            classes.insert(at, cls)
    types = tuple(classes)
    if call_modes.dispatch():
        with call_modes.outside(call_modes.dispatch()) as mode, _below():
            result = mode.__torch_dispatch__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    with _below():
        for cls in classes:
            result = cls.__torch_dispatch__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
    raise TypeError(
        f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned "
        "NotImplemented:\n\n" + "\n".join(f"  - tensor subclass {c}" for c in classes)
    )


# ---- Making one ----------------------------------------------------------------------------------


def make_wrapper_subclass(
    cls: type,
    size: Any,
    strides: Any = None,
    storage_offset: Any = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: str | None = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    _extra_dispatch_keys: Any = None,
    storage_size: Any = None,
) -> Tensor:
    """A tensor of the class, of that size, without memory: what it holds is its attributes'."""
    if not hasattr(cls, "__torch_dispatch__"):
        raise TypeError(
            f"{cls.__name__} must define a __torch_dispatch__ to be made without memory"
        )
    made: Tensor = _C._make_wrapped(
        cls, tuple(size), None if strides is None else tuple(strides),
        dtype or tenon.get_default_dtype(), device or "cpu", requires_grad,
    )  # fmt: skip
    return made
