"""Rules of operators that work along some dimensions, and treat the others as a batch: those may be
cut. Shapes of results are those that the operator gives tensors without data."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.methods import DisableTorchFunctionSubclass
from tenon.distributed.tensor._dispatch import COMPOSITES, Call, Plan, _mapped
from tenon.distributed.tensor._rules import R, _transposed, elementwise, rule
from tenon.distributed.tensor._rules_shape import _dimension, _free, _kept
from tenon.distributed.tensor.placement_types import Placement, Shard

__all__: list[str] = []


def _shapes(call: Call) -> Any:
    """The shape of the whole result, or the list of those of the results."""
    with DisableTorchFunctionSubclass():
        args, kwargs = _mapped(
            (call.args, call.kwargs),
            lambda t: tenon.empty(t._spec.shape, dtype=t.dtype, device="meta"),
        )
        result = call.func(*args, **kwargs)
    if isinstance(result, Tensor):
        return tuple(result.shape)
    return [tuple(r.shape) for r in result]


def _added(call: Call) -> bool:
    """Whether the first tensor has terms, which the operator would have to keep apart."""
    return any(p.is_partial() for p in call.tensors[0].placements)


# ---- Pieces and copies ---------------------------------------------------------------------------


@rule("__getitem__")
def index(call: Call) -> Plan | None:
    """Numbers, slices, None and an ellipsis; other indices need the whole tensor."""
    x, given = call.tensors[0], call.args[1]
    items = given if isinstance(given, tuple) else (given,)
    if len(call.tensors) > 1 or not all(
        i is None or i is ... or type(i) is int or isinstance(i, slice) for i in items
    ):
        return None
    shape, order, touched, at = x._spec.shape, [], [], 0
    named = sum(i is not None and i is not ... for i in items)
    for item in items:
        if item is ...:
            order += range(at, at + x.ndim - named)
            at += x.ndim - named
        elif item is None:
            order.append(None)
        else:
            if isinstance(item, slice):
                order.append(at)
            if type(item) is int or (at < x.ndim and item.indices(shape[at]) != (0, shape[at], 1)):
                touched.append(at)
            at += 1
    return _kept(call, touched, [*order, *range(at, x.ndim)], _shapes(call))


@rule("unbind")
def unbind(call: Call) -> Plan | None:
    n, dim = call.tensors[0].ndim, _dimension(call, 1, 0)
    if dim is None:
        return None
    return _kept(call, [dim], [d for d in range(n) if d != dim], _shapes(call))


@rule("tensor_split")
def tensor_split(call: Call) -> Plan | None:
    dim = _dimension(call, 2, 0)
    return None if dim is None else _same(call, [dim])


@rule("repeat")
def repeat(call: Call) -> Plan | None:
    sizes = call.args[1:] or (call.kwargs.get("repeats"),)
    sizes = sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
    x = call.tensors[0]
    new = len(sizes) - x.ndim
    if new < 0 or not all(type(n) is int for n in sizes):
        return None
    touched = [d for d in range(x.ndim) if sizes[d + new] != 1]
    return _kept(call, touched, [*[None] * new, *range(x.ndim)], _shapes(call))


def _tile(input: Any, *dims: Any) -> Any:
    sizes = dims[0] if dims and isinstance(dims[0], (tuple, list)) else dims
    return input.repeat(*[1] * (input.ndim - len(sizes)), *sizes)


def _stacked(dim: int, least: int) -> Any:
    """A join along a dimension of tensors that have some, at least."""

    def join(tensors: Any) -> Any:
        if any(t.ndim < least for t in tensors):
            return NotImplemented
        return tenon.cat(list(tensors), dim)

    return join


def _permuted(input: Any, source: Any, destination: Any) -> Any:
    old = [source] if isinstance(source, int) else list(source)
    new = [destination] if isinstance(destination, int) else list(destination)
    n = input.ndim
    if len(old) != len(new) or any(not -n <= d < n for d in (*old, *new)):
        return NotImplemented
    old, new = [d % n for d in old], [d % n for d in new]
    if len(set(old)) != len(old) or len(set(new)) != len(new):
        return NotImplemented
    order: list[Any] = [None] * n
    for s, d in zip(old, new, strict=True):
        order[d] = s
    rest = iter(d for d in range(n) if d not in old)
    return input.permute([next(rest) if o is None else o for o in order])


def _at(input: Any, dim: int, item: Any) -> Any:
    if type(dim) is not int or not -input.ndim <= dim < input.ndim:
        return NotImplemented
    return input[(*[slice(None)] * (dim % input.ndim), item)]


def _narrow(input: Any, dim: int, start: int, length: int) -> Any:
    size = input.shape[dim] if -input.ndim <= dim < input.ndim else 0
    if type(start) is not int or not 0 <= start <= start + length <= size:
        return NotImplemented
    return _at(input, dim, slice(start, start + length))


def _broadcast_tensors(*given: Any) -> Any:
    tensors = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    shape = tenon.broadcast_shapes(*[t.shape for t in tensors])
    return tuple(t.expand(shape) for t in tensors)


COMPOSITES["tile"] = _tile
COMPOSITES["hstack"] = COMPOSITES["column_stack"] = _stacked(1, 2)
COMPOSITES["vstack"] = COMPOSITES["row_stack"] = _stacked(0, 2)
COMPOSITES["dstack"] = _stacked(2, 3)
COMPOSITES["movedim"] = COMPOSITES["moveaxis"] = _permuted
COMPOSITES["select"] = lambda input, dim, index: _at(input, dim, index)
COMPOSITES["narrow"] = _narrow
COMPOSITES["hsplit"] = lambda input, sections: (
    input.tensor_split(sections, 1) if input.ndim > 1 else NotImplemented
)
COMPOSITES["vsplit"] = lambda input, sections: input.tensor_split(sections, 0)
COMPOSITES["expand_as"] = lambda input, other: input.expand(other.shape)
COMPOSITES["broadcast_to"] = lambda input, *size: input.expand(*size)
COMPOSITES["broadcast_tensors"] = _broadcast_tensors
COMPOSITES["fliplr"] = lambda input: input.flip(1) if input.ndim > 1 else NotImplemented
COMPOSITES["flipud"] = lambda input: input.flip(0) if input.ndim else NotImplemented


# ---- Results of the same dimensions --------------------------------------------------------------


def _same(call: Call, touched: list[int]) -> Plan | None:
    """The result has the dimensions of the first tensor, none but the touched of another size."""
    return None if _added(call) else _free(call, touched, _shapes(call))


@rule("cummax", "cummin", "index_select", "bucketize")
def along(call: Call) -> Plan | None:
    if call.name == "bucketize":
        return _same(call, []) if call.tensors[0] is call.args[0] else None
    dim = _dimension(call, 1, None)
    return None if dim is None else _same(call, [dim])


@rule("argsort")
def argsort(call: Call) -> Plan | None:
    dim = _dimension(call, 1, -1)
    return None if dim is None else _same(call, [dim])


@rule("roll")
def roll(call: Call) -> Plan | None:
    given, n = call.argument(2, "dims"), call.tensors[0].ndim
    dims = [given] if isinstance(given, int) else given
    if not dims or any(type(d) is not int or not -n <= d < n for d in dims):
        return None
    return _same(call, [d % n for d in dims])


@rule("pad")
def pad(call: Call) -> Plan | None:
    sides, n = call.argument(1, "pad"), call.tensors[0].ndim
    if len(call.tensors) > 1 or len(sides) % 2 or len(sides) > 2 * n:
        return None
    touched = [n - 1 - i for i in range(len(sides) // 2) if any(sides[2 * i : 2 * i + 2])]
    return _same(call, touched)


@rule("one_hot")
def one_hot(call: Call) -> Plan | None:
    if call.argument(1, "num_classes", -1) < 0 or _added(call):
        return None
    return _kept(call, [], [*range(call.tensors[0].ndim), None], _shapes(call))


@rule("gather", "take_along_dim", "scatter", "scatter_add")
def picked(call: Call) -> Plan | None:
    """Tensors that are cut in a dimension where all are equally large keep that; so does an index
    of the dimension that is looked up in."""
    dim = None if call.name == "take_along_dim" and call.argument(2, "dim") is None else (
        _dimension(call, 2 if call.name == "take_along_dim" else 1, None))  # fmt: skip
    tensors = [t for t in call.tensors if t.ndim]
    x = call.tensors[0]
    if not tensors or x is not tensors[0]:
        return None
    if dim is None or _added(call) or any(t.ndim != x.ndim for t in tensors):
        return None
    columns, layout = [], []
    for d in range(call.mesh.ndim):
        here = [t.placements[d] for t in tensors]
        free = [
            p for p in here
            if isinstance(p, Shard) and p.dim != dim
            and len({t._spec.shape[p.dim] for t in tensors}) == 1
        ]  # fmt: skip
        got: Placement = R
        needs = [R] * len(tensors)
        if free:
            got, needs = free[0], [free[0]] * len(tensors)
        elif call.name == "gather" and here[1].is_shard(dim):
            got, needs = here[1], [R, here[1]]
        rest = iter(needs)
        columns.append([next(rest) if t.ndim else R for t in call.tensors])
        layout.append(got)
    return Plan(_transposed(columns), tuple(layout), _shapes(call))


# ---- Reductions along a dimension ----------------------------------------------------------------


def _reduced(call: Call, dims: list[int], keep: bool) -> Plan | None:
    n = call.tensors[0].ndim
    if _added(call):
        return None
    return _kept(call, dims, [d for d in range(n) if keep or d not in dims], _shapes(call))


@rule("kthvalue", "median", "nanmedian", "mode")
def with_index(call: Call) -> Plan | None:
    first = 2 if call.name == "kthvalue" else 1
    default = None if call.name.endswith("median") else -1
    dim = _dimension(call, first, default)
    return None if dim is None else _reduced(
        call, [dim], bool(call.argument(first + 1, "keepdim", False)))  # fmt: skip


@rule("norm", "linalg_vector_norm", "vector_norm", "matrix_norm", "linalg_matrix_norm")
def norm(call: Call) -> Plan | None:
    n = call.tensors[0].ndim
    given = call.argument(2, "dim", (-2, -1) if "matrix" in call.name else None)
    dims = [given] if isinstance(given, int) else given
    if not dims or any(type(d) is not int or not -n <= d < n for d in dims):
        return None
    return _reduced(call, [d % n for d in dims], bool(call.argument(3, "keepdim", False)))


@rule("cosine_similarity")
def cosine_similarity(call: Call) -> Plan | None:
    a, b = call.tensors
    dim = _dimension(call, 2, 1)
    if dim is None or a._spec.shape != b._spec.shape:
        return None
    plan = _reduced(call, [dim], False)
    if plan is not None:
        plan.wanted = [plan.wanted[0]] * 2
    return plan


# ---- Products by letters -------------------------------------------------------------------------


def _letters(equation: str, operands: list[Any]) -> tuple[list[str], str] | None:
    """(the letters of each operand, those of the result) without an ellipsis, or None: a letter
    stands twice in one, or the text says something else."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        return None
    spare = iter(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation)
    dots = ""
    if "..." in left:
        most = max(o.ndim - len(t) + 3 for t, o in zip(terms, operands, strict=True) if "..." in t)
        dots = "".join(c for c, _ in zip(spare, range(most), strict=False))
        terms = [
            t.replace("...", dots[len(dots) - (o.ndim - len(t) + 3) :])
            for t, o in zip(terms, operands, strict=True)
        ]
    every = "".join(terms)
    if not arrow:
        out = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    out = out.replace("...", dots)
    well = all(
        len(set(t)) == len(t) == o.ndim and t.isalpha()
        for t, o in zip(terms, operands, strict=True)
    )
    return (terms, out) if well and len(set(out)) == len(out) and set(out) <= set(every) else None


