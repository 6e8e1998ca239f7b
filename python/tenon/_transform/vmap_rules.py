"""How operators run on all elements of a vmap at once, by family.

A rule gets the call and returns its result, or NotImplemented: then the operator runs for each
element. The mapped dimension of a batch is always the first, so that a dimension that counts from
the end is the same for an element and for the batch, and one that counts from the front is one
more. What rules compute may itself be mapped by an outer vmap: they only call operators.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable
from functools import cache
from itertools import takewhile
from typing import Any

import tenon
from tenon import _C
from tenon._tensor.dims import wrapped_dim
from tenon._transform.vmap_calls import (
    CONVERSIONS,
    INPLACE_SIGNS,
    SIGNS,
    UNARY_SIGNS,
    Call,
    Entry,
    draws,
    holds_mapped,
    literal,
    table,
)

# ---- Families ------------------------------------------------------------------------------------


def _tensors(call: Call) -> list[Any]:
    values = [*call.args, *call.kwargs.values()]
    return [v for v in values if isinstance(v, tenon.Tensor)]


def pointwise(call: Call, entry: Entry | None = None) -> Any:
    """Elements get as many dimensions as the one that has the most. A number that stands in a 0-d
    element must not win promotion because the batch has a dimension."""
    if "out" in call.kwargs or any(holds_mapped(call, a) for a in call.args):
        return NotImplemented
    tensors = _tensors(call)
    rank = max(t.dim() for t in tensors)
    full = [t for t in tensors if t.dim() > 0]
    common = tenon.result_type(*full[:1], *full[1:2]) if len(full) > 1 else None
    common = full[0].dtype if common is None and full else common

    def aligned(value: Any) -> Any:
        batch = call.of_rank(value, rank)
        number = call.maps(value) and value.dim() == 0 and rank > 0
        return batch.to(common) if number and _same_kind(batch.dtype, common) else batch

    args = [aligned(a) for a in call.args]
    out = call.func(*args, **{k: aligned(v) for k, v in call.kwargs.items()})
    return call.args[0] if call.is_inplace else call.wrap(out)


def _same_kind(a: Any, b: Any) -> bool:
    return b is not None and a != b and (
        a.is_floating_point <= b.is_floating_point and not a.is_complex
    )  # fmt: skip


def _shifted(dim: Any) -> Any:
    if isinstance(dim, list | tuple):
        return tuple(_shifted(d) for d in dim)
    return dim + 1 if dim >= 0 else dim


def _with(call: Call, place: int, name: str, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments with another value for one of them."""
    args, kwargs = (
        [call.all(a) for a in call.args],
        {k: call.all(v) for k, v in call.kwargs.items()},
    )
    if len(args) > place:
        args[place] = value
    else:
        kwargs[name] = value
    return args, kwargs


def _given(call: Call, place: int, name: str) -> Any:
    return call.args[place] if len(call.args) > place else call.kwargs.get(name, ...)


def _is_dim(dim: Any) -> bool:
    if isinstance(dim, list | tuple):
        return len(dim) > 0 and all(_is_dim(d) for d in dim)
    return isinstance(dim, int) and not isinstance(dim, bool)


def reduce(call: Call, entry: Entry) -> Any:
    x, place = call.args[0], entry.place("dim")
    dim = ... if place is None else _given(call, place, "dim")
    if call.others_mapped() or not call.maps(x) or "out" in call.kwargs:
        return NotImplemented
    if dim is ... or dim is None or dim == ():
        keep = entry.place("keepdim")
        if keep is not None and _given(call, keep, "keepdim") not in (..., False):
            return NotImplemented
        flat = x._batch.reshape(call.size, -1)
        if call.name in ("max", "min"):
            return call.wrap(getattr(flat, "a" + call.name)(1)) if flat.shape[1] else NotImplemented
        if place is None:
            return call.wrap(getattr(tenon, call.name)(flat, 1, *call.args[1:], **call.kwargs))
        args, kwargs = _with(call, place, "dim", 1)
        return call.wrap(call.func(flat, *args[1:], **kwargs))
    if not _is_dim(dim) or x.dim() == 0:
        return NotImplemented
    args, kwargs = _with(call, place, "dim", _shifted(dim))
    return call.wrap(call.func(*args, **kwargs))


