"""A recorded program as text, as a picture and as data: every kind of argument is there as it was
given, and a program that was written down computes the same."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import _program

F = tn.nn.functional


def calls(x: Any, w: Any) -> list[Any]:
    y = x.clamp(-0.5, math.inf)
    wide = y.to(tn.float64).sum([0, 1], keepdim=True)
    both = tn.cat([x, y], 1).masked_fill(x.repeat(1, 2) > 0, math.nan)
    half = tn.full((2,), 3.0, dtype=tn.float16, device="cpu")
    padded = F.pad(x, (1, 1), value=-2.0).add(w, alpha=0.1)
    rest = [F.gelu(x, approximate="tanh"), tn.mul(y, 1 + 2j), x.argmax(), *x.topk(2)]
    return [wide, both, half, padded, *rest]


def recorded(rows: int = 2) -> tuple[_program.Program, Sequence[Any]]:
    x, w = tn.arange(3.0 * rows).reshape(rows, 3) - 2, tn.tensor([0.25])
    return _program.record(lambda: calls(x, w), {"x": x}, [("w", 0, w)])


LINES = """
program(%x: float32[2, 3]):
%2 = clamp(input=%x, min=-0.5, max=inf)  # float32[2, 3]
dtype=float64, device=None, non_blocking=False
= sum(input=%3, dim=[0, 1], keepdim=True, dtype=None)  # float64[1, 1]
= cat(tensors=[%x, %2], dim=1)  # float32[2, 6]
= repeat(input=%x, repeats=[1, 2])  # float32[2, 6]
= gt(input=%6, other=0)  # bool[2, 6]
value=nan)  # float32[2, 6]
= full(size=[2], fill_value=3.0, dtype=float16, device=cpu:0)  # float16[2]
= pad(input=%x, pad=[1, 1], mode="constant", value=-2.0)  # float32[2, 5]
alpha=0.10000000000000001)  # float32[2, 5]
approximate="tanh")  # float32[2, 3]
other=complex(1, 2))  # complex64[2, 3]
= argmax(input=%x, dim=None, keepdim=False)  # int64[]
= topk(input=%x, k=2, dim=1, largest=True, sorted=True)  # float32[2, 2], int64[2, 2]
""".strip().splitlines()


def test_text_shows_every_kind_of_argument() -> None:
    text = str(recorded()[0])
    assert [line for line in LINES if line not in text] == []
    assert len(re.findall("^  %", text, re.M)) == 15  # a weight and fourteen nodes
    assert text.splitlines()[-1].count("%") == 9


def test_data_has_the_arguments_as_they_were_given() -> None:
    data = recorded()[0].data
    args = {node["op"]: node["args"] for node in data["nodes"]}
    assert args["clamp"] == {"input": {"v": 0}, "min": -0.5, "max": {"f": "inf"}}
    assert args["sum"]["dim"] == [0, 1] and args["sum"]["keepdim"] is True
    assert args["sum"]["dtype"] is None
    assert args["cat"] == {"tensors": [{"v": 0}, {"v": 2}], "dim": 1}
    assert args["masked_fill"]["value"] == {"f": "nan"}
    assert args["full"] == {"size": [2], "fill_value": 3.0, "dtype": {"dtype": "float16"},
                            "device": {"device": "cpu:0"}}  # fmt: skip
    assert args["pad"] == {"input": {"v": 0}, "pad": [1, 1], "mode": "constant", "value": -2.0}
    assert args["add"]["alpha"] == 0.1 and args["add"]["other"] == {"v": 1}
    assert args["mul"]["other"] == {"c": [1, 2]}
    assert args["argmax"] == {"input": {"v": 0}, "dim": None, "keepdim": False}
    roles = [v["role"] for v in data["values"]]
    assert roles[:2] == ["input", "weight"] and set(roles[2:]) == {"node"}
    assert [data["values"][i]["name"] for i in (0, 1)] == ["x", "w"]
    assert data["inputs"] == [0] and len(data["outputs"]) == 9


def test_picture_has_a_node_for_each_call_and_an_arrow_for_each_operand() -> None:
    program, _ = recorded()
    dot, data = program.print("dot"), program.data
    assert 'v0 [shape=ellipse, label="x\\nfloat32[2, 3]"];' in dot
    assert 'v1 [shape=note, label="w\\nfloat32[1]"];' in dot
    boxes = re.findall(r'n(\d+) \[shape=box, label="(\w+)\\n(.*)"\];', dot)
    assert [op for _, op, _ in boxes] == [node["op"] for node in data["nodes"]]
    assert boxes[-1][2] == "float32[2, 2]\\nint64[2, 2]"
    arrows = {tuple(a) for a in re.findall(r"(\w+) -> (\w+);", dot)}
    maker = {out: f"n{i}" for i, node in enumerate(data["nodes"]) for out in node["outs"]}
    maker |= {0: "v0", 1: "v1"}
    wanted = {
        (maker[int(v)], f"n{i}")
        for i, node in enumerate(data["nodes"])
        for v in re.findall(r"\{'v': (\d+)\}", str(node["args"]))
    }
    wanted |= {(maker[v], f"o{i}") for i, v in enumerate(data["outputs"])}
    assert arrows == wanted


def test_what_was_written_down_computes_the_same() -> None:
    program, results = recorded()
    again = _program.load(program.to_bytes())
    assert str(again) == str(program) and again.data == program.data
    x = tn.arange(6.0).reshape(2, 3) - 2
    for run in (program, again):
        for got, want in zip(run(x), results, strict=True):
            assert got.dtype is want.dtype
            np.testing.assert_array_equal(got.numpy(), want.numpy())
    again.note = "of mine"
    assert _program.load(again.to_bytes()).note == "of mine" and program.note == ""


@pytest.mark.parametrize("low, high", [(1, 4), (2, 2)])
def test_a_free_size_has_its_name_and_bounds(low: int, high: int) -> None:
    program, other = recorded(2)[0], recorded(5)[0]
    program.generalize(other, [0], 0, low, high, "n")
    assert "program(%x: float32[n, 3])" in str(program)
    assert f"size n: {low} to {high}" in str(program)
    assert program.inputs[0][2] == (-1, 3)
    for rows in range(1, 6):
        x = tn.arange(3.0 * rows).reshape(rows, 3)
        if low <= rows <= high:
            want = calls(x, tn.tensor([0.25]))
            for got, w in zip(program(x), want, strict=True):
                np.testing.assert_array_equal(got.numpy(), w.numpy())
        else:
            with pytest.raises((RuntimeError, ValueError), match="n"):
                program(x)


X, V = tn.arange(6.0).reshape(2, 3), tn.tensor([0.5, 2.0, 3.0])
OPTIMIZED = """
program(%x: float32[2, 3]):
  %v = constant float32[3]
  %3 = constant float32[3]
  %4 = constant float32[3]
  %9 = constant float32[]
  %2 = exp(input=%x)  # float32[2, 3]
  %5 = sum(input=%2, dim=[0], keepdim=False, dtype=None)  # float32[3]
  %6 = sub(input=%2, other=%5, alpha=1)  # float32[2, 3]
  %7 = sub(input=%4, other=%2, alpha=1)  # float32[2, 3]
  %8 = mul(input=%3, other=%2)  # float32[2, 3]
  %10 = mul(input=%9, other=%x)  # float32[2, 3]
  return %6, %7, %8, %10
