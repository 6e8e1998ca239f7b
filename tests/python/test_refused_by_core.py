"""What the extension refuses of modes, nodes, wrapped tensors, graphs and parts of tensors, each
with the words that only this check says; where PyTorch has the call, with its class."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside
from tenon._program import record

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


def marked(lib: Any, how: str) -> None:
    """A function that marks a number as it may mark its tensors."""

    class Marks(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            getattr(ctx, how)(3)
            return x * 2

    Marks.apply(lib.ones(2, requires_grad=True))


SHARED: dict[str, tuple[str, Call]] = {
    "a number that is written": (
        "only variables can be marked, not int",
        lambda t: marked(t, "mark_dirty"),
    ),
    "a number without a gradient": (
        "only variables can be marked, not int",
        lambda t: marked(t, "mark_non_differentiable"),
    ),
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

# The same of operators: only the words, which say the operator, the argument and what was expected.
OF_OPERATORS: dict[str, Call] = {
    "Mismatch in shape: grad_output[0] has a shape of": lambda t: (
        t.ones(2, requires_grad=True) * 1
    ).backward(t.ones(3)),
    "zero-dimensional tensor (at position 1) cannot be concatenated": lambda t: t.cat(
        [t.ones(2), t.tensor(1.0)]
    ),
    "Dimension specified as 0 but tensor has no dimensions": lambda t: t.roll(t.tensor(1.0), 1, 0),
    "cov(): expected fweights to have integral dtype but got fweights with Float dtype": (
        lambda t: t.cov(t.ones(2, 3), fweights=t.ones(3))
    ),
    "cov(): expected aweights to have floating point dtype but got aweights with Long dtype": (
        lambda t: t.cov(t.ones(2, 3), aweights=t.ones(3, dtype=t.int64))
    ),
    "cov(): weights sum to zero, can't be normalized": lambda t: t.cov(
        t.ones(2, 3), aweights=t.zeros(3)
    ),
    "the output given to float_power has dtype Float but the operation's result": lambda t: (
        t.float_power(t.ones(2), 2, out=t.ones(2))
    ),
    "range of [0, inf] is not finite": lambda t: t.histogramdd(
        t.ones(3, 2), [2, 2], range=[0.0, float("inf"), 0.0, 1.0]
    ),
    "torch.histc: range of [1, inf] is not finite": lambda t: t.histc(
        t.tensor([1.0, float("inf")])
    ),
    "unsupported range: 0 -> inf": lambda t: t.arange(0, float("inf")),
    "unsupported range: nan -> 1": lambda t: t.range(float("nan"), 1),
    "the number of subscripts in the equation (2)": lambda t: t.einsum("ij...", t.ones(2)),
    "size is inconsistent with indices: for dim 0, size is 3 but found index 5": lambda t: (
        t.sparse_coo_tensor(t.tensor([[5]]), t.ones(1), (3,), check_invariants=True)
    ),
    "self.stride(-1) must be 1 to view Float as Short (different element sizes), but got 3": (
        lambda t: t.ones(2, 3).t().view(t.int16)
    ),
    "self.size(-1) must be divisible by 2 to view Short as Int": lambda t: t.ones(
        2, 3, dtype=t.int16
    ).view(t.int32),
    "self.storage_offset() must be divisible by 2 to view Short as Int": lambda t: t.ones(
        2, 4, dtype=t.int16
    )[:, 1:3].view(t.int32),
    "must be divisible by 2 to view Short as Int (different element sizes), but got 3": (
        lambda t: t.ones(8, dtype=t.int16).as_strided((2, 4), (3, 1)).view(t.int32)
    ),
    "Given groups=1, weight of size [2, 2, 2, 2], expected input[1, 3, 4, 4] to have 2 channels, "
    "but got 3 channels instead": lambda t: t.conv2d(t.ones(1, 3, 4, 4), t.ones(2, 2, 2, 2)),
    "self.size(1) needs to match mat2.size(0) but got 8 and 16": lambda t: t._int_mm(
        t.ones(17, 8, dtype=t.int8), t.ones(16, 8, dtype=t.int8)
    ),
    "For integral input tensors, argument alpha must not be a floating point number.": (
        lambda t: t.add(t.ones(2, dtype=t.int64), t.ones(2, dtype=t.int64), alpha=1.5)
    ),
    "invalid Poisson rate, expected rate to be non-negative": lambda t: t.poisson(t.tensor([-1.0])),
    "The algorithm failed to converge because the input matrix contained non-finite values": (
        lambda t: t.linalg.svd(t.full((2, 2), float("nan")))
    ),
    "the leading minor of order 2 is not positive-definite": lambda t: t.linalg.cholesky(
        t.tensor([[1.0, 2.0], [2.0, 1.0]])
    ),
    "mixed dtype": lambda t: t.nn.functional.group_norm(
        t.ones(2, 4), 2, t.ones(4, dtype=t.float16), t.ones(4)
    ),
    "only integers, slices (`:`), ellipsis (`...`), None and long or byte": lambda t: t.ones(2)[
        1.5
    ],
    "not a sequence": lambda t: t.tensor([[1, 2], 3]),
    "expected np.ndarray (got list)": lambda t: t.from_numpy([1]),
    "can't convert np.ndarray of type": lambda t: t.tensor(np.zeros(2, dtype="M8[s]")),
    "Use Tensor.to_dense() first.": lambda t: t.ones(2).to_sparse().numpy(),
    "expected Variable, but hook returned 'str'": lambda t: told_by_hook(t, "a"),
}


def told_by_hook(lib: Any, answer: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    x.register_hook(lambda _: answer)
    x.sum().backward()


def frozen() -> tn.Tensor:
    """A tensor over memory that is not to be written."""
    return tn.from_numpy(np.broadcast_to(np.float32(1), 3))


E, R, V, N = TypeError, RuntimeError, ValueError, NotImplementedError
ops = tn._C._ops
F = tn.nn.functional
w = tn.ones(2, 3)
asks = tn.ones(2, requires_grad=True)


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


def weight_slope(
    grad: tuple[int, ...], input: tuple[int, ...], size: tuple[int, ...], stride: int = 1,
    padding: int = 0, dilation: int = 1, groups: int = 1,
) -> Any:  # fmt: skip
    n = len(grad) - 2
    return ops._conv_backward_weight(
        tn.ones(grad), tn.ones(input), size, (stride,) * n, (padding,) * n, (dilation,) * n, groups
    )


def lstm(state: tn.Tensor, *params: tn.Tensor) -> Any:
    return tn.lstm(tn.ones(1, 1, 3), [state] * 2, params, False, 1, 0.0, False, False, False)


OWN: list[Refusal] = [
    (E, "a gradient mode decorates one function", lambda: tn.no_grad()(f=abs)),
    (E, "a device as a decorator takes no keywords", lambda: tn.device("cpu")(f=abs)),
    (R, "graph_begin(): the thread is capturing a graph already", lambda: nested(another_graph)),
    (R, "graph_replay(): the thread is capturing a graph", replayed_inside),
    (R, "nothing was captured, because of a result whose size depends on values", caught_inside),
    (E, "too many arguments in one call", lambda: tn.add(w, w, **{f"k{i}": 1 for i in range(25)})),
    (V, "a pattern is two int64 vectors, the first not empty",
     lambda: ops._spmm(tn.zeros(0, dtype=tn.int64), tn.zeros(0, dtype=tn.int64), w, w)),
    (N, "count_nonzero(): some dimensions of a tensor of layout sparse_coo",
     lambda: tn.count_nonzero(w.to_sparse(), dim=0)),
    (V, "layout 0 is not compressed", lambda: ops._to_compressed(w, 0, [], 0)),
    (R, "a convolution has 3 to 5 dimensions",
     lambda: weight_slope((2, 3), (2, 3), (1, 1))),
    (R, "a convolution has 3 to 5 dimensions",
     lambda: weight_slope((1,) * 6, (1,) * 6, (1,) * 6)),
    (R, "negative padding is not supported",
     lambda: weight_slope((1, 1, 3), (1, 1, 5), (1, 1, 1), padding=-1)),
    (R, "non-positive stride is not supported",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1, 1), stride=0)),
    (R, "non-positive dilation is not supported",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1, 1), dilation=0)),
    (R, "expected weight_size to be a list of 3 ints, but got 2",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1))),
    (R, "0 groups of a weight of size [1, 1, 1] do not give gradient [1, 1, 3]",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1, 1), groups=0)),
    (R, "1 groups of a weight of size [2, 1, 1] do not give gradient [1, 1, 3]",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (2, 1, 1))),
    (R, "2 groups of a weight of size [3, 1, 1] do not give gradient [1, 3, 3]",
     lambda: weight_slope((1, 3, 3), (1, 2, 3), (3, 1, 1), groups=2)),
    (R, "a convolution of input size [1, 1, 3] does not give size [1, 1, 3]",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1, 2))),
    (R, "a convolution of input size [1, 1, 3] does not give size [1, 1, 3]",
     lambda: weight_slope((1, 1, 3), (1, 1, 3), (1, 1, 5))),
    (R, "argument 'input' must have shape [1, 1, 3], not [1, 2, 3]",
     lambda: weight_slope((1, 1, 3), (1, 2, 3), (1, 1, 1))),
    (R, "argument 'input' must have shape [1, 1, 0], not [1, 1]",
     lambda: weight_slope((1, 1, 3), (1, 1), (1, 1, 1))),
    (R, "conv_transpose1d: groups or channels are not positive or too many",
     lambda: tn.conv_transpose1d(tn.ones(1, 1, 3), tn.ones(1, 1, 1), groups=0)),
    (IndexError, "indices must lie within the plane that was pooled",
     lambda: ops._max_pool2d_gather(tn.ones(1, 1, 2, 2), tn.tensor([[[[4]]]]))),
    (V, "argument 'kept' must be y and reserve",
     lambda: ops._rnn_layers_backward(
         w, None, None, w, tn.ones(1, 2, 3), None, [], [w], (2,), 0, False, 1, False)),
    (E, "set_default_dtype() takes a dtype, not int", lambda: tn._C.set_default_dtype(3)),
    (E, "promote_types() takes dtypes, not int", lambda: tn.promote_types(3, tn.int8)),
    (E, "promote_types() takes dtypes, not str", lambda: tn.promote_types(tn.int8, "int8")),
    (E, "set_num_threads expects an int, but got float", lambda: tn._C.set_num_threads(1.5)),
    (R, "set_num_threads expects a positive integer", lambda: tn._C.set_num_threads(0)),
    (R, "set_num_threads expects a positive integer", lambda: tn._C.set_num_threads(1025)),
    (E, "a program takes and gives tensors, not int",
     lambda: record(lambda: [w * 2], {"x": w})[0](3)),
    (V, "a group has at most 256 devices and an id of 128 bytes",
     lambda: tn._C._group_new(("cpu",) * 257, 257, 0, None)),
    (V, "a group has at most 256 devices and an id of 128 bytes",
     lambda: tn._C._group_new(("cpu",), 2, 0, "x" * 127)),
    (N, "a group across processes needs the interface",
     lambda: tn._C._group_new(("cpu",), 2, 0, None)),
    (E, "the data has numbers and sequences at one level", lambda: tn.tensor([1, [2]])),
    (E, "not a sequence: int", lambda: tn.tensor([[1], 2])),
    (E, "a scope, not int", lambda: tn._C.FfiScope(None, 3)),
    (E, "no keywords", lambda: tn._C.FfiScope(None, parent=None)),
    (V, "_sgd_step: an empty list", lambda: sgd([], [], [])),
    (V, "sgd: momentum needs a buffer for each parameter",
     lambda: sgd([w], [w], [], momentum=0.9)),
    (R, "lies in memory unlike its parameter",
     lambda: sgd([tn.ones(2, 2)], [tn.ones(2, 2)], [tn.ones(2, 2).t()], momentum=0.9)),
    (V, "tensors have at most 64 dimensions", lambda: wraps(tn, (1,) * 65)),
    (E, "__torch_dispatch__ returned no number", lambda: wraps(tn, (), answer="x").item()),
    (AttributeError, "a part cannot be deleted", lambda: delattr(w * 1j, "real")),
    (AttributeError, "a part cannot be deleted", lambda: delattr(w * 1j, "imag")),
    (V, "add: the output's memory is read-only", lambda: tn.add(w[0], 1, out=frozen())),
    (V, "add: the output's memory is read-only", lambda: frozen().add_(1)),
    (V, "diag_embed: the offset 4611686018427387904 is too large",
     lambda: tn.diag_embed(w, 2**62)),
    (R, "expand: the size -2 of dimension 0 is negative", lambda: tn.ones(1, 3).expand(-2, 3)),
    (R, "conv2d: expected a 4-dimensional weight, but got 3 dimensions",
     lambda: F.conv2d(tn.ones(1, 3, 4, 4), tn.ones(2, 3, 2))),
    (R, "padding='same': dilation 4611686018427387904 is too large",
     lambda: F.conv1d(tn.ones(1, 1, 4), tn.ones(1, 1, 3), padding="same", dilation=2**62)),
    (R, "mixed dtype: expected weight of dtype Float, but got Half",
     lambda: F.batch_norm(w, *(tn.ones(3, dtype=d) for d in
                               (tn.float32, tn.float32, tn.float16, tn.float32)))),
    (R, "mixed dtype: expected weight of dtype BFloat16, but got Half",
     lambda: F.group_norm(tn.ones(2, 4, dtype=tn.bfloat16), 2, tn.ones(4, dtype=tn.float16))),
    (BufferError, "the tensor requires a gradient; use tensor.detach()",
     lambda: memoryview(tn.ones(2, requires_grad=True))),
    (AssertionError, "Expected output to be a torch.Tensor", lambda: tn.autograd.backward([3])),
    (AssertionError, "Expected output to be a torch.Tensor", lambda: tn.autograd.grad([3], asks)),
    (R, "all inputs have to be Tensors or GradientEdges, but got int",
     lambda: tn.autograd.grad(asks.sum(), [3])),
    (R, "all inputs have to be Tensors or GradientEdges, but got str",
     lambda: tn.autograd.backward(asks.sum(), inputs=["w"])),
    (E, "gradients can be either Tensors or None, but got int",
     lambda: tn.autograd.grad(asks.sum(), asks, [3])),
    (R, "got 1 tensors and 2 gradients",
     lambda: tn.autograd.backward([tn.ones(2, requires_grad=True)], [w[0, :2]] * 2)),
    (E, "queue_callback takes a callable, not int",
     lambda: tn.autograd.Variable._execution_engine.queue_callback(3)),
    (E, "increment_version takes Tensors, not int",
     lambda: tn.autograd.graph.increment_version([3])),
    (E, "type_as() takes a Tensor, not int", lambda: w.type_as(3)),
    (E, "is_set_to() takes a Tensor, not int", lambda: w.is_set_to(3)),
    (E, "to(): argument 'memory_format' must be memory_format, not int",
     lambda: w.to(memory_format=3)),
    (R, "lstm: Expected params[0] to have shape [8, 3], got [8, 4]",
     lambda: lstm(tn.ones(1, 1, 2), tn.ones(8, 4), tn.ones(8, 2))),
    (R, "lstm: Expected 2 params, got 1", lambda: lstm(tn.ones(1, 1, 2), tn.ones(8, 3))),
    (R, "lstm: Expected hx[0] of size (1, 1, ...), got [2, 1, 2]",
     lambda: lstm(tn.ones(2, 1, 2), tn.ones(8, 3), tn.ones(8, 2))),
    (R, "rnn_tanh_cell: Expected w_ih to have 2 rows, got 4",
     lambda: tn.rnn_tanh_cell(tn.ones(1, 3), tn.ones(1, 2), tn.ones(4, 3), tn.ones(2, 2))),
    (tn.linalg.LinAlgError, "torch.linalg.ldl_factor: The diagonal element 1 of D is zero",
     lambda: tn.linalg.ldl_factor(tn.zeros(2, 2))),
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


@pytest.mark.parametrize("words", OF_OPERATORS)
def test_operators_refuse_with_words_and_pytorchs_class(words: str) -> None:
    check_beside(words, OF_OPERATORS[words])


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])
