"""How operators run on all elements of a vmap at once, by family.

A rule gets the call and returns its result, or NotImplemented: then the operator runs for each
element. The mapped dimension of a batch is always the first, so that a dimension that counts from
the end is the same for an element and for the batch, and one that counts from the front is one
more. What rules compute may itself be mapped by an outer vmap: they only call operators.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tenon
from tenon import _C


@dataclass
class Call:
    """A call with mapped tensors of one level."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    level: int
    size: int
    batched: Callable[[Any, int], Any]
    is_batched: Callable[[Any, int], bool]
    randomness: str

    @property
    def is_inplace(self) -> bool:
        name = self.name
        return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or (
            name.startswith("__i") and name in INPLACE_SIGNS)  # fmt: skip

    def maps(self, value: Any) -> bool:
        return self.is_batched(value, self.level)

    def all(self, value: Any) -> Any:
        """The batch behind a mapped tensor; other values as they are."""
        return value._batch if self.maps(value) else value

    def element(self, value: Any, i: int) -> Any:
        return value._batch.select(0, i) if self.maps(value) else value

    def spread(self, value: Any) -> Any:
        """The batch; a tensor that is not mapped is repeated."""
        return value._batch if self.maps(value) else value.expand(self.size, *value.shape)

    def wrap(self, result: Any) -> Any:
        if isinstance(result, tenon.Tensor):
            return self.batched(result, self.level)
        if isinstance(result, list | tuple):
            items = [self.wrap(r) for r in result]
            return type(result)(items)
        return result

    def others_mapped(self) -> bool:
        """Some argument behind the first is mapped."""
        rest = [*self.args[1:], *self.kwargs.values()]
        return any(self.maps(v) or _holds_mapped(self, v) for v in rest)


def _holds_mapped(call: Call, value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        call.maps(v) or _holds_mapped(call, v) for v in value
    )


INPLACE_SIGNS = {
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__imatmul__",
}  # fmt: skip
SIGNS = {
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "lt", "le", "gt", "ge", "eq", "ne",
}  # fmt: skip
# Composites that treat elements on their own, and what is not called like its entry.
POINTWISE = {
    "where", "clamp", "clamp_min", "clamp_max", "clip", "relu", "relu6", "gelu", "silu", "mish",
    "elu", "selu", "celu", "leaky_relu", "softplus", "softsign", "logsigmoid", "hardtanh",
    "hardswish", "hardsigmoid", "threshold", "tanhshrink", "softshrink", "hardshrink", "clone",
    "contiguous", "to", "float", "double", "half", "bfloat16", "int", "long", "bool", "type_as",
    "zeros_like", "ones_like", "full_like", "lerp", "addcmul", "addcdiv", "isfinite", "isinf",
    "isnan", "isclose", "nan_to_num", "detach", "__neg__", "__abs__", "__invert__", "__pos__",
    "square", "rsub", "divide", "multiply", "subtract", "true_divide",
    *(f"__{s}__" for s in SIGNS), *(f"__r{s}__" for s in SIGNS),
}  # fmt: skip
# dim is the argument at this place; without it all dimensions are reduced.
REDUCE = {
    "sum": 1, "mean": 1, "prod": 1, "amax": 1, "amin": 1, "nansum": 1, "nanmean": 1, "any": 1,
    "all": 1, "logsumexp": 1, "count_nonzero": 1, "max": 1, "min": 1, "var": 1, "std": 1,
}  # fmt: skip
# dim is the argument at this place and has this value where it is not given (... : must be).
ALONG: dict[str, tuple[int, Any]] = {
    "softmax": (1, ...), "log_softmax": (1, ...), "softmin": (1, ...), "cumsum": (1, ...),
    "cumprod": (1, ...), "logcumsumexp": (1, ...), "unsqueeze": (1, ...), "flip": (1, ...),
    "sort": (1, -1), "argsort": (1, -1), "unbind": (1, 0), "select": (1, ...),
    "narrow": (1, ...), "chunk": (2, 0), "split": (2, 0), "topk": (2, -1), "glu": (1, -1),
    "cummax": (1, ...), "cummin": (1, ...),
}  # fmt: skip
# These work on the last dimensions and leave those in front alone.
LAST = {
    "tril", "triu", "linalg_cholesky", "cholesky", "inverse", "layer_norm", "rms_norm", "embedding",
    "one_hot", "dropout", "bernoulli", "rand_like", "randn_like", "linalg_inv_ex", "det", "logdet",
}  # fmt: skip
# Samples are dimension 0: the mapped dimension is folded into it. Rank of one sample's input.
FOLD = {
    "conv1d": 2, "conv2d": 3, "conv3d": 4, "conv_transpose1d": 2, "conv_transpose2d": 3,
    "conv_transpose3d": 4, "max_pool1d": 2, "max_pool2d": 3, "max_pool3d": 4, "avg_pool1d": 2,
    "avg_pool2d": 3, "avg_pool3d": 4, "adaptive_avg_pool1d": 2, "adaptive_avg_pool2d": 3,
    "adaptive_max_pool2d": 3,
}  # fmt: skip
PRODUCTS = {"matmul", "mm", "bmm", "mv", "dot", "__matmul__", "__rmatmul__", "inner_product"}
RANDOM = {
    "dropout", "alpha_dropout", "feature_dropout", "bernoulli", "bernoulli_", "rand_like",
    "randn_like", "randint_like", "normal", "normal_", "uniform_", "exponential_", "multinomial",
    "poisson", "random_", "geometric_", "cauchy_", "log_normal_", "rrelu",
}  # fmt: skip


