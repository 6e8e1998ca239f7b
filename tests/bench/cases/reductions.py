"""Reductions, and operators that work row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import Make, case, normal

K = 1024
M1, M16 = 1 << 20, 1 << 24

rows = partial(case, "rows")


def reduction(
    name: str, fn: Callable[[Any], Any], goal: float, numpy: Callable[[Any], Any] | None = None
) -> None:
    """One tensor of 16 M elements or of 1024 x 1024, by the name of the case."""
    large = name.endswith("16M")

    def make(T: Any) -> Callable[[], Any]:
        a = normal(T, M16) if large else normal(T, K, K)
        return lambda: fn(a)

    def make_numpy(N: Any) -> Callable[[], Any]:
        a = normal(N, M16) if large else normal(N, K, K)
        assert numpy
        return lambda: numpy(a)

    form: Make | bool = make_numpy if numpy else False
    quick = name in ("sum_16M", "sum_dim0_1024", "var_dim1_1024")
    case(
        "reductions", goal, name=name, numpy=form, bytes=4 * (M16 if large else M1), quick=quick
    )(make)  # fmt: skip


reduction("sum_16M", lambda a: a.sum(), 1.0, lambda a: a.sum())
reduction("mean_16M", lambda a: a.mean(), 1.0, lambda a: a.mean())
reduction("max_16M", lambda a: a.max(), 1.0, lambda a: a.max())
reduction("sum_dim0_1024", lambda a: a.sum(0), 1.0, lambda a: a.sum(0))
reduction("sum_dim1_1024", lambda a: a.sum(1), 1.0, lambda a: a.sum(1))
reduction("mean_dim0_1024", lambda a: a.mean(0), 1.0, lambda a: a.mean(0))
reduction("max_dim0_1024", lambda a: a.amax(0), 1.0, lambda a: a.max(0))
reduction("max_dim1_1024", lambda a: a.amax(1), 1.0, lambda a: a.max(1))
reduction("max_idx_dim1_1024", lambda a: a.max(1)[1], 1.0, lambda a: a.argmax(1))
reduction("logsumexp_dim1_1024", lambda a: a.logsumexp(1), 0.5)
reduction("var_dim1_1024", lambda a: a.var(1), 0.2, lambda a: a.var(1, ddof=1))
reduction("std_dim1_1024", lambda a: a.std(1), 0.2, lambda a: a.std(1, ddof=1))
reduction("norm_dim1_1024", lambda a: a.norm(dim=1), 0.5, lambda a: (a * a).sum(1) ** 0.5)


# -- rows --------------------------------------------------------------------------------------

EXP = 24.0  # operations of a vector exponential, for an element


@rows(0.35, bytes=8 * M1, flops=EXP * M1)
def softmax_1024_fwd(T):
    a = normal(T, K, K)
    return lambda: T.softmax(a, 1)


@rows(0.35, bytes=8 * M1, flops=EXP * M1)
def log_softmax_1024_fwd(T):
    a = normal(T, K, K)
    return lambda: T.log_softmax(a, 1)


@rows(0.35, bytes=8 * M1)
def layernorm_1024_fwd(T):
    a, w, b = normal(T, K, K), normal(T, K), normal(T, K)
    return lambda: T.nn.functional.layer_norm(a, (K,), w, b)


@rows(0.35, bytes=8 * M1)
def rmsnorm_1024_fwd(T):
    a, w = normal(T, K, K), normal(T, K)
    return lambda: T.nn.functional.rms_norm(a, (K,), w)


@rows(0.6, bytes=20 * M1, flops=EXP * M1, quick=True)
def softmax_1024_fwd_bwd(T):
    a, g = normal(T, K, K).requires_grad_(), normal(T, K, K)

    def run():
        a.grad = None
        T.nn.functional.softmax(a, dim=1).backward(g)
        return a.grad

    return run


@rows(0.6, bytes=20 * M1)
def layernorm_1024_fwd_bwd(T):
    # The incoming gradient is not a multiple of the input, for which the outgoing one vanishes.
    a, g = normal(T, K, K).requires_grad_(), normal(T, K, K).cos()
    w, b = T.ones(K).requires_grad_(), T.zeros(K).requires_grad_()

    def run():
        a.grad = w.grad = b.grad = None
        T.nn.functional.layer_norm(a, (K,), w, b).backward(g)
        return a.grad

    return run


@rows(0.3, bytes=12 * 256 * 50257)
def cross_entropy_256x50257(T):
    a = normal(T, 256, 50257).requires_grad_()
    y = T.arange(256) * 190

    def run():
        a.grad = None
        T.nn.functional.cross_entropy(a, y).backward()
        return a.grad

    return run
