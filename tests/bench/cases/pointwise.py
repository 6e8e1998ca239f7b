"""Elementwise operators and copies: memory bandwidth, vector mathematics, broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import VALUES, Make, case, normal

K = 1024
M1, M16 = 1 << 20, 1 << 24

memory = partial(case, "memory")
pointwise = partial(case, "pointwise")
copies = partial(case, "copies")

# A vector exponential or logarithm is about a dozen multiply-adds for an element, a composed
# function such as tanh about twice that.
SIMPLE, COMPOSED = 24.0, 48.0


@memory(0.25, numpy=True, bytes=12 * M16)
def add_16M(T):
    a, b = normal(T, M16), normal(T, M16)
    return lambda: a + b


@memory(1.0, numpy=True, bytes=12 * M16)
def add_16M_out(T):
    a, b = normal(T, M16), normal(T, M16)
    c = a + b
    return lambda: T.add(a, b, out=c)


@memory(0.30, numpy=lambda N: normal(N, M16).copy, bytes=8 * M16)
def clone_16M(T):
    a = normal(T, M16)
    return lambda: a.clone()


@memory(1.0, numpy=True, bytes=4 * 4 * M1)
def zeros_4M(T):
    return lambda: T.zeros(4 * M1)


def unary(name: str, goal: float, work: float, quick: bool = False, positive: bool = False) -> None:
    def make(T: Any, form: str) -> Callable[[], Any]:
        a = normal(T, M1, form=form)
        a = abs(a) + 0.5 if positive else a
        fn = getattr(T, name, None) or getattr(T.nn.functional, name)
        return lambda: fn(a)

    numpy = name in ("exp", "log", "sin", "tanh")
    add = pointwise(
        goal, name=f"{name}_1M", numpy=numpy, bytes=8 * M1, flops=work * M1, quick=quick,
        forms=VALUES,
    )  # fmt: skip
    add(make)


unary("exp", 0.6, SIMPLE, quick=True)
unary("log", 0.45, SIMPLE, positive=True)
unary("sin", 0.45, SIMPLE)
unary("tanh", 0.4, COMPOSED, quick=True)
unary("sigmoid", 0.25, COMPOSED)
unary("gelu", 0.4, COMPOSED)
unary("silu", 0.25, COMPOSED)
unary("erf", 0.25, COMPOSED)


@pointwise(0.25, bytes=8 * M1, flops=COMPOSED * M1, forms=VALUES)
def gelu_tanh_1M(T, form):
    a = normal(T, M1, form=form)
    return lambda: T.nn.functional.gelu(a, approximate="tanh")


@pointwise(0.45, numpy=True, bytes=8 * M1, flops=2 * SIMPLE * M1, forms=VALUES)
def pow_1M(T, form):
    a = abs(normal(T, M1, form=form)) + 0.5
    return lambda: a**1.7


def numpy_fusion(n: int) -> Make:
    def make(N: Any) -> Callable[[], Any]:
        a, b, c, d = (normal(N, n) + 0.1 * i for i in range(4))
        return lambda: N.maximum(a * b + c, 0) * d - a

    return make


def fusion(name: str, n: int) -> None:
    def make(T: Any) -> Callable[[], Any]:
        a, b, c, d = (normal(T, n) + 0.1 * i for i in range(4))
        return lambda: T.relu(a * b + c) * d - a

    pointwise(0.3, name=name, numpy=numpy_fusion(n), bytes=20 * n)(make)


fusion("fusion_1M", M1)
fusion("fusion_16M", M16)


@pointwise(0.6, numpy=True, bytes=8 * M1)
def add_row_broadcast_1024(T):
    a, b = normal(T, K, K), normal(T, K)
    return lambda: a + b


@pointwise(0.6, numpy=True, bytes=8 * M1)
def add_col_broadcast_1024(T):
    a, b = normal(T, K, K), normal(T, K, 1)
    return lambda: a + b


@pointwise(0.6, numpy=True, bytes=12 * M1)
def add_transposed_1024(T):
    a, b = normal(T, K, K), normal(T, K, K).T
    return lambda: a + b


@pointwise(0.6, bytes=6 * M1, rtol=1e-2)
def add_bf16_1M(T):
    a, b = normal(T, M1).to(T.bfloat16), normal(T, M1).to(T.bfloat16)
    return lambda: a + b


# -- copies ------------------------------------------------------------------------------------


def numpy_transpose(N):
    a = normal(N, K, K)
    return lambda: N.ascontiguousarray(a.T)


@copies(0.35, numpy=numpy_transpose, bytes=8 * M1, quick=True)
def transpose_1024(T):
    a = normal(T, K, K)
    return lambda: a.t().contiguous()


def numpy_nhwc(N):
    a = normal(N, 32, 64, 56, 56)
    return lambda: N.ascontiguousarray(a.transpose(0, 2, 3, 1))


@copies(0.35, numpy=numpy_nhwc, bytes=8 * 32 * 64 * 56 * 56)
def nchw_nhwc_32x64x56(T):
    a = normal(T, 32, 64, 56, 56)
    return lambda: a.permute(0, 2, 3, 1).contiguous()


def numpy_cat(N):
    parts = [normal(N, M1 // 8) for _ in range(8)]
    return lambda: N.concatenate(parts)


@copies(0.6, numpy=numpy_cat, bytes=8 * M1)
def cat_8x128K(T):
    parts = [normal(T, M1 // 8) for _ in range(8)]
    return lambda: T.cat(parts)


@copies(0.6, bytes=6 * M1, rtol=1e-2)
def cast_f32_bf16_1M(T):
    a = normal(T, M1)
    return lambda: a.to(T.bfloat16)
