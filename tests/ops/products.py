"""Operands of matrix products in every layout, and results against NumPy's in double."""

from __future__ import annotations

import numpy as np
import tenon as tn

DTYPES = {tn.float32: 2.0**-24, tn.float64: 2.0**-53}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], how: str, dtype: tn.dtype) -> tn.Tensor:
    """Normal numbers whose rows are packed, whose columns are, that are part of wider rows or of
    longer columns, or apart; NaN between them."""
    x = tn.tensor(rng.standard_normal(shape), dtype=dtype)
    if how == "columns":
        return x.mT.contiguous().mT
    if how == "long":
        return drawn(rng, (*shape[:-2], shape[-1], shape[-2]), "part", dtype).mT
    if how == "rows":
        return x
    wide = tn.full((*shape[:-1], 3 * shape[-1]), float("nan"), dtype=dtype)
    part = wide[..., 1 : shape[-1] + 1] if how == "part" else wide[..., 2::3]
    part.copy_(x)
    return part


def check(got: tn.Tensor, exact: np.ndarray, size: np.ndarray, eps: float) -> None:
    """`size` is the sum of the sizes of what is added."""
    worst = np.max(np.abs(got.double().numpy() - exact) / size)
    assert worst <= 12 * eps, (worst / eps, got.shape)
