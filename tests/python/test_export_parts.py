"""export: programs whose operators are taken apart into those that they consist of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon._program import apart
from tenon.export import Dim, default_decompositions, export, load, save, unflatten
from test_run import run

F = nn.functional


def ops_of(program: Any) -> list[str]:
    return [node["op"] for node in program.program.data["nodes"]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return tn.rot90(F.softplus(self.norm(self.first(x)))) + tn.sinc(x[:4, :1])


def test_composites_are_their_parts() -> None:
    net = Net().eval()
    whole = export(net, (tn.randn(5, 3),))
    parts = whole.run_decompositions()
    assert {"rot90", "sinc"} <= set(ops_of(whole)) and not {"rot90", "sinc"} & set(ops_of(parts))
    assert {"flip", "transpose", "sin"} <= set(ops_of(parts))
    assert set(parts.state_dict) == set(net.state_dict())
    x = tn.randn(5, 3)
    assert tn.equal(parts.module()(x), net(x))
    loss = parts.module()(x).square().sum()
    wanted = tn.autograd.grad(net(x).square().sum(), net.first.weight)
    tn.testing.assert_close(tn.autograd.grad(loss, net.first.weight), wanted)


def test_a_table_says_which() -> None:
    whole = export(Net().eval(), (tn.randn(5, 3),))
    table = default_decompositions()
    del table[tn.ops.aten.sinc.default]
    kept = ops_of(whole.run_decompositions(table))
    assert "sinc" in kept and "rot90" not in kept
    assert ops_of(whole.run_decompositions({})) == ops_of(whole)
    only = {tn.ops.aten.sinc.default: tn.ops.aten.sinc.default.op}
    assert "rot90" in ops_of(whole.run_decompositions(only))
    with pytest.raises(NotImplementedError, match="by no function of the caller's"):
        whole.run_decompositions({tn.ops.aten.sinc.default: lambda x: x})


def test_free_sizes_stay_free(tmp_path: Any) -> None:
    class Halves(nn.Module):
        def forward(self, x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
            return tn.rot90(tn.cat([x, y])).reshape(x.shape[0], -1) * tn.trapezoid(y).sum()

    d = Dim("d", min=2, max=100)
    whole = export(Halves(), (tn.randn(4, 6), tn.randn(4, 6)), dynamic_shapes=({0: d}, {0: d}))
    save(whole, tmp_path / "whole.tng")
    for program in (whole, load(tmp_path / "whole.tng")):  # which has no example
        parts = program.run_decompositions()
        assert not {"rot90", "trapezoid"} & set(ops_of(parts))
        for n in (2, 3, 17):
            x, y = tn.randn(n, 6), tn.randn(n, 6)
            assert tn.equal(parts.module()(x, y), Halves()(x, y))
        with pytest.raises(RuntimeError, match="1"):
            parts.module()(tn.randn(1, 6), tn.randn(1, 6))


def test_a_size_without_a_rule_is_an_error() -> None:
    class Square(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.kron(x, x)

    d = Dim("d", min=2, max=100)
    whole = export(Square(), (tn.randn(3),), dynamic_shapes=({0: d},))
    with pytest.raises(RuntimeError, match=r"d: the parts of the composites follow from it by no"):
        whole.run_decompositions()
    fixed = export(Square(), (tn.randn(3),)).run_decompositions()
    x = tn.randn(3)
    assert tn.equal(fixed.module()(x), tn.kron(x, x))


def test_what_stays_whole() -> None:
    """Windows are made by no operator, diag_embed copies by none, and a write is one."""

    class Odd(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            y = x * tn.hann_window(4)
            y.zero_()
            return y + tn.diag_embed(x)

    whole = export(Odd(), (tn.randn(4),))
    parts = whole.run_decompositions()
    assert {"zero_", "diag_embed"} <= set(ops_of(parts))
    x = tn.randn(4)
    assert tn.equal(parts.module()(x), tn.diag_embed(x))


def test_modules_and_statistics_are_kept() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Net(), nn.BatchNorm1d(4)

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.b(F.silu(self.a.first(x)))

    net = Two().train()
    whole = export(net, (tn.randn(6, 3),))
    before = {n: t.clone() for n, t in net.state_dict().items()}
    state = tn.get_rng_state()
    parts = whole.run_decompositions()
    assert tn.equal(tn.get_rng_state(), state)
    for name, value in net.state_dict().items():
        assert tn.equal(value, before[name]), name
    tree = unflatten(parts)
    assert [n for n, _ in tree.named_children()] == ["a", "b"]
    x = tn.randn(6, 3)
    assert tn.equal(tree(x), net(x))
    first, hidden = tree.a.first(x), F.silu(net.a.first(x))
    assert tn.equal(first, net.a.first(x)) and tn.equal(tree.b(hidden), net.b(hidden))


def test_parts_belong_to_the_modules_of_the_whole() -> None:
    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.lin(tn.sinc(x)) + 1

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = Waves(), Waves(), nn.Linear(3, 2)

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.last(tn.rot90(self.second(tn.rot90(self.first(x)))))

    net, x = Whole(), tn.randn(3, 3)
    tree = unflatten(export(net, (x,)).run_decompositions())
    assert tn.equal(tree(x), net(x))
    for part in ("first", "second", "last", "first.lin", "second.lin"):
        assert tn.equal(tree.get_submodule(part)(x), net.get_submodule(part)(x)), part


@pytest.mark.parametrize(
    "fn",
    [
        tn.sinc,
        lambda w: tn.logit(w.sigmoid()),
        lambda w: tn.flip(w, (0, 1)),
        lambda w: tn.cat([w, w.square()]),
        lambda w: tn.rot90(tn.sinc(w)),
        lambda w: tn.sinc(w).logsumexp(0),
    ],
    ids=["sinc", "logit", "flip", "cat", "rot90", "logsumexp"],
)
def test_parts_have_the_gradient_of_the_whole(fn: Any) -> None:
    """Of composites with a formula of their own, too, which compute without recording."""

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(tn.linspace(-1.5, 1.7, 6).reshape(2, 3))

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return (fn(self.w) * x).sum()

    net, x = Weighted(), tn.tensor(1.25)
    parts = export(net, (x,)).run_decompositions()
    assert not {"sinc", "logit", "rot90", "logsumexp"} & set(ops_of(parts))
    (got,) = tn.autograd.grad(parts.module()(x), net.w)
    (wanted,) = tn.autograd.grad(net(x), net.w)
    assert got.abs().sum() > 0
    tn.testing.assert_close(got, wanted)


def test_what_reads_its_values_stays_whole() -> None:
    """The sizes and numbers that come of what was read are right for no other values."""

    class Counts(nn.Module):
        def forward(self, x: tn.Tensor, i: tn.Tensor) -> Any:
            return tn.histc(x, 4), tn.bincount(i, minlength=3) + i.max()

    net = Counts()
    whole = export(net, (tn.tensor([0.0, 1.0, 4.0]), tn.tensor([0, 1, 1])))
    parts = whole.run_decompositions()
    assert {"histc", "bincount"} <= set(ops_of(parts))
    x, i = tn.tensor([-8.0, 2.0, 9.0]), tn.tensor([2, 2, 1])
    for got, wanted in zip(parts.module()(x, i), net(x, i), strict=True):
        assert tn.equal(got, wanted)


@pytest.mark.parametrize("change", [lambda t: t + 1, lambda t: t[:1], lambda t: t.double()])
def test_parts_that_differ_are_an_error(monkeypatch: Any, change: Any) -> None:
    record = apart.record

    def recorded(*args: Any, **kwargs: Any) -> Any:
        made, results = record(*args, **kwargs)
        return made, [change(t) for t in results]

    whole = export(Net().eval(), (tn.randn(5, 3),))
    monkeypatch.setattr(apart, "record", recorded)
    with pytest.raises(RuntimeError, match="^the parts of the composites do not give what the wh"):
        whole.run_decompositions()
    only = {tn.ops.aten.sinc.default: tn.ops.aten.sinc.default.op}
    with pytest.raises(RuntimeError, match="^the parts of [a-z0-9_, ]*sinc.* do not give what the"):
        whole.run_decompositions(only)
    with pytest.raises(RuntimeError, match="^the parts of rot90 do not give what the whole gives"):
        apart.take_apart(whole.program, ["rot90", "logit"])


@pytest.mark.parametrize("fault", [ValueError("four"), MemoryError("full")], ids=["size", "memory"])
def test_sizes_that_nothing_else_can_have(monkeypatch: Any, fault: Exception) -> None:
    record = apart.record

    def recorded(run: Any, by_name: dict[str, tn.Tensor], *args: Any, **kwargs: Any) -> Any:
        if by_name["x"].shape[0] != 4:
            raise fault
        return record(run, by_name, *args, **kwargs)

    class Free(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.sinc(x)

    whole = export(Free(), (tn.ones(4),), dynamic_shapes=({0: Dim("d", min=2, max=9)},))
    monkeypatch.setattr(apart, "record", recorded)
    wanted = "^full$" if isinstance(fault, MemoryError) else "^d: there is no other size to find"
    kind = MemoryError if isinstance(fault, MemoryError) else RuntimeError
    with pytest.raises(kind, match=wanted):
        whole.run_decompositions()


def test_a_number_that_follows_from_a_size_is_an_error() -> None:
    """The root of a free size is a number of the parts."""

    class Attention(nn.Module):
        def forward(self, q: tn.Tensor) -> tn.Tensor:
            return F.scaled_dot_product_attention(q, q, q)

    d = Dim("d", min=2, max=64)
    whole = export(Attention(), (tn.randn(1, 3, 4),), dynamic_shapes=({2: d},))
    with pytest.raises(NotImplementedError, match="size 4 cannot be made free: .*another number"):
        whole.run_decompositions()


def test_values_that_are_no_numbers_and_names() -> None:
    class Roots(nn.Module):
        def forward(self, left: tn.Tensor, right: tn.Tensor) -> Any:
            return tn.sinc(left).sub(2).sqrt(), tn.rot90(right)

    whole = export(Roots(), (tn.ones(3), tn.arange(4).reshape(2, 2)))
    parts = whole.run_decompositions()
    names = [slot[0] for slot in whole.program.inputs]
    assert [slot[0] for slot in parts.program.inputs] == names == ["left", "right"]
    got, turned = parts.module()(tn.ones(3), tn.tensor([[1, 2], [3, 4]]))
    assert got.isnan().all() and tn.equal(turned, tn.tensor([[2, 4], [1, 3]]))


def test_random_operators_draw_what_the_whole_draws() -> None:
    class Noisy(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return F.gumbel_softmax(x) + tn.bernoulli(tn.full_like(x, 0.5))

    x = tn.randn(3, 4)
    whole = export(Noisy(), (x,))
    parts = whole.run_decompositions()
    tn.manual_seed(3)
    wanted = whole.module()(x)
    tn.manual_seed(3)
    assert tn.equal(parts.module()(x), wanted)


def test_gradients_that_are_off_stay_off() -> None:
    class Half(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            with tn.no_grad():
                y = tn.sinc(x)
            return tn.rot90(x) + y

    x = tn.randn(2, 2, requires_grad=True)
    parts = export(Half(), (x,)).run_decompositions()
    (got,) = tn.autograd.grad(parts.module()(x).square().sum(), x)
    (wanted,) = tn.autograd.grad(Half()(x).square().sum(), x)
    tn.testing.assert_close(got, wanted)


TABLES = """
import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._decomp import decomposition_table, remove_decompositions

