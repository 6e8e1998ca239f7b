"""Which pipes a pipe is made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from tenon.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipe = IterDataPipe | MapDataPipe
DataPipeGraph = dict[int, tuple[Any, Any]]


def _inside(value: Any, seen: set[int]) -> Iterator[Any]:
    """The pipes in a value that is one, or a collection of them."""
    if id(value) in seen:
        return
    if isinstance(value, IterDataPipe | MapDataPipe):
        seen.add(id(value))
        yield value
    elif isinstance(value, dict | list | tuple | set | frozenset):
        seen.add(id(value))
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        for part in parts:
            yield from _inside(part, seen)


def _graph(datapipe: Any, above: set[int]) -> DataPipeGraph:
    if not isinstance(datapipe, IterDataPipe | MapDataPipe):
        raise RuntimeError(
            f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found"
        )
    below: DataPipeGraph = {}
    path = above | {id(datapipe)}
    for part in _inside(list(datapipe.__dict__.values()), set(path)):
        below.update(_graph(part, path))
    return {id(datapipe): (datapipe, below)}


def traverse_dps(datapipe: Any) -> DataPipeGraph:
    """{id: (pipe, the same of those that it is made of)}: those among its attributes, and among
    the elements of lists, tuples, sets and dictionaries there."""
    return _graph(datapipe, set())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> DataPipeGraph:
    """traverse_dps by its older name."""
    warnings.warn(
        "`traverse` function is deprecated and will be removed after 1.13. "
        "Please use `traverse_dps` instead."
        + (
            ""
            if only_datapipe
            else " And, the behavior will be changed to the equivalent of `only_datapipe=True`."
        ),
        FutureWarning,
        stacklevel=2,
    )
    return traverse_dps(datapipe)
