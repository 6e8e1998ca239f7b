"""Translations by formulas: the gamma function's relatives, inverses of matrices, histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenon
from tenon.onnx._translate import ELEMENT, Call, translates

_UP = 8  # so far arguments are moved up, to where the series of Stirling holds
_MOST_ROWS = 64  # of a matrix: each is some fifteen nodes
# Bernoulli numbers B(2), B(4), ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def _floating(c: Call, name: str = "input") -> str:
    if not c.dtype.startswith("float"):
        c.refuse(f"values of {c.dtype}")
    return c.operand(name, c.dtype)


def _series(c: Call, x: str, terms: list[float]) -> str:
    """terms[0] + terms[1] * x + ..."""
    made: Any = terms[-1]
    for term in reversed(terms[:-1]):
        made = c.emit("Add", c.emit("Mul", made, x), term)
    return made


def _turned(c: Call, x: str) -> tuple[str, str, str]:
    """Whether an argument lies below 1/2, what it is then reflected to, else itself, and pi times
    its distance from the nearest whole number."""
    below = c.emit("Less", x, 0.5)
    off = c.emit("Mul", c.emit("Sub", x, c.emit("Round", x)), math.pi)
    return below, c.emit("Where", below, c.emit("Sub", 1, x), x), off


@translates("lgamma")
def lgamma(c: Call) -> str:
    """By Stirling's series; pi / sin(pi x) is the product of the values at x and 1 - x."""
    x = _floating(c)
    below, y, off = _turned(c, x)
    small = c.emit("Less", y, float(_UP))
    up = c.emit("Where", small, c.emit("Add", y, float(_UP)), y)
    steps: Any = 1
    for i in range(_UP):
        steps = c.emit("Mul", steps, c.emit("Add", y, float(i)))
    steps = c.emit("Where", small, c.emit("Log", steps), 0)
    inverse = c.emit("Reciprocal", up)
    rest = _series(c, c.emit("Mul", inverse, inverse),
                   [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)])  # fmt: skip
    main = c.emit("Mul", c.emit("Sub", up, 0.5), c.emit("Sub", c.emit("Log", up), 1))
    main = c.emit("Add", main, 0.5 * math.log(2 * math.pi) - 0.5)
    made = c.emit("Sub", c.emit("Add", main, c.emit("Mul", rest, inverse)), steps)
    made = c.emit("Where", c.emit("IsInf", y), math.inf, made)
    sine = c.emit("Log", c.emit("Div", math.pi, c.emit("Abs", c.emit("Sin", off))))
    ends = c.emit("Where", c.emit("IsInf", x), math.inf, c.emit("Sub", sine, made))
    return c.emit("Where", below, ends, made)


@translates("digamma")
def digamma(c: Call) -> str:
    x = _floating(c)
    below, y, off = _turned(c, x)
    small = c.emit("Less", y, float(_UP))
    steps: Any = 0
    for i in range(_UP):
        steps = c.emit("Add", steps, c.emit("Reciprocal", c.emit("Add", y, float(i))))
    up = c.emit("Where", small, c.emit("Add", y, float(_UP)), y)
    inverse = c.emit("Reciprocal", up)
    square = c.emit("Mul", inverse, inverse)
    rest = _series(c, square, [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])
    made = c.emit("Sub", c.emit("Log", up), c.emit("Mul", inverse, 0.5))
    made = c.emit("Sub", made, c.emit("Mul", rest, square))
    made = c.emit("Sub", made, c.emit("Where", small, steps, 0))
    turned = c.emit("Sub", made, c.emit("Div", math.pi, c.emit("Tan", off)))
    whole = c.emit("Where", c.emit("Equal", off, 0), math.nan, turned)
    whole = c.emit("Where", c.emit("IsInf", x), math.nan, whole)
    at_zero = c.emit("Neg", c.emit("Reciprocal", x))
    return c.emit("Where", c.emit("Equal", x, 0), at_zero, c.emit("Where", below, whole, made))


@translates("erfinv")
def erfinv(c: Call) -> str:
    """x times a polynomial of -log(1 - x * x), or of its root towards the ends."""
    x = _floating(c)
    if c.dtype == "float64":
        c.refuse("values of float64")
    depth = c.emit("Neg", c.emit("Log", c.emit("Mul", c.emit("Sub", 1, x), c.emit("Add", 1, x))))
    inner = _fit(0.0, 5.0, 10, root=False)
    outer = _fit(5.0, 18.0, 10, root=True)
    near = _series(c, c.emit("Sub", depth, 2.5), inner)
    root = c.emit("Sqrt", c.emit("Max", depth, 0))
    far = _series(c, c.emit("Sub", root, 3.0), outer)
    made = c.emit("Mul", x, c.emit("Where", c.emit("Less", depth, 5.0), near, far))
    ends = c.emit("Equal", c.emit("Abs", x), 1)
    return c.emit("Where", ends, c.emit("Mul", x, math.inf), made)