def along(call: Call, entry: Entry) -> Any:
    x, place = call.args[0], entry.place("dim", "dims")
    name, default = entry.args[place]["name"], entry.args[place]["default"]
    dim = _given(call, place, name)
    if dim is ... and default is not None:
        dim = literal(default)
    first = x.dim() == 0 and call.name != "unsqueeze"
    if call.others_mapped() or not call.maps(x) or not _is_dim(dim) or first:
        return NotImplemented
    args, kwargs = _with(call, place, name, _shifted(dim))
    return call.wrap(call.func(*args, **kwargs))


def dims(call: Call, entry: Entry) -> Any:
    """Some dimensions, by default the last of them: as many as a list of sizes `s` has, or all."""
    x, place, sizes = call.args[0], entry.place("dim"), entry.place("s")
    dim = _given(call, place, "dim")
    dim = literal(entry.args[place]["default"]) if dim is ... else dim
    if dim is None:
        s = None if sizes is None else _given(call, sizes, "s")
        dim = tuple(range(-(len(s) if isinstance(s, list | tuple) else x.dim()), 0))
    if call.others_mapped() or not call.maps(x) or not _is_dim(dim) or x.dim() == 0:
        return NotImplemented
    args, kwargs = _with(call, place, "dim", _shifted(dim))
    return call.wrap(call.func(*args, **kwargs))


def last(call: Call, entry: Entry) -> Any:
    """The last dimensions of one mapped argument are worked on, those in front left alone."""
    place = entry.place(entry.detail) if entry.detail else 0
    value = _given(call, place, entry.args[place]["name"])
    rest = [v for v in [*call.args, *call.kwargs.values()] if v is not value]
    if not call.maps(value) or value.dim() == 0 or any(
        call.maps(v) or holds_mapped(call, v) for v in rest
    ):  # fmt: skip
        return NotImplemented
    args = [call.all(a) for a in call.args]
    return call.wrap(call.func(*args, **{k: call.all(v) for k, v in call.kwargs.items()}))


def fold(call: Call, entry: Entry) -> Any:
    """Samples are dimension 0, which takes the mapped dimension in."""
    x, rank = call.args[0], int(entry.detail)
    if call.others_mapped() or not call.maps(x) or x.dim() not in (rank, rank + 1):
        return NotImplemented
    batch = x._batch if x.dim() == rank else x._batch.flatten(0, 1)
    out = call.func(batch, *call.args[1:], **call.kwargs)
    if not isinstance(out, tenon.Tensor):
        return NotImplemented
    return call.wrap(out if x.dim() == rank else out.unflatten(0, (call.size, -1)))


def _matrices(call: Call, value: Any, rank: int, column: bool) -> Any:
    """An operand of a product with at least `rank` dimensions per element, two of them a matrix."""
    t, own = call.all(value), value.dim()
    if own == 1:
        t = t.unsqueeze(-1 if column else -2)
        own = 2
    if not call.maps(value) or own == rank:
        return t
    return t.reshape(call.size, *[1] * (rank - own), *t.shape[1:])


# Of operands, where it is not any: matmul would take more.
RANKS = {"dot": (1, 1), "mv": (2, 1), "mm": (2, 2), "bmm": (3, 3)}


def product(call: Call, entry: Entry | None = None) -> Any:
    if (
        len(call.args) != 2
        or call.kwargs
        or not all(isinstance(a, tenon.Tensor) for a in call.args)
    ):
        return NotImplemented
    a, b = reversed(call.args) if call.name == "__rmatmul__" else call.args
    if a.dim() == 0 or b.dim() == 0:
        return NotImplemented
    if (a.dim(), b.dim()) != RANKS.get(call.name, (a.dim(), b.dim())):
        return NotImplemented  # the operator says itself what it takes
    if call.name == "bmm" and a.shape[0] != b.shape[0]:
        return NotImplemented
    if a.dim() == 2 and b.dim() == 1 and not call.maps(a):  # the vectors are rows of one product
        return call.wrap(tenon.matmul(b._batch, a.transpose(0, 1)))
    rank = max(a.dim(), b.dim(), 2)
    out = tenon.matmul(_matrices(call, a, rank, False), _matrices(call, b, rank, True))
    if a.dim() == 1:
        out = out.squeeze(-2)
    if b.dim() == 1:
        out = out.squeeze(-1)
    return call.wrap(out)


