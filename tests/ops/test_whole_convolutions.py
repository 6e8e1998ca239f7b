"""Convolutions of whole numbers, against sums written out."""

import itertools
from typing import Any

import numpy as np
import pytest
import tenon as tn

rng = np.random.default_rng(5)
CASES: list[tuple[int, dict[str, int]]] = [
    (1, {}),
    (1, {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    (2, {"stride": 2, "padding": 1}),
    (2, {"groups": 2, "dilation": 2, "padding": 2}),
    (3, {"stride": 1, "padding": 1, "groups": 2}),
]


def numbers(*shape: int, dtype: Any = np.int64) -> np.ndarray:
    return rng.integers(-9, 10, shape).astype(dtype)


def taps(x: np.ndarray, w: np.ndarray, out: tuple[int, ...], o: dict[str, int]) -> Any:
    """(place in the input, place in the output, tap) of every product that is added up."""
    stride, pad, far = o.get("stride", 1), o.get("padding", 0), o.get("dilation", 1)
    for at in itertools.product(*map(range, out)):
        for tap in itertools.product(*map(range, w.shape[2:])):
            seen = tuple(a * stride - pad + t * far for a, t in zip(at, tap))
            if all(0 <= p < n for p, n in zip(seen, x.shape[2:])):
                yield seen, at, tap


def convolved(x: np.ndarray, w: np.ndarray, bias: np.ndarray, **o: int) -> np.ndarray:
    groups, stride, pad = o.get("groups", 1), o.get("stride", 1), o.get("padding", 0)
    far, made = o.get("dilation", 1), w.shape[0] // groups
    out = tuple(
        (n + 2 * pad - far * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:])
    )
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype) + bias.reshape(-1, *[1] * len(out))
    for seen, at, tap in taps(x, w, out, o):
        for c in range(w.shape[0]):
            part = x[:, c // made * w.shape[1] : (c // made + 1) * w.shape[1]]
            y[(slice(None), c, *at)] += part[(..., *seen)] @ w[(c, slice(None), *tap)]
    return y.astype(x.dtype)


@pytest.mark.parametrize(("n", "options"), CASES)
def test_forward(n: int, options: dict[str, int]) -> None:
    groups = options.get("groups", 1)
    x, w, bias = numbers(2, 4, *(5, 6, 4)[:n]), numbers(6, 4 // groups, *(2, 3, 2)[:n]), numbers(6)
    conv = getattr(tn.nn.functional, f"conv{n}d")
    y = conv(tn.tensor(x), tn.tensor(w), tn.tensor(bias), **options)
    assert y.dtype == tn.int64
    np.testing.assert_array_equal(y.numpy(), convolved(x, w, bias, **options))
    one = conv(tn.tensor(x[0]), tn.tensor(w), **options)
    np.testing.assert_array_equal(one.numpy(), convolved(x[:1], w, bias * 0, **options)[0])


@pytest.mark.parametrize(("n", "options"), CASES)
def test_transposed(n: int, options: dict[str, int]) -> None:
    """Each product goes where a convolution of the result would have read it."""
    groups = options.get("groups", 1)
    x, w, bias = numbers(2, 4, *(3, 4, 3)[:n]), numbers(4, 3, *(2, 3, 2)[:n]), numbers(3 * groups)
    y = getattr(tn.nn.functional, f"conv_transpose{n}d")(
        tn.tensor(x), tn.tensor(w), tn.tensor(bias), **options
    ).numpy()
    want = np.zeros_like(y) + bias.reshape(-1, *[1] * n)
    each = 4 // groups
    for seen, at, tap in taps(y, w, x.shape[2:], options):
        for g in range(groups):
            part = x[(slice(None), slice(g * each, (g + 1) * each), *at)]
            kernel = w[(slice(g * each, (g + 1) * each), slice(None), *tap)]
            want[(slice(None), slice(g * 3, (g + 1) * 3), *seen)] += part @ kernel
    np.testing.assert_array_equal(y, want)


def test_names_dtypes_and_refusals() -> None:
    x, w = numbers(1, 2, 5, dtype=np.int32), numbers(3, 2, 3, dtype=np.int32)
    y = tn.nn.functional.conv1d(tn.tensor(x), tn.tensor(w), padding="same")
    assert y.dtype == tn.int32
    np.testing.assert_array_equal(y.numpy(), convolved(x, w, np.zeros(3, np.int32), padding=1))
    big = tn.full((1, 1, 2), 2**62)
    assert tn.nn.functional.conv1d(big, tn.ones(1, 1, 2, dtype=tn.int64)).item() == -(2**63)
    with pytest.raises(RuntimeError, match="should be the same"):
        tn.nn.functional.conv1d(tn.tensor(x), tn.tensor(w).long())
    with pytest.raises(RuntimeError, match="to have 4 channels"):
        tn.nn.functional.conv1d(tn.tensor(x), tn.ones(3, 4, 1, dtype=tn.int32))


def by_taps(x: np.ndarray, w: np.ndarray, side: int) -> np.ndarray:
    """A window of 3 x 3 over images with a row of zeros around them, in double precision; side -1:
    the way back, from results to images."""
    n, _, high, wide = x.shape
    room = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((n, w.shape[0], high, wide))
    for i, j in np.ndindex(3, 3):
        seen = room[:, :, 1 + side * (i - 1) :, 1 + side * (j - 1) :][..., :high, :wide]
        y += np.einsum("nchw,oc->nohw", seen, w[:, :, i, j].astype(float), optimize=True)
    return y


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("batch, planes, size", [(3, 150, 14), (1, 600, 6), (70, 61, 5)])
def test_sums_longer_than_a_cache(batch: int, planes: int, size: int, dtype: str) -> None:
    """More sums, tiles and panels than are done at once, planes a power of two apart; the same bits
    on any number of threads."""
    kind = getattr(tn, dtype)
    x = tn.tensor(rng.standard_normal((batch, planes, size, size))).to(kind)
    w = tn.tensor(rng.standard_normal((37, planes, 3, 3)) / planes).to(kind)
    g = tn.tensor(rng.standard_normal((batch, 37, size, size))).to(kind)
    results = []
    before = tn.get_num_threads()
    try:
        for threads in (1, 3):
            tn.set_num_threads(threads)
            at = x.clone().requires_grad_()
            y = tn.nn.functional.conv2d(at, w, padding=1)
            y.backward(g)
            results.append((y.detach(), at.grad))
    finally:
        tn.set_num_threads(before)
    for a, b in zip(*results):
        assert tn.equal(a, b)
    wide, weight = x.double().numpy(), w.double().numpy()
    limit = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-6, "float64": 1e-14}[dtype]
    back = by_taps(g.double().numpy(), weight.swapaxes(0, 1), -1)
    for got, want in zip(results[0], (by_taps(wide, weight, 1), back)):
        np.testing.assert_allclose(got.double().numpy(), want, atol=limit, rtol=limit)
