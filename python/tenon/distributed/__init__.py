"""Process groups. One process is a group of its own; more than one is not there yet."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from tenon import Tensor


class ReduceOp(Enum):
    """How the values of all processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4


class Work:
    """An operation that was started; with one process it is done at once."""

    def wait(self, timeout: Any = None) -> bool:
        """Waits until it is done."""
        return True

    def is_completed(self) -> bool:
        """Whether it is done."""
        return True


class ProcessGroup:
    """The group of the one process."""

    def rank(self) -> int:
        """The number of this process."""
        return 0

    def size(self) -> int:
        """How many processes there are."""
        return 1


class group:  # noqa: N801 - PyTorch's name
    """Names of groups."""

    WORLD: ProcessGroup | None = None


GroupMember = group
_backend: str | None = None


def is_available() -> bool:
    """Whether there are process groups at all."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group was called."""
    return group.WORLD is not None


def is_nccl_available() -> bool:
    """Whether GPUs can exchange data."""
    return False


def is_gloo_available() -> bool:
    """Whether processes can exchange data by gloo."""
    return False


def is_mpi_available() -> bool:
    """Whether processes can exchange data by MPI."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return False


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes this process a group. world_size and rank default to WORLD_SIZE and RANK."""
    global _backend
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    size = world_size if world_size != -1 else int(os.environ.get("WORLD_SIZE", "1"))
    number = rank if rank != -1 else int(os.environ.get("RANK", "0"))
    if size != 1:
        raise NotImplementedError(
            f"init_process_group: {size} processes need collectives, which are not there yet; "
            "one process works"
        )
    if number != 0:
        raise ValueError(f"init_process_group: rank {number} of a group of one process")
    _backend = backend or "gloo"
    group.WORLD = ProcessGroup()


def destroy_process_group(group: Any = None) -> None:
    """Undoes init_process_group."""
    _world()
    globals()["group"].WORLD = None


def _world() -> ProcessGroup:
    if group.WORLD is None:
        raise ValueError(
            "Default process group has not been initialized, "
            "please make sure to call init_process_group."
        )
    return group.WORLD


def get_rank(group: Any = None) -> int:
    """The number of this process in the group."""
    return _world().rank()


def get_world_size(group: Any = None) -> int:
    """How many processes the group has."""
    return _world().size()


def get_backend(group: Any = None) -> str:
    """The name that init_process_group was given."""
    _world()
    return _backend or "gloo"


def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> ProcessGroup:
    """A group of some of the processes: with one process, that one."""
    return _world()


def _done(async_op: bool) -> Work | None:
    _world()
    return Work() if async_op else None


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The reduction over all processes, in place: with one process the tensor as it is."""
    return _done(async_op)


def reduce(
    tensor: Tensor, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_reduce whose result one process gets."""
    return _done(async_op)


def broadcast(
    tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensor of process src, in all processes."""
    return _done(async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all processes, in all processes."""
    _world()
    tensor_list[0].copy_(tensor)
    return _done(async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all processes as one."""
    _world()
    output_tensor.copy_(input_tensor.view_as(output_tensor))
    return _done(async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes, in all processes."""
    _world()
    object_list[0] = obj


def broadcast_object_list(object_list: list[Any], src: int = 0, *args: Any, **kw: Any) -> None:
    """The objects of process src, in all processes."""
    _world()


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The tensors of all processes, in process dst."""
    if gather_list:
        gather_list[0].copy_(tensor)
    return _done(async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """One tensor of process src for each process."""
    if scatter_list:
        tensor.copy_(scatter_list[0])
    return _done(async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits for all processes."""
    return _done(async_op)
