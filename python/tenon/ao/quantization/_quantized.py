"""Quantized tensors: whole numbers with the grid on which they lie, a value being
(number - zero_point) * scale. They are kept, moved, shown, pooled, averaged and cut, and some
activations take them; what computes otherwise takes floats, which `dequantize()` gives, or belongs
to the layers of `ao.nn.quantized`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.called import name_of
from tenon._tensor.print import add_suffixes, elements_text
from tenon._tensor.routed import SIZES, route_methods
from tenon.ao.quantization._grids import (
    QScheme,
    QType,
    per_channel_affine,
    per_tensor_affine,
    qint8,
    qint32,
    quint8,
)
from tenon.overrides import DisableTorchFunctionSubclass

_KEPT = {qint8: tenon.int8, quint8: tenon.uint8, qint32: tenon.int32}
_MOVING = {
    "__getitem__", "chunk", "clone", "contiguous", "cpu", "cuda", "detach", "expand", "flatten",
    "flip", "index_select", "movedim", "narrow", "permute", "ravel", "repeat", "reshape", "select",
    "split", "squeeze", "swapaxes", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view",
}  # fmt: skip
# Operators of which f(a x) = a f(x): of steps they give steps, on the same grid.
_LINEAR = {
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "max_pool1d", "max_pool2d", "mean",
}  # fmt: skip
_KEEPING = {"clamp", "hardtanh", "leaky_relu", "masked_fill", "pad", "relu6"}  # keep the grid, too
_COMPARING = {"eq", "ge", "gt", "le", "lt", "ne"}
_ORDERING = {"max", "min", "sort", "topk"}  # pick among the steps
_FIXED = {  # steps and zero points of results whose range is known
    "sigmoid": {quint8: (1 / 256, 0), qint8: (1 / 256, -128)},
    "hardsigmoid": {quint8: (1 / 256, 0), qint8: (1 / 256, -128)},
    "tanh": {quint8: (2 / 256, 128), qint8: (2 / 256, 0)},
}


@dataclass(frozen=True)
class Grid:
    """Where the whole numbers of a tensor lie."""

    dtype: QType
    scheme: QScheme
    scale: Any  # a number; per channel a vector of float64
    zero_point: Any  # a number; per channel a vector of int64
    axis: int | None = None

    def along(self, value: Any, rank: int) -> Any:
        """scale or zero_point where it meets a tensor of that rank."""
        if self.axis is None:
            return value
        return value.reshape([-1 if d == self.axis else 1 for d in range(rank)])


class QuantizedTensor(Tensor):
    """Whole numbers and their grid."""

    _grid: Grid

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return self._grid.dtype

    @property
    def is_quantized(self) -> bool:  # type: ignore[override]
        return True

    def int_repr(self) -> Tensor:
        """The whole numbers, as a tensor of them."""
        return _numbers(self).clone()

    def dequantize(self) -> Tensor:
        """The values, as float32."""
        with DisableTorchFunctionSubclass():
            grid, numbers = self._grid, _numbers(self).float()
            zero = grid.along(grid.zero_point, numbers.dim())
            return (numbers - zero) * _single(grid.along(grid.scale, numbers.dim()))

    def qscheme(self) -> QScheme:
        """How the grid is laid."""
        return self._grid.scheme

    def _one(self, name: str) -> Any:
        if self._grid.axis is not None:
            raise RuntimeError(f"Expected quantizer->qscheme() == kPerTensorAffine: {name} of a "
                               "tensor with a grid for each channel")  # fmt: skip
        return getattr(self._grid, name)

    def q_scale(self) -> float:
        """The step of the grid."""
        return float(self._one("scale"))

    def q_zero_point(self) -> int:
        """The number that stands for 0."""
        return int(self._one("zero_point"))

    def _each(self, name: str) -> Any:
        if self._grid.axis is None:
            raise RuntimeError(f"{name} of a tensor with one grid for all channels")
        return getattr(self._grid, name)

    def q_per_channel_scales(self) -> Tensor:
        """The steps, by channel."""
        return self._each("scale")

    def q_per_channel_zero_points(self) -> Tensor:
        """The numbers that stand for 0, by channel."""
        return self._each("zero_point")

    def q_per_channel_axis(self) -> int:
        """The dimension of channels."""
        return self._each("axis")

    def equal(self, other: Tensor) -> bool:
        """Whether the other one is quantized alike and has the same values."""
        if not isinstance(other, QuantizedTensor) or other.dtype is not self.dtype:
            return False
        return self.dequantize().equal(other.dequantize())

    def __bool__(self) -> bool:
        return bool(self.dequantize())

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedTensor:
        return memo.setdefault(id(self), quantized(self.int_repr(), self._grid))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return quantized, (self.int_repr(), self._grid)

    def __repr__(self, **options: Any) -> str:
        grid = self._grid
        more = [f"size={tuple(self.shape)}", f"dtype={grid.dtype}",
                f"quantization_scheme={grid.scheme}", f"scale={grid.scale}",
                f"zero_point={grid.zero_point}"]  # fmt: skip
        more += [] if grid.axis is None else [f"axis={grid.axis}"]
        body = elements_text(self.dequantize(), len("tensor(")) if self.numel() else "[]"
        return add_suffixes("tensor(" + body, more, len("tensor("))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.dequantize(), spec) if self.dim() == 0 else object.__format__(self, spec)


def _numbers(t: Tensor) -> Tensor:
    with DisableTorchFunctionSubclass():
        return t.as_subclass(Tensor)


def _single(value: Any) -> Any:
    """A scale as float32 has it."""
    return value.float() if isinstance(value, Tensor) else float(tenon.tensor(value).float())


def quantized(numbers: Tensor, grid: Grid) -> QuantizedTensor:
    """A quantized tensor of these whole numbers."""
    with DisableTorchFunctionSubclass():
        made = numbers.detach().as_subclass(QuantizedTensor)
    made._grid = grid
    return made


def _computes(name: str, grid: Grid, kwargs: dict[str, Any]) -> bool:
    """Whether an operator computes with floats of which the grid of its result is known."""
    if grid.axis is not None or grid.dtype is qint32 or "dtype" in kwargs:
        return False
    return name in _LINEAR or name in _KEEPING or grid.dtype in _FIXED.get(name, ())


def _computed(
    name: str, func: Callable[..., Any], self: QuantizedTensor, *args: Any, **kwargs: Any
) -> QuantizedTensor:
    """The result of such an operator."""
    grid = self._grid
    with DisableTorchFunctionSubclass():
        if name in _LINEAR:
            steps = func(_numbers(self).float() - grid.zero_point, *args, **kwargs)
            at = (steps + grid.zero_point).round().clamp(grid.dtype.low, grid.dtype.high)
            return quantized(at.to(_KEPT[grid.dtype]), grid)
        floats = func(self.dequantize(), *args, **kwargs)
        scale, zero_point = _FIXED.get(name, {}).get(grid.dtype, (grid.scale, grid.zero_point))
        return _laid(floats, Grid(grid.dtype, grid.scheme, scale, zero_point), scale, zero_point)


def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with a quantized tensor among its arguments."""
    name = name_of(func)
    self = next((v for v in args if isinstance(v, QuantizedTensor)), None)
    if self is not None and self is args[0] and _computes(name, self._grid, kwargs):
        return _computed(name, func, *args, **kwargs)
    if self is not None and name.strip("_") in _COMPARING:
        values = [v.dequantize() if isinstance(v, QuantizedTensor) else v for v in args]
        with DisableTorchFunctionSubclass():
            return func(*values, **kwargs)
    if self is not None and self is args[0] and name in _ORDERING and self._grid.axis is None:
        with DisableTorchFunctionSubclass():
            picked = func(_numbers(self), *args[1:], **kwargs)
        if isinstance(picked, Tensor):
            return quantized(picked, self._grid)
        return type(picked)((quantized(picked[0], self._grid), picked[1]))
    known = name in _MOVING or name in ("relu", "cat", "equal", "dequantize")
    if name == "cat" and all(isinstance(v, QuantizedTensor) for v in args[0]):
        self = args[0][0]
        known = all(v._grid == self._grid for v in args[0])
    if self is None or not known or (self._grid.axis is not None and name in _MOVING - _SAME):
        raise NotImplementedError(
            f"{name}() is not there for quantized tensors: dequantize() gives floats"
        )
    if name in ("equal", "dequantize"):
        return getattr(self, name)(*args[1:])
    with DisableTorchFunctionSubclass():
        if name == "relu":
            return quantized(_numbers(self).clamp(min=self.q_zero_point()), self._grid)
        plain = [[_numbers(v) for v in args[0]] if name == "cat" else _numbers(args[0]), *args[1:]]
        out = func(*plain, **kwargs)
    if isinstance(out, list | tuple):
        return type(out)(quantized(o, self._grid) for o in out)
    return quantized(out, self._grid)


