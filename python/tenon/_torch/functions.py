"""Functions that PyTorch has beside its public ones: private ones that packages call, and old ones
that only say what took their place. `tenon run` adds them to the package."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tenon
from tenon import _C, Tensor
from tenon.nn._scaled import _scaled_mm


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes as a tensor."""
    return tenon.tensor(self.shape, dtype=tenon.int64)


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where every row begins in sorted row numbers, and where the last one ends."""
    rows = tenon.arange(size + 1, device=input.device, dtype=input.dtype)
    return tenon.searchsorted(input.contiguous(), rows, out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor,
    col_indices: Tensor,
    *,
    out_int32: bool = False,
    transpose: bool = False,
) -> Tensor:
    """Coordinates, a row of them for each dimension, from where every row begins."""
    if crow_indices.ndim != 1:
        raise NotImplementedError("_convert_indices_from_csr_to_coo: batches are not served")
    numbers = tenon.arange(crow_indices.shape[0] - 1, device=crow_indices.device)
    rows = tenon.repeat_interleave(numbers, crow_indices.diff())
    both = [col_indices, rows] if transpose else [rows, col_indices]
    return tenon.stack([part.to(tenon.int32 if out_int32 else tenon.int64) for part in both])


def _validate_sparse_coo_tensor_args(
    indices: Tensor, values: Tensor, size: Sequence[int], is_coalesced: bool | None = None
) -> None:
    """Raises where these make no tensor of layout sparse_coo."""
    tenon.sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced, check_invariants=True)


def _validate_sparse_compressed_tensor_args(
    compressed_indices: Tensor,
    plain_indices: Tensor,
    values: Tensor,
    size: Sequence[int],
    layout: tenon.layout,
) -> None:
    """Raises where these make no tensor of the compressed layout."""
    tenon.sparse_compressed_tensor(
        compressed_indices, plain_indices, values, size, layout=layout, check_invariants=True
    )


def _validator(layout: str) -> Callable[..., None]:
    make = getattr(tenon, f"sparse_{layout}_tensor")

    def validate(*args: Any, **kwargs: Any) -> None:
        make(*args, **kwargs, check_invariants=True)

    validate.__name__ = f"_validate_sparse_{layout}_tensor_args"
    validate.__doc__ = f"Raises where these make no tensor of layout sparse_{layout}."
    return validate


def _sample_dirichlet(self: Tensor, generator: Any = None) -> Tensor:
    """Draws of Dirichlet distributions, without a gradient."""
    if generator is not None:
        raise NotImplementedError("_sample_dirichlet: draws come from the default generator")
    from tenon.distributions.dirichlet import sample_dirichlet

    with tenon.no_grad():
        return sample_dirichlet(self)


def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax, and 0 along what is -inf throughout."""
    nothing = input.eq(-math.inf).all(dim, keepdim=True)
    return input.masked_fill(nothing, 0).softmax(dim, dtype=dtype).masked_fill(nothing, 0)


def _aminmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element, of all or along dim."""
    return tuple(tenon.aminmax(input, dim=dim, keepdim=keepdim))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v with the norm g, which is taken over all dimensions but dim."""
    from tenon.nn.utils.weight_norm import scaled

    return scaled(v, g, dim)


def _lazy_clone(input: Tensor) -> Tensor:
    """A copy of the tensor."""
    return input.clone()


def set_vital(vital: str, attr: str, value: str) -> None:
    """Once noted a fact about the program; PyTorch has given it up."""
    del vital, attr, value
    warnings.warn("'set_vital' is deprecated, please do not call", UserWarning, stacklevel=2)


def _grouped_mm(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """`nn.functional.grouped_mm` by its older name."""
    grouped: Any = tenon.nn.functional.grouped_mm
    return grouped(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)  # type: ignore[no-any-return]


def _cast(dtype: tenon.dtype) -> Callable[..., Tensor]:
    def cast(self: Tensor, non_blocking: bool = False) -> Tensor:
        return self.to(dtype, non_blocking=non_blocking)

    cast.__doc__ = f"The tensor with elements of {dtype}."
    return cast


def _removed(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed. `torch.{name}` is "
            f"deprecated in favor of `torch.linalg.{instead}`."
        )

    refuse.__name__ = name
    refuse.__doc__ = f"Removed: `linalg.{instead}` took its place."
    return refuse


def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether `input.data = from_` may be said: both have memory, or both have none."""
    wrapped = _C._is_wrapped(input)
    return bool(wrapped == _C._is_wrapped(from_) and input.layout == from_.layout)


_KINDS = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "Float": "float32", "Double": "float64",
}  # fmt: skip
_REMOVED = {
    "solve": "solve", "matrix_rank": "matrix_rank", "eig": "eig", "lstsq": "lstsq",
    "symeig": "eigh",
}  # fmt: skip


def all_of_them() -> dict[str, Any]:
    """The functions by name."""
    found: dict[str, Any] = {
        f.__name__: f
        for f in (
            _shape_as_tensor,
            _convert_indices_from_coo_to_csr,
            _convert_indices_from_csr_to_coo,
            _sample_dirichlet,
            _validate_sparse_coo_tensor_args,
            _validate_sparse_compressed_tensor_args,
            *map(_validator, ("csr", "csc", "bsr", "bsc")),
            _safe_softmax,
            _aminmax,
            _weight_norm,
            _lazy_clone,
            set_vital,
            _has_compatible_shallow_copy_type,
            _grouped_mm,
            _scaled_mm,
        )
    }
    found |= {f"_cast_{kind}": _cast(getattr(tenon, name)) for kind, name in _KINDS.items()}
    found |= {name: _removed(name, instead) for name, instead in _REMOVED.items()}
    found["_segment_reduce"] = tenon.segment_reduce
    return found | {"legacy_contiguous_format": tenon.contiguous_format}
