"""A DTensor as plain data, which `load` takes without trusting the file: its part of this process
and what says which tensor that is a part of."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor._redistribute import Layout, Spec, normal
from tenon.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
)

__all__: list[str] = []


def _plain_placement(p: Placement) -> tuple[Any, ...]:
    if isinstance(p, _StridedShard):
        return "strided", p.dim, p.split_factor
    if isinstance(p, Shard):
        return "shard", p.dim
    return ("partial", p.reduce_op) if isinstance(p, Partial) else ("replicate",)


def _placement(plain: Any) -> Placement:
    kind, *rest = plain
    if kind == "strided":
        return _StridedShard(_counts(rest[:1])[0], split_factor=_counts(rest[1:])[0])
    if kind == "shard":
        return Shard(_counts(rest)[0])
    if kind == "partial":
        return Partial(*rest)
    if kind != "replicate" or rest:
        raise ValueError(f"a placement {kind!r}")
    return Replicate()


def _counts(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or any(type(n) is not int or n < 0 for n in values):
        raise ValueError(f"expected numbers from 0, got {values!r}")
    return tuple(values)


def plain(spec: Spec) -> tuple[Any, ...]:
    """(device type, ranks, shape of the mesh, its names, this rank's place in it, placements,
    shape) as numbers and words."""
    mesh = spec.mesh
    layout = tuple(_plain_placement(p) for p in spec.placements)
    return (
        mesh.device_type, tuple(mesh.mesh.flatten().tolist()), mesh.shape, mesh.mesh_dim_names,
        mesh.get_coordinate(), layout, spec.shape,
    )  # fmt: skip


def spec_of(
    device_type: Any, ranks: Any, sizes: Any, names: Any, coordinate: Any, placements: Any,
    shape: Any,
) -> Spec:  # fmt: skip
    """What `plain` has written. Groups are those that this process has of the ranks; a process
    without them reads its part and cannot exchange it. ValueError: it is not consistent."""
    ranks, sizes, shape = _counts(ranks), _counts(sizes), _counts(shape)
    if type(device_type) is not str or len(ranks) != math.prod(sizes) or not sizes:
        raise ValueError("a mesh whose ranks do not fill it")
    if len(set(ranks)) != len(ranks):
        raise ValueError("a mesh that has a rank twice")
    if names is not None and (
        len(names) != len(sizes) or any(type(n) is not str for n in names)
    ):  # fmt: skip
        raise ValueError("a mesh with other names than dimensions")
    if coordinate is not None:
        coordinate = _counts(coordinate)
        if len(coordinate) != len(sizes) or any(c >= n for c, n in zip(coordinate, sizes)):
            raise ValueError("a place outside of the mesh")
    if len(placements) != len(sizes):
        raise ValueError("another number of placements than of the mesh's dimensions")
    layout: Layout = normal([_placement(p) for p in placements], len(shape))
    mesh = DeviceMesh.of_saved(
        device_type,
        tenon.tensor(ranks, dtype=tenon.int64, device="cpu").reshape(sizes),
        None if names is None else tuple(names),
        coordinate,
    )
    return Spec(mesh, layout, shape)
