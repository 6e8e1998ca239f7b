"""Functions of the package that are no operators, or wrap one for Python's sake."""

from __future__ import annotations

import builtins
import math
import numbers
from collections.abc import Sequence
from typing import Any, ClassVar

from tenon import _C, return_types
from tenon._C import Size, Tensor, dtype
from tenon._tape import overridable

__all__ = [
    "broadcast_shapes", "can_cast", "einsum", "finfo", "get_device_module", "iinfo",
    "is_complex", "is_floating_point", "is_nonzero", "is_storage", "meshgrid", "numel",
    "result_type", "split", "typename",
]  # fmt: skip

# Types of Python that are names of dtypes.
_NAMES = {
    builtins.bool: _C.bool, builtins.int: _C.int64, builtins.float: _C.float64,
    builtins.complex: _C.complex128,
}  # fmt: skip


# ---- Facts about dtypes --------------------------------------------------------------------------


def dtype_named(kind: Any) -> Any:
    """The dtype that a type of Python names; anything else as it is."""
    return _NAMES.get(kind, kind) if isinstance(kind, type) else kind


class finfo:
    """Limits of a floating-point dtype."""

    # exponent of the largest power of two, bits of the fraction, exponent of the smallest normal
    _LIMITS = {
        "float16": (15, 10, -14), "bfloat16": (127, 7, -126), "float32": (127, 23, -126),
        "float64": (1023, 52, -1022), "float8_e4m3fn": (8, 3, -6), "float8_e5m2": (15, 2, -14),
        "float8_e4m3fnuz": (7, 3, -7), "float8_e5m2fnuz": (15, 2, -15),
        "float8_e8m0fnu": (127, 0, -127),
    }  # fmt: skip

    _made: ClassVar[dict[dtype, finfo]] = {}
    dtype: str
    bits: builtins.int
    eps: builtins.float
    max: builtins.float
    min: builtins.float
    tiny: builtins.float
    smallest_normal: builtins.float
    resolution: builtins.float

    def __new__(cls, type: dtype | None = None) -> finfo:
        kind = _C.get_default_dtype() if type is None else dtype_named(type)
        if not isinstance(kind, dtype) or not (kind.is_floating_point or kind.is_complex):
            raise TypeError(
                f"finfo() requires a floating point input type. Use iinfo to handle '{kind}'"
            )
        made = cls._made.get(kind)
        if made is None:
            made = cls._made[kind] = object.__new__(cls)
            vars(made).update(cls._facts(kind.to_real()))
        return made

    @classmethod
    def _facts(cls, kind: dtype) -> dict[str, Any]:
        name = repr(kind).partition(".")[2]
        top, fraction, bottom = cls._LIMITS[name]
        eps, tiny = math.ldexp(1.0, -fraction), math.ldexp(1.0, bottom)
        most = 448.0 if name == "float8_e4m3fn" else math.ldexp(2.0 - eps, top)
        return {
            "dtype": name,
            "bits": kind.itemsize * 8,
            # PyTorch's number; the format's is twice that.
            "eps": 0.125 if name == "float8_e5m2fnuz" else eps,
            "max": most,  # of e4m3fn the code above it is not a number
            "min": tiny if name == "float8_e8m0fnu" else -most,  # which has no negative numbers
            "tiny": tiny,
            "smallest_normal": tiny,
            "resolution": 10.0 ** -math.floor(fraction * math.log10(2.0)),
        }

    # All who ask for a dtype get the same object: nobody changes it, and a copy is itself.
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"finfo: '{name}' cannot be set")

    def __reduce__(self) -> Any:
        return finfo, (getattr(_C, self.dtype),)

    def __repr__(self) -> str:
        parts = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        text = ", ".join(f"{name}={getattr(self, name):g}" for name in parts)
        return f"finfo({text}, dtype={self.dtype})"

    def __eq__(self, other: object) -> builtins.bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> builtins.int:
        return hash(self.dtype)


