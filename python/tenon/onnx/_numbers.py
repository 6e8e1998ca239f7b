"""Translations that need more than a node of ONNX: angles, signs, running values, diagonals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.onnx._operators import length
from tenon.onnx._translate import ELEMENT, Call, helper, translates

# ---- Signs and angles ----------------------------------------------------------------------------


def _is_negative(c: Call, x: str) -> str:
    """Whether the sign is a minus, that of a zero too; False for NaN."""
    return c.emit("Or", c.emit("Less", x, 0), c.emit("Less", c.emit("Reciprocal", x), 0))


def _floating(c: Call) -> tuple[str, str]:
    if not c.dtype.startswith("float"):
        c.refuse("whole numbers")
    return c.operand("input", c.dtype), c.operand("other", c.dtype)


@translates("copysign")
def copysign(c: Call) -> str:
    x, sign = _floating(c)
    size = c.emit("Abs", x)
    return c.emit("Where", _is_negative(c, sign), c.emit("Neg", size), size)


@translates("atan2")
def atan2(c: Call) -> str:
    """The angle of the smaller to the larger of both, turned into its eighth of the circle."""
    y, x = _floating(c)
    a, b = c.emit("Abs", y), c.emit("Abs", x)
    steep = c.emit("Greater", a, b)
    small, large = c.emit("Where", steep, b, a), c.emit("Where", steep, a, b)
    ratio = c.emit("Where", c.emit("Equal", a, b), 1, c.emit("Div", small, large))
    ratio = c.emit("Where", c.emit("Equal", c.emit("Add", a, b), 0), 0, ratio)
    angle = c.emit("Atan", ratio)
    angle = c.emit("Where", steep, c.emit("Sub", math.pi / 2, angle), angle)
    angle = c.emit("Where", _is_negative(c, x), c.emit("Sub", math.pi, angle), angle)
    return c.emit("Where", _is_negative(c, y), c.emit("Neg", angle), angle)


@translates("angle")
def angle(c: Call) -> str:
    x = c.operand("input", c.dtype)
    made = c.emit("Where", c.emit("Less", x, 0), math.pi, 0)
    return c.emit("Where", c.emit("IsNaN", x), x, made)


@translates("sgn")
def sgn(c: Call) -> str:
    return c.emit("Sign", c["input"])


@translates("hypot")
def hypot(c: Call) -> str:
    """Without squares of large numbers."""
    a, b = (c.emit("Abs", v) for v in _floating(c))
    less = c.emit("Less", a, b)
    small, large = c.emit("Where", less, a, b), c.emit("Where", less, b, a)
    ratio = c.emit("Where", c.emit("Equal", small, 0), small, c.emit("Div", small, large))
    made = c.emit("Mul", large, c.emit("Sqrt", c.emit("Add", 1, c.emit("Mul", ratio, ratio))))
    ends = [c.emit("IsInf", v) for v in (a, b)]
    return c.emit("Where", c.emit("Or", *ends), math.inf, made)


# ---- Two operands --------------------------------------------------------------------------------


@translates("fmax", "fmin")
def extreme(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    made = c.emit("Max" if c.node["op"] == "fmax" else "Min", a, b)
    if not c.dtype.startswith("float"):
        return made
    made = c.emit("Where", c.emit("IsNaN", a), b, made)
    return c.emit("Where", c.emit("IsNaN", b), a, made)


def _log_of_sum(c: Call, a: str, b: str, base: float = math.e) -> str:
    """log(exp(a) + exp(b)), or of powers of 2: equal infinities have no difference."""
    apart = c.emit("Where", c.emit("Equal", a, b), 0, c.emit("Sub", a, b))
    scale = math.log(base)
    part = c.emit("Exp", c.emit("Mul", c.emit("Neg", c.emit("Abs", apart)), scale))
    more = c.emit("Div", c.emit("Log", c.emit("Add", 1, part)), scale)
    return c.emit("Add", c.emit("Max", a, b), more)


@translates("logaddexp", "logaddexp2")
def logaddexp(c: Call) -> str:
    return _log_of_sum(c, *_floating(c), base=math.e if c.node["op"] == "logaddexp" else 2.0)


@translates("special_xlog1py")
def xlog1py(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    none = c.emit("And", c.emit("Equal", a, 0), c.emit("Not", c.emit("IsNaN", b)))
    return c.emit("Where", none, 0, c.emit("Mul", a, c.emit("Log", c.emit("Add", 1, b))))


@translates("erfc")
def erfc(c: Call) -> str:
    return c.emit("Sub", 1, c.emit("Erf", c.operand("input", c.dtype)))


@translates("special_ndtr")
def ndtr(c: Call) -> str:
    """(1 + erf(x / sqrt(2))) / 2"""
    erf = c.emit("Erf", c.emit("Mul", c.operand("input", c.dtype), 0.5**0.5))
    return c.emit("Mul", c.emit("Add", erf, 1), 0.5)


@translates("special_entr")
def entr(c: Call) -> str:
    x = c.operand("input", c.dtype)
    made = c.emit("Where", c.emit("Less", x, 0), -math.inf,
                  c.emit("Neg", c.emit("Mul", x, c.emit("Log", x))))  # fmt: skip
    return c.emit("Where", c.emit("Equal", x, 0), 0, made)


@translates("isclose")
def isclose(c: Call) -> str:
    dtype = c.common("input", "other")
    if not dtype.startswith("float"):
        c.refuse("whole numbers")
    a, b = c.operand("input", dtype), c.operand("other", dtype)

    def number(value: float) -> str:
        return c.number(value, dtype)

    off = c.emit("Abs", c.emit("Sub", a, b))
    room = c.emit("Add", number(c["atol"]), c.emit("Mul", number(c["rtol"]), c.emit("Abs", b)))
    wide = c.emit("Or", c.emit("IsInf", a), c.emit("IsInf", b))
    near = c.emit("And", c.emit("LessOrEqual", off, room), c.emit("Not", wide))
    made = c.emit("Or", near, c.emit("Equal", a, b))
    if not c["equal_nan"]:
        return made
    return c.emit("Or", made, c.emit("And", c.emit("IsNaN", a), c.emit("IsNaN", b)))


@translates("_sum_squares")
def sum_squares(c: Call) -> str:
    x = c.operand("input", c.dtype)
    dims = c["dim"] or list(range(c.rank("input")))
    return c.emit("ReduceSumSquare", x, c.ints(dims), keepdims=int(c["keepdim"]))


@translates("_nansum")
def nansum(c: Call) -> str:
    x = c.operand("input", c.dtype)
    dims = c["dim"] or list(range(c.rank("input")))
    kept = c.emit("Where", c.emit("IsNaN", x), 0, x)
    return c.emit("ReduceSum", kept, c.ints(dims), keepdims=int(c["keepdim"]))


@translates("cdist", "_cdist")
def cdist(c: Call) -> str:
    """Norms of all differences of rows."""
    rows = c.emit("Unsqueeze", c["x1"], c.ints([-2]))
    off = c.emit("Sub", rows, c.emit("Unsqueeze", c["x2"], c.ints([-3])))
    return length(c, off, c["p"], c.ints([-1]), False)


@translates("bitwise_left_shift", "bitwise_right_shift")
def shift(c: Call) -> str:
    """Products and quotients by powers of 2; a quotient is rounded down."""
    a, by = c.operand("input", c.dtype), c.operand("other", c.dtype)
    power = c.emit("Pow", 2, by)
    if c.node["op"] == "bitwise_left_shift":
        return c.emit("Mul", a, power)
    return c.emit("Div", c.emit("Sub", a, c.emit("Mod", a, power)), power)


@translates("addmv")
def addmv(c: Call) -> str:
    made = c.emit("Mul", c.emit("MatMul", c["mat"], c["vec"]), c["alpha"])
    return made if c["beta"] == 0 else c.emit("Add", c.emit("Mul", c["input"], c["beta"]), made)


# ---- Running values: a Scan, whose body computes the next state ----------------------------------


def _steps(c: Call, x: str, starts: list[Any], body: Any, dtypes: list[str]) -> list[str]:
    """The states after each step along c["dim"]. `body(state names, x)` emits, and names the next
    states; `starts` are numbers."""
    dim, writer = c["dim"], c.writer
    if c.rank("input") == 0:
        c.refuse("a tensor without dimensions")
    order = list(range(c.rank("input")))
    order[0], order[dim] = dim, 0
    first = c.emit("Transpose", x, perm=order)
    shape = c.emit("Shape", c.emit("Gather", first, c.const(0, "int64"), axis=0))
    begin = [
        c.emit("Expand", c.number(start, dtype), shape)
        for start, dtype in zip(starts, dtypes, strict=True)
    ]
    states = [writer.fresh("state") for _ in starts]
    part = writer.fresh("part")
    outer, writer.nodes = writer.nodes, []
    after = body(states, part)
    kept = [c.emit("Identity", name) for name in after]
    seen = [c.emit("Identity", name) for name in after]
    inner, writer.nodes = writer.nodes, outer

    def info(name: str, dtype: str) -> Any:
        return helper.make_tensor_value_info(name, ELEMENT[dtype], [None] * (c.rank("input") - 1))

    own = c.fact("input")["dtype"] if c.dtype == "int64" and len(starts) > 1 else dtypes[0]
    graph = helper.make_graph(
        inner,
        writer.fresh("step"),
        [*(info(n, d) for n, d in zip(states, dtypes, strict=True)), info(part, own)],
        [info(n, d) for names in (kept, seen) for n, d in zip(names, dtypes, strict=True)],
    )
    made = c.emit("Scan", *begin, first, outputs=2 * len(starts), body=graph, num_scan_inputs=1)
    return [c.emit("Transpose", name, perm=order) for name in made[len(starts) :]]


@translates("cumprod")
def cumprod(c: Call) -> str:
    def body(state: list[str], x: str) -> list[str]:
        return [c.emit("Mul", state[0], x)]

    return _steps(c, c.operand("input", c.dtype), [1], body, [c.dtype])[0]


@translates("logcumsumexp")
def logcumsumexp(c: Call) -> str:
    def body(state: list[str], x: str) -> list[str]:
        return [_log_of_sum(c, state[0], x)]

    return _steps(c, c["input"], [-math.inf], body, [c.dtype])[0]


@translates("cummax", "cummin")
def cummax(c: Call) -> list[str]:
    """The best so far, its place, and how many there were; NaN is better than all."""
    most, floating = c.node["op"] == "cummax", c.dtype.startswith("float")
    ends = np.finfo(c.dtype) if floating else np.iinfo(c.dtype)
    worst = (-math.inf if most else math.inf) if floating else ends.min if most else ends.max

    def body(state: list[str], x: str) -> list[str]:
        best, place, count = state
        better = c.emit("GreaterOrEqual" if most else "LessOrEqual", x, best)
        if floating:
            better = c.emit("Or", better, c.emit("IsNaN", x))
        new = [c.emit("Where", better, x, best), c.emit("Where", better, count, place)]
        return [*new, c.emit("Add", count, c.const(1, "int64"))]

    dtypes = [c.dtype, "int64", "int64"]
    return _steps(c, c["input"], [worst, 0, 0], body, dtypes)[:2]


# ---- Diagonals -----------------------------------------------------------------------------------


def _size(c: Call, dim: int) -> int:
    size = c.shape("input")[dim]
    return size if isinstance(size, int) and size >= 0 else c.refuse("a size that is free")


def _on_diagonal(c: Call, offset: int, dim1: int, dim2: int) -> str:
    """Row and column of each of its elements."""
    rows, columns = _size(c, dim1), _size(c, dim2)
    steps = np.arange(max(min(rows + min(offset, 0), columns - max(offset, 0)), 0))
    places = np.stack([steps + max(-offset, 0), steps + max(offset, 0)], axis=-1)
    return c.const(places, "int64")


def _diagonal(c: Call, offset: int, dim1: int, dim2: int) -> str:
    rank = c.rank("input")
    dim1, dim2 = dim1 % rank, dim2 % rank
    others = [d for d in range(rank) if d not in (dim1, dim2)]
    turned = c.emit("Transpose", c["input"], perm=[dim1, dim2, *others])
    found = c.emit("GatherND", turned, _on_diagonal(c, offset, dim1, dim2))
    return c.emit("Transpose", found, perm=[*range(1, rank - 1), 0])


def _matrix(c: Call, x: str, rank: int, size: int, offset: int) -> str:
    """Matrices with the last dimension of x, of so many elements, on a diagonal."""
    whole = size + abs(offset)
    ends = c.ints([*[0] * (2 * rank - 1), abs(offset)])
    rows = c.emit("Unsqueeze", c.emit("Pad", x, ends, 0), c.ints([-1 if offset >= 0 else -2]))
    return c.emit("Where", c.const(np.eye(whole, k=offset, dtype=bool)), rows, 0)


def _put(c: Call, dims: list[int], places: Any, new: str, last: bool) -> str:
    """The input with `new` at places of these dimensions; `last`: new counts them in the end."""
    rank = c.rank("input")
    order = [*dims, *(d for d in range(rank) if d not in dims)]
    back = [order.index(d) for d in range(rank)]
    if last:
        count = rank - len(dims) + 1
        new = c.emit("Transpose", new, perm=[count - 1, *range(count - 1)])
    turned = c.emit("Transpose", c["input"], perm=order)
    return c.emit("Transpose", c.emit("ScatterND", turned, places, new), perm=back)


@translates("diagonal_scatter")
def diagonal_scatter(c: Call) -> str:
    rank = c.rank("input")
    dims = [c["dim1"] % rank, c["dim2"] % rank]
    return _put(c, dims, _on_diagonal(c, c["offset"], *dims), c.operand("src", c.dtype), True)


@translates("slice_scatter")
def slice_scatter(c: Call) -> str:
    dim, size = c["dim"], _size(c, c["dim"])
    start, end, step = (c[k] for k in ("start", "end", "step"))
    places = np.arange(size)[slice(start, end, step)]
    order = list(range(c.rank("input")))
    order.insert(0, order.pop(dim))
    new = c.emit("Transpose", c.operand("src", c.dtype), perm=order)
    return _put(c, [dim], c.const(places[:, None], "int64"), new, False)


@translates("select_scatter")
def select_scatter(c: Call) -> str:
    at = c["index"] % _size(c, c["dim"])
    return _put(c, [c["dim"]], c.const([at], "int64"), c.operand("src", c.dtype), False)


@translates("diagonal")
def diagonal(c: Call) -> str:
    return _diagonal(c, c["offset"], c["dim1"], c["dim2"])


@translates("diag")
def diag(c: Call) -> str:
    if c.rank("input") == 2:
        return _diagonal(c, c["diagonal"], 0, 1)
    return _matrix(c, c["input"], 1, _size(c, 0), c["diagonal"])


@translates("diag_embed")
def diag_embed(c: Call) -> str:
    rank = c.rank("input")
    made = _matrix(c, c["input"], rank, _size(c, rank - 1), c["offset"])
    dim1, dim2 = c["dim1"] % (rank + 1), c["dim2"] % (rank + 1)
    if dim1 > dim2 and c["offset"]:
        c.refuse("dimensions in this order, with an offset")
    order: list[int] = list(range(rank - 1))
    for dim, at in sorted([(dim1, rank - 1), (dim2, rank)]):
        order.insert(dim, at)
    return c.emit("Transpose", made, perm=order)


@translates("diagflat")
def diagflat(c: Call) -> str:
    count = math.prod(_size(c, d) for d in range(c.rank("input")))
    return _matrix(c, c.emit("Reshape", c["input"], c.ints([-1])), 1, count, c["offset"])


# ---- Images --------------------------------------------------------------------------------------


@translates("_grid_sample")
def grid_sample(c: Call) -> str:
    if c.rank("input") != 4:
        c.refuse("volumes")
    if c["along"] is not None:
        c.refuse("coordinates of their own")
    early = c.writer.opset < 20
    modes = ("bilinear", "nearest", "bicubic") if early else ("linear", "nearest", "cubic")
    return c.emit("GridSample", c["input"], c["grid"], mode=modes[c["mode"]],
                  padding_mode=("zeros", "border", "reflection")[c["padding"]],
                  align_corners=int(c["align_corners"]))  # fmt: skip