""".lstrip()


def test_what_is_known_equal_or_unused_is_not_computed() -> None:
    """Calls of constants are made in advance, equal ones once, and those for nothing never."""

    def repeated() -> list[Any]:
        first, second = X.exp(), X.exp()
        known, same = V.exp() + 1, V.exp() + 1
        X.sin()
        return [second - first.sum(0), same - second, known * first, (V * 2).sum() * X]

    program, results = _program.record(repeated, {"x": X}, [("v", 0, V)])
    program.optimize()
    assert str(program) == OPTIMIZED
    assert [w[2].tolist() for w in program.weights[1:]] == [(V.exp() + 1).tolist()] * 2 + [11.0]
    for made in (program, _program.load(program.to_bytes())):
        for got, want in zip(made(X), results, strict=True):
            assert tn.equal(got, want)


DIFFERENT: dict[str, Any] = {
    "dim": lambda: [X.sum(0), X.sum(1)],
    "keepdim": lambda: [X.sum(0), X.sum(0, keepdim=True)],
    "number": lambda: [X + 1, X + 2],
    "number or float": lambda: [X * 1, X * 1.0],
    "alpha": lambda: [X.add(V), X.add(V, alpha=2)],
    "order": lambda: [X - V, V - X],
    "bounds": lambda: [X.clamp(min=1), X.clamp(max=1)],
    "sizes": lambda: [X.reshape(6), X.reshape(3, 2)],
    "length": lambda: [X.repeat(2, 1), X.repeat(2, 1, 1)],
    "text": lambda: [F.gelu(X), F.gelu(X, approximate="tanh")],
    "dtype": lambda: [X.to(tn.float64), X.to(tn.float16)],
    "count": lambda: [X.topk(1)[0], X.topk(2)[0]],
    "random": lambda: [tn.rand(2) + X[0, 0], tn.rand(2) + X[0, 0]],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_calls_that_differ_are_both_made(what: str) -> None:
    program, results = _program.record(DIFFERENT[what], {"x": X}, [("v", 0, V)])
    before = len(program.data["nodes"])
    program.optimize()
    assert len(_program.load(program.to_bytes()).data["nodes"]) == before
    if what != "random":
        for got, want in zip(program(X), results, strict=True):
            assert got.dtype is want.dtype and tn.equal(got, want)
    else:
        one, other = program(X)
        assert not tn.equal(one, other)


FORKS: dict[str, tuple[Any, str]] = {
    "argument": (lambda x, v, far: x.sort(0, descending=far)[0], "(sort) has another argument"),
    "absent": (lambda x, v, far: x.clamp(*((1, 2) if far else (1,))), "(clamp)"),
    "absent number": (lambda x, v, far: x[0].argmax(0 if far else None),
                      "(argmax) has another argument"),
    "text": (lambda x, v, far: F.gelu(x, approximate="tanh" if far else "none"),
             "(gelu) has another text"),
    "number": (lambda x, v, far: F.leaky_relu(x, 0.5 if far else 0.25),
               "has another number that is no whole one"),
    "values": (lambda x, v, far: v * x if far else x * v, "(mul) takes other values"),
    "operator": (lambda x, v, far: x.exp() if far else x.sin(), "node 0 is sin, and exp when"),
}  # fmt: skip


@pytest.mark.parametrize("what", FORKS)
def test_a_size_that_more_follows_from_cannot_be_free(what: str) -> None:
    function, words = FORKS[what]

    def made(rows: int) -> _program.Program:
        x = tn.ones(rows, 3)
        return _program.record(lambda: [function(x, V, rows > 4)], {"x": x}, [("v", 0, V)])[0]

    program = made(2)
    text = str(program)
    with pytest.raises(NotImplementedError, match=re.escape(words)):
        program.generalize(made(6), [0], 0, 2, 9, "n")
    assert str(program) == text
    program.generalize(made(3), [0], 0, 2, 4, "n")
    assert tn.equal(program(tn.ones(4, 3))[0], function(tn.ones(4, 3), V, False))


def test_what_a_file_cannot_hold_is_refused() -> None:
    """Weights are written one by one: two that share memory would come back apart."""
    both = tn.ones(4)
    weights = [("all", 2, both), ("half", 2, both[:2])]
    x = tn.ones(2)
    read, _ = _program.record(lambda: [x * both[:2].sum() + both.sum()], {"x": x}, weights)
    assert tn.equal(_program.load(read.to_bytes())(x)[0], read(x)[0])
    half = weights[1][2]
    written, _ = _program.record(lambda: [x + half.add_(1)], {"x": x}, weights)
    with pytest.raises(NotImplementedError, match="writes to a weight that shares memory"):
        written.to_bytes()


def test_fused_results_lie_as_their_inputs_do() -> None:
    x = tn.arange(16.0).reshape(4, 4)
    program, _ = _program.record(lambda: [(x + 1) * x], {"x": x})
    assert program.fused
    wide = tn.arange(64.0).reshape(4, 4, 4)
    for form in (
        x,
        x.t(),
        tn.arange(32.0).reshape(4, 8)[:, ::2],
        wide[0],
        wide[:, 1],
        wide[..., 2],
    ):
        for given in (form, form.t()):
            [got], want = program(given), (given + 1) * given
            assert tn.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("length", [15, 16, 21, 22, 31, 32, 33, 40, 64, 65, 90])
def test_long_chains_are_cut_where_a_kernel_ends(length: int) -> None:
    def chain(x: Any) -> list[Any]:
        y = x
        for k in range(length):
            y = y * (1 + 1 / (k + 2)) - x if k % 3 else y.add(x, alpha=0.5 + k) / (k + 1.5)
        return [y]

    x = tn.linspace(-2, 2, 37)
    program, _ = _program.record(lambda: chain(x), {"x": x})
    assert program.fused
    want = chain(x.double())[0].numpy()
    size = np.abs(want).max()
    np.testing.assert_allclose(program(x)[0].numpy(), want, rtol=1e-4, atol=1e-5 * size)
    np.testing.assert_array_equal(program(x)[0].numpy(), chain(x)[0].numpy())
