"""Convolutions of bfloat16 and their gradients against sums in float64 over each tap, whatever
instruction computes them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F

Sizes = tuple[int, ...]


class Shape:
    """A convolution: images (n, groups * ci, *size), weights (groups * co, ci, *window)."""

    def __init__(
        self, n: int, ci: int, co: int, size: Sizes, window: Sizes, stride: Sizes, padding: Sizes,
        dilation: Sizes, groups: int = 1,
    ):  # fmt: skip
        self.n, self.ci, self.co, self.groups = n, ci, co, groups
        self.size, self.window, self.stride = size, window, stride
        self.padding, self.dilation = padding, dilation

    def __repr__(self) -> str:
        return "-".join(str(v).replace(" ", "") for v in vars(self).values())

    @property
    def wide(self) -> Sizes:
        return tuple(s + 2 * p for s, p in zip(self.size, self.padding, strict=True))

    @property
    def out(self) -> Sizes:
        each = zip(self.wide, self.window, self.stride, self.dilation, strict=True)
        return tuple((s - (k - 1) * d - 1) // step + 1 for s, k, step, d in each)

    def images(self) -> Sizes:
        return (self.n, self.groups * self.ci, *self.size)

    def weights(self) -> Sizes:
        return (self.groups * self.co, self.ci, *self.window)

    def taps(self) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """Each tap with the part of a padded image that it meets."""
        for tap in itertools.product(*map(range, self.window)):
            each = zip(tap, self.dilation, self.stride, self.out, strict=True)
            yield tap, tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, s, o in each)

    def padded(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in self.padding)])

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Channels of a group's images and of its results."""
        for g in range(self.groups):
            yield (
                slice(g * self.ci, (g + 1) * self.ci),
                slice(g * self.co, (g + 1) * self.co),
            )

    def forward(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x, y = self.padded(x), np.zeros((self.n, self.groups * self.co, *self.out))
        for (tap, at), (a, b) in itertools.product(self.taps(), self.parts()):
            y[:, b] += np.einsum("nc...,oc->no...", x[(slice(None), a, *at)], w[(b, ..., *tap)])
        return y

    def backward(
        self, x: np.ndarray, w: np.ndarray, grad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        x = self.padded(x)
        into_x, into_w = np.zeros_like(x), np.zeros_like(w)
        for (tap, at), (a, b) in itertools.product(self.taps(), self.parts()):
            met, g = x[(slice(None), a, *at)], grad[:, b]
            flat, lines = met.reshape(*met.shape[:2], -1), g.reshape(*g.shape[:2], -1)
            into_w[(b, slice(None), *tap)] += np.einsum("ncp,nop->oc", flat, lines)
            into_x[(slice(None), a, *at)] += np.einsum("no...,oc->nc...", g, w[(b, ..., *tap)])
        cut = [slice(p, p + s) for p, s in zip(self.padding, self.size, strict=True)]
        return into_x[(slice(None), slice(None), *cut)], into_w

    def run(self, x: tn.Tensor, w: tn.Tensor, bias: tn.Tensor | None = None) -> tn.Tensor:
        call = getattr(F, f"conv{len(self.size)}d")
        return call(x, w, bias, self.stride, self.padding, self.dilation, self.groups)


def drawn(rng: np.random.Generator, *shape: int) -> tuple[tn.Tensor, np.ndarray]:
    t = tn.tensor(rng.standard_normal(shape).astype(np.float32)).to(tn.bfloat16)
    return t, t.double().numpy()


def check(found: tn.Tensor | None, exact: np.ndarray, size: np.ndarray) -> None:
    """Within bfloat16's half place and the rounding of float sums; `size` is the sum of sizes."""
    assert found is not None and found.dtype == tn.bfloat16
    bound = np.abs(exact) * 2.0**-8 + size * 2.0**-20
    assert (np.abs(found.detach().double().numpy() - exact) <= bound).all()


SHAPES = [
    Shape(2, 16, 40, (9, 35), (3, 3), (1, 1), (1, 1), (1, 1)),
    Shape(9, 33, 33, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    Shape(3, 5, 300, (5, 5), (1, 1), (1, 1), (0, 0), (1, 1)),
    Shape(2, 3, 16, (31, 30), (7, 7), (2, 2), (3, 3), (1, 1)),
    Shape(2, 64, 24, (17, 18), (3, 3), (2, 2), (1, 1), (1, 1)),
    Shape(2, 3, 40, (24, 32), (8, 8), (8, 8), (0, 0), (1, 1)),
    Shape(1, 9, 8, (11, 70), (2, 1), (5, 3), (1, 0), (1, 1)),
    Shape(2, 40, 4, (10, 12), (3, 2), (4, 2), (2, 1), (2, 3)),
    Shape(2, 3, 16, (20, 20), (3, 3), (3, 3), (2, 2), (2, 2)),
    Shape(3, 7, 6, (20,), (4,), (1,), (3,), (2,), 3),
    Shape(2, 12, 10, (3, 6, 7), (2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 2), 2),
    Shape(4, 260, 12, (6,), (3,), (1,), (1,), (1,)),
    Shape(1, 4, 270, (1, 300), (1, 3), (1, 1), (0, 1), (1, 1)),
    Shape(1, 8, 8, (40, 1), (9, 1), (1, 1), (4, 0), (1, 1)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_values_and_gradients(shape: Shape) -> None:
    rng = np.random.default_rng(5)
    (x, a), (w, b) = drawn(rng, *shape.images()), drawn(rng, *shape.weights())
    bias, z = drawn(rng, shape.groups * shape.co)
    x.requires_grad_(), w.requires_grad_()
    found = shape.run(x, w, bias)
    z = z.reshape(-1, *[1] * len(shape.size))
    check(found, shape.forward(a, b) + z, shape.forward(np.abs(a), np.abs(b)) + np.abs(z))
    check(shape.run(x, w), shape.forward(a, b), shape.forward(np.abs(a), np.abs(b)))
    grad, g = drawn(rng, *found.shape)
    found.backward(grad)
    exact, sizes = shape.backward(a, b, g), shape.backward(np.abs(a), np.abs(b), np.abs(g))
    check(x.grad, exact[0], sizes[0])
    check(w.grad, exact[1], sizes[1])


def test_transposed_with_bias() -> None:
    """The gradient of the input is the transposed convolution, which adds a bias of its own."""
    shape = Shape(2, 3, 20, (23, 23), (5, 5), (3, 3), (1, 1), (1, 1))
    rng = np.random.default_rng(6)
    (w, b), (grad, g), (bias, z) = (
        drawn(rng, *s) for s in (shape.weights(), (2, 20, *shape.out), (3,))
    )
    found = F.conv_transpose2d(grad, w, bias, 3, 1, output_padding=2)
    empty, z = np.zeros(shape.images()), z.reshape(-1, 1, 1)
    exact = shape.backward(empty, b, g)[0] + z
    check(found, exact, shape.backward(empty, np.abs(b), np.abs(g))[0] + np.abs(z))


@pytest.mark.parametrize("stride", [1, 2])
def test_no_images(stride: int) -> None:
    x = tn.zeros(0, 8, 9, 9, dtype=tn.bfloat16, requires_grad=True)
    w = tn.ones(16, 4, 3, 3, dtype=tn.bfloat16, requires_grad=True)
    bias = tn.ones(16, dtype=tn.bfloat16, requires_grad=True)
    found = F.conv2d(x, w, bias, stride, groups=2)
    found.sum().backward()
    assert found.shape[:2] == (0, 16) and x.grad.shape == x.shape
    assert (w.grad == 0).all() and (bias.grad == 0).all() and w.grad.shape == w.shape


@pytest.mark.parametrize("channels", [4, 40])
def test_pixels_that_no_window_meets(channels: int) -> None:
    """Their gradient is 0, the bias of the transposed convolution alone."""
    grad, w = tn.ones(2, 8, 3, 3, dtype=tn.bfloat16), tn.ones(8, channels, 2, 2).to(tn.bfloat16)
    bias = np.arange(channels) / 2
    found = F.conv_transpose2d(grad, w, tn.tensor(bias).to(tn.bfloat16), stride=5).float().numpy()
    met = np.zeros((12, 12), bool)
    met[np.ix_([0, 1, 5, 6, 10, 11], [0, 1, 5, 6, 10, 11])] = True
    exact = np.where(met, 8 + bias.reshape(-1, 1, 1), bias.reshape(-1, 1, 1))
    np.testing.assert_array_equal(found, np.stack([exact, exact]))


def test_infinities_reach_their_windows_only() -> None:
    shape = Shape(2, 8, 8, (9, 9), (3, 3), (1, 1), (0, 0), (1, 1))
    rng = np.random.default_rng(7)
    x, w = drawn(rng, *shape.images())[0], drawn(rng, *shape.weights())[0]
    x[1, 2, 0, 0] = float("inf")
    x.requires_grad_(), w.requires_grad_()
    found = shape.run(x, w)
    bad = ~np.isfinite(found.detach().float().numpy())
    assert bad[1, :, 0, 0].all() and bad.sum() == 8
    found.backward(tn.ones_like(found))
    bad = ~np.isfinite(w.grad.float().numpy())
    assert bad[:, 2, 0, 0].all() and bad.sum() == 8


def test_threads_change_no_bit() -> None:
    shape = Shape(5, 33, 70, (13, 14), (3, 3), (1, 2), (1, 1), (1, 1))
    rng = np.random.default_rng(8)
    x, w = drawn(rng, *shape.images())[0], drawn(rng, *shape.weights())[0]
    x.requires_grad_(), w.requires_grad_()
    before, results = tn.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            x.grad = w.grad = None
            found = shape.run(x, w)
            found.backward(tn.ones_like(found))
            results.append([t.detach().float().numpy() for t in (found, x.grad, w.grad)])
    finally:
        tn.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.skipif("TENON_CPU_ISA" in os.environ, reason="the instruction set is given")
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_without_tiles(isa: str) -> None:
    """The same by the instruction for pairs of elements where the machine has it, and without."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, "TENON_CPU_ISA": isa}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
