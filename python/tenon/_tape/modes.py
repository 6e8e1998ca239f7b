"""Gradient modes as decorators of functions and generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any


def decorate(mode: Any, fn: Any) -> Any:
    """`fn` with every call, and every step of a generator, inside a mode like `mode`."""
    if inspect.isclass(fn):
        fn.__init__ = decorate(mode, fn.__init__)
        return fn
    if inspect.isgeneratorfunction(fn):
        return _decorate_generator(mode, fn)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with mode.clone():
            return fn(*args, **kwargs)

    return wrapper


def _decorate_generator(
    mode: Any, fn: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = fn(*args, **kwargs)
        with mode.clone():
            step = _step(generator.send, None)
        while not step[0]:
            try:
                sent = yield step[1]
            except GeneratorExit:
                with mode.clone():
                    generator.close()
                raise
            except BaseException as err:
                with mode.clone():
                    step = _step(generator.throw, err)
            else:
                with mode.clone():
                    step = _step(generator.send, sent)
        return step[1]

    return wrapper


def _step(advance: Callable[[Any], Any], value: Any) -> tuple[bool, Any]:
    """One step of a generator: (finished, what it gave)."""
    try:
        return False, advance(value)
    except StopIteration as end:
        return True, end.value
