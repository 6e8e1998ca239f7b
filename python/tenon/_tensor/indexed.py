"""Functions around the indexing operators whose result depends on options: tuples of indices,
unique elements, comparisons that answer with a bool. The methods of the same names are set here,
too.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from typing import Any

from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable
from tenon._tensor.functions import result_type

_ops = _C._ops


def nonzero(
    input: Tensor, *, out: Tensor | None = None, as_tuple: builtins.bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Coordinates of the elements that are not zero: rows of a matrix, or one tensor each.

    Shapes: any, to (how many, dimensions).

    >>> tn.nonzero(tn.tensor([0, 5, 7]))
    tensor([[1],
            [2]])
    """
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        return _ops._nonzero_tuple(input)
    return _ops.nonzero(input) if out is None else _ops.nonzero(input, out=out)


def equal(input: Tensor, other: Tensor) -> builtins.bool:
    """True when both tensors have the same shape and elements.

    >>> tn.equal(tn.ones(2), tn.ones(3))
    False
    """
    return builtins.bool(_ops.equal(input, other))


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: builtins.float = 1e-05,
    atol: builtins.float = 1e-08,
    equal_nan: builtins.bool = False,
) -> builtins.bool:
    """True when every pair of elements is close.

    Shapes: two that broadcast.

    >>> tn.allclose(tn.ones(2), tn.ones(2) + 1e-9)
    True
    """
    return builtins.bool(_ops.allclose(input, other, rtol, atol, equal_nan))


def _chosen(parts: tuple[Tensor, ...], inverse: builtins.bool, counts: builtins.bool) -> Any:
    """Output alone, or a tuple with what was asked for."""
    wanted = [parts[0], *([parts[1]] if inverse else []), *([parts[2]] if counts else [])]
    return tuple(wanted) if len(wanted) > 1 else wanted[0]


