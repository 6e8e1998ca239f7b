"""Loops over the elements of tensors as functions: scans, and while_loop. They run step by step, so
that gradients follow, and a program that is recorded keeps the steps that were taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.utils import _pytree


def _checked(name: str, leaves: list[Any], dim: int, reverse: bool) -> int:
    """The dimension that is scanned, of tensors that all have it."""
    if not isinstance(dim, int):
        kind = RuntimeError if name == "scan" else ValueError  # as PyTorch's are
        raise kind(f"{name}: Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"{name}: Reverse must be a bool, but got {type(reverse)}")
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ValueError(f"{name}: xs leaves must be a Tensor, not {type(x).__name__}")
        if x.is_sparse:
            raise ValueError(f"{name}: xs leaves must dense Tensors, consider using `to_dense()`")
    ndim = leaves[0].ndim
    if not -ndim <= dim < max(ndim, 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})"
        )
    dim %= max(ndim, 1)
    if any(x.ndim <= dim or x.shape[dim] == 0 for x in leaves):
        raise ValueError(
            f"{name}: All xs leaves must at least have 'dim' number of dimensions and scan "
            "dimension > 0"
        )
    return dim


def _in_front(leaves: list[Any], dim: int, reverse: bool) -> list[Tensor]:
    moved = [x.movedim(dim, 0) for x in leaves]
    return [x.flip(0) for x in moved] if reverse else moved


def _put_back(x: Tensor, dim: int, reverse: bool) -> Tensor:
    x = x.flip(0) if reverse else x
    return x.movedim(0, dim) if dim < x.ndim else x


def _pairs(combine: Callable[..., list[Tensor]], elements: list[Tensor]) -> list[Tensor]:
    """The scan of the pairs' combinations, and from it that of what lies between."""
    count = elements[0].shape[0]
    if count < 2:
        return elements
    odd = _pairs(combine, combine([x[0:-1:2] for x in elements], [x[1::2] for x in elements]))
    before = [x[:-1] for x in odd] if count % 2 == 0 else odd
    rest = [x[2::2] for x in elements]
    even = [x[:1] for x in elements]
    if rest[0].shape[0]:
        later = combine(before, rest)
        even = [tenon.cat([x, y]) for x, y in zip(even, later, strict=True)]
    return [_interleaved(x, y) for x, y in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """even[0], odd[0], even[1], odd[1], ...: as many of one as of the other, or one more."""
    n = odd.shape[0]
    mixed = tenon.stack([even[:n], odd], dim=1).flatten(0, 1)
    return tenon.cat([mixed, even[n:]]) if even.shape[0] > n else mixed


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """The results of combine_fn over the first elements of a dimension, for every number of them.

    combine_fn takes two elements (or structures of them) and must be associative. It is called for
    many pairs at once: in the mode "generic" through vmap, in "pointwise" with an additional first
    dimension, which is for GPUs only.
    """
    leaves, spec = _pytree.tree_flatten(xs)
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    dim = _checked("associative_scan", leaves, dim, reverse)
    if combine_mode == "pointwise" and not all(x.device.type == "cuda" for x in leaves):
        raise ValueError(
            "For combine_mode='pointwise', all input tensors need to be on CUDA or XPU"
        )
    run = tenon.vmap(combine_fn) if combine_mode == "generic" else combine_fn

    def combine(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        return _pytree.tree_leaves(run(spec.unflatten(first), spec.unflatten(second)))

    found = _pairs(combine, _in_front(leaves, dim, reverse))
    return spec.unflatten([_put_back(x, dim, reverse) for x in found])


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """carry, y = combine_fn(carry, x) for every element of a dimension, from init on: the last
    carry, and all y stacked."""
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not _pytree.tree_leaves(init):
        raise RuntimeError("scan() operator requires init leaves.")
    dim = _checked("scan", leaves, dim, reverse)
    moved = _in_front(leaves, dim, reverse)
    carry, steps, shape = init, [], None
    for i in range(moved[0].shape[0]):
        carry, y = combine_fn(carry, spec.unflatten([x[i] for x in moved]))
        parts, shape = _pytree.tree_flatten(y)
        steps.append(parts)
    assert shape is not None
    stacked = [tenon.stack(list(parts)) for parts in zip(*steps, strict=True)]
    return carry, shape.unflatten([_put_back(x, dim, reverse) for x in stacked])


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """f(x, *args) of each x along the first dimension of xs, stacked."""
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves or any(not isinstance(x, Tensor) for x in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    if any(x.ndim == 0 for x in leaves) or len({x.shape[0] for x in leaves}) != 1:
        raise RuntimeError("Leading dimensions of mapped xs must be consistent.")
    if leaves[0].shape[0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    made = [f(spec.unflatten([x[i] for x in leaves]), *args) for i in range(leaves[0].shape[0])]
    return _pytree.tree_map(lambda *parts: tenon.stack(list(parts)), *made)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> tuple[Any, ...]:
    """body_fn(*values) as long as cond_fn(*values) holds, from the given values on."""
    if not isinstance(carried_inputs, tuple | list):
        raise RuntimeError(f"carried_inputs must be a tuple or list but got {type(carried_inputs)}")
    values: tuple[Any, ...] = _pytree.tree_map_only(Tensor, Tensor.clone, tuple(carried_inputs))
    while _holds(cond_fn(*values)):
        found = body_fn(*values)
        if not isinstance(found, tuple):
            raise AssertionError(f"body_fn should return a tuple but got {type(found)}")
        if len(found) != len(values):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, "
                f"got {len(found)} vs {len(values)}"
            )
        values = found
    return values


def _holds(pred: Any) -> bool:
    tensor = isinstance(pred, Tensor) and pred.ndim == 0 and pred.dtype == tenon.bool
    if not tensor and not isinstance(pred, bool):
        raise RuntimeError(
            f"cond_fn must return a boolean scalar tensor or a boolean but got {pred}"
        )
    return bool(pred)
