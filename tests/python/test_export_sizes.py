"""Programs with free sizes give what the function gives at every size that they take, or refuse."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import jit, nn
from tenon.export import Dim, export
from tenon.utils._pytree import tree_leaves

F = nn.functional

# Each takes a tensor of rows and columns. Many follow from sizes by no rule of a program.
FUNCTIONS: list[Any] = [
    lambda x: x * (1.0 / x.shape[1]),
    lambda x: x * math.sqrt(x.shape[1]),
    lambda x: x[:, : x.shape[1] // 2],
    lambda x: tn.cat(x.chunk(3, 1)[::-1], 1),
    lambda x: tn.cat([x[:, i] * i for i in range(x.shape[1])]),
    lambda x: F.pad(x, (0, 8 - x.shape[1] % 8)),
    lambda x: x.repeat(x.shape[0], 1),
    lambda x: tn.full((x.shape[1],) * 2, -1e9).triu(1),
    lambda x: x + tn.tensor(list(range(x.shape[1]))),
    lambda x: x.std(1) * (x.shape[1] / (x.shape[1] - 1)),
    lambda x: F.interpolate(x[None], size=x.shape[1] * 2),
    lambda x: x.topk(min(5, x.shape[1]), 1).values,
    lambda x: F.layer_norm(x, x.shape[1:]),
    lambda x: x.T.reshape(x.shape[1] * x.shape[0]),
    lambda x: tn.zeros(x.numel() // 2),
    lambda x: x.sum() if x.shape[1] > 4 else x.mean(),
    lambda x: x[tn.arange(x.shape[0]), x.shape[1] - 1],
    lambda x: tn.tensor(x.shape),
    lambda x: x.clamp(max=x.shape[1]),
    lambda x: F.softmax(x / x.shape[1] ** 0.5, 1),
    lambda x: tn.linspace(0, x.shape[1], 5),
    lambda x: x.unflatten(0, (2, -1)).sum(0) * x.shape[0],
    lambda x: sum(x.unbind(1)),
    lambda x: F.max_pool1d(x, x.shape[1] // 2),
    lambda x: x.kthvalue(x.shape[1] // 2, 1).values,
    lambda x: tn.addmm(tn.ones(len(x), len(x)), x, x.T, beta=x.shape[1]),
    lambda x: (x.shape[0], x.shape[1] * 2, x.sum()),
    lambda x: (x.sum(), f"{x.shape[1]}"),
    lambda x: (x.sum(), x.shape[1] > 4, x.shape[0] / 2),
    lambda x: {"n": x.shape[1] // 2, "x": x.view(-1)[: x.numel() - 3]},
]


class Function(nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: tn.Tensor) -> Any:
        return self.fn(x)


def exported(fn: Any) -> Any:
    free = ({0: Dim("b"), 1: Dim("t")},)
    return export(Function(fn), (tn.randn(4, 6),), dynamic_shapes=free).module()


def traced(fn: Any) -> Any:
    return jit.trace(fn, (tn.randn(4, 6),))


def refused(made: Any, *args: Any) -> Any:
    with contextlib.suppress(RuntimeError):
        return made(*args)
    return None


@pytest.mark.parametrize("make", [exported, traced])
def test_no_size_gives_what_another_one_does(make: Any) -> None:
    taken = 0
    for i, fn in enumerate(FUNCTIONS):
        run = refused(make, fn)
        if run is None:
            continue
        for shape in ((4, 6), (4, 9), (4, 3), (2, 7), (8, 5), (6, 16)):
            x = tn.randn(shape)
            got = refused(run, x)
            if got is not None:
                taken += 1
                for a, b in zip(tree_leaves(got), tree_leaves(fn(x)), strict=True):
                    same = a == b
                    if isinstance(b, tn.Tensor):
                        same = a.shape == b.shape and tn.allclose(a, b, rtol=1e-4, atol=1e-5)
                    assert type(a) is type(b) and same, f"function {i} at {shape}"
    assert taken > 60


def test_the_first_recording_that_can_be_made_decides(monkeypatch) -> None:
    """A program that other sizes have shown to be wrong is not saved by yet others."""
    from tenon import _program

    class Recorded:
        _program = object()

    asked: list[object] = []

    def differ(one: object, other: object) -> None:
        asked.append(other)
        raise RuntimeError("another number")

    def refuse() -> None:
        raise ValueError("not this size")

    monkeypatch.setattr(_program._C, "_program_agrees", differ)
    program = _program.Program.__new__(_program.Program)
    program._program = object()
    with pytest.raises(RuntimeError, match="another number"):
        program.agrees("n", [refuse, lambda: None, Recorded, Recorded])
    assert asked == [Recorded._program]
    with pytest.raises(RuntimeError, match="n: no other sizes .* not this size"):
        program.agrees("n", [refuse])


def attention(x: tn.Tensor, mask: tn.Tensor) -> tn.Tensor:
    return (x @ x.transpose(1, 2) + mask).softmax(-1) @ x * mask.shape[0]


# A size that stands in several dimensions: example, what else fits, what does not.
SHARED: dict[str, tuple[Any, Any, Any, Any]] = {
    "attention": (
        attention, [(2, 5, 4), (5, 5)], [[(3, 5, 4), (5, 5)], [(2, 7, 4), (7, 7)],
        [(3, 1, 6), (1, 1)]], [(3, 9, 4), (9, 8)]),
    "product": (
        tn.matmul, [(3, 4), (4, 5)], [[(2, 6), (6, 7)], [(2, 3), (3, 2)]], [(2, 3), (4, 5)]),
    "square": (lambda x: x @ x * x.shape[1], [(4, 4)], [[(6, 6)], [(9, 9)]], [(5, 6)]),
}  # fmt: skip


class Call(nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: tn.Tensor) -> Any:
        return self.fn(*args)


def of_hints(fn: Any, example: list[tn.Tensor], folder: Path) -> Any:
    return hinted(fn, example).module()


def hinted(fn: Any, example: list[tn.Tensor]) -> Any:
    free = tuple(dict.fromkeys(range(t.ndim), Dim.AUTO) for t in example)
    return export(Call(fn), tuple(example), dynamic_shapes=(free,))


def of_parts(fn: Any, example: list[tn.Tensor], folder: Path) -> Any:
    return hinted(fn, example).run_decompositions().module()


def of_a_trace(fn: Any, example: list[tn.Tensor], folder: Path) -> Any:
    jit.trace(fn, tuple(example)).save(folder / "a.tng")
    return jit.load(folder / "a.tng")


@pytest.mark.parametrize("make", [of_hints, of_parts, of_a_trace])
@pytest.mark.parametrize("name", SHARED)
def test_sizes_in_several_dimensions(name: str, make: Any, tmp_path: Path) -> None:
    fn, example, fitting, other = SHARED[name]
    run = make(fn, [tn.randn(s) for s in example], tmp_path)
    for shapes in (example, *fitting):
        given = [tn.randn(s) for s in shapes]
        tn.testing.assert_close(run(*given), fn(*given))
    with pytest.raises(RuntimeError):
        run(*[tn.randn(s) for s in other])


def test_one_name_in_several_dimensions() -> None:
    size = Dim("t", min=2, max=64)
    shapes = (({1: size}, {0: size, 1: size}),)
    example = tn.randn(2, 5, 4), tn.randn(5, 5)
    program = export(Call(attention), example, dynamic_shapes=shapes)
    assert "float32[t, t]" in program.code
    given = tn.randn(2, 7, 4), tn.randn(7, 7)
    tn.testing.assert_close(program.module()(*given), attention(*given))
    with pytest.raises(RuntimeError, match="t"):
        program.module()(tn.randn(2, 7, 4), tn.randn(7, 6))


@pytest.mark.parametrize("how", [Dim.DYNAMIC, Dim.AUTO])
def test_hints_have_bounds(how: Any) -> None:
    """Those that they say; without, any size but none at all."""
    sizes = (0, 1, 2, 3, 6, 7)
    hints = {
        how: (1, 2, 3, 6, 7), how(min=3): (3, 6, 7), how(max=6): (1, 2, 3, 6),
        how(min=0, max=6): (0, 1, 2, 3, 6), how(min=3, max=6): (3, 6),
    }  # fmt: skip
    for hint, taken in hints.items():
        example = (tn.ones(4, 2),)
        run = export(Call(tn.neg), example, dynamic_shapes=(({0: hint},),)).module()
        for n in sizes:
            if n in taken:
                assert run(tn.ones(n, 2)).shape == (n, 2)
            else:
                with pytest.raises(RuntimeError):
                    run(tn.ones(n, 2))


def test_names_of_sizes_of_a_trace_differ(tmp_path: Path) -> None:
    run = of_a_trace(lambda x, y: x.sum() * x.shape[0] + y * y.shape[0],
                     [tn.randn(4), tn.randn(6)], tmp_path)  # fmt: skip
    assert {s["name"] for s in run.program.data["symbols"]} == {"batch", "y_0"}
    x, y = tn.randn(3), tn.randn(8)
    tn.testing.assert_close(run(x, y), x.sum() * 3 + y * 8)


# ---- Sizes of several inputs that follow from one ------------------------------------------------


def test_sizes_that_follow_from_one(tmp_path: Path) -> None:
    """Of each: a function, the rules of its inputs' sizes, sizes of the Dim, bounds."""
    b = Dim("b", min=2, max=40)
    cases: list[tuple[Any, tuple[Any, ...], tuple[int, int]]] = [
        (lambda x, y: (x.sum(0) + y.sum(0), y.shape[0]), (b, 2 * b), (2, 40)),
        (lambda x, y: y[::2] * x.shape[0] + x, (b, 2 * b), (2, 40)),
        (lambda x, y: x + y[1:] * y.shape[0], (b, b + 1), (2, 40)),
        (lambda x, y: x[:-1] - y, (b, b - 1), (2, 40)),
        (lambda x, y: tn.cat([x, y]).reshape(-1, 3) * len(x), (2 * b, b), (2, 40)),
        (lambda x, y: x.view(3, -1).sum(0) + y.view(2, -1).sum(0), (3 * b, 2 * b), (2, 40)),
        (lambda x, y: x + y[:-2] if y.shape[0] < 20 else x, (b, b + 2), (2, 17)),
    ]
    for fn, rules, (low, high) in cases:

        class Net(nn.Module):
            def forward(self, x: Any, y: Any, fn: Any = fn) -> Any:
                return fn(x, y)

        def sizes(n: int, rules: Any = rules) -> list[int]:
            return [getattr(d, "times", 1) * n + getattr(d, "plus", 0) for d in rules]

        def call(n: int) -> Any:
            return tuple(tn.randn(s) for s in sizes(n))  # noqa: B023

        dim = Dim("b", min=2, max=high)
        free = tuple({0: getattr(d, "times", 1) * dim + getattr(d, "plus", 0)} for d in rules)
        if high < 40:
            with pytest.raises(RuntimeError, match="Constraints violated"):
                export(Net(), call(5), dynamic_shapes=tuple({0: d} for d in rules))
        made = export(Net(), call(5), dynamic_shapes=free)
        tn.export.save(made, tmp_path / "p.tng")
        loaded = tn.export.load(tmp_path / "p.tng")
        assert loaded.program.data == made.program.data
        for program in (made, loaded, made.run_decompositions()):
            run = program.module()
            for n in (low, 3, 8, high):
                x, y = call(n)
                for a, w in zip(tree_leaves(run(x, y)), tree_leaves(fn(x, y)), strict=True):
                    assert tn.allclose(tn.as_tensor(a), tn.as_tensor(w), atol=1e-6), n
            for n, more in ((4, 1), (high + 1, 0)):
                x, y = (tn.randn(s + (more if i else 0)) for i, s in enumerate(sizes(n)))
                with pytest.raises(AssertionError, match="Guard failed"):
                    run(x, y)
    with pytest.raises(RuntimeError, match="Constraints violated"):
        export(Net(), (tn.ones(4), tn.ones(7)), dynamic_shapes=({0: b}, {0: b + 2}))


