"""What the words of TorchScript mean: `torch.add`, `ops.prim.dtype`, `int`, attributes.

A word that takes a tensor is the operator of that name, called as PyTorch's schemas write it: in
order, with dtypes, layouts and memory formats as numbers. One without tensors is of values.py.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._program.archive.values import PLAIN, text_of
from tenon._program.jit_names import Error
from tenon._program.jit_names import fork as _fork
from tenon._tensor import aten
from tenon.io.errors import FileFormatError
from tenon.nn import Module
from tenon.nn import functional as F
from tenon.ops import Namespace

NUMBERS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf)}
TYPES: dict[str, Any] = {
    "Tensor": Tensor, "int": int, "float": float, "bool": bool, "str": str, "complex": complex,
    "number": (int, float, complex), "Device": tenon.device, "List": list, "Dict": dict,
    "Tuple": tuple, "list": list, "dict": dict, "tuple": tuple,
}  # fmt: skip

# Numbers that files have for what has a name.
DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2",
    "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2", "float8_e4m3fn",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64",
)  # fmt: skip
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


# ---- Objects -------------------------------------------------------------------------------------


class Object:
    """An object of a class that the archive brings; `_kind` is that class."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: Any) -> None:
        self._kind, self._values = kind, {}


def is_made_by(value: Any, kind: Any) -> bool:
    """Whether a value is an object of a class of the archive."""
    if isinstance(kind, type):
        return isinstance(value, kind)
    return getattr(value, "_kind", None) is kind


def get_attribute(value: Any, name: str) -> Any:
    """An attribute that the archive gave the value, or a method of its class."""
    if isinstance(value, Object):
        if name in value._values:
            return value._values[name]
        return value._kind.method(value, name)
    if isinstance(value, Module):
        kind = getattr(type(value), "_archive_kind", None)
        if name in value._modules or name in value._parameters or name in value._buffers:
            return getattr(value, name)
        if kind is not None and name in kind.fields:
            return vars(value)[name]
        if kind is not None:
            return kind.method(value, name)
    if isinstance(value, tuple) and name in getattr(value, "_fields", ()):
        return getattr(value, name)
    if name in ("value", "name") and isinstance(value, Enum):
        return getattr(value, name)
    if isinstance(value, type) and name in getattr(value, "_members", ()):
        return value._members[name]  # type: ignore[attr-defined]
    raise AttributeError(f"a TorchScript {type(value).__name__} has no attribute {name!r}")


def set_attribute(target: Any, name: str, value: Any) -> None:
    """self.name = value."""
    if isinstance(target, Object):
        target._values[name] = value
        return
    kind = getattr(type(target), "_archive_kind", None)
    if kind is None or (name not in kind.fields and name not in target._buffers):
        raise AttributeError(f"a TorchScript {type(target).__name__} has no attribute {name!r}")
    setattr(target, name, value)


def entered(value: Any) -> Any:
    """What a `with` enters."""
    if isinstance(value, Object):
        enter, leave = get_attribute(value, "__enter__"), get_attribute(value, "__exit__")

        @contextlib.contextmanager
        def within() -> Any:
            entered_with = enter()
            try:
                yield entered_with
            finally:
                leave(None, None, None)

        return within()
    if isinstance(value, (tenon.no_grad, tenon.enable_grad, tenon.set_grad_enabled)):
        return value
    raise TypeError(f"a TorchScript {type(value).__name__} has nothing to enter")


# ---- Words of Python -----------------------------------------------------------------------------


def to_int(value: Any) -> int:
    return int(value.item() if isinstance(value, Tensor) else value)


def to_float(value: Any) -> float:
    return float(value.item() if isinstance(value, Tensor) else value)


def to_bool(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value)
    return value != 0 if isinstance(value, (int, float, complex)) else bool(value)


BUILTINS: dict[str, Callable[..., Any]] = {
    "int": to_int, "float": to_float, "bool": to_bool, "str": text_of, "range": range, "len": len,
    "complex": complex, "fork": lambda fn, *args, **kwargs: _fork(fn, *args, **kwargs),
    "print": print,
}  # fmt: skip