@cache
def _table_pointwise() -> frozenset[str]:
    path = Path(tenon.__file__).parent / "ops.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    names = [[r["py_name"], *r["alias"]] for r in rows if r["kind"] == "pointwise"]
    return frozenset(n for row in names for n in row)


# ---- Families ------------------------------------------------------------------------------------


def _tensors(call: Call) -> list[Any]:
    values = [*call.args, *call.kwargs.values()]
    return [v for v in values if isinstance(v, tenon.Tensor)]


def pointwise(call: Call) -> Any:
    """Elements get as many dimensions as the one that has the most. A number that stands in a 0-d
    element must not win promotion because the batch has a dimension."""
    if "out" in call.kwargs or any(_holds_mapped(call, a) for a in call.args):
        return NotImplemented
    tensors = _tensors(call)
    rank = max(t.dim() for t in tensors)
    target = call.args[0]
    if call.is_inplace and not call.maps(target):
        raise RuntimeError(
            f"vmap: inplace arithmetic(self, *extra_args) is not possible because '{call.name}' "
            "would write different elements into a tensor that is not mapped"
        )
    full = [t for t in tensors if t.dim() > 0]
    common = tenon.result_type(*full[:1], *full[1:2]) if len(full) > 1 else None
    common = full[0].dtype if common is None and full else common

    def aligned(value: Any) -> Any:
        if not call.maps(value):
            return value
        batch = value._batch
        if value.dim() == 0 and rank > 0 and _same_kind(batch.dtype, common):
            batch = batch.to(common)
        if value.dim() == rank:
            return batch
        return batch.reshape(call.size, *[1] * (rank - value.dim()), *batch.shape[1:])

    args = [aligned(a) for a in call.args]
    out = call.func(*args, **{k: aligned(v) for k, v in call.kwargs.items()})
    return target if call.is_inplace else call.wrap(out)


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


def reduce(call: Call) -> Any:
    x, place = call.args[0], REDUCE[call.name]
    dim = _given(call, place, "dim")
    if call.others_mapped() or not call.maps(x) or "out" in call.kwargs:
        return NotImplemented
    if dim is ... or dim is None or dim == ():
        if len(call.args) > place + 1 or "keepdim" in call.kwargs or call.name in ("var", "std"):
            return NotImplemented
        flat = x._batch.reshape(call.size, -1)
        if call.name in ("max", "min"):
            return call.wrap(getattr(flat, "a" + call.name)(1)) if flat.shape[1] else NotImplemented
        kwargs = {k: v for k, v in call.kwargs.items() if k != "dim"}
        return call.wrap(getattr(tenon, call.name)(flat, 1, **kwargs))
    if not _is_dim(dim) or x.dim() == 0:
        return NotImplemented
    args, kwargs = _with(call, place, "dim", _shifted(dim))
    return call.wrap(call.func(*args, **kwargs))


def along(call: Call) -> Any:
    x = call.args[0]
    place, default = ALONG[call.name]
    dim = _given(call, place, "dims" if call.name == "flip" else "dim")
    dim = default if dim is ... else dim
    first = x.dim() == 0 and call.name != "unsqueeze"
    if call.others_mapped() or not call.maps(x) or not _is_dim(dim) or first:
        return NotImplemented
    if call.name == "flip" and len(call.args) != 2:
        return NotImplemented
    args, kwargs = _with(call, place, "dim", _shifted(dim))
    return call.wrap(call.func(*args, **kwargs))


def last(call: Call) -> Any:
    if call.others_mapped() or not call.maps(call.args[0]) or call.args[0].dim() == 0:
        return NotImplemented
    args = [call.all(a) for a in call.args]
    return call.wrap(call.func(*args, **call.kwargs))


def fold(call: Call) -> Any:
    x, rank = call.args[0], FOLD[call.name]
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


def product(call: Call) -> Any:
    if (
        len(call.args) != 2
        or call.kwargs
        or not all(isinstance(a, tenon.Tensor) for a in call.args)
    ):
        return NotImplemented
    a, b = reversed(call.args) if call.name == "__rmatmul__" else call.args
    if a.dim() == 0 or b.dim() == 0:
        return NotImplemented
    rank = max(a.dim(), b.dim(), 2)
    out = tenon.matmul(_matrices(call, a, rank, False), _matrices(call, b, rank, True))
    if a.dim() == 1:
        out = out.squeeze(-2)
    if b.dim() == 1:
        out = out.squeeze(-1)
    return call.wrap(out)


