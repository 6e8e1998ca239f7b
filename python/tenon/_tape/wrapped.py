"""Tensors that a class with `__torch_dispatch__` makes of others.

`Tensor._make_wrapper_subclass` gives a tensor with sizes, a dtype and a device but no memory. The
core hands every operator call with one among its arguments to the class, as one of `ops.aten`,
below the tape: gradients are recorded around the call, and what they compute comes to the class in
turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._submodules import imported
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
    "_expand_reduced", "_move", "norm", "split",
))  # fmt: skip


# ---- Operators that PyTorch makes of others and Tenon does not ----------------------------------


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or input.dim() == 1:
        result = tenon.matmul(input, weight.t())
        return result if bias is None else result + bias
    rows = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    result = tenon.addmm(bias, rows, weight.t())
    return result if rows is input else result.view(*input.shape[:-1], weight.shape[0])


def _matmul(input: Tensor, other: Tensor) -> Any:
    """A matrix that needs a gradient before a batch is one product of matrices."""
    if not (input.dim() == 2 and other.dim() > 2 and input.requires_grad):
        return NotImplemented
    rows = other.mT.reshape(-1, input.shape[1])
    result = tenon.mm(rows, input.t()).view(*other.shape[:-2], other.shape[-1], input.shape[0])
    return result.mT


def _square(input: Tensor) -> Tensor:
    return input**2


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str,
    label_smoothing: float,
) -> Any:  # fmt: skip
    """Classes without smoothing; the core makes the others of other operators itself."""
    from tenon.nn import functional

    if not target.is_floating_point() and label_smoothing == 0 and input.dim() == 2:
        logs = tenon.log_softmax(input, 1)
        return functional.nll_loss(logs, target, weight, None, ignore_index, None, reduction)
    return NotImplemented


class _Turned(threading.local):
    output_padding: Any = None  # of the transposed convolution that is running


_turned = _Turned()


def _conv_transpose(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, output_padding: Any,
    groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    dims = weight.dim() - 2
    batch = input if input.dim() == dims + 2 else input.unsqueeze(0)
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + more + 1
        for n, s, p, d, k, more in zip(
            batch.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding,
            strict=True,
        )
    ]  # fmt: skip
    whole = [batch.shape[0], weight.shape[1] * groups, *sizes]
    _turned.output_padding = list(output_padding)
    try:
        made: Tensor = _C._op("_conv_backward_input")(
            batch, weight, bias, whole, stride, padding, dilation, groups
        )
    finally:
        _turned.output_padding = None
    return made if batch is input else made.squeeze(0)


def _step(name: str) -> Callable[..., None]:
    def call(*args: Any) -> None:
        getattr(imported("tenon.optim._by_operators"), name)(*args)

    return call


PARTS: dict[str, Callable[..., Any]] = {
    "linear": _linear, "square": _square, "_sgd_": _step("sgd_"), "_adam_": _step("adam_"),
    "cross_entropy": _cross_entropy, "matmul": _matmul,
    **{f"conv_transpose{n}d": _conv_transpose for n in (1, 2, 3)},
}  # fmt: skip


# ---- Calls ---------------------------------------------------------------------------------------


@cache
def _public_names() -> dict[str, tuple[str, bool]]:
    """By an operator's name in the table: the one that programs use, and whether they can."""
    from tenon._tensor.op_rows import op_rows

    return {row["name"]: (row["py_name"], bool(row["where"])) for row in op_rows()}


@cache
def _default(text: str) -> Any:
    from tenon._transform.vmap_calls import literal

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


def _empty(like: Tensor, size: Any) -> Tensor:
    """A tensor that an operator is called with for its size, without memory of that size."""
    return like.detach().reshape(-1)[:1].expand(size) if like.numel() else like.new_empty(size)


def _conv_of_gradient(grad: Tensor, weight: Tensor, bias: Any, *rest: Any) -> _Call:
    """The gradient by its input of a transposed convolution."""
    del bias
    *steps, groups = rest
    stride, padding, dilation = steps
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, s, p, d, k in zip(
            grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    size = [grad.shape[0], weight.shape[0], *sizes]
    args = (grad, _empty(grad, size), weight, None, *steps, True, [0] * len(stride), groups)
    return "convolution_backward", (*args, [True, False, False]), {}


def _conv_backward_input(grad: Tensor, weight: Tensor, bias: Any, size: Any, *rest: Any) -> _Call:
    *steps, groups = rest
    more = _turned.output_padding
    if more is not None:
        return "convolution", (grad, weight, bias, *steps, True, more, groups), {}
    args = (grad, _empty(grad, size), weight, None, *steps, False, [0] * len(steps[0]), groups)
    return "convolution_backward", (*args, [True, False, False]), {}


def _conv_backward_weight(grad: Tensor, input: Tensor, size: Any, *rest: Any) -> _Call:
    *steps, groups = rest
    args = (grad, input, _empty(grad, size), None, *steps, False, [0] * len(steps[0]), groups)
    return "convolution_backward", (*args, [False, True, False]), {}


def _dropout(input: Tensor, p: float, scale: float, generator: Any) -> _Call | None:
    if generator is not None or p >= 1:
        return None
    return "native_dropout", (input, p, True), {}


def _flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: bool, scale: float
) -> _Call:
    name = "_scaled_dot_product_flash_attention_for_cpu"
    return name, (query, key, value, 0.0, causal), {"attn_mask": mask, "scale": scale}


