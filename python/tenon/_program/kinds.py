"""Whether a value is of a type with parameters, looked at element by element."""

from __future__ import annotations

import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any

_PLAIN = (list, dict, tuple, typing.List, typing.Dict, typing.Tuple)  # noqa: UP006


def is_instance(obj: Any, target_type: Any) -> bool:
    """`isinstance` that knows `list[int]`, `dict[str, Tensor]`, `tuple[int, str]`, `Optional` and
    unions; `target_type` may be a tuple of types. RuntimeError: a container without a type."""
    if isinstance(target_type, tuple):
        return any([is_instance(obj, kind) for kind in target_type])
    if target_type in _PLAIN:
        name = getattr(target_type, "_name", None) or target_type.__name__
        raise RuntimeError(
            f"Attempted to use {name} without a contained type. Please add a contained type, "
            f"e.g. {name}[int]"
        )
    if isinstance(obj, list | dict | tuple) and not obj:
        warnings.warn(
            "The inner type of an empty container is not known, so that it is of any.",
            stacklevel=3,
        )
    return _is_of(obj, target_type)


def _is_of(obj: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union or origin is types.UnionType:
        return any(_is_of(obj, one) for one in inner)
    if origin is None:
        return obj is None if kind is None else isinstance(obj, kind)
    if not isinstance(obj, origin):
        return False
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_is_of(item, inner[0]) for item in obj)
        return len(obj) == len(inner) and all(map(_is_of, obj, inner))
    if isinstance(obj, Mapping):
        return all(_is_of(k, inner[0]) and _is_of(v, inner[1]) for k, v in obj.items())
    return not isinstance(obj, list) or all(_is_of(item, inner[0]) for item in obj)
