"""jit and export beside PyTorch's, by small programs that both libraries run."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from fx_parts import compare, refused

# ---- jit -----------------------------------------------------------------------------------------


def doubled(x: Any, k: int = 2) -> Any:
    """Two of it."""
    return x * k


def futures(t: Any) -> Any:
    made = t.jit.fork(doubled, t.ones(1), k=3)
    return t.jit.wait(made).tolist(), t.jit.is_scripting(), t.jit.is_tracing()


def scripts_are_functions(t: Any) -> Any:
    @t.jit.script
    def f(x, k: int = 2):  # noqa: ANN001, ANN202
        """Two of it."""
        return x * k

    x = t.ones(2)
    with tempfile.TemporaryDirectory() as folder:
        f.save(f"{folder}/f")
        again = t.jit.load(f"{folder}/f")
    return [
        f(x).tolist(), f(x, 3).tolist(), f(x, k=4).tolist(), f.__doc__, again(x, 5).tolist(),
        refused(pickle.dumps, f), refused(f), refused(f, x, 2, 3),
    ]  # fmt: skip


def net(t: Any) -> Any:
    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.ReLU())
            self.register_buffer("shift", t.ones(3))
            self.register_buffer("spare", t.ones(3), persistent=False)
            self.scale = 2.5

        def forward(self, x):  # noqa: ANN001, ANN202
            return self.body(x) * self.scale + self.shift

    t.manual_seed(0)
    made = Net()
    for i, p in enumerate(made.parameters()):
        p.data = t.arange(float(p.numel())).reshape(p.shape) - i
    return made


def scripted_modules(t: Any) -> Any:
    made = t.jit.script(net(t))
    x = t.ones(1, 2)
    twin = copy.deepcopy(made)
    with t.no_grad():
        twin.shift.mul_(10)
        getattr(twin.body, "0").weight.zero_()
    file = io.BytesIO()
    extra = {"note.txt": "some text", "bytes": b"\xff\x00a"}
    t.jit.save(made, file, _extra_files=extra)
    file.seek(0)
    read: dict[str, Any] = {"note.txt": "", "bytes": "", "other.txt": ""}
    again = t.jit.load(file, _extra_files=read)
    again.eval()
    return [
        made(x).tolist(), twin(x).tolist(), made(x).tolist(), again(x).tolist(), again.training,
        [n for n, _ in again.named_parameters()], [n for n, _ in again.named_buffers()],
        [n for n, _ in again.named_modules()],
        read, made.scale, refused(made), refused(made, x, x), getattr(again.body, "0").weight.shape,
    ]  # fmt: skip


def traced_modules(t: Any) -> Any:
    x = t.ones(1, 2)
    made = t.jit.trace(net(t), x)
    file = io.BytesIO()
    t.jit.save(made, file)
    file.seek(0)
    again = t.jit.load(file)
    one = t.jit.trace_module(net(t), {"forward": (x,)})
    return [
        made(x).tolist(), one(x).tolist(), [n for n, _ in made.named_modules()],
        list(made.state_dict()), list(again.state_dict()), [n for n, _ in again.named_parameters()],
        refused(made), refused(made, x, x, x),
    ]  # fmt: skip


def traced_methods(t: Any) -> Any:
    """Several methods of one module, on its own weights, in place of which others come."""

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = t.nn.Parameter(t.arange(3.0))
            self.register_buffer("calls", t.zeros(()))

        def forward(self, x: Any) -> Any:
            return x * self.w

        def sums(self, x: Any, k: Any) -> Any:
            self.calls.add_(k.sum())
            return (x + self.w).sum() * k

    net, x, k = Net(), t.ones(3), t.full((2,), 2.0)
    how = {"check_trace": False}
    made = t.jit.trace_module(net, {"forward": x, "sums": (x, k)}, **how)
    one = t.jit.trace_module(net, {"sums": (x, k)}, **how)
    said = [made(x).tolist(), made.sums(x, k + 1).tolist(), made.forward(x).tolist()]
    with t.no_grad():
        net.w.add_(1)
        net.calls.zero_()
    said += [made(x).tolist(), made.sums(x, k).tolist(), one.sums(x, k).tolist()]
    said += [list(made.state_dict()), made.calls.item(), net.calls.item(), refused(one, x)]
    one.sums(x, k).sum().backward()
    return [*said, net.w.grad.tolist()]


def traced_through_a_script(t: Any) -> Any:
    """It stays a part, whose both sides later calls take."""

    class Gate(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = t.nn.Parameter(t.full((2,), 3.0))

        def forward(self, x):  # noqa: ANN001, ANN202
            return x * self.w if x.sum() > 0 else -x

    class Cell(t.nn.Module):
        def __init__(self, gate: Any) -> None:
            super().__init__()
            self.gate = gate

        def forward(self, x: Any) -> Any:
            return self.gate(x) + 1

    made = t.jit.trace(Cell(t.jit.script(Gate())), t.ones(2))
    part = made.gate
    return [
        made(x).tolist() for x in (t.ones(2), -t.ones(2))
    ] + [part(-t.ones(2)).tolist(), "if" in part.code, list(made.state_dict())]  # fmt: skip


def containers_of_traces(t: Any) -> Any:
    """Lists of results are warned of, dicts refused, unless they are asked for."""
    x, said = t.ones(2), []
    for fn in (
        lambda x: [x, x + 1], lambda x: {"a": x}, lambda x: (x, {"a": x}), lambda x: (x, x), lambda
        x: 3, lambda x: None, lambda x: (x, [x]),
    ):  # fmt: skip
        for strict in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                said.append(refused(t.jit.trace, fn, (x,), None, True, None, 1e-5, strict))
            words = [w for w in caught if w.category.__name__ == "TracerWarning"]
            said.append(sorted({str(w.message).partition(", this")[0] for w in words}))
    return said


def traced_functions(t: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x + y, (x - y, [x * y])

    x, y = t.ones(2), t.full((2,), 3.0)
    made = t.jit.trace(f, (x, y), strict=False)
    out = made(y, x)
    same = t.jit.trace(doubled, (x,))
    return [
        out[0].tolist(), out[1][0].tolist(), out[1][1][0].tolist(), same(y).tolist(),
        made(x=y, y=x)[1][0].tolist(), refused(t.jit.trace, doubled, ()),
    ]  # fmt: skip


def words_of_scripts(t: Any) -> Any:
    @t.jit.script
    def f(x, y: int):  # noqa: ANN001, ANN202
        total = 0
        for i in range(y):
            if i == 3:
                continue
            total += i
        names = [str(v) for v in range(2)]
        while total > 40:
            total -= 1
        text = "{}-{}".format(total, names[0])  # noqa: UP032
        assert y > 0, "y is positive"
        return x + total, text, len(names), (y if y > 2 else -y), x.size(0) // 2

    out = f(t.ones(2), 5)
    return out[0].tolist(), out[1:], refused(f, t.ones(2), 0) != "taken"


def marks_of_scripts(t: Any) -> Any:
    class Net(t.nn.Module):
        def forward(self, x):  # noqa: ANN001, ANN202
            return self.other(x)

        @t.jit.export
        def other(self, x):  # noqa: ANN001, ANN202
            return x + 1

        @t.jit.unused
        def never(self, x):  # noqa: ANN001, ANN202
            return nothing(x)  # noqa: F821

    made = t.jit.script(Net())
    return [
        made(t.ones(1)).tolist(), made.other(t.ones(1)).tolist(), refused(t.jit._unwrap_optional,
        None),
        t.jit._unwrap_optional(3), t.jit.isinstance([1, 2], list[int]), t.jit.isinstance(["a"],
        list[int]),
        t.jit.isinstance((1, "a"), tuple[int, str]), t.jit.isinstance({"a": 1}, dict[str, int]),
        t.jit.annotate(int, 3), hasattr(t.jit, "no such word"),
    ]  # fmt: skip


# ---- export --------------------------------------------------------------------------------------


def exported_programs(t: Any) -> Any:
    importlib.import_module(f"{t.__name__}.export")
    x = t.ones(1, 2)
    ep = t.export.export(net(t), (x,))
    out = ep.module()(x)
    ep.validate()
    return [
        out.tolist(), [n for n, _ in ep.named_parameters()], [n for n, _ in ep.named_buffers()],
        [p.shape for p in ep.parameters()], [b.shape for b in ep.buffers()], sorted(ep.state_dict),
        [p.requires_grad for p in ep.parameters()],
        [s.kind.name for s in ep.graph_signature.input_specs],
        [s.target for s in ep.graph_signature.input_specs], ep.graph_signature.user_outputs,
        [s.kind.name for s in ep.graph_signature.output_specs], ep.graph_signature.parameters,
        ep.graph_signature.buffers, ep.graph_signature.non_persistent_buffers,
        dict(ep.graph_signature.inputs_to_parameters), refused(ep, x) != "taken",
    ]  # fmt: skip


def parameters_that_are_not_trained(t: Any) -> Any:
    """Frozen ones, and one of whole numbers, in programs and in files of them."""

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.free, self.frozen = t.nn.Linear(2, 2), t.nn.Linear(2, 2)
            self.frozen.requires_grad_(False)
            self.whole = t.nn.Parameter(t.ones(2, dtype=t.int8), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return self.frozen(self.free(x)) + self.whole

    importlib.import_module(f"{t.__name__}.export")
    model, x = Net(), t.ones(1, 2)
    file, other = io.BytesIO(), io.BytesIO()
    exported, traced = t.export.export(model, (x,)), t.jit.trace(model, (x,))
    t.export.save(exported, file)
    t.jit.save(traced, other)
    loaded = t.export.load(io.BytesIO(file.getvalue()))
    again = t.export.load(io.BytesIO(file.getvalue()))
    made = [
        exported, loaded, loaded.module(), t.export.unflatten(again), traced,
        t.jit.load(io.BytesIO(other.getvalue())), copy.deepcopy(traced),
    ]  # fmt: skip
    told = [{n: (p.requires_grad, str(p.dtype)) for n, p in m.named_parameters()} for m in made]
    state = {n: (type(v).__name__, v.requires_grad) for n, v in again.state_dict.items()}
    return told, state, [t.equal(m(x), model(x)) for m in made[2:]]


def exported_files(t: Any) -> Any:
    export = importlib.import_module(f"{t.__name__}.export")
    x = t.ones(1, 2)
    file = io.BytesIO()
    export.save(export.export(net(t), (x,)), file, extra_files={"note": "text"})
    file.seek(0)
    read = {"note": ""}
    again = export.load(file, extra_files=read)
    made = again.module()
    tree = export.unflatten(again)
    return [
        made(x).tolist(), read, sorted(again.state_dict), tree(x).tolist(),
        [n for n, _ in tree.named_modules()], sorted(tree.state_dict()),
        sorted(n for n, _ in tree.named_buffers()), type(tree.body).__name__ == "GraphModule",
    ]  # fmt: skip


def free_sizes(t: Any) -> Any:
    export = importlib.import_module(f"{t.__name__}.export")
    x = t.ones(3, 2)
    said = []
    batch = export.Dim("batch", min=2, max=10)
    ep = export.export(net(t), (x,), dynamic_shapes={"x": {0: batch}})
    made = ep.module()
    said += [made(t.ones(n, 2)).shape for n in (2, 3, 10)]
    said += [refused(made, t.ones(11, 2)) != "taken", refused(made, t.ones(3, 3)) != "taken"]
    said += [batch.__name__, batch.min, batch.max, len(ep.range_constraints)]
    said += [(r.lower, r.upper) for r in ep.range_constraints.values()]
    free = export.ShapesCollection()
    free[x] = {0: export.Dim.DYNAMIC}
    said += [refused(free.__setitem__, 3, {0: 1}), len(free)]
    made = export.export(net(t), (x,), dynamic_shapes=free).module()
    said += [made(t.ones(7, 2)).shape]
    more = export.AdditionalInputs()
    more.add((t.ones(5, 2),))
    said += [refused(more.add, 3)]
    made = export.export(net(t), (x,), dynamic_shapes=more).module()
    return [*said, made(t.ones(9, 2)).shape]


@dataclass
class Given:
    a: Any
    b: Any = None


def trees_of_exports(t: Any) -> Any:
    export = importlib.import_module(f"{t.__name__}.export")

    class Net(t.nn.Module):
        def forward(self, given, k=2):  # noqa: ANN001, ANN202
            return {"s": given.a + given.b, "k": [given.a * k]}

    export.register_dataclass(Given)
    given = Given(t.ones(2), t.full((2,), 2.0))
    made = export.export(Net(), (given,), {"k": 3}).module()
    out = made(given, k=3)
    return out["s"].tolist(), out["k"][0].tolist()


def module_of(t: Any, forward: Any) -> Any:
    return type("Net", (t.nn.Module,), {"forward": forward})()


def bases(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Which of some classes an error is of."""
    known = {"UserError", "GuardOnDataDependentSymNode", "RuntimeError", "AssertionError"}
    try:
        fn(*args, **kwargs)
    except Exception as err:
        return sorted(known & {c.__name__ for c in type(err).__mro__} - {"RuntimeError"})
    return "taken"


