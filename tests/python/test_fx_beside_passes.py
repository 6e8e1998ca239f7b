"""Passes over graphs beside PyTorch's, by small programs that both libraries run."""

from __future__ import annotations

import importlib.util
import operator
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from fx_parts import Block, compare, named, place, refused, text


def drawn(t: Any, seed: int) -> Any:
    """A graph of drawn calls, and which functions are taken."""
    r, g = random.Random(seed), t.fx.Graph()
    made = [g.placeholder("x"), g.placeholder("y")]
    for _ in range(r.randint(3, 14)):
        kind = r.randint(0, 4)
        if kind == 4:
            parts = g.call_function(t.chunk, (r.choice(made), 2))
            made.append(g.call_function(operator.getitem, (parts, 0)))
            made.append(g.call_function(operator.getitem, (parts, 1)))
        elif kind == 3:
            made.append(g.call_method("neg", (r.choice(made),)))
        elif kind:
            args = r.choice(made), r.choice(made)
            made.append(g.call_function((operator.add, operator.mul)[kind - 1], args))
        else:
            made.append(g.call_function(t.relu, (r.choice(made),)))
    g.output(tuple(r.sample(made[2:], min(3, len(made) - 2))))
    taken = [t.relu, operator.add, operator.mul, t.chunk]
    taken.pop(r.randint(0, 3))
    return t.fx.GraphModule(t.nn.Module(), g), taken, r


def partitions(t: Any) -> Any:
    support = place(t, "fx.passes.operator_support")
    partitioner = place(t, "fx.passes.infra.partitioner").CapabilityBasedPartitioner
    said = []
    for seed in range(60):
        gm, taken, r = drawn(t, seed)
        takes = support.create_op_support(
            lambda _, n, taken=taken: n.op == "call_function" and n.target in taken
        )
        made = partitioner(
            gm, takes, allows_single_node_partition=r.random() < 0.5,
            skip_horizontal_fusion=r.random() < 0.3,
        )  # fmt: skip
        parts = made.propose_partitions()
        said.append([[n.name for n in p.nodes] for p in parts])
        said.append(text(made.fuse_partitions(parts).graph))
    return said


def what_is_taken(t: Any) -> Any:
    support = place(t, "fx.passes.operator_support")
    gm = t.fx.symbolic_trace(Block(t).eval())
    place(t, "fx.passes.shape_prop").ShapeProp(gm).propagate(t.ones(1, 2))
    modules = dict(gm.named_modules())
    made = [
        support.OperatorSupport({"torch.nn.modules.linear.Linear": None, "_operator.add": None}),
        support.OperatorSupport({"_operator.mul": (([t.float32], None), {})}),
        support.OperatorSupport({"_operator.mul": (([t.int64], None), {})}),
        support.OpSupports.decline_if_input_dtype(t.float32),
        support.OpSupports.decline_if_node_in_names({"mul", "add"}),
    ]
    made += [support.chain(made[0], made[4]), support.any_chain(made[1], made[0])]
    said: list[Any] = [[s.is_node_supported(modules, n) for n in gm.graph.nodes] for s in made]
    tools = place(t, "fx.passes.tools_common")
    calls = [n for n in gm.graph.nodes if n.op in tools.CALLABLE_NODE_OPS]
    said += [tools.get_node_target(modules, n) for n in calls]
    said += [tools.is_node_output_tensor(n) for n in calls]
    return [*said, refused(tools.get_node_target, modules, named(gm.graph)["x"])]


def tags(t: Any) -> Any:
    tools = place(t, "fx.passes.split_utils")
    gm = t.fx.symbolic_trace(Block(t).eval())
    for i, node in enumerate(n for n in gm.graph.nodes if n.op.startswith("call")):
        node.tag = f"part_{i // 3}"
    whole = gm(t.ones(1, 2), None).tolist()
    made, places = tools.split_by_tags(gm, [f"part_{i}" for i in range(4)], True)
    said = [made(t.ones(1, 2), None).tolist() == whole, made.code, sorted(places.items())]
    said += [n for n, _ in made.named_children()]
    wrong = refused(tools.split_by_tags, gm, ["part_3", "part_2", "part_1", "part_0"])
    whole = tools.getattr_recursive(gm, "a.no.such")
    tools.setattr_recursive(gm, "a.scale", t.nn.Parameter(t.zeros(2)))
    return [*said, wrong, whole, tools.getattr_recursive(gm, "a.scale").tolist()]


