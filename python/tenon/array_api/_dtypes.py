"""Data types of the array API standard: which there are, which come out, and conversions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import tenon as tn
from tenon import Tensor

BOOL = {"bool": tn.bool}
SIGNED = {"int8": tn.int8, "int16": tn.int16, "int32": tn.int32, "int64": tn.int64}
UNSIGNED = {"uint8": tn.uint8, "uint16": tn.uint16, "uint32": tn.uint32, "uint64": tn.uint64}
FLOATS = {"float32": tn.float32, "float64": tn.float64}
COMPLEX = {"complex64": tn.complex64, "complex128": tn.complex128}
ALL = {**BOOL, **SIGNED, **UNSIGNED, **FLOATS, **COMPLEX}
KINDS = {
    "bool": BOOL, "signed integer": SIGNED, "unsigned integer": UNSIGNED,
    "integral": {**SIGNED, **UNSIGNED}, "real floating": FLOATS, "complex floating": COMPLEX,
    "numeric": {**SIGNED, **UNSIGNED, **FLOATS, **COMPLEX},
}  # fmt: skip
Axes = int | tuple[int, ...] | None


class finfo_object(NamedTuple):
    """What `finfo` tells."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: tn.dtype


class iinfo_object(NamedTuple):
    """What `iinfo` tells."""

    bits: int
    max: int
    min: int
    dtype: tn.dtype


def _dtype_of(type: Any) -> tn.dtype:
    return type.dtype if isinstance(type, Tensor) else type


def finfo(type: Any, /) -> finfo_object:
    """Limits of a floating dtype, or of a complex one's parts; an array stands for its dtype."""
    info = tn.finfo(_dtype_of(type))
    dtype = getattr(tn, info.dtype)
    return finfo_object(info.bits, info.eps, info.max, info.min, info.smallest_normal, dtype)


def iinfo(type: Any, /) -> iinfo_object:
    """Limits of an integer dtype; an array stands for its dtype."""
    dtype = _dtype_of(type)
    info = tn.iinfo(dtype)
    return iinfo_object(info.bits, info.max, info.min, dtype)


def isdtype(dtype: tn.dtype, kind: Any) -> bool:
    """Whether dtype is one of a kind: a dtype, the name of a kind, or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if not isinstance(kind, str):
        return dtype is kind
    if kind not in KINDS:
        raise ValueError(f"isdtype: kind is one of {', '.join(KINDS)}, not {kind!r}")
    return any(dtype is one for one in KINDS[kind].values())


def _promoted(a: tn.dtype, b: tn.dtype) -> tn.dtype:
    """The standard's table: integers of both kinds meet in the next signed one that holds them."""
    if a is b or not (isdtype(a, "integral") and isdtype(b, "integral")):
        if a is b or tn.bool in (a, b):
            return b if a is tn.bool else a
        return tn.promote_types(*(tn.uint8 if d in UNSIGNED.values() else d for d in (a, b)))
    if (a in UNSIGNED.values()) == (b in UNSIGNED.values()):
        return a if a.itemsize > b.itemsize else b
    signed, other = (b, a) if a in UNSIGNED.values() else (a, b)
    if other.itemsize < signed.itemsize:
        return signed
    if other is tn.uint64:
        raise TypeError(f"result_type: no integer dtype holds those of {a} and {b}")
    return SIGNED[f"int{16 * other.itemsize}"]


def result_type(*arrays_and_dtypes: Any) -> tn.dtype:
    """The dtype that operators on these give: arrays without dimensions count as others do, and
    Python numbers take the dtype of what they meet."""
    dtypes = [_dtype_of(a) for a in arrays_and_dtypes if isinstance(a, (Tensor, tn.dtype))]
    numbers = [a for a in arrays_and_dtypes if not isinstance(a, (Tensor, tn.dtype))]
    if not dtypes:
        raise ValueError("result_type: at least one of the arguments is an array or a dtype")
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _promoted(result, dtype)
    for number in numbers:
        result = _with_number(result, number)
    return result


def _with_number(dtype: tn.dtype, number: Any) -> tn.dtype:
    """A number of a wider kind than the dtype's takes it along to that kind."""
    if isinstance(number, complex) and not dtype.is_complex:
        return dtype.to_complex() if dtype.is_floating_point else tn.complex64
    if isinstance(number, float) and not (dtype.is_floating_point or dtype.is_complex):
        return tn.get_default_dtype()
    return tn.int64 if dtype is tn.bool and type(number) is int else dtype


def can_cast(from_: Any, to: tn.dtype, /) -> bool:
    """Whether promotion leads from one dtype to the other."""
    dtype = _dtype_of(from_)
    try:
        return _promoted(dtype, to) is to
    except TypeError:
        return False


def astype(x: Tensor, dtype: tn.dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The elements in another dtype; complex numbers become real ones only by `real` and `imag`."""
    if x.is_complex() and not dtype.is_complex and dtype is not tn.bool:
        raise TypeError(f"astype: complex numbers do not become {dtype}: say real(x) or imag(x)")
    return x.to(device=device or x.device, dtype=dtype, copy=copy)


def filled(shape: Any, value: Any, dtype: Any, device: Any) -> Tensor:
    """`tn.full`, also of numbers that uint64 alone holds, which are no operands elsewhere."""
    if isinstance(value, int) and value >= 2**63:
        return tn.tensor(value, dtype=dtype, device=device).expand(shape).clone()
    return tn.full(shape, value, dtype=dtype, device=device)


def together(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Both operands as arrays of the dtype that the standard's promotion gives."""
    dtype = result_type(x1, x2)
    like = x1 if isinstance(x1, Tensor) else x2
    return tuple(  # type: ignore[return-value]
        x.to(dtype) if isinstance(x, Tensor) else filled((), x, dtype, like.device)
        for x in (x1, x2)
    )


def axes_of(x: Tensor, axis: Axes) -> tuple[int, ...]:
    """The axes that are meant, all where None is given, counted from 0."""
    if axis is None:
        return tuple(range(x.ndim))
    axes = axis if isinstance(axis, tuple) else (operator.index(axis),)
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise IndexError(f"axis {a} is not one of an array with {x.ndim} dimensions")
    return tuple(a % x.ndim for a in axes)


def along(
    fn: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool, **options: Any
) -> Tensor:
    """A reduction over any axes, of an operator that takes one dimension."""
    axes = axes_of(x, axis)
    kept = x.ndim - len(axes)
    last = tn.movedim(x, axes, tuple(range(kept, x.ndim)))
    result = fn(last.reshape(*last.shape[:kept], -1), kept, **options)
    return (
        result.reshape([1 if d in axes else n for d, n in enumerate(x.shape)])
        if keepdims
        else result
    )
