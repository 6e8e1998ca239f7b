"""Exchanges of devices that gradients go back through, called by `apply` as classes of Function."""

from __future__ import annotations

from itertools import chain
from typing import Any

from tenon import Tensor
from tenon.nn.parallel import comm
from tenon.nn.parallel.scatter_gather import _place

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Broadcast:
    """All tensors on each of the devices, one device after the other."""

    @staticmethod
    def apply(target_gpus: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        if not inputs:
            return ()
        places = [_place(where) for where in target_gpus]
        return tuple(chain.from_iterable(comm.broadcast_coalesced(inputs, places)))


class ReduceAddCoalesced:
    """Sums of the tensors of several devices, of which each has num_inputs, on one."""

    @staticmethod
    def apply(destination: Any, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        rows = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        return comm.reduce_add_coalesced(rows, _place(destination))


class Gather:
    """Tensors of several devices as one on a device."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        parts = [t.view(1) if t.dim() == 0 else t for t in inputs]
        return comm.gather(parts, dim, _place(target_device))


class Scatter:
    """Parts of a tensor, one on each of the devices."""

    @staticmethod
    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, input: Tensor) -> tuple[Tensor, ...]:
        return comm.scatter(input, [_place(where) for where in target_gpus], chunk_sizes, dim)