def linear(call: Call, entry: Entry | None = None) -> Any:
    x, weight, bias = [*call.args, None][:3] if len(call.args) < 4 else (None, None, None)
    bias = call.kwargs.get("bias", bias)
    if x is None or call.kwargs.keys() - {"bias"} or weight.dim() != 2 or x.dim() == 0:
        return NotImplemented
    if not call.maps(weight) and not call.maps(bias):
        return call.wrap(call.func(call.all(x), weight, bias))
    out = tenon.matmul(x, weight.transpose(0, 1))
    return out if bias is None else out + bias


def reshape(call: Call, entry: Entry | None = None) -> Any:
    x, sizes = call.args[0], call.args[1:]
    listed = len(sizes) == 1 and isinstance(sizes[0], list | tuple)
    sizes = call.kwargs.get("shape", sizes[0] if listed else sizes)
    whole = all(isinstance(s, int) and not isinstance(s, bool) for s in sizes)
    if not whole or not (sizes or listed):
        return NotImplemented
    if call.name == "expand":
        lead = [1] * (len(sizes) - x.dim())
        batch = x._batch.reshape(call.size, *lead, *x.shape)
        return call.wrap(batch.expand(call.size, *sizes))
    form = x._batch.view if call.name == "view" else x._batch.reshape
    return call.wrap(form(call.size, *sizes))


def flatten(call: Call, entry: Entry | None = None) -> Any:
    x = call.args[0]
    start = _given(call, 1, "start_dim")
    end = _given(call, 2, "end_dim")
    if x.dim() == 0:
        return NotImplemented
    start, end = 0 if start is ... else start, -1 if end is ... else end
    return call.wrap(x._batch.flatten(_shifted(start), _shifted(end)))


def permute(call: Call, entry: Entry | None = None) -> Any:
    dims = call.args[1:]
    if len(dims) == 1 and isinstance(dims[0], list | tuple):
        dims = tuple(dims[0])
    dims = call.kwargs.get("dims", dims)
    x = call.args[0]
    moved = [0, *(wrapped_dim(d, x.dim()) + 1 for d in dims)]
    return call.wrap(call.func(x._batch, moved))


def transpose(call: Call, entry: Entry | None = None) -> Any:
    """Every argument behind the tensor is a dimension, or a list of them."""
    x, dims = call.args[0], [*call.args[1:], *call.kwargs.values()]
    if x.dim() == 0 or not all(_is_dim(d) for d in dims):
        return NotImplemented
    if call.name == "t":
        return call.wrap(x._batch.transpose(1, 2)) if x.dim() == 2 else x
    kwargs = {k: _shifted(v) for k, v in call.kwargs.items()}
    return call.wrap(call.func(x._batch, *map(_shifted, call.args[1:]), **kwargs))


def join(call: Call, entry: Entry | None = None) -> Any:
    tensors = call.args[0]
    dim = _given(call, 1, "dim")
    dim = 0 if dim is ... else dim
    if call.name in ("cat", "concat", "concatenate") and len({t.dim() for t in tensors}) > 1:
        tensors = [t for t in tensors if tuple(t.shape) != (0,)] or tensors  # as cat itself does
    if not _is_dim(dim) or any(t.dim() == 0 for t in tensors) and call.name == "cat":
        return NotImplemented
    return call.wrap(call.func([call.spread(t) for t in tensors], dim=_shifted(dim)))


def convert(call: Call) -> Any:
    """Of another tensor only dtype and device are looked at, not the sizes."""
    if not call.maps(call.args[0]):
        return NotImplemented
    args = [call.all(a) for a in call.args]
    return call.wrap(call.func(*args, **{k: call.all(v) for k, v in call.kwargs.items()}))