_SAME = {"clone", "contiguous", "cpu", "cuda", "detach"}  # leave the channels where they are


route_methods(QuantizedTensor, run, {*SIZES, "data_ptr", "storage_offset"})


# ---- Making --------------------------------------------------------------------------------------


def _checked(input: Tensor, dtype: Any, name: str) -> None:
    if not isinstance(input, Tensor) or input.dtype is not tenon.float32:
        got = getattr(input, "dtype", type(input).__name__)
        raise RuntimeError(f"{name}: Quantize only works on Float Tensor, got {got}")
    if dtype not in _KEPT:
        raise RuntimeError(f"{name}: expected qint8, quint8 or qint32, got {dtype}")


def _laid(input: Tensor, grid: Grid, scale: Any, zero_point: Any) -> QuantizedTensor:
    # Bytes: one rounding to float32 behind product and sum, as of a fused multiply-add.
    steps, values = 1.0 / tenon.as_tensor(scale).float(), input.detach()
    if grid.dtype is not qint32:
        steps, values = steps.double(), values.double()
    at = (values * steps + zero_point).float().round()
    cut = at.double().clamp(grid.dtype.low, grid.dtype.high)
    return quantized(cut.to(_KEPT[grid.dtype]), grid)


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """A float tensor on a grid: round(input / scale + zero_point), cut to what dtype holds. A list
    of tensors, with vectors of scales and zero points, gives a list.

    >>> tn.quantize_per_tensor(tn.tensor([0.5, 9.0]), 0.1, 10, tn.quint8).int_repr()
    tensor([ 15, 100], dtype=tenon.uint8)
    """
    if isinstance(input, list | tuple):
        rows = zip(input, scale.tolist(), zero_point.tolist(), strict=True)
        return [quantize_per_tensor(x, s, z, dtype) for x, s, z in rows]
    _checked(input, dtype, "quantize_per_tensor")
    scale, zero_point = float(scale), int(zero_point)
    for bound, outside in (("below lower", zero_point < dtype.low),
                           ("above upper", zero_point > dtype.high)):  # fmt: skip
        if outside:
            raise RuntimeError(f"quantize_per_tensor: zero_point {zero_point} is {bound} bound.")
    return _laid(input, Grid(dtype, per_tensor_affine, scale, zero_point), scale, zero_point)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any
) -> QuantizedTensor:
    """The same with a scale and a zero point for each place along axis.

    >>> grid = tn.tensor([0.5, 1.0]), tn.tensor([0, 0])
    >>> tn.quantize_per_channel(tn.ones(2, 1), *grid, 0, tn.qint8).int_repr().tolist()
    [[2], [1]]
    """
    _checked(input, dtype, "quantize_per_channel")
    if not -input.dim() <= axis < input.dim():
        raise RuntimeError(f"quantize_per_channel: axis {axis} of {input.dim()} dimensions")
    axis %= input.dim()
    if scales.shape != (input.shape[axis],) or zero_points.shape != scales.shape:
        raise RuntimeError(
            f"quantize_per_channel: expected {input.shape[axis]} scales and zero points, got "
            f"{tuple(scales.shape)} and {tuple(zero_points.shape)}"
        )
    grid = Grid(dtype, per_channel_affine, scales.double(), zero_points.long(), axis)
    rank = input.dim()
    return _laid(input, grid, grid.along(grid.scale, rank), grid.along(grid.zero_point, rank))


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """A float tensor on the grid that its own range, with 0 in it, asks for; reduce_range leaves
    one bit free.

    >>> tn.quantize_per_tensor_dynamic(tn.tensor([0.0, 2.55]), tn.quint8, False).q_zero_point()
    0
    """
    _checked(input, dtype, "quantize_per_tensor_dynamic")
    first, last = dtype.low, dtype.high
    if reduce_range:
        first, last = int(first / 2), int(last / 2)
    low = min(input.min().item(), 0.0) if input.numel() else 0.0
    high = max(input.max().item(), 0.0) if input.numel() else 0.0
    scale = (high - low) / (last - first) or 0.1
    # Both ends ask for a zero point; the smaller terms have lost less.
    from_low, from_high = first - low / scale, last - high / scale
    exact = abs(first) + abs(low / scale) < abs(last) + abs(high / scale)
    zero_point = round(from_low if exact else from_high)
    return quantize_per_tensor(input, scale, max(first, min(last, zero_point)), dtype)


def dequantize(tensor: Any) -> Any:
    """The floats of a quantized tensor, or of a list of them; a float tensor stays.

    >>> tn.dequantize(tn.quantize_per_tensor(tn.tensor([1.0]), 0.5, 0, tn.qint8))
    tensor([1.])
    """
    if isinstance(tensor, list | tuple):
        return type(tensor)(dequantize(t) for t in tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"dequantize(): argument 'tensor' (position 1) must be Tensor, "
            f"not {type(tensor).__name__}"
        )
    return tensor.dequantize() if isinstance(tensor, QuantizedTensor) else tensor.float()