# ---- Arguments -----------------------------------------------------------------------------------


def _dtype(value: Any) -> Any:
    if value is None or isinstance(value, tenon.dtype):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(DTYPES):
        raise TypeError(f"{value!r} is the number of no dtype")
    found = getattr(tenon, DTYPES[value], None)
    if found is None:
        raise TypeError(f"Tenon has no dtype {DTYPES[value]}")
    return found


def _number_of_dtype(dtype: Any) -> int:
    return DTYPES.index(str(dtype).rpartition(".")[2])


def _layout(value: Any) -> Any:
    if value is None or isinstance(value, tenon.layout):
        return value
    return getattr(tenon, LAYOUTS[value])


def _format(value: Any) -> Any:
    if value is None or isinstance(value, tenon.memory_format):
        return value
    return getattr(tenon, FORMATS[value])


_NAMED: dict[str, Callable[[Any], Any]] = {
    "dtype": _dtype, "layout": _layout, "memory_format": _format,
}  # fmt: skip
# Places among arguments in order where dtypes stand as numbers.
_DTYPE_AT = {
    "softmax": 2, "log_softmax": 2, "quantize_per_tensor": 3, "quantize_per_channel": 4,
    "quantize_per_tensor_dynamic": 1,
}  # fmt: skip
# Losses of nn.functional, with what follows the two tensors.
_LOSSES = {
    "l1_loss": ("reduction",), "mse_loss": ("reduction",), "soft_margin_loss": ("reduction",),
    "multilabel_margin_loss": ("reduction",), "smooth_l1_loss": ("reduction", "beta"),
    "huber_loss": ("reduction", "delta"), "binary_cross_entropy": ("weight", "reduction"),
    "multi_margin_loss": ("p", "margin", "weight", "reduction"),
}  # fmt: skip


def _reduction(value: Any) -> Any:
    return ("none", "mean", "sum")[value] if isinstance(value, int) else value


def _has_tensor(values: Any) -> bool:
    for v in values:
        if isinstance(v, Tensor) or (isinstance(v, (list, tuple)) and _has_tensor(v)):
            return True
    return False


def _named(kwargs: dict[str, Any]) -> dict[str, Any]:
    made = {k: _NAMED[k](v) if k in _NAMED else v for k, v in kwargs.items()}
    for key in ("pin_memory", "layout", "memory_format"):
        if made.get(key) is None:
            made.pop(key, None)
    return made


def _listed(result: Any) -> Any:
    """Sizes and lists of tensors are lists; results that have names stay tuples."""
    if isinstance(result, tenon.Size):
        return list(result)
    return result


# ---- Operators that are written otherwise --------------------------------------------------------


