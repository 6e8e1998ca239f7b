"""What `importlib.metadata` says of the packages that `tenon run` serves."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path
from typing import Any


class Seeming(Distribution):
    """What packages read to see which release is installed."""

    def __init__(self, name: str, version: str) -> None:
        self._of, self._version = name, version

    def read_text(self, filename: str) -> str | None:
        head = f"Metadata-Version: 2.1\nName: {self._of}\nVersion: {self._version}\n"
        return {"METADATA": head, "top_level.txt": f"{self._of}\n"}.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent.parent / path
