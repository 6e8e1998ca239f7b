"""What a checkpoint of several processes says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tenon

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor: index of its first element, and its shape."""

    offsets: tenon.Size
    sizes: tenon.Size


@dataclass
class TensorProperties:
    """What a tensor is beside its shape."""

    dtype: tenon.dtype = tenon.float32
    requires_grad: bool = False


@dataclass
class TensorStorageMetadata:
    """A tensor: its shape and the boxes that were written of it."""

    properties: TensorProperties
    size: tenon.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor."""


@dataclass(frozen=True)
class MetadataIndex:
    """A box of an entry."""

    fqn: str
    offset: tuple[int, ...] | None = None


@dataclass
class Metadata:
    """All entries. planner_data: where each lies in the nested state; storage_data: file, place,
    length and hash of each box."""

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: dict[str, list[Any]] = field(default_factory=dict)
    storage_data: dict[MetadataIndex, dict[str, Any]] = field(default_factory=dict)
    world_size: int = 1
