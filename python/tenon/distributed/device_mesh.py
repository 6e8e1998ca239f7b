"""Ranks as an array with named dimensions, and the groups along each of them."""

from __future__ import annotations

import math
import os
from typing import Any

import tenon
from tenon import distributed
from tenon.distributed._groups import choose_device, group_of_ranks

__all__ = ["DeviceMesh", "init_device_mesh"]

_entered: list[DeviceMesh] = []


def current_mesh() -> DeviceMesh | None:
    """The mesh that was entered last."""
    return _entered[-1] if _entered else None


class _Entered:
    """The meshes that were entered, by the name that packages know."""

    mesh_stack = _entered

    def get_current_mesh(self) -> DeviceMesh:
        """The mesh that was entered last."""
        if not _entered:
            raise RuntimeError("No device mesh is currently active!")
        return _entered[-1]

    def get_root_mesh(self, device_mesh: DeviceMesh) -> DeviceMesh:
        """The mesh of which that one has some dimensions, or itself."""
        return device_mesh._get_root_mesh()


_mesh_resources = _Entered()


def _own_group(lists: list[list[int]]) -> Any:
    """The group of this process among the lists of ranks that all processes have."""
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, lists)
    known = sorted({tuple(ranks) for several in everyone for ranks in several})
    return distributed.new_subgroups_by_enumeration([list(ranks) for ranks in known])[0]


def _lines(mesh: Any, dim: int) -> list[list[int]]:
    """The ranks of each group of a dimension."""
    return mesh.movedim(dim, -1).reshape(-1, mesh.shape[dim]).tolist()


