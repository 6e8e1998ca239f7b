"""Questions about sizes that may be symbols. Sizes are numbers here, so every one has an answer;
what makes and names symbols (ShapeEnv and its kin) is not there."""

from __future__ import annotations

from typing import Any

from tenon._program.errors import ConstraintViolationError, GuardOnDataDependentSymNode

__all__ = [
    "ConstraintViolationError", "GuardOnDataDependentSymNode",
    "canonicalize_bool_expr", "constrain_range", "definitely_true",
    "expect_true", "free_symbols", "free_unbacked_symbols", "guard_bool", "guard_float",
    "guard_int", "guard_or_false", "guard_or_true", "guard_size_oblivious", "has_free_symbols",
    "has_free_unbacked_symbols", "has_hint", "has_static_value", "hint_int", "is_concrete_bool",
    "is_concrete_float", "is_concrete_int", "is_nested_int", "is_symbolic",
    "statically_known_false", "statically_known_true", "sym_and", "sym_eq", "sym_or",
]  # fmt: skip


def guard_or_false(a: Any) -> bool:
    """The condition; false where it is not known, which is never so."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """The condition; true where it is not known, which is never so."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """The condition."""
    return bool(x)


def statically_known_false(x: Any) -> bool:
    """Whether the condition does not hold."""
    return not x


definitely_true = guard_bool = guard_size_oblivious = expect_true = statically_known_true


def guard_int(a: Any) -> int:
    """The number."""
    return int(a)


def guard_float(a: Any) -> float:
    """The number."""
    return float(a)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The number."""
    return int(a)


def _yes(a: Any) -> bool:
    return True


def _no(a: Any) -> bool:
    return False


is_concrete_int = is_concrete_bool = is_concrete_float = has_hint = has_static_value = _yes
is_symbolic = is_nested_int = has_free_symbols = has_free_unbacked_symbols = _no


def free_symbols(val: Any) -> set[Any]:
    """The symbols of a number: none."""
    return set()


free_unbacked_symbols = free_symbols


def sym_eq(x: Any, y: Any) -> bool:
    """Whether numbers, or tuples and lists of them, are equal."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(sym_eq, x, y))
    if isinstance(x, (int, bool)) and isinstance(y, (int, bool)):
        return x == y
    raise AssertionError(f"unexpected sym_eq between {type(x)} {type(y)}")


def sym_or(x: Any, *others: Any) -> bool:
    """Whether one of them holds."""
    return bool(x) or any(others)


def sym_and(x: Any, *others: Any) -> bool:
    """Whether all of them hold."""
    return bool(x) and all(others)


def canonicalize_bool_expr(expr: Any) -> Any:
    """The condition as it is."""
    return expr


def constrain_range(a: Any, *, min: int | None, max: int | None = None) -> None:  # noqa: A002
    """Raises where a number is not within its bounds."""
    if (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")
