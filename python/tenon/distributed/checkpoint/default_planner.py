"""The planners that save and load take where a program has none of its own: each box is written by
one rank, and each rank reads what it has of a tensor, whoever wrote it."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterator
from typing import Any

import tenon
from tenon import Tensor, serialization
from tenon.distributed.checkpoint._nested_dict import (
    Path,
    flat,
    flatten_state_dict,
    set_element,
)
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.checkpoint.planner_helpers import (
    _create_default_metadata_only_plan,
    _create_read_items,
    _create_write_items,
    has_part,
    lacking,
)
from tenon.distributed.checkpoint.utils import find_state_dict_object, narrow_tensor_by_index

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "LoadPlanner", "SavePlanner",
    "create_default_global_load_plan", "create_default_global_save_plan",
    "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip


# ---- Save ----------------------------------------------------------------------------------------


def create_default_local_save_plan(state_dict: STATE_DICT_TYPE, is_coordinator: bool) -> SavePlan:
    """All that this rank has."""
    del is_coordinator
    mine = ((k, v) for k, v in state_dict.items() if has_part(v))
    return SavePlan([item for k, v in mine for item in _create_write_items(k, v)])


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """The plans, with each box's place in its tensor's list, and what they say of the tensors."""
    found: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            fqn = item.index.fqn
            if item.type != WriteItemType.SHARD and fqn in found:
                raise AssertionError(f"'{fqn}' is written by two ranks")
            if item.type == WriteItemType.BYTE_IO:
                found[fqn] = BytesStorageMetadata()
            else:
                data = item.tensor_data
                if data is None or data.chunk is None:
                    raise AssertionError(f"Cannot create MD for tensor without bounds. FQN: {fqn}")
                told = found.setdefault(fqn, TensorStorageMetadata(data.properties, data.size, []))
                if rewrite_index_hints:
                    index = MetadataIndex(fqn, item.index.offset, len(told.chunks))
                    item = dataclasses.replace(item, index=index)
                told.chunks.append(data.chunk)
            items.append(item)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(found)


def _create_default_local_metadata(state_dict: STATE_DICT_TYPE) -> Metadata:
    """What a checkpoint of this state alone says of itself."""
    return create_default_global_save_plan([_create_default_metadata_only_plan(state_dict)])[1]


def _alike(all_plans: list[SavePlan]) -> None:
    """ValueError where ranks have different things of one name."""
    known: dict[str, Any] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            data = item.tensor_data
            told = "no tensor" if data is None else (
                f"a tensor of {data.properties.dtype} and size {list(data.size)}"
            )  # fmt: skip
            before = known.setdefault(item.index.fqn, told)
            if before != told:
                raise ValueError(
                    f"'{item.index.fqn}' is {told} on rank {rank} and {before} on another rank"
                )


def _without_doubles(all_plans: list[SavePlan], lowest: bool) -> list[SavePlan]:
    """Plans in which each box is written by one rank: that which has least to write, or the
    first."""
    holders: dict[MetadataIndex, dict[int, WriteItem]] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            holders.setdefault(item.index, {})[rank] = item
    load = [0] * len(all_plans)
    owner = {}
    for index, some in holders.items():
        chosen = min(some, key=lambda r: (0 if lowest else load[r], r))
        owner[index] = chosen
        load[chosen] += some[chosen].tensor_storage_size() or 1
    return [
        dataclasses.replace(plan, items=[i for i in plan.items if owner[i.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]


def _overlap(a: ChunkStorageMetadata, b: ChunkStorageMetadata) -> bool:
    ends = zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)
    return all(x < y + m and y < x + n for x, n, y, m in ends)


def _wrong_boxes(key: str, told: TensorStorageMetadata, several: bool) -> Iterator[str]:
    for box in told.chunks:
        ends = zip(box.offsets, box.sizes, told.size, strict=True)
        if any(a < 0 or n < 0 or a + n > size for a, n, size in ends):
            yield f"key:{key} has out of bounds chunk: tensor-size:{told.size} chunk: {box}"
    boxes = [box for box in told.chunks if 0 not in box.sizes]
    cut = max(range(len(told.size)), key=lambda d: told.size[d])
    reached: list[ChunkStorageMetadata] = []
    for box in sorted(boxes, key=lambda box: box.offsets[cut]):
        reached = [b for b in reached if b.offsets[cut] + b.sizes[cut] > box.offsets[cut]]
        for other in reached:
            if _overlap(box, other):
                yield f"key:{key} has overlapping chunks: {box} {other}"
        reached.append(box)
    volume, whole = sum(math.prod(box.sizes) for box in boxes), math.prod(told.size)
    if several and volume != whole:
        yield f"key:{key} invalid fill tensor-volume: {whole} chunks-volume: {volume}"


def _validate_global_plan(global_plan: list[SavePlan], metadata: Metadata) -> list[str]:
    """What is wrong with the boxes of tensors."""
    several = len(global_plan) > 1
    return [
        error
        for key, told in metadata.state_dict_metadata.items()
        if isinstance(told, TensorStorageMetadata) and told.size
        for error in _wrong_boxes(key, told, several)
    ]


class DefaultSavePlanner(SavePlanner):
    """A box that several ranks have is written by one of them: by that which has least to write, or
    by the first (dedup_save_to_lowest_rank). Plans are made anew for each save."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        del dedup_replicated_tensors, enable_plan_caching
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        del storage_meta
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        _alike(all_plans)
        plans = _without_doubles(all_plans, self.dedup_save_to_lowest_rank)
        self.global_plan, self.metadata = create_default_global_save_plan(plans)
        if self.flatten_state_dict:
            ways: dict[str, Path] = {}
            for plan in reversed(plans):
                ways.update(plan.planner_data)
            self.metadata = dataclasses.replace(self.metadata, planner_data=ways)
        errors = _validate_global_plan(self.global_plan, self.metadata)
        if errors:
            raise ValueError(f"Failed to validate global plan: {'; '.join(errors[:3])}")
        return self.global_plan, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The entry, or this rank's box of it."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """A tensor as it is, something else as bytes."""
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        room = io.BytesIO()
        serialization.save(object, room)
        return room