def put(call: Call) -> Any:
    """Writes to what numbers, slices, None and Ellipsis say."""
    x, index, value = call.args
    parts = index if isinstance(index, tuple) else (index,)
    if not call.maps(x) or not all(map(_is_plain, parts)):
        return NotImplemented
    place = (slice(None), *parts)
    rank = x._batch[place].dim() - 1
    if isinstance(value, tenon.Tensor) and value.dim() > rank:
        return NotImplemented
    x._batch[place] = call.of_rank(value, rank)
    return None


def _is_plain(part: Any) -> bool:
    plain = isinstance(part, int | slice | type(None) | type(...))
    return plain and not isinstance(part, bool)


def item(call: Call) -> Any:
    """Numbers, slices, None and Ellipsis, behind tensors of places; others go one by one."""
    x, index = call.args
    parts = index if isinstance(index, tuple) else (index,)
    front = list(takewhile(_is_places, parts))
    rest = parts[len(front) :]
    if not all(map(_is_plain, rest)) or (front and any(isinstance(p, int) for p in rest)):
        return NotImplemented
    if not any(map(call.maps, front)):
        return call.wrap(x._batch[(slice(None), *parts)]) if call.maps(x) else NotImplemented
    rank = max(t.dim() for t in front)
    places = [call.of_rank(t, rank) for t in front]
    if call.maps(x):
        every = tenon.arange(call.size, device=x.device)
        places.insert(0, every.view(-1, *[1] * rank))
    return call.wrap(call.all(x)[(*places, *rest)])


def _is_places(value: Any) -> bool:
    """A tensor of whole numbers, which is no mask."""
    if not isinstance(value, tenon.Tensor) or value.dtype in (tenon.bool, tenon.uint8):
        return False
    return not (value.is_floating_point() or value.is_complex())


def fact(call: Call) -> Any:
    """What strides tell is the same for every element."""
    return call.func(call.element(call.args[0], 0)) if call.size else NotImplemented


def squeeze(call: Call, entry: Entry) -> Any:
    x = call.args[0]
    return call.wrap(x._batch.squeeze([d + 1 for d, n in enumerate(x.shape) if n == 1]))


def repeat(call: Call, entry: Entry) -> Any:
    """How often along each dimension; tile takes missing ones in front for 1."""
    x, counts = call.args[0], call.args[1:]
    if len(counts) == 1 and isinstance(counts[0], list | tuple):
        counts = counts[0]
    counts = list(call.kwargs.get("repeats", call.kwargs.get("dims", counts)))
    more = len(counts) - x.dim()
    if more < 0 and call.name != "tile":
        return NotImplemented
    batch = x._batch.reshape(call.size, *[1] * more, *x.shape)
    return call.wrap(batch.repeat(1, *[1] * -more, *counts))


def conv(call: Call, entry: Entry) -> Any:
    """Weights of each element are groups of one convolution."""
    values, rank = _values(call, entry), int(entry.detail)
    x, weight, bias = (values[n] for n in ("input", "weight", "bias"))
    if not call.maps(weight) and not call.maps(bias):
        return fold(call, entry)
    if x.dim() not in (rank, rank + 1):
        return NotImplemented
    whole = x.unsqueeze(0) if x.dim() == rank else x
    values["weight"] = call.spread(weight).flatten(0, 1)
    values["bias"] = None if bias is None else call.spread(bias).flatten()
    if call.maps(x) or values["groups"] != 1 or "transpose" in call.name:
        values["groups"] *= call.size
        whole = call.spread(whole).transpose(0, 1).flatten(1, 2)
    out = _called(call, entry, values | {"input": whole})
    out = out.unflatten(1, (call.size, -1)).transpose(0, 1)
    return call.wrap(out.squeeze(1) if x.dim() == rank else out)