class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, type: dtype) -> None:
        type = dtype_named(type)
        if not isinstance(type, dtype) or type.is_floating_point or type.is_complex:
            raise TypeError(f"iinfo() requires an integer input type. Use finfo to handle '{type}'")
        if type is _C.bool:
            raise TypeError(f"\"bool\" is not supported by iinfo (got '{type}')")
        self.dtype = repr(type).partition(".")[2]
        self.bits = type.itemsize * 8
        self.max = 2 ** (self.bits - type.is_signed) - 1
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

    def __eq__(self, other: object) -> builtins.bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> builtins.int:
        return hash(self.dtype)


def _category(kind: dtype) -> builtins.int:
    if kind is _C.bool:
        return 0
    return 3 if kind.is_complex else 2 if kind.is_floating_point else 1


def _number_dtype(value: Any) -> dtype:
    if isinstance(value, builtins.bool):
        return _C.bool
    if isinstance(value, numbers.Integral):  # also NumPy's
        return _C.int64
    default = _C.get_default_dtype()
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        return default.to_complex()
    if hasattr(value, "__float__"):
        return default
    raise TypeError(
        f"result_type(): arguments must be tensors or numbers, not {type(value).__name__}"
    )


def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """The dtype of an operator on two tensors or numbers.

    >>> tn.result_type(tn.ones(1), 2)
    tenon.float32
    """
    if isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor):
        if (tensor1.ndim > 0) == (tensor2.ndim > 0):
            return _C.promote_types(tensor1.dtype, tensor2.dtype)
    ranks: list[list[dtype]] = [[], [], []]
    for value in (tensor1, tensor2):
        if isinstance(value, Tensor):
            ranks[0 if value.ndim else 1].append(value.dtype)
        else:
            ranks[2].append(_number_dtype(value))
    result: dtype | None = None
    for kinds in ranks:
        for rank, kind in enumerate(kinds):
            if rank:
                kinds[0] = _C.promote_types(kinds[0], kind)
        if kinds and (result is None or _category(kinds[0]) > _category(result)):
            result = kinds[0] if result is None else _raise_category(result, kinds[0])
    assert result is not None
    return result


def _raise_category(low: dtype, high: dtype) -> dtype:
    """A dimensionless operand of a higher category gives the category, not its width."""
    return low.to_complex() if low.is_floating_point and high.is_complex else high


@overridable.seen_by_modes
def can_cast(from_: dtype, to: dtype) -> builtins.bool:
    """True when a conversion loses no category: complex to real, float to int, number to bool.

    >>> tn.can_cast(tn.float32, tn.int64)
    False
    """
    from_, to = dtype_named(from_), dtype_named(to)
    for place, (name, kind) in enumerate((("from_", from_), ("to", to)), 1):
        if not isinstance(kind, _C.dtype):
            raise TypeError(
                f"can_cast(): argument '{name}' (position {place}) must be dtype, "
                f"not {type(kind).__name__}"
            )
    return _category(from_) <= _category(to)


# ---- Facts about objects -------------------------------------------------------------------------


def is_floating_point(input: Tensor) -> builtins.bool:
    """True for real floating-point tensors.

    >>> tn.is_floating_point(tn.ones(1))
    True
    """
    return input.is_floating_point()


def is_complex(input: Tensor) -> builtins.bool:
    """True for complex tensors.

    >>> tn.is_complex(tn.ones(1))
    False
    """
    return input.is_complex()


def is_nonzero(input: Tensor) -> builtins.bool:
    """`bool(input)` of a tensor with one element.

    >>> tn.is_nonzero(tn.tensor([1.0]))
    True
    """
    return input.is_nonzero()


def is_storage(obj: object) -> builtins.bool:
    """True for the memory behind a tensor."""
    from tenon._tensor.storage import TypedStorage, UntypedStorage

    return isinstance(obj, UntypedStorage | TypedStorage)


def numel(input: Tensor) -> builtins.int:
    """Number of elements.

    >>> tn.numel(tn.ones(2, 3))
    6
    """
    return input.numel()


