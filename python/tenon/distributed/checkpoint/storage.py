"""Where checkpoints lie."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["StorageReader", "StorageWriter"]


class _Storage:
    """A folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def checkpoint_id(self) -> Path:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Another folder."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is the path of a folder."""
        return "://" not in os.fspath(checkpoint_id)


class StorageWriter(_Storage):
    """Writes checkpoints."""


class StorageReader(_Storage):
    """Reads checkpoints."""
