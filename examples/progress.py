"""Progress bars by tqdm; where it is not installed the steps run without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Progress(Generic[T]):
    """Goes through `items` and shows how far it is."""

    def __init__(
        self, items: Iterable[T], desc: str, *, total: int | None = None, shown: bool = True
    ) -> None:
        self._items: Any = items
        if shown and find_spec("tqdm") is not None:
            self._items = import_module("tqdm").tqdm(items, desc=desc, total=total, unit="step")

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def note(self, **values: str) -> None:
        """Writes values behind the bar."""
        if hasattr(self._items, "set_postfix"):
            self._items.set_postfix(values, refresh=False)
