"""What pipes share: the two kinds, and how a class becomes a method of all pipes of a kind."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import tenon
from tenon.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe"]


class DataChunk(list[Any]):
    """A batch, or a group, of elements."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.items = list(self)

    def as_str(self, indent: str = "") -> str:
        """The elements' texts between brackets."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[Any]:
        """An iterator over the elements."""
        yield from self.items


class _Methods:
    """Classes that were registered by name are methods of every pipe of their kind."""

    functions: dict[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Any:
        make = type(self).functions.get(name)
        if make is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(make, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Makes a function of a pipe a method of all of them."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Makes a class of pipes a method of all of them."""
        if function_name in cls.functions:
            raise Exception(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]

    def _length_of(self, pipe: Any) -> int:
        """How long a pipe is; not every one knows."""
        if not hasattr(type(pipe), "__len__"):
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return len(pipe)


class IterDataPipe(_Methods, IterableDataset):
    """A pipe that is iterated over; by one iterator at a time, since it may keep elements back."""

    functions: dict[str, Callable[..., Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        start = cls.__dict__.get("__iter__")
        if start is not None:
            cls.__iter__ = _one_at_a_time(start)

    def reset(self) -> None:
        """Runs before an iterator starts."""


class ShuffledDataPipe(IterDataPipe):
    """What pipes share whose order follows from a seed, each iterator's from one of its own."""

    def __init__(self) -> None:
        self._enabled = True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> Self:
        """Whether it shuffles at all."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Self:
        """What the next iterator's order follows from."""
        self._seed = seed
        return self

    def _next_seed(self) -> int:
        """The one that was set, for once, or one of the default generator."""
        seed, self._seed = self._seed, None
        if seed is not None:
            return seed
        return int(tenon.empty((), dtype=tenon.int64, device="cpu").random_().item())


def _one_at_a_time(start: Callable[..., Any]) -> Callable[..., Any]:
    """An `__iter__` whose former iterators end with an error."""
    whose = start.__qualname__  # a class may call its base's

    def run(self: Any, number: int, elements: Iterator[Any]) -> Iterator[Any]:
        while True:
            if number != self.__dict__["_iterators"][whose]:
                raise RuntimeError(
                    "This iterator has been invalidated because another iterator has been created "
                    f"from the same IterDataPipe: {self!r}\nThis may be caused multiple references "
                    "to the same IterDataPipe. We recommend using `.fork()` if that is necessary."
                )
            try:
                element = next(elements)
            except StopIteration:
                return
            yield element

    @functools.wraps(start)
    def __iter__(self: Any) -> Iterator[Any]:
        counts = self.__dict__.setdefault("_iterators", {})
        counts[whose] = number = counts.get(whose, 0) + 1
        self.reset()
        return run(self, number, iter(start(self)))

    return __iter__


class MapDataPipe(_Methods, Dataset):
    """A pipe with an element at every index."""

    functions: dict[str, Callable[..., Any]] = {}


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[Any], Any]:
    """A decorator: the class is a method, called `name`, of all pipes of its kind."""

    def register(cls: Any) -> Any:
        kind = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        kind.register_datapipe_as_function(name, cls)
        return cls

    return register


class _Wrapper:
    """A pipe inside a loader: sent to workers as dill has it where pickle cannot."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __getstate__(self) -> tuple[bytes, bool]:
        try:
            return pickle.dumps(self._datapipe), False
        except Exception:
            try:
                import dill
            except ImportError:
                dill = None
            if dill is None:
                raise
            return dill.dumps(self._datapipe), True

    def __setstate__(self, state: tuple[bytes, bool]) -> None:
        value, by_dill = state
        if by_dill:
            import dill

            self._datapipe = dill.loads(value)
        else:
            self._datapipe = pickle.loads(value)

    def __len__(self) -> int:
        try:
            return len(self._datapipe)
        except Exception as err:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length") from err


class _IterDataPipeSerializationWrapper(_Wrapper, IterDataPipe):
    """A pipe of a loader that is iterated over."""

    def __iter__(self) -> Iterator[Any]:
        yield from self._datapipe


class _MapDataPipeSerializationWrapper(_Wrapper, MapDataPipe):
    """A pipe of a loader with an element at every index."""

    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]
