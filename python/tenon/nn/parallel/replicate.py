"""A module on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tenon import Tensor
from tenon.nn.modules.module import Module
from tenon.nn.parallel import comm
from tenon.nn.parallel._functions import Broadcast
from tenon.nn.parallel.scatter_gather import _place

__all__ = ["replicate"]

_M = TypeVar("_M", bound=Module)
_Copies = dict[Tensor, list[Tensor]]  # of each tensor, one a device


def _copies(tensors: list[Tensor], places: list[Any], detach: bool) -> _Copies:
    if detach:
        rows = comm.broadcast_coalesced([t.detach() for t in tensors], places)
    else:
        # Where a device is the tensor's own, it is itself that comes.
        flat = Broadcast.apply(places, *(t.view_as(t) for t in tensors))
        rows = tuple(flat[i : i + len(tensors)] for i in range(0, len(flat), len(tensors)))
    return {t: [row[i] for row in rows] for i, t in enumerate(tensors)}


def replicate(network: _M, devices: Sequence[Any], detach: bool = False) -> list[_M]:
    """Copies of a module, one on each of the devices; a number is one of CUDA's. Gradients of
    their tensors, which are no parameters, reach those of the module unless `detach` is set."""
    places = [_place(where) for where in devices]
    if not places:
        return []
    copies = _copies(list(network.parameters()), places, detach)
    for with_grad in (True, False):
        buffers = [b for b in network.buffers() if b.requires_grad is with_grad]
        copies |= _copies(buffers, places, detach or not with_grad)
    replicas: list[_M] = []
    for i in range(len(places)):
        made = {m: m._replicate_for_data_parallel() for m in network.modules()}
        for module, replica in made.items():
            for name, child in module._modules.items():
                replica._modules[name] = None if child is None else made[child]
            for name, tensor in module._buffers.items():
                replica._buffers[name] = None if tensor is None else copies[tensor][i]
            shown = {n: None if p is None else copies[p][i] for n, p in module._parameters.items()}
            replica._former_parameters = {n: t for n, t in shown.items() if t is not None}
            for name, tensor in shown.items():
                if tensor is None:
                    replica._parameters[name] = None
                else:
                    setattr(replica, name, tensor)
        replicas.append(made[network])
    return replicas