class M(torch.nn.Module):
    def forward(self, x):
        return torch.rot90(torch.sinc(x))

ep = torch.export.export(M(), (torch.randn(2, 3),))
table = get_decompositions([torch.ops.aten.sinc, torch.ops.aten.mm])
print(table)
targets = [n.target for n in ep.run_decompositions(table).graph.nodes]
print(torch.ops.aten.rot90.default in targets, torch.ops.aten.sinc.default in targets)
table = core_aten_decompositions()
assert table == decomposition_table == torch.export.default_decompositions()
remove_decompositions(table, [torch.ops.aten.rot90.default, torch.ops.aten.mm])
print(len(decomposition_table) - len(table))
"""


def test_tables_of_pytorch_s_names(tmp_path: Path) -> None:
    """Under `tenon run`: torch._decomp, and graphs of operators that have no public name."""
    done = run(tmp_path, TABLES)
    assert done.stdout.splitlines() == [
        "{<OpOverload(op='aten.sinc', overload='default')>: <built-in function sinc>}",
        "True False",
        "1",
    ], done.stderr


def test_buffers_that_results_depend_on() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", tn.ones(()))

        def forward(self, x: tn.Tensor) -> Any:
            self.n.add_(1)
            return tn.sinc(x) * self.n, self.n

    net, x = Counts(), tn.randn(3)
    parts = export(net, (x,)).run_decompositions()
    assert net.n.item() == 1 and "sinc" not in ops_of(parts)
    assert tn.equal(parts.module()(x)[0], tn.sinc(x) * 2)


class Asks(nn.Module):
    def forward(self, d: Any, *, more: Any = None) -> Any:
        return d["a"] - d["b"]["x"] * 2 + (0 if more is None else more[0]["q"] - more[0]["p"])


def test_dicts_are_in_any_order() -> None:
    """Arguments go by their keys; other keys are refused."""
    net, a, b = Asks(), tn.randn(2), tn.randn(2)
    given, more = {"a": a, "b": {"x": b, "y": a}}, [{"q": a, "p": b}]
    turned, turned_more = {"b": {"y": a, "x": b}, "a": a}, [{"p": b, "q": a}]
    wanted = net(given, more=more)
    ep = export(net, (given,), {"more": more})
    for made in (ep.module(), unflatten(ep)):
        assert tn.equal(made(turned, more=turned_more), wanted)
    traced = tn.jit.trace(lambda d, m: net(d, more=m), (given, more), strict=False)
    assert tn.equal(traced(turned, turned_more), wanted)
    for call in (ep.module(), traced):
        for wrong in ({"a": a}, {**given, "c": a}, {"a": a, "b": {"x": b, "z": a}}):
            with pytest.raises(RuntimeError, match="Trying to flatten|recorded for arguments like"):
                call(wrong, turned_more)
