"""fx beside PyTorch's: modules of graphs, interpreters and passes; see test_fx_beside.py."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from fx_parts import Block, chain, compare, helper, named, place, refused, text, untyped

# ---- Modules of graphs ---------------------------------------------------------------------------


def modules_are_added_and_removed(t: Any) -> Any:
    gm = t.fx.symbolic_trace(Block(t))
    said = [gm.add_submodule("c.d.e", t.nn.ReLU()), gm.add_submodule("b.1", t.nn.Identity())]
    said += [[n for n, _ in gm.named_modules()]]
    said += [gm.delete_submodule("c.d.e"), gm.delete_submodule("c.d.none")]
    said += [gm.delete_submodule("q.r"), gm.delete_submodule("a.scale")]
    said += [[n for n, _ in gm.named_modules()]]
    gm.delete_all_unused_submodules()
    said += [[n for n, _ in gm.named_modules()]]
    gm.graph.lint()
    return said


def modules_of_parts(t: Any) -> Any:
    g = chain(t)
    gm = t.fx.GraphModule({}, g)
    said = [gm.graph is g, g.owning_module is gm]
    other = t.fx.GraphModule(t.nn.Module(), gm.graph, "Named")
    said += [other.graph is g, type(other).__name__, gm.graph.owning_module is gm]
    g2 = t.fx.Graph()
    g2.output(g2.call_module("a.b", (g2.get_attr("w"), g2.get_attr("a.k"))))
    said.append(refused(t.fx.GraphModule, {"w": t.ones(1)}, g2))
    parts = {"w": t.ones(1), "a.k": t.nn.Parameter(t.ones(1)), "a.b": t.nn.Bilinear(1, 1, 1)}
    made = t.fx.GraphModule(parts, g2)
    said += [sorted(made.state_dict()), [n for n, _ in made.named_modules()]]
    said += [[n for n, _ in made.named_parameters()], [n for n, _ in made.named_buffers()]]
    said.append(refused(t.fx.GraphModule, t.nn.Module(), g2))
    said.append(refused(setattr, made, "graph", 3))
    return said


def modules_are_copied(t: Any) -> Any:
    gm = t.fx.symbolic_trace(Block(t))
    gm.meta["k"] = 1
    twin, deep = copy.copy(gm), copy.deepcopy(gm)
    said = [twin.meta, deep.meta, twin.a is gm.a, deep.a is gm.a, twin.graph is gm.graph]
    said += [deep.code == gm.code, deep.a.fc.weight is gm.a.fc.weight]
    again = pickle.loads(pickle.dumps(t.fx.symbolic_trace(t.nn.Sequential(t.nn.ReLU()))))
    return [*said, again.code, [n for n, _ in again.named_modules()]]


def graphs_are_changed_and_compiled(t: Any) -> Any:
    gm = t.fx.GraphModule({}, chain(t))
    x, y = t.tensor([-1.0, 2.0]), t.tensor([10.0, 20.0])
    said = [gm(x, y).tolist()]
    named(gm.graph)["relu"].target = t.abs
    said.append(gm(x, y).tolist())
    gm.recompile()
    said += [gm(x, y).tolist(), gm.code]
    gm.graph = chain(t)
    return [*said, gm(x, y).tolist()]


def modules_are_shown(t: Any) -> Any:
    gm = t.fx.symbolic_trace(t.nn.Sequential(t.nn.ReLU(), t.nn.Tanh()))
    return str(gm), repr(gm), [s.strip() for s in gm.print_readable(False).split("\n")]


# ---- Interpreters --------------------------------------------------------------------------------


def interpreters_run(t: Any) -> Any:
    gm = t.fx.GraphModule({}, chain(t))
    x, y = t.tensor([-1.0, 2.0]), t.tensor([10.0, 20.0])
    run = t.fx.Interpreter(gm)
    said = [run.run(x, y).tolist(), sorted(n.name for n in run.env)]
    run = t.fx.Interpreter(gm, garbage_collect_values=False)
    run.run(x, y)
    said.append(sorted(n.name for n in run.env))
    known = {named(gm.graph)["relu"]: t.zeros(2)}
    said += [t.fx.Interpreter(gm).run(x, y, initial_env=known).tolist()]
    said.append(refused(t.fx.Interpreter(gm).run, x))
    g = t.fx.Graph()
    a, rest = g.placeholder("a", default_value=7), g.placeholder("*rest")
    g.output((a, rest))
    made = t.fx.GraphModule({}, g)
    said += [t.fx.Interpreter(made).run(1, 2, 3), t.fx.Interpreter(made).run()]
    named(made.graph)["a"].op = "get_attr"
    said.append(refused(t.fx.Interpreter(made).run, 1))
    return said


def interpreters_are_changed(t: Any) -> Any:
    net = Block(t)
    gm = t.fx.symbolic_trace(net)
    seen: list[str] = []

    class Watch(t.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            seen.append(getattr(target, "__name__", "?"))
            return super().call_function(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            seen.append(target)
            return super().call_module(target, args, kwargs)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            seen.append(target)
            return super().get_attr(target, args, kwargs)

    Watch(gm).run(t.ones(1, 2))
    return seen


def transformers_make_graphs(t: Any) -> Any:
    net = Block(t).eval()
    gm = t.fx.symbolic_trace(net)

    class Sine(t.fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is operator.add:
                return t.sub(*args, **kwargs).sin()
            return super().call_function(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(self.submodules[target], t.nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    made = Sine(gm).transform()
    said = [text(made.graph), made.code, sorted(made.state_dict())]
    plain = t.fx.Transformer(gm).transform()
    x = t.ones(1, 2)
    return [*said, plain.code == gm.code, bool(t.equal(plain(x), gm(x)))]


def values_end_early(t: Any) -> Any:
    gm = t.fx.GraphModule({}, chain(t))
    given = [t.tensor([-1.0, 2.0]), t.tensor([10.0, 20.0])]
    said = [t.fx.Interpreter(gm).boxed_run(given).tolist(), given]
    return [*said, refused(t.fx.Interpreter(gm).boxed_run, [1]), refused(gm.graph.lint)]


def lines_of_code_are_changed(t: Any) -> Any:
    gm = t.fx.GraphModule({}, chain(t))
    plain = gm.code
    seen: list[Any] = []

    def watched(before: Any) -> Any:
        seen.append(before is None)
        return lambda body: ["first = 1\n", *body]

    with gm.graph.on_generate_code(watched):
        gm.recompile()
        said = [gm.code, copy.deepcopy(gm).code == gm.code]
        with gm.graph.on_generate_code(lambda before: lambda body: ["second = 2\n", *before(body)]):
            gm.recompile()
            said.append(gm.code)
    gm.recompile()
    return [*said, gm.code == plain, seen, gm(t.ones(1), t.ones(1)).tolist()]


# ---- Passes --------------------------------------------------------------------------------------


def in_fours() -> Callable[[Any], int]:
    count = itertools.count()
    return lambda n: next(count) // 4


def modules_are_split(t: Any) -> Any:
    split = place(t, "fx.passes.split_module").split_module
    gm = t.fx.symbolic_trace(Block(t).eval())
    said = []
    x = t.ones(1, 2)
    for options in (
        {}, {"keep_original_node_name": True}, {"keep_original_input_name": False},
        {"partition_affix": "p"}, {"tuple_return": True},
    ):  # fmt: skip
        names: dict[str, str] = {}
        made = split(gm, gm, in_fours(), names, **options)
        said.append([made.code, names, [n for n, _ in made.named_children()]])
        said.append([m.code for _, m in made.named_children() if hasattr(m, "code")])
        said.append(bool(t.equal(made(x), gm(x))))
    apart = iter([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    said.append(refused(lambda: split(gm, gm, lambda n: next(apart))))
    return said


def passes_run_in_order(t: Any) -> Any:
    base = place(t, "fx.passes.infra.pass_base")
    manager = place(t, "fx.passes.infra.pass_manager")
    seen: list[str] = []

    class First(base.PassBase):
        def requires(self, gm: Any) -> None:
            seen.append("requires")

        def call(self, gm: Any) -> Any:
            seen.append("call")
            return base.PassResult(gm, len(seen) < 6)

        def ensures(self, gm: Any) -> None:
            seen.append("ensures")

    def second(gm: Any) -> None:
        seen.append("second")

    gm = t.fx.GraphModule({}, chain(t))
    wrapped = manager.pass_result_wrapper(second)
    pm = manager.PassManager(passes=[First()], steps=3)
    pm.add_pass(wrapped)
    checks: list[int] = []
    pm.add_checks(lambda module: checks.append(1))
    result = pm(gm)
    said = [seen[:], result.modified, len(checks), wrapped.__name__]
    pm = manager.PassManager([First()], run_checks_after_each_pass=True)
    pm.add_checks(lambda module: checks.append(2))
    seen.clear()
    result = pm(gm)
    said += [seen[:], result.modified, checks]
    pm = manager.PassManager([second])
    said.append(refused(pm, gm) == "taken")
    order = lambda a, b: a.__name__ < b.__name__  # noqa: E731
    pm = manager.PassManager([wrapped, manager.pass_result_wrapper(helper)])
    pm.add_constraint(order)
    said.append(refused(pm.validate_constraints))
    return said


def graphs_are_put_in_order(t: Any) -> Any:
    tools = place(t, "fx.passes.tools_common")
    gm = t.fx.GraphModule({}, chain(t))
    n = named(gm.graph)
    n["neg"].append(n["relu"])
    n["x"].prepend(n["add"])
    made = tools.legalize_graph(gm)
    made.graph.lint()
    return sorted(m.name for m in made.graph.nodes), refused(made.graph.lint)


def layers_are_fused(t: Any) -> Any:
    opt = place(t, "fx.experimental.optimization")
    t.manual_seed(0)
    net = t.nn.Sequential(
        t.nn.Conv2d(1, 2, 1), t.nn.BatchNorm2d(2), t.nn.ReLU(), t.nn.Conv2d(2, 2, 1),
        t.nn.BatchNorm2d(2), t.nn.Dropout(0.5), t.nn.BatchNorm2d(2),
    ).eval()  # fmt: skip
    x = t.arange(8.0).reshape(2, 1, 2, 2)
    want = net(x)
    fused = opt.fuse(net)
    said = [[type(m).__name__ for m in fused.children()], text(fused.graph)]
    said += [bool(t.allclose(fused(x), want, atol=1e-5)), type(net[1]).__name__]
    plain = opt.remove_dropout(net)
    said += [text(plain.graph), bool(t.equal(plain(x), want))]
    opt.fuse(net, inplace=True)
    return [*said, [type(m).__name__ for m in net]]


def patterns_are_replaced(t: Any) -> Any:
    rewrite = place(t, "fx.subgraph_rewriter")
    said = []

    @untyped
    def f(x: Any, y: Any) -> Any:
        a = t.relu(x + y) * 2
        b = t.relu(a + x) * 3
        return a - b, t.sigmoid(b) * b, (x * y).sum(dim=1), t.cat([x, y])

    pairs: list[tuple[Any, Any]] = [
        (lambda x, y: t.relu(x + y), lambda x, y: t.sub(x, y).abs()),
        (lambda x: t.sigmoid(x) * x, lambda x: t.nn.functional.silu(x)),
        (lambda x, y: (x * y).sum(dim=1), lambda x, y: t.inner(x, y)),
        (lambda x, y: t.cat([x, y]), lambda x, y: t.cat([y, x])),
        (lambda x: x * 2, lambda x: x + x),
        (lambda x: x * 5, lambda x: x),
    ]
    for pattern, replacement in pairs:
        gm = t.fx.symbolic_trace(f)
        found = rewrite.replace_pattern(gm, pattern, replacement)
        gm.graph.lint()
        said.append([text(gm.graph), [m.anchor for m in found]])
        said[-1].append(
            [{k.name: getattr(v, "name", v) for k, v in m.nodes_map.items()} for m in found]
        )
    gm = t.fx.symbolic_trace(f)
    only = rewrite.replace_pattern_with_filters(
        gm, lambda x: x * 2, lambda x: x + 1, [lambda m, g, p: False]
    )
    loose = rewrite.replace_pattern_with_filters(
        gm, lambda x: x * 7, lambda x: x.neg(), ignore_literals=True
    )
    return [*said, len(only), text(gm.graph), [[*m.replacements] for m in loose]]


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        modules_are_added_and_removed, modules_of_parts, modules_are_copied,
        graphs_are_changed_and_compiled, modules_are_shown, interpreters_run,
        interpreters_are_changed, transformers_make_graphs, values_end_early,
        lines_of_code_are_changed, modules_are_split, passes_run_in_order, graphs_are_put_in_order,
        layers_are_fused, patterns_are_replaced,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    compare(PROGRAMS[name])
