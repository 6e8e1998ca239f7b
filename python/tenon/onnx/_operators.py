"""Translations of pointwise operators, reductions, products and shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.onnx._translate import Call, Size, translates

_UNARY = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "abs": "Abs", "neg": "Neg", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "floor": "Floor",
    "ceil": "Ceil", "round": "Round", "reciprocal": "Reciprocal", "sign": "Sign",
    "softsign": "Softsign", "mish": "Mish", "hardswish": "HardSwish", "logical_not": "Not",
    "bitwise_not": "Not", "isnan": "IsNaN", "isinf": "IsInf", "det": "Det",
}  # fmt: skip


@translates(*_UNARY)
def unary(c: Call) -> str:
    dtype = c.dtype if c.dtype != "bool" else c.fact("input")["dtype"]
    if c.node["op"] == "logical_not":
        dtype = "bool"
    if c.node["op"] == "bitwise_not" and dtype != "bool":
        return c.emit("BitwiseNot", c["input"])
    if c.node["op"] in ("isnan", "isinf") and not dtype.startswith("float"):
        c.refuse("whole numbers")
    return c.emit(_UNARY[c.node["op"]], c.operand("input", dtype))


@translates("clone", "contiguous", "detach", "_alias")
def same(c: Call) -> str:
    return c.emit("Identity", c["input"])


@translates("_to_copy", "_move", "_cast")
def convert(c: Call) -> str:
    return c.cast(c["input"], c.dtype)


@translates("rsqrt")
def rsqrt(c: Call) -> str:
    return c.emit("Reciprocal", c.emit("Sqrt", c.operand("input", c.dtype)))


@translates("square")
def square(c: Call) -> str:
    return c.emit("Mul", c["input"], c["input"])


@translates("silu")
def silu(c: Call) -> str:
    return c.emit("Mul", c["input"], c.emit("Sigmoid", c["input"]))


@translates("gelu")
def gelu(c: Call) -> str:
    x = c["input"]

    def by(op: str, a: str, k: float) -> str:
        return c.emit(op, a, c.number(k, c.dtype))

    if c["approximate"] == "tanh":
        cubic = by("Mul", c.emit("Mul", c.emit("Mul", x, x), x), 0.044715)
        inner = c.emit("Tanh", by("Mul", c.emit("Add", x, cubic), math.sqrt(2 / math.pi)))
    else:
        inner = c.emit("Erf", by("Div", x, math.sqrt(2)))
    return by("Mul", c.emit("Mul", x, by("Add", inner, 1.0)), 0.5)


@translates("elu")
def elu(c: Call) -> str:
    return c.emit("Elu", c["input"], alpha=float(c["alpha"]))


@translates("celu")
def celu(c: Call) -> str:
    return c.emit("Celu", c["input"], alpha=float(c["alpha"]))


@translates("selu")
def selu(c: Call) -> str:
    return c.emit("Selu", c["input"])


@translates("leaky_relu")
def leaky_relu(c: Call) -> str:
    return c.emit("LeakyRelu", c["input"], alpha=float(c["negative_slope"]))


@translates("_prelu")
def prelu(c: Call) -> str:
    return c.emit("PRelu", c["input"], c["weight"])


@translates("softplus")
def softplus(c: Call) -> str:
    beta = c.number(c["beta"], c.dtype)
    scaled = c.emit("Mul", c["input"], beta)
    soft = c.emit("Div", c.emit("Softplus", scaled), beta)
    above = c.emit("Greater", scaled, c.number(c["threshold"], c.dtype))
    return c.emit("Where", above, c["input"], soft)


@translates("log_sigmoid")
def log_sigmoid(c: Call) -> str:
    return c.emit("Neg", c.emit("Softplus", c.emit("Neg", c["input"])))


@translates("hardtanh", "relu6")
def hardtanh(c: Call) -> str:
    low, high = (0, 6) if c.node["op"] == "relu6" else (c["min_val"], c["max_val"])
    return c.emit("Clip", c["input"], c.number(low, c.dtype), c.number(high, c.dtype))


@translates("clamp", "clamp_min", "clamp_max")
def clamp(c: Call) -> str:
    low, high = c.args.get("min"), c.args.get("max")
    if any(isinstance(v, str) for v in (low, high)):
        c.refuse("bounds that are tensors")
    ends = [c.number(v, c.dtype) if v is not None else "" for v in (low, high)]
    return c.emit("Clip", c.operand("input", c.dtype), *ends)


@translates("hardsigmoid")
def hardsigmoid(c: Call) -> str:
    return c.emit("HardSigmoid", c["input"], alpha=1 / 6, beta=0.5)


@translates("hardshrink", "softshrink")
def shrink(c: Call) -> str:
    bias = 0.0 if c.node["op"] == "hardshrink" else float(c["lambd"])
    return c.emit("Shrink", c["input"], lambd=float(c["lambd"]), bias=bias)


@translates("tanhshrink")
def tanhshrink(c: Call) -> str:
    return c.emit("Sub", c["input"], c.emit("Tanh", c["input"]))


@translates("threshold")
def threshold(c: Call) -> str:
    above = c.emit("Greater", c["input"], c.number(c["threshold"], c.dtype))
    return c.emit("Where", above, c["input"], c.number(c["value"], c.dtype))


@translates("log1p", "expm1", "log2", "log10")
def near(c: Call) -> str:
    x, op = c.operand("input", c.dtype), c.node["op"]
    one = c.number(1, c.dtype)
    if op == "log1p":
        return c.emit("Log", c.emit("Add", x, one))
    if op == "expm1":
        return c.emit("Sub", c.emit("Exp", x), one)
    return c.emit("Div", c.emit("Log", x), c.number(math.log(int(op[3:])), c.dtype))


@translates("isfinite")
def isfinite(c: Call) -> str:
    if not c.fact("input")["dtype"].startswith("float"):
        c.refuse("whole numbers")
    x = c["input"]
    return c.emit("Not", c.emit("Or", c.emit("IsInf", x), c.emit("IsNaN", x)))


@translates("nan_to_num")
def nan_to_num(c: Call) -> str:
    if not c.dtype.startswith("float"):
        return c.emit("Identity", c["input"])
    x, ends = c["input"], np.finfo(c.dtype)
    high = float(ends.max) if c["posinf"] is None else c["posinf"]
    low = float(ends.min) if c["neginf"] is None else c["neginf"]
    made = c.emit("Where", c.emit("IsNaN", x), c["nan"] or 0.0, x)
    made = c.emit("Where", c.emit("IsInf", x, detect_negative=0), high, made)
    return c.emit("Where", c.emit("IsInf", x, detect_positive=0), low, made)


def _truncated(c: Call, x: str) -> str:
    return c.emit("Mul", c.emit("Sign", x), c.emit("Floor", c.emit("Abs", x)))


@translates("trunc", "frac")
def trunc(c: Call) -> str:
    x = c["input"]
    if not c.dtype.startswith("float"):
        return c.emit("Identity", x)
    made = _truncated(c, x)
    return made if c.node["op"] == "trunc" else c.emit("Sub", x, made)


@translates("exp2")
def exp2(c: Call) -> str:
    return c.emit("Pow", 2, c.operand("input", c.dtype))


@translates("deg2rad", "rad2deg")
def angle(c: Call) -> str:
    by = math.pi / 180 if c.node["op"] == "deg2rad" else 180 / math.pi
    return c.emit("Mul", c.operand("input", c.dtype), by)


@translates("logit")
def logit(c: Call) -> str:
    x = c.operand("input", c.dtype)
    if c["eps"] is not None:
        x = c.emit("Clip", x, c["eps"], 1 - c["eps"])
    return c.emit("Log", c.emit("Div", x, c.emit("Sub", 1, x)))


# ---- Two operands --------------------------------------------------------------------------------

_BINARY = {
    "mul": "Mul", "maximum": "Max", "minimum": "Min", "pow": "Pow", "true_divide": "Div",
    "max_other": "Max", "min_other": "Min",
}  # fmt: skip
_COMPARED = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "bitwise_and": "And",
    "bitwise_or": "Or", "bitwise_xor": "Xor",
}  # fmt: skip


def _second(c: Call) -> str:
    return "exponent" if "exponent" in c.args else "other"


@translates(*_BINARY)
def binary(c: Call) -> str:
    other = _second(c)
    return c.emit(_BINARY[c.node["op"]], c.operand("input", c.dtype), c.operand(other, c.dtype))


@translates("add", "sub", "rsub")
def add(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    if c.node["op"] == "rsub":
        a, b = b, a
    if c["alpha"] != 1:
        b = c.emit("Mul", b, c.number(c["alpha"], c.dtype))
    return c.emit("Add" if c.node["op"] == "add" else "Sub", a, b)


@translates("div", "floor_divide")
def divide(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    mode = "floor" if c.node["op"] == "floor_divide" else c.args["rounding_mode"]
    made = c.emit("Div", a, b)
    if mode is None:
        return made
    if not c.dtype.startswith("float"):  # the division of ONNX cuts off, its rest is the floor's
        exact = c.emit("Sub", a, c.emit("Mod", a, b))
        return c.emit("Div", exact, b) if mode == "floor" else made
    return c.emit("Floor", made) if mode == "floor" else _truncated(c, made)


@translates("remainder", "fmod")
def remainder(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    whole = not c.dtype.startswith("float")
    if whole or c.node["op"] == "fmod":
        return c.emit("Mod", a, b, fmod=int(c.node["op"] == "fmod"))
    rest = c.emit("Mod", a, b, fmod=1)
    signs = c.emit("Xor", c.emit("Less", rest, 0), c.emit("Less", b, 0))
    other = c.emit("And", signs, c.emit("Not", c.emit("Equal", rest, 0)))
    return c.emit("Where", other, c.emit("Add", rest, b), rest)


@translates("lerp")
def lerp(c: Call) -> str:
    a, b, by = c["input"], c["end"], c.operand("weight", c.dtype)
    way = c.emit("Sub", b, a)
    near = c.emit("Add", a, c.emit("Mul", by, way))
    far = c.emit("Sub", b, c.emit("Mul", c.emit("Sub", 1, by), way))
    return c.emit("Where", c.emit("Less", c.emit("Abs", by), 0.5), near, far)


@translates("addcmul", "addcdiv")
def addc(c: Call) -> str:
    a, b = c.operand("tensor1", c.dtype), c.operand("tensor2", c.dtype)
    made = c.emit("Mul" if c.node["op"] == "addcmul" else "Div", a, b)
    if c["value"] != 1:
        made = c.emit("Mul", made, c["value"])
    return c.emit("Add", c.operand("input", c.dtype), made)


@translates("heaviside")
def heaviside(c: Call) -> str:
    x = c["input"]
    step = c.cast(c.emit("Greater", x, 0), c.dtype)
    return c.emit("Where", c.emit("Equal", x, 0), c["values"], step)


@translates("xlogy")
def xlogy(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("other", c.dtype)
    none = c.emit("And", c.emit("Equal", a, 0), c.emit("Not", c.emit("IsNaN", b)))
    return c.emit("Where", none, 0, c.emit("Mul", a, c.emit("Log", b)))


@translates(*_COMPARED, "ne")
def compare(c: Call) -> str:
    op = c.node["op"]
    dtype = "bool" if op.startswith("logical") else c.common("input", "other")
    a, b = c.operand("input", dtype), c.operand("other", dtype)
    if op.startswith("bitwise") and dtype != "bool":
        return c.emit(f"Bitwise{_COMPARED[op]}", a, b)
    if op == "ne":
        return c.emit("Not", c.emit("Equal", a, b))
    return c.emit(_COMPARED[op], a, b)


@translates("where")
def where(c: Call) -> str:
    condition = c.operand("condition", "bool")
    return c.emit("Where", condition, c.operand("input", c.dtype), c.operand("other", c.dtype))


@translates("masked_fill")
def masked_fill(c: Call) -> str:
    return c.emit("Where", c.operand("mask", "bool"), c.operand("value", c.dtype), c["input"])


# ---- Reductions ----------------------------------------------------------------------------------


def _dims(c: Call, key: str = "dim") -> str:
    dims = c.args.get(key)
    if dims is None or dims == []:
        dims = list(range(c.rank("input")))
    return c.ints(dims if isinstance(dims, list) else [dims])


def _reduce(c: Call, op: str, x: str, axes: str, keep: bool) -> str:
    return c.emit(op, x, axes, keepdims=int(keep))


@translates("sum", "mean", "amax", "amin", "logsumexp", "max", "min")
def reduce(c: Call) -> str:
    op = {
        "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "max": "ReduceMax",
        "amin": "ReduceMin", "min": "ReduceMin", "logsumexp": "ReduceLogSumExp",
    }[c.node["op"]]  # fmt: skip
    return _reduce(c, op, c.operand("input", c.dtype), _dims(c), bool(c.args.get("keepdim")))


@translates("prod", "prod_dim")
def prod(c: Call) -> str:
    x = c.operand("input", c.dtype)
    return _reduce(c, "ReduceProd", x, _dims(c), bool(c.args.get("keepdim")))


@translates("any", "all")
def some(c: Call) -> str:
    truth = c.operand("input", "bool")
    if c["dim"] == []:  # no dimension is gone over, where other reductions go over all
        return c.emit("Identity", truth)
    x = c.cast(truth, "int32")
    op = "ReduceMax" if c.node["op"] == "any" else "ReduceMin"
    return c.cast(_reduce(c, op, x, _dims(c), bool(c["keepdim"])), "bool")


@translates("count_nonzero")
def count(c: Call) -> str:
    return _reduce(c, "ReduceSum", c.cast(c.operand("input", "bool"), "int64"), _dims(c), False)


@translates("aminmax")
def aminmax(c: Call) -> list[str]:
    axes, keep = _dims(c), bool(c["keepdim"])
    return [_reduce(c, op, c["input"], axes, keep) for op in ("ReduceMin", "ReduceMax")]


@translates("max_dim", "min_dim")
def extreme(c: Call) -> list[str]:
    kind, keep = c.node["op"][:3].capitalize(), int(c["keepdim"])
    best = c.emit(f"Reduce{kind}", c["input"], c.ints([c["dim"]]), keepdims=keep)
    return [best, c.emit(f"Arg{kind}", c["input"], axis=c["dim"], keepdims=keep)]


@translates("argmax", "argmin")
def arg(c: Call) -> str:
    op = "ArgMax" if c.node["op"] == "argmax" else "ArgMin"
    if c["dim"] is not None:
        return c.emit(op, c["input"], axis=c["dim"], keepdims=int(c["keepdim"]))
    flat = c.emit("Reshape", c["input"], c.ints([-1]))
    found = c.emit(op, flat, axis=0, keepdims=0)
    ones = [1] * c.rank("input") if c["keepdim"] else []
    return c.emit("Reshape", found, c.ints(ones)) if ones else found


@translates("linalg_vector_norm", "norm")
def norm(c: Call) -> str:
    order = c.args.get("ord", c.args.get("p", 2))
    x = c.operand("input", c.dtype)
    return length(c, x, order, _dims(c), bool(c.args.get("keepdim")))


def length(c: Call, x: str, order: float, axes: str, keep: bool) -> str:
    """Vectors' norms of any order."""
    if order in (1, 2):
        return _reduce(c, f"ReduceL{int(order)}", x, axes, keep)
    size = c.emit("Abs", x)
    if order in (math.inf, -math.inf):
        return _reduce(c, "ReduceMax" if order > 0 else "ReduceMin", size, axes, keep)
    if order == 0:
        some = c.emit("Where", c.emit("Equal", size, 0), 0, 1)
        return _reduce(c, "ReduceSum", some, axes, keep)
    total = _reduce(c, "ReduceSum", c.emit("Pow", size, order), axes, keep)
    return c.emit("Pow", total, 1 / order)