def linear(call: Call) -> Any:
    x, weight, bias = [*call.args, None][:3] if len(call.args) < 4 else (None, None, None)
    bias = call.kwargs.get("bias", bias)
    if x is None or call.kwargs.keys() - {"bias"} or weight.dim() != 2 or x.dim() == 0:
        return NotImplemented
    if not call.maps(weight) and not call.maps(bias):
        return call.wrap(call.func(call.all(x), weight, bias))
    out = tenon.matmul(x, weight.transpose(0, 1))
    return out if bias is None else out + bias


def reshape(call: Call) -> Any:
    x, sizes = call.args[0], call.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
        sizes = tuple(sizes[0])
    sizes = call.kwargs.get("shape", sizes)
    if not all(isinstance(s, int) and not isinstance(s, bool) for s in sizes) or not sizes:
        return NotImplemented
    if call.name == "expand":
        lead = [1] * (len(sizes) - x.dim())
        batch = x._batch.reshape(call.size, *lead, *x.shape)
        return call.wrap(batch.expand(call.size, *sizes))
    return call.wrap(x._batch.reshape(call.size, *sizes))


def flatten(call: Call) -> Any:
    x = call.args[0]
    start = _given(call, 1, "start_dim")
    end = _given(call, 2, "end_dim")
    if x.dim() == 0:
        return NotImplemented
    start, end = 0 if start is ... else start, -1 if end is ... else end
    return call.wrap(x._batch.flatten(_shifted(start), _shifted(end)))


def permute(call: Call) -> Any:
    dims = call.args[1:]
    if len(dims) == 1 and isinstance(dims[0], list | tuple):
        dims = tuple(dims[0])
    dims = call.kwargs.get("dims", dims)
    rank = call.args[0].dim()
    return call.wrap(call.args[0]._batch.permute(0, *(d % rank + 1 for d in dims)))


def transpose(call: Call) -> Any:
    x = call.args[0]
    dims = (0, 1) if call.name == "t" else call.args[1:]
    if x.dim() < 2 or len(dims) != 2:
        return NotImplemented
    return call.wrap(x._batch.transpose(_shifted(dims[0]), _shifted(dims[1])))


def join(call: Call) -> Any:
    tensors = call.args[0]
    dim = _given(call, 1, "dim")
    dim = 0 if dim is ... else dim
    if not _is_dim(dim) or any(t.dim() == 0 for t in tensors) and call.name == "cat":
        return NotImplemented
    return call.wrap(call.func([call.spread(t) for t in tensors], dim=_shifted(dim)))


def item(call: Call) -> Any:
    """Numbers, slices, None and Ellipsis; tensors as indices go one by one."""
    x, index = call.args
    parts = index if isinstance(index, tuple) else (index,)
    plain = (int, slice, type(None), type(...))
    if not call.maps(x) or not all(isinstance(p, plain) and p is not True and p is not False
                                   for p in parts):  # fmt: skip
        return NotImplemented
    return call.wrap(x._batch[(slice(None), *parts)])


def loss(call: Call) -> Any:
    """Losses of pairs of elements: each on its own, then the mean or sum of those of an element."""
    reduction = call.kwargs.get("reduction", "mean")
    if len(call.args) != 2 or call.kwargs.keys() - {"reduction"} or call.args[0].dim() == 0:
        return NotImplemented
    if call.args[0].shape != call.args[1].shape or reduction not in ("mean", "sum", "none"):
        return NotImplemented
    a, b = (call.spread(t) for t in call.args)
    each = call.func(a, b, reduction="none")
    if reduction != "none":
        each = getattr(each.flatten(1), reduction)(1)
    return call.wrap(each)


LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
SINGLE: dict[str, Callable[[Call], Any]] = {
    "reshape": reshape, "view": reshape, "expand": reshape, "flatten": flatten, "permute": permute,
    "transpose": transpose, "swapaxes": transpose, "t": transpose, "cat": join, "stack": join,
    "concat": join, "__getitem__": item, "linear": linear,
}  # fmt: skip


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


ADDED = {"pointwise": pointwise, "batch": batch}


def _rule(name: str) -> Callable[[Call], Any] | None:
    if "::" in name:  # of a plugin, which says it itself
        return ADDED.get(_C._added_vmap(name) or "")
    if name in SINGLE:
        return SINGLE[name]
    families: list[tuple[Any, Callable[[Call], Any]]] = [
        (PRODUCTS, product), (REDUCE, reduce), (ALONG, along), (LAST, last), (FOLD, fold),
        (LOSSES, loss), (POINTWISE, pointwise), (INPLACE_SIGNS, pointwise),
    ]  # fmt: skip
    for names, rule in families:
        if name in names:
            return rule
    plain = name.removesuffix("_") if not name.endswith("__") else name
    return pointwise if plain in _table_pointwise() or plain in POINTWISE else None


def apply(call: Call) -> Any:
    """The call on all elements; NotImplemented: there is no rule for it."""
    rule = _rule(call.name)
    random = call.name in RANDOM and (call.name not in LAST or call.randomness == "same")
    if rule is None or random:
        return NotImplemented
    needs_first = rule not in (pointwise, product, linear, join, loss, batch)
    if needs_first and not call.maps(call.args[0] if call.args else None):
        return NotImplemented
    return rule(call)