# ---- Load ----------------------------------------------------------------------------------------


def create_default_local_load_plan(
    state_dict: STATE_DICT_TYPE, metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """What this rank needs; not strict: of what the checkpoint has."""
    items: list[ReadItem] = []
    for fqn, obj in state_dict.items():
        told = metadata.state_dict_metadata.get(fqn)
        if told is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            continue
        is_tensor = isinstance(told, TensorStorageMetadata)
        if is_tensor and isinstance(obj, Tensor) and told.size != obj.size():
            raise ValueError(
                f"Size mismatch between saved {told.size} and current: {obj.size()} for {fqn}"
            )
        if not has_part(obj):
            continue
        needed = _create_read_items(fqn, told, obj)
        if is_tensor and strict and (missing := lacking(needed, obj)):
            raise ValueError(
                f"'{fqn}': the checkpoint lacks {missing} elements of this rank's part"
            )
        items += needed
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The same plans."""
    return all_plans


def _with_memory(value: Any) -> Any:
    """State whose tensors without elements have some, in place."""
    from tenon.distributed.tensor import DTensor

    if isinstance(value, dict):
        for k, v in value.items():
            value[k] = _with_memory(v)
    elif isinstance(value, list):
        value[:] = [_with_memory(v) for v in value]
    elif isinstance(value, DTensor) and value.device.type == "meta":
        local = tenon.empty_like(value.to_local(), device=value.device_mesh.device_type)
        return DTensor.from_local(
            local, value.device_mesh, value.placements, shape=value.shape, stride=value.stride()
        )
    elif isinstance(value, Tensor) and value.device.type == "meta":
        return tenon.empty_like(value, device="cpu")
    return value


class DefaultLoadPlanner(LoadPlanner):
    """allow_partial_load: what the checkpoint does not have stays as it is."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: STATE_DICT_TYPE = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        _with_memory(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flat(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("self.metadata is not None")
        return create_default_local_load_plan(
            self.state_dict, self.metadata, not self.allow_partial_load
        )

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        fqn, found = read_item.dest_index.fqn, serialization.load(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[fqn], found)
        else:
            self.state_dict[fqn] = found

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """This rank's box of a tensor."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """What of it an item reads."""
        return narrow_tensor_by_index(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty state dict with all that the checkpoint has, or with the given keys."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = keys

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        way = (metadata.planner_data or {}).get(key, ())
        return any(".".join(map(str, way[: n + 1])) in self.keys for n in range(len(way)))

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        if state_dict:
            raise AssertionError("the state dict must be empty")
        if metadata is None:
            raise AssertionError("metadata is not None")
        for key, told in metadata.state_dict_metadata.items():
            if not self._should_include_key(key, metadata):
                continue
            place: Any = told
            if isinstance(told, TensorStorageMetadata):
                place = tenon.empty(told.size, dtype=told.properties.dtype, device="cpu")
            set_element(state_dict, (metadata.planner_data or {}).get(key, (key,)), place)
        super().set_up_planner(state_dict, metadata, is_coordinator)