def _summed(x: Any, term: str, keep: set[str]) -> tuple[Any, str]:
    """The sum along what nobody asks for."""
    gone = [d for d, c in enumerate(term) if c not in keep]
    return (x.sum(gone) if gone else x), "".join(c for c in term if c in keep)


def _grouped(x: Any, term: str, groups: list[str]) -> Any:
    """(batch..., rows, columns): the dimensions of the last two groups are one each."""
    order = "".join(groups)
    x = x.permute([term.index(c) for c in order])
    sizes = [x.shape[order.index(c)] for c in groups[0]]
    sizes += [math.prod(x.shape[order.index(c)] for c in group) for group in groups[1:]]
    return x if all(len(g) == 1 for g in groups[1:]) else x.reshape(sizes)


def _pair(a: Any, ta: str, b: Any, tb: str, keep: set[str]) -> tuple[Any, str] | None:
    """The product of two operands, summed along what nobody asks for."""
    a, ta = _summed(a, ta, keep | set(tb))
    b, tb = _summed(b, tb, keep | set(ta))
    sizes = dict(zip(tb, b.shape, strict=True))
    if any(sizes.get(c, n) != n for c, n in zip(ta, a.shape, strict=True)):
        return None  # sizes of one, which stand for any
    batch = "".join(c for c in ta if c in tb and c in keep)
    inner = "".join(c for c in ta if c in tb and c not in keep)
    rows = "".join(c for c in ta if c not in tb)
    columns = "".join(c for c in tb if c not in ta)
    if not inner and not rows and not columns:
        return a * b.permute([tb.index(c) for c in ta]), ta
    wanted = [a.shape[ta.index(c)] for c in batch + rows] + [b.shape[tb.index(c)] for c in columns]
    result = tenon.matmul(
        _grouped(a, ta, [batch, rows, inner]), _grouped(b, tb, [batch, inner, columns])
    )
    if len(rows) != 1 or len(columns) != 1:
        result = result.reshape(wanted)
    return result, batch + rows + columns