def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Any, y: Tensor, lse: Tensor,
    causal: bool, scale: float,
) -> _Call:  # fmt: skip
    name = "_scaled_dot_product_flash_attention_for_cpu_backward"
    args = (grad, query, key, value, y, lse, 0.0, causal)
    return name, args, {"attn_mask": mask, "scale": scale}


def _grid_sample(
    input: Tensor, grid: Tensor, along: Any, mode: int, padding: int, align: bool
) -> _Call | None:
    if along is not None or input.dim() != 4:
        return None
    return "grid_sampler_2d", (input, grid, mode, padding, align), {}


# What a call of another name returns, as the operator's results.
_TAKEN: dict[str, Callable[[Any], Any]] = {
    "_conv_backward_weight": lambda found: found[1],
    "log_sigmoid": lambda found: found[0] if isinstance(found, tuple) else found,
}


def _taken(name: str, result: Any) -> Any:
    if name in ("_conv_backward_input", "_conv") and isinstance(result, tuple):
        return result[0]
    return _TAKEN[name](result) if name in _TAKEN else result


_RENAMED: dict[str, Callable[..., _Call | None]] = {
    "_conv_backward_input": _conv_backward_input,
    "_conv_backward_weight": _conv_backward_weight,
    "_dropout": _dropout,
    "log_sigmoid": lambda x: ("log_sigmoid_forward", (x,), {}),
    "_masked_scale": lambda grad, mask, scale: ("native_dropout_backward", (grad, mask, scale), {}),
    "_flash_attention": _flash,
    "_flash_attention_backward": _flash_backward,
    "_grid_sample": _grid_sample,
    "_nll_loss": lambda *args: ("nll_loss_forward", args, {}),
    "_nll_loss_backward": lambda grad, target, weight, total, size, reduction, ignored: (
        "nll_loss_backward",
        (grad, _empty(grad, size), target, weight, reduction, ignored, total), {},
    ),
    "_layer_norm_backward": lambda grad, x, shape, mean, rstd, weight, *mask: (
        "native_layer_norm_backward",
        (grad, x, shape, mean, rstd, weight, weight if mask[2] else None, list(mask)), {},
    ),
    "_batch_norm_backward": lambda grad, x, weight, mean, invstd, training, *mask: (
        "native_batch_norm_backward",
        (grad, x, weight, None, None, mean, invstd, training, 0.0, list(mask)), {},
    ),
    "_avg_pool2d_backward": lambda grad, size, *rest: (
        "avg_pool2d_backward", (grad, _empty(grad, size), *rest), {},
    ),
    "_upsample_nearest2d_backward": lambda grad, size, high, wide: (
        "upsample_nearest2d_backward", (grad, list(grad.shape[2:]), size, high, wide), {},
    ),
    "_upsample_bilinear2d_backward": lambda grad, size, align, high, wide: (
        "upsample_bilinear2d_backward", (grad, list(grad.shape[2:]), size, align, high, wide), {},
    ),
    "_elu_backward": lambda grad, x, alpha: ("elu_backward", (grad, alpha, 1, 1, False, x), {}),
    "_softplus_backward": lambda *args: ("softplus_backward", args, {}),
    "_mul_conj": _product,
    "_scale_conj": _product,
    "_div_conj": _quotient,
    "_sigmoid_backward": lambda grad, out: ("sigmoid_backward", (grad, out), {}),
    "_tanh_backward": lambda grad, out: ("tanh_backward", (grad, out), {}),
    "_relu_backward": lambda grad, out: ("threshold_backward", (grad, out, 0), {}),
    "_threshold_backward": lambda *args: ("threshold_backward", args, {}),
    "_hardtanh_backward": lambda *args: ("hardtanh_backward", args, {}),
    "_hardswish_backward": lambda grad, x: ("hardswish_backward", (grad, x), {}),
    "_mish_backward": lambda grad, x: ("mish_backward", (grad, x), {}),
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


def _call(
    name: str, inplace: bool, recorded: bool, fields: list[_Field]
) -> tuple[Any, tuple[Any, ...], Any]:
    """The form of `ops.aten` that a call is, and its arguments."""
    from tenon._tensor import aten

    rename = None if inplace else _RENAMED.get(name)
    if name == "_conv" and not recorded and _C._current_pass()[0]:
        rename = _conv_of_gradient
    renamed = None if rename is None else rename(*(f[3] for f in fields))
    if renamed is not None:
        public, args, kwargs = renamed
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


def parts(name: str, inplace: bool, recorded: bool, fields: list[_Field]) -> Any:
    """A call of an operator that is made of others."""
    with _below():
        return PARTS[name](*(f[3] for f in fields))


def item(t: Tensor) -> Any:
    """The one element of a tensor, as a number."""
    return whole("_local_scalar_dense", False, False, [("input", False, None, t)])


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)


def whole(name: str, inplace: bool, recorded: bool, fields: list[_Field]) -> Any:
    """What the first class that does not decline makes of a call, subclasses before their bases.
    Rows of gradients take the operators of the table instead, by `_compute_rows`."""
    for t in _tensors([f[3] for f in fields]):
        if compute := getattr(type(t), "_compute_rows", None):
            return compute(name, inplace, fields)
    watched = _C._watch_calls(False)  # what is asked of the arguments here is no call
    try:
        func, args, kwargs = _call(name, inplace, recorded, fields)
    finally:
        _C._watch_calls(watched or bool(call_modes.dispatch()))
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
            return _taken(name, result)
    with _below():
        for cls in classes:
            result = cls.__torch_dispatch__(func, types, args, kwargs)
            if result is not NotImplemented:
                return _taken(name, result)
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
