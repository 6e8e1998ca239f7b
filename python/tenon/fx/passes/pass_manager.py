"""PassManager: functions that take an object and return it, one after another."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "PassManager", "inplace_wrapper", "log_hook", "loop_pass",
    "these_before_those_pass_constraint", "this_before_that_pass_constraint",
]  # fmt: skip

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]

logger = logging.getLogger(__name__)


def inplace_wrapper(fn: Pass) -> Pass:
    """A pass that changes an object, as one that returns the object."""

    @functools.wraps(fn)
    def wrapped(source: Any, *args: Any, **kwargs: Any) -> Any:
        fn(source, *args, **kwargs)
        return source

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """The pass, whose result is logged each time."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(
    base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None
) -> Pass:
    """The pass n_iter times, or as long as predicate(object) holds."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")
    if n_iter is not None and n_iter <= 0:
        raise RuntimeError(f"loop_pass must be given positive int n_iter (given {n_iter})")

    @functools.wraps(base_pass)
    def repeated(source: Any) -> Any:
        if predicate is None:
            for _ in range(n_iter or 0):
                source = base_pass(source)
            return source
        while predicate(source):
            source = base_pass(source)
        return source

    return repeated


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """Holds of two passes in a row unless they are `that` and `this`."""
    return lambda a, b: a != that or b != this


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """The same of what wrappers of this module have made of them."""
    return lambda a, b: inspect.unwrap(a) != those or inspect.unwrap(b) != these


def check_order(passes: Sequence[Pass], constraints: Sequence[Constraint]) -> None:
    """RuntimeError where the order of the passes breaks a constraint."""
    for holds in constraints:
        for i, a in enumerate(passes):
            for j, b in enumerate(passes[i + 1 :], i + 1):
                if not holds(a, b):
                    raise RuntimeError(
                        f"pass schedule constraint violated. Expected {b} before {a} but found "
                        f"{a} at index {i} and {b} at index {j} in pass list."
                    )


class PassManager:
    """Calls passes one after another, each with what the former returned."""

    def __init__(
        self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None
    ) -> None:
        self.passes, self.constraints = passes or [], constraints or []

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        self.passes.append(_pass)

    def add_constraint(self, constraint: Constraint) -> None:
        self.constraints.append(constraint)

    def remove_pass(self, _passes: list[str] | None) -> None:
        """Leaves those out that have one of these names."""
        self.passes = [p for p in self.passes if p.__name__ not in (_passes or ())]

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Puts another pass in the place of those that have the name of `_target`."""
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]

    def validate(self) -> None:
        """RuntimeError where the order of the passes breaks a constraint."""
        check_order(self.passes, self.constraints)

    def __call__(self, source: Any) -> Any:
        self.validate()
        for do in self.passes:
            source = do(source)
        return source
