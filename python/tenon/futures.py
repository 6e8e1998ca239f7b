"""Results that are there later, by PyTorch's names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value or an exception that some thread sets, once, and that others wait for."""

    def __init__(self, *, devices: Any = None) -> None:
        self._changed = threading.Condition()
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Whether it has a value or an exception."""
        return self._is_done

    def wait(self) -> T:
        """The value, once it is there; raises the exception where that came instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_done)
        return self.value()

    def value(self) -> T:
        """The value, which must be there."""
        if not self._is_done:
            raise RuntimeError("Future.value(): the future is not done; wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._value

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._is_done:
                raise RuntimeError("Future: the result was set before, and is set once only")
            self._value, self._error, self._is_done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def set_result(self, result: T) -> None:
        """Sets the value and runs the callbacks."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Sets the exception that wait() raises."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result!r} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """callback(future) runs when it is done, at once where it is."""
        with self._changed:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what callback(future) returns when this one is done."""
        result: Future[S] = Future()

        def go_on(done: Future[T]) -> None:
            try:
                value = callback(done)
            except BaseException as err:
                result.set_exception(err)
            else:
                result.set_result(value)

        self.add_done_callback(go_on)
        return result


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future that is done when all of them are; its value is their list."""
    result: Future[list[Future[Any]]] = Future()
    listed = list(futures)
    lock = threading.Lock()
    left = len(listed)

    def count(_: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            result.set_result(listed)

    if not listed:
        result.set_result(listed)
    for future in listed:
        future.add_done_callback(count)
    return result


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of all of them, when they are there."""
    return [f.wait() for f in collect_all(futures).wait()]