class DeviceMesh:
    """An array of ranks. The groups of a dimension: ranks that differ in this dimension alone."""

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: Any = None, _init_backend: bool = True, _groups: Any = None,
    ) -> None:  # fmt: skip
        self.device_type = device_type
        self.mesh = tenon.as_tensor(mesh, dtype=tenon.int64, device="cpu")
        self.mesh_dim_names = mesh_dim_names
        if mesh_dim_names is not None and len(mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length! Found "
                f"{self.mesh.ndim} dimensions and the names {mesh_dim_names}"
            )
        if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in "
                f"{mesh_dim_names}"
            )
        ranks = self.mesh.flatten().tolist()
        if len(set(ranks)) != len(ranks):
            raise RuntimeError(f"DeviceMesh: each rank must be in the mesh once, got {mesh}")
        if not distributed.is_initialized():
            distributed.init_process_group()
        if device_type == "cuda":
            choose_device()
        found = (self.mesh == distributed.get_rank()).nonzero()
        self._coordinate = tuple(found[0].tolist()) if len(found) else None
        if _groups is None:
            _groups = self._make_groups() if _init_backend else [None] * self.mesh.ndim
        self._groups = _groups
        self._root: DeviceMesh | None = None  # the mesh of which this one has some dimensions
        self._flat: dict[str, DeviceMesh] = {}  # those that _flatten has made of parts of this one

    def _make_groups(self) -> list[Any]:
        if self.mesh.ndim == 1 and self.mesh.numel() == distributed.get_world_size():
            return [distributed.group.WORLD]
        groups = []
        for dim in range(self.mesh.ndim):
            own, _ = distributed.new_subgroups_by_enumeration(_lines(self.mesh, dim))
            groups.append(distributed.GroupMember.NON_GROUP_MEMBER if own is None else own)
        return groups

    @classmethod
    def of_saved(
        cls, device_type: str, mesh: Any, names: tuple[str, ...] | None, coordinate: Any
    ) -> DeviceMesh:
        """The mesh of a file: its groups are those of its ranks that this process has already."""
        made = cls.__new__(cls)
        made.device_type, made.mesh, made.mesh_dim_names = device_type, mesh, names
        made._coordinate, made._root, made._flat = coordinate, None, {}
        made._groups = []
        for dim in range(mesh.ndim):
            found = next(filter(None, map(group_of_ranks, _lines(mesh, dim))), None)
            outside = distributed.GroupMember.NON_GROUP_MEMBER
            made._groups.append(outside if found is None else found)
        return made

    def __reduce__(self) -> Any:
        """Groups by their ranks: a process that loads the mesh looks for its groups of these."""
        return DeviceMesh.of_saved, (
            self.device_type, self.mesh, self.mesh_dim_names, self._coordinate
        )  # fmt: skip

    def _dim(self, mesh_dim: int | str | None) -> int:
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None:
                raise RuntimeError(
                    f"Cannot slice a DeviceMesh without mesh_dim_names! '{mesh_dim}' was asked for"
                )
            if mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim}: {self.mesh_dim_names} are there")
            return self.mesh_dim_names.index(mesh_dim)
        if mesh_dim is None:
            if self.mesh.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.mesh.ndim} dimensions. Optional kwarg "
                    "`mesh_dim` needs to be specified when device_mesh.ndim > 1."
                )
            return 0
        return mesh_dim

    @classmethod
    def from_group(
        cls, group: Any, device_type: str, mesh: Any = None, *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:  # fmt: skip
        """The mesh of groups that are there already: of one, whose ranks are its only dimension,
        or of a list with a group for each dimension of `mesh`, the ranks as an array."""
        if isinstance(group, (list, tuple)):
            groups = list(group)
            if mesh is None:
                raise ValueError("DeviceMesh.from_group: several groups need mesh, their ranks")
            ranks = tenon.as_tensor(mesh, dtype=tenon.int64, device="cpu")
            if ranks.ndim != len(groups):
                raise ValueError(
                    "Expects mesh with ndim equal to number of ProcessGroups but got mesh "
                    f"{ranks.tolist()} and {len(groups)} ProcessGroups"
                )
        else:
            groups = [group]
            own = distributed.get_process_group_ranks(group)
            ranks = tenon.as_tensor(own if mesh is None else mesh, dtype=tenon.int64, device="cpu")
            if ranks.tolist() != own:
                raise ValueError(f"Invalid mesh {ranks.tolist()} for ProcessGroup with ranks {own}")
        return cls(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=groups)

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this process along a dimension."""
        found = self._groups[self._dim(mesh_dim)]
        if found is None:
            raise RuntimeError(
                "DeviceMesh process groups not initialized! It was loaded where there are no "
                "groups of its ranks, or made without; init_device_mesh makes them"
            )
        return found

    def get_all_groups(self) -> list[Any]:
        """The groups of this process, by dimension."""
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The place of this process along a dimension."""
        return distributed.get_rank(self.get_group(mesh_dim))

    def _get_mesh_dim_by_name(self, mesh_dim_name: str) -> int:
        if self.mesh_dim_names is None:
            raise KeyError("No `mesh_dim_names` found.")
        return self._dim(mesh_dim_name)

    def _get_root_mesh(self) -> DeviceMesh:
        """The mesh of which this one has some dimensions, or itself."""
        return self._root or self

    def _get_root_mesh_dim(self) -> int | None:
        """Which dimension of its root this mesh is; None: it is the root, or has several."""
        if self._root is None or self.mesh_dim_names is None or len(self.mesh_dim_names) != 1:
            return None
        return self._root._get_mesh_dim_by_name(self.mesh_dim_names[0])

    @property
    def _dim_group_names(self) -> list[str]:
        """The names of the groups of this process, by dimension."""
        return [g.group_name for g in self._groups]

    def get_rank(self) -> int:
        """The number of this process among all."""
        return distributed.get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """The place of this process; None where it is not in the mesh."""
        return self._coordinate

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, in all or along a dimension."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[mesh_dim]

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(self.mesh.shape)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dimensions that this process is in."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if len(wanted) == 1 and wanted[0] in self._flat:
            return self._flat[wanted[0]]
        dims = [self._dim(n) for n in wanted]
        if self._coordinate is None:
            raise RuntimeError("this process is not in the mesh")
        index = tuple(
            slice(None) if d in dims else self._coordinate[d] for d in range(self.mesh.ndim)
        )
        part = self.mesh[index]
        order = sorted(dims)
        part = part.permute([order.index(d) for d in dims]) if len(dims) > 1 else part
        found = DeviceMesh(
            self.device_type, part, mesh_dim_names=wanted, _groups=[self._groups[d] for d in dims]
        )
        found._root = self._root or self
        return found

    @staticmethod
    def _concatenate(device_mesh_list: list[DeviceMesh]) -> DeviceMesh:
        """The mesh of the dimensions of several parts of the same mesh."""
        root = device_mesh_list[0]._root
        names = tuple(n for m in device_mesh_list for n in m.mesh_dim_names or ())
        if root is None or any(m._root is not root for m in device_mesh_list) or (
            len(set(names)) != len(names)
        ):  # fmt: skip
            raise ValueError(
                "expected parts of one mesh that share no dimension, got "
                + " and ".join(map(str, device_mesh_list))
            )
        return root[names]

    def _flatten(
        self, mesh_dim_name: str | None = None, backend_override: Any = None
    ) -> DeviceMesh:
        """The mesh of all its ranks in one dimension; all processes of the run call it. The mesh of
        which this one is a part has it by its name then."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name, root = mesh_dim_name or "_".join(self.mesh_dim_names), self._root or self
        ranks = self.mesh.flatten()
        if self.mesh_dim_names == (name,):
            return self
        if name in (root.mesh_dim_names or ()) or (
            name in root._flat and root._flat[name].mesh.tolist() != ranks.tolist()
        ):  # fmt: skip
            raise ValueError(f"_flatten: {name} is there already, for other ranks of {root}")
        if name not in root._flat:
            groups = None
            if self.mesh.numel() != distributed.get_world_size():
                groups = [_own_group([ranks.tolist()])]
            made = DeviceMesh(self.device_type, ranks, mesh_dim_names=(name,), _groups=groups)
            made._root = root
            root._flat[name] = made
        return root._flat[name]

    def _unflatten(
        self, dim: int | str, mesh_sizes: tuple[int, ...], mesh_dim_names: tuple[str, ...],
        backend_override: Any = None,
    ) -> DeviceMesh:  # fmt: skip
        """The mesh with several dimensions in the place of one; all processes of the run call
        it."""
        at = self._dim(dim)
        if len(mesh_sizes) != len(mesh_dim_names):
            raise RuntimeError(
                f"_unflatten: mesh_dim_names must have one name for each of {len(mesh_sizes)} "
                f"dimensions, got {mesh_dim_names}"
            )
        if math.prod(mesh_sizes) != self.mesh.shape[at]:
            raise ValueError(
                f"_unflatten: {tuple(mesh_sizes)} are not the {self.mesh.shape[at]} ranks of "
                f"dimension {dim}"
            )
        mesh, groups = self.mesh.unflatten(at, mesh_sizes), list(self._groups)
        groups[at : at + 1] = [
            _own_group(mesh.movedim(d, -1).reshape(-1, mesh.shape[d]).tolist())
            for d in range(at, at + len(mesh_sizes))
        ]
        old = self.mesh_dim_names
        names = None if old is None else (*old[:at], *mesh_dim_names, *old[at + 1 :])
        return DeviceMesh(self.device_type, mesh, mesh_dim_names=names, _groups=groups)

    def __enter__(self) -> DeviceMesh:
        """Inside it this mesh is that of tensors that are distributed without naming one."""
        _entered.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _entered.pop()

    def _key(self) -> Any:
        return (
            self.device_type,
            tuple(self.mesh.shape),
            tuple(self.mesh.flatten().tolist()),
            (self.mesh_dim_names),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        names, ranks = self.mesh_dim_names, ""
        sizes = (
            f"({', '.join(f'{k}={n}' for k, n in zip(names, self.shape))})" if names else self.shape
        )
        if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") == "DETAIL":
            ranks = f", Mesh: {self.mesh.tolist()}"
        return f"DeviceMesh({sizes}, '{self.device_type}', stride={self.mesh.stride()}{ranks})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of the ranks from 0 on, in order; all processes call it."""
    if not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. If you maintained a "
            "'torch.device' object, it's recommended to pass in 'device.type'."
        )
    if not distributed.is_initialized():
        distributed.init_process_group()
    size = distributed.get_world_size()
    wanted = math.prod(mesh_shape)
    if wanted > size:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {size}, but found {wanted} ranks!"
        )
    if wanted < 1:
        raise RuntimeError(f"init_device_mesh: a mesh of {tuple(mesh_shape)} has no ranks")
    mesh = tenon.arange(wanted, device="cpu").view(mesh_shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
