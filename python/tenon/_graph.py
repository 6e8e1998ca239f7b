"""The recorded graph as Python sees it, beyond the Node type of the extension."""

from __future__ import annotations

import traceback
from pathlib import Path

from tenon._C import Tensor

PACKAGE = str(Path(__file__).parent)


class AccumulateGrad:
    """The end of the graph at a leaf: adds the gradient to `variable.grad`."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    def name(self) -> str:
        return "struct torch::autograd::AccumulateGrad"

    @property
    def next_functions(self) -> tuple:
        return ()

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self.variable):#x}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return hash(id(self.variable))


def where() -> str:
    """The innermost line of the user's program, for anomaly mode."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(PACKAGE)]
    return "".join(traceback.format_list(frames[-1:])).strip()
