"""Managers of passes, equal calls, sizes of nodes and exported calls beside PyTorch's, by small
programs that both libraries run."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import pytest
from fx_parts import compare, place, refused, text


def inner(t: Any, path: str) -> Any:
    """A module of PyTorch's that stands in a room of its own here."""
    return place(t, path if t.__name__ == "torch" else f"_torch.{path}")


def managers_of_functions(t: Any) -> Any:
    p = place(t, "fx.passes.pass_manager")
    calls: list[Any] = []

    def one(v: list[int]) -> list[int]:
        calls.append("one")
        return [*v, 1]

    def two(v: list[int]) -> None:
        v.append(2)

    def three(v: list[int]) -> list[int]:
        return [*v, 3]

    pm = p.PassManager([one, p.inplace_wrapper(p.log_hook(two))])
    pm.add_pass(p.loop_pass(three, n_iter=2))
    pm.add_pass(p.loop_pass(one, predicate=lambda v: len(v) < 7))
    said: list[Any] = [pm([0]), [f.__name__ for f in pm.passes]]
    pm.add_constraint(p.this_before_that_pass_constraint(one, three))
    said.append(pm([]))
    pm.add_constraint(p.these_before_those_pass_constraint(three, two))
    said.append(refused(pm, []).split(".")[0])
    pm.remove_pass(["two"])
    pm.replace_pass(one, three)
    said += [pm([]), len(calls), p.PassManager.build_from_passlist([one])([5])]
    return [*said, refused(p.loop_pass, one), refused(p.loop_pass, one, 1, bool)]


def orders_of_passes(t: Any) -> Any:
    infra = place(t, "fx.passes.infra.pass_manager")
    base = place(t, "fx.passes.infra.pass_base")

    def a(gm: Any) -> Any:
        return base.PassResult(gm, False)

    def b(gm: Any) -> Any:
        for node in gm.graph.find_nodes(op="call_function", target=operator.add):
            node.target = operator.sub
        return base.PassResult(gm, True)

    gm = t.fx.symbolic_trace(lambda x: x + 1)
    pm = infra.PassManager([b, a], [infra.this_before_that_pass_constraint(a, b)])
    said: list[Any] = [refused(pm, gm).split(".")[0]]
    pm.solve_constraints()
    said += [[f.__name__ for f in pm.passes], pm(gm).modified, text(gm.graph)]
    pm.add_constraint(infra.this_before_that_pass_constraint(b, a))
    return [*said, refused(pm.solve_constraints).split(":")[0]]


def equal_calls(t: Any) -> Any:
    cse = place(t, "fx.passes.dialect.common.cse_pass")
    make_fx = place(t, "fx.experimental.proxy_tensor").make_fx
    programs = (
        lambda x: x.sin() + x.sin(),
        lambda x: x.sum(0) + x.sum(1) + x.sum(0),
        lambda x: x * 2 + x * 3 + x * 2,
        lambda x: (x + 1).neg() * (x + 1).neg(),
        lambda x: t.cat([x, x]) + t.cat([x, x]) + t.cat([x, x], 1).reshape(4, 2),
        lambda x: x.tanh(),
    )
    said: list[Any] = []
    for fn in programs:
        gm = make_fx(fn)(t.ones(2, 2))
        made = cse.CSEPass()(gm)
        said += [made.modified, len(made.graph_module.graph.nodes)]
        said.append(made.graph_module(t.ones(2, 2)).tolist())
    kept = cse.CSEPass(banned_ops={t.ops.aten.sin})(make_fx(programs[0])(t.ones(2)))
    return [*said, kept.modified]


def sizes_of_nodes(t: Any) -> Any:
    tools = place(t, "fx.passes.graph_manipulation")
    shapes = place(t, "fx.passes.shape_prop")
    net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.ReLU())
    gm = t.fx.symbolic_trace(net)
    node = next(iter(gm.graph.nodes))
    said: list[Any] = [refused(tools.get_tensor_meta, node)]
    tools.get_size_of_all_nodes(gm, [t.ones(4, 2)])
    said += [list(n.size_bytes) for n in gm.graph.nodes if n.op != "output"]
    known = shapes._extract_tensor_metadata(t.ones(3, 2).t(), include_contiguity=False)
    said += [list(known.shape), list(known.stride), known.memory_format, known.is_quantized]
    gm = t.fx.symbolic_trace(lambda x: t.relu(x) + t.relu(x + 1))
    tools.replace_target_nodes_with(gm, "call_function", t.relu, "call_function", t.neg)
    gm.recompile()
    return [*said, text(gm.graph), gm(t.ones(2)).tolist()]


def without_data(t: Any) -> Any:
    prop = place(t, "fx.passes.fake_tensor_prop").FakeTensorProp
    fake = inner(t, "_subclasses.fake_tensor")
    gm = t.fx.symbolic_trace(lambda x, y: t.stack([x, y]).sum(0).split(1)[0].to(t.float64))
    last = prop(gm).propagate(t.ones(2, 3), t.ones(2, 3))
    said: list[Any] = [isinstance(last, fake.FakeTensor), list(last.shape), str(last.dtype)[-7:]]
    for n in gm.graph.nodes:
        val = n.meta["val"]
        parts = val if isinstance(val, (list, tuple)) else [val]
        said.append([[list(v.shape), v.device.type] for v in parts])
    net = t.fx.symbolic_trace(t.nn.Linear(3, 5))
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    return [*said, list(prop(net, mode).propagate(t.ones(4, 3)).shape)]


def exported_calls(t: Any) -> Any:
    dynamo = inner(t, "_dynamo")

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = t.nn.Linear(2, 2)

        def forward(self, x: Any, k: int = 2, *, y: Any = None) -> Any:
            return {"y": self.fc(x) * k, "z": [x if y is None else y]}

    net = Net()
    gm, _ = dynamo.export(net)(t.ones(1, 2), k=3)
    x = t.full((1, 2), 0.5)
    made, want = gm(x, k=3), net(x, 3)
    said: list[Any] = [list(made), bool(t.equal(made["y"], want["y"])), len(made["z"])]
    found = dynamo.export(lambda x: x.sin() + 1, t.ones(2), aten_graph=True)
    gm = found.graph_module
    said += [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    said.append(gm(t.zeros(2)).tolist())
    try:
        dynamo.export(lambda x: x if x.sum() > 0 else -x)(t.ones(1))
    except Exception as err:  # noqa: BLE001 - whichever it is
        said.append(type(err).__name__)
    return said


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        managers_of_functions, orders_of_passes, equal_calls, sizes_of_nodes, without_data,
        exported_calls,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(PROGRAMS[name])
