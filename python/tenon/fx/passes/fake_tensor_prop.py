"""FakeTensorProp: what every node gives, without data."""

from __future__ import annotations

from typing import Any

import tenon
from tenon._torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from tenon.fx.interpreter import Interpreter
from tenon.fx.node import Node
from tenon.nn import Module
from tenon.utils import _pytree

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """`FakeTensorProp(gm).propagate(x)` sets `meta["val"]` of all nodes to fake tensors and
    numbers. No operator computes. Weights are real tensors, which a mode takes that was made with
    `allow_non_fake_inputs`."""

    def __init__(self, module: Module, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode

    def _fake(self, value: Any) -> Any:
        real = isinstance(value, tenon.Tensor) and not isinstance(value, FakeTensor)
        return self._mode.from_tensor(value) if real else value

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        kept = (tenon.Tensor, int, float, bool)
        val = _pytree.tree_map(lambda v: self._fake(v) if isinstance(v, kept) else None, result)
        if val is not None:
            n.meta["val"] = val
        return result

    def propagate(self, *args: Any) -> Any:
        """The graph's result for tensors like these, which are not read."""
        return self.propagate_dont_convert_inputs(*_pytree.tree_map(self._fake, args))

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        with self._mode:
            return self.run(*args)