def _einsum(equation: Any, *operands: Any) -> Any:
    """Sums, permutations and products of matrices, which have rules."""
    given = list(operands[0]) if len(operands) == 1 and not isinstance(
        operands[0], Tensor) else list(operands)  # fmt: skip
    found = _letters(equation, given) if isinstance(equation, str) else None
    if found is None:
        return NotImplemented
    terms, out = found
    x, term = given[0], terms[0]
    for i in range(1, len(given)):
        pair = _pair(x, term, given[i], terms[i], set(out).union(*terms[i + 1 :]))
        if pair is None:
            return NotImplemented
        x, term = pair
    x, term = _summed(x, term, set(out))
    return x if term == out else x.permute([term.index(c) for c in out])


def _tensordot(a: Any, b: Any, of_a: list[int], of_b: list[int], *, out: Any = None) -> Any:
    letters = "abcdefghijklmnopqrstuvwxyz"
    if out is not None or len(of_a) != len(of_b) or a.ndim + b.ndim > len(letters):
        return NotImplemented
    term_a = list(letters[: a.ndim])
    term_b = list(letters[a.ndim : a.ndim + b.ndim])
    for i, j in zip(of_a, of_b, strict=True):
        term_b[j] = term_a[i]
    once = [c for c in (*term_a, *term_b) if (c in term_a) != (c in term_b)]
    return _einsum(f"{''.join(term_a)},{''.join(term_b)}->{''.join(once)}", a, b)


