"""Nested state as flat entries, by PyTorch's names, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenon import Tensor

__all__: list[str] = []

Path = tuple[Any, ...]


def _has_parts(value: Any) -> bool:
    """Whether a list has tensors or mappings, at any depth of lists: others are one object."""
    if isinstance(value, list):
        return any(_has_parts(v) for v in value)
    return isinstance(value, (Mapping, Tensor))


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Tensors and objects of nested state, each with the keys on the way to it."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            yield from leaves(v, (*path, k))
    elif isinstance(value, list) and _has_parts(value):
        for i, v in enumerate(value):
            yield from leaves(v, (*path, i))
    else:
        yield path, value


def flat(state: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """(the leaves by name, the way to each)"""
    found: dict[str, Any] = {}
    ways: dict[str, Path] = {}
    for path, value in leaves(state):
        key = ".".join(map(str, path))
        if key in found:
            raise ValueError(f"duplicated flatten key {key}")
        found[key], ways[key] = value, path
    return found, ways


def _written(state: Any, path: Path) -> Path:
    """The way as it stands in files: keys are text, places in lists are numbers."""
    way: list[Any] = []
    for key in path:
        way.append(str(key) if isinstance(state, Mapping) else key)
        state = state[key]
    return tuple(way)


def flatten_state_dict(state_dict: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """(the leaves by name, the way to each as it stands in files)"""
    found, ways = flat(state_dict)
    return found, {key: _written(state_dict, way) for key, way in ways.items()}


def unflatten_state_dict(
    state_dict: Mapping[str, Any], mapping: Mapping[str, Path]
) -> dict[str, Any]:
    """Nested state of flat entries."""
    nested: dict[str, Any] = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested


def _reach(state: Any, key: Any, made: Any) -> Any:
    """The entry of a list or dict; what is missing is made."""
    if isinstance(state, list):
        state.extend([None] * (key + 1 - len(state)))
        if state[key] is None:
            state[key] = made
    elif key not in state:
        state[key] = made
    return state[key]


def set_element(root_dict: Any, path: Path, value: Any) -> None:
    """Writes a leaf into nested state; what is missing on the way is made."""
    state = root_dict
    for here, after in zip(path, path[1:]):
        state = _reach(state, here, [] if type(after) is int else {})
    if isinstance(state, list):
        state.extend([None] * (path[-1] + 1 - len(state)))
    state[path[-1]] = value
