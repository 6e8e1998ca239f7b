"""Fourier transforms, and images seen through a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from registry import case, normal

fft = partial(case, "fft")
vision = partial(case, "vision")


def transform(name: str, goal: float, shape: tuple[int, ...], function: str = "fft") -> None:
    """5 n log2 n operations for n complex numbers, half of that for real ones."""
    real = function.startswith("rfft")

    def make(T: Any) -> Callable[[], Any]:
        x = normal(T, *shape)
        x = x if real else x + 1j * normal(T, *shape)
        if not hasattr(T, "complex"):
            x = x.astype("float32" if real else "complex64")
        return lambda: getattr(T.fft, function)(x)

    n = math.prod(shape)
    length = n if function.endswith("n") else shape[-1] * (shape[-2] if "2" in function else 1)
    flops = 5.0 * n * math.log2(length) / (2 if real else 1)
    fft(goal, name=name, numpy=True, flops=flops, bytes=(8.0 if real else 16.0) * n)(make)


transform("fft_1024", 0.7, (1024,))
transform("fft_1M", 0.7, (1 << 20,))
transform("fft_512x16", 0.7, (512, 16))
transform("fft_64x1024", 0.7, (64, 1024))
transform("fft_64x1000", 1.0, (64, 1000))
transform("fft_64x1009_prime", 1.0, (64, 1009))
transform("rfft_64x1024", 0.7, (64, 1024), "rfft")
transform("rfft2_8x256x256", 0.7, (8, 256, 256), "rfft2")
transform("fft2_1024x1024", 0.7, (1024, 1024), "fft2")


def through_a_grid(name: str, mode: str, backward: bool = False) -> None:
    def make(T: Any) -> Callable[[], Any]:
        x, grid = normal(T, 8, 32, 64, 64), T.tanh(normal(T, 8, 64, 64, 2))
        sample = T.nn.functional.grid_sample
        if not backward:
            return lambda: sample(x, grid, mode, align_corners=False)
        x, grid = x.requires_grad_(), grid.detach().requires_grad_()
        g = normal(T, 8, 32, 64, 64)

        def run():
            x.grad = grid.grad = None
            sample(x, grid, mode, align_corners=False).backward(g)
            return grid.grad

        return run

    vision(0.7, name=name, bytes=4.0 * 2 * 8 * 32 * 64 * 64 * (2 if backward else 1))(make)


through_a_grid("grid_sample_bilinear_8x32x64", "bilinear")
through_a_grid("grid_sample_bicubic_8x32x64", "bicubic")
through_a_grid("grid_sample_bilinear_fwd_bwd", "bilinear", True)
