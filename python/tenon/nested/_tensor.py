"""The class of nested tensors, and how calls reach their components.

Calls arrive in `run`. A rule is a name in one of the tables below; what has none is refused by
name. Dimensions that a call names are counted past the list of components, plain tensors beside
them go along whole, or row by row where they have a row for each component.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.called import is_inplace, is_pointwise, name_of
from tenon._tensor.dims import wrapped_dim
from tenon._tensor.print import package_name
from tenon._tensor.routed import KINDS, route_methods
from tenon.overrides import DisableTorchFunctionSubclass

_ELEMENTS = {
    "abs", "acos", "add", "asin", "atan", "bernoulli", "celu", "celu_", "ceil", "clamp", "clone",
    "contiguous", "copy", "cos", "cosh", "cpu", "cuda", "detach", "div", "divide", "double",
    "dropout", "elu", "eq", "erf", "exp", "expm1", "fill", "float", "floor", "ge", "gelu", "gt",
    "half", "hardswish", "hardtanh", "int", "bfloat16", "bool", "le", "leaky_relu", "log", "log1p",
    "logical_and", "logical_not", "logical_or", "long", "lt", "masked_fill", "maximum", "minimum",
    "mish", "mul", "multiply", "nan_to_num", "ne", "neg", "ones_like", "pow", "_prelu", "rand_like",
    "randn_like", "reciprocal", "relu", "relu6", "round", "rsqrt", "rsub", "selu", "sgn", "sigmoid",
    "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "sub", "subtract", "tan", "tanh",
    "to", "true_divide", "trunc", "type", "type_as", "where", "zero", "zeros_like", "empty_like",
    "full_like", "isnan", "isfinite", "isinf",
    *(f"__{n}__" for n in (
        "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "neg",
        "abs", "eq", "ne", "lt", "le", "gt", "ge", "invert", "and", "or",
    )),
}  # fmt: skip
# By rows where a plain tensor has one for each component; the others take it whole.
_PRODUCTS = {"matmul", "bmm", "__matmul__", "__rmatmul__"}
_WHOLE = {"linear", "layer_norm", "rms_norm", "embedding", "scaled_dot_product_attention",
          "native_layer_norm", "normalize"}  # fmt: skip
# Where their dimensions stand among the arguments, and by what names.
_DIMS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "softmax": ((1,), ("dim",)), "log_softmax": ((1,), ("dim",)), "cumsum": ((1,), ("dim",)),
    "transpose": ((1, 2), ("dim0", "dim1")), "swapaxes": ((1, 2), ("axis0", "axis1")),
    "unsqueeze": ((1,), ("dim",)), "squeeze": ((1,), ("dim",)), "chunk": ((2,), ("dim",)),
    "split": ((2,), ("dim",)), "select": ((1,), ("dim",)), "narrow": ((1,), ("dim",)),
    "flip": ((1,), ("dims",)), "flatten": ((1, 2), ("start_dim", "end_dim")),
    "unflatten": ((1,), ("dim",)), "sum": ((1,), ("dim",)), "mean": ((1,), ("dim",)),
    "amax": ((1,), ("dim",)), "amin": ((1,), ("dim",)), "all": ((1,), ("dim",)),
    "any": ((1,), ("dim",)), "std": ((1,), ("dim",)), "var": ((1,), ("dim",)),
    "argmax": ((1,), ("dim",)), "argmin": ((1,), ("dim",)), "max": ((1,), ("dim",)),
    "min": ((1,), ("dim",)), "prod": ((1,), ("dim",)), "stack": ((1,), ("dim",)),
}  # fmt: skip
_REDUCING = {"sum", "mean", "amax", "amin", "all", "any", "std", "var", "argmax", "argmin", "max",
             "min", "prod"}  # fmt: skip
_numbers = itertools.count(1)


class _Jagged:
    """The layout of components that lie one after the other."""

    def __repr__(self) -> str:
        return f"{package_name()}.jagged"

    def __reduce__(self) -> str:
        return "jagged"


jagged = _Jagged()


class RaggedSize:
    """The size of a dimension that differs from component to component."""

    def __init__(self) -> None:
        self._number = next(_numbers)

    def __repr__(self) -> str:
        return f"j{self._number}"


def of_components(parts: list[Tensor], layout: Any = None) -> NestedTensor:
    """A nested tensor of these components."""
    layout = tenon.strided if layout is None else layout
    if layout is not tenon.strided and layout is not jagged:
        raise RuntimeError(f"nested tensors are strided or jagged, not {layout}")
    for i, p in enumerate(parts):
        if p.dim() != parts[0].dim():
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. Found dimension "
                f"{p.dim()} for Tensor at index {i} and dimension {parts[0].dim()} for Tensor at "
                "index 0."
            )
        if p.dtype is not parts[0].dtype or p.device != parts[0].device:
            raise RuntimeError("nested tensors have components of one dtype on one device")
    if layout is jagged:
        _check_jagged(parts)
    like = parts[0] if parts else tenon.empty(0)
    with DisableTorchFunctionSubclass():
        made = tenon.empty(0, dtype=like.dtype, device=like.device).as_subclass(NestedTensor)
    made._parts, made._layout = list(parts), layout
    made._ragged = made._whole = made._at = made._holes = None
    return made


def packed(parts: list[Tensor], layout: Any = None) -> NestedTensor:
    """A nested tensor of copies of these components, with their history, in one piece of memory."""
    made = of_components(parts, layout)
    made._pack()
    return made


def _check_jagged(parts: list[Tensor]) -> None:
    if not parts or parts[0].dim() == 0:
        raise RuntimeError("jagged: expected a list of tensors with at least one dimension")
    if _ragged_dim(parts) is None:
        raise RuntimeError("jagged: the components may differ in one dimension only")


def _ragged_dim(parts: list[Tensor]) -> int | None:
    """The one dimension, counted in components, in which they differ; 0 where they do not."""
    ranks = range(parts[0].dim())
    apart = [d for d in ranks if len({p.shape[d] for p in parts}) > 1]
    return None if len(apart) > 1 else apart[0] if apart else 0


def _past(dim: Any, rank: int, name: str) -> Any:
    """A dimension of a nested tensor of that rank, in its components."""
    if isinstance(dim, list | tuple):
        return type(dim)(_past(d, rank, name) for d in dim)
    if not -rank <= dim < rank:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})"
        )
    if dim % rank == 0:
        raise RuntimeError(f"{name}(): dimension 0 of a nested tensor is the list of components")
    return dim % rank - 1


def _count(args: Any, kwargs: dict[str, Any]) -> int:
    found = {len(v._parts) for v in _nested_in((args, kwargs))}
    if len(found) > 1:
        raise RuntimeError(f"nested tensors of different lengths: {sorted(found)}")
    return found.pop()


def _nested_in(value: Any) -> list[NestedTensor]:
    if isinstance(value, NestedTensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and not isinstance(value, tenon.Size):
        return [n for v in value for n in _nested_in(v)]
    return []


def _component(value: Any, i: int, count: int, rank: int, by_rows: bool) -> Any:
    """An argument of the call for component i."""
    if isinstance(value, NestedTensor):
        return value._parts[i]
    if isinstance(value, list | tuple) and not isinstance(value, tenon.Size):
        return type(value)(_component(v, i, count, rank, by_rows) for v in value)
    if isinstance(value, Tensor) and by_rows and value.dim() == rank and rank > 0:
        if value.shape[0] not in (1, count):
            raise RuntimeError(
                f"a tensor of {value.shape[0]} rows beside a nested tensor of {count} components"
            )
        return value[i if value.shape[0] == count else 0]
    return value


def _for_each(func: Any, args: Any, kwargs: Any, by_rows: bool) -> list[Any]:
    count, rank = _count(args, kwargs), _nested_in((args, kwargs))[0].dim()
    return [
        func(
            *(_component(v, i, count, rank, by_rows) for v in args),
            **{k: _component(v, i, count, rank, by_rows) for k, v in kwargs.items()},
        )
        for i in range(count)
    ]


def _given(out: list[Any], like: NestedTensor) -> Any:
    """The results of all components as one."""
    if out and isinstance(out[0], list | tuple):
        return type(out[0])(_given(list(column), like) for column in zip(*out, strict=True))
    made = of_components(out, tenon.strided)
    same = like._layout is jagged and out and out[0].dim() and _ragged_dim(out) is not None
    if same:
        made._layout = jagged
        if [p.shape[0] for p in out] == [p.shape[0] for p in like._parts]:
            made._ragged, made._at = like._symbol(), like._at
    return made


def _along(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    self, *rest = args
    like = self if isinstance(self, NestedTensor) else self[0]
    places, names = _DIMS[name]
    if name == "stack" and not rest:
        kwargs = {"dim": 0, **kwargs}
    named = [v for i, v in enumerate(rest) if i + 1 in places]
    named += [kwargs[n] for n in names if n in kwargs]
    if name in _REDUCING:
        if any(isinstance(v, Tensor) for v in named):  # the larger of two tensors
            return _given(_for_each(func, args, kwargs, True), like)
        if all(v is None for v in named):
            return func(tenon.cat([p.reshape(-1) for p in like._parts]), *rest, **kwargs)
        if _has_list(named[0], like.dim()):
            return _over_list(name, func, like, named[0], rest[1:], kwargs)
    elif name in _LISTED and (not named or _has_list(named[0], like.dim())):
        rest = [v for i, v in enumerate(rest) if i + 1 not in places]
        return _LISTED[name](like, *rest, **{k: v for k, v in kwargs.items() if k not in names})
    rank = like.dim() + (name in ("unsqueeze", "stack"))
    rest = [_past(v, rank, name) if i + 1 in places and v is not None else v
            for i, v in enumerate(rest)]  # fmt: skip
    keywords = {k: _past(v, rank, name) if k in names and v is not None else v
                for k, v in kwargs.items()}  # fmt: skip
    if name == "flatten" and len(rest) < places[0] and not (set(names) & set(keywords)):
        raise RuntimeError(f"{name}(): dimension 0 of a nested tensor is the list of components")
    if name == "squeeze" and not _are_ones(like, [*rest, *keywords.values()]):
        return like
    out = _for_each(func, [self, *rest], keywords, False)
    return _dense(out, like) if name in _REDUCING else _given(out, like)


def _are_ones(self: NestedTensor, dims: list[Any]) -> bool:
    """Whether these dimensions have one place in all components; none named, each for itself."""
    return all(p.shape[d] == 1 for p in self._parts for d in dims if isinstance(d, int))


def _dense(out: list[Any], like: NestedTensor) -> Any:
    """The results of a reduction as one: a plain tensor where no dimension differs any more."""
    if isinstance(out[0], tuple):
        return type(out[0])([_dense(list(column), like) for column in zip(*out, strict=True)])
    same = like._layout is jagged and len({o.shape for o in out}) == 1
    return tenon.stack(out) if same else _given(out, like)


def _has_list(dim: Any, rank: int) -> bool:
    return any(d % rank == 0 for d in (dim if isinstance(dim, list | tuple) else [dim]))


def _over_list(
    name: str, func: Any, self: NestedTensor, dim: Any, rest: Any, kwargs: dict[str, Any]
) -> Tensor:
    """A reduction over the components, which takes in the dimension in which they differ."""
    rank, ragged = self.dim(), self._ragged_at() + 1
    dims = {d % rank for d in (dim if isinstance(dim, list | tuple) else [dim])}
    if self._layout is not jagged or ragged not in dims:
        raise RuntimeError(
            f"{name}(): dimension 0 of a nested tensor is the list of components, which is reduced "
            "together with the dimension in which they differ"
        )
    options = {k: v for k, v in kwargs.items() if k not in ("dim", "keepdim")}
    keep = kwargs.get("keepdim", rest[0] if rest else False)
    whole = tenon.cat(self._parts, ragged - 1)
    out = func(whole, tuple(d - 1 for d in sorted(dims) if d), keepdim=keep, **options)
    return out.unsqueeze(0) if keep else out


def _chunk(self: NestedTensor, chunks: int) -> tuple[NestedTensor, ...]:
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return _split(self, max(-(-len(self._parts) // chunks), 1))


def _split(self: NestedTensor, split_size: Any) -> tuple[NestedTensor, ...]:
    count, even = len(self._parts), isinstance(split_size, int)
    sizes = [split_size] if even else split_size
    if any(n < 1 for n in sizes):
        raise RuntimeError(f"split(): sizes are numbers from 1, got {split_size}")
    if even:
        sizes = [min(split_size, count - i) for i in range(0, count, split_size)]
    if sum(sizes) != count:
        raise RuntimeError(f"split(): sizes {sizes} do not add up to {count} components")
    ends = itertools.accumulate(sizes)
    return tuple(self[end - n : end] for n, end in zip(sizes, ends, strict=True))


def _select(self: NestedTensor, index: int) -> Tensor:
    return self._parts[index]


def _narrow(self: NestedTensor, start: int, length: int) -> NestedTensor:
    count = len(self._parts)
    if not (0 <= start <= count and 0 <= length <= count - start):
        raise RuntimeError(
            f"narrow(): start ({start}) + length ({length}) exceeds the {count} components"
        )
    return self[start : start + length]


# Calls along the list of components.
_LISTED: dict[str, Callable[..., Any]] = {
    "chunk": _chunk, "split": _split, "select": _select, "narrow": _narrow,
}  # fmt: skip


def _bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """That of components, which have a dimension less."""
    return input @ mat2


def _product(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Products of components. Where both differ in the dimension that is summed over, the results
    of jagged ones are of one size: a plain tensor."""
    nested = _nested_in((args, kwargs))
    out = _for_each(_bmm if name == "bmm" else func, args, kwargs, True)
    inner = nested[0].dim() - 2
    summed = len(nested) == 2 and [n._ragged_at() for n in nested] == [inner, inner - 1]
    return _dense(out, nested[0]) if summed else _given(out, nested[0])


