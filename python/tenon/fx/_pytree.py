"""Arguments of generated code that are containers."""

from __future__ import annotations

from typing import Any

from tenon.utils import _pytree


def tree_flatten_spec(pytree: Any, spec: _pytree.TreeSpec) -> list[Any]:
    """The leaves of a container; an error where it is not as the graph was traced with."""
    return spec.flatten_up_to(tuple(pytree))