@translates("var", "std", "var_dim", "std_dim", "var_correction", "std_correction")
def variance(c: Call) -> str:
    x, axes = c["input"], _dims(c)
    dims = c.args.get("dim")
    dims = list(range(c.rank("input"))) if dims in (None, []) else dims
    dims = dims if isinstance(dims, list) else [dims]
    sizes = [c.shape("input")[d] for d in dims]
    correction = c.args.get("correction")
    if correction is None:
        correction = int(bool(c.args.get("unbiased", True)))
    off = c.emit("Sub", x, c.emit("ReduceMean", x, axes, keepdims=1))
    total = _reduce(c, "ReduceSumSquare", off, axes, bool(c.args.get("keepdim")))
    if all(isinstance(s, int) and s >= 0 for s in sizes):
        less = c.number(max(math.prod(sizes) - correction, 0), c.dtype)
    else:
        found = c.emit("Gather", c.emit("Shape", x), c.const(dims, "int64"), axis=0)
        count = c.cast(c.emit("ReduceProd", found, keepdims=0), c.dtype)
        less = c.emit("Max", c.emit("Sub", count, correction), 0)
    made = c.emit("Div", total, less)
    return c.emit("Sqrt", made) if c.node["op"].startswith("std") else made


@translates("std_mean", "var_mean")
def with_mean(c: Call) -> list[str]:
    return [variance(c), _reduce(c, "ReduceMean", c["input"], _dims(c), bool(c["keepdim"]))]


