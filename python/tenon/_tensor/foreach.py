"""Operators on lists of tensors: `_foreach_add`, `_foreach_mul_` ...

Those that change tensors of a device are one operator for the list where they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _ops

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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_alike(tensors: Sequence[Tensor], *others: Sequence[Tensor]) -> bool:
    """Whether one operator may change the tensors: on a device, of one kind, without a history,
    and none of them is read or changed in the place of another."""
    if tensors[0].device.type == "cpu":
        return False
    place = {t.data_ptr(): i for i, t in enumerate(tensors) if t.numel() > 0}
    if len(place) < sum(t.numel() > 0 for t in tensors):
        return False
    recording = tenon.is_grad_enabled()
    for i, (t, *rest) in enumerate(zip(tensors, *others)):
        if not t.is_floating_point() or (recording and t.requires_grad):
            return False
        for x in rest:
            if not isinstance(x, Tensor) or (recording and x.requires_grad):
                return False
            if (x.dtype, x.device, x.shape) != (t.dtype, t.device, t.shape):
                return False
            if place.get(x.data_ptr(), i) != i:
                return False
    return True


def _change(op: str, args: list[Any], named: dict[str, Any]) -> tuple[str, list[Any], Any] | None:
    """What `_lists_` calls it: the change, its further lists, its number; None: it has no name."""
    lists = [a for a in args if _is_list(a)]
    rest = [a for a in args if not _is_list(a)] + list(named.values())
    value = rest[0] if rest else 1
    if len(rest) > 1 or not _is_number(value) or set(named) - {"alpha", "value", "weight"}:
        return None
    if op == "lerp" and not rest:
        return None
    by_number = {"add": ("shift", value), "sub": ("shift", -value), "mul": ("scale", value),
                 "div": ("divide", value)}  # fmt: skip
    by_list = {"add": ("add", value), "sub": ("add", -value), "lerp": ("lerp", value)}
    if not lists and len(args) == 1 and op in by_number:
        how, value = by_number[op]
    elif len(lists) == 1 and (op in by_list or (op == "mul" and not rest)):
        how, value = by_list.get(op, ("mul", 1))
    elif len(lists) == 2 and op in ("addcmul", "addcdiv"):
        how = op
    else:
        return None
    return how, lists, value


def _at_once(op: str, tensors: Sequence[Tensor], args: Any, named: dict[str, Any]) -> bool:
    """Changes the tensors by one operator; False where that cannot be."""
    change = _change(op, list(args), named)
    if change is None or not _are_alike(tensors, *change[1]):
        return False
    how, lists, value = change
    second, third = [*lists, [], []][:2]
    _ops._lists_(tensors, second, third, how, value=float(value))
    return True


def _by_one(
    op: str, end: str, tensors: Sequence[Tensor], args: list[Any], named: dict[str, Any]
) -> list[Tensor]:
    """The method of every tensor with its own arguments: lists are taken apart, others repeated."""
    named = {"value" if k == "scalars" else k: v for k, v in named.items()}
    if op in ("addcdiv", "addcmul") and len(args) == 3:
        named["value"] = args.pop()
    rows = zip(tensors, *(a if _is_list(a) else repeat(a) for a in args))
    if any(map(_is_list, named.values())):
        columns = [v if _is_list(v) else repeat(v) for v in named.values()]
        own = [dict(zip(named, values)) for values in zip(*columns)]
        return [getattr(t, op + end)(*a, **n) for (t, *a), n in zip(rows, own)]
    if op in NUMBERS and args:
        names = (op + end, NUMBERS[op] + end)
        return [getattr(t, names[not isinstance(a[0], Tensor)])(*a, **named) for t, *a in rows]
    name = op + end
    if named:
        return [getattr(t, name)(*a, **named) for t, *a in rows]
    return [getattr(t, name)(*a) for t, *a in rows]


def _make(op: str, inplace: bool) -> Callable[..., Any]:
    """The function for a method; lists among its arguments are taken apart, others repeated."""
    name = f"_foreach_{op}{'_' if inplace else ''}"

    def foreach(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        lists = [a for a in (*args, *kwargs.values()) if _is_list(a)]
        _check(name, [tensors, *lists])
        if inplace and _at_once(op, tensors, args, kwargs):
            return None
        results = _by_one(op, "_" if inplace else "", tensors, list(args), kwargs)
        return None if inplace else tuple(results)

    foreach.__name__ = foreach.__qualname__ = name
    foreach.__doc__ = f"Tensor.{op}{'_' if inplace else ''} of every tensor of a list."
    return foreach


def _foreach_zero_(tensors: Sequence[Tensor]) -> None:
    """Sets the elements of every tensor to 0."""
    _check("_foreach_zero_", [tensors])
    if _are_alike(tensors):
        return _ops._lists_(tensors, [], [], "fill", value=0.0)
    for t in tensors:
        t.zero_()


def _foreach_copy_(tensors: Sequence[Tensor], src: Sequence[Tensor], *args: Any) -> None:
    """Copies every tensor of src into that of `tensors` in its place."""
    _check("_foreach_copy_", [tensors, src])
    if _are_alike(tensors, src):
        return _ops._lists_(tensors, src, [], "copy")
    for t, s in zip(tensors, src):
        t.copy_(s, *args)


def _amp_foreach_non_finite_check_and_unscale_(
    tensors: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor
) -> None:
    """Multiplies by inv_scale; found_inf becomes 1 if an element was infinite or NaN."""
    if tensors:
        _ops._unscale_(tensors, found_inf, factor=1.0)
        _ops._scale_(tensors, inv_scale)


def _amp_update_scale_(
    self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float,
    scale_backoff_factor: float, growth_interval: int,
) -> Tensor:  # fmt: skip
    """The scale after a step: smaller where something was infinite, larger after growth_interval
    steps without. growth_tracker counts them."""
    for name, t, kind, text in (
        ("growth_tracker", growth_tracker, tenon.int32, "an int"),
        ("current_scale", self, tenon.float32, "a float"),
        ("found_inf", found_inf, tenon.float32, "a float"),
    ):
        if t.numel() != 1 or t.dtype != kind:
            raise RuntimeError(f"{name} must be {text} tensor of one element, got {t}")
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
    elif growth_tracker.add_(1).item() == growth_interval:
        larger = self * scale_growth_factor
        if larger.isfinite():
            self.copy_(larger)
        growth_tracker.zero_()
    return self


def _foreach_norm(
    tensors: Sequence[Tensor], ord: float = 2, dtype: Any = None
) -> tuple[Tensor, ...]:
    """The norm of every tensor."""
    _check("_foreach_norm", [tensors])
    same = len({t.dtype for t in tensors}) == 1
    if ord in (1, 2, float("inf")) and dtype in (None, tensors[0].dtype) and same:
        if _are_alike(tensors):
            return tuple(_ops._norms(tensors, float(ord)).to(tensors[0].dtype).unbind())
    return tuple(tenon.linalg.vector_norm(t, ord, dtype=dtype) for t in tensors)


def _foreach_powsum(
    tensors: Sequence[Tensor], ord: float = 2, dtype: Any = None
) -> tuple[Tensor, ...]:
    """The sum of the absolute values of every tensor, raised to the power ord."""
    _check("_foreach_powsum", [tensors])
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in tensors)


def _foreach_max(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The largest element of every tensor."""
    _check("_foreach_max", [tensors])
    if any(t.numel() == 0 for t in tensors):
        raise RuntimeError(
            "_foreach_max cannot compute the maximum of an empty tensor; max over zero elements is "
            "undefined."
        )
    return tuple(t.max() for t in tensors)


def _foreach_clone(
    tensors: Sequence[Tensor], *, memory_format: Any = tenon.preserve_format
) -> tuple[Tensor, ...]:
    """A copy of every tensor."""
    _check("_foreach_clone", [tensors])
    return tuple(t.clone(memory_format=memory_format) for t in tensors)


def _foreach_mm(tensors: Sequence[Tensor], mat2: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The product of every matrix with that in its place."""
    _check("_foreach_mm", [tensors, mat2])
    return tuple(tenon.mm(a, b) for a, b in zip(tensors, mat2))


for _op in (*UNARY, *BINARY, *TERNARY):
    for _inplace in (False, True):
        _f = _make(_op, _inplace)
        globals()[_f.__name__] = _f
del _op, _inplace, _f
