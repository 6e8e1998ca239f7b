"""Exported programs: free sizes, refusals, graphs, files."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.export import Dim, export, load, save


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("shift", tn.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: tn.Tensor, other: dict[str, tn.Tensor]) -> dict[str, Any]:
        y = self.fc(x) + self.shift + other["y"]
        return {"flat": y.view(x.shape[0] * 3), "rows": y.split(1, dim=1), "n": None}


def example(n: int) -> tuple[Any, ...]:
    return tn.randn(n, 4), {"y": tn.randn(n, 3)}


def assert_same(a: Any, b: Any) -> None:
    assert tn.equal(a["flat"], b["flat"]) and a["n"] is b["n"]
    assert all(tn.equal(x, y) for x, y in zip(a["rows"], b["rows"], strict=True))


def test_free_batch_in_modes_and_files() -> None:
    net, batch = Net(), Dim("batch", min=1, max=64)
    shapes = {"x": {0: batch}, "other": {"y": {0: batch}}}
    ep = export(net, example(2), dynamic_shapes=shapes)
    assert ep.range_constraints == {"batch": (1, 64)}
    assert set(ep.state_dict) == {"fc.weight", "fc.bias", "shift"}
    buffer = io.BytesIO()
    save(ep, buffer)
    buffer.seek(0)
    again = load(buffer)
    for n in (1, 2, 5, 64):
        args = example(n)
        for runs in (ep.module(), again.module()):
            assert_same(runs(*args), net(*args))
        weights = [ep.state_dict[n] for n in ("fc.weight", "fc.bias", "shift")]
        flat = ep.graph_module(*weights, args[0], args[1]["y"])
        assert tn.equal(flat[0], net(*args)["flat"])
    with pytest.raises(RuntimeError, match=r"batch \(1 to 64\)"):
        ep.module()(*example(65))
    with pytest.raises(RuntimeError, match="batch"):
        ep.module()(tn.randn(2, 4), {"y": tn.randn(3, 3)})
    with pytest.raises(RuntimeError, match="directly"):
        ep(*example(2))


def test_fixed_sizes() -> None:
    ep = export(Net(), example(2))
    with pytest.raises(RuntimeError, match=r"\[2, 4\], not \[3, 4\]"):
        ep.module()(*example(3))


def test_two_sizes() -> None:
    class Scores(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            b, t = x.shape[:2]
            mask = tn.ones(t, t).tril()
            return (x.reshape(b, t, -1) @ x.transpose(1, 2) * mask)[:, t - 1 :, : t // 1]

    ep = export(
        Scores(),
        (tn.randn(2, 3, 4),),
        dynamic_shapes=({0: Dim("b", min=1), 1: Dim("t", min=2, max=9)},),
    )
    for shape in ((1, 2, 4), (5, 9, 4), (2, 3, 4)):
        x = tn.randn(*shape)
        assert tn.equal(ep.module()(x), Scores()(x))


def test_equal_bytes() -> None:
    net = Net()
    files = [io.BytesIO(), io.BytesIO()]
    for f in files:
        save(export(net, example(2)), f)
    assert files[0].getvalue() == files[1].getvalue()


class Branch(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x.sum() > 0 else x


class Halves(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x[: x.shape[0] // 2]


class Loop(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        for i in range(x.shape[0]):
            x = x + i
        return x


def _data(x: tn.Tensor) -> tn.Tensor:
    y = x * 2
    y.data = y + 1
    return y * 3


def _data_of_input(x: tn.Tensor) -> tn.Tensor:
    x.data = x + 1
    return x * 2


def _set(x: tn.Tensor) -> tn.Tensor:
    return tn.empty(0).set_(x * 2) + 1


def _resized(x: tn.Tensor) -> tn.Tensor:
    return (x * 1).resize_(2, 6)


def _swapped(x: tn.Tensor) -> tn.Tensor:
    y, z = x * 2, x * 3
    tn.utils.swap_tensors(y, z)
    return y - z


def _storage(x: tn.Tensor) -> tn.Tensor:
    y = x * 1
    y.untyped_storage().fill_(0)
    return y + 1


@pytest.mark.parametrize("fn", (_data, _data_of_input, _set, _resized, _swapped, _storage))
def test_memory_that_no_operator_gives(fn: Any) -> None:
    class Calls(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return fn(x)

    def made(more: int) -> tn.Tensor:
        return tn.arange(12.0).reshape(3, 4) + more

    for record in (lambda: export(Calls(), (made(0),)), lambda: tn.jit.trace(fn, (made(0),))):
        with pytest.raises(RuntimeError, match="other memory or sizes"):
            record()
    for options in ({}, {"backend": "eager"}):
        fast = tn.compile(fn, **options)
        for more in (1, 2, 3):
            assert tn.equal(fast(made(more)), fn(made(more)))


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"looks at values(.|\n)*test_export\.py"):
        export(Branch(), (tn.ones(2),))
    free = ({0: Dim("n", min=2)},)
    with pytest.raises(NotImplementedError, match="slice"):
        export(Halves(), (tn.ones(8),), dynamic_shapes=free)
    with pytest.raises(NotImplementedError, match="course"):
        export(Loop(), (tn.ones(4),), dynamic_shapes=free)
    with pytest.raises(ValueError, match=r"nn\.Module"):
        export(lambda x: x, (tn.ones(2),))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="'z'"):
        export(Branch(), (tn.ones(2),), dynamic_shapes={"z": {0: Dim("n")}})
    with pytest.raises(IndexError, match="no dimension 3"):
        export(Branch(), (tn.ones(2),), dynamic_shapes={"x": {3: Dim("n")}})
    with pytest.raises(ValueError, match="identifier"):
        Dim("a b")


def test_graphs_are_changed_and_run() -> None:
    """A graph module of an export is one like any other."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    gm = export(net, (tn.randn(2, 4),), dynamic_shapes=({0: Dim("n")},)).module()
    for node in gm.graph.nodes:
        if node.target == tn.ops.aten.relu.default:
            node.target = tn.ops.aten.tanh.default
    gm.graph.lint()
    gm.recompile()
    x = tn.randn(5, 4)
    assert tn.allclose(gm(x), net[2](tn.tanh(net[0](x))))