@translates("cumsum")
def cumsum(c: Call) -> str:
    return c.emit("CumSum", c.operand("input", c.dtype), c.const(c["dim"], "int64"))


# ---- Products ------------------------------------------------------------------------------------


@translates("matmul", "mm", "bmm", "mv", "dot")
def matmul(c: Call) -> str:
    names = [k for k in c.args if c.is_tensor(k)]
    return c.emit("MatMul", c.operand(names[0], c.dtype), c.operand(names[1], c.dtype))


@translates("addmm", "baddbmm")
def addmm(c: Call) -> str:
    first, second = [k for k in c.args if c.is_tensor(k)][1:3]
    made = c.emit("MatMul", c[first], c[second])
    if c["alpha"] != 1:
        made = c.emit("Mul", made, c.number(c["alpha"], c.dtype))
    plus = c["input"]
    if c["beta"] != 1:
        plus = c.emit("Mul", plus, c.number(c["beta"], c.dtype))
    return c.emit("Add", made, plus)


@translates("outer")
def outer(c: Call) -> str:
    a, b = c.operand("input", c.dtype), c.operand("vec2", c.dtype)
    return c.emit("Mul", c.emit("Unsqueeze", a, c.ints([1])), c.emit("Unsqueeze", b, c.ints([0])))


