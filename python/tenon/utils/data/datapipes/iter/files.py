"""Pipes of files: their names, the open files, what stands in them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator
from typing import Any

from tenon.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe


def _raise(err: OSError) -> None:
    raise err


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe):
    """Names of the files in folders that match a mask; folders inside with recursive=True."""

    def __init__(
        self,
        root: Any = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        self.datapipe = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else list(masks)
        self.recursive, self.abspath, self.length = recursive, abspath, length

    def _fits(self, name: str) -> bool:
        named = [mask for mask in self.masks if mask]
        return not named or any(fnmatch.fnmatch(name, mask) for mask in named)

    def _files(self, root: str) -> Iterator[str]:
        if os.path.isfile(root):
            if self._fits(os.path.basename(root)):
                yield root
            return
        for path, folders, files in os.walk(root, onerror=_raise):
            yield from (os.path.join(path, name) for name in sorted(files) if self._fits(name))
            folders[:] = sorted(folders) if self.recursive else []

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from self._files(os.path.abspath(root) if self.abspath else root)

    def __len__(self) -> int:
        return _said(self, self.length)


def _said(pipe: Any, length: int) -> int:
    if length == -1:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
    return length


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe):
    """Pairs of a name and the open file."""

    def __init__(
        self,
        datapipe: Iterable[str],
        mode: str = "r",
        encoding: str | None = None,
        length: int = -1,
    ) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.encoding, self.length = datapipe, encoding, length
        self.mode = mode if mode.startswith("r") else f"r{mode}"

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self.datapipe:
            if not isinstance(name, str):
                raise TypeError(f"Expected string type for pathname, but got {type(name)}")
            yield name, open(name, self.mode, encoding=self.encoding)  # noqa: SIM115

    def __len__(self) -> int:
        return _said(self, self.length)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe):
    """Pairs of a name and what stands in the file, whole or `chunk` by chunk."""

    def __init__(self, datapipe: Iterable[tuple[str, Any]], chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name, stream in self.datapipe:
            while read := stream.read(self.chunk):
                yield name, read
            stream.close()
