"""Items of plans: boxes of tensors that are written, and those that a rank needs of what was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    LoadItemType,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["create_read_items_for_chunk_list"]


def _box_of(t: Any) -> ChunkStorageMetadata:
    """The box of a DTensor that this rank has."""
    if any(p.is_partial() for p in t.placements):
        raise ValueError("a DTensor whose ranks have terms of a sum cannot be saved or loaded")
    sizes, offsets = t._spec.local
    return ChunkStorageMetadata(tenon.Size(offsets), tenon.Size(sizes))


def _is_dtensor(value: Any) -> bool:
    from tenon.distributed.tensor import DTensor

    return isinstance(value, DTensor)


def has_part(value: Any) -> bool:
    """Whether this rank has something of it: all but DTensors of other ranks' meshes."""
    return not _is_dtensor(value) or value.device_mesh.get_coordinate() is not None


# ---- What is written -----------------------------------------------------------------------------


def _create_write_items_for_dtensor(fqn: str, tensor: Any) -> WriteItem:
    box = _box_of(tensor)
    properties = TensorProperties.create_from_tensor(tensor._local_tensor)
    return WriteItem(
        MetadataIndex(fqn, box.offsets), WriteItemType.SHARD,
        tensor_data=TensorWriteData(box, properties, tensor.size()),
    )  # fmt: skip


def _create_write_item_for_tensor(fqn: str, tensor: Tensor) -> WriteItem:
    (box,) = _create_chunk_list(tensor)
    properties = TensorProperties.create_from_tensor(tensor)
    return WriteItem(
        MetadataIndex(fqn, box.offsets), WriteItemType.TENSOR,
        tensor_data=TensorWriteData(box, properties, tensor.size()),
    )  # fmt: skip


def _create_write_item_for_bytesio(fqn: str, value: Any) -> WriteItem:
    del value
    return WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)


def _create_write_items(fqn: str, value: Any) -> list[WriteItem]:
    """What this rank can write of an entry; a class may say it itself."""
    if hasattr(value, "__create_write_items__"):
        return value.__create_write_items__(fqn, value)
    if _is_dtensor(value):
        return [_create_write_items_for_dtensor(fqn, value)]
    if isinstance(value, Tensor):
        return [_create_write_item_for_tensor(fqn, value)]
    return [_create_write_item_for_bytesio(fqn, value)]


def _create_default_metadata_only_plan(state_dict: STATE_DICT_TYPE) -> SavePlan:
    return SavePlan([i for k, v in state_dict.items() for i in _create_write_items(k, v)])


# ---- What is read --------------------------------------------------------------------------------


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that this rank has; a class may say it itself."""
    if hasattr(tensor, "__create_chunk_list__"):
        return tensor.__create_chunk_list__()
    if _is_dtensor(tensor):
        return [_box_of(tensor)]
    if isinstance(tensor, Tensor):
        return [ChunkStorageMetadata(tenon.Size([0] * tensor.ndim), tensor.size())]
    raise ValueError(f"expected a tensor, got {type(tensor).__name__}")


def _create_read_item_for_byteio(
    dest_index: MetadataIndex, dest_offset: int, storage_index: MetadataIndex,
    storage_offset: int, length: int,
) -> ReadItem:  # fmt: skip
    return ReadItem(
        LoadItemType.BYTE_IO, dest_index, tenon.Size((dest_offset,)), storage_index,
        tenon.Size((storage_offset,)), tenon.Size((length,)),
    )  # fmt: skip


def _create_read_item_for_tensor(
    dest_index: MetadataIndex, dest_offsets: Sequence[int], storage_index: MetadataIndex,
    storage_offsets: Sequence[int], lengths: Sequence[int],
) -> ReadItem:  # fmt: skip
    return ReadItem(
        LoadItemType.TENSOR, dest_index, tenon.Size(dest_offsets), storage_index,
        tenon.Size(storage_offsets), tenon.Size(lengths),
    )  # fmt: skip


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """What the boxes of this rank need of those that were written."""
    items = []
    for at, own in enumerate(local_chunks):
        for place, stored in enumerate(checkpoint_md.chunks):
            low = [max(a, b) for a, b in zip(own.offsets, stored.offsets, strict=True)]
            ends = zip(own.offsets, own.sizes, stored.offsets, stored.sizes, strict=True)
            lengths = [min(a + n, b + m) - x for (a, n, b, m), x in zip(ends, low, strict=True)]
            if any(n <= 0 for n in lengths):
                continue
            items.append(
                _create_read_item_for_tensor(
                    MetadataIndex(fqn, own.offsets, at),
                    [x - a for x, a in zip(low, own.offsets, strict=True)],
                    MetadataIndex(fqn, stored.offsets, place),
                    [x - b for x, b in zip(low, stored.offsets, strict=True)],
                    lengths,
                )
            )
    return items


def _create_read_items(fqn: str, md: STORAGE_TYPES, obj: Any) -> list[ReadItem]:
    if isinstance(md, BytesStorageMetadata):
        index = MetadataIndex(fqn)
        return [_create_read_item_for_byteio(index, 0, index, 0, 0)]
    try:
        boxes = _create_chunk_list(obj)
    except ValueError as err:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found "
            f"{type(md)}"
        ) from err
    return create_read_items_for_chunk_list(fqn, md, boxes)


def lacking(items: list[ReadItem], obj: Any) -> int:
    """How many elements of this rank's part no item reads."""
    needed = sum(math.prod(box.sizes) for box in _create_chunk_list(obj))
    return needed - sum(math.prod(i.lengths) for i in items)
