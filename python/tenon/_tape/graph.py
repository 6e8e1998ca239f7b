"""The recorded graph as Python sees it, beyond the Node type of the extension."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from tenon import _C
from tenon._C import Tensor
from tenon._tape.hooks import RemovableHandle

PACKAGE = str(Path(__file__).parent.parent)


class AccumulateGrad:
    """The end of the graph at a leaf: adds the gradient to `variable.grad`."""

    __slots__ = ("__weakref__", "metadata", "variable")

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.metadata: dict[Any, Any] = {}

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return ()

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn((grad,)) sees the gradient before it is added, and may return another as a tuple."""
        return _C._hook_leaf_end(self.variable, fn, True)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn((), (grad,)) runs when the gradient has been added."""
        return _C._hook_leaf_end(self.variable, fn, False)

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self.variable):#x}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return hash(id(self.variable))


_ends: WeakValueDictionary[int, AccumulateGrad] = WeakValueDictionary()


def accumulate_grad(variable: Tensor) -> AccumulateGrad:
    """The end of the graph at a leaf; the same object while anybody holds it."""
    end = _ends.get(id(variable))
    if end is None or end.variable is not variable:
        end = _ends[id(variable)] = AccumulateGrad(variable)
    return end


def where() -> str:
    """The innermost line of the user's program, for anomaly mode."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(PACKAGE)]
    return "".join(traceback.format_list(frames[-1:])).strip()
