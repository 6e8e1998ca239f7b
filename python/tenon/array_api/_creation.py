"""New arrays, by the names of the array API standard."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon import Tensor
from tenon.array_api._dtypes import filled

Shape = int | tuple[int, ...]


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Numbers from start to before stop; from 0 to before start where there is no stop."""
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: step is not zero")
    if (stop - start) * step < 0:  # nothing, where PyTorch's is an error
        like = tn.result_type(start + step, stop)
        return tn.empty(
            0, dtype=dtype or (like if like.is_floating_point else tn.int64), device=device
        )
    return tn.arange(start, stop, step, dtype=dtype, device=device)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """An array of numbers, nested sequences, a buffer or another array; copied as little as can be
    unless `copy` says."""
    if copy is False and not isinstance(obj, Tensor) and not hasattr(obj, "__dlpack__"):
        try:
            memoryview(obj)
        except TypeError:
            raise ValueError("asarray: this cannot be an array without a copy") from None
    result = tn.asarray(obj, dtype=dtype, device=device, copy=copy)
    return result


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array whose elements have no values yet."""
    return tn.empty(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `empty`, of another array's shape and dtype."""
    return tn.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on diagonal k, else zeros."""
    cols = n_rows if n_cols is None else n_cols
    result = tn.zeros(n_rows, cols, dtype=dtype, device=device)
    if -n_rows < k < cols:
        result.diagonal(k).fill_(1)
    return result


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array that looks at another library's memory, or a copy of it."""
    options = {k: v for k, v in (("device", device), ("copy", copy)) if v is not None}
    return tn.from_dlpack(x, **options)


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array with one value everywhere."""
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    return filled(size, fill_value, dtype, device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `full`, of another array's shape and dtype."""
    return filled(x.shape, fill_value, dtype or x.dtype, device or x.device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """num values at equal distances, the last of which is stop if endpoint is true."""
    if endpoint:
        return tn.linspace(start, stop, num, dtype=dtype, device=device)
    return tn.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of all points of a grid."""
    if not arrays:
        return ()
    return tuple(tn.meshgrid(*arrays, indexing=indexing))


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return tn.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `ones`, of another array's shape and dtype."""
    return tn.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What lies on diagonal k and below, else zeros."""
    return tn.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What lies on diagonal k and above, else zeros."""
    return tn.triu(x, k)


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return tn.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `zeros`, of another array's shape and dtype."""
    return tn.zeros_like(x, dtype=dtype, device=device)
