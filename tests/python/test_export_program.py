"""Exported programs: signatures, hints and rules of sizes, modules that change, unflatten."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from typing import Any

import pytest
import tenon as tn
from tenon import fx, nn
from tenon._program.errors import UserError
from tenon.export import (
    AdditionalInputs,
    Dim,
    ExportedProgram,
    InterpreterModule,
    ShapesCollection,
    dims,
    export,
    load,
    register_dataclass,
    save,
    unflatten,
)  # fmt: skip
from tenon.utils import _pytree


class Counts(nn.Module):
    """Keyword arguments, a buffer that is written, one that is replaced and in no state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3)
        self.register_buffer("count", tn.zeros(()))
        self.register_buffer("mean", tn.zeros(4), persistent=False)
        self.shift = tn.ones(3)

    def forward(self, x: Any, flag: bool, *, scale: float = 1.0, more: Any = None) -> Any:
        self.count.add_(1)
        self.mean = self.mean * 0.5 + x.mean(0)
        out = self.lin(x) * scale + self.count + (self.shift if flag else 0)
        return (out if more is None else out + more), 7


def again(ep: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    save(ep, file)
    file.seek(0)
    return load(file)


def test_signature_and_graph() -> None:
    net = Counts()
    x, more = tn.ones(3, 4), tn.ones(3)
    batch = Dim("batch", min=2, max=32)
    shapes = {"x": {0: batch}, "flag": None, "scale": None, "more": None}
    ep = export(net, (x, True), {"more": more, "scale": 2.0}, dynamic_shapes=shapes)
    assert net.count.item() == 0 and net.mean.sum().item() == 0  # as before
    sig = ep.graph_signature
    assert sig.parameters == ("lin.weight", "lin.bias") and sig.buffers == ("count", "mean")
    assert sig.user_inputs == ("x", True, 2.0, "more")
    assert sig.non_persistent_buffers == ("mean",)
    assert sig.lifted_tensor_constants == ("shift",)
    assert sig.inputs_to_parameters == {"p_lin_weight": "lin.weight", "p_lin_bias": "lin.bias"}
    assert sig.inputs_to_buffers == {"b_count": "count", "b_mean": "mean"}
    assert [s.kind.name for s in sig.input_specs] == [
        "PARAMETER", "PARAMETER", "BUFFER", "BUFFER", "CONSTANT_TENSOR", *["USER_INPUT"] * 4,
    ]  # fmt: skip
    assert sig.user_outputs[1] == 7 and sig.buffers_to_mutate == {}
    placeholders = ep.graph.find_nodes(op="placeholder")
    assert [n.name for n in placeholders] == [s.arg.name for s in sig.input_specs]
    assert [n.name for n in placeholders[-4:]] == ["x", "flag", "scale", "more"]
    called = {n.target for n in ep.graph.nodes if n.op == "call_function"}
    assert {tn.ops.aten.linear.default, tn.ops.aten.add.Tensor} <= called
    first = next(n for n in ep.graph.nodes if n.name == "linear")
    assert first.meta["val"].shape == (3, 3) and first.meta["val"].device.type == "meta"
    assert set(ep.state_dict) == {"lin.weight", "lin.bias", "count"}
    assert set(ep.constants) == {"mean", "shift"}
    bounds = ep.range_constraints["batch"]
    assert (bounds.lower, bounds.upper) == (2, 32)
    ep.validate()
    runs, other = ep.module(), copy.deepcopy(net)
    for n in (2, 5):
        wanted = other(tn.ones(n, 4), True, scale=2.0, more=more)
        got = runs(tn.ones(n, 4), True, more=more, scale=2.0)
        assert tn.equal(got[0], wanted[0]) and got[1] == 7
    assert runs.count.item() == 2 and tn.equal(runs.mean, other.mean)
    assert set(runs.state_dict()) == set(ep.state_dict)
    with pytest.raises(RuntimeError, match="Guard failed: flag == True"):
        runs(x, False, scale=2.0, more=more)


def test_modules_that_run_can_be_changed() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = tn.randn(3, 4)
    ep = export(net, (x,), dynamic_shapes=({0: Dim.AUTO},))
    runs = ep.module()
    assert isinstance(runs, fx.GraphModule)
    copied = copy.deepcopy(runs)
    for made in (runs, copied, pickle.loads(pickle.dumps(runs)), again(ep).module()):
        assert tn.equal(made(tn.cat([x, x])), net(tn.cat([x, x])))
        assert dict(made.named_parameters()).keys() == dict(net.named_parameters()).keys()
    with tn.no_grad():
        net[0].weight.add_(1)
    assert tn.equal(runs(x), net(x)) and not tn.equal(copied(x), net(x))  # shared, and not
    getattr(runs, "0").bias = nn.Parameter(tn.full((4,), 9.0))
    with_bias = copy.deepcopy(net)
    with_bias[0].bias = nn.Parameter(tn.full((4,), 9.0))
    assert tn.allclose(runs(x), with_bias(x))
    node = next(n for n in copied.graph.nodes if n.name == "relu")
    node.target = tn.tanh
    copied.recompile()
    wanted = copied.get_submodule("2").bias + 0
    assert tn.allclose(
        copied(x),
        tn.tanh(x @ getattr(copied, "0").weight.T + getattr(copied, "0").bias)
        @ getattr(copied, "2").weight.T + wanted,
    )  # fmt: skip
    assert tn.equal(copy.deepcopy(copied)(x), copied(x))
    with pytest.raises(TypeError, match="changed"):
        pickle.dumps(copied)
    assert copied.double()(x.double()).dtype == tn.float64


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.out = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, i: Any) -> Any:
        return self.out(self.emb(i))


