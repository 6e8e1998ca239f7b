"""Checkpoints in a folder: a file of each rank that has something to write, and a manifest.

    .metadata              one line with the hash of what follows, then JSON
    __RANK_0_TOKEN.distcp  boxes of tensors as packed memory, and other objects as `tenon.save`
                           writes them, one behind the other

Files are written beside their place and renamed; the manifest is written last, so that a
checkpoint is either the one before or the new one, whole. Files of the one before are removed
then. Every box has a hash, which is compared when it is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import tenon
from tenon import Tensor, serialization
from tenon.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.storage import StorageReader, StorageWriter
from tenon.io.atomic import replacing
from tenon.io.errors import FileFormatError

__all__ = ["FileSystemReader", "FileSystemWriter"]

MANIFEST = ".metadata"
_FORMAT = "tenon.distcp/1"


def _packed(t: Tensor) -> bytes:
    return t.detach().cpu().contiguous().reshape(-1).view(tenon.uint8).numpy().tobytes()


def _unpacked(data: bytes, dtype: tenon.dtype, shape: list[int]) -> Tensor:
    flat = tenon.frombuffer(bytearray(data), dtype=tenon.uint8) if data else tenon.empty(
        0, dtype=tenon.uint8, device="cpu"
    )  # fmt: skip
    return flat.view(dtype).view(shape)


class FileSystemWriter(StorageWriter):
    """Writes checkpoints into a folder."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        **options: Any,
    ) -> None:
        del single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead, options
        del cache_staged_state_dict  # a rank writes one file, at once, and waits for the disk
        super().__init__(path)
        self.overwrite = overwrite

    def prepare(self) -> str:
        """Makes the folder; the token of this checkpoint's files. Called on one rank."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / MANIFEST).exists():
            raise RuntimeError(f"{self.path} has a checkpoint, and overwrite=False was said")
        return uuid.uuid4().hex[:12]

    def write(self, rank: int, token: str, boxes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Writes what a rank has to; each box with file, place, length and hash."""
        if not boxes:
            return []
        name, at, told = f"__{rank}_0_{token}.distcp", 0, []
        with replacing(self.path / name) as file:
            for box in boxes:
                value = box["value"]
                if isinstance(value, Tensor):
                    data = _packed(value)
                else:
                    room = io.BytesIO()
                    serialization.save(value, room)
                    data = room.getvalue()
                file.write(data)
                place = {"file": name, "offset": at, "length": len(data),
                         "sha256": hashlib.sha256(data).hexdigest()}  # fmt: skip
                told.append({**{k: v for k, v in box.items() if k != "value"}, **place})
                at += len(data)
        return told

    def finish(self, entries: dict[str, Any], world_size: int) -> None:
        """Writes the manifest, and removes the files of the checkpoint before."""
        body = json.dumps(
            {"format": _FORMAT, "world_size": world_size, "entries": entries}, sort_keys=True
        )
        before = _files(self.path)
        with replacing(self.path / MANIFEST) as file:
            file.write(f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode())
        now = {box["file"] for e in entries.values() for box in e["boxes"]}
        for name in before - now:
            (self.path / name).unlink(missing_ok=True)


def _files(folder: Path) -> set[str]:
    try:
        entries = FileSystemReader(folder).entries()[0]
    except (OSError, FileFormatError):
        return set()
    return {box["file"] for e in entries.values() for box in e["boxes"]}


def _dtype(name: str, path: Path) -> tenon.dtype:
    found = getattr(tenon, name, None)
    if not isinstance(found, tenon.dtype):
        raise FileFormatError(f"{path}: there is no dtype '{name}'")
    return found


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder."""

    def entries(self) -> tuple[dict[str, Any], int]:
        """(what the manifest says of each entry, how many processes have written it)"""
        path = self.path / MANIFEST
        head, _, body = path.read_bytes().partition(b"\n")
        if head.decode(errors="replace") != hashlib.sha256(body).hexdigest():
            raise FileFormatError(f"{path}: damaged, or no checkpoint of Tenon: its hash differs")
        told = json.loads(body)
        if told.get("format") != _FORMAT:
            raise FileFormatError(f"{path}: expected format {_FORMAT}, got {told.get('format')!r}")
        return told["entries"], told["world_size"]

    def read(self, key: str, entry: dict[str, Any], box: dict[str, Any]) -> Any:
        """The tensor of a box, or an object."""
        path = self.path / Path(box["file"]).name
        try:
            with open(path, "rb") as file:
                file.seek(box["offset"])
                data = file.read(box["length"])
        except FileNotFoundError:
            raise FileFormatError(f"{path}: the file of '{key}' is missing") from None
        if hashlib.sha256(data).hexdigest() != box["sha256"]:
            raise FileFormatError(
                f"{path}: '{key}' is damaged: bytes {box['offset']} to "
                f"{box['offset'] + box['length']} have another hash than was written"
            )
        if "dtype" not in entry:
            return serialization.load(io.BytesIO(data))
        return _unpacked(data, _dtype(entry["dtype"], path), box["sizes"])

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint has."""
        entries, world_size = self.entries()
        found = Metadata({}, world_size=world_size)
        for key, entry in entries.items():
            found.planner_data[key] = entry["path"]
            if "dtype" not in entry:
                found.state_dict_metadata[key] = BytesStorageMetadata()
                found.storage_data[MetadataIndex(key)] = entry["boxes"][0]
                continue
            boxes = entry["boxes"]
            found.state_dict_metadata[key] = TensorStorageMetadata(
                TensorProperties(_dtype(entry["dtype"], self.path)),
                tenon.Size(entry["shape"]),
                [
                    ChunkStorageMetadata(tenon.Size(b["offsets"]), tenon.Size(b["sizes"]))
                    for b in boxes
                ],
            )
            for b in boxes:
                found.storage_data[MetadataIndex(key, tuple(b["offsets"]))] = b
        return found