def test_arguments_of_other_kinds() -> None:
    """The classes of errors are PyTorch's."""

    class Scaled(nn.Module):
        def forward(self, d: dict[str, tn.Tensor], k: int) -> tn.Tensor:
            return d["x"] * k

    free = {"d": {"x": {0: Dim("n", min=2, max=4)}}, "k": None}
    run = export(Scaled(), ({"x": tn.ones(3, 2)}, 3), dynamic_shapes=free).module()
    for x, what in ((tn.ones(5, 2), "[0] <= 4"), (tn.ones(1, 2), "[0] >= 2"),
                    (tn.ones(3, 3), "[1] == 2")):  # fmt: skip
        with pytest.raises(AssertionError, match=re.escape(f"Guard failed: d['x'].size(){what}")):
            run({"x": x}, 3)
    with pytest.raises(AssertionError, match="Guard failed: k == 3"):
        run({"x": tn.ones(3, 2)}, 4)
    with pytest.raises(ValueError, match="Trying to flatten user inputs with exported input tree"):
        run({"z": tn.ones(3, 2)}, 3)


def test_maps_over_rows() -> None:
    from tenon._torch import _higher_order_ops as higher

    class Rows(nn.Module):
        def forward(self, xs: tn.Tensor, y: tn.Tensor) -> Any:
            return higher.map(lambda x, y: {"s": (x * y).sum(), "t": x - y}, xs, y)

    xs, y = tn.randn(3, 2), tn.randn(2)
    got = export(Rows(), (xs, y)).module()(xs, y)
    tn.testing.assert_close(got, {"s": (xs * y).sum(1), "t": xs - y})
    with pytest.raises(RuntimeError, match="Leading dimensions"):
        higher.map(lambda x: x, tn.ones(()))


class Sizes(nn.Module):
    """Numbers that follow from two sizes, and a function that takes even ones alone."""

    def forward(self, x: tn.Tensor, y: tn.Tensor) -> tuple[Any, ...]:
        b, t = x.shape[:2]
        halves = tn.cat([y[::2], y[1::2]]) + y.view(-1, 2).T.flatten()
        flat = x.reshape(b * t, -1)
        rows = [tn.zeros(b + t), tn.ones((b + 2) * t), tn.ones(b * (3 * t + 1)), tn.ones(b * t - t)]
        return flat, *rows, tn.arange(b * t * len(y)), halves, b, {"n": [x.numel(), 7]}


def test_numbers_that_follow_from_several_sizes(tmp_path: Path) -> None:
    b, t, n = (Dim(name) for name in "btn")
    shapes = ({0: b, 1: t}, {0: n})
    ep = export(Sizes(), (tn.randn(3, 5, 2), tn.randn(4)), dynamic_shapes=shapes)
    assert "b*(t*3+1)" in str(ep.program) and "(b+2)*t" in str(ep.program)
    save(ep, tmp_path / "sizes.tng")
    for made in (ep, load(tmp_path / "sizes.tng")):
        changed = made.module()
        changed.recompile()
        for run in (made.module(), changed):
            for i, j, k in ((3, 5, 4), (2, 7, 6), (6, 1, 2), (4, 4, 10)):
                x, y = tn.randn(i, j, 2), tn.randn(k)
                tn.testing.assert_close(run(x, y), Sizes()(x, y))


@pytest.mark.parametrize("given", [lambda n: n > 4, lambda n: n / 2, lambda n: f"{n}"])
def test_returned_values_that_follow_by_no_rule(given: Any) -> None:
    class Gives(nn.Module):
        def forward(self, x: tn.Tensor) -> Any:
            return x.sum(), given(x.shape[0])

    with pytest.raises(RuntimeError, match="returns beside tensors"):
        export(Gives(), (tn.ones(6),), dynamic_shapes=({0: Dim("n")},))


def test_sizes_that_mix_by_no_rule() -> None:
    class Mixed(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.zeros(2 * x.shape[0] * x.shape[1] + 3 * x.shape[0] + 4 * x.shape[1] + 5)

    free = ({0: Dim("b"), 1: Dim("t")},)
    with pytest.raises(NotImplementedError, match="several sizes by no rule"):
        export(Mixed(), (tn.ones(3, 5),), dynamic_shapes=free)


def test_graphs_with_writes_and_modes() -> None:
    class Writes(nn.Module):
        def forward(self, x: tn.Tensor) -> tuple[tn.Tensor, ...]:
            y = x.clone()
            y[0].mul_(3).clamp_(min=0)
            with tn.no_grad():
                z = y * 2
            values, places = (y + z).max(dim=1)
            return y, values, places

    x = tn.randn(3, 4)
    gm = export(Writes(), (x,)).graph_module
    for a, b in zip(gm(x), Writes()(x), strict=True):
        assert tn.equal(a, b)


def test_buffers_that_inference_mode_made() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with tn.inference_mode():
                self.register_buffer("by", tn.ones(3))

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return x + self.by

    made = export(Shift(), (tn.ones(2, 3),), dynamic_shapes=({0: Dim("rows")},)).module()
    assert tn.equal(made(tn.ones(4, 3)), tn.full((4, 3), 2.0))
