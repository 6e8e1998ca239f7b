"""Rules of operators on DTensors: views, pieces, and what works along some dimensions only."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon.distributed.tensor._dispatch import COMPOSITES, EQUAL_PARTS, Call, Plan
from tenon.distributed.tensor._rules import P, R, _even, _transposed, rule
from tenon.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__: list[str] = []


def _sizes(args: tuple[Any, ...], name: str, call: Call) -> list[int] | None:
    given = args if args else (call.kwargs.get(name),)
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    return list(given) if all(type(n) is int for n in given) else None


def _dimension(call: Call, position: int, default: Any, name: str = "dim") -> int | None:
    """The dimension that is named, from the front; None: there is no one such."""
    n, dim = call.tensors[0].ndim, call.argument(position, name, default)
    return dim % n if type(dim) is int and -n <= dim < n else None


# ---- Views ---------------------------------------------------------------------------------------


def _resolved(sizes: list[int], count: int) -> list[int] | None:
    known = math.prod(n for n in sizes if n >= 0)
    if sizes.count(-1) > 1 or (-1 in sizes and (not known or count % known)):
        return None
    sizes = [count // known if n == -1 else n for n in sizes]
    return sizes if math.prod(sizes) == count else None


def _view_dim(old: tuple[int, ...], new: list[int], dim: int, parts: int) -> int | None:
    """Which dimension of the new shape is cut where `dim` of the old one is; None: none is, or
    others are at the same place, as dimensions of size one may be."""
    if not math.prod(old) or old[dim] == 1:
        return None
    before = math.prod(old[:dim])
    # The dimension begins where as many elements lie in front of it, in packed order.
    at, front = 0, 1
    while at < len(new) and front < before:
        front *= new[at]
        at += 1
    if front != before:
        return None
    while at < len(new) and new[at] == 1:
        at += 1
    if at == len(new) or (old[dim] != new[at] and (old[dim] % parts or new[at] % parts)):
        return None
    return at


def _viewed(call: Call, new: list[int] | None) -> Plan | None:
    t = call.tensors[0]
    if new is None or len(call.tensors) != 1:
        return None
    old, local = t._spec.shape, list(new)
    wanted: list[Placement] = []
    layout: list[Placement] = []
    for d, p in enumerate(t.placements):
        found: Placement = p
        if isinstance(p, Shard):
            parts = math.prod(t.device_mesh.size(e) for e, q in enumerate(t.placements) if q == p)
            at = _view_dim(old, new, p.dim, parts)
            found = R if at is None else Shard(at)
            if at is not None and old[p.dim] == new[at]:  # parts may be of different sizes
                local[at] = t._spec.local[0][p.dim]
            elif at is not None:
                local[at] //= t.device_mesh.size(d)
            p = R if at is None else p
        wanted.append(p)
        layout.append(found)
    plan = Plan([tuple(wanted)], tuple(layout), tuple(new))
    plan.run = lambda x, *args, **kwargs: x.reshape(local)
    return plan


@rule("view", "reshape")
def view(call: Call) -> Plan | None:
    sizes = _sizes(call.args[1:], "shape", call)
    return _viewed(call, None if sizes is None else _resolved(sizes, call.tensors[0].numel()))


@rule("flatten")
def flatten(call: Call) -> Plan | None:
    shape = call.tensors[0]._spec.shape
    start, end = _dimension(call, 1, 0, "start_dim"), _dimension(call, 2, -1, "end_dim")
    if start is None or end is None or start > end:
        return None
    merged = math.prod(shape[start : end + 1])
    return _viewed(call, [*shape[:start], merged, *shape[end + 1 :]])


@rule("unflatten")
def unflatten(call: Call) -> Plan | None:
    shape = call.tensors[0]._spec.shape
    dim, sizes = _dimension(call, 1, None), call.argument(2, "sizes")
    if dim is None or not isinstance(sizes, (tuple, list)):
        return None
    inner = _resolved(list(sizes), shape[dim])
    return None if inner is None else _viewed(call, [*shape[:dim], *inner, *shape[dim + 1 :]])


def _kept(call: Call, touched: list[int], order: list[int | None], shape: Any) -> Plan:
    """A plan for the first tensor: `touched` dimensions are whole, the others as they are. order:
    for each dimension of the result, that of the tensor it was; None: a new one."""
    wanted = tuple(
        R if isinstance(p, Shard) and p.dim in touched else p for p in call.tensors[0].placements
    )
    layout = tuple(Shard(order.index(p.dim)) if isinstance(p, Shard) else p for p in wanted)
    whole = (R,) * call.mesh.ndim
    return Plan([wanted, *[whole] * (len(call.tensors) - 1)], layout, shape)


def _mapped_dims(call: Call, order: list[int | None]) -> Plan:
    """All dimensions as they are, in another order, and new ones."""
    shape = call.tensors[0]._spec.shape
    return _kept(call, [], order, tuple(1 if d is None else shape[d] for d in order))


@rule("transpose", "swapaxes", "swapdims")
def transpose(call: Call) -> Plan | None:
    order: list[Any] = list(range(call.tensors[0].ndim))
    a, b = _dimension(call, 1, None, "dim0"), _dimension(call, 2, None, "dim1")
    if a is None or b is None:
        return None
    order[a], order[b] = b, a
    return _mapped_dims(call, order)


@rule("t")
def t(call: Call) -> Plan | None:
    if call.tensors[0].ndim > 2:
        return None
    return _mapped_dims(call, list(range(call.tensors[0].ndim))[::-1])


@rule("permute")
def permute(call: Call) -> Plan | None:
    dims, n = _sizes(call.args[1:], "dims", call), call.tensors[0].ndim
    if dims is None or sorted(d % n for d in dims if -n <= d < n) != list(range(n)):
        return None
    return _mapped_dims(call, [d % n for d in dims])


@rule("unsqueeze")
def unsqueeze(call: Call) -> Plan | None:
    order: list[Any] = list(range(call.tensors[0].ndim))
    dim, n = call.argument(1, "dim"), len(order) + 1
    if type(dim) is not int or not -n <= dim < n:
        return None
    order.insert(dim % n, None)
    return _mapped_dims(call, order)


@rule("squeeze")
def squeeze(call: Call) -> Plan | None:
    x = call.tensors[0]
    given = call.argument(1, "dim")
    dims = range(x.ndim) if given is None else [given] if isinstance(given, int) else given
    if any(type(d) is not int or not -x.ndim <= d < x.ndim for d in dims):
        return None
    gone = {d % x.ndim for d in dims if x._spec.shape[d] == 1}
    if any(isinstance(p, Shard) and p.dim in gone for p in x.placements):
        return None
    plan = _mapped_dims(call, [d for d in range(x.ndim) if d not in gone])
    plan.run = lambda x, *args, **kwargs: x.squeeze(tuple(gone))
    return plan


@rule("expand")
def expand(call: Call) -> Plan | None:
    sizes, x = _sizes(call.args[1:], "size", call), call.tensors[0]
    if sizes is None:
        return None
    new, old = len(sizes) - x.ndim, x._spec.shape
    local = list(sizes)
    for d, p in enumerate(x.placements):
        if isinstance(p, Shard):
            if old[p.dim] == 1 or any(q == p for q in x.placements[:d]):
                return None
            local[p.dim + new] = x._spec.local[0][p.dim]
    shape = tuple(old[i - new] if n == -1 else n for i, n in enumerate(sizes))
    layout = tuple(Shard(p.dim + new) if isinstance(p, Shard) else p for p in x.placements)
    plan = Plan([x.placements], layout, shape)
    plan.run = lambda x, *args, **kwargs: x.expand(local)
    return plan


# ---- Pieces and joins ----------------------------------------------------------------------------


def _free(call: Call, dims: list[int], shape: Any, which: int = 0, terms: bool = False) -> Plan:
    """Parts do it where none of the dimensions is cut; others than the one tensor are whole.
    terms: terms of a sum may stay, as the operator only moves numbers."""
    layout = tuple(
        R if (p.is_partial() and not terms) or (isinstance(p, Shard) and p.dim in dims) else p
        for p in call.tensors[which].placements
    )
    whole = (Replicate(),) * call.mesh.ndim
    wanted = [layout if i == which else whole for i in range(len(call.tensors))]
    return Plan(wanted, layout, shape)


@rule("split", "chunk", "split_with_sizes")
def pieces(call: Call) -> Plan | None:
    x, dim = call.tensors[0], _dimension(call, 2, 0)
    given = call.argument(1, "split_size_or_sections", call.kwargs.get("split_size"))
    given = call.kwargs.get("chunks", given)
    if given is None or dim is None:
        return None
    size = x._spec.shape[dim]
    if call.name == "chunk":
        step = max(-(-size // given), 1)
        sizes = [min(step, size - i) for i in range(0, size, step)] or [0] * given
    elif isinstance(given, int):
        sizes = [min(given, size - i) for i in range(0, size, max(given, 1))] or [0]
    else:
        sizes = list(given)
    shape = x._spec.shape
    shapes = [(*shape[:dim], n, *shape[dim + 1 :]) for n in sizes]
    return _free(call, [dim], shapes, terms=True)


def _joined(call: Call) -> list[Placement]:
    """How tensors lie that are joined: as the first one, and as terms where all are."""
    each = zip(*[t.placements for t in call.tensors], strict=True)
    return [R if here[0].is_partial() and len(set(here)) > 1 else here[0] for here in each]


@rule("cat", "concat", "concatenate")
def cat(call: Call) -> Plan | None:
    dim, first = _dimension(call, 1, 0), call.tensors[0]
    if dim is None or any(x.ndim != first.ndim for x in call.tensors):
        return None
    layout = tuple(R if isinstance(p, Shard) and p.dim == dim else p for p in _joined(call))
    shape = list(first._spec.shape)
    shape[dim] = sum(x._spec.shape[dim] for x in call.tensors)
    return Plan([layout] * len(call.tensors), layout, tuple(shape))


@rule("stack")
def stack(call: Call) -> Plan | None:
    first, dim = call.tensors[0], call.argument(1, "dim", 0)
    n = first.ndim + 1
    if type(dim) is not int or not -n <= dim < n:
        return None
    dim %= n
    layout = tuple(_joined(call))
    got = tuple(Shard(p.dim + (p.dim >= dim)) if isinstance(p, Shard) else p for p in layout)
    shape = list(first._spec.shape)
    shape.insert(dim, len(call.tensors))
    return Plan([layout] * len(call.tensors), got, tuple(shape))


# ---- Along some dimensions -----------------------------------------------------------------------


@rule("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "normalize", "softmin")
def along_one(call: Call) -> Plan | None:
    x, dim = call.tensors[0], _dimension(call, 1, None)
    return None if dim is None or len(call.tensors) > 1 else _free(call, [dim], x._spec.shape)


@rule("flip")
def flip(call: Call) -> Plan | None:
    dims, x = _sizes(call.args[1:], "dims", call), call.tensors[0]
    if dims is None or any(not -x.ndim <= d < x.ndim for d in dims):
        return None
    return _free(call, [d % x.ndim for d in dims], x._spec.shape, terms=True)


@rule("sort", "topk")
def ordered(call: Call) -> Plan | None:
    x = call.tensors[0]
    dim = _dimension(call, 2 if call.name == "topk" else 1, -1)
    if dim is None:
        return None
    shape = list(x._spec.shape)
    if call.name == "topk":
        shape[dim] = call.argument(1, "k")
    return _free(call, [dim], [tuple(shape)] * 2)


@rule("layer_norm", "rms_norm")
def norm(call: Call) -> Plan | None:
    x, inner = call.tensors[0], call.argument(1, "normalized_shape")
    if not isinstance(inner, (tuple, list)):
        return None
    return _free(call, list(range(x.ndim - len(inner), x.ndim)), x._spec.shape)


@rule("embedding")
def embedding(call: Call) -> Plan | None:
    """A table that is cut by columns gives columns; by rows, the sum of what ranks look up."""
    if not hasattr(call.args[0], "placements") or len(call.tensors) != 2:
        return None
    first_is_index = not call.tensors[0].dtype.is_floating_point
    index, table = call.tensors if first_is_index else call.tensors[::-1]
    if call.argument(2, "padding_idx") not in (None, -1) or table.ndim != 2:
        return None
    if index.dtype.is_floating_point or not table.dtype.is_floating_point:
        return None
    columns, layout = [], []
    rows_cut = False
    for d in range(call.mesh.ndim):
        i, w = index.placements[d], table.placements[d]
        if w.is_shard(1):
            wi, ww, got = R, w, Shard(index.ndim)
        elif w.is_shard(0) and not i.is_shard():
            wi, ww, got, rows_cut = R, w, P, True
        elif i.is_shard():
            wi, ww, got = i, R, i
        else:
            wi, ww, got = R, R, R
        columns.append([wi, ww] if first_is_index else [ww, wi])
        layout.append(got)
    shape = (*index._spec.shape, table._spec.shape[1])
    plan = Plan(_transposed(columns), tuple(layout), shape)
    if rows_cut:
        shown = table._spec.with_layout([c[first_is_index] for c in columns])
        start, total = shown.local[1][0], table._spec.shape[0]

        def look_up(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
            i, w = (a, b) if first_is_index else (b, a)
            if i.numel() and not (0 <= int(i.min()) and int(i.max()) < total):
                raise IndexError(f"embedding(): an index is out of the table's {total} rows")
            i = i - start
            own = (i >= 0) & (i < w.shape[0])
            if not w.shape[0]:
                return w.new_zeros((*i.shape, w.shape[1])) + w.sum()
            found = tenon.nn.functional.embedding(i.clamp(0, w.shape[0] - 1), w)
            return found.masked_fill(~own.unsqueeze(-1), 0.0)

        plan.run = look_up
    return plan


@rule("conv1d", "conv2d", "conv3d", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d",
      "adaptive_avg_pool1d", "adaptive_avg_pool2d", "interpolate", "group_norm", "instance_norm",
      "pixel_shuffle")  # fmt: skip
def by_sample(call: Call) -> Plan | None:
    """Samples of a batch are independent. Without a batch, dimension 0 are channels."""
    x, spatial = call.tensors[0], call.name[-2:]
    least = int(spatial[0]) + 2 if spatial in ("1d", "2d", "3d") else 3
    if x.ndim < least or not any(p.is_shard(0) for p in x.placements) or not _even(x):
        return None
    layout = tuple(p if p.is_shard(0) else R for p in x.placements)
    whole = (Replicate(),) * call.mesh.ndim
    return Plan([layout, *[whole] * (len(call.tensors) - 1)], layout, EQUAL_PARTS)


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Plan | None:
    """Samples and heads are independent."""
    q, k, v = call.tensors[:3]
    if len(call.tensors) > 3 or call.kwargs.get("enable_gqa") or call.argument(4, "dropout_p", 0.0):
        return None
    layout = []
    for p in q.placements:
        free = isinstance(p, Shard) and p.dim < q.ndim - 2
        same = free and all(x.ndim == q.ndim and x._spec.shape[p.dim] == q._spec.shape[p.dim]
                            for x in (k, v))  # fmt: skip
        layout.append(p if same else R)
    shape = (*q._spec.shape[:-1], v._spec.shape[-1])
    return Plan([tuple(layout)] * 3, tuple(layout), shape)


def _dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False,
    train: bool | None = None,
) -> Any:  # fmt: skip
    """The mask is the one that one process would draw. train: `tenon.dropout` says so."""
    from tenon.distributed.tensor._dispatch import own_part, wrap

    training = training if train is None else train
    if not training or p == 0.0 or inplace or any(q.is_partial() for q in input.placements):
        return NotImplemented
    whole = tenon.ones(input._spec.shape, dtype=input.dtype, device=input.device)
    mask = own_part(tenon.nn.functional.dropout(whole, p), input._spec)
    return input * wrap(mask, input.device_mesh, input.placements, input._spec.shape)


COMPOSITES["dropout"] = _dropout


# ---- New tensors ---------------------------------------------------------------------------------


def _random_like(name: str) -> Any:
    """Lies as the tensor; the numbers are those that one process would draw."""

    def run(input: Any, *args: Any, **kwargs: Any) -> Any:
        from tenon.distributed.tensor._api import DTensor, leaf
        from tenon.distributed.tensor._dispatch import own_part

        if not isinstance(input, DTensor) or not all(type(n) is int for n in args):
            return NotImplemented
        spec = input._spec
        spec = spec.with_layout(tuple(R if p.is_partial() else p for p in spec.placements))
        like = tenon.empty(spec.shape, dtype=input.dtype, device=input.device)
        whole = getattr(tenon, name)(like, *args, **kwargs)
        return leaf(own_part(whole.detach(), spec), spec, whole.requires_grad)

    return run


def _new(name: str, given: int) -> Any:
    """Lies as the tensor where it has its shape. given: arguments behind the sizes."""

    def run(input: Any, *args: Any, **kwargs: Any) -> Any:
        from tenon.distributed.tensor._api import DTensor

        end = len(args) - given
        sizes = args[:end][0] if end == 1 and isinstance(args[0], (tuple, list)) else args[:end]
        if not isinstance(input, DTensor) or end < 1 or tuple(sizes) != input._spec.shape:
            return NotImplemented
        return getattr(tenon, f"{name}_like")(input, *args[end:], **kwargs)

    return run


for _name in ("rand_like", "randn_like", "randint_like"):
    COMPOSITES[_name] = _random_like(_name)
for _name in ("empty", "zeros", "ones", "full"):
    COMPOSITES[f"new_{_name}"] = _new(_name, int(_name == "full"))
del _name
