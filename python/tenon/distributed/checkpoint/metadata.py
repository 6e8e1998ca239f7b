"""What a checkpoint of several processes says of itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import tenon
from tenon import Tensor

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
    "TensorProperties", "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor: index of its first element, and its shape."""

    offsets: tenon.Size
    sizes: tenon.Size


class _MEM_FORMAT_ENCODING(Enum):  # noqa: N801 - PyTorch's name, which stands in files
    """A memory format in a file."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


def _formats() -> dict[Any, _MEM_FORMAT_ENCODING]:
    known = tenon.contiguous_format, tenon.channels_last, tenon.preserve_format
    return dict(zip(known, _MEM_FORMAT_ENCODING, strict=True))


@dataclass
class TensorProperties:
    """What a tensor is beside its shape."""

    dtype: tenon.dtype = field(default_factory=tenon.get_default_dtype)
    layout: tenon.layout = tenon.strided
    requires_grad: bool = False
    memory_format: tenon.memory_format = tenon.contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        encoded = _formats().get(self.memory_format)
        if encoded is None:
            raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")
        return self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory = state
        found = [known for known, code in _formats().items() if code is encoded]
        if not found:
            raise RuntimeError(f"Invalid torch.memory_format encoding: {encoded}")
        self.memory_format = found[0]

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """Those of a tensor, as it is written."""
        return TensorProperties(
            dtype=tensor.dtype, layout=tensor.layout, requires_grad=tensor.requires_grad,
            pin_memory=tensor.is_pinned(),
        )  # fmt: skip


@dataclass
class TensorStorageMetadata:
    """A tensor: its shape and the boxes that were written of it."""

    properties: TensorProperties
    size: tenon.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, Any]


@dataclass
class StorageMeta:
    """Where a checkpoint is, and which save and load it is about."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """All entries. planner_data: what the planner keeps, the default one's where each lies in the
    nested state; storage_data: what the storage keeps of each box."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True, init=False)
class MetadataIndex:
    """A box of an entry. index: where in the entry's list it probably is."""

    fqn: str
    offset: tenon.Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(
        self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None
    ) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "offset", None if offset is None else tenon.Size(offset))
        object.__setattr__(self, "index", index)