def test_tied_weights_have_both_names() -> None:
    net, i = Tied(), tn.tensor([1, 2])
    for ep in (export(net, (i,)), again(export(net, (i,)))):
        assert sorted(ep.state_dict) == sorted(dict(ep.named_parameters())) == [
            "emb.weight", "out.weight",
        ]  # fmt: skip
        for made in (ep.module(), unflatten(ep)):
            assert made.emb.weight is made.out.weight
            assert set(made.state_dict()) == set(net.state_dict())
            made(i).sum().backward()
            assert made.emb.weight.grad is not None and len(list(made.parameters())) == 1
    trained = export(net, (i,)).module()
    tn.optim.SGD(trained.parameters(), 0.1).step()
    assert tn.equal(trained(i), net(i))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": (Dim.AUTO, Dim.STATIC), "y": None},
        {"x": {0: Dim.DYNAMIC}, "y": {0: Dim.AUTO}},
        ({0: Dim("a")}, {0: Dim("b")}),
        {"x": [Dim.AUTO, None], "y": [Dim.AUTO]},
    ],
)
def test_hints(shapes: Any) -> None:
    class Sum(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y.sum(), {"a": x * 2}

    ep = export(Sum(), (tn.randn(3, 4), tn.randn(5)), dynamic_shapes=shapes)
    x, y = tn.randn(7, 4), tn.randn(5)
    assert tn.equal(ep.module()(x, y)[0], x + y.sum())


def test_hinted_sizes_that_are_equal_or_fixed() -> None:
    class Plus(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    ep = export(Plus(), (tn.ones(3), tn.ones(3)), dynamic_shapes=((Dim.AUTO,), (Dim.AUTO,)))
    assert ep.module()(tn.ones(5), tn.ones(5)).tolist() == [2.0] * 5
    with pytest.raises(RuntimeError, match="s0_0"):
        ep.module()(tn.ones(5), tn.ones(4))

    class Loop(nn.Module):
        def forward(self, x: Any) -> Any:
            for i in range(x.shape[0]):
                x = x + i
            return x

    fixed = export(Loop(), (tn.ones(3),), dynamic_shapes=((Dim.AUTO,),))
    assert fixed.module()(tn.ones(3)).tolist() == [4.0] * 3 and not fixed.range_constraints
    with pytest.raises(NotImplementedError, match="course"):
        export(Loop(), (tn.ones(3),), dynamic_shapes=((Dim.DYNAMIC,),))


def test_rules_of_sizes() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(x.shape[0] // 2, 2, -1).sum(1)

    b = Dim("b", min=2, max=10)
    ep = export(Pairs(), (tn.ones(4, 3),), dynamic_shapes=({0: 2 * b},))
    assert ep.module()(tn.ones(8, 3)).tolist() == [[2.0] * 3] * 4
    assert ep.range_constraints == {"2*b": (4, 20)}
    for n in (7, 22):
        with pytest.raises(RuntimeError):
            ep.module()(tn.ones(n, 3))
    assert [repr(d) for d in (b, 2 * b, b - 1, 3 * (2 * b + 1))] == [
        "Dim('b', min=2, max=10)", "2*b", "b - 1", "6*b + 3",
    ]  # fmt: skip
    assert ((b + 1).min, (b + 1).max) == (3, 11)
    assert [d.min for d in dims("p", "q", min=2)] == [2, 2]
    with pytest.raises(ValueError, match="derived min"):
        Dim("c") - 1
    with pytest.raises(NotImplementedError, match="whole"):
        b * 0.5  # type: ignore[operator]
    given = {"x": {0: b}, "y": {0: b + 1}}
    made = export(Both(), (tn.ones(4), tn.ones(5)), dynamic_shapes=given)
    assert made.module()(tn.ones(6), tn.ones(7)).item() == 13


class Both(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum() + y.sum()


def test_sizes_by_tensor_and_by_example() -> None:
    x, y = tn.ones(4), tn.ones(5)
    shapes = ShapesCollection()
    shapes[x] = {0: Dim("n")}
    more = AdditionalInputs()
    more.add((tn.ones(9), y))
    for given in (shapes, more):
        ep = export(Both(), (x, y), dynamic_shapes=given)
        assert ep.module()(tn.ones(7), y).item() == 12
        with pytest.raises(RuntimeError, match="y"):
            ep.module()(x, tn.ones(6))
    shapes[tn.ones(1)] = {0: Dim("m")}
    with pytest.raises(ValueError, match="no argument"):
        export(Both(), (x, y), dynamic_shapes=shapes)


@dataclasses.dataclass
class Pair:
    a: tn.Tensor
    b: tn.Tensor


register_dataclass(Pair)


def test_dataclasses_and_variadic_arguments() -> None:
    class Adds(nn.Module):
        def forward(self, p: Pair, d: Any, *rest: Any, k: Any = None) -> Any:
            return p.a + p.b + d["x"][0] + rest[0] * 2 - k

    a = tn.arange(3.0)
    ep = export(Adds(), (Pair(a, a), {"x": [a]}, a), {"k": a})
    assert ep.graph_signature.user_inputs == ("p_a", "p_b", "d_x_0", "rest_0", "k")
    assert ep.module()(Pair(a, a), {"x": [a]}, a, k=a).tolist() == [0.0, 4.0, 8.0]
    assert ep.module()(Pair(a, a), {"x": [a]}, a, k=a * 0).tolist() == [0.0, 5.0, 10.0]
    leaves = {"p": Pair({0: Dim("n")}, {0: Dim("n")})}  # type: ignore[arg-type]

    class Sum(nn.Module):
        def forward(self, p: Pair) -> Any:
            return p.a + p.b

    free = export(Sum(), (Pair(a, a),), dynamic_shapes=leaves)
    assert free.module()(Pair(tn.ones(5), tn.ones(5))).tolist() == [2.0] * 5


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b, self.half = nn.Linear(n, n), nn.LayerNorm(n), tn.tensor([0.5])

    def forward(self, x: Any) -> Any:
        return self.b(tn.relu(self.a(x)) + x + self.half)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.pair, self.head = Splits(), nn.Linear(4, 2)

    def forward(self, x: Any, d: dict[str, Any]) -> dict[str, Any]:
        for block in self.blocks:
            x = block(x)
        x = self.blocks[0](x)
        low, high = self.pair(x + d["y"])
        return {"h": self.head(x) * low, "high": high}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Rows()

    def forward(self, x: Any) -> Any:
        return self.part(x), self.part(x[:1])


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p, self.shift = nn.Parameter(tn.ones(2)), tn.ones(2)

    def forward(self, x: Any) -> Any:
        return (x * self.p + self.shift).reshape(x.shape[0] * 2)


def test_a_second_call_that_differs_is_another_module() -> None:
    net, x = Twice(), tn.randn(3, 2)
    tree = unflatten(export(net, (x,)))
    assert [n for n, _ in tree.named_children()] == ["part", "part@1"]
    assert set(tree.state_dict()) == set(net.state_dict())
    with tn.no_grad():
        tree.part.p.mul_(2)
        assert not tn.equal(tree.part.p, net.part.p)  # it has weights of its own
        net.part.p.mul_(2)
    for a, b in zip(tree(x), net(x), strict=True):
        assert tn.equal(a, b)


class Count(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", tn.zeros(1))

    def forward(self, x: Any) -> None:
        self.n.add_(1)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.last = Count(), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        self.count(x)
        y = self.last(x)
        self.count(y)
        return y


def test_modules_that_are_called_for_what_they_write() -> None:
    net, x = Counted(), tn.randn(3, 2)
    tree = unflatten(export(net, (x,)))
    assert tn.equal(tree(x), net(x)) and tree.count.n.item() == 2


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", tn.tensor(10.0))

    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        x.relu_()
        return x + 2


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child()

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            y = self.child(x)
            x = y + self.child.n + x * 4
        return x


def test_modules_that_write_can_be_replaced() -> None:
    x = tn.tensor([-1.0, 2.0])
    wanted = Parent()(x.clone())
    tree = unflatten(export(Parent(), (x.clone(),)))
    assert [n for n, _ in tree.named_modules()] == ["", "child"]
    tree.set_submodule("child", Child())
    assert tn.equal(tree(x.clone()), wanted)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.a_weight = nn.Linear(2, 2), nn.Parameter(tn.ones(2))
        self.m = nn.ModuleDict({'k"y': nn.Linear(2, 2), "a b": nn.Linear(2, 2)})

    def forward(self, d: Any, **named: Any) -> Any:
        x = self.a(d["my key"]) * d["class"] + self.a_weight + named["a-b"]
        return self.m["a b"](self.m['k"y'](x))


def test_names_that_python_has_not() -> None:
    net, d, named = Named(), {"my key": tn.randn(2), "class": tn.randn(2)}, {"a-b": tn.randn(2)}
    ep = export(net, (d,), named)
    takes = [n.target for n in ep.graph.find_nodes(op="placeholder")]
    assert takes[-3:] == ["d_my_key", "d_class", "named_a_b"] and len({*takes}) == len(takes)
    wanted = net(d, **named)
    for made in (ep.module(), unflatten(ep)):
        made.recompile()
        assert tn.equal(made(d, **named), wanted)
    flat = ep.graph_module(*ep.parameters(), d["my key"], d["class"], named["a-b"])
    assert tn.equal(flat[0], wanted)


class Splits(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.amin(), x.max(dim=0).values


def test_programs_are_modules_again() -> None:
    net = Deep().eval()
    x, d = tn.randn(3, 4), {"y": tn.randn(3, 4)}
    made = export(net, (x, d), dynamic_shapes={"x": {0: Dim.AUTO}, "d": {"y": {0: Dim.AUTO}}})
    for ep in (made, again(made), made.run_decompositions()):
        tree = unflatten(ep)
        assert [n for n, _ in tree.named_children()] == ["blocks", "pair", "head"]
        assert set(tree.state_dict()) == set(net.state_dict())
        assert isinstance(tree.blocks, InterpreterModule)
        assert [n for n, _ in tree.blocks.named_children()] == ["0", "1"]
        for n in (3, 6):
            x, d = tn.randn(n, 4), {"y": tn.randn(n, 4)}
            got, wanted = tree(x, d), net(x, d)
            assert tn.equal(got["h"], wanted["h"]) and tn.equal(got["high"], wanted["high"])
        first = getattr(tree.blocks, "0")
        assert tn.equal(first(x), net.blocks[0](x))
        assert tn.equal(tree.pair(x)[1], net.pair(x)[1])
        tree(x, d)["h"].sum().backward()
        assert first.a.weight.grad is not None
    tree.head = nn.Linear(4, 5)
    assert tree(x, d)["h"].shape == (6, 5)
    paths = [e.fqn for e in made.module_call_graph]
    assert paths[:4] == ["", "blocks.0", "blocks.0.a", "blocks.0.b"] and paths[-1] == "head"
    with pytest.raises(RuntimeError, match="traced"):
        file = io.BytesIO()
        tn.jit.trace(Splits(), (x,)).save(file)
        file.seek(0)
        unflatten(load(file))
    assert _pytree.tree_leaves(tree(x, d))[0].shape == (6, 5)


def test_calls_one_behind_the_other() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.part(self.part(x)).flatten(0, 1).max(0).values.softmax(-1)

    net, x = Chain(), tn.randn(2, 2, 3)
    ep = export(net, (x,))
    tree = unflatten(ep)
    assert tn.equal(tree(x), net(x)) and tn.equal(tree.part(x), net.part(x))
    assert [n.target for n in tree.graph.nodes if n.op == "call_module"] == ["part", "part"]
    named = [n.target for n in ep.graph.nodes if n.op == "call_function"]
    aten = tn.ops.aten
    for form in (aten.flatten.using_ints, aten.max.dim, aten.softmax.int):
        assert form in named


def test_replaced_buffers_keep_their_shape() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("all", tn.zeros(1))

        def forward(self, x: Any) -> Any:
            self.all = tn.cat([self.all, x])
            return self.all

    net = Grows()
    with pytest.raises(RuntimeError, match="'all' another shape"):
        export(net, (tn.ones(2),))
    assert net.all.tolist() == [0.0]


class Fixed(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + tn.ones(4)


class Free(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def test_reports_of_drafts() -> None:
    """A size that cannot be free is told and fixed; where all can, there is nothing to tell."""
    sizes = {"x": {0: Dim("rows")}}
    good = tn.export.draft_export(Free(), (tn.ones(4),), dynamic_shapes=sizes)
    assert good._report.successful() and str(good._report).startswith("No issues are found")
    assert good.module()(tn.ones(6)).tolist() == [2.0] * 6
    bad = tn.export.draft_export(Fixed(), (tn.ones(4),), dynamic_shapes=sizes)
    assert not bad._report.successful()
    assert str(bad._report).startswith("Constraints violated")
    with pytest.raises(UserError, match="Expecting `args` to be a tuple"):
        tn.export.draft_export(Free(), tn.ones(4))


def test_shapes_that_are_no_shapes() -> None:
    shapes, more, x = ShapesCollection(), AdditionalInputs(), tn.ones(2, 3)
    with pytest.raises(AssertionError, match="Cannot assign shape to non-tensor of type"):
        shapes[3] = {0: Dim("n")}
    shapes[x][1] = Dim("columns")
    assert len(shapes) == 1 and shapes[x][1].__name__ == "columns"
    free = export(Free(), (x,), dynamic_shapes=shapes).module()
    assert free(tn.ones(2, 5)).shape == (2, 5)
    with pytest.raises(AssertionError):
        free(tn.ones(3, 5))
    with pytest.raises(AssertionError, match="Representation of args should be a tuple"):
        more.add([x])  # type: ignore[arg-type]
    more.add(([x, x],))
    with pytest.raises(ValueError, match="all calls have the same structure"):
        more.dynamic_shapes(Free(), ([x],))


def test_rules_of_dims() -> None:
    """Names, bounds and refusals of what is computed with a Dim, as PyTorch writes them."""
    n = Dim("n", min=2, max=6)
    rule = 3 * (n * 2 + 1) - 4
    assert (rule.min, rule.max, repr(rule)) == (11, 35, "6*n - 1")
    assert (repr(n), repr(n + 1), repr(Dim("m"))) == ("Dim('n', min=2, max=6)", "n + 1", "Dim('m')")
    assert [repr(d) for d in dims("a", "b", max=9)] == ["Dim('a', max=9)", "Dim('b', max=9)"]
    for wrong in (lambda: n * 0, lambda: n * -1, lambda: n * 0.5, lambda: n + 1.0):
        with pytest.raises(NotImplementedError):
            wrong()
    with pytest.raises(ValueError, match=r"min value of n - 3 to be >= 0.*currently 2"):
        n - 3
    for low, high in ((3, 3), (3, 2)):
        with pytest.raises(AssertionError, match=f"inconsistent min={low}, max={high}"):
            Dim("k", min=low, max=high)
    with pytest.raises(ValueError, match="valid identifier, got a b"):
        Dim("a b")
    for low, high in ((-1, None), (None, -1)):
        with pytest.raises(AssertionError, match="min and max must be non-negative"):
            Dim.AUTO(min=low, max=high)
    with pytest.raises(AssertionError, match="min must be <= max"):
        Dim.AUTO(min=3, max=2)
    assert Dim.AUTO(min=2, max=2).max == 2 and Dim.AUTO(min=0, max=0).min == 0


class TwoRows(nn.Module):
    """Rows of two tensors, in a dict; some of its state is in no state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(tn.ones(2))
        self.register_buffer("kept", tn.full((2,), 2.0))
        self.register_buffer("left", tn.full((2,), 3.0), persistent=False)

    def forward(self, x: Any, y: Any) -> Any:
        return {"sum": (x.sum(0) + y.sum(0)) * self.rate + self.kept - self.left}


def test_sizes_that_follow_from_one() -> None:
    """Examples that no size gives are refused: by a rest, and by two values."""
    n, x = Dim("n", min=2), tn.ones(4, 2)
    for rows, rule in ((5, n * 2), (6, n + 1), (9, n * 2 + 1)):
        sizes = {"x": {0: n}, "y": {0: rule}}
        if rows == 9:
            made = export(TwoRows(), (x, tn.ones(9, 2)), dynamic_shapes=sizes).module()
            assert made(tn.ones(3, 2), tn.ones(7, 2))["sum"].tolist() == [9.0, 9.0]
            with pytest.raises(AssertionError):
                made(tn.ones(3, 2), tn.ones(8, 2))
            continue
        with pytest.raises(UserError, match=rf"follow from one n: n = 4, .*= {rows}"):
            export(TwoRows(), (x, tn.ones(rows, 2)), dynamic_shapes=sizes)


def test_state_and_structure_of_a_program() -> None:
    net, x = TwoRows(), tn.ones(3, 2)
    ep = export(net, (x, x))
    assert [p.tolist() for p in ep.parameters()] == [[1.0, 1.0]]
    assert [b.tolist() for b in ep.buffers()] == [[2.0, 2.0], [3.0, 3.0]]
    assert ep.call_spec.in_spec == _pytree.tree_flatten(((x, x), {}))[1]
    assert ep.call_spec.out_spec == _pytree.tree_flatten({"sum": x})[1]
    tree = unflatten(ep)
    assert sorted(tree.state_dict()) == ["kept", "rate"]
    assert sorted(dict(tree.named_buffers())) == ["kept", "left"]
    assert type(tree).__name__ == "UnflattenedModule"
    run = ep.module()
    run.rate = nn.Parameter(tn.zeros(2))
    assert run(x, x)["sum"].tolist() == [-1.0, -1.0]
    graph = ep.graph
    next(iter(graph.nodes)).append(list(graph.nodes)[-2])
    with pytest.raises(RuntimeError):
        graph.lint()


def test_numbers_of_kinds() -> None:
    """PyTorch 2.13's, which other programs write into files."""
    kinds = tn.export.graph_signature
    assert [(k.name, k.value) for k in kinds.InputKind] == [
        ("USER_INPUT", 1), ("PARAMETER", 2), ("BUFFER", 3), ("CONSTANT_TENSOR", 4)
    ]  # fmt: skip
    assert [(k.name, k.value) for k in kinds.OutputKind] == [
        ("USER_OUTPUT", 1), ("BUFFER_MUTATION", 3), ("USER_INPUT_MUTATION", 7)
    ]  # fmt: skip


def test_changed_graphs_keep_the_sizes_of_their_inputs() -> None:
    class Net(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return x * tn.arange(len(x))[:, None]

    program = export(Net(), (tn.ones(3, 2),))
    for checks in (True, False):
        module = program.module(check_guards=checks)
        module.recompile()
        assert module(tn.ones(3, 2)).shape == (3, 2)
        for other in (tn.ones(1, 2), tn.ones(2)):
            if checks:
                with pytest.raises(AssertionError, match=r"Guard failed: x\.(size|dim)"):
                    module(other)
            else:
                assert module(other).shape[0] == 3


def test_an_exported_module_has_one_mode() -> None:
    module = export(nn.Dropout().train(), (tn.ones(3),)).module()
    assert module.train() is module
    with pytest.raises(NotImplementedError, match="export the module again after eval"):
        module.eval()


def test_functions_of_a_program_have_the_gradient_of_their_operators() -> None:
    class Square(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: tn.Tensor) -> tn.Tensor:
            return grad * 0

    class Net(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            with tn.no_grad():
                y = Square.apply(x)
            return Square.apply(x) + y

    x = tn.ones(2, requires_grad=True)
    out = export(Net(), (tn.ones(2),)).module()(x)
    assert tn.autograd.grad(out.sum(), x)[0].tolist() == [2, 2]


def test_nodes_say_what_is_no_default() -> None:
    class Net(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            x = x.add(x, alpha=2).squeeze(0).clone().add_(1)
            return x.sum().sum(0, True).softmax(0)

    nodes = export(Net(), (tn.ones(1, 3),)).graph.find_nodes(op="call_function")
    assert [(n.name, str(n.target), len(n.args), dict(n.kwargs)) for n in nodes] == [
        ("add", "aten.add.Tensor", 2, {"alpha": 2}),
        ("squeeze", "aten.squeeze.dim", 2, {}),
        ("clone", "aten.clone.default", 1, {}),
        ("add_", "aten.add_.Tensor", 2, {}),
        ("sum_1", "aten.sum.default", 1, {}),
        ("sum_2", "aten.sum.dim_IntList", 3, {}),
        ("softmax", "aten.softmax.int", 2, {}),
    ]


def test_custom_operators_have_gradients_in_programs() -> None:
    @tn.library.custom_op("export_program::thrice", mutates_args=())
    def thrice(x: tn.Tensor) -> tn.Tensor:
        return x * 3

    thrice.register_autograd(lambda ctx, grad: grad * 3)

    class Net(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return thrice(x) + x

    x = tn.ones(2, requires_grad=True)
    for run in (Net(), export(Net(), (tn.ones(2),)).module(), tn.jit.trace(Net(), tn.ones(2))):
        assert tn.autograd.grad(run(x).sum(), x)[0].tolist() == [4, 4]


def test_gradients_of_gradients_in_programs() -> None:
    def cubes(x: tn.Tensor) -> tn.Tensor:
        return (x**3).sum()

    class Net(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            with tn.no_grad():
                fixed = tn.func.grad(cubes)(x)
            return tn.func.grad(cubes)(x) + tn.func.vmap(tn.func.grad(cubes))(x) + fixed

    x = tn.tensor([1.0, 2.0], requires_grad=True)
    for run in (Net(), export(Net(), (tn.ones(2),)).module(), tn.jit.trace(Net(), tn.ones(2))):
        assert tn.autograd.grad(run(x).sum(), x)[0].tolist() == [12, 24]


class _Halves(nn.Module):
    """Writes to a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(tn.ones(3))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        with tn.no_grad():
            self.scale.div_(2)
        return x * self.scale


def test_parameters_are_written_by_calls_alone() -> None:
    """Not by what looks at a module: export and the parts of a program leave them as they were."""
    module, x = _Halves(), tn.tensor([1.0, 2.0, 4.0])
    program = export(module, (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert module.scale.tolist() == [1] * 3
    parts = program.run_decompositions()
    assert module.scale.tolist() == [1] * 3
    assert parts.graph_signature.parameters_to_mutate == {}
    assert parts.module()(x).tolist() == [0.5, 1.0, 2.0]
    assert module.scale.tolist() == [0.5] * 3


class _HalfSize(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return nn.functional.interpolate(x[None, None], scale_factor=0.5, mode="bilinear")


def test_the_layout_of_results_fixes_no_sizes() -> None:
    free = ({0: Dim.AUTO, 1: Dim.AUTO},)
    program = export(_HalfSize(), (tn.rand(4, 8),), dynamic_shapes=free)
    for size in ((5, 7), (33, 2), (6, 6)):
        x = tn.rand(size)
        assert tn.equal(program.module()(x), _HalfSize()(x))
