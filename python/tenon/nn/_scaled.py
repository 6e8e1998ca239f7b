"""Products of groups of rows, and of narrow floating-point numbers that are scaled."""

from __future__ import annotations

from enum import Enum
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import dtype

__all__ = ["ScalingType", "SwizzleType", "grouped_mm", "scaled_grouped_mm", "scaled_mm"]


class ScalingType(Enum):
    """To which elements one scale belongs."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """In which order scales lie."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _parts(offs: Tensor, size: int) -> list[tuple[int, int]]:
    """Where every group begins and ends."""
    ends = [int(n) for n in offs.tolist()]
    starts = [0, *ends[:-1]]
    if any(not 0 <= a <= b <= size for a, b in zip(starts, ends, strict=True)):
        raise RuntimeError(f"grouped_mm(): offs {ends} do not rise within {size}")
    return list(zip(starts, ends, strict=True))


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: dtype | None = None,
) -> Tensor:  # fmt: skip
    """Products of groups. A matrix of three dimensions has a group in each place of its first; one
    of two is cut where `offs` says that groups end: rows of mat_a, columns of mat_b, or what both
    are multiplied along. Rows and columns behind the last group are 0.

    >>> a, b = tn.ones(4, 2), tn.tensor([1.0, 2.0]).reshape(2, 1, 1).expand(2, 2, 1)
    >>> tn.nn.functional.grouped_mm(a, b, offs=tn.tensor([1, 4], dtype=tn.int32)).flatten()
    tensor([2., 4., 4., 4.])
    """
    flat = mat_a.dim() == 2, mat_b.dim() == 2
    if not {mat_a.dim(), mat_b.dim()} <= {2, 3}:
        raise RuntimeError("mat_a and mat_b have to be 2 or 3 dimensional")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if (offs is not None) != any(flat):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if offs is None:
        return tenon.bmm(mat_a, mat_b).to(out_dtype or mat_a.dtype)
    if flat == (True, True):
        cuts = _parts(offs, mat_a.shape[1])
        made = tenon.stack([mat_a[:, i:j] @ mat_b[i:j] for i, j in cuts])
    elif flat[0]:
        cuts = _parts(offs, mat_a.shape[0])
        rows = [mat_a[i:j] @ mat_b[g] for g, (i, j) in enumerate(cuts)]
        rest = mat_a.new_zeros(mat_a.shape[0] - cuts[-1][1], mat_b.shape[2])
        made = tenon.cat([*rows, rest])
    else:
        cuts = _parts(offs, mat_b.shape[1])
        columns = [mat_a[g] @ mat_b[:, i:j] for g, (i, j) in enumerate(cuts)]
        rest = mat_a.new_zeros(mat_a.shape[1], mat_b.shape[1] - cuts[-1][1])
        made = tenon.cat([*columns, rest], dim=1)
    return made.to(out_dtype or mat_a.dtype)


def _scaled_mm(
    input: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """A product of float8 matrices, each times a scale of its own or one for each row of input and
    each column of mat2, computed in float32."""
    del use_fast_accum
    for name, scale, size in (("scale_a", scale_a, (input.shape[0], 1)),
                              ("scale_b", scale_b, (1, mat2.shape[1]))):  # fmt: skip
        if scale.numel() != 1 and tuple(scale.shape) != size:
            raise RuntimeError(f"{name} must be one number or of size {size}, not {scale.shape}")
    made = (input.float() * scale_a) @ (mat2.float() * scale_b)
    if bias is not None:
        made = made + bias.float()
    kind = out_dtype or input.dtype
    if scale_result is not None and kind.itemsize == 1:
        made = made / scale_result
    if kind.itemsize == 1:
        most = tenon.finfo(kind).max
        made = made.clamp(-most, most)
    return made.to(kind)


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any,
    scale_recipe_b: Any, swizzle_a: Any = None, swizzle_b: Any = None,
    bias: Tensor | None = None, output_dtype: dtype | None = tenon.bfloat16,
    contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """A product of float8 matrices that are scaled as a whole, or by rows and columns.

    >>> a, kind = tn.ones(2, 2).to(tn.float8_e4m3fn), tn.nn.functional.ScalingType.TensorWise
    >>> tn.nn.functional.scaled_mm(a, a, tn.tensor(2.0), kind, tn.tensor(1.0), kind)[0]
    tensor([4., 4.], dtype=tenon.bfloat16)
    """

    def only(value: Any) -> Any:
        return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value

    recipes = only(scale_recipe_a), only(scale_recipe_b)
    plain = (ScalingType.TensorWise, ScalingType.RowWise)
    if any(r not in plain for r in recipes) or contraction_dim:
        raise NotImplementedError(f"scaled_mm(): there is no kernel for scales {recipes}")
    for swizzle in (only(swizzle_a), only(swizzle_b)):
        if swizzle not in (None, SwizzleType.NO_SWIZZLE):
            raise NotImplementedError("scaled_mm(): there is no kernel for scales in another order")
    return _scaled_mm(
        mat_a, mat_b, only(scale_a), only(scale_b), bias, None, output_dtype, use_fast_accum
    )


def scaled_grouped_mm(*args: Any, **kwargs: Any) -> Any:
    """Raises: there is no kernel for it.

    >>> tn.nn.functional.scaled_grouped_mm()
    Traceback (most recent call last):
    NotImplementedError: scaled_grouped_mm(): there is no kernel for groups of float8
    """
    raise NotImplementedError("scaled_grouped_mm(): there is no kernel for groups of float8")
