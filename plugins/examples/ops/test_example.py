"""Tests of the plugin, wherever it is installed: pytest test_example.py"""

import math

import tenon as tn


def exact(x: float) -> float:
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


def test_values() -> None:
    x = tn.linspace(-4, 4, 60, dtype=tn.float64).reshape(5, 12)
    want = tn.tensor([exact(v) for v in x.flatten().tolist()], dtype=tn.float64).reshape(5, 12)
    assert tn.allclose(tn.ops.example.gelu(x), want, rtol=1e-13)
    assert tn.allclose(tn.ops.example.gelu(x.t()), want.t(), rtol=1e-13)
    for dtype, error in ((tn.float32, 1e-6), (tn.float16, 1e-2), (tn.bfloat16, 1e-1)):
        got = tn.ops.example.gelu(x.to(dtype))
        assert got.dtype == dtype
        assert tn.allclose(got.double(), want, rtol=0, atol=error)


def test_gradients() -> None:
    x = tn.linspace(-2, 2, 7, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(tn.ops.example.gelu, (x,))
    assert tn.autograd.gradgradcheck(tn.ops.example.gelu, (x,))
