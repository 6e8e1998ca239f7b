"""Backends that count."""

from __future__ import annotations

from typing import Any

from tenon.compiler import lookup_backend


class CompileCounterWithBackend:
    """Counts graphs and their operators, and hands them on."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.clear()

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.frame_count += 1
        self.graphs.append(gm)
        self.op_count += sum(n.op in ("call_function", "call_method", "call_module")
                             for n in gm.graph.nodes)  # fmt: skip
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        self.frame_count = self.op_count = 0
        self.graphs: list[Any] = []


class CompileCounter(CompileCounterWithBackend):
    """Counts graphs, and runs them as they are."""

    def __init__(self) -> None:
        super().__init__("eager")
