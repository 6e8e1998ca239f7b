"""Arguments that are cut along a dimension for several devices, and results put together."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, comm
from tenon import device as device_type

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a tuple with names."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def _place(where: Any) -> Any:
    return device_type("cuda", where) if isinstance(where, int) else where


def _like(obj: Any, parts: Any) -> Any:
    return type(obj)(*parts) if is_namedtuple(obj) else type(obj)(parts)


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """For each device, the arguments with the device's part of every tensor in them. A device is
    anything that says one; a number is one of CUDA's."""
    places = [_place(where) for where in target_gpus]

    def cut(obj: Any) -> list[Any]:
        if isinstance(obj, Tensor):
            return list(comm.scatter(obj, places, dim=dim))
        if isinstance(obj, tuple | list) and obj:
            return [_like(obj, parts) for parts in zip(*map(cut, obj), strict=False)]
        if isinstance(obj, dict) and obj:
            rows = zip(*map(cut, obj.values()), strict=False)
            return [type(obj)(zip(obj, row, strict=True)) for row in rows]
        return [obj for _ in places]

    return cut(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Both kinds of arguments for each device, as many of one as of the other."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    rows += [()] * (len(named) - len(rows))
    named += [{}] * (len(rows) - len(named))
    return tuple(rows), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The results of several devices as one, whose tensors are those of the devices in turn."""
    first = outputs[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        tensors = [t.unsqueeze(0) if t.dim() == 0 else t for t in outputs]
        return comm.gather(tensors, dim, _place(target_device))
    if isinstance(first, dict):
        if any(len(out) != len(first) for out in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([d[k] for d in outputs], target_device, dim)) for k in first)
    return _like(first, [gather(parts, target_device, dim) for parts in zip(*outputs, strict=True)])