@translates("tensordot")
def tensordot(c: Call) -> str:
    free = iter("abcdefghijklmnopqrstuvwxyz")
    a, b = ([next(free) for _ in range(c.rank(name))] for name in ("a", "b"))
    for i, j in zip(c["dims_a"], c["dims_b"], strict=True):
        b[j] = a[i]
    kept = [x for x in a if x not in b] + [x for x in b if x not in a]
    made = f"{''.join(a)},{''.join(b)}->{''.join(kept)}"
    return c.emit("Einsum", c["a"], c["b"], equation=made)


@translates("bilinear")
def bilinear(c: Call) -> str:
    made = c.emit("Einsum", c["input1"], c["weight"], c["input2"], equation="...i,oij,...j->...o")
    return made if c["bias"] is None else c.emit("Add", made, c["bias"])


@translates("addr", "addbmm")
def plus_product(c: Call) -> str:
    if c.node["op"] == "addr":
        rows = c.emit("Unsqueeze", c["vec1"], c.ints([1]))
        made = c.emit("Mul", rows, c.emit("Unsqueeze", c["vec2"], c.ints([0])))
    else:
        whole = c.emit("MatMul", c["batch1"], c["batch2"])
        made = c.emit("ReduceSum", whole, c.ints([0]), keepdims=0)
    if c["beta"] == 0:
        return c.emit("Mul", made, c["alpha"])
    return c.emit("Add", c.emit("Mul", c["input"], c["beta"]), c.emit("Mul", made, c["alpha"]))