def embedding(call: Call, entry: Entry) -> Any:
    """Rows of each element's table are those of one long one."""
    values = _values(call, entry)
    weight, indices = values["weight"], values["indices"]
    if not call.maps(weight):
        return last(call, entry)
    if values["padding_idx"] != -1 or values["scale_grad_by_freq"] or values["sparse"]:
        return NotImplemented
    rows, places = weight.shape[0], call.spread(indices)
    if not _lie_within(places, rows):
        return NotImplemented  # the loop says so
    first = tenon.arange(0, call.size * rows, rows, device=places.device)
    places = places + first.view(-1, *[1] * indices.dim())
    return call.wrap(call.func(call.all(weight).flatten(0, 1), places))


def _lie_within(places: Any, rows: int) -> bool:
    while hasattr(places, "_batch"):  # of an outer vmap
        places = places._batch
    return not bool(((places < 0) | (places >= rows)).any())


def norm(call: Call, entry: Entry) -> Any:
    """Weights of each element come afterwards."""
    values = _values(call, entry)
    x, weight, bias = (values.get(n) for n in ("input", "weight", "bias"))
    if not call.maps(weight) and not call.maps(bias):
        return last(call, entry)
    plain = {"input": call.all(x)} | {n: None for n in ("weight", "bias") if n in values}
    out = _called(call, entry, values | plain)
    out = call.wrap(out) if call.maps(x) else out
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def einsum(call: Call, entry: Entry) -> Any:
    """A letter more for the operands that are mapped, and for the result."""
    equation, operands = call.args
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    free = next((c for c in string.ascii_letters if c not in equation), None)
    if free is None or len(terms) != len(operands):
        return NotImplemented
    if not arrow:  # what stands once, in order, behind what no letter stands for
        letters = inputs.replace(",", "").replace(".", "")
        output = "..." * ("..." in inputs)
        output += "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    pairs = zip(terms, operands, strict=True)
    made = ",".join(free + t if call.maps(x) else t for t, x in pairs)
    return call.wrap(call.func(f"{made}->{free}{output}", [call.all(x) for x in operands]))


def channels(call: Call, entry: Entry) -> Any:
    """Channels of each element are channels of one batch; statistics that are kept are its own."""
    values = _values(call, entry)
    x = values["input"]
    others = [values[n] for n in ("running_mean", "running_var", "weight", "bias")]
    if x.dim() < 2 or (values["training"] and others[0] is not None):
        return NotImplemented
    if not values["training"]:
        if any(map(call.maps, others)):
            return NotImplemented
        values["input"] = x._batch.flatten(0, 1)
        return call.wrap(_called(call, entry, values).unflatten(0, (call.size, -1)))
    for name in ("weight", "bias"):
        if values[name] is not None:
            values[name] = call.spread(values[name]).reshape(-1)
    turned = call.spread(x).transpose(0, 1)
    values["input"] = turned.flatten(1, 2)
    return call.wrap(_called(call, entry, values).reshape(turned.shape).transpose(0, 1))


def loss(call: Call, entry: Entry) -> Any:
    """Losses of pairs of elements: each on its own, then the mean or sum of those of an element."""
    given = dict(zip((a["name"] for a in entry.args[2:]), call.args[2:])) | call.kwargs
    given = {name: value for name, value in given.items() if value is not None}
    reduction = given.pop("reduction", "mean")
    if given or len(call.args) < 2 or call.args[0].dim() == 0:
        return NotImplemented
    if call.args[0].shape != call.args[1].shape or reduction not in ("mean", "sum", "none"):
        return NotImplemented
    a, b = (call.spread(t) for t in call.args[:2])
    each = call.func(a, b, reduction="none")
    if reduction != "none":
        each = getattr(each.flatten(1), reduction)(1)
    return call.wrap(each)


def strided(call: Call, entry: Entry) -> Any:
    """Views by strides count from the beginning of the element: for the first, the batch's."""
    names = [a["name"] for a in entry.args]
    given = dict(zip(names, call.args)) | call.kwargs
    x, offset = given["input"], given.get("storage_offset")
    if not call.maps(x):
        return NotImplemented
    start = x._batch.storage_offset() if offset is None else offset
    return call.wrap(_window(x._batch, call.size, given["size"], given["stride"], start))


def _window(batch: Any, size: int, sizes: Any, strides: Any, start: int) -> Any:
    """The same view of every element, a view of the batch; `start` is that of the first."""
    return batch.as_strided((size, *sizes), (batch.stride(0), *strides), start)


