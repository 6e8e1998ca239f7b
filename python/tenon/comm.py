"""Devices of this process exchange data; the functions of torch.cuda.comm and torch.cuda.nccl.

Devices that can exchange by themselves do so ("tn.collectives/1"); for all others the tensors meet
in host memory. Results of integer averages are rounded towards zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import _C, Tensor

__all__ = [
    "AVG", "MAX", "MIN", "PRODUCT", "SUM", "Group", "all_gather", "all_reduce", "broadcast",
    "broadcast_coalesced", "gather", "reduce", "reduce_add", "reduce_scatter", "scatter",
]  # fmt: skip

SUM, AVG, PRODUCT, MIN, MAX = range(5)
_NAMES = {"sum": SUM, "avg": AVG, "mean": AVG, "prod": PRODUCT, "product": PRODUCT}
_NAMES |= {"min": MIN, "max": MAX}


def _operation(op: Any) -> int:
    """A number, a name, or a member of distributed.ReduceOp."""
    value = _NAMES.get(op.lower(), -1) if isinstance(op, str) else getattr(op, "value", op)
    if not isinstance(value, int) or not SUM <= value <= MAX:
        raise ValueError(
            f"expected one of SUM, AVG, PRODUCT, MIN, MAX as the operation, got {op!r}"
        )
    return value


def _checked(name: str, tensors: Any) -> list[Tensor]:
    """A sequence of tensors with at least one in it."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        raise TypeError(f"{name}(): expected a list of tensors, got {type(tensors).__name__}")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}(): expected tensors, got {type(tensor).__name__}")
    if not tensors:
        raise ValueError(f"{name}(): expected at least one tensor")
    return list(tensors)


class Group:
    """Devices that exchange data: ranks `first`, `first` + 1 and so on of a group of `world`.

    A group whose other ranks are in other processes needs devices that can do that by themselves,
    and the `unique_id` of one of the processes.
    """

    def __init__(
        self,
        devices: Sequence[Any],
        world: int | None = None,
        first: int = 0,
        unique_id: bytes | None = None,
    ) -> None:
        self.devices = tuple(_C.device(device) for device in devices)
        self.world = len(self.devices) if world is None else world
        self._group = _C._group_new(self.devices, self.world, first, unique_id)

    @staticmethod
    def unique_id(device: Any) -> bytes:
        """What the processes of a group that spans several agree on."""
        return _C._group_unique_id(_C.device(device))

    def _run(self, what: str, inputs: Any, outputs: Any, number: int = 0) -> None:
        _C._group_run(self._group, what, tuple(inputs), tuple(outputs), number)

    def all_reduce(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: Any) -> None:
        """outputs[i] = op over all inputs."""
        self._run("all_reduce", inputs, outputs, _operation(op))

    def all_gather(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """outputs[i] = all inputs, one behind the other."""
        self._run("all_gather", inputs, outputs)

    def reduce_scatter(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: Any) -> None:
        """outputs[i] = the i-th part of op over all inputs."""
        self._run("reduce_scatter", inputs, outputs, _operation(op))

    def broadcast(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], root: int) -> None:
        """outputs[i] = inputs[root]."""
        self._run("broadcast", inputs, outputs, root)


def _group_of(tensors: Sequence[Tensor]) -> Group:
    return Group([tensor.device for tensor in tensors])


# ---- As torch.cuda.nccl --------------------------------------------------------------------------


def all_reduce(inputs: Any, outputs: Any = None, op: Any = SUM) -> None:
    """op over all inputs, into each of the outputs, or into the inputs themselves."""
    given = _checked("all_reduce", inputs)
    results = given if outputs is None else _checked("all_reduce", outputs)
    _group_of(given).all_reduce(given, results, op)


def all_gather(inputs: Any, outputs: Any) -> None:
    """All inputs one behind the other, into each of the outputs."""
    given, results = _checked("all_gather", inputs), _checked("all_gather", outputs)
    _group_of(given).all_gather(given, results)


def reduce_scatter(inputs: Any, outputs: Any, op: Any = SUM) -> None:
    """The parts of op over all inputs, one into each of the outputs."""
    given, results = _checked("reduce_scatter", inputs), _checked("reduce_scatter", outputs)
    _group_of(given).reduce_scatter(given, results, op)


def reduce(inputs: Any, output: Any = None, root: int = 0, op: Any = SUM) -> None:
    """op over all inputs, into the output, or into the input of the rank `root`."""
    given = _checked("reduce", inputs)
    if not 0 <= root < len(given):
        raise ValueError(f"reduce(): there is no rank {root} of {len(given)}")
    results = [tenon.empty_like(tensor) for tensor in given]
    results[root] = given[root] if output is None else _checked("reduce", [output])[0]
    _group_of(given).all_reduce(given, results, op)


# ---- As torch.cuda.comm --------------------------------------------------------------------------


def broadcast(tensor: Any, devices: Any = None, *, out: Any = None, root: int = 0) -> Any:
    """A tensor on each of the devices, or in each tensor of `out`; of a list, `root`'s in all."""
    if not isinstance(tensor, Tensor):
        given = _checked("broadcast", tensor)
        _group_of(given).broadcast(given, given, root)
        return None
    if (devices is None) == (out is None):
        raise RuntimeError("broadcast(): expected one of devices and out")
    if out is None:
        return tuple(tensor if tensor.device == d else tensor.to(d) for d in _devices(devices))
    for result in _checked("broadcast", out):
        result.copy_(tensor)
    return tuple(out)


def _devices(devices: Any) -> list[Any]:
    found = [_C.device(device) for device in devices]
    if not found:
        raise ValueError("devices: expected at least one device, got none")
    return [d if d.index is not None else _C.device(d.type, 0) for d in found]


def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 10485760) -> tuple[Any, ...]:
    """A list of tensors on each of the devices."""
    given = _checked("broadcast_coalesced", tensors)
    return tuple(tuple(t.to(device) for t in given) for device in _devices(devices))


def reduce_add(inputs: Any, destination: Any = None) -> Tensor:
    """The sum of tensors of several devices, on one: that of the first if none is given."""
    given = _checked("reduce_add", inputs)
    total = given[0].to(given[0].device if destination is None else _C.device(destination))
    for tensor in given[1:]:
        if tensor.shape != given[0].shape:
            raise ValueError("reduce_add(): the tensors must have one shape")
        total = total + tensor.to(total.device)
    return total


def scatter(
    tensor: Tensor, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, streams: Any = None,
    *, out: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Parts of a tensor along `dim`, one on each of the devices."""
    if out is not None:
        results = _checked("scatter", out)
        sizes = [result.shape[dim] for result in results]
        for result, part in zip(results, tensor.split(sizes, dim)):
            result.copy_(part)
        return tuple(results)
    where = _devices(devices)
    if chunk_sizes is not None and len(chunk_sizes) != len(where):
        raise ValueError("scatter(): expected one chunk size for each device")
    parts = tensor.chunk(len(where), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
    return tuple(part.to(device) for part, device in zip(parts, where))


def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Tensor:
    """Tensors of several devices as one, along `dim`, on one device: the CPU if none is given."""
    given = _checked("gather", tensors)
    if out is not None:
        return out.copy_(tenon.cat([t.to(out.device) for t in given], dim))
    where = given[0].device if destination is None else _C.device(destination)
    return tenon.cat([t.to(where) for t in given], dim)