def _permuted(func: Any, self: NestedTensor, *dims: Any) -> NestedTensor:
    dims = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
    rank = self.dim()
    if sorted(d % rank for d in dims) != list(range(rank)) or dims[0] % rank:
        raise RuntimeError(
            f"permute(): {dims} are not the dimensions of a nested tensor of {rank} dimensions, "
            "the list of components first"
        )
    return _given([func(p, [d % rank - 1 for d in dims[1:]]) for p in self._parts], self)


def _reshaped(func: Any, args: Any) -> Any:
    self, *sizes = args
    sizes = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if not sizes or sizes[0] not in (-1, len(self._parts)):
        raise RuntimeError(
            f"view: For now nested view cannot change the first dimension, {len(self._parts)}"
        )
    sizes = [-1 if isinstance(s, RaggedSize) else s for s in sizes[1:]]
    return _given([func(p, sizes) for p in self._parts], self)


def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with a nested tensor among its arguments."""
    name = name_of(func)
    if "input" in kwargs and not args:
        kwargs = dict(kwargs)
        args = (kwargs.pop("input"),)
    nested = _nested_in((args, kwargs))
    with DisableTorchFunctionSubclass():
        if name in ("view", "reshape"):
            return _reshaped(func, args)
        if name == "unbind":
            return args[0].unbind(*args[1:], **kwargs)
        if name == "permute":
            return _permuted(func, *args, **kwargs)
        if name in _PRODUCTS:
            return _product(func, name, args, kwargs)
        if name in _DIMS:
            return _along(name, func, args, kwargs)
        if name == "cat":
            parts = [p for n in nested for p in n._parts]
            if (args[1] if len(args) > 1 else kwargs.get("dim", 0)) == 0:
                return of_components(parts, nested[0]._layout)
            dims = _past(args[1] if len(args) > 1 else kwargs["dim"], nested[0].dim(), name)
            return _given(_for_each(func, (args[0], dims), {}, False), nested[0])
        inplace = is_inplace(name) and name not in _ELEMENTS
        base = name[:-1] if inplace else name
        if base in _ELEMENTS or is_pointwise(name):
            out = _for_each(func, args, kwargs, True)
        elif base in _WHOLE:
            out = _for_each(func, args, kwargs, False)
        else:
            raise RuntimeError(
                f"{name}() is not there for nested tensors; unbind() gives the components, "
                "to_padded_tensor() one tensor"
            )
        return args[0] if inplace else _given(out, nested[0])


class NestedTensor(Tensor):
    """A batch of tensors whose sizes differ; see the package."""

    _parts: list[Tensor]
    _layout: Any
    _ragged: RaggedSize | None
    _whole: Tensor | None  # what the components are parts of, one after the other
    _holes: tuple[Tensor, Tensor] | None  # offsets and lengths, where components leave room
    _at: int | None  # the components' dimension in which they differ, where sizes may not show it

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def _symbol(self) -> RaggedSize:
        if self._ragged is None:
            self._ragged = RaggedSize()
        return self._ragged

    @property
    def is_nested(self) -> bool:  # type: ignore[override]
        return True

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return self._layout

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return any(p.requires_grad for p in self._parts)

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        return all(p.is_leaf for p in self._parts)

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]
        return self._parts[0].grad_fn if self._parts else None

    @property
    def grad(self) -> NestedTensor | None:  # type: ignore[override]
        found = [p.grad for p in self._parts]
        if all(g is None for g in found):
            return None
        given = [tenon.zeros_like(p) if g is None else g for p, g in zip(self._parts, found)]
        return _given(given, self)

    @property
    def data(self) -> NestedTensor:  # type: ignore[override]
        return _given([p.data for p in self._parts], self)

    @property
    def mT(self) -> NestedTensor:  # type: ignore[override]
        return _given([p.mT for p in self._parts], self)

    @property
    def mH(self) -> NestedTensor:  # type: ignore[override]
        return _given([p.mH for p in self._parts], self)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return sum(p.nbytes for p in self._parts)

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.dim()

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return self.size()

    def dim(self) -> int:
        return 1 + (self._parts[0].dim() if self._parts else 0)

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """One size; of a jagged tensor also all of them, a RaggedSize where they differ."""
        if dim is None:
            if self._layout is not jagged:
                raise RuntimeError(
                    "a nested tensor has no sizes; size(dim) tells those that are one number"
                )
            ragged = self._ragged_at()
            inner = [self._symbol() if d == ragged else s
                     for d, s in enumerate(self._parts[0].shape)]  # fmt: skip
            return (len(self._parts), *inner)
        rank = self.dim()
        if not -rank <= dim < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, "
                             f"{rank - 1}], but got {dim})")  # fmt: skip
        if dim % rank == 0:
            return len(self._parts)
        sizes = {p.shape[dim % rank - 1] for p in self._parts}
        if self._layout is jagged and dim % rank - 1 == self._ragged_at():
            return self._symbol()
        if len(sizes) > 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return sizes.pop()

    def numel(self) -> int:
        return sum(p.numel() for p in self._parts)

    nelement = numel

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis:
            return self
        if isinstance(index, tuple):
            first, *rest = self._spelled(index)
            if isinstance(first, int):
                return self._parts[first][tuple(rest)]
            if not isinstance(first, slice):
                raise IndexError(
                    "the list of components, dimension 0 of a nested tensor, is indexed by numbers "
                    f"and slices, not {type(first).__name__}"
                )
            parts = [p[tuple(rest)] for p in self._parts[first]]
            return _given(parts, self)
        if isinstance(index, slice):
            return of_components(self._parts[index], self._layout)
        return self._parts[index]

    def _spelled(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """An index whose ellipsis is written out."""
        at = next((i for i, v in enumerate(index) if v is Ellipsis), None)
        if at is None:
            return index
        used = sum(v is not None for v in index) - 1
        return index[:at] + (slice(None),) * (self.dim() - used) + index[at + 1 :]

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The components."""
        if wrapped_dim(dim, self.dim()):
            raise RuntimeError("NestedTensor can only be unbound along dimension 0")
        return tuple(self._parts)

    def _pack(self) -> None:
        """Moves the components into one tensor: all their elements, or of a jagged tensor what
        they make along the dimension in which they differ."""
        if not self._parts:
            self._whole = tenon.empty(0, dtype=self.dtype, device=self.device)
        elif self._layout is jagged:
            dim = self._ragged_at()
            self._whole = tenon.cat(self._parts, dim)
            self._parts = list(self._whole.split([p.shape[dim] for p in self._parts], dim))
        else:
            self._whole = tenon.cat([p.reshape(-1) for p in self._parts])
            rows = self._whole.split([p.numel() for p in self._parts])
            self._parts = [r.view(p.shape) for r, p in zip(rows, self._parts, strict=True)]

    def _ragged_at(self) -> int:
        return (_ragged_dim(self._parts) or 0) if self._at is None else self._at

    def values(self) -> Tensor:
        """All components in one tensor, which shares their memory: the elements one after the
        other, or of a jagged tensor the components, along the dimension in which they differ."""
        if any(p.requires_grad and p.is_leaf for p in self._parts):
            apart = of_components(self._parts, self._layout)  # gradients go to the components
            apart._at = self._at
            apart._pack()
            assert apart._whole is not None
            return apart._whole
        if self._whole is None:
            self._pack()
        assert self._whole is not None
        return self._whole

    def offsets(self) -> Tensor:
        """Where components begin in `values()`, and the end of the last."""
        if self._holes is not None:
            return self._holes[0]
        dim = self._ragged_at()
        return tenon.tensor([0, *itertools.accumulate(p.shape[dim] for p in self._parts)])

    def _nested_tensor_size(self) -> Tensor:
        """The components' sizes, a row for each."""
        return tenon.tensor([list(p.shape) for p in self._parts], dtype=tenon.int64)

    def lengths(self) -> Tensor | None:
        """The components' lengths where they were given apart from where they begin in `values()`;
        None where no component has more room than it needs."""
        return None if self._holes is None else self._holes[1]

    @property
    def _max_seqlen(self) -> int:
        return max(p.shape[self._ragged_at()] for p in self._parts)

    @property
    def _min_seqlen(self) -> int:
        return min(p.shape[self._ragged_at()] for p in self._parts)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._holes is None and all(p.is_contiguous() for p in self._parts)

    def requires_grad_(self, requires_grad: bool = True) -> NestedTensor:
        for p in self._parts:
            p.requires_grad_(requires_grad)
        return self

    def _carriers(self) -> list[Tensor]:
        return self._parts

    def _with_carriers(self, tensors: list[Tensor]) -> NestedTensor:
        return _given(tensors, self)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Gradients of what the components were made of."""
        if not isinstance(gradient, NestedTensor):
            raise RuntimeError("backward(): a nested tensor needs a nested gradient")
        tenon.autograd.backward(self._parts, gradient._parts, *args, **kwargs)

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """See nested.to_padded_tensor."""
        return to_padded_tensor(self, padding, output_size)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> NestedTensor:
        parts = [p.detach().clone().requires_grad_(p.requires_grad) for p in self._parts]
        return memo.setdefault(id(self), of_components(parts, self._layout))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return of_components, (self._parts, self._layout)

    def __repr__(self, **options: Any) -> str:
        if self._layout is jagged:
            size = ", ".join(map(str, self.size()))
            return (f"NestedTensor(size=({size}), offsets={self.offsets()}, "
                    f"contiguous={self.is_contiguous()})")  # fmt: skip
        body = ",\n".join("  " + repr(p.detach()).replace("\n", "\n  ") for p in self._parts)
        return f"nested_tensor([\n{body}\n])"

    __str__ = __repr__
    __format__ = object.__format__  # type: ignore[assignment]


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Tensor:
    """One tensor of all components, each in the corner of a box of the largest sizes, or of
    `output_size`, with `padding` around it.

    >>> nested.nested_tensor([tn.ones(1), tn.ones(2)]).to_padded_tensor(0.0).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    if not isinstance(input, NestedTensor):
        raise TypeError(f"to_padded_tensor(): expected a nested tensor, not {type(input).__name__}")
    parts = input._parts
    if not parts:
        raise RuntimeError("to_padded_tensor(): at least one component is needed")
    sizes = [max(p.shape[d] for p in parts) for d in range(parts[0].dim())]
    if output_size is not None:
        given = list(output_size)[1:]
        if len(given) != len(sizes) or any(a < b for a, b in zip(given, sizes, strict=True)):
            raise RuntimeError("Value in output_size is less than NestedTensor padded size. "
                               "Truncation is not supported.")  # fmt: skip
        sizes = given
    from tenon.nn.functional import pad

    boxes = [
        pad(p, [n for d in reversed(range(p.dim())) for n in (0, sizes[d] - p.shape[d])],
            value=padding)
        for p in parts
    ]  # fmt: skip
    return tenon.stack(boxes)


route_methods(NestedTensor, run, KINDS)
