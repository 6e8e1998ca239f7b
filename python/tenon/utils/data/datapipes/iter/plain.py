"""Pipes from one source, element by element."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenon._tape import overridable
from tenon.utils.data._utils.collate import default_collate
from tenon.utils.data.datapipes.datapipe import (
    IterDataPipe,
    ShuffledDataPipe,
    functional_datapipe,
)
from tenon.utils.data.sampler import SequentialSampler


class IterableWrapperIterDataPipe(IterDataPipe):
    """The elements of anything that can be iterated over, of a copy unless told otherwise."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:
                warnings.warn(
                    "The input iterable can not be deepcopied, please be aware of in-place "
                    "modification would affect source data.",
                    stacklevel=overridable.users_level(),
                )
        yield from source

    def __len__(self) -> int:
        return self._length_of(self.iterable)


def _picked(data: Any, columns: Any) -> tuple[Any, ...]:
    if columns is None:
        return (data,)
    if isinstance(columns, list | tuple):
        return tuple(data[c] for c in columns)
    return (data[columns],)


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe):
    """fn of every element, or of columns of it, whose result takes the place of a column."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
    ) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, list | tuple):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.datapipe, self.fn = datapipe, fn
        self.input_col, self.output_col = input_col, output_col

    def _apply(self, data: Any) -> Any:
        result = self.fn(*_picked(data, self.input_col))
        if self.input_col is None:
            return result
        row = list(data) if isinstance(data, tuple) else data
        if self.output_col == -1:
            row.append(result)
        elif self.output_col is not None:
            row[self.output_col] = result
        elif isinstance(self.input_col, list | tuple):
            row[self.input_col[0]] = result
            for column in sorted(self.input_col[1:], reverse=True):
                del row[column]
        else:
            row[self.input_col] = result
        return tuple(row) if isinstance(data, tuple) else row

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            yield self._apply(data)

    def __len__(self) -> int:
        return self._length_of(self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Every batch as tensors."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        conversion: Callable[..., Any] | None = None,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        if conversion is not None and not callable(conversion):
            raise TypeError("collate: conversion is a function; those by column need DataFrames")
        super().__init__(datapipe, conversion or collate_fn or default_collate)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe):
    """The elements of which filter_fn is true."""

    def __init__(
        self, datapipe: Iterable[Any], filter_fn: Callable[..., Any], input_col: Any = None
    ) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            kept = self.filter_fn(*_picked(data, self.input_col))
            if not isinstance(kept, bool):
                raise ValueError(
                    f"Boolean output is required for `filter_fn` of {type(self).__name__}, got "
                    f"{type(kept)}"
                )
            if kept:
                yield data


class SamplerIterDataPipe(IterDataPipe):
    """What a sampler says of a pipe that knows its length."""

    def __init__(
        self,
        datapipe: Any,
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.datapipe = datapipe
        options = {**(sampler_kwargs or {}), "data_source": datapipe}
        self.sampler = sampler(*(sampler_args or ()), **options)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return self._length_of(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(ShuffledDataPipe):
    """Elements in an order that a buffer of them allows, by a seed of the default generator."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.buffer_size = buffer_size
        levels = {"unbatch_level": unbatch_level}
        self.datapipe = datapipe.unbatch(**levels) if unbatch_level else datapipe
        super().__init__()
        self._random = random.Random()

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for x in self.datapipe:
            if len(buffer) == self.buffer_size:
                at = self._random.randint(0, len(buffer) - 1)
                x, buffer[at] = buffer[at], x
                yield x
            else:
                buffer.append(x)
        while buffer:
            yield buffer.pop(self._random.randint(0, len(buffer) - 1))

    def __len__(self) -> int:
        return self._length_of(self.datapipe)

    def reset(self) -> None:
        if self._enabled:
            self._random.seed(self._next_seed())
