"""Functions of elements, by the names of the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon import Tensor
from tenon._C import _ops
from tenon.array_api._dtypes import UNSIGNED, filled, together

# Names of the standard, and the operators behind them.
UNARY = {
    "acos": tn.acos, "acosh": tn.acosh, "asin": tn.asin, "asinh": tn.asinh,
    "atan": tn.atan, "atanh": tn.atanh, "bitwise_invert": tn.bitwise_not, "ceil": tn.ceil,
    "cos": tn.cos, "cosh": tn.cosh, "exp": tn.exp, "expm1": tn.expm1, "floor": tn.floor,
    "isfinite": tn.isfinite, "isinf": tn.isinf, "isnan": tn.isnan, "log": tn.log,
    "log10": tn.log10, "log1p": tn.log1p, "log2": tn.log2, "logical_not": tn.logical_not,
    "negative": tn.negative, "reciprocal": tn.reciprocal,
    "signbit": tn.signbit, "sin": tn.sin, "sinh": tn.sinh, "sqrt": tn.sqrt, "square": tn.square,
    "tan": tn.tan, "tanh": tn.tanh, "trunc": tn.trunc,
}  # fmt: skip
BINARY = {
    "add": tn.add, "atan2": tn.atan2, "bitwise_and": tn.bitwise_and,
    "bitwise_left_shift": tn.bitwise_left_shift, "bitwise_or": tn.bitwise_or,
    "bitwise_xor": tn.bitwise_xor,
    "copysign": tn.copysign, "divide": tn.true_divide, "equal": tn.eq,
    "greater": tn.gt, "greater_equal": tn.ge, "hypot": tn.hypot,
    "less": tn.lt, "less_equal": tn.le, "logaddexp": tn.logaddexp,
    "logical_and": tn.logical_and, "logical_or": tn.logical_or, "logical_xor": tn.logical_xor,
    "maximum": tn.maximum, "minimum": tn.minimum, "multiply": tn.mul, "nextafter": tn.nextafter,
    "not_equal": tn.ne, "subtract": tn.sub,
}  # fmt: skip


def _unary(name: str, op: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return op(x)

    return _named(function, name, op)


def _binary(name: str, op: Callable[..., Tensor]) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        return op(*together(x1, x2))

    return _named(function, name, op)


def _named(function: Any, name: str, op: Callable[..., Tensor]) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The standard's `{name}`, by `tenon.{op.__name__}`: dtypes promote as it says."
    )
    return function


globals().update({name: _unary(name, op) for name, op in UNARY.items()})
globals().update({name: _binary(name, op) for name, op in BINARY.items()})


def _half(x: Tensor) -> Tensor:
    """uint64 divided by 2, as int64."""
    return (x.view(tn.int64) >> 1) & (2**63 - 1)


def _divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of uint64, by divisions of int64."""
    x, y = tn.broadcast_tensors(x, y)
    a, b = x.contiguous().view(tn.int64), y.contiguous().view(tn.int64)
    # A divisor of 2**63 or more goes in once or not at all; another one goes into the half of x,
    # so that twice its quotient lacks 1 at most.
    quotient = tn.where(b < 0, 0, (_half(a) // tn.where(b < 0, 1, b)) << 1)
    rest = a - quotient * b
    more = (rest.view(tn.uint64) >= y).to(tn.int64)
    return (quotient + more).view(tn.uint64), (rest - more * b).view(tn.uint64)


def abs(x: Tensor, /) -> Tensor:
    """Absolute values; unsigned integers are their own."""
    return x.clone() if x.dtype in UNSIGNED.values() else tn.abs(x)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """The bits of x1 shifted right, the sign kept; by their number or more, all of them leave."""
    x1, x2 = together(x1, x2)
    if x1.dtype is not tn.uint64:
        return tn.bitwise_right_shift(x1, x2)
    # One place by hand, which leaves no sign, and then the others.
    count = x2.view(tn.int64)
    shifted = tn.bitwise_right_shift(_half(x1), count - 1)
    return tn.where(count == 0, x1.view(tn.int64), shifted).view(tn.uint64)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements, those below min and above max replaced by these; the dtype stays."""
    low, high = (b.to(x.dtype) if isinstance(b, Tensor) else b for b in (min, max))
    if low is None and high is None:
        return x.clone()
    if isinstance(low, Tensor) or isinstance(high, Tensor) or x.dtype is tn.uint64:
        low, high = (
            filled((), b, x.dtype, x.device) if isinstance(b, (int, float)) else b
            for b in (low, high)
        )
    if x.dtype is not tn.uint64:
        return tn.clamp(x, low, high).to(x.dtype)
    above = x if low is None else tn.maximum(x, low)
    return above if high is None else tn.minimum(above, high)


def conj(x: Tensor, /) -> Tensor:
    """Complex conjugates; real numbers stay."""
    return tn.conj(x).resolve_conj()


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Quotients rounded down; infinite operands give the quotient as it is."""
    x1, x2 = together(x1, x2)
    if x1.is_floating_point():
        return _ops._standard_floor_divide(x1, x2)
    return _divided(x1, x2)[0] if x1.dtype is tn.uint64 else tn.floor_divide(x1, x2)


def imag(x: Tensor, /) -> Tensor:
    """Imaginary parts; zeros of real numbers."""
    return x.imag if x.is_complex() else tn.zeros_like(x)


def positive(x: Tensor, /) -> Tensor:
    """The elements as they are."""
    return tn.positive(x).clone()


def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power of x2; that of integers wraps."""
    x1, x2 = together(x1, x2)
    if x1.dtype is not tn.uint64:
        return tn.pow(x1, x2)
    # Odd numbers to the power of 2**62 are 1 modulo 2**64, even ones 0: an exponent that is too
    # large for int64 loses multiples of that, but for one.
    exponent = x2.view(tn.int64)
    exponent = tn.where(exponent < 0, exponent % 2**62 + 2**62, exponent)
    return tn.pow(x1.view(tn.int64), exponent).view(tn.uint64)


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """What division leaves, with the sign of x2, zeros too."""
    x1, x2 = together(x1, x2)
    if x1.is_floating_point():
        return _ops._standard_remainder(x1, x2)
    return _divided(x1, x2)[1] if x1.dtype is tn.uint64 else tn.remainder(x1, x2)


def round(x: Tensor, /) -> Tensor:
    """The nearest whole numbers, halves to even ones; of complex numbers both parts."""
    if x.is_complex():
        return tn.complex(tn.round(x.real), tn.round(x.imag))
    return x.clone() if not x.is_floating_point() else tn.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; x / |x| of complex numbers; NaN stays."""
    if x.dtype in UNSIGNED.values():
        return (x != 0).to(x.dtype)
    return tn.where(tn.isnan(x), x, tn.sgn(x))


def real(x: Tensor, /) -> Tensor:
    """Real parts."""
    return tn.real(x)


__all__ = [
    *UNARY, *BINARY, "abs", "bitwise_right_shift", "clip", "conj", "floor_divide", "imag",
    "positive", "pow", "real", "remainder", "round", "sign",
]  # fmt: skip