@pytest.mark.parametrize(
    "bounds, words",
    [({"min": -1}, "non-negative"), ({"max": -1}, "non-negative"), ({"min": 3, "max": 2}, "<=")],
)
def test_bounds_of_hints_are_looked_at(bounds: dict[str, int], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        Dim.AUTO(**bounds)


class Counting(nn.Module):
    """Counts the calls with more than four rows."""

    def __init__(self, kind: Any = nn.Buffer) -> None:
        super().__init__()
        self.count = kind(tn.zeros(()))

    @tn.no_grad()
    def forward(self, x: Any) -> Any:
        if x.shape[0] > 4:
            self.count.add_(1)
        return x * 2


WRITES: dict[str, Any] = {
    "above a size": lambda x: x.add_(1) if x.shape[0] > 4 else x.add(1),
    "below a size": lambda x: x.add(1) if x.shape[0] > 4 else x.add_(1),
    "what is not returned": lambda x: (x * 2, x.mul_(2 if x.shape[0] > 4 else 3))[0],
    "a buffer": Counting(),
    "a parameter": Counting(nn.Parameter),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_depends_on_no_free_size(name: str) -> None:
    with pytest.raises(RuntimeError, match="does the same for n from 5 to 9"):
        export(
            Call(WRITES[name]), (tn.ones(5, 3),), dynamic_shapes=(({0: Dim("n", min=2, max=9)},),)
        )


@pytest.mark.parametrize("kind", [nn.Buffer, nn.Parameter])
def test_what_a_hidden_size_writes_is_looked_at(kind: Any) -> None:
    """No comparison shows that the call with five rows does something else."""

    class Hidden(Counting):
        @tn.no_grad()
        def forward(self, x: Any) -> Any:
            if str(int(x.shape[0])) == "5":
                self.count.add_(1)
            return x * 2

    with pytest.raises(RuntimeError, match="n: with 5 the function gives or writes something else"):
        export(Hidden(kind), (tn.ones(4),), dynamic_shapes=({0: Dim("n")},))


@pytest.mark.parametrize("rows", [3, 7])
def test_what_is_written_at_every_size_is_written(rows: int) -> None:
    def write(x: Any, y: Any) -> Any:
        y.mul_(x.shape[0])
        return x.add_(1), x.sum()

    given, n = (tn.arange(10.0).reshape(5, 2), tn.ones(2)), Dim("n", min=2, max=9)
    run = export(Call(write), given, dynamic_shapes=(({0: n}, None),)).module()
    assert given[0].equal(tn.arange(10.0).reshape(5, 2)) and given[1].equal(tn.ones(2))
    x, y = tn.arange(2.0 * rows).reshape(rows, 2), tn.ones(2)
    before = x.clone()
    first, second = run(x, y)
    assert first.equal(before + 1) and x.equal(before + 1) and y.equal(tn.full((2,), float(rows)))
    assert second.equal((before + 1).sum())