def _fit(low: float, high: float, degree: int, root: bool) -> list[float]:
    """A polynomial in w - 2.5 or sqrt(w) - 3 that is erfinv(x) / x at w = -log(1 - x * x)."""
    w = low + (high - low) * (1 - np.cos(np.pi * (np.arange(400) + 0.5) / 400)) / 2
    x = np.sqrt(-np.expm1(-w))
    values = tenon.erfinv(tenon.tensor(x)).numpy() / x
    at = np.sqrt(w) - 3 if root else w - 2.5
    weights = 1 / values
    matrix = np.vander(at, degree + 1, increasing=True)
    return [float(v) for v in np.linalg.lstsq(matrix * weights[:, None], values * weights)[0]]


# ---- Matrices ------------------------------------------------------------------------------------


def _eliminate(c: Call, a: str, b: str, rows: int) -> str:
    """What solves a x = b: Gauss and Jordan, with the largest element of a column as pivot."""
    if rows > _MOST_ROWS:
        c.refuse(f"matrices of more than {_MOST_ROWS} rows")
    made = c.emit("Concat", a, b, axis=-1)
    numbers, across = c.ints(list(range(rows))), c.ints([-1])
    for i in range(rows):
        column = c.emit("Gather", made, c.const(i, "int64"), axis=-1)
        done = c.const(np.arange(rows) < i)
        place = c.emit("ArgMax", c.emit("Where", done, -1, c.emit("Abs", column)), axis=-1)
        chosen = c.emit("Unsqueeze", c.emit("Equal", numbers, place), across)
        pivot = c.emit("ReduceSum", c.emit("Where", chosen, made, 0), c.ints([-2]))
        mine = c.emit("Slice", made, c.ints([i]), c.ints([i + 1]), c.ints([-2]))
        here = c.const((np.arange(rows) == i)[:, None])
        made = c.emit("Where", here, pivot, c.emit("Where", chosen, mine, made))
        column = c.emit("Slice", made, c.ints([i]), c.ints([i + 1]), across)
        scale = c.emit("Slice", pivot, c.ints([i]), c.ints([i + 1]), across)
        row = c.emit("Div", pivot, scale)
        made = c.emit("Where", here, row, c.emit("Sub", made, c.emit("Mul", column, row)))
    return c.emit("Slice", made, c.ints([rows]), c.ints([2**31]), across)


@translates("linalg_inv_ex")
def inverse(c: Call) -> list[str]:
    """A matrix that has no inverse gives infinities and NaNs, where the operator is an error."""
    a = _floating(c, "A")
    rows = c.shape("A")[-1]
    if not isinstance(rows, int) or rows < 1:
        c.refuse("a size that is free, or zero")
    eye = c.const(np.eye(rows), c.dtype)
    whole = c.emit("Expand", eye, c.emit("Shape", a))
    info = c.const(np.zeros(c.outs[1]["shape"]) if c.outs[1] else 0, "int32")
    return [_eliminate(c, a, whole, rows), info]


@translates("_linalg_solve")
def solve(c: Call) -> str:
    a, b = _floating(c, "A"), c.operand("B", c.dtype)
    left, right = c.shape("A"), c.shape("B")
    if not isinstance(left[-1], int) or left[-1] < 1:
        c.refuse("a size that is free, or zero")
    if right == left[:-1]:
        column = c.emit("Unsqueeze", b, c.ints([-1]))
        return c.emit("Squeeze", _eliminate(c, a, column, left[-1]), c.ints([-1]))
    if right[:-1] != left[:-1]:
        c.refuse("broadcasting")
    return _eliminate(c, a, b, left[-1])


# ---- Histograms ----------------------------------------------------------------------------------


@translates("histc")
def histc(c: Call) -> str:
    x = c.emit("Reshape", _floating(c), c.ints([-1]))
    low, high = c.operand("min", c.dtype), c.operand("max", c.dtype)
    if c["min"] == c["max"] == 0:
        low, high = (c.emit(op, x, keepdims=0) for op in ("ReduceMin", "ReduceMax"))
    same = c.emit("Equal", low, high)
    low = c.emit("Where", same, c.emit("Sub", low, 1), low)
    high = c.emit("Where", same, c.emit("Add", high, 1), high)
    part = c.emit("Div", c.emit("Sub", x, low), c.emit("Sub", high, low))
    place = c.emit("Floor", c.emit("Mul", part, float(c["bins"])))
    place = c.emit("Where", c.emit("Equal", x, high), float(c["bins"] - 1), place)
    outside = c.emit("Or", c.emit("Less", x, low), c.emit("Greater", x, high))
    place = c.emit("Where", outside, -1, place)
    bins = c.const(np.arange(c["bins"])[:, None], c.dtype)
    found = c.emit("Cast", c.emit("Equal", bins, place), to=ELEMENT[c.dtype])
    return c.emit("ReduceSum", found, c.ints([1]), keepdims=0)