@translates("einsum")
def einsum(c: Call) -> str:
    return c.emit("Einsum", *c["operands"], equation=c["equation"].replace(" ", ""))


# ---- Shapes --------------------------------------------------------------------------------------


@translates("reshape", "view_size")
def reshape(c: Call) -> str:
    return c.emit("Reshape", c["input"], c.ints(c.args.get("shape", c.args.get("size"))))


def _size_at(c: Call, x: str, dim: int, known: Any) -> Any:
    if isinstance(known, int) and known >= 0:
        return known
    return Size(c.emit("Shape", x, start=dim, end=dim + 1))


@translates("flatten")
def flatten(c: Call) -> str:
    x, shape = c["input"], c.shape("input")
    start, end = c["start_dim"], c["end_dim"]
    head = [_size_at(c, x, d, shape[d]) for d in range(start)]
    tail = [_size_at(c, x, d, shape[d]) for d in range(end + 1, len(shape))]
    return c.emit("Reshape", x, c.ints([*head, -1, *tail]))


@translates("unflatten")
def unflatten(c: Call) -> str:
    x, shape, dim = c["input"], c.shape("input"), c["dim"]
    head = [_size_at(c, x, d, shape[d]) for d in range(dim)]
    tail = [_size_at(c, x, d, shape[d]) for d in range(dim + 1, len(shape))]
    return c.emit("Reshape", x, c.ints([*head, *c["sizes"], *tail]))


