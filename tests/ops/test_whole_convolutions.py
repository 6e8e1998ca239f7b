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
