"""fx: what becomes a node, the text of graphs, passes. Texts are PyTorch's for the same calls."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import fx, nn
from tenon.fx.passes.infra.pass_base import PassBase, PassResult
from tenon.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper
from tenon.fx.passes.split_module import split_module
from tenon.fx.passes.tools_common import legalize_graph
from tenon.fx.passes.utils.matcher_utils import SubgraphMatcher
from tenon.nn.functional import dropout

F = nn.functional
sqrt = math.sqrt
fx.wrap("sqrt")
fx.wrap("len")


@fx.wrap
def _helper(x: Any, k: int) -> Any:
    return x + (k if k else 1)


def lines(gm: Any) -> list[str]:
    """The statements of the generated code, without what releases values."""
    text = gm.code.replace(str(tn.float32).split(".")[0] + ".", "torch.")
    body = [s.strip() for s in text.split("\n") if s.startswith("    ") and s.strip()]
    return [s.split(";  ")[0] for s in body]


def test_assignments_in_place_are_new_values() -> None:
    def fn(x: Any) -> Any:
        x += 1
        x *= 2
        return abs(x) & (x > 1)

    gm = fx.symbolic_trace(fn)
    assert lines(gm) == [
        "add = x + 1", "mul = add * 2", "abs_1 = _operator_abs(mul)", "gt = mul > 1",
        "and_ = abs_1 & gt", "return and_",
    ]  # fmt: skip
    with pytest.raises(TypeError, match="item assignment"):
        fx.symbolic_trace(_write)


def _write(x: Any) -> Any:
    x[0] = 1
    return x


def test_values_are_unpacked_into_names() -> None:
    def fn(x: Any) -> Any:
        a, (b, c) = x.chunk(2)
        return a + b + c

    gm = fx.symbolic_trace(fn)
    assert [n.name for n in gm.graph.nodes] == [
        "x", "chunk", "getitem", "getitem_1", "getitem_2", "getitem_3", "add", "add_1", "output",
    ]  # fmt: skip
    with pytest.raises(fx.TraceError, match="iterated"):
        fx.symbolic_trace(lambda x: [*x])


def test_python_functions_of_the_package_are_nodes() -> None:
    def fn(x: Any) -> Any:
        x = F.adaptive_avg_pool2d(F.dropout(x, 0.3, training=False), 1)
        return dropout(x, training=False), F.pad(x, (1, 1)), tn.meshgrid(x), tn.linalg.inv(x)

    nodes = {n.name: n for n in fx.symbolic_trace(fn).graph.nodes}
    assert nodes["dropout"].target is F.dropout and len(nodes) == 8
    assert nodes["dropout"].kwargs == {"p": 0.3, "training": False, "inplace": False}
    assert nodes["adaptive_avg_pool2d"].args == (nodes["dropout"], 1)
    assert nodes["dropout_1"].kwargs["p"] == 0.5
    assert nodes["pad"].args == (nodes["adaptive_avg_pool2d"], (1, 1))
    assert nodes["pad"].kwargs == {"mode": "constant", "value": None}
    assert nodes["meshgrid"].target is tn.meshgrid and nodes["inv"].target is tn.linalg.inv
    assert F.dropout.__name__ == "dropout" and dropout is F.dropout  # as before the trace
    assert tn.equal(F.dropout(tn.ones(2), training=False), tn.ones(2))

    class ToPad(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return F.pad(args[0], (1, 1))

    gm = ToPad(fx.symbolic_trace(lambda x: tn.sin(x))).transform()
    assert gm(tn.ones(1)).tolist() == [0.0, 1.0, 0.0]
    assert next(n for n in gm.graph.nodes if n.op == "call_function").target is F.pad


def test_header_of_wrapped_functions() -> None:
    gm = fx.symbolic_trace(lambda x: _helper(x, 2) / sqrt(x.size(0)) + len(x))
    place = __name__.replace(".", "_")
    head = "tenon.fx._symbolic_trace.wrap"
    assert gm.code.startswith(
        f'\n{head}("{place}__helper")\n{head}("math_sqrt")\n{head}("len")\n'
        "\ndef forward(self, x):\n"
    )
    assert f"target={__name__}._helper]" in str(gm.graph)
    assert "target=math.sqrt]" in str(gm.graph) and "target=builtins.len]" in str(gm.graph)
    assert gm(tn.ones(4)).tolist() == [5.5] * 4
    again = pickle.loads(pickle.dumps(gm))
    assert [n.name for n in again.graph.nodes] == [n.name for n in gm.graph.nodes]


def test_variadic_and_typed_arguments() -> None:
    def fn(a: tn.Tensor, *rest: Any, k: int = 3, **named: Any) -> Any:
        return a + rest[0] * k - named["b"]

    gm = fx.symbolic_trace(fn)
    x = tn.ones(2)
    assert gm(x, 2, x, b=x).tolist() == [2.0, 2.0]
    assert [n.target for n in gm.graph.nodes if n.op == "placeholder"] == [
        "a", "k", "*rest", "**named",
    ]  # fmt: skip


class Scaled:
    def run(self, x: Any, *, k: int = 2) -> Any:
        return x * k


def test_methods_and_text_of_types() -> None:
    assert fx.symbolic_trace(Scaled().run)(tn.ones(1), 3).tolist() == [3.0]
    space: dict[str, Any] = {"tn": tn}
    source = "def h(a: tn.Tensor, b: int = 3) -> list[int]:\n    return a + b\n"
    exec(compile(source, "h", "exec", dont_inherit=True), space)
    head = fx.symbolic_trace(space["h"]).code.split("\n")[3]
    assert head == "def forward(self, a : tenon.Tensor, b : int = 3) -> list[int]:"


def test_containers_in_concrete_arguments() -> None:
    def fn(x: Any, flag: bool, d: Any) -> Any:
        return {"r": x + d["a"] if flag else x - d["b"][0]}

    gm = fx.symbolic_trace(fn, {"flag": False, "d": {"a": fx.PH, "b": [fx.PH, None]}})
    given = {"a": tn.ones(1), "b": [tn.full((1,), 3.0), None]}
    for runs in (gm, pickle.loads(pickle.dumps(gm)), fx.GraphModule(gm, gm.graph)):
        assert runs(tn.ones(1), False, given)["r"].tolist() == [-2.0]
    with pytest.raises(AssertionError, match="flag has been specialized to have value False"):
        gm(tn.ones(1), True, given)
    with pytest.raises(AssertionError, match="d has been specialized to have value None"):
        gm(tn.ones(1), False, {"a": tn.ones(1), "b": [tn.ones(1), 3]})
    with pytest.raises(ValueError, match="."):
        gm(tn.ones(1), False, {"a": tn.ones(1), "b": [tn.ones(1)]})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(tn.rand(3, 4))
        self.part = nn.ModuleDict({"l": nn.Linear(4, 5)})

    def forward(self, x: Any, y: Any = None) -> Any:
        z = self.part["l"](x + self.p).clamp(min=0.0, max=1.0)
        w = self.part["l"](y).clamp(min=0.0, max=1.0)
        return z + w


def test_modules_are_split() -> None:
    net = Net()
    gm = fx.symbolic_trace(net)
    count = iter(range(100))
    names: dict[str, str] = {}
    split = split_module(gm, net, lambda n: next(count) % 3, names)
    x, y = tn.rand(3, 4), tn.rand(3, 4)
    assert tn.equal(split(x, y), net(x, y))
    assert lines(split) == [
        "p = self.p", "submod_0 = self.submod_0(x, p, y)", "getitem = submod_0[0]",
        "getitem_1 = submod_0[1]", "submod_1 = self.submod_1(getitem, getitem_1)",
        "getitem_2 = submod_1[0]", "getitem_3 = submod_1[1]",
        "submod_2 = self.submod_2(getitem_2, getitem_3)", "return submod_2",
    ]  # fmt: skip
    assert lines(split.submod_1) == [
        "part_l = self.part_l(add)", "clamp = part_l_1.clamp(min = 0.0, max = 1.0)",
        "return (part_l, clamp)",
    ]  # fmt: skip
    assert names == {"submod_0.part_l": "part.l", "submod_1.part_l": "part.l"}
    one = split_module(gm, net, lambda n: 0, tuple_return=True, partition_affix="a")
    assert tn.equal(one(x, y), net(x, y)) and hasattr(one, "submod_a_0")
    nodes = [n for n in gm.graph.nodes if n.op.startswith("call")]
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(gm, net, lambda n: int(n is nodes[1]))


class ToClip(PassBase):
    def call(self, gm: fx.GraphModule) -> PassResult:
        found = [n for n in gm.graph.nodes if n.target == "clamp"]
        for node in found:
            node.target = "clip"
        return PassResult(gm, bool(found))


def test_passes_run_in_order() -> None:
    calls: list[str] = []

    def second(gm: fx.GraphModule) -> None:
        calls.append("second")

    net = Net()
    x, y = tn.rand(3, 4), tn.rand(3, 4)
    gm = fx.symbolic_trace(net)
    result = PassManager([ToClip(), pass_result_wrapper(second)], steps=2)(gm)
    assert result.modified and ".clip(" in result.graph_module.code and len(calls) == 2
    assert tn.equal(result.graph_module(x, y), net(x, y))
    assert not PassManager([ToClip()])(gm).modified
    with pytest.raises(RuntimeError, match="Circular dependency"):
        PassManager([ToClip(), ToClip()], constraints=[lambda a, b: False])(gm)
    with pytest.raises(TypeError, match="PassResult"):
        PassManager([second])(gm)


def test_patterns_with_several_results_and_literals() -> None:
    def fn(x: Any, y: Any) -> Any:
        a = tn.sin(x) * 2
        b = tn.cos(a)
        return tn.relu(a) + b, tn.sin(y) * 3

    def pattern(v: Any, k: Any) -> Any:
        s = tn.sin(v) * k
        return tn.relu(s), tn.cos(s)

    def replacement(v: Any, k: Any) -> Any:
        s = tn.tanh(v) * k
        return s, s + 1

    gm = fx.symbolic_trace(fn)
    found = fx.subgraph_rewriter.replace_pattern_with_filters(gm, pattern, replacement)
    assert [n.name for n in found[0].replacements] == ["tanh", "mul_2", "add_1"]
    x, y = tn.randn(3), tn.randn(3)
    s = tn.tanh(x) * 2
    for a, b in zip(gm(x, y), (s + (s + 1), tn.sin(y) * 3), strict=True):
        assert tn.allclose(a, b)
    gm.graph.lint()

    def times(v: Any) -> Any:
        return tn.sin(v) * 9

    for literals, wanted in ((False, 0), (True, 2)):
        matcher = SubgraphMatcher(fx.symbolic_trace(times).graph, ignore_literals=literals)
        assert len(matcher.match(fx.symbolic_trace(fn).graph)) == wanted
    gm = fx.symbolic_trace(fn)
    done = fx.subgraph_rewriter.replace_pattern_with_filters(
        gm, times, lambda v: v, [lambda m, graph, p: m.placeholder_nodes[0].name == "y"], True
    )
    assert len(done) == 1 and tn.equal(gm(x, y)[1], y)
    made = fx.subgraph_rewriter.replace_pattern_with_filters(
        gm,
        lambda v: tn.cos(v),
        replacement_callback=lambda *_: fx.symbolic_trace(lambda v: v - v).graph,
    )
    assert len(made) == 1 and tn.equal(gm(x, y)[0], tn.relu(tn.sin(x) * 2))


def test_nodes_are_put_in_order() -> None:
    gm = fx.symbolic_trace(lambda x: tn.sin(x) + 1)
    nodes = list(gm.graph.nodes)
    nodes[1].prepend(nodes[2])
    with pytest.raises(RuntimeError, match="defined"):
        gm.graph.lint()
    legalize_graph(gm).graph.lint()
    assert tn.equal(gm(tn.ones(2)), tn.sin(tn.ones(2)) + 1)


def test_norms_go_into_the_layers_before_them() -> None:
    from tenon.fx.experimental.optimization import fuse, remove_dropout

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
            self.drop = nn.Dropout(0.9)

        def forward(self, x: Any) -> Any:
            return self.drop(self.norm(self.conv(x))).relu()

    block = Block()
    block(tn.randn(8, 1, 5, 5))
    block.eval()
    x = tn.randn(2, 1, 5, 5)
    fused = fuse(block)
    assert tn.allclose(fused(x), block(x), atol=1e-5)
    assert lines(fused)[:2] == ["conv = self.conv(x)", "drop = self.drop(conv)"]
    plain = remove_dropout(block.train())
    assert not any("drop" in s for s in lines(plain))


def test_operators_of_a_call() -> None:
    from tenon.fx.experimental.proxy_tensor import make_fx

    def fn(d: Any, y: Any) -> Any:
        return {"s": tn.sin(d["x"]) * 2 + y, "n": None}

    x, y = tn.randn(3), tn.randn(3)
    gm = make_fx(fn)({"x": x}, y)
    made = gm({"x": x + 1}, y)
    assert tn.equal(made["s"], tn.sin(x + 1) * 2 + y) and made["n"] is None
    called = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    assert called[0] == tn.ops.aten.sin.default and len(called) == 3


def test_annotations_of_programs_are_values(tmp_path: Path) -> None:
    """A program that tenon runs has no `from __future__` of its own."""
    script = tmp_path / "p.py"
    script.write_text("def f(a: int): ...\nprint(f.__annotations__)\n")
    for given in ([str(script)], ["-c", script.read_text()]):
        command = [sys.executable, "-m", "tenon", "run", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "{'a': <class 'int'>}\n"


def test_dead_code_leaves_checks_and_random_numbers() -> None:
    def fn(x: Any) -> Any:
        tn._assert(x.shape[0] > 1, "too short")
        x.add(1)
        return x

    gm = fx.symbolic_trace(fn)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    assert [n.name for n in gm.graph.nodes][-2:] == ["_assert", "output"]
    with pytest.raises(AssertionError, match="too short"):
        gm(tn.ones(1))
    graph = fx.Graph()
    x = graph.placeholder("x")
    drawn = graph.call_function(tn.ops.aten.bernoulli.default, (x,))
    assert drawn.is_impure() and not drawn.is_impure(impure_random=False)


def test_errors_name_the_node() -> None:
    gm = fx.symbolic_trace(lambda x: x.view(7))
    with pytest.raises(RuntimeError, match=r"(?s)invalid for input.*While executing %view"):
        fx.Interpreter(gm).run(tn.ones(2))
    gm = fx.symbolic_trace(lambda x: x["k"])
    with pytest.raises(RuntimeError, match="While executing %getitem"):
        fx.Interpreter(gm).run({})


def test_two_nodes_of_a_pattern_are_two_nodes() -> None:
    """x + x is no a + b, as in PyTorch."""

    def added(a: Any, b: Any) -> Any:
        return tn.relu(a + b)

    graph = fx.symbolic_trace(lambda x, y: tn.relu(x + y) + tn.relu(x + x)).graph
    (found,) = SubgraphMatcher(fx.symbolic_trace(added).graph).match(graph)
    assert [str(n) for n in found.placeholder_nodes] == ["x", "y"]
