"""Contexts that decorate functions: each call, and each step of a generator, runs inside one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager", "context_decorator"]

F = TypeVar("F", bound=Callable[..., Any])


def _stepped(make: Callable[[], Any], func: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose steps, and nothing between them, run inside contexts."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        steps = func(*args, **kwargs)
        act, sent = steps.send, None
        while True:
            try:
                with make():
                    value = act(sent)
            except StopIteration as end:
                return end.value
            try:
                act, sent = steps.send, (yield value)
            except GeneratorExit:
                with make():
                    steps.close()
                raise
            except BaseException as err:
                act, sent = steps.throw, err

    return wrapper


def context_decorator(ctx: Any, func: F) -> F:
    """The function inside `ctx`: a context manager, or a function that makes one for each call."""
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise RuntimeError(
            f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), "
            "making it ambiguous which interface to use."
        )
    make = ctx if callable(ctx) else lambda: ctx
    if inspect.isclass(func):
        raise RuntimeError(
            "Cannot decorate classes; it is ambiguous whether or not only the constructor or all "
            "methods should have the context manager applied."
        )
    if inspect.isgeneratorfunction(func):
        return _stepped(make, func)  # type: ignore[return-value]

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


class _DecoratorContextManager:
    """A context manager of which each decorated call enters a `clone()`."""

    def __call__(self, orig_func: F) -> F:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another one like it."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that decorates without being called: `@cls`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)
