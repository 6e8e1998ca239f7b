"""What the programs of fx are made of that PyTorch runs, too."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import stored
import tenon


def place(t: Any, path: str) -> Any:
    return importlib.import_module(f"{t.__name__}.{path}")


def tidy(answer: Any) -> Any:
    """An answer as texts and numbers, without the name of the library."""
    if isinstance(answer, dict):
        return {str(k): tidy(v) for k, v in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [tidy(v) for v in answer]
    if answer is None or isinstance(answer, (bool, int, float)):
        return answer
    return str(answer).replace("tenon.", "torch.").rstrip()


def compare(program: Callable[[Any], Any]) -> None:
    """A program's answer is that of the same program with PyTorch."""
    want = stored.of_torch(lambda torch: tidy(program(torch)))
    stored.same(tidy(program(tenon)), want)


def refused(fn: Callable[..., Any], *args: Any) -> str:
    try:
        fn(*args)
    except Exception as err:
        return type(err).__name__
    return "taken"


def untyped(fn: Any) -> Any:
    """The same without annotations, which are texts in this file."""
    fn.__annotations__ = {}
    return fn


def chain(t: Any) -> Any:
    """x, y -> relu, add, neg: what most programs start from."""
    g = t.fx.Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    a = g.call_function(t.relu, (x,))
    b = g.call_function(operator.add, (a, y))
    c = g.call_method("neg", (b,))
    g.output(c)
    return g


def named(g: Any) -> dict[str, Any]:
    return {n.name: n for n in g.nodes}


def text(g: Any) -> list[str]:
    return [n.format_node() for n in g.nodes]


class Block:
    """Made for a library: a module with everything that a trace reads."""

    def __new__(cls, t: Any) -> Any:
        class Inner(t.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = t.nn.Linear(2, 2)
                self.scale = t.nn.Parameter(t.ones(2))
                self.register_buffer("shift", t.zeros(2))

            def forward(self, x: Any) -> Any:
                return self.fc(x) * self.scale + self.shift

        class Outer(t.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = Inner(), t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Dropout(0.5))
                self.same = self.a

            @untyped
            def forward(self, x: Any, y: Any = None) -> Any:
                return self.b(self.a(x)) + self.same(x) + t.ones(2)

        return Outer()


def helper(x: Any, k: int) -> Any:
    return x if k is None else x * k if k else x
