"""Translations of what picks, orders, repeats and writes parts of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.onnx._translate import Call, Size, translates

_LAST = -(1 << 62)


def _size(c: Call, x: str, name: str, dim: int) -> Any:
    """A size as a number, or as a value [1] where it is free."""
    known = c.shape(name)[dim]
    if isinstance(known, int) and known >= 0:
        return known
    return Size(c.emit("Shape", x, start=dim, end=dim + 1))


def _known(c: Call, name: str, dim: int) -> int:
    size = c.shape(name)[dim]
    return size if isinstance(size, int) and size >= 0 else c.refuse("a size that is free")


def _owner(c: Call) -> str:
    """The name of the tensor that is read: forms that write call it otherwise."""
    return "input" if "input" in c.args else "self"


# ---- Indices -------------------------------------------------------------------------------------


class _Places:
    """What stands in the brackets of x[...]: tensors of whole numbers, or one mask in front."""

    def __init__(self, c: Call) -> None:
        self.c, self.owner = c, _owner(c)
        self.rank = c.rank(self.owner)
        given = c.node["args"]["indices"]
        self.dims = [d for d, g in enumerate(given) if g is not None]
        facts = [c.writer.values[given[d]["v"]] for d in self.dims]
        self.values = [c["indices"][d] for d in self.dims]
        self.ranks = [len(f["shape"]) for f in facts]
        self.mask = any(f["dtype"] in ("bool", "uint8") for f in facts)
        if self.mask and (len(self.dims) > 1 or self.dims != [0]):
            c.refuse("a mask beside other indices")

    def rows(self) -> str:
        """A matrix, or more, of places: the last dimension counts through `dims`."""
        c = self.c
        if self.mask:
            return c.emit("Transpose", c.emit("NonZero", self.values[0]), perm=[1, 0])
        wide = self.values
        for k in range(len(wide)):
            for other in self.values:
                if other != self.values[k]:
                    wide = [*wide[:k], c.emit("Expand", wide[k], c.emit("Shape", other)),
                            *wide[k + 1:]]  # fmt: skip
        last = c.ints([-1])
        return c.emit("Concat", *[c.emit("Unsqueeze", w, last) for w in wide], axis=-1)


@translates("index")
def index(c: Call) -> str:
    return _indexed(c, _Places(c), c["input"])


def _indexed(c: Call, at: _Places, x: str) -> str:
    if at.mask:
        return c.emit("GatherND", x, at.rows())
    if len(at.dims) == 1:
        return c.emit("Gather", x, at.values[0], axis=at.dims[0])
    others = [d for d in range(at.rank) if d not in at.dims]
    turned = c.emit("Transpose", x, perm=[*at.dims, *others])
    found = c.emit("GatherND", turned, at.rows())
    first, count = at.dims[0], max(at.ranks)
    if first == 0 or at.dims != list(range(first, first + len(at.dims))):
        return found
    spans = (count, count + first), (0, count), (count + first, count + len(others))
    return c.emit("Transpose", found, perm=[d for a, b in spans for d in range(a, b)])


@translates("index_put", "index_put_")
def index_put(c: Call) -> str:
    at = _Places(c)
    x, new = c[at.owner], c.operand("values", c.dtype)
    if at.mask and c.rank("values") == 0 and not c["accumulate"]:
        missing = at.rank - at.ranks[0]
        mask = at.values[0]
        if missing:
            mask = c.emit("Unsqueeze", mask, c.ints([at.ranks[0] + i for i in range(missing)]))
        return c.emit("Where", mask, new, x)
    how = "add" if c["accumulate"] else None
    if at.dims != list(range(len(at.dims))):
        shape, places = c.writer.places(x)
        chosen = _indexed(c, at, places)
        new = c.emit("Expand", new, c.emit("Shape", chosen))
        flat = [c.emit("Reshape", part, c.ints([-1])) for part in (x, chosen, new)]
        return c.emit("Reshape", c.emit("ScatterElements", *flat, reduction=how), shape)
    rows = at.rows()
    new = c.emit("Expand", new, c.emit("Shape", c.emit("GatherND", x, rows)))
    return c.emit("ScatterND", x, rows, new, reduction=how)


@translates("take")
def take(c: Call) -> str:
    return c.emit("Gather", c.emit("Reshape", c["input"], c.ints([-1])), c["index"], axis=0)


@translates("nonzero")
def nonzero(c: Call) -> str:
    return c.emit("Transpose", c.emit("NonZero", c["input"]), perm=[1, 0])


@translates("where_condition", "_nonzero_tuple")
def places(c: Call) -> list[str]:
    found = c.emit("NonZero", c["condition" if "condition" in c.args else "input"])
    return [c.emit("Gather", found, c.const(d, "int64"), axis=0) for d in range(len(c.outs))]


# ---- Writes of parts -----------------------------------------------------------------------------


_KINDS = (None, "add", "mul", "max", "min")  # by the number of _scatter_


def _kind(c: Call) -> str | None:
    """How what is there and what is written become one; None: the new is taken."""
    if "how" in c.args:
        return _KINDS[c["how"]]
    if "reduce" in c.args:
        return {"add": "add", "multiply": "mul"}[c["reduce"]]
    return "add" if "add" in c.node["op"] else None


@translates(
    "scatter", "scatter_", "scatter_add", "scatter_add_", "_scatter_", "scatter_with_reduce",
    "scatter__with_reduce",
)  # fmt: skip
def scatter(c: Call) -> str:
    rank = c.rank("index")
    corner = c.emit("Slice", c["src"], c.ints([0] * rank), c.emit("Shape", c["index"]),
                    c.ints(list(range(rank))))  # fmt: skip
    return c.emit("ScatterElements", c[_owner(c)], c["index"], corner, axis=c["dim"],
                  reduction=_kind(c))  # fmt: skip


@translates("scatter_value", "scatter__value", "scatter_value_reduce", "scatter__value_reduce")
def scatter_value(c: Call) -> str:
    new = c.emit("Expand", c.operand("value", c.dtype), c.emit("Shape", c["index"]))
    return c.emit("ScatterElements", c[_owner(c)], c["index"], new, axis=c["dim"],
                  reduction=_kind(c))  # fmt: skip


@translates("scatter_reduce")
def scatter_reduce(c: Call) -> str:
    kinds = {"sum": ("add", 0), "prod": ("mul", 1), "amax": ("max", -1), "amin": ("min", 1)}
    if c["reduce"] not in kinds or not c.dtype.startswith("float"):
        c.refuse("means, and whole numbers")
    kind, least = kinds[c["reduce"]]
    x, at = c[_owner(c)], c["index"]
    if not c["include_self"]:
        least = least * np.inf if kind in ("max", "min") else least
        none = c.emit("Expand", c.number(least, c.dtype), c.emit("Shape", at))
        x = c.emit("ScatterElements", x, at, none, axis=c["dim"])
    rank = c.rank("index")
    corner = c.emit("Slice", c["src"], c.ints([0] * rank), c.emit("Shape", at),
                    c.ints(list(range(rank))))  # fmt: skip
    return c.emit("ScatterElements", x, at, corner, axis=c["dim"], reduction=kind)


def _along(c: Call) -> str:
    """Indices of one dimension as a value of the tensor's rank."""
    ones = [1] * c.rank(_owner(c))
    ones[c["dim"]] = -1
    return c.emit("Reshape", c["index"], c.ints(ones))


