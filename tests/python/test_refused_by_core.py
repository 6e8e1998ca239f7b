"""What the extension refuses of modes, nodes, wrapped tensors, graphs and parts of tensors, each
with the words that only this check says; where PyTorch has the call, with its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside

Call = Callable[[Any], Any]


def wraps(lib: Any, *given: Any, answer: Any = None, **options: Any) -> Any:
    """A tensor of a class with __torch_dispatch__."""

    class Wraps(lib.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return answer

    return lib.Tensor._make_wrapper_subclass(Wraps, *given, **options)


def returned(lib: Any, answer: Any) -> None:
    """A backward pass through a function that answers so."""

    class Answers(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return answer

    Answers.apply(lib.ones(2, requires_grad=True)).sum().backward()


SHARED: dict[str, tuple[str, Call]] = {
    "gradient that is a text": (
        "expected Variable or None (got str)",
        lambda t: returned(t, "one"),
    ),
    "gradient that is a number": (
        "expected Variable or None (got int)",
        lambda t: returned(t, 1),
    ),
    "one gradient too many": (
        "returned an incorrect number of gradients (expected 1, got 2)",
        lambda t: returned(t, (t.ones(2), t.ones(2))),
    ),
    "gradient of another shape": (
        "an invalid gradient at index 0",
        lambda t: returned(t, t.ones(3)),
    ),
    "saved under another name": (
        "nothing'",
        lambda t: t.ones(2, requires_grad=True).exp().grad_fn._saved_nothing,
    ),
    "strides too few": (
        "dimensionality of sizes (2) must match dimensionality of strides (1)",
        lambda t: wraps(t, (2, 3), strides=(1,)),
    ),
    "sizes of texts": ("sizes and strides are integers", lambda t: wraps(t, ("two",))),
    "strides of texts": (
        "sizes and strides are integers",
        lambda t: wraps(t, (2,), strides=("one",)),
    ),
    "packed without memory": (
        "annot pack tensors on meta",
        lambda t: t.utils.dlpack.to_dlpack(t.empty(2, device="meta")),
    ),
}
E, R, V, N = TypeError, RuntimeError, ValueError, NotImplementedError
ops = tn._C._ops
w = tn.ones(2, 3)


def nested(call: Callable[[], Any]) -> None:
    """The call while a graph is captured."""
    with tn.graph(tn.Graph()):
        call()


def replayed_inside() -> None:
    graph = tn.Graph()
    with tn.graph(graph):
        w * 2
    nested(graph.replay)


def another_graph() -> None:
    with tn.graph(tn.Graph()):
        pass


def sgd(*lists: list[tn.Tensor], momentum: float = 0.0) -> Any:
    return ops._sgd_step(*lists, 0.1, momentum, 0.0, 0.0, False, False, True, None)


OWN: list[Refusal] = [
    (E, "a gradient mode decorates one function", lambda: tn.no_grad()(f=abs)),
    (E, "a device as a decorator takes no keywords", lambda: tn.device("cpu")(f=abs)),
    (R, "graph_begin(): the thread is capturing a graph already", lambda: nested(another_graph)),
    (R, "graph_replay(): the thread is capturing a graph", replayed_inside),
    (V, "_sgd_step: an empty list", lambda: sgd([], [], [])),
    (V, "sgd: momentum needs a buffer for each parameter",
     lambda: sgd([w], [w], [], momentum=0.9)),
    (R, "lies in memory unlike its parameter",
     lambda: sgd([tn.ones(2, 2)], [tn.ones(2, 2)], [tn.ones(2, 2).t()], momentum=0.9)),
    (V, "tensors have at most 64 dimensions", lambda: wraps(tn, (1,) * 65)),
    (E, "__torch_dispatch__ returned no number", lambda: wraps(tn, (), answer="x").item()),
    (AttributeError, "a part cannot be deleted", lambda: delattr(w * 1j, "real")),
    (AttributeError, "a part cannot be deleted", lambda: delattr(w * 1j, "imag")),
]  # fmt: skip
CASES = by_name(own=OWN)


@pytest.mark.parametrize("name", SHARED)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    check_beside(*SHARED[name])


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])