def _as_dtype(batch: Any, dtype: Any) -> Any:
    if batch.dtype == dtype:
        return batch
    if batch.is_complex() and dtype.is_floating_point:
        return tenon.view_as_real(batch)
    if dtype.is_complex and batch.is_floating_point():
        return tenon.view_as_complex(batch)
    return batch.view(dtype)


def views_of_all(call: Call, first: Any) -> Any:
    """What an operator gives for all elements where it gave views of the first one: views of the
    batch, so that writes arrive there; None where it gave something else."""
    x = call.args[0] if call.args else None
    if call.is_inplace or not call.maps(x) or call.others_mapped():
        return None
    batch, many = x._batch, isinstance(first, list | tuple)
    views = list(first) if many else [first]
    if not views or not all(
        isinstance(v, tenon.Tensor)
        and v.layout == batch.layout == tenon.strided
        and v._storage_id() == batch._storage_id()
        for v in views
    ):
        return None
    found = [
        call.wrap(_window(_as_dtype(batch, v.dtype), call.size, v.shape, v.stride(),
                          v.storage_offset()))
        for v in views
    ]  # fmt: skip
    return type(first)(found) if many else found[0]


def total(call: Call, entry: Entry) -> Any:
    """What a loss ends with: (losses of the elements, reduction), each element's own."""
    x, reduction, *rest = call.args
    if rest != [None] * len(rest) or call.kwargs or not call.maps(x) or x.dim() == 0:
        return NotImplemented
    return x if reduction == "none" else call.wrap(getattr(x._batch.flatten(1), reduction)(1))


def parts(call: Call, entry: Entry) -> Any:
    """A formula of the table is an expression of Python: its operators run one after the other.
    What the entry says behind `as` is the formula of an operator that has a kernel."""
    if call.is_inplace or "out" in call.kwargs or tenon.is_autocast_enabled():
        return NotImplemented
    formula = entry.detail or entry.forward
    scope: dict[str, Any] = {
        a["name"]: literal(a["default"]) for a in entry.args if a["default"] is not None
    }
    scope |= dict(zip((a["name"] for a in entry.args), call.args)) | call.kwargs
    if _writes(formula):  # into copies of arguments, which each element needs
        for name, value in scope.items():
            if isinstance(value, tenon.Tensor) and not call.maps(value):
                scope[name] = call.wrap(call.spread(value))
    return eval(_compiled(formula), {}, _Scope(scope))


@cache
def _writes(formula: str | None) -> bool:
    """Whether a formula calls an in-place form."""
    names = re.findall(r"(\w+)\(", formula or "")
    entries = [table().by_c_name[n] for n in names if n in table().by_c_name]
    return any(e.py_name.endswith("_") for e in entries)


class _Marked(ast.NodeTransformer):
    """Calls get names that no argument has."""

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            node.func.id = f"{_Scope.MARK}{node.func.id}"
        return node


@cache
def _compiled(formula: str) -> Any:
    tree = _Marked().visit(ast.parse(formula.strip(), mode="eval"))
    return compile(tree, "<formula of the op table>", "eval")


class _Scope(dict[str, Any]):
    """The arguments, and behind a mark the operators by the names that formulas call them by."""

    MARK = "op "

    def __missing__(self, name: str) -> Any:
        entry = table().by_c_name[name.removeprefix(self.MARK)]
        owner = next(o for o in (_C._ops, _C._nn, tenon.Tensor) if hasattr(o, entry.py_name))
        function = getattr(owner, entry.py_name)
        free = sum(not a["kwonly"] for a in entry.args)
        behind = [a["name"] for a in entry.args[free:]]

        def operator(*args: Any, **kwargs: Any) -> Any:
            return function(*args[:free], **dict(zip(behind, args[free:])), **kwargs)

        return operator


# Arguments that are the sizes of a result, and dimensions.
_SIZES = {"size", "input_size", "shape"}
_DIMS = {"dim", "dim1", "dim2", "dimension"}


