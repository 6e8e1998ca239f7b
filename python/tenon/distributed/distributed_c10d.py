"""The module in which PyTorch keeps process groups and their operations, by its name."""

from __future__ import annotations

import pickle
import warnings
from datetime import timedelta
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed import *  # noqa: F403 - the very same names
from tenon.distributed._collectives import _outside
from tenon.distributed._groups import (
    GroupMember,
    ProcessGroup,
    _group,
    _seconds,
    default_store,
    is_xccl_available,  # noqa: F401 - packages look for it here
)
from tenon.distributed._objects import _bytes, _object
from tenon.distributed.constants import default_pg_timeout  # noqa: F401

__all__ = list(distributed.__all__)

_rank_not_in_group = _outside
_get_global_rank = distributed.get_global_rank
_pickler, _unpickler = pickle.Pickler, pickle.Unpickler
_AVAILABLE = {
    "_GLOO_AVAILABLE": distributed.is_gloo_available,
    "_MPI_AVAILABLE": distributed.is_mpi_available,
    "_NCCL_AVAILABLE": distributed.is_nccl_available,
}


def __getattr__(name: str) -> Any:
    """Whether an engine was built, which is looked for when it is asked."""
    if name in _AVAILABLE:
        return _AVAILABLE[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _get_default_group() -> ProcessGroup:
    """The group of all processes."""
    return _group(None)


def _get_default_store() -> Any:
    """A store that all processes share."""
    return default_store()


def _get_pg_default_device(group: Any = None) -> Any:
    """The device that objects travel through."""
    _group(group)
    return tenon.device("cpu")


def _object_to_tensor(obj: Any, device: Any, group: Any) -> tuple[Tensor, Tensor]:
    """An object, pickled, and its size in bytes."""
    _group(group)
    data = _bytes(obj).to(device)
    return data, tenon.tensor([data.numel()], device=device)


def _tensor_to_object(tensor: Tensor, tensor_size: int, group: Any) -> Any:
    """The object in the first bytes of a tensor."""
    _group(group)
    return _object(tensor.cpu()[: int(tensor_size)])


def _warn_not_in_group(op_name: str) -> None:
    """Says that an operation does nothing, as this process is not in its group."""
    warnings.warn(
        f"Running {op_name} on global rank {distributed.get_rank()} which does not belong to the "
        "given group.",
        stacklevel=2,
    )


def _set_pg_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
    """How long the group's next operations may wait for its ranks."""
    if timeout is None:
        raise TypeError("_set_pg_timeout: expected a timedelta, got None")
    _group(group)._seconds = _seconds(timeout)


def _get_process_group_name(group: ProcessGroup) -> str:
    """What the group is called."""
    return _group(group).group_name


def _is_default(group: Any) -> bool:
    return group is None or group is GroupMember.WORLD


def _resolve_process_group(name: str) -> ProcessGroup:
    """The group of a name."""
    from tenon.distributed._groups import _state

    for group in _state.groups:
        if group.group_name == name:
            return group
    raise RuntimeError(f"Could not resolve the process group registered under the name {name}")
