"""MaskedTensor: data and a mask of its shape that says which elements count.

The object itself shows shape, dtype and device; what is computed with is `_data`, an ordinary
tensor with its history, and `_mask`. Calls arrive in `run`: reductions and softmax go to the
functions of tenon.masked, elementwise ones to the data, those that move elements to data and mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, masked
from tenon._tensor.called import is_inplace, is_pointwise, name_of
from tenon._tensor.routed import KINDS, SIZES, route_methods
from tenon.overrides import DisableTorchFunctionSubclass

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]

_UNARY = {
    "abs", "absolute", "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctanh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clamp", "clip",
    "conj_physical", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "fix", "floor", "frac", "i0", "isfinite", "isinf", "isnan", "lgamma", "log", "log10",
    "log1p", "log2", "logical_not", "logit", "mvlgamma", "nan_to_num", "neg", "negative",
    "polygamma", "positive", "pow", "rad2deg", "real", "reciprocal", "relu", "round", "rsqrt",
    "sgn", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
    "__abs__", "__neg__", "__pos__", "__invert__", "__round__",
    "to", "type", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte",
    "bool", "cpu", "cuda", "contiguous", "clone", "detach",
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
}  # fmt: skip
_BINARY = {
    "add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "div", "divide", "eq", "equal", "float_power",
    "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal", "gt", "hypot", "le",
    "less", "less_equal", "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor",
    "lt", "maximum", "minimum", "mul", "multiply", "ne", "nextafter", "not_equal", "remainder",
    "rsub", "sub", "subtract", "true_divide", "xlogy",
    *(f"__{n}__" for n in (
        "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv",
        "rfloordiv", "mod", "rmod", "pow", "rpow", "and", "or", "xor", "eq", "ne", "lt", "le",
        "gt", "ge", "iadd", "isub", "imul", "itruediv",
    )),
}  # fmt: skip
_MOVING = {
    "__getitem__", "cat", "chunk", "expand", "expand_as", "flatten", "flip", "gather",
    "index_select", "movedim", "narrow", "permute", "ravel", "repeat", "reshape", "roll", "select",
    "split", "squeeze", "stack", "t", "take_along_dim", "transpose", "swapaxes", "unbind",
    "unflatten", "unsqueeze", "unfold", "view", "view_as",
}  # fmt: skip
_REDUCING = {
    "sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "median", "var", "std", "norm",
    "logsumexp", "cumsum", "cumprod", "softmax", "log_softmax",
}  # fmt: skip


def _split(value: Any, part: str) -> Any:
    """The arguments with the data, or the masks, in the place of masked tensors."""
    if isinstance(value, MaskedTensor):
        return getattr(value, part)
    if isinstance(value, list | tuple) and not isinstance(value, tenon.Size):
        return type(value)(_split(v, part) for v in value)
    if isinstance(value, dict):
        return {k: _split(v, part) for k, v in value.items()}
    return value


def _wrapped(data: Any, mask: Any) -> Any:
    """A masked tensor, or a list of them, of results."""
    if isinstance(data, list | tuple):
        return type(data)(_wrapped(d, m) for d, m in zip(data, mask, strict=True))
    return MaskedTensor._of(data, mask)


def _same_mask(args: tuple[Any, ...]) -> Tensor:
    masks = [v._mask for v in args if isinstance(v, MaskedTensor)]
    if any(not tenon.equal(m, masks[0]) for m in masks[1:]):
        raise ValueError("Input masks must match: these two leave other elements out")
    return masks[0]


def _elementwise(func: Callable[..., Any], args: Any, kwargs: Any, mask: Tensor) -> Any:
    data = func(*_split(args, "_data"), **_split(kwargs, "_data"))
    if not isinstance(data, Tensor):
        return data
    return MaskedTensor._of(data, mask.expand(data.shape))


def _where(condition: Tensor, a: Any, b: Any) -> MaskedTensor:
    masks = [v._mask if isinstance(v, MaskedTensor) else tenon.tensor(True) for v in (a, b)]
    with DisableTorchFunctionSubclass():
        data = tenon.where(condition, _split(a, "_data"), _split(b, "_data"))
        return MaskedTensor._of(data, tenon.where(condition, *masks).expand(data.shape))


def _reduced(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MaskedTensor:
    """By the function of tenon.masked; a result counts where any element of its own does."""
    self, *rest = args
    keywords = {**dict(zip(("dim", "keepdim"), rest, strict=False)), **kwargs}
    keywords.pop("_stacklevel", None)
    function, ord_ = getattr(masked, name), ()
    if name == "norm":
        keywords = {**dict(zip(("p", "dim", "keepdim"), rest, strict=False)), **kwargs}
        p = keywords.pop("p", 2)
        ord_ = (2 if p in ("fro", None) else p,)
    if name == "argmax" or name == "argmin" or name == "median":
        flat = keywords.get("dim") is None
        data, mask = (self._data.flatten(), self._mask.flatten()) if flat else (
            self._data, self._mask)  # fmt: skip
        keywords["dim"] = 0 if flat else keywords["dim"]
    else:
        data, mask = self._data, self._mask
    result = function(data, *ord_, **keywords, mask=mask)
    left = masked._output_mask(function, data, *ord_, **keywords, mask=mask)
    return MaskedTensor._of(result, left.expand(result.shape))


def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with a masked tensor among its arguments."""
    name = name_of(func)
    inplace = is_inplace(name)
    base = name[:-1] if inplace else name
    if name == "where":
        return _where(*args, **kwargs)
    if base in ("all", "any"):
        self, *rest = args
        filled = self._data.masked_fill(~self._mask, base == "all").to(tenon.bool)
        return MaskedTensor._of(func(filled, *rest, **kwargs),
                                tenon.any(self._mask, *rest, **kwargs))  # fmt: skip
    if base in _REDUCING and isinstance(args[0], MaskedTensor):
        return _reduced(base, args, kwargs)
    with DisableTorchFunctionSubclass():
        if base in _BINARY or base in _UNARY or is_pointwise(name):
            mask = _same_mask(args)
            out = _elementwise(func, args, kwargs, mask)
            return args[0] if inplace or name.startswith("__i") and name != "__invert__" else out
        if base in _MOVING and not inplace:
            data = func(*_split(args, "_data"), **_split(kwargs, "_data"))
            return _wrapped(data, func(*_split(args, "_mask"), **_split(kwargs, "_mask")))
    raise TypeError(f"{base}() is not there for masked tensors; use get_data() or to_tensor(value)")