@translates("transpose", "t", "permute")
def permute(c: Call) -> str:
    order = list(range(c.rank("input")))
    if "dims" in c.args:
        order = [d % len(order) for d in c["dims"]]
    elif len(order) > 1:
        a, b = (0, 1) if c.node["op"] == "t" else (c["dim0"], c["dim1"])
        order[a], order[b] = order[b], order[a]
    return c.emit("Transpose", c["input"], perm=order)


@translates("unsqueeze")
def unsqueeze(c: Call) -> str:
    return c.emit("Unsqueeze", c["input"], c.ints([c["dim"]]))


@translates("squeeze", "squeeze_dim", "squeeze_dims")
def squeeze(c: Call) -> str:
    shape = c.shape("input")
    dims = c.args.get("dim", list(range(len(shape))))
    dims = [d % len(shape) for d in (dims if isinstance(dims, list) else [dims]) if shape]
    ones = [d for d in dims if shape[d] == 1]
    return c.emit("Squeeze", c["input"], c.ints(ones)) if ones else c.emit("Identity", c["input"])


@translates("cat")
def cat(c: Call) -> str:
    return c.emit("Concat", *c["tensors"], axis=c["dim"])


@translates("stack")
def stack(c: Call) -> str:
    axis = c.ints([c["dim"]])
    return c.emit("Concat", *[c.emit("Unsqueeze", t, axis) for t in c["tensors"]], axis=c["dim"])


@translates(
    "chunk", "split", "split_sizes", "split_method", "split_method_sizes", "split_with_sizes",
    "unbind", "tensor_split",
)  # fmt: skip
def split(c: Call) -> list[str]:
    x, dim = next(v for k, v in c.args.items() if c.is_tensor(k)), c["dim"]
    whole = [1] * len(c.outs) if c.node["op"] == "unbind" else [o["shape"][dim] for o in c.outs]
    if all(isinstance(s, int) and s >= 0 for s in whole):
        parts = c.emit("Split", x, c.ints(whole), axis=dim, outputs=len(whole))
    elif c.node["op"] == "chunk" and c["chunks"] == len(whole) == 2:
        parts = c.emit("Split", x, axis=dim, outputs=2, num_outputs=2)
    else:
        return c.refuse("parts whose size is free")
    parts = [parts] if isinstance(parts, str) else parts
    if c.node["op"] == "unbind":
        return [c.emit("Squeeze", p, c.ints([dim])) for p in parts]
    return parts


@translates("select")
def select(c: Call) -> str:
    if isinstance(c["index"], Size):
        found = c.emit("Gather", c["input"], c["index"], axis=c["dim"])
        return c.emit("Squeeze", found, c.ints([c["dim"]]))
    return c.emit("Gather", c["input"], c.const(c["index"], "int64"), axis=c["dim"])