def _values(call: Call, entry: Entry) -> dict[str, Any]:
    """What every argument is, by its name."""
    given = dict(zip((a["name"] for a in entry.args), call.args)) | call.kwargs
    return {
        a["name"]: given[a["name"]] if a["name"] in given else literal(a["default"])
        for a in entry.args
    }


def _called(call: Call, entry: Entry, values: dict[str, Any]) -> Any:
    """The function with these arguments; those behind its defaults have other places in Python."""
    needed = [a["name"] for a in entry.args if a["default"] is None and not a["kwonly"]]
    named = {
        a["name"]: values[a["name"]] for a in entry.args
        if a["name"] not in needed
        and (a["default"] is None or isinstance(values[a["name"]], tenon.Tensor)
             or values[a["name"]] != literal(a["default"]))
    }  # fmt: skip
    return call.func(*(values[name] for name in needed), **named)


def spread(call: Call, entry: Entry) -> Any:
    """Every tensor is repeated, sizes get the number of elements in front, dimensions are one
    further. Arguments named in the entry belong to all elements, and so do sums over them."""
    values = _values(call, entry)
    if any(values.get(name) is True for name in ("need_weight", "need_bias")):
        return NotImplemented
    sizes = [v for n, v in values.items() if n in _SIZES and isinstance(v, list | tuple)]
    rank = len(sizes[0]) if sizes else call.args[0].dim()
    common = entry.detail.split()
    ranks = {v.dim() for n, v in values.items() if isinstance(v, tenon.Tensor) and n not in common}
    if len(ranks) > 1 and not sizes:  # dimensions would not be the same ones
        return NotImplemented
    for a in entry.args:
        name, value = a["name"], values[a["name"]]
        if isinstance(value, tenon.Tensor) and name not in common:
            if value.dim() == 0 and _DIMS & values.keys() and not sizes:
                return NotImplemented
            values[name] = call.spread(value)
        elif call.maps(value) or holds_mapped(call, value):
            return NotImplemented
        elif name in _SIZES and a["type"].startswith("int["):
            values[name] = [call.size, *([value] if isinstance(value, int) else value)]
        elif name in _DIMS:
            every = value is None or value == []
            if every and a["type"] != "Dims":
                return NotImplemented
            values[name] = list(range(1, rank + 1)) if every else _shifted(value)
        elif a["type"] == "Tensor?[]":
            held = [i for i, v in enumerate(value) if v is not None]
            if held[-1] - held[0] + 1 != len(held):  # what they choose would come in front
                return NotImplemented
            values[name] = [None, *value]
    out = _called(call, entry, values)
    return call.args[0] if call.is_inplace else call.wrap(out)


def samples(call: Call, entry: Entry) -> Any:
    """Samples are dimension 0 of the arguments that the entry names, which takes the mapped
    dimension in, and of a size."""
    values = _values(call, entry)
    for name, value in values.items():
        if name in entry.detail.split():
            values[name] = call.spread(value).flatten(0, 1)
        elif call.maps(value):
            return NotImplemented
        elif name == "input_size":
            values[name] = [call.size * value[0], *value[1:]]
    return call.wrap(_called(call, entry, values).unflatten(0, (call.size, -1)))


def outer(call: Call, entry: Entry) -> Any:
    """The products of two matrices' rows, summed, and the sum of the first one's rows."""
    grad, other = (call.spread(t) for t in call.args)
    grad, other = grad.flatten(1, -2), other.flatten(1, -2)
    return call.wrap((tenon.matmul(grad.transpose(1, 2), other), grad.sum(1)))


def classes(call: Call, entry: Entry) -> Any:
    """Losses of scores by their classes: those of all elements' samples, then what each element
    makes of its own."""
    values = _values(call, entry)
    x, target, reduction = values["input"], values["target"], values["reduction"]
    plain = values["weight"] is None and not values.get("label_smoothing")
    known = plain and reduction in ("mean", "sum", "none")
    if not known or not 1 <= x.dim() <= 2 or target.dim() != x.dim() - 1:
        return NotImplemented
    x, target = (call.spread(t) for t in (x, target))
    values |= {"input": x.reshape(-1, x.shape[-1]), "target": target.reshape(-1)}
    each = _called(call, entry, values | {"reduction": "none"}).view(target.shape)
    if reduction == "none":
        return call.wrap(each)
    if each.dim() == 1:
        each, target = each.unsqueeze(1), target.unsqueeze(1)
    total = each.sum(1)
    counted = (target != values["ignore_index"]).sum(1)
    return call.wrap(total / counted if reduction == "mean" else total)


