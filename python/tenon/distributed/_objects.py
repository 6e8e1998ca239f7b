"""Operations of a process group on Python objects, which travel pickled. Every process of a group
is trusted: unpickling runs what the sender says."""

from __future__ import annotations

import pickle
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributed._collectives import (
    _outside,
    _peer,
    all_gather,
    broadcast,
    gather,
    recv,
    scatter,
    send,
)  # fmt: skip
from tenon.distributed._groups import _group

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list",
    "scatter_object_list", "send_object_list",
]  # fmt: skip


def _bytes(obj: Any) -> Tensor:
    return tenon.frombuffer(bytearray(pickle.dumps(obj)), dtype=tenon.uint8)


def _object(data: Tensor) -> Any:
    return pickle.loads(bytes(data.numpy()))


def _list(name: str, argument: str, value: Any, least: int = 0) -> list[Any]:
    """The list that is filled, which has `least` places, or sent."""
    if not isinstance(value, list):
        raise TypeError(f"{name}(): expected `{argument}` to be a list, got {type(value).__name__}")
    if len(value) < least:
        raise ValueError(
            f"{name}(): `{argument}` has {len(value)} places for the objects of {least} processes"
        )
    return value


def _padded(data: Tensor, size: int) -> Tensor:
    return tenon.nn.functional.pad(data, (0, size - data.numel()))


def _sizes(size: int, group: Any) -> list[int]:
    """The number of bytes that each process has."""
    found = [tenon.zeros(1, dtype=tenon.int64, device="cpu") for _ in range(_group(group).size())]
    all_gather(found, tenon.tensor([size], dtype=tenon.int64, device="cpu"), group)
    return [int(n.item()) for n in found]


def _room(sizes: list[int]) -> list[Tensor]:
    return [tenon.empty(n, dtype=tenon.uint8, device="cpu") for n in sizes]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes, in all processes."""
    if _outside(group):
        return
    _list("all_gather_object", "object_list", object_list, _group(group).size())
    data = _bytes(obj)
    parts = _room(_sizes(data.numel(), group))
    all_gather(parts, data, group)
    object_list[: len(parts)] = [_object(p) for p in parts]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """The objects of all processes, in process dst."""
    if _outside(group):
        return
    members = _group(group)
    peer = _peer(members, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    mine = members.rank() == peer
    if mine and object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if mine:
        _list("gather_object", "object_gather_list", object_gather_list, members.size())
    data = _bytes(obj)
    sizes = _sizes(data.numel(), group)
    most = max(sizes)
    parts = _room([most] * len(sizes)) if mine else None
    gather(_padded(data, most), parts, None, group, False, peer)
    if object_gather_list is not None and parts is not None:
        object_gather_list[: len(parts)] = [_object(p[:n]) for p, n in zip(parts, sizes)]


def _broadcast_sizes(sizes: list[int], peer: int, group: Any) -> list[int]:
    numbers = tenon.tensor(sizes, dtype=tenon.int64, device="cpu")
    broadcast(numbers, None, group, False, peer)
    return [int(n) for n in numbers.tolist()]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """The objects of process src, in all processes."""
    if _outside(group):
        return
    members = _group(group)
    peer = _peer(members, 0 if src is None and group_src is None else src, group_src, "broadcast")
    mine = members.rank() == peer
    _list("broadcast_object_list", "object_list", object_list)
    parts = [_bytes(o) for o in object_list] if mine else []
    sizes = _broadcast_sizes([p.numel() for p in parts] or [0] * len(object_list), peer, group)
    data = (
        tenon.cat(parts)
        if mine and parts
        else tenon.empty(sum(sizes), dtype=tenon.uint8, device="cpu")
    )
    broadcast(data, None, group, False, peer)
    if not mine:
        object_list[:] = [_object(p) for p in data.split(sizes)]


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """One object of process src for each process, as the first of the output list."""
    if _outside(group):
        return
    members = _group(group)
    peer = _peer(members, 0 if src is None and group_src is None else src, group_src, "scatter")
    mine = members.rank() == peer
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size >= 1.")
    parts = [_bytes(o) for o in scatter_object_input_list or ()] if mine else []
    if mine and len(parts) != members.size():
        raise ValueError("scatter_object_list(): expected one object for each process")
    most = max((p.numel() for p in parts), default=0)
    sizes = _broadcast_sizes([most, *(p.numel() for p in parts)] if mine else
                             [0] * (members.size() + 1), peer, group)  # fmt: skip
    padded = [_padded(p, sizes[0]) for p in parts]
    data = tenon.empty(sizes[0], dtype=tenon.uint8, device="cpu")
    scatter(data, padded if mine else None, None, group, False, peer)
    scatter_object_output_list[0] = _object(data[: sizes[1 + members.rank()]])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Sends objects to process dst."""
    if _outside(group):
        return
    given = list(object_list) if isinstance(object_list, tuple) else object_list
    parts = [_bytes(o) for o in _list("send_object_list", "object_list", given)]
    send(
        tenon.tensor([p.numel() for p in parts], dtype=tenon.int64, device="cpu"),
        dst,
        group,
        0,
        group_dst,
    )
    send(tenon.cat(parts), dst, group, 0, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receives objects of process src, or of any that sends some, as many as the list is long;
    returns whose they are."""
    if _outside(group):
        return -1
    _list("recv_object_list", "object_list", object_list)
    sizes = tenon.zeros(len(object_list), dtype=tenon.int64, device="cpu")
    rank = recv(sizes, src, group, 0, group_src)
    data = tenon.empty(int(sizes.sum()), dtype=tenon.uint8, device="cpu")
    recv(data, rank, group)
    object_list[:] = [_object(p) for p in data.split([int(n) for n in sizes.tolist()])]
    return rank
