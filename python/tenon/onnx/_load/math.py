"""Operators of ONNX that compute element by element, reduce, and multiply."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import tenon as tn
from tenon._tensor.dims import wrapped_dim
from tenon.nn import functional as F
from tenon.onnx._load.registry import Context, dtype_of, ints, number, number_of, op

# ---- One value of one value ----------------------------------------------------------------------

_PLAIN: dict[str, Callable[..., Any]] = {
    "Abs": tn.abs, "Acos": tn.acos, "Acosh": tn.acosh, "Asin": tn.asin, "Asinh": tn.asinh,
    "Atan": tn.atan, "Atanh": tn.atanh, "Ceil": tn.ceil, "Cos": tn.cos, "Cosh": tn.cosh,
    "Erf": tn.erf, "Exp": tn.exp, "Floor": tn.floor, "Identity": lambda x: x, "Log": tn.log,
    "Neg": tn.neg, "Not": tn.logical_not, "Reciprocal": tn.reciprocal, "Relu": tn.relu,
    "Round": tn.round, "Sigmoid": tn.sigmoid, "Sign": tn.sign, "Sin": tn.sin, "Sinh": tn.sinh,
    "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": tn.sqrt, "Tan": tn.tan,
    "Tanh": tn.tanh, "IsNaN": tn.isnan, "Det": tn.linalg.det, "BitwiseNot": tn.bitwise_not,
    "HardSwish": lambda x: x * (x / 6 + 0.5).clamp(0, 1), "Mish": F.mish, "Inverse": tn.linalg.inv,
}  # fmt: skip
_PAIRS: dict[str, Callable[..., Any]] = {
    "Add": tn.add, "Sub": tn.sub, "Mul": tn.mul, "And": tn.logical_and, "Or": tn.logical_or,
    "Xor": tn.logical_xor, "Equal": tn.eq, "Greater": tn.gt, "Less": tn.lt,
    "GreaterOrEqual": tn.ge, "LessOrEqual": tn.le, "MatMul": tn.matmul,
    "BitwiseAnd": tn.bitwise_and, "BitwiseOr": tn.bitwise_or, "BitwiseXor": tn.bitwise_xor,
    "PRelu": lambda x, slope: tn.where(x < 0, x * slope, x),
}  # fmt: skip


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ctx, *inputs: fn(*inputs)


for _name, _fn in {**_PLAIN, **_PAIRS}.items():
    op(_name)(_plain(_fn))

# Before opset 7 the second operand's shape was said to lie at an axis of the first one's.


def _legacy(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(ctx: Context, a: Any, b: Any, axis: int | None = None, broadcast: int = 0) -> Any:
        if broadcast and axis is not None:
            b = b.reshape(*b.shape, *[1] * (a.ndim - wrapped_dim(axis, a.ndim) - b.ndim))
        return fn(a, b)

    return run


for _name in ("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less"):
    op(_name)(_legacy(_PAIRS[_name]))


@op("Div")
def div(ctx: Context, a: Any, b: Any, axis: int | None = None, broadcast: int = 0) -> Any:
    if a.is_floating_point() or a.is_complex():
        return _legacy(tn.div)(ctx, a, b, axis, broadcast)
    return tn.div(a, b, rounding_mode="trunc")


@op("Mod")
def mod(ctx: Context, a: Any, b: Any, fmod: int = 0) -> Any:
    return tn.fmod(a, b) if fmod else tn.remainder(a, b)


@op("Pow")
def power(ctx: Context, a: Any, b: Any, axis: int | None = None, broadcast: int = 0) -> Any:
    return tn.pow(a, b).to(a.dtype)


@op("BitShift")
def bit_shift(ctx: Context, a: Any, b: Any, direction: str) -> Any:
    fn = tn.bitwise_left_shift if direction == "LEFT" else tn.bitwise_right_shift
    return fn(a, b)


def _several(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda ctx, *inputs: reduce(fn, inputs)


op("Sum")(_several(tn.add))
op("Max")(_several(tn.maximum))
op("Min")(_several(tn.minimum))


@op("Mean")
def mean(ctx: Context, *inputs: Any) -> Any:
    return reduce(tn.add, inputs) / len(inputs)


@op("Where")
def where(ctx: Context, condition: Any, a: Any, b: Any) -> Any:
    return tn.where(condition, a, b)


@op("Clip")
def clip(ctx: Context, x: Any, low: Any = None, high: Any = None, min: Any = None,
         max: Any = None) -> Any:  # fmt: skip
    low, high = low if low is not None else min, high if high is not None else max
    for bound, fn in ((low, tn.maximum), (high, tn.minimum)):
        if bound is not None:
            other = bound if isinstance(bound, tn.Tensor) else tn.tensor(bound, dtype=x.dtype)
            x = fn(x, other.to(x.dtype))
    return x


@op("IsInf")
def is_inf(ctx: Context, x: Any, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = tn.zeros_like(x, dtype=tn.bool)
    if detect_negative:
        found = found | (x == -math.inf)
    return found | (x == math.inf) if detect_positive else found


@op("Elu")
def elu(ctx: Context, x: Any, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@op("Celu")
def celu(ctx: Context, x: Any, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@op("Selu")
def selu(ctx: Context, x: Any, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875) -> Any:  # fmt: skip
    return gamma * tn.where(x > 0, x, alpha * tn.expm1(x))


@op("Gelu")
def gelu(ctx: Context, x: Any, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@op("LeakyRelu")
def leaky_relu(ctx: Context, x: Any, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@op("ThresholdedRelu")
def thresholded_relu(ctx: Context, x: Any, alpha: float = 1.0) -> Any:
    return tn.where(x > alpha, x, tn.zeros_like(x))


@op("HardSigmoid")
def hard_sigmoid(ctx: Context, x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return (alpha * x + beta).clamp(0, 1)


@op("Shrink")
def shrink(ctx: Context, x: Any, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = tn.zeros_like(x)
    return tn.where(x < -lambd, x + bias, tn.where(x > lambd, x - bias, zero)).to(x.dtype)


@op("Swish")
def swish(ctx: Context, x: Any, alpha: float = 1.0) -> Any:
    return x * tn.sigmoid(alpha * x)


@op("Cast")
def cast(ctx: Context, x: Any, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return x.to(dtype_of(to))


@op("CastLike")
def cast_like(ctx: Context, x: Any, like: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(ctx, x, number_of(like.dtype))


@op("BitCast")
def bit_cast(ctx: Context, x: Any, to: int) -> Any:
    return x.view(dtype_of(to))


# ---- Reductions ----------------------------------------------------------------------------------


def _extreme(fn: Callable[..., Any], low: bool) -> Callable[..., Any]:
    def run(x: Any, dims: list[int], keep: bool) -> Any:
        if x.dtype == tn.bool:
            return run(x.to(tn.uint8), dims, keep).bool()
        if any(x.shape[d] == 0 for d in dims):
            like = tn.sum(x, dims, keep)
            edge = tn.finfo if x.is_floating_point() else tn.iinfo
            ends = (math.inf, -math.inf) if x.is_floating_point() else (
                edge(x.dtype).max, edge(x.dtype).min)  # fmt: skip
            return tn.full_like(like, ends[0] if low else ends[1], dtype=x.dtype)
        return fn(x, dims, keep)

    return run


def _product(x: Any, dims: list[int], keep: bool) -> Any:
    for d in sorted(dims, reverse=True):
        x = tn.prod(x, d, keep, dtype=x.dtype)
    return x


def _sum(x: Any, dims: list[int], keep: bool) -> Any:
    return tn.sum(x, dims, keep, dtype=x.dtype)


_REDUCED: dict[str, Callable[..., Any]] = {
    "ReduceSum": _sum, "ReduceProd": _product,
    "ReduceMean": lambda x, d, k: (
        tn.mean(x, d, k) if x.is_floating_point() else tn.mean(x.double(), d, k).to(x.dtype)
    ),
    "ReduceMax": _extreme(tn.amax, False), "ReduceMin": _extreme(tn.amin, True),
    "ReduceL1": lambda x, d, k: _sum(x.abs(), d, k),
    "ReduceL2": lambda x, d, k: _sum(x * x, d, k).sqrt().to(x.dtype),
    "ReduceSumSquare": lambda x, d, k: _sum(x * x, d, k),
    "ReduceLogSum": lambda x, d, k: _sum(x, d, k).log(),
    "ReduceLogSumExp": lambda x, d, k: (
        tn.logsumexp(x.double(), d, k).to(x.dtype) if x.numel() else _sum(x, d, k).log()
    ),
}  # fmt: skip


def _reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(ctx: Context, x: Any, given: Any = None, axes: Any = None, keepdims: int = 1,
            noop_with_empty_axes: int = 0) -> Any:  # fmt: skip
        dims = ints(given) if given is not None else axes
        if not dims:
            dims = [] if noop_with_empty_axes else list(range(x.ndim))
        return fn(x, [wrapped_dim(d, x.ndim) for d in dims], bool(keepdims)) if dims else fn(
            x.unsqueeze(0), [0], False)  # fmt: skip

    return run


for _name, _fn in _REDUCED.items():
    op(_name)(_reduction(_fn))


def _arg(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(ctx: Context, x: Any, axis: int = 0, keepdims: int = 1,
            select_last_index: int = 0) -> Any:  # fmt: skip
        if not select_last_index:
            return fn(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - fn(x.flip(axis), axis, bool(keepdims))

    return run


op("ArgMax")(_arg(tn.argmax))
op("ArgMin")(_arg(tn.argmin))


@op("CumSum")
def cumsum(ctx: Context, x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
    return _running(tn.cumsum, x, number(axis), exclusive, reverse, 0)


@op("CumProd")
def cumprod(ctx: Context, x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
    return _running(tn.cumprod, x, number(axis), exclusive, reverse, 1)


def _running(fn: Any, x: Any, dim: int, exclusive: int, reverse: int, start: int) -> Any:
    x = x.flip(dim) if reverse else x
    y = fn(x, dim, dtype=x.dtype)
    if exclusive:
        first = tn.full_like(y.narrow(dim, 0, 1), start)
        y = tn.cat([first, y.narrow(dim, 0, y.shape[dim] - 1)], dim)
    return y.flip(dim) if reverse else y


@op("TopK")
def topk(ctx: Context, x: Any, k: Any = None, axis: int = -1, largest: int = 1,
         sorted: int = 1) -> Any:  # fmt: skip
    y, at = tn.sort(x, dim=axis, descending=bool(largest), stable=True)
    return y.narrow(axis, 0, number(k)), at.narrow(axis, 0, number(k))


# ---- Products ------------------------------------------------------------------------------------


@op("Gemm")
def gemm(ctx: Context, a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0,
         transA: int = 0, transB: int = 0, broadcast: int = 0) -> Any:  # fmt: skip
    y = (a.t() if transA else a) @ (b.t() if transB else b)
    y = y if alpha == 1 else y * alpha
    return y if c is None else y + (c if beta == 1 else c * beta)


@op("Einsum")
def einsum(ctx: Context, *inputs: Any, equation: str) -> Any:
    return tn.einsum(equation.replace(" ", ""), *inputs)


def _less(x: Any, zero: Any, is_rows: bool) -> Any:
    if zero is None:
        return x.to(tn.int32)
    if zero.ndim == 1 and zero.numel() > 1 and is_rows:
        zero = zero.reshape(-1, 1)
    return x.to(tn.int32) - zero.to(tn.int32)


@op("MatMulInteger")
def matmul_integer(ctx: Context, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return tn.matmul(_less(a, a_zero, True), _less(b, b_zero, False)).to(tn.int32)


@op("QLinearMatMul")
def qlinear_matmul(ctx: Context, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any,
                   b_zero: Any, y_scale: Any, y_zero: Any) -> Any:  # fmt: skip
    y = tn.matmul(_less(a, a_zero, True), _less(b, b_zero, False))
    return quantized(y.float() * (a_scale.float() * b_scale.float() / y_scale.float()), y_zero)


def quantized(x: Any, zero: Any) -> Any:
    """Values on the scale as numbers of the zero point's dtype."""
    info = tn.iinfo(zero.dtype)
    return (tn.round(x) + zero.to(x.dtype)).clamp(info.min, info.max).to(zero.dtype)