COMPOSITES["einsum"] = _einsum
COMPOSITES["tensordot"] = _tensordot


# ---- Losses --------------------------------------------------------------------------------------


def _loss(name: str, place: int) -> Any:
    """A loss of elements: those of the parts, and their mean or sum. place: of `reduction`."""

    def loss(*args: Any, **kwargs: Any) -> Any:
        how = args[place] if place < len(args) else kwargs.get("reduction", "mean")
        if how not in ("mean", "sum"):
            return NotImplemented
        if place < len(args):
            args = (*args[:place], "none", *args[place + 1 :])
        else:
            kwargs = {**kwargs, "reduction": "none"}
        each = getattr(tenon.nn.functional, name)(*args, **kwargs)
        return each.mean() if how == "mean" else each.sum()

    return loss


for _name, _place in (("mse_loss", 2), ("l1_loss", 2), ("smooth_l1_loss", 2), ("huber_loss", 2),
                      ("soft_margin_loss", 2), ("binary_cross_entropy", 3),
                      ("binary_cross_entropy_with_logits", 3)):  # fmt: skip
    COMPOSITES[_name] = _loss(_name, _place)
    rule(_name)(elementwise)
del _name, _place


def _class_loss(name: str) -> Any:
    """The loss of samples, whose classes are whole: the sum of the parts' over the number of those
    that count."""

    def loss(
        input: Any, target: Any, weight: Any = None, *, ignore_index: int = -100,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> Any:  # fmt: skip
        if weight is not None or label_smoothing or reduction not in ("mean", "sum"):
            return NotImplemented
        if target.dtype.is_floating_point or input.ndim < 2:
            return NotImplemented
        fn = getattr(tenon.nn.functional, name)
        each = fn(input, target, ignore_index=ignore_index, reduction="none")
        total = each.sum(dtype=tenon.promote_types(each.dtype, tenon.float32))
        if reduction == "mean":
            count = (target != ignore_index).sum()
            total = total / count.redistribute(placements=[R] * count.device_mesh.ndim)
        return total.redistribute(placements=[R] * total.device_mesh.ndim).to(each.dtype)

    return loss


for _name in ("cross_entropy", "nll_loss"):
    COMPOSITES[_name] = _class_loss(_name)
del _name


@rule("cross_entropy", "nll_loss")
def loss_of_samples(call: Call) -> Plan | None:
    """The losses themselves, of targets that are classes. Samples are cut in dimension 0."""
    x, target = call.tensors[0], call.tensors[1] if len(call.tensors) > 1 else None
    if len(call.tensors) != 2 or x.ndim < 2 or target.dtype.is_floating_point or _added(call):
        return None
    if call.kwargs.get("reduction", "mean") != "none":
        return None
    layout = tuple(p if p.is_shard(0) else R for p in x.placements)
    return Plan([layout, layout], layout, tuple(target._spec.shape))
