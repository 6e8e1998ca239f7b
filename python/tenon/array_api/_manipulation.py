"""Shapes of arrays and their order, by the names of the array API standard."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon import Tensor
from tenon.array_api._dtypes import Axes, axes_of, result_type


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """All arrays in the shape that they have together."""
    return tuple(tn.broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of arrays of these shapes together; ValueError where they do not fit."""
    try:
        return tuple(tn.broadcast_shapes(*shapes))
    except RuntimeError as err:
        raise ValueError(f"broadcast_shapes: {err}") from None


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array in a larger shape, elements repeated without a copy."""
    return tn.broadcast_to(x, shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other; flattened where axis is None."""
    dtype = result_type(*arrays)
    parts = [a.to(dtype) for a in arrays]
    return tn.cat([p.flatten() for p in parts]) if axis is None else tn.cat(parts, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """New axes of size 1 at these places of the result."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    ndim = x.ndim + len(axes)
    for a in axes:
        if not -ndim <= a < ndim:
            raise IndexError(f"axis {a} is not one of an array with {ndim} dimensions")
    places = sorted(a % ndim for a in axes)
    if len(set(places)) < len(places):
        raise ValueError(f"expand_dims: an axis stands twice in {axes}")
    for place in places:
        x = x.unsqueeze(place)
    return x


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """The elements in reverse order along axes, all of them where None is given."""
    return tn.flip(x, axes_of(x, axis))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places; the others keep their order."""
    return tn.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return tn.permute(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated, as often as repeats says."""
    if isinstance(repeats, Tensor):
        repeats = repeats.to(tn.int64)
    return tn.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; ValueError where that takes a copy and copy is False."""
    if copy:
        return x.clone().reshape(shape)
    if copy is None:
        return tn.reshape(x, shape)
    try:
        return x.view(shape)
    except RuntimeError as err:
        raise ValueError(f"reshape: this takes a copy: {err}") from None


def roll(x: Tensor, /, shift: Any, *, axis: Axes = None) -> Tensor:
    """The elements moved along axes, around the ends; of the flattened array without axes."""
    if axis is None:
        return tn.roll(x, shift)
    axes = axes_of(x, axis)
    return tn.roll(x, shift if isinstance(shift, tuple) else (shift,) * len(axes), axes)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """The array without these axes; ValueError where one has another size than 1."""
    axes = axes_of(x, axis)
    if wide := [a for a in axes if x.shape[a] != 1]:
        raise ValueError(f"squeeze: axis {wide[0]} has size {x.shape[wide[0]]}, not 1")
    return tn.squeeze(x, axes)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    dtype = result_type(*arrays)
    return tn.stack([a.to(dtype) for a in arrays], axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Copies of the array side by side."""
    return tn.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis."""
    return tuple(tn.unbind(x, axis))