def _check(data: Any, mask: Any) -> None:
    for name, value in (("data", data), ("mask", mask)):
        if not isinstance(value, Tensor) or isinstance(value, MaskedTensor):
            raise TypeError(f"{name} must be a Tensor")
        if value.layout is not tenon.strided:
            raise TypeError(f"MaskedTensor: {name} must be strided, not {value.layout}")
    if mask.dtype is not tenon.bool:
        raise TypeError("mask must have dtype bool.")
    if data.shape != mask.shape:
        raise ValueError(
            f"data.size() must equal mask.size(), got {tuple(data.shape)} and {tuple(mask.shape)}"
        )


class MaskedTensor(Tensor):
    """A tensor whose elements count where its mask is True."""

    _data: Tensor
    _mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        _check(data, mask)
        return cls._of(data.detach().clone().requires_grad_(requires_grad), mask.clone())

    @classmethod
    def _of(cls, data: Tensor, mask: Tensor) -> MaskedTensor:
        with DisableTorchFunctionSubclass():
            made = data.detach().as_subclass(cls)
        made._data, made._mask = data, mask
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def _carriers(self) -> list[Tensor]:
        return [self._data]

    def _with_carriers(self, tensors: list[Tensor]) -> MaskedTensor:
        return MaskedTensor._of(tensors[0], self._mask)

    def get_data(self) -> Tensor:
        """All elements."""
        return self._data

    def get_mask(self) -> Tensor:
        """Which of them count."""
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """A plain tensor with `value` where elements do not count."""
        return self._data.masked_fill(~self._mask, value)

    def to_dense(self) -> MaskedTensor:
        """The tensor itself, which is dense."""
        return self

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return self._data.requires_grad

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        return self._data.is_leaf

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]
        return self._data.grad_fn

    @property
    def grad(self) -> MaskedTensor | None:  # type: ignore[override]
        found = self._data.grad
        return None if found is None else MaskedTensor._of(found, self._mask)

    @property
    def T(self) -> MaskedTensor:  # noqa: N802
        return MaskedTensor._of(self._data.T, self._mask.T)

    @property
    def mT(self) -> MaskedTensor:  # noqa: N802
        return MaskedTensor._of(self._data.mT, self._mask.mT)

    def requires_grad_(self, requires_grad: bool = True) -> MaskedTensor:
        self._data.requires_grad_(requires_grad)
        return self

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Gradients of the tensors that the data was made of."""
        self._data.backward(_split(gradient, "_data"), *args, **kwargs)

    def retain_grad(self) -> None:
        """Makes the backward pass leave .grad here, where this is no leaf."""
        self._data.retain_grad()

    def register_hook(self, hook: Callable[[MaskedTensor], Any]) -> Any:
        """hook(gradient), which is masked, too, runs when that is there and may return one."""
        return self._data.register_hook(
            lambda grad: _split(hook(MaskedTensor._of(grad, self._mask)), "_data")
        )

    def item(self) -> Any:
        """The number, where it counts."""
        if self.numel() == 1 and not bool(self._mask):
            raise RuntimeError("item(): the element is masked out")
        return self._data.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> MaskedTensor:
        again = MaskedTensor(self._data, self._mask, self.requires_grad)
        return memo.setdefault(id(self), again)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _again, (self._data.detach(), self._mask, self.requires_grad)

    def __repr__(self, **options: Any) -> str:
        texts = [
            _MISSING if not counts else f"{value:.4f}" if isinstance(value, float) else str(value)
            for value, counts in zip(
                self._data.detach().flatten().tolist(), self._mask.flatten().tolist(), strict=True
            )
        ]
        if self.dim() == 0:
            width = 8 if self.is_floating_point() and texts[0] != _MISSING else 0
            return f"MaskedTensor({texts[0]:>{width}}, {bool(self._mask)})"
        wide = self.is_floating_point()
        cells = [f"{t:>8}" if wide and t != _MISSING else t for t in texts]
        return f"MaskedTensor(\n{_rows(cells, list(self.shape), 2)}\n)"

    __str__ = __repr__
    __format__ = object.__format__  # type: ignore[assignment]


_MISSING = "--"


def _rows(cells: list[str], shape: list[int], indent: int) -> str:
    pad = " " * indent
    if len(shape) == 1:  # what is missing is as wide as the widest element of its row
        width = max((8 if c == _MISSING else len(c) for c in cells), default=0)
        row = (c.rjust(width) if c == _MISSING else c for c in cells)
        return f"{pad}[{', '.join(row)}]"
    step = len(cells) // shape[0] if shape[0] else 0
    parts = [
        _rows(cells[i * step : (i + 1) * step], shape[1:], indent + 2) for i in range(shape[0])
    ]
    return f"{pad}[\n" + ",\n".join(parts) + f"\n{pad}]"


def _again(data: Tensor, mask: Tensor, requires_grad: bool) -> MaskedTensor:
    """What a pickled masked tensor is made with."""
    return MaskedTensor(data, mask, requires_grad)


route_methods(MaskedTensor, run, SIZES | KINDS)


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A masked tensor of a copy of the data; `mask` is True where elements count.

    >>> masked.masked_tensor(tn.tensor([1.0, 2.0]), tn.tensor([True, False])).sum().item()
    1.0
    """
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor of this data, with its history: gradients reach what it was made of, with 0
    where elements do not count.

    >>> masked.as_masked_tensor(tn.tensor([1.0, 2.0]), tn.tensor([True, False])).mean().item()
    1.0
    """
    _check(data, mask)
    return MaskedTensor._of(data, mask)


def is_masked_tensor(obj: Any) -> bool:
    """Whether it is one."""
    return isinstance(obj, MaskedTensor)
