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


def check_added(
    rng: np.random.Generator, m: int, n: int, k: int, layout: str, dtype: tn.dtype
) -> None:
    """addmm of what is broadcast, with factors, into results of several layouts and in place."""
    eps = DTYPES[dtype]
    a, b = drawn(rng, (m, k), "rows", dtype), drawn(rng, (k, n), layout, dtype)
    x, y = a.double().numpy(), b.double().numpy()
    for shape in [(n,), (m, n), (m, 1), (1,)]:
        c = drawn(rng, shape, "part" if len(shape) > 1 else "rows", dtype)
        z = c.double().numpy()
        for alpha, beta in [(1, 1), (1, 0.5), (-2, 1), (3, 0)]:
            size = abs(alpha) * (np.abs(x) @ np.abs(y)) + abs(beta) * np.abs(z)
            exact = alpha * (x @ y) + beta * z
            check(tn.addmm(c, a, b, alpha=alpha, beta=beta), exact, size, eps)
            nan = tn.full((n, 2 * m), float("nan"), dtype=dtype)
            for out in (nan[:, :m].T, tn.full_like(nan[:, :m], 1).T.repeat(1, 2)[:, ::2]):
                tn.addmm(c, a, b, alpha=alpha, beta=beta, out=out)
                check(out, exact, size, eps)
    own = drawn(rng, (m, n), layout, dtype)
    exact = 0.25 * own.double().numpy() + x @ y
    own.addmm_(a, b, beta=0.25)
    check(own, exact, np.abs(x) @ np.abs(y) + 1, eps)
    nothing = tn.full((n,), float("nan"), dtype=dtype)
    assert not tn.addmm(nothing, a, b, beta=0).isnan().any()


def check_batches(rng: np.random.Generator, m: int, n: int, k: int, dtype: tn.dtype) -> None:
    """Products of three matrices by three, and by one."""
    eps = DTYPES[dtype]
    for layout in ["rows", "columns"]:
        a, b = drawn(rng, (3, m, k), "rows", dtype), drawn(rng, (3, k, n), layout, dtype)
        c = drawn(rng, (3, m, n), "rows", dtype)
        x, y, z = (t.double().numpy() for t in (a, b, c))
        size = np.abs(x) @ np.abs(y) + np.abs(z)
        check(a @ b, x @ y, size, eps)
        check(tn.baddbmm(c, a, b), x @ y + z, size, eps)
        check(a @ b[1], x @ y[1], np.abs(x) @ np.abs(y[1]), eps)
        check(a[2] @ b, x[2] @ y, np.abs(x[2]) @ np.abs(y), eps)
