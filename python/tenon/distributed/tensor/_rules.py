"""Rules of operators on DTensors: element by element, products of matrices, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _ops
from tenon.autograd import Function
from tenon.distributed.tensor._dispatch import COMPOSITES, RULES, Call, Plan
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__: list[str] = []

R = Replicate()
P = Partial()


def rule(*names: str) -> Callable[[Any], Any]:
    """Registers a rule for operators."""

    def register(fn: Any) -> Any:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return register


# ---- Element by element --------------------------------------------------------------------------

_UNARY = """
abs absolute neg negative positive exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square sin cos tan
asin acos atan sinh cosh tanh asinh acosh atanh sigmoid relu relu6 gelu silu mish elu selu celu
leaky_relu hardtanh hardswish hardsigmoid softplus softsign tanhshrink logsigmoid erf erfc erfinv
ceil floor round trunc frac sign sgn reciprocal clone contiguous detach isnan isinf isfinite
logical_not bitwise_not nan_to_num alias conj deg2rad rad2deg threshold hardshrink softshrink
fill zero view_as clamp clamp_min clamp_max clip digamma lgamma sinc logit bernoulli
""".split()
_BINARY = """
add sub subtract mul multiply div divide true_divide pow __rsub__ __rpow__ __rdiv__ __rtruediv__
rsub maximum minimum fmax fmin fmod remainder floor_divide atan2 eq ne lt le gt ge __eq__ __ne__
__lt__ __le__ __gt__ __ge__ logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
__and__ __or__ __xor__ where lerp addcmul addcdiv masked_fill copy prelu _prelu xlogy hypot copysign
logaddexp isclose complex polar
float_power __pow__ __add__ __sub__ __mul__ __truediv__ threshold_backward
""".split()
# Of a sum's terms: f(a) + f(b) = f(a + b).
_LINEAR = frozenset(("neg", "negative", "positive", "clone", "contiguous", "detach", "alias",
                     "conj", "zero"))  # fmt: skip
_SUMS = frozenset(("add", "sub", "subtract", "__add__", "__sub__"))
_PRODUCTS = frozenset(("mul", "multiply", "__mul__"))
_QUOTIENTS = frozenset(("div", "divide", "true_divide", "__truediv__"))


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(tenon.broadcast_shapes(*[tuple(s) for s in shapes]))


def _keeps_terms(call: Call, here: list[Placement]) -> bool:
    """Whether the operator on terms of a sum, or of an average, gives the terms of the result."""
    ops = {p.reduce_op for p in here if isinstance(p, Partial)}
    average = ops == {"avg"}
    if not (average or ops == {"sum"}) or any(p.is_shard() for p in here):
        return False
    partial = [p.is_partial() for p in here]
    if call.name in _LINEAR:
        return True
    positional = call.args[:2]
    plain = any(not isinstance(a, Tensor) for a in positional)
    if call.name in _SUMS:
        return average or (not plain and "alpha" not in call.kwargs)
    if call.name in _PRODUCTS:
        return sum(partial) == 1
    if call.name in _QUOTIENTS and "rounding_mode" not in call.kwargs:
        return partial[0] and sum(partial) == 1 and isinstance(call.args[0], Tensor)
    return False


def _elementwise_dim(
    call: Call, here: list[Placement], shapes: list[tuple[int, ...]], out: tuple[int, ...],
    forced: Placement | None,
) -> tuple[list[Placement], Placement]:  # fmt: skip
    """(what each tensor needs, what the result is) along one dimension of the mesh"""
    n = len(out)
    if _keeps_terms(call, here) and (forced is None or forced.is_partial()):
        terms = next(p for p in here if p.is_partial())
        if call.name in _SUMS and terms.is_partial("sum"):
            return [P] * len(here), P
        return here, terms
    goal = forced
    if goal is None:
        found = [
            p.dim + n - len(s)
            for p, s in zip(here, shapes, strict=True)
            if isinstance(p, Shard) and s[p.dim] == out[p.dim + n - len(s)]
        ]
        goal = Shard(found[0]) if found else R
    if not isinstance(goal, Shard):
        return [R] * len(here), R
    wanted: list[Placement] = []
    for s in shapes:
        dim = goal.dim - (n - len(s))
        wanted.append(Shard(dim) if dim >= 0 and s[dim] == out[goal.dim] else R)
    return wanted, goal


def _transposed(columns: list[list[Placement]]) -> list[tuple[Placement, ...]]:
    """Layouts of tensors of what they need along each dimension of the mesh."""
    return [tuple(c[i] for c in columns) for i in range(len(columns[0]))]


@rule(*_UNARY, *_BINARY)
def elementwise(call: Call) -> Plan | None:
    if call.name == "view_as":
        return None
    shapes = [t._spec.shape for t in call.tensors]
    out = shapes[0] if call.inplace else _broadcast(shapes)
    columns, layout = [], []
    for d in range(call.mesh.ndim):
        here = [t.placements[d] for t in call.tensors]
        forced = here[0] if call.inplace else None
        if forced is not None and forced.is_partial() and not _keeps_terms(call, here):
            return None
        wanted, got = _elementwise_dim(call, here, shapes, out, forced)
        columns.append(wanted)
        layout.append(got)
    return Plan(_transposed(columns), tuple(layout), out)


# ---- Products of matrices ------------------------------------------------------------------------


def _product_dim(
    a: Placement, b: Placement, sa: tuple[int, ...], sb: tuple[int, ...], out: tuple[int, ...]
) -> tuple[Placement, Placement, Placement]:
    """(a's, b's, the result's) along one dimension of the mesh; sb is (..., k, n)."""
    n = len(out)
    na, nb = len(sa), len(sb)
    if isinstance(a, Partial) or isinstance(b, Partial):
        if a.is_partial("sum") and b.is_replicate():
            return a, b, P
        if b.is_partial("sum") and a.is_replicate():
            return a, b, P
        a, b = (R if p.is_partial() else p for p in (a, b))
    for mine, nd, shape, other, swap in (
        (a, na, sa, nb, False),
        (b, nb, sb, na, True),
    ):
        if isinstance(mine, Shard) and mine.dim < nd - 2:  # a dimension of the batch
            dim = mine.dim + n - nd
            match = dim - (n - other)
            fits = match >= 0 and (sa if swap else sb)[match] == shape[mine.dim]
            if shape[mine.dim] != out[dim]:
                continue
            partner = Shard(match) if fits else R
            return (partner, mine, Shard(dim)) if swap else (mine, partner, Shard(dim))
    inner_a, rows = a.is_shard(na - 1), a.is_shard(na - 2)
    inner_b, columns = b.is_shard(nb - 2), b.is_shard(nb - 1)
    if inner_a and not columns or inner_b and not rows:
        return Shard(na - 1), Shard(nb - 2), P
    if rows and (not columns or math.prod(sa) >= math.prod(sb)):
        return a, R, Shard(n - 2)
    if columns:
        return R, b, Shard(n - 1)
    if rows:
        return a, R, Shard(n - 2)
    return R, R, R


def _product(call: Call, sa: tuple[int, ...], sb: tuple[int, ...], swapped: bool) -> Plan | None:
    """swapped: the second tensor is (n, k), as linear's weight. A vector is a matrix of one row, or
    of one column, which the result has not."""
    row, column = len(sa) == 1, len(sb) == 1
    if not sa or not sb or (swapped and (row or column)):
        return None

    def flipped(p: Placement) -> Placement:
        return Shard(1 - p.dim) if swapped and isinstance(p, Shard) else p

    def turned(p: Placement) -> Placement:  # of a row, and back
        return Shard(1 - p.dim) if row and isinstance(p, Shard) else p

    sa, sb = (1, *sa) if row else sa, (*sb, 1) if column else sb
    out = (*_broadcast([sa[:-2], sb[:-2]]), sa[-2], sb[-1])
    gone = [d for d, one in ((len(out) - 2, row), (len(out) - 1, column)) if one]
    columns, layout = [], []
    for d in range(call.mesh.ndim):
        a, b = turned(call.tensors[0].placements[d]), flipped(call.tensors[1].placements[d])
        wa, wb, got = _product_dim(a, b, sa, sb, out)
        columns.append([turned(wa), flipped(wb)])
        layout.append(_after(got.dim, gone, False) if isinstance(got, Shard) else got)
    shape = tuple(n for d, n in enumerate(out) if d not in gone)
    return Plan(_transposed(columns), tuple(layout), shape)


@rule("matmul", "mm", "bmm", "__matmul__", "mv", "dot")
def matmul(call: Call) -> Plan | None:
    return _product(call, *(t._spec.shape for t in call.tensors), False)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if bias is None:
        return NotImplemented
    return tenon.nn.functional.linear(input, weight) + bias


COMPOSITES["linear"] = _linear


@rule("linear")
def linear(call: Call) -> Plan | None:
    a, w = call.tensors[0]._spec.shape, call.tensors[1]._spec.shape
    if len(a) < 2 or len(w) != 2:
        return None
    return _product(call, a, (w[1], w[0]), True)


def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not (input.is_floating_point() or input.is_complex()):
        return NotImplemented  # which counts with whole beta and alpha
    product = tenon.matmul(mat1, mat2)
    return (product if alpha == 1 else product * alpha) + (input if beta == 1 else input * beta)


COMPOSITES["addmm"] = COMPOSITES["baddbmm"] = _addmm

# ---- Reductions ----------------------------------------------------------------------------------


def _dims(call: Call, name: str = "dim", position: int = 1) -> list[int] | None:
    """The dimensions that are reduced; None: the arguments say something else."""
    n = call.tensors[0].ndim
    given = call.argument(position, name)
    if given is None or given == () or given == []:
        return list(range(n))
    if isinstance(given, bool) or not isinstance(given, (int, tuple, list)):
        return None
    dims = [given] if isinstance(given, int) else list(given)
    if any(not isinstance(d, int) or not -n <= d < n for d in dims):
        return None
    return [d % n for d in dims]


def _reduced_shape(shape: tuple[int, ...], dims: list[int], keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple(1 if d in dims else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def _after(dim: int, dims: list[int], keep: bool) -> Shard:
    return Shard(dim if keep else dim - sum(d < dim for d in dims))


def _reduction(call: Call, dims: list[int], keep: bool, op: str | None, linear: bool) -> Plan:
    t = call.tensors[0]
    wanted, layout = [], []
    for p in t.placements:
        if isinstance(p, Shard) and p.dim not in dims:
            wanted.append(p)
            layout.append(_after(p.dim, dims, keep))
        elif isinstance(p, Shard) and op is not None:
            wanted.append(p)
            layout.append(Partial(op))
        elif linear and isinstance(p, Partial) and p.reduce_op in ("sum", "avg"):
            wanted.append(p)
            layout.append(p)
        else:
            wanted.append(R)
            layout.append(R)
    shape = _reduced_shape(t._spec.shape, dims, keep)
    return Plan([tuple(wanted)], tuple(layout), shape)


def _keep(call: Call, position: int = 2) -> bool:
    return bool(call.argument(position, "keepdim", False))


@rule("sum", "nansum", "count_nonzero")
def total(call: Call) -> Plan | None:
    counted = call.name == "count_nonzero"
    dims = _dims(call)
    if dims is None or (counted and len(call.args) > 2):  # dimensions one by one
        return None
    keep = not counted and _keep(call)
    linear = call.name == "sum" and call.kwargs.get("dtype") is None
    return _reduction(call, dims, keep, "sum", linear)


class _Shared(Function):
    """The tensor; its gradient is a part of what arrives."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, parts: int) -> Tensor:
        ctx.parts = parts
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad / ctx.parts, None


def _averaged(x: Tensor, dims: list[int], keep: bool, parts: int, dtype: Any) -> Tensor:
    """The average of a part; see Note [Gradients of parts]."""
    value = x.mean(dims, keep, dtype=dtype)
    return _Shared.apply(value, parts) if value.requires_grad else value


@rule("mean")
def mean(call: Call) -> Plan | None:
    dims = _dims(call)
    t = call.tensors[0]
    if dims is None:
        return None
    cut = [isinstance(p, Shard) and p.dim in dims for p in t.placements]
    if not any(cut):
        return _reduction(call, dims, _keep(call), "sum", True)
    if not _even(t):
        return None
    plan = _reduction(call, dims, _keep(call), "avg", True)
    parts = math.prod(n for n, c in zip(call.mesh.shape, cut, strict=True) if c)
    keep, dtype = _keep(call), call.kwargs.get("dtype")
    plan.run = lambda x, *args, **kwargs: _averaged(x, dims, keep, parts, dtype)
    return plan


def _extreme(call: Call, op: str) -> Plan | None:
    """A part may be empty, and ties share the gradient among all ranks."""
    dims, t = _dims(call), call.tensors[0]
    if dims is None:
        return None
    cut = [(p, d) for d, p in enumerate(t.placements) if isinstance(p, Shard) and p.dim in dims]
    last = [
        Shard.local_shard_size_and_offset(t._spec.shape[p.dim], n := call.mesh.size(d), n - 1)[0]
        for p, d in cut
    ]
    if cut and (t.requires_grad or 0 in last or len({p for p, _ in cut}) != len(cut)):
        return None
    return _reduction(call, dims, _keep(call), op, False)


@rule("amax", "amin")
def extreme(call: Call) -> Plan | None:
    return _extreme(call, call.name[1:])


def _even(t: Any) -> bool:
    """Whether all parts are of one size."""
    parts = [1] * t.ndim
    for n, p in zip(t.device_mesh.shape, t.placements, strict=True):
        if isinstance(p, Shard):
            parts[p.dim] *= n
    return all(size % n == 0 for size, n in zip(t._spec.shape, parts, strict=True))


@rule("max", "min")
def extreme_with_index(call: Call) -> Plan | None:
    t = call.tensors[0]
    if len(call.tensors) > 1:
        return None
    if call.argument(1, "dim") is None:
        return _extreme(call, call.name)
    dims = _dims(call)
    if dims is None or any(isinstance(p, Shard) and p.dim in dims for p in t.placements):
        return None
    plan = _reduction(call, dims, _keep(call), None, False)
    plan.shape = [plan.shape, plan.shape]  # type: ignore[list-item]
    return plan


@rule("argmax", "argmin", "prod", "any", "all", "var", "std", "logsumexp")
def within_parts(call: Call) -> Plan | None:
    t = call.tensors[0]
    if call.argument(1, "dim") is None:
        return None
    dims = _dims(call)
    if dims is None:
        return None
    keep = bool(call.kwargs.get("keepdim", call.argument(2, "keepdim", False)
                                if call.name not in ("var", "std") else False))  # fmt: skip
    if any(isinstance(p, Shard) and p.dim in dims for p in t.placements):
        return None
    return _reduction(call, dims, keep, None, False)


# ---- Norms ---------------------------------------------------------------------------------------


def _vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """Of parts: the norm of their norms."""
    cut = [d for d, p in enumerate(x.placements) if p.is_shard()]
    order = 2.0 if ord is None else ord
    if dim is not None or not cut or isinstance(order, str) or order < 1:
        return NotImplemented  # parts may be empty, and of zeros
    if any(p.is_partial() for p in x.placements):
        x = x.redistribute(placements=[R if p.is_partial() else p for p in x.placements])
    plain = x if dtype is None else x.to(dtype)
    if order == math.inf:
        local = plain.abs().redistribute(placements=[R] * x.device_mesh.ndim)
        result = local.amax()
    else:
        local = tenon.linalg.vector_norm(plain.to_local(), order).reshape(1)
        parts = _from_local(local, x, [Shard(0) if d in cut else R
                                       for d in range(x.device_mesh.ndim)])  # fmt: skip
        whole = parts.redistribute(placements=[R] * x.device_mesh.ndim)
        result = tenon.linalg.vector_norm(whole, order)
    return result.reshape([1] * x.ndim) if keepdim else result


def _from_local(local: Tensor, like: Any, layout: Sequence[Placement]) -> Any:
    return type(like).from_local(local, like.device_mesh, layout)


def _norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if p in ("fro", None):
        p = 2
    if dim is not None or isinstance(p, str):
        return NotImplemented
    return _vector_norm(x, p, None, keepdim, dtype=dtype)


def _norms(tensors: Any, order: float) -> Any:
    """The norm of each tensor of a list; plain tensors are the same on all ranks. Those that are
    cut by the same dimensions of a mesh are exchanged at once, each as the norm of its part."""
    found: dict[int, Tensor] = {}
    alike: dict[Any, list[int]] = {}
    for i, t in enumerate(tensors):
        layout = getattr(t, "placements", ())
        cut = tuple(d for d, p in enumerate(layout) if p.is_shard())
        if cut and not any(p.is_partial() for p in layout):
            alike.setdefault((t.device_mesh, cut), []).append(i)
        else:
            norm = tenon.linalg.vector_norm(t, order)
            found[i] = norm.full_tensor() if layout else norm
    for (mesh, cut), places in alike.items():
        parts = [tensors[i].to_local() for i in places]
        parts = [p if p.numel() else p.new_zeros(1) for p in parts]
        own = _ops._norms(parts, order).reshape(1, -1)
        line = [Shard(0) if d in cut else R for d in range(mesh.ndim)]
        every = type(tensors[places[0]]).from_local(own, mesh, line).full_tensor()
        found.update(zip(places, tenon.linalg.vector_norm(every, order, 0).unbind(), strict=True))
    first = next(t for t in tensors if hasattr(t, "device_mesh"))
    whole = tenon.stack([found[i] for i in range(len(tensors))])
    return type(first).from_local(whole, first.device_mesh, [R] * first.device_mesh.ndim)


COMPOSITES["linalg_vector_norm"] = COMPOSITES["vector_norm"] = _vector_norm
COMPOSITES["norm"] = _norm
COMPOSITES["_norms"] = _norms
