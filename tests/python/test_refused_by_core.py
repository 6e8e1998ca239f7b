"""What the extension refuses of modes, nodes, wrapped tensors, graphs and parts of tensors, each
with the words that only this check says; where PyTorch has the call, with its class."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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


def caught_inside() -> None:
    """What a graph refuses is not captured, also where the program goes on."""
    with tn.graph(tn.Graph()), suppress(RuntimeError):
        tn.nonzero(w)


CSR, CSC, BSR, BSC = 2, 3, 4, 5


def parts(layout: int, index: Any, plain: Any, values: tuple[int, ...], *size: int) -> Any:
    """A sparse tensor of parts that nothing but their sizes speaks against."""
    given = tn.tensor(index), tn.tensor(plain), tn.ones(values)
    return ops._sparse_make(*given, size, layout, False)


def sgd(*lists: list[tn.Tensor], momentum: float = 0.0) -> Any:
    return ops._sgd_step(*lists, 0.1, momentum, 0.0, 0.0, False, False, True, None)


OWN: list[Refusal] = [
    (E, "a gradient mode decorates one function", lambda: tn.no_grad()(f=abs)),
    (E, "a device as a decorator takes no keywords", lambda: tn.device("cpu")(f=abs)),
    (R, "graph_begin(): the thread is capturing a graph already", lambda: nested(another_graph)),
    (R, "graph_replay(): the thread is capturing a graph", replayed_inside),
    (R, "nothing was captured, because of a result whose size depends on values", caught_inside),
    (V, "too many arguments in one call", lambda: tn.add(w, w, **{f"k{i}": 1 for i in range(25)})),
    (V, "a pattern is two int64 vectors, the first not empty",
     lambda: ops._spmm(tn.zeros(0, dtype=tn.int64), tn.zeros(0, dtype=tn.int64), w, w)),
    (N, "count_nonzero(): some dimensions of a tensor of layout sparse_coo",
     lambda: tn.count_nonzero(w.to_sparse(), dim=0)),
    (V, "layout 0 is not compressed", lambda: ops._to_compressed(w, 0, [], 0)),
    (R, "a convolution has 3 to 5 dimensions",
     lambda: ops._conv_backward_weight(w, w, (1, 1), (), (), (), 1)),
    (R, "conv_transpose1d: groups or channels are not positive or too many",
     lambda: tn.conv_transpose1d(tn.ones(1, 1, 3), tn.ones(1, 1, 1), groups=0)),
    (IndexError, "indices must lie within the plane that was pooled",
     lambda: ops._max_pool2d_gather(tn.ones(1, 1, 2, 2), tn.tensor([[[[4]]]]))),
    (V, "argument 'kept' must be y and reserve",
     lambda: ops._rnn_layers_backward(
         w, None, None, w, tn.ones(1, 2, 3), None, [], [w], (2,), 0, False, 1, False)),
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
UNFIT: list[Refusal] = [
    (R, f"sparse tensor: {what} do not fit size", lambda of=of: parts(*of))
    for what, of in (
        ("plain indices of shape [1, 1]", (CSR, [0, 1, 1], [[0]], (1,), 2, 2)),
        ("plain indices of shape []", (CSC, 0, 0, (1,), 2, 2)),
        ("plain indices of shape [2, 1]", (CSR, [[0, 1, 1]], [[0], [0]], (1, 1), 1, 2, 2)),
        ("compressed indices of shape [2]", (CSR, [0, 1], [0], (1,), 2, 3)),
        ("compressed indices of shape [3]", (CSC, [0, 1, 1], [0], (1,), 2, 3)),
        ("compressed indices of shape [2, 3]", (CSR, [[0, 1, 1]] * 2, [[0]], (1, 1), 1, 2, 2)),
        ("compressed indices of shape [2]", (BSR, [0, 1], [0], (1, 2, 3), 2, 4)),
        ("compressed indices of shape [2]", (BSR, [0, 1], [0], (1, 2, 3), 3, 3)),
        ("compressed indices of shape [2]", (BSC, [0, 1], [0], (1, 2, 0), 2, 3)),
        ("compressed indices of shape [2]", (BSR, [0, 1], [0], (1, 2, 3), 4, 3)),
        ("values of shape [2]", (CSR, [0, 1, 1], [0], (2,), 2, 2)),
        ("values of shape [1]", (CSR, [0, 1, 1], [0], (1,), 2, 2, 3)),
        ("values of shape [1]", (CSR, [0, 1, 1], [0], (1,), 2)),
        ("values of shape [1, 2]", (BSR, [0, 1], [0], (1, 2), 2, 2)),
        ("values of shape [1, 3]", (CSR, [0, 1, 1], [0], (1, 3), 2, 2, 2)),
        ("values of shape [2, 1]", (CSR, [[0, 1, 1]], [[0]], (2, 1), 1, 2, 2)),
    )
]
CASES = by_name(own=OWN, unfit=UNFIT)


def test_parts_that_fit_are_taken() -> None:
    assert parts(CSR, [0, 1, 1], [1], (1,), 2, 3).to_dense().tolist() == [[0, 1, 0], [0, 0, 0]]
    assert parts(CSC, [0, 0, 1, 1], [1], (1,), 2, 3).to_dense().tolist() == [[0] * 3, [0, 1, 0]]
    assert parts(CSR, [[0, 1, 1]], [[0]], (1, 1, 2), 1, 2, 2, 2).to_dense().sum() == 2
    assert parts(BSR, [0, 1], [0], (1, 2, 3), 2, 3).to_dense().tolist() == [[1] * 3] * 2
    assert parts(BSC, [0, 1, 1], [0], (1, 2, 3), 2, 6).to_dense().sum() == 6


@pytest.mark.parametrize("name", SHARED)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    check_beside(*SHARED[name])


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])
