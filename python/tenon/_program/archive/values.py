"""What TorchScript computes with numbers, texts, lists and dicts: its words that take no tensor.

Each is a function of values that are no tensors; whole numbers divide to floats, powers of them are
floats, as in TorchScript.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any


def _set_item(target: Any, key: Any, value: Any) -> Any:
    target[key] = value
    return target


def _pop(target: Any, *args: Any) -> Any:
    return target.pop(*args)


def _slice(values: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return values[start:end:step]


def _sort(values: list[Any], reverse: bool = False) -> None:
    values.sort(reverse=reverse)


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _pow(a: Any, b: Any) -> Any:
    result = a**b
    return result if isinstance(result, complex) else float(result)


def _range_length(start: int, end: int, step: int) -> int:
    return len(range(start, end, step))


def _default(values: list[Any], defaults: list[Any]) -> list[Any]:
    return values or defaults


def _update(target: dict[Any, Any], other: dict[Any, Any]) -> None:
    target.update(other)


def _delete(target: Any, key: Any) -> None:
    del target[key]


def _method(name: str) -> Callable[..., Any]:
    """A method of texts, lists or dicts whose result is a list where it is many things."""

    def call(value: Any, *args: Any) -> Any:
        if not isinstance(value, (str, list, dict)):
            raise TypeError(f"{name} of {type(value).__name__}")
        result = getattr(value, name)(*args)
        return result if isinstance(result, (str, tuple, list, dict)) else _listed(result)

    return call


def _listed(result: Any) -> Any:
    keys = type({}.keys()), type({}.values()), type({}.items())
    return list(result) if isinstance(result, keys) else result


def _split(text: str, separator: str | None = None, most: int = -1) -> list[str]:
    return text.split(separator, most)


def _round(value: float, digits: int | None = None) -> float:
    return float(round(value, digits or 0))


def _sum(values: Iterable[Any]) -> Any:
    return sum(values)


PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "add_": operator.iadd, "sub_": operator.sub, "mul_": operator.mul, "div_": operator.truediv,
    "floordiv": operator.floordiv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "fmod": math.fmod, "pow": _pow, "neg": operator.neg, "abs": abs, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor,
    "__lshift__": operator.lshift, "__rshift__": operator.rshift,
    "__not__": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not,
    "__contains__": operator.contains, "__getitem__": operator.getitem, "len": len,
    "append": _append, "_set_item": _set_item, "pop": _pop, "Delete": _delete, "slice": _slice,
    "sort": _sort, "sorted": sorted, "sum": _sum, "any": any, "all": all, "max": max, "min": min,
    "list": list, "dict": dict, "ord": ord, "chr": chr, "hex": hex, "oct": oct, "bin": bin,
    "str": lambda value: text_of(value), "split": _split, "round": _round, "update": _update,
    "__range_length": _range_length, "__derive_index": lambda i, start, step: start + i * step,
    "list_with_default": _default, "percentFormat": lambda text, values: text % values,
    "format": lambda text, *values: text.format(*(_Shown(v) for v in values)),
    "degrees": math.degrees, "radians": math.radians, "factorial": math.factorial,
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite, "gcd": math.gcd,
    "fabs": math.fabs, "gamma": math.gamma, "modf": math.modf, "frexp": math.frexp,
    "ldexp": math.ldexp, "mathremainder": math.remainder, "logical_not": operator.not_,
}  # fmt: skip
PLAIN |= {
    name: getattr(math, name)
    for name in (
        "ceil", "floor", "trunc", "sqrt", "exp", "expm1", "log", "log10", "log1p", "log2", "sin",
        "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "lgamma", "erf", "erfc", "copysign",
    )
}  # fmt: skip
PLAIN |= {
    name: _method(name)
    for name in (
        "insert", "extend", "remove", "reverse", "index", "count", "clear", "copy", "keys",
        "values", "items", "setdefault", "get", "popitem", "join", "strip", "lstrip", "rstrip",
        "upper", "lower", "startswith", "endswith", "replace", "find", "rfind", "rindex", "isdigit",
        "isalpha", "isalnum", "isspace", "isupper", "islower", "isnumeric", "isdecimal",
        "isidentifier", "istitle", "isprintable", "capitalize", "title", "swapcase", "casefold",
        "expandtabs", "ljust", "rjust", "center", "zfill", "splitlines", "partition",
        "rpartition", "rsplit",
    )
}  # fmt: skip


def text_of(value: Any) -> str:
    """str(value) as TorchScript has it: floats with all their digits, whole ones with a point."""
    if isinstance(value, float) and math.isfinite(value):
        if value == int(value) and abs(value) < 1e10:
            return f"{int(value)}."
        return f"{value:.17g}"
    if type(value) is list:
        return f"[{', '.join(map(text_of, value))}]"
    return str(value)


class _Shown:
    """A value of a text that is put together: its own text, and nothing that a format reaches."""

    __slots__ = ("_text",)

    def __init__(self, value: Any) -> None:
        self._text = text_of(value)

    def __format__(self, spec: str) -> str:
        return format(self._text, spec)

    def __getattribute__(self, name: str) -> Any:
        if name == "_text":
            return object.__getattribute__(self, name)
        raise AttributeError(name)