def hints_of_sizes(t: Any) -> Any:
    export = importlib.import_module(f"{t.__name__}.export")
    dim, x = export.Dim, t.ones(6, 4)
    twice = module_of(t, lambda self, x: x * 2)
    made = export.export(twice, (x,), dynamic_shapes={"x": {0: dim.AUTO(min=3, max=9)}}).module()
    said = [bases(made, t.ones(2, 4)), bases(made, t.ones(10, 4)), made(t.ones(9, 4)).shape]
    said += [repr(dim.AUTO), repr(dim.AUTO(min=2, max=5)), repr(dim.DYNAMIC(max=3))]
    said += [refused(dim.AUTO, -1), refused(dim.AUTO, 3, 2), refused(dim.STATIC, 3)]
    four = module_of(t, lambda self, x: x + t.ones(4))
    for size in (dim("b"), dim.DYNAMIC):
        said.append(bases(export.export, four, (t.ones(4),), dynamic_shapes={"x": {0: size}}))
    made = export.draft_export(four, (t.ones(4),), dynamic_shapes={"x": {0: dim("b")}})
    said += [made.module()(t.ones(4)).tolist(), bases(made.module(), t.ones(5))]
    said += [bases(export.export, twice, t.ones(1)), bases(export.export, twice, [t.ones(1)])]
    looks = module_of(t, lambda self, x: x if x.sum() > 0 else -x)
    return [*said, bases(export.export, looks, (x,)), made.dialect]


