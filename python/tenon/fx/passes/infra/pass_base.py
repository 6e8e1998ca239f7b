"""PassBase: a pass over a graph module, with what must hold before and after it."""

from __future__ import annotations

import abc
from typing import NamedTuple

from tenon.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass gives."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """`requires`, `call` and `ensures`, in this order."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Does the work."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises where the pass cannot be run."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises where it has not done what it should."""