@translates("slice", "narrow")
def cut(c: Call) -> str:
    start, step = c["start"] or 0, c.args.get("step", 1)
    if "length" in c.args:
        free = isinstance(start, Size) or isinstance(c["length"], Size)
        if free and isinstance(start, int) and start < 0:
            c.refuse("a part that is counted from the end, of a free size")
        parts = [c.ints([n]) for n in (start, c["length"])] if free else []
        end = Size(c.emit("Add", *parts)) if free else start + c["length"]
    else:
        end = (1 << 62) if c["end"] is None else c["end"]
    return c.emit("Slice", c["input"], *map(c.ints, ([start], [end], [c["dim"]], [step])))


@translates("expand", "broadcast_to")
def expand(c: Call) -> str:
    sizes = [1 if s == -1 else s for s in c["size"]]
    return c.emit("Expand", c["input"], c.ints(sizes))


@translates("expand_as")
def expand_as(c: Call) -> str:
    return c.emit("Expand", c["input"], c.emit("Shape", c["other"]))


@translates("pad", "constant_pad_nd")
def pad(c: Call) -> str:
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    mode = modes[c.args.get("mode", "constant")]
    given, rank = c["pad"], c.rank("input")
    if mode == "wrap":
        return _wrapped(c, given, rank)
    low, high = [0] * rank, [0] * rank
    for i in range(len(given) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = given[2 * i], given[2 * i + 1]
    ends = c.ints([*low, *high])
    if mode != "constant":
        return c.emit("Pad", c["input"], ends, mode=mode)
    return c.emit("Pad", c["input"], ends, c.number(c.args.get("value") or 0, c.dtype), mode=mode)


def _wrapped(c: Call, given: list[Any], rank: int) -> str:
    """What lies at the other end goes in front and behind; ONNX has no such Pad before opset 19."""
    if any(not isinstance(n, int) or n < 0 for n in given):
        c.refuse("circular padding below zero, or by a free size")
    x = c["input"]
    for i in range(len(given) // 2):
        axis, low, high = c.ints([rank - 1 - i]), given[2 * i], given[2 * i + 1]
        parts = [x]
        if low:
            parts.insert(0, c.emit("Slice", x, c.ints([-low]), c.ints([1 << 62]), axis))
        if high:
            parts.append(c.emit("Slice", x, c.ints([0]), c.ints([high]), axis))
        x = c.emit("Concat", *parts, axis=rank - 1 - i)
    return x


@translates("tril", "triu")
def triangle(c: Call) -> str:
    upper = int(c.node["op"] == "triu")
    return c.emit("Trilu", c["input"], c.const(c["diagonal"], "int64"), upper=upper)


@translates("gather")
def gather(c: Call) -> str:
    return c.emit("GatherElements", c["input"], c["index"], axis=c["dim"])


@translates("index_select")
def index_select(c: Call) -> str:
    return c.emit("Gather", c["input"], c["index"], axis=c["dim"])


# ---- New tensors ---------------------------------------------------------------------------------


@translates(
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full", "empty", "empty_like", "new_empty",
)  # fmt: skip
def full(c: Call) -> str:
    op = c.node["op"].removeprefix("new_")
    fill = (
        0 if op.startswith(("zeros", "empty")) else 1 if op.startswith("ones") else c["fill_value"]
    )
    shape = c.ints(c["size"]) if "size" in c.args else c.emit("Shape", c["input"])
    return c.emit("Expand", c.number(fill, c.dtype), shape)


@translates("fill_", "zero_")
def filled(c: Call) -> str:
    value = c.operand("value", c.dtype) if "value" in c.args else c.number(0, c.dtype)
    return c.emit("Expand", value, c.emit("Shape", c["self"]))


@translates("arange", "arange_start")
def arange(c: Call) -> str:
    def end(name: str, default: int) -> str:
        given = c.args.get(name, default)
        if isinstance(given, Size):
            flat = c.emit("Squeeze", given)
            return flat if c.dtype == "int64" else c.cast(flat, c.dtype)
        return c.number(given, c.dtype)

    return c.emit("Range", end("start", 0), end("end", 0), end("step", 1))