@translates("index_add", "index_add_", "index_copy", "index_copy_")
def index_add(c: Call) -> str:
    new, kind = c["source"], None
    if "add" in c.node["op"]:
        kind = "add"
        new = new if c["alpha"] == 1 else c.emit("Mul", new, c["alpha"])
    at = c.emit("Expand", _along(c), c.emit("Shape", new))
    return c.emit("ScatterElements", c[_owner(c)], at, new, axis=c["dim"], reduction=kind)


@translates("index_fill", "index_fill_")
def index_fill(c: Call) -> str:
    x, dim = c[_owner(c)], c["dim"]
    shape = c.emit("Concat", c.emit("Shape", x, start=0, end=dim), c.ints([1]),
                   c.emit("Shape", x, start=dim + 1), axis=0)  # fmt: skip
    at = c.emit("Expand", _along(c), shape)
    new = c.emit("Expand", c.operand("value", c.dtype), c.emit("Shape", at))
    return c.emit("ScatterElements", x, at, new, axis=dim)


@translates("copy_")
def copy(c: Call) -> str:
    return c.emit("Expand", c.operand("src", c.dtype), c.emit("Shape", c["self"]))


# ---- Order ---------------------------------------------------------------------------------------


@translates("topk")
def topk(c: Call) -> list[str]:
    return c.emit("TopK", c["input"], c.ints([c["k"]]), axis=c["dim"], largest=int(c["largest"]),
                  sorted=1, outputs=2)  # fmt: skip