def typename(obj: object) -> str:
    """The name of an object's type; of a tensor, that of its elements too."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


# ---- Operators with a Python face ----------------------------------------------------------------


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention: `einsum("ij,jk->ik", a, b)`, or operands and lists
    of axis numbers in turn.

    >>> tn.einsum("ij,jk->ik", tn.ones(2, 3), tn.ones(3, 4)).shape
    tenon.Size([2, 4])
    """
    if not operands:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, "
            "or at least one operand and its subscripts list"
        )
    if not isinstance(equation, str) and not hasattr(equation, "__torch_function__"):
        kind = type(equation).__name__
        raise TypeError(f"einsum(): argument 'equation' (position 1) must be str, not {kind}")
    if not isinstance(equation, str):
        equation, operands = _einsum_text((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return _contracted(equation, *operands)


def _contract(equation: str, *operands: Tensor) -> Tensor:
    """einsum of operands in order."""
    if len(operands) > 2:
        from tenon.backends import opt_einsum

        if opt_einsum.enabled and opt_einsum.is_available():
            return _in_order(opt_einsum, equation, operands)
    return _C._ops.einsum(equation, operands)


_contracted = overridable.overridable(_contract, einsum)


def _in_order(settings: Any, equation: str, operands: tuple[Tensor, ...]) -> Tensor:
    """einsum of several operands, two at a time as opt_einsum plans it."""
    package = settings.get_opt_einsum()
    shapes = tuple(tuple(t.shape) for t in operands)
    _, plan = package.contract_path(equation, *shapes, optimize=settings.strategy, shapes=True)
    left = list(operands)
    for places, _, step, *_ in plan.contraction_list:
        taken = [left.pop(i) for i in sorted(places, reverse=True)]
        left.append(_C._ops.einsum(step, tuple(taken)))
    return left[0]


def _einsum_text(parts: Sequence[Any]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation of `einsum(a, [0, 1], b, [1, 2], [0, 2])`."""

    def letters(axes: Sequence[Any]) -> str:
        if any(a is not ... and not 0 <= a < 52 for a in axes):
            raise ValueError(
                "einsum(): subscript in subscript list is not within the valid range [0, 52)"
            )
        return "".join(
            "..." if a is ... else chr(a + (ord("A") if a < 26 else ord("a") - 26)) for a in axes
        )

    pairs = len(parts) // 2
    text = ",".join(letters(parts[2 * i + 1]) for i in range(pairs))
    if len(parts) % 2:
        text += "->" + letters(parts[-1])
    return text, tuple(parts[2 * i] for i in range(pairs))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums of products over dimensions: the last of a with the first of b, or two lists.

    Shapes: a and b share dims; the others stay.

    >>> tn.tensordot(tn.ones(2, 3), tn.ones(3, 4), dims=1).shape
    tenon.Size([2, 4])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, list | tuple):
        ours, theirs = dims
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        ours, theirs = list(range(a.dim() - dims, a.dim())), list(range(dims))
    return _C._ops.tensordot(a, b, ours, theirs, out=out)


# What Python takes as one argument and the operator as several (overrides._public).
tensordot._folds = {"dims": ("dims_a", "dims_b")}


_SPLITS = ("indices_or_sections", "indices", "sections", "tensor_indices_or_sections")


def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: builtins.int = 0, **names: Any
) -> Any:
    """Views along `dim`: so many, or cut at the given positions, which may be in a tensor.

    By name the second argument may also be called `indices`, `sections` or
    `tensor_indices_or_sections`.

    Shapes: any; parts as views.

    >>> tn.tensor_split(tn.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    for name, value in names.items():
        if name not in _SPLITS:
            raise TypeError(f"tensor_split() got an unexpected keyword argument '{name}'")
        if indices_or_sections is not None:
            raise TypeError(f"tensor_split() got several values for {' or '.join(_SPLITS)}")
        indices_or_sections = value
    if indices_or_sections is None:
        raise TypeError(
            "tensor_split() missing 1 required positional argument: 'indices_or_sections'"
        )
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.dtype is not _C.int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, "
                f"but got {indices_or_sections.dtype}"
            )
        if indices_or_sections.ndim > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {indices_or_sections.ndim} dims"
            )
        indices_or_sections = indices_or_sections.tolist()
    return _C._ops.tensor_split(input, indices_or_sections, dim)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Grids of coordinates; `indexing` is 'ij' or 'xy'.

    Shapes: rows of sizes a, b, ... to tensors (a, b, ...).

    >>> tn.meshgrid(tn.arange(2), tn.arange(3), indexing="ij")[0]
    tensor([[0, 0, 0],
            [1, 1, 1]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tuple(tensors[0])
    return tuple(_C._ops.meshgrid(tensors, indexing="ij" if indexing is None else indexing))


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes, or sizes, are broadcast to.

    >>> tn.broadcast_shapes((3, 1), (2,))
    tenon.Size([3, 2])
    """
    sizes = [(s,) if isinstance(s, builtins.int) else tuple(s) for s in shapes]
    rank = max(map(len, sizes), default=0)
    columns = list(zip(*((1,) * (rank - len(s)) + s for s in sizes), strict=True))
    wide = [next((n for n in column if n != 1), 1) for column in columns]
    if all(n in (1, w) and n >= 0 for column, w in zip(columns, wide) for n in column):
        return Size(wide)
    number = _C.tensor(0)
    return _C._ops.broadcast_tensors([number.expand(s) for s in sizes or [()]])[0].shape


def split(tensor: Tensor, split_size_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Views of equal or given sizes along `dim`.

    Shapes: any; parts as views.

    >>> tn.split(tn.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    return _C._ops.split(tensor, split_size_or_sections, dim)


def get_device_module(device: Any = None) -> Any:
    """The submodule that serves a kind of device."""
    import tenon

    return getattr(tenon, "cpu" if device is None else _C.device(device).type)


# ---- Samples -------------------------------------------------------------------------------------


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: builtins.int = 1
) -> tuple[Tensor, ...]:
    """Slopes along each of the dimensions. spacing: a distance for all of them, or for each its
    own, or the coordinates of its samples.

    Shapes: any; a tuple of tensors of the same.

    >>> tn.gradient(tn.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    if input.dtype is _C.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, builtins.int) else dim
    several = isinstance(spacing, list | tuple)
    if several and len(spacing) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of "
            f"{len(dims)} entries, one for each dimension, but got {len(spacing)}"
        )
    if len({d % max(input.dim(), 1) for d in dims}) != len(dims):
        raise RuntimeError("dim appears multiple times in the list of dims")
    steps = spacing if several else [1 if spacing is None else spacing] * len(dims)
    return tuple(
        _C._ops._gradient(input, d, 1, edge_order) / step
        if isinstance(step, builtins.complex)
        else _C._ops._gradient(input, d, step, edge_order)
        for d, step in zip(dims, steps, strict=True)
    )


def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: builtins.bool = False,
    out: Any = None,
) -> Any:
    """(hist, bin_edges): how many elements lie in each bin. bins: their number, or their edges.

    Shapes: any; counts (bins,) and edges (bins + 1,).

    >>> tn.histogram(tn.tensor([1.0, 2.0, 1.0]), bins=2).hist
    tensor([2., 1.])
    """
    if isinstance(bins, Tensor):
        if range is not None:
            raise TypeError("histogram(): bins that are edges leave no range to give")
        edges = bins
    else:
        if range is not None and len(range) != 2:
            raise RuntimeError(
                "torch.histogramdd: for a 1-dimensional histogram range should have 2 elements, "
                f"but got {len(range)}"
            )
        low, high = (None, None) if range is None else range
        edges = _C._ops._histogram_edges(input, bins, low, high)
    hist = _C._ops._histogram(input, edges, weight, density)
    result = return_types.histogram(hist, edges)
    if out is None:
        return result
    return return_types.histogram(
        *(_C._ops._given(r, out=o) for r, o in zip(result, out, strict=True))
    )


overridable.make_overridable(
    globals(),
    (
        "typename",
        "is_storage",
        "get_device_module",
        "broadcast_shapes",
        "can_cast",
        "einsum",
    ),
    as_numpy=True,
)
