"""fx: functions of Python that are called on proxies are one node, whoever made the proxies."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon import fx
from tenon._torch import _dynamo as dynamo
from tenon.export.exported_program import GuardError
from tenon.fx.experimental.proxy_tensor import make_fx

F = tn.nn.functional
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "einsum": lambda a: tn.einsum("ij,jk,kl->il", a, a, a),
    "tensordot": lambda a: tn.tensordot(a, a, 1),
    "meshgrid": lambda a: tn.meshgrid(a, a, indexing="ij"),
    "gradient": tn.gradient,
    "histogram": lambda a: tn.histogram(a, 3),
    "histogramdd": lambda a: tn.histogramdd(a, [2, 2]),
    "unique": tn.unique,
    "lu": tn.lu,
    "chain_matmul": lambda a: tn.chain_matmul(a, a),
    "prelu": lambda a: tn.prelu(a, a),
    "pixel_shuffle": lambda a: tn.pixel_shuffle(a, 2),
    "stft": lambda a: tn.stft(a, 4, return_complex=True),
    "svd": tn.svd,
    "lobpcg": tn.lobpcg,
    "multi_dot": lambda a: tn.linalg.multi_dot([a, a]),
    "vander": tn.linalg.vander,
    "interpolate": lambda a: F.interpolate(a, 2),
    "normalize": F.normalize,
    "fold": lambda a: F.fold(a, 2, 2),
    "gumbel_softmax": F.gumbel_softmax,
    "binary_cross_entropy": lambda a: F.binary_cross_entropy(a, a),
    "lp_pool2d": lambda a: F.lp_pool2d(a, 2, 2),
    "ctc_loss": lambda a: F.ctc_loss(a, a, a, a),
    "embedding_bag": lambda a: F.embedding_bag(a, a),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_on_a_proxy_is_one_node(name: str) -> None:
    """Of a graph in the making, and in symbolic_trace."""
    by_hand = fx.Graph()
    FUNCTIONS[name](fx.Proxy(by_hand.placeholder("a")))
    for graph in (by_hand, fx.symbolic_trace(lambda a: FUNCTIONS[name](a)).graph):
        (node,) = [n for n in graph.nodes if n.op.startswith("call")]
        assert (getattr(node.target, "__name__", node.target), node.op) == (name, "call_function")


WRITING = (
    tn.relu_, F.leaky_relu_, F.elu_, tn.selu_, F.hardtanh_, tn.sigmoid_, tn.tanh_, tn.abs_,
    tn.clamp_, tn.nan_to_num_,
)  # fmt: skip


@pytest.mark.parametrize("function", WRITING)
def test_functions_that_write_are_one_node(function: Any) -> None:
    made = fx.symbolic_trace(lambda a: function(a.clone()))
    (node,) = made.graph.find_nodes(op="call_function", target=function)
    assert node.args == (made.graph.find_nodes(op="call_method", target="clone")[0],)
    with pytest.raises(TypeError, match=r"_\(\).*must be Tensor"):
        function(1)
    if function is not tn.clamp_:
        x = tn.tensor([-0.5, 2.0])
        assert tn.equal(made(x), function(x.clone()))


def test_operands_of_einsum_are_put_in_order() -> None:
    for given in (
        lambda a, b: tn.einsum("ij,jk->ik", [a, b]),
        lambda a, b: tn.einsum(a, [0, 1], b, [1, 2], [0, 2]),
        lambda a, b: tn.einsum("ij,jk->ik", a, b),
    ):
        (node,) = fx.symbolic_trace(given).graph.find_nodes(op="call_function", target=tn.einsum)
        assert [str(a) for a in node.args[1:]] == ["a", "b"] and "," in node.args[0]


def test_made_graphs_compute() -> None:
    graph = fx.Graph()
    a = fx.Proxy(graph.placeholder("a"))
    graph.output(tn.einsum("ij,jk,kl->il", a, a.T, a).node)
    module, x = fx.GraphModule({}, graph), tn.randn(3, 4)
    tn.testing.assert_close(module(x), x @ x.T @ x)


LATE = """
import tenon as tn
from tenon import fx

fx.symbolic_trace(lambda a: tn.pixel_shuffle(a, 2))  # whose module is imported in the trace
graph = fx.symbolic_trace(lambda a: tn.prelu(a, a)).graph
print([n.op for n in graph.nodes], tn.prelu(-tn.ones(1), tn.full((1,), 0.5)).item())
"""


def test_modules_that_are_imported_while_a_trace_runs() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert done.stdout == "['placeholder', 'call_function', 'output'] -0.5\n", done.stderr


def joined(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
    return tn.cat([x[1:, ::2] + 1, y.view(2, -1)[:1, :2].relu()]) * 2


def cut(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
    return joined(x, y).split(1)[0].where(y[:2] > 0, x[:1, :2])


@pytest.mark.parametrize("fn", [joined, cut])
def test_graphs_of_the_library_are_traced_again(fn: Any) -> None:
    x, y = tn.randn(2, 4), tn.randn(8)
    gm = make_fx(fn)(x, y)
    made = [fx.symbolic_trace(gm), fx.Transformer(gm).transform()]
    if fn is joined:  # all its operators have names
        made.append(pickle.loads(pickle.dumps(gm)))
    for again in made:
        assert [n.target for n in again.graph.nodes] == [n.target for n in gm.graph.nodes]
        assert tn.equal(again(x, y), fn(x, y))


def branches(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if x.shape[0] > 100 else x + 1


@pytest.mark.parametrize(
    "fn",
    [
        branches,
        lambda x: tn.split(x, x.shape[0] // 2)[0],
        lambda x: tn.ones(5 * x.shape[0]),
        lambda x: x[: x.shape[0] // 2] * x.shape[0],
        lambda x: x + tn.arange(x.shape[1]),
    ],
)
@pytest.mark.parametrize("aten", [None, True, False])
def test_graphs_of_other_sizes(fn: Any, aten: bool | None) -> None:
    """A graph for any size gives what the function gives, or refuses the size."""
    first, refused = tn.randn(6, 4), 0
    gm = (
        make_fx(fn, tracing_mode="symbolic")(first) if aten is None
        else dynamo.export(fn, aten_graph=aten)(first).graph_module
    )  # fmt: skip
    other = copy.deepcopy(gm) if aten is False else pickle.loads(pickle.dumps(gm))
    for made in (gm, copy.copy(gm), copy.deepcopy(gm), other):
        for n in (6, 8, 200):
            x = tn.randn(n, 4)
            try:
                got = made(x)
            except GuardError as err:
                assert n != 6 and "x" in str(err)
                refused += 1
            else:
                assert tn.equal(got, fn(x))
    assert refused in (0, 4, 8)