def _along(p: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point in x's shape."""
    if p.ndim == 0 or (p.numel() == 1 and not block):
        return p.reshape(())
    if block:
        return p.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    axis = wrapped_dim(axis, x.ndim)
    return p.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


@op("QuantizeLinear")
def quantize(ctx: Context, x: Any, scale: Any, zero: Any = None, axis: int = 1, saturate: int = 1,
             block_size: int = 0, output_dtype: int = 0, precision: int = 0) -> Any:  # fmt: skip
    if zero is None:
        zero = tn.zeros_like(scale, dtype=dtype_of(output_dtype) if output_dtype else tn.uint8)
    scaled = x.to(scale.dtype) / _along(scale, x, axis, block_size)
    if zero.is_floating_point():
        return scaled.to(zero.dtype)
    return quantized(scaled, _along(zero, x, axis, block_size))


@op("DequantizeLinear")
def dequantize(ctx: Context, x: Any, scale: Any, zero: Any = None, axis: int = 1,
               block_size: int = 0, output_dtype: int = 0) -> Any:  # fmt: skip
    y = x.to(scale.dtype)
    if zero is not None:
        y = y - _along(zero, x, axis, block_size).to(scale.dtype)
    return y * _along(scale, x, axis, block_size)


@op("DynamicQuantizeLinear")
def dynamic_quantize(ctx: Context, x: Any) -> Any:
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    zero = tn.round((0 - low) / scale).clamp(0, 255).to(tn.uint8)
    return quantized(x / scale, zero), scale, zero
