"""Facts about dtypes and sizes that packages import from here."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import tenon
from tenon import Tensor
from tenon._tensor.dims import wrapped_dim
from tenon.nn._results import format_of as suggest_memory_format  # noqa: F401 - PyTorch's name

ShapeType: TypeAlias = Sequence[int]
StrideType: TypeAlias = Sequence[int]
DimsType: TypeAlias = int | Sequence[int]
TensorLike = Tensor
TensorLikeType: TypeAlias = Tensor
Number = (bool, int, float, complex)
NumberType: TypeAlias = bool | int | float | complex
IntLike = (int,)
FloatLike = (float,)
DeviceLikeType: TypeAlias = Any

_RANK: tuple[type, ...] = (bool, int, float, complex)
_REAL = {tenon.complex32: tenon.float16, tenon.complex64: tenon.float32,
         tenon.complex128: tenon.float64}  # fmt: skip
_COMPLEX = {real: number for number, real in _REAL.items()} | {tenon.bfloat16: tenon.complex64}
_COMPUTED = {tenon.bfloat16: tenon.float32, tenon.float16: tenon.float32,
             tenon.complex32: tenon.complex64}  # fmt: skip


class ELEMENTWISE_TYPE_PROMOTION_KIND(Enum):
    """Which dtype an operator has for dtypes of its operands."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


def check(b: bool, s: Any, exc_type: type[Exception] = RuntimeError) -> None:
    """Raises where b is false; s says with what words."""
    if not b:
        raise exc_type(s())


# ---- Dtypes --------------------------------------------------------------------------------------


def is_boolean_dtype(dtype: Any) -> bool:
    return dtype is tenon.bool


def is_float_dtype(dtype: Any) -> bool:
    return bool(dtype.is_floating_point)


def is_complex_dtype(dtype: Any) -> bool:
    return bool(dtype.is_complex)


def is_integer_dtype(dtype: Any) -> bool:
    return not (is_boolean_dtype(dtype) or is_float_dtype(dtype) or is_complex_dtype(dtype))


def dtype_to_type(dtype: Any) -> type:
    """bool, int, float or complex."""
    if is_boolean_dtype(dtype):
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


def type_to_dtype(typ: type) -> Any:
    """The dtype of Python's numbers of a type."""
    if typ is complex:
        return corresponding_complex_dtype(tenon.get_default_dtype())
    return {bool: tenon.bool, int: tenon.int64, float: tenon.get_default_dtype()}[typ]


def get_higher_type(a: type, b: type) -> type:
    return max(a, b, key=_RANK.index)


def get_higher_dtype(a: Any, b: Any) -> Any:
    """The dtype of both, which may be dtypes, tensors, numbers or None."""
    found = [
        x.dtype if isinstance(x, Tensor) else type_to_dtype(type(x)) if isinstance(x, Number) else x
        for x in (a, b)
        if x is not None
    ]
    if not found:
        return None
    return found[0] if len(found) == 1 else tenon.promote_types(found[0], found[1])


def corresponding_real_dtype(dtype: Any) -> Any:
    return _REAL[dtype]


def corresponding_complex_dtype(dtype: Any) -> Any:
    return _COMPLEX[dtype]


def get_computation_dtype(dtype: Any) -> Any:
    """The dtype in which an operator on elements computes."""
    return _COMPUTED.get(dtype, dtype)


def elementwise_dtypes(
    *_args: Any, type_promotion_kind: ELEMENTWISE_TYPE_PROMOTION_KIND
) -> tuple[Any, Any]:
    """The dtypes in which an operator on elements computes its result, and that the result has."""
    kinds = ELEMENTWISE_TYPE_PROMOTION_KIND
    args = [a for a in _args if a is not None]
    result = tenon.result_type(args[0], args[-1]) if len(args) < 3 else None
    if result is None:
        tensors = [a for a in args if isinstance(a, Tensor)]
        numbers = [a for a in args if not isinstance(a, Tensor)]
        wide = [t for t in tensors if t.ndim] or tensors
        result = wide[0].dtype if wide else type_to_dtype(type(numbers[0]))
        for t in wide[1:]:
            result = tenon.promote_types(result, t.dtype)
        for rest in [t for t in tensors if not t.ndim and wide != tensors] + numbers:
            result = tenon.result_type(tenon.empty(1, dtype=result), rest)
    if type_promotion_kind is kinds.NO_OPMATH:
        return result, result
    if type_promotion_kind is kinds.BOOL_TO_LONG and is_boolean_dtype(result):
        return tenon.int64, tenon.int64
    if type_promotion_kind is kinds.INT_TO_FLOAT and dtype_to_type(result) in (bool, int):
        result = tenon.get_default_dtype()
    computed = get_computation_dtype(result)
    if type_promotion_kind is kinds.ALWAYS_BOOL:
        return computed, tenon.bool
    if type_promotion_kind is kinds.COMPLEX_TO_FLOAT and is_complex_dtype(result):
        return computed, corresponding_real_dtype(result)
    return computed, result


# ---- Sizes ---------------------------------------------------------------------------------------


def make_contiguous_strides_for(shape: ShapeType, row_major: bool = True) -> tuple[int, ...]:
    """Strides of a packed tensor; not row_major: of matrices that lie by columns."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    if row_major or len(shape) < 2:
        return tuple(strides)
    return (*strides[:-2], 1, max(shape[-2], 1))


def make_channels_last_strides_for(shape: ShapeType) -> tuple[int, ...]:
    """Strides of images whose channels lie next to each other."""
    order = (0, *range(2, len(shape)), 1)
    packed = make_contiguous_strides_for([shape[i] for i in order])
    return tuple(packed[order.index(i)] for i in range(len(shape)))


def is_contiguous(a: Tensor) -> bool:
    return a.is_contiguous()


is_contiguous_or_false = is_contiguous


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """A dimension counted from the front."""
    if rank == 0 and not wrap_scalar:
        raise IndexError(f"Dimension specified as {idx} but tensor has no dimensions")
    return wrapped_dim(idx, rank)


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """Dimensions counted from the front."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple(canonicalize_dim(rank, i, wrap_scalar) for i in indices)


def is_same_shape(a: ShapeType, b: ShapeType) -> bool:
    return tuple(a) == tuple(b)
