"""Checkpoints in a folder, as PyTorch writes and reads them: a file of each rank that has something
to write, and a manifest.

    .metadata              what is where: `_manifest.py`
    __RANK_N_TOKEN.distcp  tensors and other objects as `tenon.save` writes them, one behind the
                           other

Files are written beside their place and renamed; the manifest is written last, so that a
checkpoint is either the one before or the new one, whole. Files of the one before are removed
then. Every box has a hash, which is compared when it is read; those of PyTorch's files have none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tenon import serialization
from tenon.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tenon.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.checkpoint.staging import BlockingAsyncStager
from tenon.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from tenon.distributed.checkpoint.utils import narrow_tensor_by_index
from tenon.futures import Future
from tenon.io.atomic import replace, replacing
from tenon.io.errors import FileFormatError

__all__ = ["FileSystemReader", "FileSystemWriter", "SerializationFormat"]

MANIFEST = ".metadata"
CURRENT_DCP_VERSION = "1.0.0"  # of PyTorch's format


class SerializationFormat(Enum):
    """What the files hold; TORCH_SAVE is what there is."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


@dataclass
class _StorageInfo:
    """Where a box lies."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None
    sha256: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if v is not None}

    def is_sound(self) -> bool:
        """Whether it can be the place of a box."""
        places = [self.__dict__.get("offset"), self.__dict__.get("length")]
        named = type(self.__dict__.get("relative_path")) is str
        return named and all(type(n) is int and n >= 0 for n in places)


@dataclass
class _StoragePrefix:
    """How the names of a rank's files begin."""

    prefix: str


def done(value: Any) -> Future[Any]:
    """A future that has come."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class _Folder:
    """What writer and reader know of their folder."""

    path: Path

    @property
    def checkpoint_id(self) -> Path:
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is the path of a folder."""
        return "://" not in os.fspath(checkpoint_id)


class FileSystemWriter(_Folder, StorageWriter, BlockingAsyncStager):
    """Writes checkpoints into a folder. single_file_per_rank=False: a file for each box."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[Any] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        del sync_files, thread_count, per_thread_copy_ahead  # one thread, which waits for the disk
        if _extensions or serialization_format is not SerializationFormat.TORCH_SAVE:
            raise NotImplementedError(
                "FileSystemWriter: extensions and files of safetensors are not there"
            )
        BlockingAsyncStager.__init__(self, cache_staged_state_dict)
        self.path = Path(path)
        self.single_file_per_rank = single_file_per_rank
        self.overwrite = overwrite
        self.save_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(self.checkpoint_id, self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / MANIFEST).exists():
            raise RuntimeError(f"{self.path} has a checkpoint, and overwrite=False was said")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [
            dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{rank}_"))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        objects = [i for i in plan.items if i.type == WriteItemType.BYTE_IO]
        items = objects + [i for i in plan.items if i.type != WriteItemType.BYTE_IO]
        each = [items] if self.single_file_per_rank else [[item] for item in items]
        token = uuid.uuid4().hex[:12]
        told: list[WriteResult] = []
        for n, some in enumerate(each if items else []):
            told += self._write(f"{plan.storage_data.prefix}{n}_{token}.distcp", some, planner)
        return done(told)

    def _write(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        at, told = 0, []
        with replacing(self.path / name) as file:
            for item in items:
                value = planner.resolve_data(item)
                if isinstance(value, io.BytesIO):
                    data = value.getvalue()
                else:
                    room = io.BytesIO()
                    serialization.save(_alone(value), room)
                    data = room.getvalue()
                file.write(data)
                place = _StorageInfo(name, at, len(data), sha256=hashlib.sha256(data).hexdigest())
                told.append(WriteResult(item.index, len(data), place))
                at += len(data)
        return told

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        from tenon.distributed.checkpoint import _manifest

        metadata.version, metadata.storage_meta = CURRENT_DCP_VERSION, self.storage_meta()
        metadata.storage_data = {r.index: r.storage_data for told in results for r in told}
        before = _files(self.path)
        replace(self.path / MANIFEST, _manifest.written(metadata))
        for name in before - {place.relative_path for place in metadata.storage_data.values()}:
            (self.path / name).unlink(missing_ok=True)


def _alone(t: Any) -> Any:
    """A tensor on the CPU whose memory holds nothing else."""
    t = t.detach().cpu()
    return t if t.untyped_storage().nbytes() == t.nbytes else t.clone()


def _files(folder: Path) -> set[str]:
    """Those of the checkpoint in a folder."""
    try:
        stored = FileSystemReader(folder).read_metadata().storage_data
    except (OSError, FileFormatError):
        return set()
    return {Path(place.relative_path).name for place in stored.values()}


class FileSystemReader(_Folder, StorageReader):
    """Reads checkpoints from a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.reset(path)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.storage_data: dict[MetadataIndex, _StorageInfo] = {}
        self.load_id = str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        from tenon.distributed.checkpoint import _manifest

        path = self.path / MANIFEST
        told = _manifest.read(path.read_bytes(), path)
        if told.storage_meta is None:
            told.storage_meta = StorageMeta()
        told.storage_meta.load_id = self.load_id
        return told

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if metadata.storage_data is None:
            raise AssertionError("storage_data must not be None in metadata")
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted: dict[MetadataIndex, list[ReadItem]] = {}
        for item in plan.items:
            wanted.setdefault(item.storage_index, []).append(item)
        for index, items in wanted.items():
            data = self._bytes(index)
            if items[0].type == LoadItemType.BYTE_IO:
                for item in items:
                    planner.load_bytes(item, io.BytesIO(data))
                continue
            whole = serialization.load(io.BytesIO(data), map_location="cpu")
            for item in items:
                part = narrow_tensor_by_index(whole, item.storage_offsets, item.lengths)
                target = planner.resolve_tensor(item).detach()
                if target.size() != part.size():
                    raise AssertionError(
                        f"req {index} mismatch sizes {target.size()} vs {part.size()}"
                    )
                target.copy_(part)
                planner.commit_tensor(item, target)
        return done(None)

    def _bytes(self, index: MetadataIndex) -> bytes:
        """What lies at a box's place, as it was written."""
        place = self.storage_data[index]
        path = self.path / Path(place.relative_path).name
        if place.transform_descriptors:
            raise NotImplementedError(
                f"{path}: '{index.fqn}' was written by extensions "
                f"{list(place.transform_descriptors)}, which are not there"
            )
        try:
            with open(path, "rb") as file:
                file.seek(place.offset)
                data = file.read(place.length)
        except FileNotFoundError:
            raise FileFormatError(f"{path}: the file of '{index.fqn}' is missing") from None
        damaged = len(data) != place.length
        if damaged or (place.sha256 and hashlib.sha256(data).hexdigest() != place.sha256):
            raise FileFormatError(
                f"{path}: '{index.fqn}' is damaged: bytes {place.offset} to "
                f"{place.offset + place.length} are not those that were written"
            )
        return data
