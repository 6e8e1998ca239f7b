"""Notes that stay with nodes: what programs put on them while a graph is traced."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Iterator
from typing import Any

from tenon.fx.node import Node

__all__ = [
    "annotate", "current_meta", "format_stack", "get_current_meta", "has_preserved_node_meta",
    "preserve_node_meta", "reset_grad_fn_seq_nr", "set_current_meta", "set_grad_fn_seq_nr",
    "set_stack_trace",
]  # fmt: skip

current_meta: dict[str, Any] = {}
_preserving = [False]


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Nodes that are made meanwhile get what `current_meta` holds."""
    before, kept = _preserving[0], dict(current_meta)
    _preserving[0] = enable
    try:
        yield
    finally:
        _preserving[0] = before
        current_meta.clear()
        current_meta.update(kept)


def has_preserved_node_meta() -> bool:
    return _preserving[0]


def set_stack_trace(stack: list[str]) -> None:
    """The lines that nodes are said to come from."""
    if _preserving[0] and stack:
        current_meta["stack_trace"] = "".join(stack)


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Puts more into the "custom" note of nodes that are made meanwhile."""
    there, before = "custom" in current_meta, dict(current_meta.get("custom", {}))
    current_meta["custom"] = {**before, **annotation_dict}
    try:
        yield
    finally:
        if there:
            current_meta["custom"] = before
        else:
            current_meta.pop("custom", None)


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """The number of the node of the tape that is being computed."""
    if _preserving[0]:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Takes the last number back."""
    if not _preserving[0]:
        return
    level = current_meta.get("in_grad_fn", 0)
    if level > 1:
        current_meta["in_grad_fn"] = level - 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]
    else:
        current_meta.pop("in_grad_fn", None)
        current_meta.pop("grad_fn_seq_nr", None)


def format_stack() -> list[str]:
    """The lines that are running, or those of the node that is."""
    if _preserving[0]:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Nodes that are made meanwhile come from this one."""
    if not (_preserving[0] and node.meta):
        yield
        return
    kept = dict(current_meta)
    current_meta.clear()
    current_meta.update(copy.copy(node.meta))
    current_meta["from_node"] = [*current_meta.get("from_node", []), (node.name, node.target)]
    try:
        yield
    finally:
        current_meta.clear()
        current_meta.update(kept)


def get_current_meta() -> dict[str, Any]:
    return current_meta


_COPIED = (
    "stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute",
    "from_node", "quantization_tag", "custom", "partitioner_tag",
)  # fmt: skip


def note(node: Node) -> None:
    """Gives a node that was made now what is to stay with it."""
    for name in _COPIED if _preserving[0] else ():
        if current_meta.get(name):
            node.meta[name] = copy.copy(current_meta[name])
