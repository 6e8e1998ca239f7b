"""fx beside PyTorch's: nodes, graphs, code, traces, by small programs that both libraries run."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import pytest
import tenon as tn
from fx_parts import Block, chain, compare, helper, named, place, refused, text, untyped
from tenon import fx

# ---- Nodes ---------------------------------------------------------------------------------------


def arguments_are_changed(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    said = []
    n["add"].update_arg(1, n["x"])
    said.append((text(g), [*n["x"].users], [*n["y"].users]))
    n["add"].insert_arg(1, 5)
    said.append(text(g))
    n["add"].update_kwarg("alpha", n["y"])
    said.append((text(g), [*n["y"].users], n["add"].all_input_nodes))
    n["add"].args = (n["relu"], n["y"])
    n["add"].kwargs = {}
    said.append((text(g), [*n["x"].users], [*n["y"].users]))
    return said


def uses_are_replaced(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    n["relu"].meta["note"] = 1
    changed = n["relu"].replace_all_uses_with(n["x"], propagate_meta=True)
    said = [changed, text(g), n["x"].meta]
    n["y"].meta["other"] = 2
    n["y"].replace_all_uses_with(n["x"])
    said += [text(g), n["x"].meta, [*n["x"].users], [*n["y"].users]]
    kept = n["x"].replace_all_uses_with(n["y"], lambda user: user.name == "relu")
    said += [kept, text(g)]
    n["add"].replace_input_with(n["x"], n["relu"])
    return [*said, text(g)]


def nodes_are_moved(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    said = []
    n["relu"].prepend(n["y"])
    said.append([*g.nodes])
    n["x"].append(n["y"])
    said.append([*g.nodes])
    n["x"].prepend(n["neg"])
    said += [[*g.nodes], [*reversed(g.nodes)], n["neg"].next, n["x"].prev, len(g.nodes)]
    n["add"].append(n["neg"])
    said += [[*g.nodes], [*reversed(g.nodes)]]
    said += [n["add"] < n["neg"], n["neg"] < n["x"]]
    return [*said, refused(n["x"].prepend, named(chain(t))["x"])]


def notes_of_nodes(t: Any) -> Any:
    n = named(chain(t))["relu"]
    before = n.stack_trace
    n.stack_trace = "line 3"
    return before, n.stack_trace, n.meta, n.is_impure(), repr(n)


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Whole:
    a: Any
    b: Any


def texts_of_nodes(t: Any) -> Any:
    g = t.fx.Graph()
    x = g.placeholder("x", default_value=3)
    y = g.placeholder("y", type_expr=int)
    g.create_node("get_attr", "a.b")
    calls = [
        g.call_function(len, (x,)), g.call_function(operator.getitem, (x, slice(1, y, None))),
        g.call_function(t.cat, ([x, y],), {"dim": 1}), g.call_function(getattr, (x, "shape")),
        g.call_function(t.nn.functional.relu, (x,), {"inplace": False}),
        g.call_function(t.nn.functional.gelu, (x,)),
        g.call_function(t.nn.functional.linear, (x, y)),
        g.call_function(operator.iadd, (x, 1)), g.call_module("m.0", (x,)),
        g.call_method("view", (x, (2, 3))), g.call_method("size", (x,), {"dim": {"a": x}}),
        g.call_function(t.zeros, (2,), {"dtype": t.float32, "device": None}),
        g.call_function(abs, (x,)),
    ]  # fmt: skip
    g.output((calls[0], (calls[1],), [calls[2]]))
    return str(g), [type(n.target).__name__ for n in g.nodes if isinstance(n.target, str)]


def nodes_that_must_stay(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    with g.inserting_before(n["neg"]):
        made = [
            g.call_function(operator.setitem, (n["x"], 0, 1)), g.call_function(t.abs, (n["x"],)),
            g.call_method("abs", (n["x"],)), g.placeholder("z"), g.create_node("get_attr", "w"),
        ]  # fmt: skip
    return [(m.name, m.is_impure()) for m in (*made, *g.nodes)]


def acts(x: Any) -> Any:
    return x


def calls_that_act_stay(t: Any) -> Any:
    g = chain(t)
    with g.inserting_before(g.output_node()):
        made = g.call_function(acts, (named(g)["x"],))
    said = [made.is_impure()]
    name = place(t, "fx.node").has_side_effect(acts) is acts
    said += [name, made.is_impure(), g.eliminate_dead_code(), [*g.nodes]]
    return said


def kinds_of_nodes_are_checked(t: Any) -> Any:
    g = t.fx.Graph()
    return [
        refused(g.create_node, "call", t.relu), refused(g.create_node, "call_function", "relu"),
        refused(g.create_node, "call_method", t.relu),
    ]  # fmt: skip


def lists_of_arguments_stay(t: Any) -> Any:
    g = t.fx.Graph()
    x = g.placeholder("x")
    n = g.call_function(t.cat, ([x, x],), {"d": {"a": 1}})
    held, table = n.args[0], n.kwargs["d"]
    said = [type(held).__name__, type(table).__name__, type(n.kwargs).__name__]
    for do in (
        lambda: held.append(1), lambda: held.pop(), lambda: held.sort(), lambda: held.reverse(),
        lambda: held.__setitem__(0, 1), lambda: held.__delitem__(0), lambda: held.extend([1]),
        lambda: held.insert(0, 1), lambda: held.clear(), lambda: held.remove(x),
        lambda: operator.iadd(held, [1]), lambda: operator.imul(held, 2), lambda: table.clear(),
        lambda: table.update(a=2), lambda: table.__setitem__("a", 2), lambda: table.pop("a"),
        lambda: table.__delitem__("a"), lambda: table.setdefault("b", 2), lambda: table.popitem(),
        lambda: n.kwargs.update(a=1),
    ):  # fmt: skip
        said.append(refused(do))
    module = place(t, "fx.immutable_collections")
    numbers = module.immutable_list([1, 2])
    again = pickle.loads(pickle.dumps((numbers, module.immutable_dict({"k": 1}))))
    said += [again, [type(a).__name__ for a in again], held == [x, x], table == {"a": 1}]
    doubled = t.utils._pytree.tree_map(lambda v: v * 2, {"a": numbers})
    return [*said, doubled, type(doubled["a"]).__name__]


def arguments_are_mapped(t: Any) -> Any:
    node = place(t, "fx.node")
    given = (1, [2, {"a": 3}], slice(1, None, 2), Pair(1, [2]))
    made = node.map_aggregate(given, lambda v: v if v is None else v * 10)
    g = chain(t)
    seen: list[Any] = []
    node.map_arg((named(g)["x"], [named(g)["y"], 3]), lambda n: seen.append(n) or n)
    return made, type(made[3]).__name__, type(made[1]).__name__, seen


# ---- Graphs --------------------------------------------------------------------------------------


def nodes_are_found(t: Any) -> Any:
    g = chain(t)
    with g.inserting_after(named(g)["relu"]):
        g.call_function(t.relu, (named(g)["x"],))
    return [
        g.find_nodes(op="call_method"), g.find_nodes(op="call_function", target=t.relu),
        g.find_nodes(op="call_function", target=t.abs), g.find_nodes(op="placeholder", target="y"),
        g.find_nodes(op="output"), g.output_node(),
    ]  # fmt: skip


def places_of_new_nodes(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    with g.inserting_after(n["relu"]):
        g.call_function(t.sin, (n["x"],))
        g.call_function(t.cos, (n["x"],))
    with g.inserting_before(n["relu"]):
        g.call_function(t.tan, (n["x"],))
        with g.inserting_before(n["neg"]):
            g.call_function(t.exp, (n["x"],))
        g.call_function(t.log, (n["x"],))
    said = [[*g.nodes]]
    with g.inserting_before():
        g.placeholder("first")
    with g.inserting_after():
        g.placeholder("other")
    g.call_function(t.sqrt, (n["x"],))
    other = chain(t)
    return [
        *said, [*g.nodes], refused(g.inserting_before, named(other)["x"]),
        refused(g.inserting_after, named(other)["x"]),
        refused(g.call_function, t.relu, (named(other)["x"],)),
    ]  # fmt: skip


def names_of_values(t: Any) -> Any:
    g = t.fx.Graph()
    for name in ("x", "x", "x_1", "x_7", "x_7", "input", "in", "a.b", "2x", "__len__", "inf",
                 "SomeThing", "torch", "_", "x_y_3", "_x"):  # fmt: skip
        g.placeholder(name)
    g.call_function(t.relu, name="own")
    g.call_function(t.relu, name="own")
    g.call_module("Block.conv1D")
    g.call_method("__len__", ())
    g.call_function(operator.and_, (1, 2))
    g.call_function(Pair, (1, 2))
    return [n.name for n in g.nodes]


def graphs_are_copied(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    n["relu"].meta["k"] = [1]
    n["relu"].type = int
    into = t.fx.Graph()
    x = into.placeholder("given")
    values = {n["x"]: x}
    out = into.graph_copy(g, values)
    one = into.node_copy(n["relu"], lambda _: x)
    said = [text(into), out, sorted(k.name for k in values), one.meta, one.type, one.name]
    one.meta["more"] = 2
    said += [n["relu"].meta, into.graph_copy(g, {}, return_output_node=True)]
    twin = copy.deepcopy(g)
    said += [text(twin), [m.meta for m in twin.nodes], twin.owning_module]
    return said


def nodes_are_erased(t: Any) -> Any:
    g = chain(t)
    n = named(g)
    said = [refused(g.erase_node, n["relu"]), refused(g.erase_node, named(chain(t))["output"])]
    n["neg"].replace_all_uses_with(n["add"])
    g.erase_node(n["neg"])
    said += [[*g.nodes], [*n["add"].users], len(g.nodes)]
    n["add"].replace_all_uses_with(n["x"])
    said += [g.eliminate_dead_code(), [*g.nodes], [*n["x"].users], g.eliminate_dead_code()]
    g = chain(t)
    with g.inserting_before(g.output_node()):
        g.call_function(t.sin, (named(g)["x"],))
        g.call_function(operator.setitem, (named(g)["x"], 0, 1))
    g.eliminate_dead_code()
    said.append([*g.nodes])
    g.eliminate_dead_code(lambda n: n.op == "output" or n.op == "placeholder")
    return [*said, [*g.nodes]]


def graphs_are_checked(t: Any) -> Any:
    g = chain(t)
    said = [refused(g.lint)]
    n = named(g)
    n["add"].append(n["relu"])
    said.append(refused(g.lint))
    g = chain(t)
    named(g)["relu"].name = "x"
    said.append(refused(g.lint))
    net = t.fx.symbolic_trace(t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU()))
    said.append(refused(net.graph.lint))
    with net.graph.inserting_before(net.graph.output_node()):
        call = net.graph.create_node("call_module", "nowhere.1", (named(net.graph)["_0"],))
    said.append(refused(net.graph.lint))
    net.graph.erase_node(call)
    with net.graph.inserting_before(net.graph.output_node()):
        net.graph.get_attr("0.weight")
    said.append(refused(net.graph.lint))
    with net.graph.inserting_before(net.graph.output_node()):
        net.graph.create_node("get_attr", "0.other")
    return [*said, refused(net.graph.lint)]


# ---- Code ----------------------------------------------------------------------------------------


def code_of_a_trace(t: Any) -> Any:
    @untyped
    def f(x: Any, /, y: Any = 2, *, k: Any = None) -> Any:
        a = -x + y * 2 // 3 % 5**x @ y
        b = (a < 1) | (a >= 2) ^ ~(a == 3) & (a != 4)
        c = [x.shape[0], (x.T,), {"k": k}, x[1:, None, ..., y]]
        return c, b << 1 >> 2, abs(x), x.data.sum(dim=(1,), keepdim=True), t.cat((x, y), 0)

    return t.fx.symbolic_trace(f).code.replace(":0", "")


def code_of_constants(t: Any) -> Any:
    g = t.fx.Graph()
    x = g.placeholder("x")
    made = [
        g.call_function(t.full, ((2,), float("inf")), {"dtype": t.int64}),
        g.call_function(t.add, (x, 1e30), {"alpha": True}),
        g.call_function(Pair, (x, (1,))),
        g.call_function(t.zeros, (t.Size([3]),)), g.call_function(t.zeros, (t.Size([3, 4]),)),
        g.call_method("to", (x, "cpu"), {"non_blocking": False}),
        g.call_function(getattr, (x, "shape")), g.call_function(getattr, (x, "not it")),
        g.call_function(getattr, (x, "shape", None)),
        g.call_function(operator.iadd, (x, 2)), g.call_function(operator.neg, (x,)),
    ]  # fmt: skip
    g.output([*made[:2], Pair(x, None), slice(None, x)])
    code = g.python_code("self")
    return code.src


def code_of_attributes(t: Any) -> Any:
    g = t.fx.Graph()
    x = g.placeholder("x", type_expr=t.Tensor)
    y = g.placeholder("y", type_expr=list[int], default_value=None)
    made = [
        g.call_module("0.fc", (x,)), g.call_module("a.1", (x,)), g.call_module("b.c", (y,)),
        g.create_node("get_attr", "layer.0.weight"),
    ]  # fmt: skip
    made[0].type = t.Tensor
    g.output(tuple(made), type_expr=tuple[int, float])
    return g.python_code("self").src


def code_of_renamed_placeholders(t: Any) -> Any:
    g = t.fx.Graph()
    x, y = g.placeholder("input"), g.placeholder("*rest")
    g.output((x, y))
    return g.python_code("self").src, [n.name for n in g.nodes]


def code_of_nothing(t: Any) -> Any:
    return t.fx.Graph().python_code("self").src


# ---- Traces --------------------------------------------------------------------------------------


def traces_of_modules(t: Any) -> Any:
    net = Block(t)
    gm = t.fx.symbolic_trace(net)
    said = [gm.code, text(gm.graph), sorted(gm.state_dict()), type(gm).__name__, gm.training]
    gm = t.fx.symbolic_trace(net.eval())
    return [*said, gm.training, [n for n, _ in gm.named_modules()], sorted(vars(gm)["_buffers"])]


def leaves_are_chosen(t: Any) -> Any:
    net = Block(t)

    class Whole(t.fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return name in ("a", "b.0")

    class Own(t.fx.Tracer):
        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            seen.append(self.path_of_module(m))
            return super().call_module(m, forward, args, kwargs)

    seen: list[str] = []
    said = [text(Whole().trace(net)), text(Own().trace(net)), seen]
    tracer = t.fx.Tracer()
    tracer.trace(net)
    said += [tracer.path_of_module(net.a.fc), refused(tracer.path_of_module, t.nn.Linear(1, 1))]
    return said


def functions_are_wrapped(t: Any) -> Any:
    @untyped
    def f(x: Any) -> Any:
        return math.sqrt(x) + helper(x, 2)

    space = f.__globals__
    said = [text(t.fx.symbolic_trace(f).graph)]
    g = t.fx.Tracer(autowrap_modules=(math,), autowrap_functions=(space["helper"],)).trace(f)
    said += [
        text(g),
        math.sqrt(4.0),
        helper(1, 1),
        refused(t.fx.wrap, 3),
        refused(t.fx.wrap, "len"),
    ]
    return said


def traces_of_functions(t: Any) -> Any:
    @untyped
    def variadic(x: Any, *rest: Any, k: Any = 1, **named: Any) -> Any:
        return x + rest[0] * k - named["b"]

    @untyped
    def tree(x: Any, y: Any) -> Any:
        return {"s": x["a"] + x["b"][0], "y": y}

    said = [t.fx.symbolic_trace(variadic).code]
    hole = t.fx.PH
    gm = t.fx.symbolic_trace(tree, concrete_args={"x": {"a": hole, "b": [hole]}})
    x = {"a": t.ones(1), "b": [t.full((1,), 2.0)]}
    said += [gm.code, gm(x, 3)["s"].tolist(), gm(x, 3)["y"]]
    gm = t.fx.symbolic_trace(lambda x, k: x * 2 if k else x, concrete_args={"k": True})
    said += [gm.code, refused(gm, t.ones(1), False), gm(t.ones(1), True).tolist()]
    gm = t.fx.symbolic_trace(lambda x, k: x if k is None else x * k, concrete_args={"k": None})
    said += [gm.code, refused(gm, t.ones(1), 1), gm(t.ones(1), None).tolist()]
    gm = t.fx.symbolic_trace(tree, concrete_args={"x": {"a": hole, "b": [hole]}})
    for run in (t.fx.Interpreter(gm).run, t.fx.Transformer(gm).transform()):
        said += [run(x, 3)["s"].tolist(), run(x, 3)["y"]]
    leaves = t.fx.Interpreter(gm).run(x["a"], x["b"][0], 3, enable_io_processing=False)
    return [*said, len(leaves), t.fx.Transformer(gm).transform().code == gm.code]


def shapes_of_parameters_are_constant(t: Any) -> Any:
    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = t.nn.Parameter(t.ones(2, 3))

        @untyped
        def forward(self, x: Any) -> Any:
            seen.append(repr(self.w))
            w = self.w
            seen.extend([w.shape, w.size(), w.dim(), w.ndim, w.numel(), w.nelement()])
            return x * w if w.shape[0] == 2 else x + w

    seen: list[Any] = []
    said = [text(t.fx.Tracer(param_shapes_constant=True).trace(Net())), seen]
    return [*said, refused(t.fx.Tracer().trace, Net())]


def modules_are_arguments(t: Any) -> Any:
    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = t.nn.ReLU(), t.nn.Tanh()

        @untyped
        def forward(self, x: Any) -> Any:
            return apply(x, self.b)

    tracer = t.fx.Tracer(autowrap_functions=(apply,))
    return text(tracer.trace(Net()))


def other_methods_are_traced(t: Any) -> Any:
    class Net(t.nn.Module):
        @untyped
        def other(self, x: Any, y: Any) -> Any:
            return x - y + t.ones(1)

    class Other(t.fx.Tracer):
        traced_func_name = "other"

    tracer = Other()
    net = Net()
    net.held0 = net.held2 = 1
    said = [text(tracer.trace(net)), tracer.get_fresh_qualname("held")]
    said += [tracer.get_fresh_qualname("_tensor_constant"), refused(t.fx.Tracer().trace, net)]
    Other.traced_func_name = "none"
    return [*said, refused(Other().trace, net)]


def arguments_are_made(t: Any) -> Any:
    class Own:
        pass

    class Asked(t.fx.Tracer):
        def create_arg(self, a: Any) -> Any:
            seen.append(type(a).__name__)
            return super().create_arg(7 if isinstance(a, Own) else a)

    seen: list[str] = []

    @untyped
    def f(x: Any) -> Any:
        return (
            apply([x, (Own(), 2)], {"k": x, "s": slice(x, None)}),
            x[1:x, None],
            Pair(x, 1),
            Whole(x, 2),
        )

    return text(Asked(autowrap_functions=(apply,)).trace(f)), sorted({*seen})


def apply(x: Any, module: Any) -> Any:
    return module(x)


def what_cannot_be_traced(t: Any) -> Any:
    fns = [
        lambda x: 1 if x else 2, lambda x: [*x], lambda x: len(x), lambda x: 1 in x,
        lambda x: range(x), lambda x: int(x), lambda x: {**x}, lambda x: [1, 2][x],
        lambda x: t.add(x, object()),
    ]  # fmt: skip
    return [refused(t.fx.symbolic_trace, f) != "taken" for f in fns]


def what_traces_know(t: Any) -> Any:
    seen = []

    @untyped
    def f(x: Any) -> Any:
        seen.append(t.fx._symbolic_trace.is_fx_tracing())
        a, b = x.split(2)
        return a + b

    before = t.fx._symbolic_trace.is_fx_tracing()
    gm = t.fx.symbolic_trace(f)
    return before, seen, t.fx._symbolic_trace.is_fx_tracing(), text(gm.graph)


def proxies(t: Any) -> Any:
    g = t.fx.Graph()
    x = t.fx.Proxy(g.placeholder("x"))
    y = x.shape[0] + 1
    z = 2 - x.T
    w = t.relu(x).view(-1, y) @ z
    said = [
        repr(x),
        repr(y),
        hasattr(x, "anything"),
        hasattr(x, "__half"),
        hasattr(x, "half__"),
        repr(x == x),
        hash(x) == hash(x),
    ]
    made = (2**x, 2 / x, 2 // x, 2 % x, 2 & x, 2 | x, 2 ^ x, 2 << x, 2 >> x, x**2, w(3))
    return [*said, len(made), text(g)]


class Parts(dict):  # type: ignore[type-arg]
    """Modules in each other, of which a graph calls some."""

    def __init__(self, t: Any) -> None:
        inner = t.nn.Sequential(t.nn.ReLU(), t.nn.Linear(2, 2))
        self["held"], self["left"] = t.nn.Sequential(inner, t.nn.ReLU()), t.nn.ReLU()
        self["lefter"], self["whole"] = t.nn.ReLU(), t.nn.Sequential(t.nn.ReLU(), t.nn.ReLU())


def unused_modules_are_deleted(t: Any) -> Any:
    root, g = t.nn.Module(), t.fx.Graph()
    for name, module in Parts(t).items():
        root.add_module(name, module)
    root.register_buffer("scale", t.ones(2))
    x = g.placeholder("x")
    y = g.call_module("held.0.1", (g.call_module("lefter", (x,)),))
    g.output(g.call_function(operator.mul, (g.call_module("whole", (y,)), g.get_attr("scale"))))
    made = t.fx.GraphModule(root, g)
    for name, module in Parts(t).items():
        if name not in dict(made.named_children()):
            made.add_module(name, module)
    made.add_module("held", Parts(t)["held"])
    made.delete_all_unused_submodules()
    said = [sorted(n for n, _ in made.named_modules()), made.delete_submodule("nothing")]
    return [*said, made.delete_submodule("held.0"), sorted(n for n, _ in made.named_modules())]


def what_a_graph_module_takes(t: Any) -> Any:
    made = t.fx.symbolic_trace(lambda x: x.relu())
    other = chain(t)
    said = [refused(lambda: setattr(made, "graph", 3))]
    made.graph = other
    return [*said, made(t.ones(1), t.ones(1)).tolist(), made.graph.owning_module is made]


def what_writes_must_stay(t: Any) -> Any:
    """By the schemas of operators, and what is known of functions."""
    aten, g = t.ops.aten, t.fx.Graph()
    x = g.placeholder("x")
    made = [g.call_function(f, (x,)) for f in (
        aten.relu_.default, aten.relu.default, aten.add_.Tensor, aten.add.Tensor, aten.neg.default,
        operator.setitem, operator.getitem, t.relu)]  # fmt: skip
    made += [g.call_method(n, (x,)) for n in ("add", "__add__")]
    made += [g.get_attr("a"), g.output(x), x]
    return [n.is_impure() for n in made]


def notes_that_are_added_meanwhile(t: Any) -> Any:
    traceback = importlib.import_module(f"{t.__name__}.fx.traceback")
    said = []
    with traceback.preserve_node_meta(), traceback.annotate({"a": 1}):
        with traceback.annotate({"b": 2}):
            said.append(dict(traceback.current_meta["custom"]))
        said.append(dict(traceback.current_meta["custom"]))
        with traceback.annotate({"a": 3}):
            said.append(dict(traceback.current_meta["custom"]))
        said.append(dict(traceback.current_meta["custom"]))
        traceback.set_grad_fn_seq_nr(7)
        traceback.set_grad_fn_seq_nr(9)
        said.append(list(traceback.current_meta["grad_fn_seq_nr"]))
        traceback.reset_grad_fn_seq_nr()
        said.append(list(traceback.current_meta["grad_fn_seq_nr"]))
        traceback.reset_grad_fn_seq_nr()
        said.append("grad_fn_seq_nr" in traceback.current_meta)
    return [*said, "custom" in traceback.current_meta]


def operators_that_only_look_like_writes(t: Any) -> Any:
    g = t.fx.Graph()
    x = g.placeholder("x")
    made = [g.call_function(f, (x, x)) for f in (operator.and_, operator.or_)]
    made.append(g.call_function(operator.not_, (x,)))
    g.output(x)
    said = [n.is_impure() for n in made]
    return [*said, g.eliminate_dead_code(), len(g.nodes)]


def writes_are_refused(t: Any) -> Any:
    class Careful(t.fx.Tracer):
        check_mutable_operations = True

    def traced(fn: Any) -> Any:
        try:
            return len(Careful().trace(fn).nodes)
        except RuntimeError as err:
            return str(err)[:50]

    return [
        traced(untyped(fn))
        for fn in (
            lambda x: t.sigmoid(x, out=x), lambda x: x.add_(1), lambda x: x & x, lambda x: x + x,
            lambda x: t.relu(x),
        )
    ]  # fmt: skip


def errors_of_traces(t: Any) -> Any:
    class Leaf(t.nn.Module):
        def forward(self, d: Any) -> Any:
            return d

    class Keys(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leaf = Leaf()

        def forward(self, x: Any) -> Any:
            return self.leaf({(1, x): x})

    class Selfless(t.nn.Module):
        def forward(*args, **kwargs) -> Any:  # noqa: ANN002, ANN003, B902
            return args[1]

    class Leaves(t.fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return isinstance(m, Leaf)

    def other_graphs() -> None:
        made = t.fx.Graph()
        for node in t.fx.symbolic_trace(untyped(lambda x: x + 1)).graph.nodes:
            made.node_copy(node)
        made.lint()

    said = []
    for fn in (
        lambda: Leaves().trace(Keys()), lambda: t.fx.symbolic_trace(Selfless()), other_graphs,
    ):  # fmt: skip
        try:
            fn()
        except RuntimeError as err:
            said.append(str(err).split("\n")[0])
    return said


def modules_of_nodes(t: Any) -> Any:
    class Inner(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = t.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x) + 1

    class Outer(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(self.inner(x) * 2)

    nodes = t.fx.symbolic_trace(Outer()).graph.nodes
    stacks = {n.name: n.meta.get("nn_module_stack", {}) for n in nodes}
    return {
        name: [(k, path, kind.__name__) for k, (path, kind) in stack.items()]
        for name, stack in stacks.items()
    }


def classes_that_take_proxies(t: Any) -> Any:
    class Pair(metaclass=t.fx.ProxyableClassMeta):
        def __init__(self, left: Any, right: Any) -> None:
            self.left, self.right = left, right

        def sum(self, other: Any) -> Any:
            return Pair(self.left + other.left, self.right + other.right)

    g = t.fx.symbolic_trace(untyped(lambda x: Pair(x, 2).sum(Pair(t.ones(2), 3))))
    made = g(t.ones(2))
    return [
        [(n.op, n.name, str(n.target) if isinstance(n.target, str) else n.target.__name__)
         for n in g.graph.nodes],
        made.left, made.right, type(made).__name__, g._Pair_constant_0.right,
    ]  # fmt: skip


def values_get_types(t: Any) -> Any:
    annotate = importlib.import_module(f"{t.__name__}.fx.annotate").annotate
    g = t.fx.symbolic_trace(untyped(lambda x: annotate(x + 1, int)))
    twice = untyped(lambda x: annotate(annotate(x, int), float))
    try:
        t.fx.symbolic_trace(twice)
    except RuntimeError as err:
        said = str(err)
    return [n.type for n in g.graph.nodes], annotate(3, int), said


def functions_of_math(t: Any) -> Any:
    """Imported by name into the module of the traced function."""
    g = t.fx.symbolic_trace(untyped(lambda x: x + sqrt(x.size(0)) + sqrt(4)))
    again = t.fx.symbolic_trace(g)
    names = [n.name for n in g.graph.nodes]
    return names, g(t.zeros(9)), again(t.zeros(16)), sqrt is math.sqrt


def copies_of_notes(t: Any) -> Any:
    """Deep ones, also where a module notes itself; of a tracer."""
    g = t.fx.symbolic_trace(untyped(lambda x: x + 1))
    g.meta.update(words=["a"], itself=g)
    deep, flat = copy.deepcopy(g), copy.copy(g)
    tracer = t.fx.Tracer()
    tracer.trace(untyped(lambda x, y: (x + y).relu()))
    other = copy.deepcopy(tracer)
    return [
        deep.meta["itself"] is deep, deep.meta["words"], deep.meta["words"] is g.meta["words"],
        flat.meta["words"] is g.meta["words"], str(other.graph) == str(tracer.graph),
        other.graph is tracer.graph,
    ]  # fmt: skip


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        arguments_are_changed, uses_are_replaced, nodes_are_moved, notes_of_nodes, texts_of_nodes,
        nodes_that_must_stay, calls_that_act_stay, kinds_of_nodes_are_checked,
        lists_of_arguments_stay, arguments_are_mapped, nodes_are_found, places_of_new_nodes,
        names_of_values, graphs_are_copied, nodes_are_erased, graphs_are_checked, code_of_a_trace,
        code_of_constants, code_of_attributes, code_of_renamed_placeholders, code_of_nothing,
        traces_of_modules, leaves_are_chosen, functions_are_wrapped, traces_of_functions,
        shapes_of_parameters_are_constant, modules_are_arguments, other_methods_are_traced,
        arguments_are_made, what_cannot_be_traced, what_traces_know, proxies,
        unused_modules_are_deleted, what_a_graph_module_takes, what_writes_must_stay,
        notes_that_are_added_meanwhile, operators_that_only_look_like_writes, writes_are_refused,
        errors_of_traces, modules_of_nodes, classes_that_take_proxies, values_get_types,
        functions_of_math, copies_of_notes,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    compare(PROGRAMS[name])


def test_calls_that_write_by_name_stay() -> None:
    """Methods and functions whose names end in _, and out=: PyTorch's fx takes them for dead."""
    g = fx.Graph()
    x = g.placeholder("x")
    made = [g.call_method("add_", (x,)), g.call_function(tn.relu_, (x,)),
            g.call_function(tn.add, (x, x), {"out": x}), g.call_function(tn.manual_seed, (3,)),
            g.call_method("__neg__", (x,)), g.call_function(tn.add, (x, x))]  # fmt: skip
    assert [n.is_impure() for n in made] == [True] * 4 + [False] * 2