def batch(call: Call) -> Any:
    """An operator of a plugin that treats the elements of dimension 0 on their own."""
    mapped = [a for a in [*call.args, *call.kwargs.values()] if call.maps(a)]
    if any(t.dim() == 0 for t in mapped):
        return NotImplemented

    def folded(value: Any) -> Any:
        return value._batch.flatten(0, 1) if call.maps(value) else value

    out = call.func(*map(folded, call.args), **{k: folded(v) for k, v in call.kwargs.items()})
    if not isinstance(out, tenon.Tensor):
        return NotImplemented
    return call.wrap(out.unflatten(0, (call.size, -1)))


ADDED: dict[str, Callable[[Call], Any]] = {"pointwise": pointwise, "batch": batch}
FAMILIES: dict[str, Callable[[Call, Entry], Any]] = {
    "pointwise": pointwise, "reduce": reduce, "along": along, "dims": dims, "last": last,
    "fold": fold, "product": product, "linear": linear, "loss": loss, "total": total, "join": join,
    "reshape": reshape, "flatten": flatten, "permute": permute, "transpose": transpose,
    "parts": parts, "strided": strided, "spread": spread, "samples": samples, "outer": outer,
    "classes": classes, "as": parts, "einsum": einsum, "channels": channels,
    "squeeze": squeeze, "repeat": repeat, "conv": conv, "embedding": embedding, "norm": norm,
}  # fmt: skip
# These take their dimensions one by one, or look at every argument themselves.
LOOSE = {"reshape", "permute", "product", "linear", "transpose", "repeat"}
ANY_PLACE = {
    "pointwise", "product", "linear", "join", "loss", "parts", "last", "spread", "samples", "outer",
    "classes", "as", "einsum", "channels", "conv", "embedding", "norm",
}  # fmt: skip


def _of_python(name: str) -> Callable[[Call], Any] | None:
    """The rule of what is no operator of the table."""
    if "::" in name:  # of a plugin, which says it itself
        return ADDED.get(_C._added_vmap(name) or "")
    return _of_signs(name)


_MEMBERS: dict[str, Callable[[Call], Any]] = {
    "__getitem__": item, "__setitem__": put, "_lies_channels_last": fact,
}  # fmt: skip


@cache
def _of_signs(name: str) -> Callable[[Call], Any] | None:
    if name in _MEMBERS:
        return _MEMBERS[name]
    if name in ("__matmul__", "__rmatmul__"):
        return product
    sign = name.strip("_").removeprefix("r") if name.startswith("__r") else name.strip("_")
    dunder = name.startswith("__") and (sign in SIGNS or name.strip("_") in SIGNS)
    if name in CONVERSIONS:
        return convert
    return pointwise if dunder or name in INPLACE_SIGNS | UNARY_SIGNS else None


def by_entry(call: Call, entry: Entry) -> Any:
    drawn = draws(call.name, call.args, call.kwargs)
    if drawn and (entry.family != "last" or call.randomness == "same"):
        return NotImplemented
    if entry.family not in ANY_PLACE and not call.maps(call.args[0] if call.args else None):
        return NotImplemented
    family = FAMILIES.get(entry.family)
    return family(call, entry) if family is not None else NotImplemented


def apply(call: Call) -> Any:
    """The call on all elements; NotImplemented: there is no rule for it."""
    rule = _of_python(call.name)
    if rule is not None:
        return rule(call)
    for entry in table().find(call.name):
        if entry.family not in LOOSE and not entry.takes(call):
            continue
        out = by_entry(entry.placed(call), entry)
        if out is not NotImplemented or entry.family not in LOOSE:
            return out
    return NotImplemented
