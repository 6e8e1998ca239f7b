"""Pipes with an element at every index."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tenon.utils.data.datapipes.datapipe import (
    DataChunk,
    MapDataPipe,
    ShuffledDataPipe,
    functional_datapipe,
)

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]


class SequenceWrapperMapDataPipe(MapDataPipe):
    """The elements of anything with `[]`, of a copy unless told otherwise."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        if deepcopy:
            try:
                sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place "
                    "modification would affect source data",
                    stacklevel=2,
                )
        self.sequence = sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe):
    """fn of every element."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = lambda x: x) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """The elements of one pipe behind those of another."""

    def __init__(self, *datapipes: Any) -> None:
        _check(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> Any:
        before = 0
        for pipe in self.datapipes:
            if index - before < len(pipe):
                return pipe[index - before]
            before += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe):
    """Tuples of an element of each pipe."""

    def __init__(self, *datapipes: Any) -> None:
        _check(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        try:
            return tuple(pipe[index] for pipe in self.datapipes)
        except IndexError as err:
            raise IndexError(
                f"Index {index} is out of range for one of the input MapDataPipes {self.datapipes}."
            ) from err

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


def _check(datapipes: tuple[Any, ...]) -> None:
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe):
    """Batches of batch_size elements; the last may be shorter."""

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Callable[[list[Any]], Any] = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(first, last)])

    def __len__(self) -> int:
        whole, more = divmod(len(self.datapipe), self.batch_size)
        return whole + (more > 0 and not self.drop_last)


class ShufflerIterDataPipe(ShuffledDataPipe):
    """The elements in another order, by a seed of the default generator; no more by index."""

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        super().__init__()
        self._order: Any = self.indices

    def reset(self) -> None:
        self._order = self.indices
        if self._enabled:
            drawn = random.Random(self._next_seed()).sample(self.indices, len(self.indices))
            self._order = drawn[::-1]

    def __iter__(self) -> Iterator[Any]:
        for index in self._order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_function("shuffle", ShufflerIterDataPipe)
Batcher, Concater, Mapper = BatcherMapDataPipe, ConcaterMapDataPipe, MapperMapDataPipe
SequenceWrapper, Shuffler = SequenceWrapperMapDataPipe, ShufflerIterDataPipe
Zipper = ZipperMapDataPipe