def _row_runs(rows: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of rows in that order: the first of every run of equal rows, the run of each row, lengths."""
    rows = rows[order]
    changed = (rows[1:] != rows[:-1]).any(1)
    run = _ops.cat([changed.new_zeros((min(len(rows), 1),)).long(), changed.cumsum(0)])
    counts = _ops.bincount(run)
    first = counts.cumsum(0) - counts
    inverse = _ops.empty_like(order).scatter_(0, order, run)
    return rows[first], inverse, counts


def _unique_slices(
    input: Tensor, dim: builtins.int, in_order: builtins.bool
) -> tuple[Tensor, Tensor, Tensor]:
    moved = input.movedim(dim, 0)
    if input.numel() == 0 and moved.shape[0] > 0:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    rows = moved.flatten(1) if moved.ndim > 1 else moved.unsqueeze(1)
    order = _ops.arange(rows.shape[0], device=input.device)
    for column in range(rows.shape[1] - 1, -1, -1) if in_order else ():
        order = order[rows[order, column].argsort(stable=True)]
    kept, inverse, counts = _row_runs(rows, order)
    shaped = kept.reshape(kept.shape[0], *moved.shape[1:]).movedim(0, dim)
    return shaped, inverse, counts


def unique(
    input: Tensor,
    sorted: builtins.bool = True,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: builtins.int | None = None,
) -> Any:
    """The different elements (or slices along dim), in order; the place of each; how many.

    Shapes: any, to a row.

    >>> tn.unique(tn.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    if dim is not None:
        parts = _unique_slices(input, dim, True)
    elif return_inverse:
        parts = _ops._unique(input)
    else:
        parts = _ops._unique_consecutive(input.reshape(-1).sort()[0])
    return _chosen(parts, return_inverse, return_counts)


def unique_consecutive(
    input: Tensor,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: builtins.int | None = None,
) -> Any:
    """The elements (or slices along dim) that differ from the one before.

    Shapes: any, to a row.

    >>> tn.unique_consecutive(tn.tensor([1, 1, 3, 1]))
    tensor([1, 3, 1])
    """
    if dim is None:
        parts = _ops._unique_consecutive(input.contiguous())
    else:
        parts = _unique_slices(input, dim, False)
    return _chosen(parts, return_inverse, return_counts)


def isin(
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """True where an element is one of test_elements.

    >>> tn.isin(tn.tensor([1, 2]), tn.tensor([2, 3]))
    tensor([False,  True])
    """
    found = _found(elements, test_elements, invert)
    return found if out is None else _ops._given(found, out=out)


_FEW = 1024  # comparisons


def _number(value: Any, beside: Tensor) -> Tensor:
    """A number as a 0-d tensor; whole ones above int64's are taken by their bits."""
    if isinstance(value, builtins.int) and 2**63 <= value < 2**64:
        return _C.tensor(value - 2**64 if not beside.is_floating_point() else builtins.float(value))
    return _C.tensor(value, device=beside.device)


def _found(elements: Any, test_elements: Any, invert: builtins.bool) -> Tensor:
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): one of elements and test_elements must be a Tensor")
    for given in (elements, test_elements):
        if not isinstance(given, (Tensor, builtins.int, builtins.float, complex)):
            raise TypeError(f"isin(): {given!r} is neither a Tensor nor a number")
    if not isinstance(elements, Tensor):
        elements = _number(elements, test_elements)
    if not isinstance(test_elements, Tensor):
        test_elements = _number(test_elements, elements)
    for given in (elements, test_elements):
        if given.dtype is _C.bool or given.is_complex():
            raise RuntimeError(f"Unsupported input type encountered for isin(): {given.dtype}")
    dtype = _C.promote_types(elements.dtype, test_elements.dtype)
    if elements.numel() * test_elements.numel() <= _FEW:  # less than to sort and to search
        found = (elements.to(dtype).unsqueeze(-1) == test_elements.reshape(-1).to(dtype)).any(-1)
        return ~found if invert else found
    table = test_elements.reshape(-1).to(dtype).sort()[0]
    elements = elements.to(dtype)
    if table.numel() == 0:
        return _ops.full(elements.shape, invert, dtype=_C.bool, device=elements.device)
    at = _ops.searchsorted(table, elements.contiguous()).clamp(max=table.numel() - 1)
    found = table[at] == elements
    return ~found if invert else found


def _common_dtype(tensors: Sequence[Tensor]) -> _C.dtype:
    """The dtype of an operation on all of them: 0-d ones have a say by their kind alone."""
    kinds = [
        functools.reduce(_C.promote_types, group)
        for group in (
            [t.dtype for t in tensors if t.ndim],
            [t.dtype for t in tensors if not t.ndim],
        )
        if group
    ]
    if len(kinds) == 1:
        return kinds[0]
    return result_type(_ops.empty(1, dtype=kinds[0]), _ops.empty((), dtype=kinds[1]))


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices along its diagonal.

    >>> tn.block_diag(tn.ones(1, 1), tn.ones(1, 2))
    tensor([[1., 0., 0.],
            [0., 1., 1.]])
    """
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            kind = type(t).__name__
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {kind}")
        if t.ndim > 2:
            raise RuntimeError(
                f"block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t.ndim}"
            )
    blocks = [_ops.atleast_2d(t) for t in tensors or [_ops.empty(0)]]
    rows, columns = sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)
    dtype = _common_dtype(tensors or blocks)
    parts = []
    left = 0
    zero = blocks[0].new_zeros((), dtype=dtype)
    for b in blocks:
        height, width = b.shape
        before = zero.expand(height, left)
        after = zero.expand(height, columns - left - width)
        parts.append(_ops.cat([before, b.to(dtype), after], 1))
        left += width
    if rows:
        return _ops.cat(parts)
    joined = _ops.cat([b.reshape(-1).to(dtype) for b in blocks])  # for its history
    return joined.reshape(0, columns)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: builtins.bool = False) -> Tensor:
    """Sets the main diagonal; with wrap it begins anew below a square of a tall matrix."""
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step, size = sum(self.stride()), min(self.shape)
    self.as_strided((size,), (step,), self.storage_offset()).fill_(fill_value)
    rows, columns = self.shape[0], self.shape[1]
    if wrap and self.ndim == 2 and rows > columns + 1:
        for top in range(columns + 1, rows, columns + 1):
            part = self[top:]
            part.diagonal().fill_(fill_value)
    return self


_FLAGS = "as_tuple equal_nan sorted return_inverse return_counts assume_unique invert wrap"
for _name, _method in {
    "nonzero": nonzero, "equal": equal, "allclose": allclose, "unique": unique,
    "unique_consecutive": unique_consecutive, "fill_diagonal_": fill_diagonal_,
}.items():  # fmt: skip
    setattr(Tensor, _name, overridable.overridable(_method, flags=_FLAGS.split()))
del _name, _method

overridable.make_overridable(globals(), flags=_FLAGS.split())
