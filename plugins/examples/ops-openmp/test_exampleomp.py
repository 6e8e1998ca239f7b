"""Tests of the plugin, wherever it is installed: pytest test_exampleomp.py"""

import math

import tenon as tn


def test_values() -> None:
    w = tn.linspace(-0.9, 6, 30000, dtype=tn.float64).reshape(100, 300)  # many threads' worth
    x = w * w.exp()
    got = tn.ops.exampleomp.lambertw(x)
    assert tn.allclose(got * got.exp(), x, rtol=1e-12, atol=1e-14)
    assert tn.allclose(got, w, rtol=1e-12, atol=1e-14)
    assert tn.equal(tn.ops.exampleomp.lambertw(x.t()), got.t())
    single = tn.ops.exampleomp.lambertw(x.float())
    assert single.dtype == tn.float32
    assert tn.allclose(single.double(), got, rtol=1e-4)
    known = {0.0: 0.0, math.e: 1.0, 2 * math.e**2: 2.0, math.inf: math.inf, 1e-300: 1e-300}
    got = tn.ops.exampleomp.lambertw(tn.tensor(list(known), dtype=tn.float64))
    assert tn.allclose(got, tn.tensor(list(known.values()), dtype=tn.float64), rtol=1e-14)
    assert tn.ops.exampleomp.lambertw(tn.tensor([-1.0, math.nan])).isnan().all()


def test_gradients() -> None:
    x = tn.linspace(-0.2, 4, 7, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(tn.ops.exampleomp.lambertw, (x,))
    assert tn.autograd.gradgradcheck(tn.ops.exampleomp.lambertw, (x,))
