"""Matrix products: square, batched, by a single row, with what follows a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import case, normal

linalg = partial(case, "linalg")


def gemm(n: int, name: str = "", dtype: str = "float32", numpy: bool = True) -> None:
    def make(T: Any) -> Callable[[], Any]:
        a, b = normal(T, n, n), normal(T, n, n)
        if dtype != "float32":
            kind = getattr(T, dtype)
            a, b = (x.to(kind) if hasattr(x, "to") else x.astype(kind) for x in (a, b))
        return lambda: a @ b

    # The multiply-add rate is that of float32: half of it for float64.
    flops = 2.0 * n**3 * (2 if dtype == "float64" else 1)
    linalg(
        1.0,
        name=name or f"matmul_{n}",
        numpy=numpy,
        flops=flops,
        rtol=2e-2 if dtype == "bfloat16" else 1e-3,
        quick=n in (64, 512) and not name,
    )(make)


gemm(64)
gemm(128)
gemm(512)
gemm(1024)
gemm(2048)
gemm(512, "matmul_f64_512", "float64")
gemm(1024, "matmul_bf16_1024", "bfloat16", numpy=False)


def numpy_bmm(count: int, n: int) -> Callable[[Any], Callable[[], Any]]:
    def make(N: Any) -> Callable[[], Any]:
        a, b = normal(N, count, n, n), normal(N, count, n, n)
        return lambda: a @ b

    return make


@linalg(0.6, numpy=numpy_bmm(64, 32), flops=2.0 * 64 * 32**3, quick=True)
def bmm_64x32(T):
    a, b = normal(T, 64, 32, 32), normal(T, 64, 32, 32)
    return lambda: T.bmm(a, b)


@linalg(0.3, numpy=numpy_bmm(1024, 16), flops=2.0 * 1024 * 16**3)
def bmm_1024x16(T):
    a, b = normal(T, 1024, 16, 16), normal(T, 1024, 16, 16)
    return lambda: T.bmm(a, b)


def numpy_decode(N):
    x, w = normal(N, 1, 4096), normal(N, 4096, 4096)
    return lambda: x @ w.T


@linalg(0.9, numpy=numpy_decode, bytes=4.0 * 4096**2)
def decode_linear_4096_f32(T):
    x, w = normal(T, 1, 4096), normal(T, 4096, 4096)
    return lambda: T.nn.functional.linear(x, w)


@linalg(0.9, bytes=2.0 * 4096**2, rtol=2e-2)
def decode_linear_4096_bf16(T):
    x, w = normal(T, 1, 4096).to(T.bfloat16), normal(T, 4096, 4096).to(T.bfloat16)
    return lambda: T.nn.functional.linear(x, w)


def linear_gelu(name: str, dtype: str, goal: float, rtol: float) -> None:
    def make(T: Any) -> Callable[[], Any]:
        kind = getattr(T, dtype)
        x, w, b = (
            normal(T, 256, 768).to(kind),
            normal(T, 3072, 768).to(kind),
            normal(T, 3072).to(kind),
        )
        F = T.nn.functional
        return lambda: F.gelu(F.linear(x, w, b))

    linalg(goal, name=name, flops=2.0 * 256 * 768 * 3072, rtol=rtol)(make)


linear_gelu("linear_gelu_256x768x3072_f32", "float32", 0.8, 1e-3)
linear_gelu("linear_gelu_256x768x3072_bf16", "bfloat16", 1.0, 2e-2)