def _to(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """All forms of aten::to."""
    made, rest = _named(kwargs), list(args)
    made.pop("layout", None)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        made.update(dtype=other.dtype, device=other.device)
    if rest and isinstance(rest[0], (tenon.device, str, type(None))):
        made["device"] = rest.pop(0)
    if rest and not isinstance(rest[0], bool):
        made["dtype"] = _dtype(rest.pop(0))
    for name in ("non_blocking", "copy"):
        if rest:
            made[name] = rest.pop(0)
    if rest:
        made["memory_format"] = _format(rest.pop(0))
    return x.to(**{k: v for k, v in made.items() if v is not None})


def _size(x: Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.size(dim)


def _convolution(
    x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *how: Any,
) -> Any:  # fmt: skip
    call = aten.PARTS["convolution"]
    return call(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)


def _interpolated(mode: str, corners: bool) -> Callable[..., Tensor]:
    """An upsampling: of a size and factors (vec), or of a size and the factor of each dimension."""

    def call(x: Tensor, size: Any, *rest: Any) -> Tensor:
        left = list(rest)
        align = left.pop(0) if corners and left else None
        factors = left[0] if left else None
        if isinstance(factors, (int, float)):
            factors = None  # the factor that the size came from
        if size is not None and len(size) == 0:
            size = None
        return F.interpolate(x, size, factors, mode, align_corners=align)

    return call


def _cross_entropy(
    x: Tensor, target: Tensor, weight: Any = None, reduction: Any = 1, ignored: int = -100,
    smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    return F.cross_entropy(
        x, target, weight, ignore_index=ignored, reduction=_reduction(reduction),
        label_smoothing=smoothing,
    )  # fmt: skip


def _nll(
    x: Tensor, target: Tensor, weight: Any = None, reduction: Any = 1, ignored: int = -100
) -> Tensor:
    reduced = _reduction(reduction)
    return F.nll_loss(x, target, weight, ignore_index=ignored, reduction=reduced)


def _loss(name: str) -> Callable[..., Tensor]:
    """A loss of nn.functional whose reduction is a number."""

    def call(x: Tensor, target: Tensor, *rest: Any) -> Tensor:
        named = dict(zip(_LOSSES[name], rest, strict=False))
        if "reduction" in named:
            named["reduction"] = _reduction(named["reduction"])
        return getattr(F, name)(x, target, **named)

    return call


def _embedding(
    weight: Tensor, indices: Tensor, padding: int = -1, scale: bool = False, sparse: bool = False
) -> Tensor:
    padding_idx = None if padding < 0 else padding
    return F.embedding(indices, weight, padding_idx, scale_grad_by_freq=scale, sparse=sparse)


def _view(x: Tensor, size: Any) -> Tensor:
    return x.view(_dtype(size) if isinstance(size, int) else size)


def _tensor(data: Any, **kwargs: Any) -> Tensor:
    made = {k: v for k, v in _named(kwargs).items() if v is not None}
    return tenon.tensor(data, **made)


def _warn(text: str, stacklevel: int = 2) -> None:
    warnings.warn(text, stacklevel=3)


def _encoder_layer(
    x: Tensor, width: int, heads: int, in_w: Tensor, in_b: Tensor, out_w: Tensor, out_b: Tensor,
    gelu: bool, norm_first: bool, eps: float, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
    up_w: Tensor, up_b: Tensor, down_w: Tensor, down_b: Tensor, mask: Any = None, kind: Any = None,
) -> Tensor:  # fmt: skip
    """A layer of nn.TransformerEncoder in evaluation, batch first."""

    def attended(y: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (heads, -1)).transpose(-3, -2)
            for t in F.linear(y, in_w, in_b).chunk(3, -1)
        )
        hidden = mask
        if mask is not None:
            hidden = ~mask if mask.dtype == tenon.bool else mask
            hidden = hidden[:, None, None, :] if kind == 1 else hidden
        z = F.scaled_dot_product_attention(q, k, v, hidden)
        return F.linear(z.transpose(-3, -2).flatten(-2), out_w, out_b)

    def forward(y: Tensor) -> Tensor:
        hidden = F.linear(y, up_w, up_b)
        return F.linear(F.gelu(hidden) if gelu else F.relu(hidden), down_w, down_b)

    def norm(y: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(y, (width,), w, b, eps)

    if norm_first:
        x = x + attended(norm(x, w1, b1))
        return x + forward(norm(x, w2, b2))
    x = norm(x + attended(x), w1, b1)
    return norm(x + forward(x), w2, b2)


_OWN: dict[str, Callable[..., Any]] = {
    "to": _to, "size": _size, "len": lambda x: len(x), "item": lambda x: x.item(),
    "_convolution": _convolution, "convolution": _convolution, "tensor": _tensor, "view": _view,
    "as_tensor": _tensor, "embedding": _embedding, "cross_entropy_loss": _cross_entropy,
    "nll_loss": _nll, "nll_loss_nd": _nll, "nll_loss2d": _nll, "warn": _warn,
    "_transformer_encoder_layer_fwd": _encoder_layer, "Int": to_int, "Float": to_float,
    "Bool": to_bool, "IntImplicit": to_int, "FloatImplicit": to_float, "Complex": complex,
    "ScalarImplicit": lambda x: x.item() if isinstance(x, Tensor) else x,
    "contiguous": lambda x, memory_format=0: x.contiguous(memory_format=_format(memory_format)),
    "clone": lambda x, memory_format=None: x.clone(memory_format=_format(memory_format or 1)),
    "dim": lambda x: x.dim(), "numel": lambda x: x.numel(), "stride": lambda x, *d: x.stride(*d),
    "device": lambda text: tenon.device(text), "is_scripting": lambda: True,
    "type_as": lambda x, other: x.type_as(other), "layer_norm": lambda x, shape, w=None, b=None,
    eps=1e-5, cudnn=True: F.layer_norm(x, shape, w, b, eps),
    "group_norm": lambda x, n, w=None, b=None, eps=1e-5, cudnn=True: F.group_norm(x, n, w, b, eps),
    "__contains__": lambda values, x: any(bool((v == x).all()) for v in values),
    "append": PLAIN["append"], "_set_item": PLAIN["_set_item"], "insert": PLAIN["insert"],
    "extend": PLAIN["extend"], "pop": PLAIN["pop"], "__is__": PLAIN["__is__"],
    "__isnot__": PLAIN["__isnot__"], "__getitem__": PLAIN["__getitem__"],
    "format": PLAIN["format"], "list": list, "setdefault": PLAIN["setdefault"],
    "sum": lambda x, *rest, **named: tenon.sum(x, *rest, **named)
    if isinstance(x, Tensor) else sum(x),
    "multi_head_attention_forward": F.multi_head_attention_forward,
    "wait": lambda future: future.wait(), "set_grad_enabled": tenon.set_grad_enabled,
}  # fmt: skip
_OWN |= {
    f"adaptive_max_pool{dims}": functools.partial(
        getattr(F, f"adaptive_max_pool{dims}"), return_indices=True
    )
    for dims in ("1d", "2d", "3d")
}
_OWN |= {name: _loss(name) for name in _LOSSES}
_OWN |= {
    f"upsample_{mode}{dims}": _interpolated(name, mode not in ("nearest", "_nearest_exact"))
    for mode, name, ends in (
        ("nearest", "nearest", ("1d", "2d", "3d")), ("linear", "linear", ("1d",)),
        ("bilinear", "bilinear", ("2d",)), ("trilinear", "trilinear", ("3d",)),
        ("bicubic", "bicubic", ("2d",)),
    )
    for dims in ends
}  # fmt: skip


def _raise(text: str, kind: str = "") -> None:
    raise Error(f"{kind or 'builtins.RuntimeError'}: {text}")


def _unwrapped(value: Any) -> Any:
    if value is None:
        raise Error("builtins.AssertionError: Unwrapping null optional")
    return value


def _number_to_tensor(value: Any) -> Tensor:
    return tenon.tensor(value)


_PRIM: dict[str, Callable[..., Any]] = {
    "dtype": lambda x: _number_of_dtype(x.dtype), "device": lambda x: x.device,
    "layout": lambda x: LAYOUTS.index(str(x.layout).rpartition(".")[2]),
    "RaiseException": _raise, "NumToTensor": _number_to_tensor, "requires_grad": lambda x:
    x.requires_grad, "data": lambda x: x.data, "grad": lambda x: x.grad, "shape": _size,
    "is_cuda": lambda x: x.is_cuda, "is_cpu": lambda x: x.device.type == "cpu",
    "is_sparse": lambda x: x.is_sparse, "is_meta": lambda x: x.is_meta,
    "is_quantized": lambda x: x.is_quantized, "is_mkldnn": lambda x: False,
    "is_nested": lambda x: x.is_nested, "is_mps": lambda x: False, "is_vulkan": lambda x: False,
    "is_xla": lambda x: False, "is_xpu": lambda x: False, "is_ipu": lambda x: False,
    "itemsize": lambda x: x.itemsize, "ndim": lambda x: x.dim(), "T": lambda x: x.T,
    "mT": lambda x: x.mT, "H": lambda x: x.H, "mH": lambda x: x.mH, "name": lambda x: x.name,
    "index": lambda x: x.index, "type": lambda x: x.type, "Print": print,
    "unchecked_unwrap_optional": _unwrapped, "rangelist": lambda n: list(range(n)),
    "abs": lambda x: abs(x), "tolist": lambda x, *kind: x.tolist(),
    "max": lambda *v: PLAIN["max"](*v), "min": lambda *v: PLAIN["min"](*v),
    "is_scripting": lambda: True, "isinstance": isinstance, "TupleUnpack": tuple,
}  # fmt: skip


# ---- Words ---------------------------------------------------------------------------------------


# Where functions of the package are that are operators of PyTorch's library, and others of them.
_PLACES = frozenset(f"_tensor.{name}" for name in (
    "convolution", "functions", "inner", "lobpcg", "lowrank", "matrix", "segments", "signal",
    "sparse", "twins",
))  # fmt: skip
_MORE = frozenset((
    "embedding_bag", "is_autocast_cpu_enabled", "is_autocast_enabled", "is_grad_enabled",
    "manual_seed", "quantize_per_channel", "quantize_per_tensor",
))  # fmt: skip


def _is_operator(name: str) -> bool:
    """Whether a name is one that computes, and none of the package's others: a file may say any."""
    if name.startswith("__") or not name.isidentifier():
        return False
    if name in aten.PARTS or name in _MORE or aten._written_in_python(name) is not None:
        return True
    if hasattr(_C._ops, name) or hasattr(_C._nn, name):
        return True
    if isinstance(getattr(Tensor, name, None), type(Tensor.add)):
        return True
    inside = isinstance(getattr(F, name, None), FunctionType) and not name.startswith("_")
    return inside or tenon._LATER.get(name) in _PLACES


def _python_function(name: str) -> Callable[..., Any] | None:
    """The function of an operator that takes what PyTorch's schemas name, in that order."""
    if not _is_operator(name):
        return None
    module, _, inside = name.partition("_")
    if name in aten.PARTS:
        return aten.PARTS[name]
    if module in ("linalg", "special", "fft") and inside:
        found = getattr(getattr(tenon, module), inside, None)
    else:
        found = getattr(tenon, name, None)
    if found is None and not name.startswith("_"):
        found = getattr(Tensor, name, None)
    return found if callable(found) and not isinstance(found, type) else aten._find(name)


def operator(name: str) -> Callable[..., Any]:
    """`torch.name`. One that is not known is an error when it is called, not before."""
    plain, own = PLAIN.get(name), _OWN.get(name)
    found = own or _python_function(name)
    if plain is None and found is None:
        found = aten._absent(name)
    dtype_at = _DTYPE_AT.get(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if plain is not None and not kwargs and not _has_tensor(args):
            return plain(*args)
        if found is None:
            raise NotImplementedError(f"TorchScript's torch.{name} takes no tensor")
        if dtype_at is not None and len(args) > dtype_at:
            args = (*args[:dtype_at], _dtype(args[dtype_at]), *args[dtype_at + 1 :])
        return _listed(found(*args, **(kwargs if own else _named(kwargs))))

    call.__name__ = name
    return call


def word(text: str) -> Any:
    """What a word of code means, but for those of `__torch__` and CONSTANTS."""
    first, *rest = text.split(".")
    if first == "torch" and len(rest) == 1:
        return operator(rest[0])
    if first == "ops" and len(rest) == 2:
        space, name = rest
        if space == "prim":
            if name in _PRIM:
                return _PRIM[name]
            return operator(name)
        if space == "aten":
            return operator(name)
        library = None if space.startswith("_") else getattr(tenon.ops, space)
        found = getattr(library, name, None) if isinstance(library, Namespace) else None
        if found is None:
            raise FileFormatError(
                f"the archive calls {space}::{name}, which no library has registered here"
            )
        return found
    raise FileFormatError(f"the archive says {text[:100]!r}, which is no word of TorchScript")