@translates("sort", "argsort")
def sort(c: Call) -> Any:
    size = c.ints([_size(c, c["input"], "input", c["dim"])])
    made = c.emit("TopK", c["input"], size, axis=c["dim"], largest=int(c["descending"]), sorted=1,
                  outputs=2)  # fmt: skip
    return made[1] if c.node["op"] == "argsort" else made


@translates("kthvalue", "median_dim")
def kth(c: Call) -> list[str]:
    k = c["k"] if "k" in c.args else (_known(c, "input", c["dim"]) + 1) // 2
    least = c.emit("TopK", c["input"], c.ints([k]), axis=c["dim"], largest=0, sorted=1, outputs=2)
    at = c.const([k - 1] if c["keepdim"] else k - 1, "int64")
    return [c.emit("Gather", part, at, axis=c["dim"]) for part in least]


@translates("bucketize", "searchsorted")
def buckets(c: Call) -> str:
    edges = "boundaries" if "boundaries" in c.args else "sorted_sequence"
    if c.rank(edges) != 1 or c.args.get("sorter") is not None:
        c.refuse("rows of edges, and a sorter")
    dtype = c.common(edges, "input")
    right = c["right"] or c.args.get("side") == "right"
    x = c.emit("Unsqueeze", c.operand("input", dtype), c.ints([-1]))
    ends = c.emit("Greater" if right else "GreaterOrEqual", c.operand(edges, dtype), x)
    below = c.cast(c.emit("Not", ends), c.dtype)  # so that nan stands behind all
    return c.emit("ReduceSum", below, c.ints([-1]), keepdims=0)


# ---- Parts, repeated and turned ------------------------------------------------------------------


@translates("flip", "fliplr", "flipud")
def flip(c: Call) -> str:
    dims = c.args.get("dims", [1] if c.node["op"] == "fliplr" else [0])
    if not dims:
        return c.emit("Identity", c["input"])
    every = [[-1] * len(dims), [_LAST] * len(dims), dims, [-1] * len(dims)]
    return c.emit("Slice", c["input"], *map(c.ints, every))


@translates("roll")
def roll(c: Call) -> str:
    x, dims, shifts = c["input"], c["dims"], c["shifts"]
    if not dims:
        x = c.emit("Reshape", x, c.ints([-1]))
    for dim, shift in zip(dims or [0], shifts, strict=True):
        size = Size(c.emit("Shape", x, start=dim, end=dim + 1))
        least = c.emit("Max", size, c.ints([1]))  # there is no rest of zero
        cut = Size(c.emit("Sub", size, c.emit("Mod", c.ints([shift]), least)))
        parts = [c.emit("Slice", x, *map(c.ints, ([a], [b], [dim])))
                 for a, b in ((cut, size), (0, cut))]  # fmt: skip
        x = c.emit("Concat", *parts, axis=dim)
    return x if dims else c.emit("Reshape", x, c.emit("Shape", c["input"]))


@translates("repeat", "tile")
def repeat(c: Call) -> str:
    times, rank = c["repeats" if "repeats" in c.args else "dims"], c.rank("input")
    x = c["input"]
    if len(times) > rank:
        x = c.emit("Unsqueeze", x, c.ints(list(range(len(times) - rank))))
    return c.emit("Tile", x, c.ints([*[1] * (rank - len(times)), *times]))