def parts_without_a_root(t: Any) -> Any:
    gm = t.fx.symbolic_trace(Block(t).eval())
    split = place(t, "fx.passes.split_module").split_module
    made = split(gm, None, lambda n: len(n.name) % 2)
    return made(t.ones(1, 2)).tolist() == gm(t.ones(1, 2)).tolist(), made.code


def arguments_by_name(t: Any) -> Any:
    gm = t.fx.symbolic_trace(Block(t).eval())
    said = []
    for node in gm.graph.nodes:
        found = node.normalized_arguments(gm, normalize_to_only_use_kwargs=True)
        said.append(found and [str(found.args), str(found.kwargs)])
    schemas = place(t, "fx.operator_schemas")
    found = schemas.normalize_function(t.relu, (t.ones(1),), normalize_to_only_use_kwargs=True)
    said.append([str(found.args), sorted(found.kwargs)])
    for wanted, given in ((int, int), (int, bool), (float, str), (list[int], int), (t.Tensor, int)):
        said.append(schemas.type_matches(wanted, given))
    said.append(schemas.normalize_function(operator.add, (1, 2)))
    return said


def notes_of_nodes(t: Any) -> Any:
    notes = place(t, "fx.traceback")
    said: list[Any] = [notes.has_preserved_node_meta()]

    def fn(x: Any) -> Any:
        with notes.annotate({"stage": 1}):
            y = x + 1
            with notes.annotate({"more": 2}):
                y = y * 2
        return y - 3

    with notes.preserve_node_meta():
        said.append(notes.has_preserved_node_meta())
        gm = t.fx.symbolic_trace(fn)
        said += [n.meta.get("custom") for n in gm.graph.nodes]
        again = t.fx.Transformer(gm).transform()
        said += [n.meta.get("custom") for n in again.graph.nodes]
    return [*said, notes.get_current_meta(), notes.has_preserved_node_meta()]


def folders(t: Any) -> Any:
    gm = t.fx.symbolic_trace(t.nn.Sequential(t.nn.Linear(2, 3), t.nn.ReLU()))
    with tempfile.TemporaryDirectory() as name:
        gm.to_folder(name, "Net")
        files = sorted(p.name for p in Path(name).iterdir())
        spec = importlib.util.spec_from_file_location("written", f"{name}/module.py")
        assert spec is not None and spec.loader is not None
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        made = written.Net()
    return files, list(made.state_dict()), made(t.ones(1, 2)).tolist() == gm(t.ones(1, 2)).tolist()


def recorded_calls(t: Any) -> Any:
    make_fx = place(t, "fx.experimental.proxy_tensor").make_fx
    x, y, said = t.ones(2, 3), t.zeros(2, 3), []
    for fn, args in (
        (lambda x, y: (x.sin(), [y.cos()]), (x, y)),
        (lambda x, y: {"a": x.sin() * y}, (x, y)),
        (lambda d: d["p"] * d["q"], ({"p": x, "q": y},)),
        (lambda x, k, y: x * y, (x, 3, y)),
        (lambda *xs: xs[0] * xs[1], (x, y)),
    ):
        gm = make_fx(fn)(*args)
        holes = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
        said += [gm(*args), holes if len(args) > 1 else len(holes)]
    aten = t.ops.aten
    table = {aten.silu.default: lambda x: x * x.sigmoid(), aten.tanh.default: lambda x: x.erf()}
    gm = make_fx(lambda x: t.nn.functional.silu(x).tanh(), table)(x)
    said += [str(n.target) for n in gm.graph.nodes]
    gm = make_fx(lambda x, y: (x @ y).reshape(-1) * x.shape[0], tracing_mode="symbolic")(x, y.T)
    said += [gm(t.ones(5, 7), t.ones(7, 2)), refused(make_fx, t.sin, None, "no")]
    return [v.tolist() if isinstance(v, t.Tensor) else v for v in said]


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        partitions, what_is_taken, tags, parts_without_a_root, arguments_by_name, notes_of_nodes,
        folders, recorded_calls,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(PROGRAMS[name])