def said_of(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """The class and the first line of an error."""
    try:
        fn(*args, **kwargs)
    except Exception as err:
        return type(err).__name__, str(err).split("\n")[0].split(" For more information")[0]
    return "taken"


def sizes_that_do_not_fit(t: Any) -> Any:
    """What is said of sizes goes with the arguments, each in its place, and with their sizes."""
    export = importlib.import_module(f"{t.__name__}.export")
    dim = export.Dim
    d, x, y = dim("d", min=2), t.ones(4, 3), t.ones(5, 3)
    pair = module_of(t, lambda self, x, y: (x * 2, y * 3))
    given = (
        {"x": {0: d}}, {"x": {0: d}, "y": None, "z": None}, {"k": {0: d}, "y": None}, ({0: d},),
        ({0: d}, None, None), {"x": {0: d}, "y": {0: dim("d", min=3)}}, {"x": {0: "a"}, "y": None},
        {"x": {0: 5}, "y": None}, {"x": {0: 4}, "y": None}, {"x": 3, "y": None},
        {"x": {0: d}, "y": {0: d}}, {"x": {0: dim("q", min=6)}, "y": None},
        {"x": {0: d}, "y": (d, None, 3)},
        {"x": {0: dim("q", min=2, max=3)}, "y": None}, ({7: d}, None), ({0: dim("n")}, {0: d}),
    )  # fmt: skip
    told = [said_of(export.export, pair, (x, y), dynamic_shapes=g) for g in given]
    said: list[Any] = [s if s == "taken" or s[0] != "IndexError" else s[0] for s in told]
    # A Dim's least size is told of as 2 where the module would take another course below.
    said = [(s[0], s[1].replace("Dim('d')", "Dim('d', min=2)")) if len(s) == 2 else s for s in said]
    nested = module_of(t, lambda self, x, ys: (x + ys[0], ys[1]["a"] * 2))
    inputs = t.ones(4), [t.ones(4), {"a": t.ones(3)}]
    for ys in (
        [{0: d}, {"a": None}], [{0: d}], [{0: d}, {"b": None}], ({0: d}, {"a": None}), None,
        [{0: d}, None],
    ):  # fmt: skip
        said.append(said_of(export.export, nested, inputs, dynamic_shapes={"x": {0: d}, "ys": ys}))
    return said


def texts_of_exports(t: Any) -> Any:
    """What print shows of an exported program but for the lines of sources."""
    export = importlib.import_module(f"{t.__name__}.export")

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = t.nn.Linear(3, 2)
            self.register_buffer("n", t.zeros((), dtype=t.int64))
            self.register_buffer("spare", t.zeros(2, dtype=t.bfloat16), persistent=False)
            self.c = t.ones(2, dtype=t.float64)

        def forward(self, x: Any, k: Any) -> Any:
            return {"a": self.fc(x) + self.spare + k}, self.n * 2, self.c > 0, k

    made = export.export(Net(), (t.ones(4, 3), 2))
    told = [v for v in str(made).splitlines() if v.strip() and not v.strip().startswith("#")]
    specs = [*made.graph_signature.input_specs, *made.graph_signature.output_specs]
    batch = {"x": {0: export.Dim("b", max=9)}, "k": None}
    free = export.export(Net(), (t.ones(4, 3), 2), dynamic_shapes=batch)
    bounds = [str(v) for v in free.range_constraints.values()]
    return [*told, *map(str, specs), str(made.graph_signature), bounds]


def gradients_of_branches(t: Any) -> Any:
    """No gradient comes from a branch that is not taken, whatever it would be there."""
    export = importlib.import_module(f"{t.__name__}.export")

    def forward(self: Any, x: Any, y: Any) -> Any:
        return t.cond(x.sum() > 0, lambda x, y: x.sqrt() * y, lambda x, y: x * x + y, (x, y))

    net, file, said = module_of(t, forward), io.BytesIO(), []
    made = export.export(net, (t.ones(2), t.ones(2)))
    export.save(made, file)
    file.seek(0)
    for run in (net, made.module(), export.load(file).module()):
        for value in (4.0, -4.0):
            x, y = (t.full((2,), value, requires_grad=True) for _ in range(2))
            run(x, y).sum().backward()
            said += [x.grad.tolist(), y.grad.tolist()]
    return said


def gradients_of_captured(t: Any) -> Any:
    """Nor to what a branch takes from around it: a weight, results of others."""
    export = importlib.import_module(f"{t.__name__}.export")

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = t.nn.Parameter(t.full((2,), 4.0))

        def forward(self, x: Any) -> Any:
            half, last = self.w * 0.5, self.w.exp()

            def roots(x: Any) -> Any:
                return (self.w * x).sqrt() + half.log() * last

            return t.cond(
                x.sum() > 0, roots, lambda x: (self.w - x).sqrt() + (half - x).log(), (x,)
            )

    said = []
    for value in (4.0, -4.0):
        net, x = Net(), t.full((2,), value, requires_grad=True)
        for run in (net, export.export(net, (t.ones(2),)).module()):
            net.w.grad = x.grad = None
            run(x).sum().backward()
            weight = dict(run.named_parameters())["w"]
            said += [[round(v, 5) for v in g.tolist()] for g in (x.grad, weight.grad)]
    return said


def frozen_scripts(t: Any) -> Any:
    plain = net(t).eval()
    made = t.jit.freeze(t.jit.script(plain))
    x = t.ones(1, 2)
    said = [made(x).tolist(), list(made.state_dict())]
    with t.no_grad():
        plain.body[0].weight.zero_()
    said += [made(x).tolist(), made(x).requires_grad, refused(t.jit.freeze, t.jit.script(net(t)))]
    again = t.jit.load(io.BytesIO(made.save_to_buffer()))
    return [*said, again(x).tolist(), list(again.state_dict())]


def not_in_scripts(t: Any) -> Any:
    class Net(t.nn.Module):
        def forward(self, x, way: int):  # noqa: ANN001, ANN202
            if way == 0:
                return self.unused(x)
            if way == 1:
                return self.dropped(x)
            return self.ignored(x)

        @t.jit.unused
        def unused(self, x):  # noqa: ANN001, ANN202
            return x + 1

        @t.jit.ignore(drop=True)
        def dropped(self, x):  # noqa: ANN001, ANN202
            return x + 2

        @t.jit.ignore
        def ignored(self, x):  # noqa: ANN001, ANN202
            return x + 3

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = t.jit.script(Net())
    said: list[Any] = [Net()(t.ones(1), way).tolist() for way in range(3)]
    said += [refused(made, t.ones(1), way) for way in range(2)]
    return [*said, made(t.ones(1), 2).tolist(), issubclass(t.jit.Error, RuntimeError)]


def errors_of_scripts(t: Any) -> Any:
    def low(x):  # noqa: ANN001, ANN202
        if x.sum() < 0:
            raise ValueError("too low")
        return x

    def product(x):  # noqa: ANN001, ANN202
        return x @ x

    class Net(t.nn.Module):
        def forward(self, x):  # noqa: ANN001, ANN202
            assert x.sum() > 0, "not above"
            return x

    class Outer(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x):  # noqa: ANN001, ANN202
            return self.net(x)

    said: list[Any] = []
    for made in (low, product, Net(), Outer()):
        for call in (made, t.jit.script(made), t.nn.Sequential(t.jit.script(Outer()))):
            try:
                call(-t.ones(2, 3))
            except Exception as err:  # noqa: BLE001
                words = ("too low", "not above", "shapes cannot be multiplied")
                said.append([type(err).__name__, *(w in str(err) for w in words)])
    return said


def texts_as_scripts(t: Any) -> Any:
    unit = t.jit.CompilationUnit("def one(x):\n    return x + 1\n")
    unit.define("def two(x):\n    return x * 2\n")
    made = t.jit.Attribute(3, int)
    said = [unit.one(t.ones(1)).tolist(), unit.two(t.ones(1)).tolist(), made.value, tuple(made)[0]]

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = t.jit.Attribute(3, int)

        def forward(self, x):  # noqa: ANN001, ANN202
            return x * self.k

    scripted = t.jit.script(Net())
    t.jit.enable_onednn_fusion(False)
    before = t.jit.set_fusion_strategy([("STATIC", 1)])
    t.jit.set_fusion_strategy(before)
    with t.jit.optimized_execution(False), t.jit.fuser("fuser1"):
        said.append(scripted(t.ones(1)).tolist())
    return [*said, scripted.k, t.jit.onednn_fusion_enabled(), refused(getattr, unit, "three")]


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        futures, scripts_are_functions, scripted_modules, traced_modules, traced_functions,
        traced_methods, traced_through_a_script, containers_of_traces,
        words_of_scripts, marks_of_scripts, exported_programs,
        parameters_that_are_not_trained, exported_files, free_sizes,
        frozen_scripts, not_in_scripts, texts_as_scripts, trees_of_exports, hints_of_sizes,
        sizes_that_do_not_fit, texts_of_exports, gradients_of_branches, gradients_of_captured,
        errors_of_scripts,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(PROGRAMS[name])
