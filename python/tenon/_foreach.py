"""Operators on lists of tensors, one after the other: `_foreach_add`, `_foreach_mul_` ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max", "maximum", "minimum",
)  # fmt: skip
TERNARY = ("addcdiv", "addcmul", "lerp")
# maximum and minimum of a number are a bound.
NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _check(name: str, lists: Sequence[Sequence[Any]]) -> None:
    if not lists[0]:
        raise RuntimeError(f"{name}(): Tensor list must have at least one tensor.")
    for other in lists[1:]:
        if len(other) != len(lists[0]):
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, "
                f"got {len(lists[0])} and {len(other)}"
            )


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _make(op: str, inplace: bool) -> Callable[..., Any]:
    """The function for a method; lists among its arguments are taken apart, others repeated."""
    name = f"_foreach_{op}{'_' if inplace else ''}"

    def foreach(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        lists = [a for a in (*args, *kwargs.values()) if _is_list(a)]
        _check(name, [tensors, *lists])
        results = []
        for i, t in enumerate(tensors):
            own = [a[i] if _is_list(a) else a for a in args]
            named = {k: v[i] if _is_list(v) else v for k, v in kwargs.items()}
            named = {"value" if k == "scalars" else k: v for k, v in named.items()}
            method = op if not own or isinstance(own[0], Tensor) else NUMBERS.get(op, op)
            if op in ("addcdiv", "addcmul") and len(own) == 3:
                named["value"] = own.pop()
            results.append(getattr(t, f"{method}_" if inplace else method)(*own, **named))
        return None if inplace else tuple(results)

    foreach.__name__ = foreach.__qualname__ = name
    foreach.__doc__ = f"Tensor.{op}{'_' if inplace else ''} of every tensor of a list."
    return foreach


def _foreach_zero_(tensors: Sequence[Tensor]) -> None:
    """Sets the elements of every tensor to 0."""
    _check("_foreach_zero_", [tensors])
    for t in tensors:
        t.zero_()


def _foreach_copy_(tensors: Sequence[Tensor], src: Sequence[Tensor], *args: Any) -> None:
    """Copies every tensor of src into that of `tensors` in its place."""
    _check("_foreach_copy_", [tensors, src])
    for t, s in zip(tensors, src):
        t.copy_(s, *args)


def _foreach_norm(
    tensors: Sequence[Tensor], ord: float = 2, dtype: Any = None
) -> tuple[Tensor, ...]:
    """The norm of every tensor."""
    _check("_foreach_norm", [tensors])
    return tuple(tenon.linalg.vector_norm(t, ord, dtype=dtype) for t in tensors)


for _op in (*UNARY, *BINARY, *TERNARY):
    for _inplace in (False, True):
        _f = _make(_op, _inplace)
        globals()[_f.__name__] = _f
del _op, _inplace, _f
