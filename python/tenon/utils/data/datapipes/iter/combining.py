"""Pipes from several sources, and several pipes from one."""

from __future__ import annotations

import copy as copying
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tenon.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe


class _Several(IterDataPipe):
    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError(f"Expected at least one DataPipe, but got {len(datapipes)}")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes


@functional_datapipe("concat")
class ConcaterIterDataPipe(_Several):
    """All elements of one pipe after those of another."""

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(map(self._length_of, self.datapipes))


@functional_datapipe("zip")
class ZipperIterDataPipe(_Several):
    """Tuples of an element of each pipe, as long as all have one."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(self._length_of, self.datapipes))


@functional_datapipe("mux")
class MultiplexerIterDataPipe(_Several):
    """An element of each pipe in turn, as long as all have one."""

    def __iter__(self) -> Iterator[Any]:
        for together in zip(*self.datapipes, strict=False):
            yield from together

    def __len__(self) -> int:
        return min(map(self._length_of, self.datapipes)) * len(self.datapipes)


class _Source:
    """What several pipes read from: an iterator, and elements that some have not come to yet."""

    def __init__(self, pipe: Any, count: int, buffer_size: int, name: str) -> None:
        if buffer_size < 0:
            warnings.warn(
                f"Unlimited buffer size is set for `{name}`, please be aware of OOM at random "
                "places",
                UserWarning,
                stacklevel=4,
            )
        self.pipe, self.count, self.buffer_size = pipe, count, buffer_size
        self.start()

    def start(self) -> None:
        self.elements: Iterator[Any] | None = None  # from the first element that is asked for
        self.waiting: list[deque[Any]] = [deque() for _ in range(self.count)]
        self.begun = [False] * self.count

    def next(self) -> Any:
        if self.elements is None:
            self.elements = iter(self.pipe)
        return next(self.elements)

    def for_part(self, part: int, fetch: Callable[[int], Any]) -> Iterator[Any]:
        if self.begun[part]:  # once more: from the beginning, for all
            self.start()
        self.begun[part] = True
        waiting = self.waiting[part]
        while True:
            if waiting:
                yield waiting.popleft()
                continue
            try:
                element = fetch(part)
            except StopIteration:
                return
            yield element

    def __getstate__(self) -> dict[str, Any]:
        return {k: self.__dict__[k] for k in ("pipe", "count", "buffer_size")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.start()


class _Part(IterDataPipe):
    """One of several pipes with one source."""

    def __init__(self, source: _Source, number: int) -> None:
        self.source, self.number = source, number
        self.main_datapipe = source.pipe  # where those look that follow pipes to their sources

    def __iter__(self) -> Iterator[Any]:
        return self.source.for_part(self.number, self.source.fetch)


class _Fork(_Source):
    copied: Callable[[Any], Any] | None = None

    def fetch(self, part: int) -> Any:
        element = self.next()
        for i, waiting in enumerate(self.waiting):
            if i != part:
                waiting.append(self.copied(element) if self.copied else element)
                if 0 <= self.buffer_size < len(waiting):
                    raise BufferError(
                        "ForkerIterDataPipe buffer overflow, buffer size "
                        f"{self.buffer_size} is insufficient."
                    )
        return self.copied(element) if self.copied else element


class _Demux(_Source):
    classify: Callable[[Any], Any]
    drop_none = False

    def fetch(self, part: int) -> Any:
        while True:
            element = self.next()
            number = self.classify(element)
            if number is None and self.drop_none:
                continue
            if number is None or not 0 <= number < self.count:
                raise ValueError(
                    f"Output of the classification fn should be between 0 and {self.count - 1}. "
                    f"{number} is returned."
                )
            if number == part:
                return element
            self.waiting[number].append(element)
            if 0 <= self.buffer_size < sum(map(len, self.waiting)):
                raise BufferError(
                    "DemultiplexerIterDataPipe buffer overflow, buffer size "
                    f"{self.buffer_size} is insufficient."
                )


class _Forked(_Part):
    def __len__(self) -> int:
        return self._length_of(self.source.pipe)


def _parts(kind: type[_Part], source: _Source) -> list[Any]:
    return [kind(source, i) for i in range(source.count)]


def Forker(  # noqa: N802 - PyTorch's name
    datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None
) -> list[Any]:
    """Pipes that give the same elements each; copy: None, "shallow" or "deep"."""
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
    kinds = {None: None, "shallow": copying.copy, "deep": copying.deepcopy}
    if copy not in kinds:
        raise ValueError(
            f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`."
        )
    if num_instances == 1:
        return [datapipe]
    source = _Fork(datapipe, num_instances, buffer_size, "fork")
    source.copied = kinds[copy]
    return _parts(_Forked, source)


def Demultiplexer(  # noqa: N802 - PyTorch's name
    datapipe: Any,
    num_instances: int,
    classifier_fn: Callable[[Any], Any],
    drop_none: bool = False,
    buffer_size: int = 1000,
) -> list[Any]:
    """Pipes of which classifier_fn says which gets an element."""
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
    source = _Demux(datapipe, num_instances, buffer_size, "demux")
    source.classify, source.drop_none = classifier_fn, drop_none
    return _parts(_Part, source)


IterDataPipe.register_function("fork", Forker)
IterDataPipe.register_function("demux", Demultiplexer)
