"""Pipes whose elements are lists of elements, and the way back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenon.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, functional_datapipe


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe):
    """Batches of batch_size elements; the last may be shorter."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Callable[[list[Any]], Any] = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for x in self.datapipe:
            batch.append(x)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, more = divmod(self._length_of(self.datapipe), self.batch_size)
        return whole + (more > 0 and not self.drop_last)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe):
    """The elements of lists, of unbatch_level lists in one another, or of all (-1)."""

    def __init__(self, datapipe: Iterable[Any], unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        for element in self.datapipe:
            yield from self._inside(element, self.unbatch_level)

    def _inside(self, element: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level == -1 and not isinstance(element, list)):
            yield element
        elif isinstance(element, list):
            for item in element:
                yield from self._inside(item, max(level - 1, -1))
        else:
            raise IndexError(
                f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe"
            )


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe):
    """Groups of elements with equal keys; when the buffer is full, the largest one leaves it."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int | None = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.buffer_size, self.group_size = buffer_size, group_size
        self.guaranteed: int | None = None
        if group_size is not None and buffer_size is not None:
            if not 0 < group_size <= buffer_size:
                raise AssertionError("group_size must be > 0 and <= buffer_size")
            self.guaranteed = group_size
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise AssertionError(
                    "guaranteed_group_size must be > 0 and <= group_size and group_size must be set"
                )
            self.guaranteed = guaranteed_group_size
        self.drop_remaining = drop_remaining

    def _given(self, key: Any, group: list[Any]) -> Any:
        return (key, DataChunk(group)) if self.keep_key else DataChunk(group)

    def __iter__(self) -> Iterator[Any]:
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        held = 0
        for x in self.datapipe:
            key = self.group_key_fn(x)
            groups[key].append(x)
            held += 1
            if len(groups[key]) == self.group_size:
                group = groups.pop(key)
                yield self._given(key, group)
                held -= len(group)
            if held == self.buffer_size:
                largest = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(largest)
                short = self.guaranteed is not None and len(group) < self.guaranteed
                if short and not self.drop_remaining:
                    raise RuntimeError("Failed to group items", str(group))
                held -= len(group)
                if not short:
                    yield self._given(key, group)
        for key in tuple(groups):
            yield self._given(key, groups.pop(key))
