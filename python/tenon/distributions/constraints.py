"""Sets that parameters and samples must lie in: what they hold, and how they are named in errors.

A constraint that depends on other parameters of its distribution (the upper end of Uniform, say)
is a property there.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "dependent",
    "greater_than",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "nonnegative",
    "nonnegative_integer",
    "multinomial",
    "one_hot",
    "positive",
    "positive_definite",
    "real",
    "real_vector",
    "simplex",
    "unit_interval",
]


class Constraint:
    """A set; `check` says for every element (or event) whether it lies in it."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """True where the value lies in the set."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.removeprefix("_") + "()"


class _Dependent(Constraint):
    """Stands for a set that only a distribution's instance knows."""

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether only an instance of the distribution knows the set."""
    return isinstance(constraint, _Dependent)


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # noqa: PLR0124 - false for nan alone


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        bits = ((value == 0) | (value == 1)).all(-1)
        return bits & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        lower = (value.tril() == value).flatten(-2).all(-1)
        return lower & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _PositiveDefinite(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        symmetric = ((value - value.mT).abs() <= 1e-6).flatten(-2).all(-1)
        return symmetric & (tenon.linalg.cholesky_ex(value).info == 0)


class _Multinomial(Constraint):
    """Counts of events that add up to a number, or less."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class GreaterThan(Constraint):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound})"


class GreaterThanEq(GreaterThan):
    """Numbers from a bound on."""

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class LessThan(Constraint):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound

    def __repr__(self) -> str:
        return f"LessThan(upper_bound={self.upper_bound})"


class Interval(Constraint):
    """Numbers between two bounds, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)

    def __repr__(self) -> str:
        bounds = f"lower_bound={self.lower_bound}, upper_bound={self.upper_bound}"
        return f"{type(self).__name__}({bounds})"


class HalfOpenInterval(Interval):
    """Numbers between two bounds, the upper one left out."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class IntegerInterval(Interval):
    """Whole numbers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value % 1 == 0)


class IntegerGreaterThan(GreaterThan):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value % 1 == 0)


class IndependentConstraint(Constraint):
    """A set of elements as one of events: all elements of the last dimensions must lie in it."""

    def __init__(self, base: Constraint, count: int) -> None:
        self.base = base
        self.count = count
        self.is_discrete = base.is_discrete
        self.event_dim = base.event_dim + count

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        inside = self.base.check(value)
        return inside.reshape(inside.shape[: inside.dim() - self.count] + (-1,)).all(-1)

    def __repr__(self) -> str:
        return f"Independent({self.base!r}, {self.count})"


dependent = _Dependent()
real = _Real()
boolean = _Boolean()
one_hot = _OneHot()
simplex = _Simplex()
lower_cholesky = _LowerCholesky()
positive_definite = _PositiveDefinite()
multinomial = _Multinomial
positive = GreaterThan(0.0)
nonnegative = GreaterThanEq(0.0)
nonnegative_integer = IntegerGreaterThan(0)
unit_interval = Interval(0.0, 1.0)
real_vector = IndependentConstraint(real, 1)
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
interval = Interval
half_open_interval = HalfOpenInterval
integer_interval = IntegerInterval
independent = IndependentConstraint
