"""Making sparse tensors from data, and the conversions that are methods of Tensor."""

from __future__ import annotations

import threading
from typing import Any

from tenon import _C
from tenon._C import Tensor

_ops = _C._ops

# The numbers of the layouts in C.
NUMBERS = {
    layout: number
    for number, layout in enumerate(
        (_C.strided, _C.sparse_coo, _C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc)
    )
}
_checks = threading.local()


def checking(given: bool | None) -> bool:
    """Whether a tensor that is made now is checked in full."""
    return getattr(_checks, "on", False) if given is None else given


class check_sparse_tensor_invariants:  # noqa: N801 -- PyTorch's name
    """Sparse tensors are checked in full when they are made: as a context, a decorator, or with
    `enable()` and `disable()`. That indices lie within the sizes is checked in any case."""

    @staticmethod
    def is_enabled() -> bool:
        return checking(None)

    @staticmethod
    def enable() -> None:
        _checks.on = True

    @staticmethod
    def disable() -> None:
        _checks.on = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: list[bool] = []

    def __enter__(self) -> None:
        self.saved.append(checking(None))
        _checks.on = self.state

    def __exit__(self, *exc: object) -> None:
        _checks.on = self.saved.pop()

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def _index(data: Any, device: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data if device is None else data.to(device)
    t = _C.tensor(data, device=device)
    return t.to(_C.int64) if t.numel() == 0 else t


def _values(data: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device=device or data.device, dtype=dtype or data.dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def _finished(t: Tensor, requires_grad: bool, pin_memory: bool) -> Tensor:
    if pin_memory:
        raise NotImplementedError("pin_memory is not there for sparse tensors")
    return t.requires_grad_() if requires_grad else t


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A tensor of layout sparse_coo: values[k] at indices[:, k]; equal places add up."""
    if values is None and size is None and indices is not None:
        indices, size = None, indices
    if indices is None or values is None:
        if size is None:
            raise TypeError("sparse_coo_tensor() needs indices and values, or a size")
        size = tuple(size)
        indices = _ops.zeros((len(size), 0), dtype=_C.int64, device=device)
        values = _ops.zeros((0,), dtype=dtype, device=device)
        is_coalesced = True
    elements = _values(values, dtype, device)
    places = _index(indices, elements.device)
    if places.numel() == 0 or not places.is_floating_point():
        places = places.to(_C.int64)
    if places.ndim == 1 and places.numel() == 0:
        places = places.reshape(1 if size is None else len(size) - elements.ndim + 1, 0)
    if elements.ndim == 0:
        elements = elements.expand(places.shape[-1])
    made = _ops._sparse_coo(
        places, elements, None if size is None else tuple(size), bool(is_coalesced),
        checking(check_invariants),
    )  # fmt: skip
    return _finished(made, requires_grad, pin_memory)


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse matrix and another one.

    Shapes: (m, k) and (k, n) to (m, n).

    >>> tn.spmm(tn.eye(2).to_sparse(), tn.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    return _ops.mm(input, mat2)


dsmm = spmm


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense one, as a sparse tensor."""
    return _ops.mm(mat1, mat2).to_sparse(1)


def smm(input: Tensor, mat: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense one, as a sparse tensor."""
    return _ops.mm(input, mat).to_sparse()


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2 of two sparse matrices and a dense one, as a sparse one.

    Shapes: (m, n), (m, k) and (k, n) to (m, n).

    >>> tn.sspaddmm(tn.eye(2).to_sparse(), tn.eye(2).to_sparse(), tn.ones(2, 2)).to_dense()
    tensor([[2., 1.],
            [1., 2.]])
    """
    for name, t in (("input", input), ("mat1", mat1)):
        if not t.is_sparse:
            raise RuntimeError(f"sspaddmm: {name} has to be a sparse matrix, but is {t.layout}")
    product = smm(mat1, mat2)
    if input.shape != product.shape:
        raise RuntimeError(
            f"sspaddmm: input has the shape {tuple(input.shape)}, the product "
            f"{tuple(product.shape)}"
        )
    return input * beta + product * alpha


def _compressed(
    compressed: Any, plain: Any, values: Any, size: Any, layout: Any, dtype: Any, device: Any,
    pin_memory: bool, requires_grad: bool, check: bool | None,
) -> Tensor:  # fmt: skip
    if layout not in NUMBERS:
        raise TypeError("layout must be one of the compressed sparse layouts")
    elements = _values(values, dtype, device)
    made = _ops._sparse_compressed(
        _index(compressed, elements.device), _index(plain, elements.device), elements,
        None if size is None else tuple(size), NUMBERS[layout], checking(check),
    )  # fmt: skip
    return _finished(made, requires_grad, pin_memory)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A tensor of the layout sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""
    if layout is None:
        raise RuntimeError("sparse_compressed_tensor() needs a layout")
    return _compressed(
        compressed_indices, plain_indices, values, size, layout, dtype, device, pin_memory,
        requires_grad, check_invariants,
    )  # fmt: skip


def _maker(layout: Any, name: str, first: str, second: str) -> Any:
    def make(
        compressed: Any,
        plain: Any,
        values: Any,
        size: Any = None,
        *,
        dtype: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        check_invariants: bool | None = None,
    ) -> Tensor:
        return _compressed(
            compressed, plain, values, size, layout, dtype, device, pin_memory, requires_grad,
            check_invariants,
        )  # fmt: skip

    def named(*args: Any, **kwargs: Any) -> Tensor:
        for own, theirs in (("compressed", first), ("plain", second)):
            if theirs in kwargs:
                kwargs[own] = kwargs.pop(theirs)
        return make(*args, **kwargs)

    named.__name__ = named.__qualname__ = name
    named.__doc__ = f"A tensor of layout {layout} with these {first}, {second} and values."
    return named


sparse_csr_tensor = _maker(_C.sparse_csr, "sparse_csr_tensor", "crow_indices", "col_indices")
sparse_csc_tensor = _maker(_C.sparse_csc, "sparse_csc_tensor", "ccol_indices", "row_indices")
sparse_bsr_tensor = _maker(_C.sparse_bsr, "sparse_bsr_tensor", "crow_indices", "col_indices")
sparse_bsc_tensor = _maker(_C.sparse_bsc, "sparse_bsc_tensor", "ccol_indices", "row_indices")


def _without_elements(size: tuple[int, ...], layout: Any, dtype: Any, device: Any) -> Tensor:
    if layout is _C.sparse_coo:
        return sparse_coo_tensor(size=size, dtype=dtype, device=device)
    batch, rows = size[:-2], size[-1 if layout is _C.sparse_csc else -2]
    compressed = _ops.zeros((*batch, rows + 1), dtype=_C.int64, device=device)
    plain = _ops.zeros((*batch, 0), dtype=_C.int64, device=device)
    values = _ops.zeros((*batch, 0), dtype=dtype, device=device)
    return _compressed(compressed, plain, values, size, layout, dtype, device, False, False, False)


def created(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a call of a factory with a sparse `layout` gives: a tensor without elements. One with
    the layout strided gives what it does for a strided tensor like its first argument."""
    layout = kwargs.pop("layout")
    like = args[0] if args else kwargs.get("input")
    if isinstance(like, Tensor) and like.layout is layout:
        return getattr(Tensor if name.startswith("new_") else _ops, name)(*args, **kwargs)
    if layout is _C.strided:
        like, *rest = args or (kwargs.pop("input"),)
        strided = _ops.empty(like.shape, dtype=like.dtype, device=like.device)
        return getattr(Tensor if name.startswith("new_") else _ops, name)(strided, *rest, **kwargs)
    requires_grad, pin_memory = (kwargs.pop(k, False) for k in ("requires_grad", "pin_memory"))
    if name.removesuffix("_like").removeprefix("new_") not in ("zeros", "empty"):
        raise NotImplementedError(
            f"{name}(): argument 'layout': it makes no tensors of layout {layout}; to_sparse() does"
        )
    device = kwargs.pop("device", None)
    if args and isinstance(args[0], Tensor):
        device = device or args[0].device
        like = _ops.empty(args[0].shape, dtype=args[0].dtype, device="meta")
        args = (like, *args[1:])
    function = getattr(Tensor if name.startswith("new_") else _ops, name)
    meant = function(*args, **kwargs, device="meta")  # its sizes and dtype
    compressed = layout is not _C.sparse_coo
    if layout in (_C.sparse_bsr, _C.sparse_bsc) or (compressed and meant.ndim < 2):
        raise RuntimeError(
            f"{name}(): argument 'layout': a tensor of layout {layout} cannot be made from sizes "
            f"{tuple(meant.shape)} alone"
        )
    made = _without_elements(tuple(meant.shape), layout, meant.dtype, device)
    return _finished(made, requires_grad, pin_memory)


def new_of(self: Tensor, data: tuple[Any, ...], device: Any) -> Tensor:
    """`Tensor.new` of a sparse tensor: of indices and values, or of sizes."""
    if self.layout is not _C.sparse_coo:
        raise RuntimeError(f"new(): it makes no tensors of layout {self.layout}")
    if data and isinstance(data[0], Tensor):
        return sparse_coo_tensor(*data, device=device)
    if data and not isinstance(data[0], int | _C.Size):
        raise TypeError(
            "new() of a sparse tensor only accepts sizes. Please use sparse_coo_tensor() or "
            "construct a strided tensor and convert it to sparse via to_sparse()."
        )
    sizes = data[0] if data and isinstance(data[0], _C.Size) else data or (0,)
    return self.new_empty(sizes, device=device)


# ---- Conversions ---------------------------------------------------------------------------------


def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The tensor in a sparse layout, sparse_coo unless another is given."""
    if layout is None:
        layout = _C.sparse_coo
    if layout not in NUMBERS:
        raise RuntimeError(f"to_sparse() makes sparse layouts, not {layout}")
    if layout is _C.strided:
        if (sparse_dim, blocksize, dense_dim) != (None, None, None):
            raise RuntimeError(
                "to_sparse(): layout strided takes no sparse_dim, blocksize, dense_dim"
            )
        return self if self.layout is layout else self.to_dense()
    if blocksize is not None and layout not in (_C.sparse_bsr, _C.sparse_bsc):
        raise RuntimeError(f"to_sparse(): layout {layout} takes no blocksize")
    if layout is not _C.sparse_coo:
        if sparse_dim is not None:
            raise RuntimeError(f"to_sparse(): layout {layout} takes no sparse_dim")
        return _ops._to_compressed(self, NUMBERS[layout], tuple(blocksize or ()), dense_dim or 0)
    if sparse_dim is None:
        sparse_dim = -1 if dense_dim is None else self.ndim - dense_dim
    return _ops._to_sparse_coo(self, sparse_dim)


def to_sparse_coo(self: Tensor) -> Tensor:
    """The tensor in the layout sparse_coo."""
    return to_sparse(self)


def _to(layout: Any, blocks: bool) -> Any:
    if blocks:

        def convert(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
            return to_sparse(self, layout=layout, blocksize=blocksize, dense_dim=dense_dim)
    else:

        def convert(self: Tensor, dense_dim: int | None = None) -> Tensor:
            return to_sparse(self, layout=layout, dense_dim=dense_dim)

    convert.__name__ = f"to_{str(layout).rpartition('.')[2]}"
    convert.__doc__ = f"The tensor in the layout {str(layout).rpartition('.')[2]}."
    return convert


to_sparse_csr = _to(_C.sparse_csr, False)
to_sparse_csc = _to(_C.sparse_csc, False)
to_sparse_bsr = _to(_C.sparse_bsr, True)
to_sparse_bsc = _to(_C.sparse_bsc, True)
