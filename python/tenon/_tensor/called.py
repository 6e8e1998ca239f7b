"""What decides about a call: the name of its function, and which arguments it writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import _C

_SPACE = "tenon.ops."


def name_of(func: Callable[..., Any]) -> str:
    """The name of a function. That of a plugin's operator has its namespace in front, "acme::sum":
    without it, it may be that of another function."""
    func = getattr(func, "overloadpacket", func)  # forms of `ops.aten` have names of their own
    name = getattr(func, "__name__", "")
    space = getattr(func, "__module__", None) or ""
    if space == "_operator":  # whose and_ and or_ only avoid the words of Python
        return name.rstrip("_")
    return f"{space.removeprefix(_SPACE)}::{name}" if space.startswith(_SPACE) else name


def arguments_of(name: str) -> dict[str, bool]:
    """The arguments of a plugin's operator, and whether it writes to them."""
    return _C._added_arguments(name) if "::" in name else {}


def written_by(name: str, args: Any, kwargs: Any) -> list[Any]:
    """What a call of the plugin's operator of that name writes to."""
    places = [(i, k) for i, (k, written) in enumerate(arguments_of(name).items()) if written]
    found = [args[i] if i < len(args) else kwargs.get(k) for i, k in places]
    return [v for v in found if v is not None]


def is_inplace(name: str) -> bool:
    """Whether it is an in-place form of Tenon's own, but for `__iadd__` and its like."""
    if "::" in name:
        return False
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def writes_first(name: str) -> bool:
    """Whether the function of that name writes to its first argument: an in-place form, or an
    operator of a plugin."""
    return is_inplace(name) or next(iter(arguments_of(name).values()), False)


def is_pointwise(name: str) -> bool:
    """Whether a plugin's operator works element by element."""
    return "::" in name and _C._added_vmap(name) == "pointwise"