@translates("repeat_interleave")
def repeat_interleave(c: Call) -> str:
    times, dim, x = c["repeats"], c["dim"], c["input"]
    if dim is None:
        dim, x = 0, c.emit("Reshape", x, c.ints([-1]))
    count = c.emit("Mul", c.emit("Shape", x, start=dim, end=dim + 1), c.ints([times]))
    zero, one = c.const(0, "int64"), c.const(1, "int64")
    steps = c.emit("Range", zero, c.emit("Squeeze", count), one)
    return c.emit("Gather", x, c.emit("Div", steps, c.const(times, "int64")), axis=dim)


@translates("unfold")
def unfold(c: Call) -> str:
    dim, rank = c["dimension"], c.rank("input")
    starts = np.arange(0, _known(c, "input", dim) - c["size"] + 1, c["step"])
    at = c.const(starts[:, None] + np.arange(c["size"]), "int64")
    found = c.emit("Gather", c["input"], at, axis=dim)
    order = [d for d in range(rank + 1) if d != dim + 1]
    return c.emit("Transpose", found, perm=[*order, dim + 1])


@translates("diff")
def diff(c: Call) -> str:
    x, dim = c["input"], c["dim"]
    if c["prepend"] is not None or c["append"] is not None:
        c.refuse("parts in front or behind")
    for _ in range(c["n"]):
        ends = [
            c.emit("Slice", x, *map(c.ints, ([a], [b], [dim]))) for a, b in ((1, 1 << 62), (0, -1))
        ]
        x = c.emit("Sub" if c.dtype != "bool" else "Xor", *ends)
    return x


@translates("take_along_dim")
def take_along(c: Call) -> str:
    shapes = [list(c.shape(name)) for name in ("input", "indices")]
    if c["dim"] is None or any(a != b for d, (a, b) in enumerate(zip(*shapes, strict=True))
                               if d != c["dim"]):  # fmt: skip
        c.refuse("indices of another shape")
    return c.emit("GatherElements", c["input"], c["indices"], axis=c["dim"])


@translates("one_hot")
def one_hot(c: Call) -> str:
    if c["num_classes"] < 0:
        c.refuse("a number of classes that follows from values")
    depth = c.const(c["num_classes"], "int64")
    return c.emit("OneHot", c["tensor"], depth, c.const([0, 1], "int64"), axis=-1)


@translates("movedim", "movedim_int")
def movedim(c: Call) -> str:
    rank = c.rank("input")
    source, to = (
        [d % rank for d in (g if isinstance(g, list) else [g])]
        for g in (c["source"], c["destination"])
    )
    rest = iter([d for d in range(rank) if d not in source])
    at = dict(zip(to, source, strict=True))
    return c.emit("Transpose", c["input"],
                  perm=[at[d] if d in at else next(rest) for d in range(rank)])  # fmt: skip


@translates("broadcast_tensors")
def broadcast(c: Call) -> list[str]:
    made = []
    for x in c["tensors"]:
        for other in c["tensors"]:
            x = c.emit("Expand", x, c.emit("Shape", other))
        made.append(x)
    return made


@translates("meshgrid")
def meshgrid(c: Call) -> list[str]:
    parts, n = c["tensors"], len(c["tensors"])
    turned = c["indexing"] == "xy" and n > 1
    at = [1, 0, *range(2, n)] if turned else list(range(n))
    wide = [c.emit("Reshape", x, c.ints([-1 if d == at[i] else 1 for d in range(n)]))
            for i, x in enumerate(parts)]  # fmt: skip
    order = [at.index(d) for d in range(n)]
    flat = [c.emit("Reshape", parts[i], c.ints([-1])) for i in order]
    shape = c.emit("Concat", *[c.emit("Shape", f) for f in flat], axis=0)
    return [c.emit("Expand", w, shape) for w in wide]


@translates("hstack", "vstack")
def beside(c: Call) -> str:
    ranks = {len(c.writer.values[t["v"]]["shape"]) for t in c.node["args"]["tensors"]}
    across = c.node["op"] == "vstack"
    if len(ranks) > 1 or min(ranks) < (2 if across else 1):
        c.refuse("tensors of fewer dimensions")
    return c.emit("Concat", *c["tensors"], axis=0 if across or min(ranks) == 1 else 1)
