"""Programs with free sizes give what the function gives at every size that they take, or refuse."""

from __future__ import annotations

import contextlib
import math
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
