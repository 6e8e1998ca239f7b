"""Initial values: their distributions, their shapes, and PyTorch's bits where it is installed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import stored
import tenon
from tenon import nn
from tenon.nn import init

stats = pytest.importorskip("scipy.stats", reason="no SciPy to compare with")


@pytest.fixture(autouse=True)
def seeded():
    tenon.manual_seed(1)


def values(t) -> np.ndarray:
    return t.detach().double().flatten().numpy()


SHAPE = (40, 25, 3)  # fans 75 and 120
FILLS = [
    ("xavier_uniform_(t, 2.0)", stats.uniform, 2.0 * math.sqrt(2 / (75 + 120))),
    ("xavier_normal_(t)", stats.norm, math.sqrt(2 / (75 + 120))),
    ("kaiming_uniform_(t, a=1.0)", stats.uniform, math.sqrt(1.0 / 75)),
    ("kaiming_normal_(t, mode='fan_out', nonlinearity='relu')", stats.norm, math.sqrt(2 / 120)),
    ("kaiming_normal_(t, nonlinearity='tanh')", stats.norm, 5 / 3 / math.sqrt(75)),
]


@pytest.mark.parametrize(("text", "family", "std"), FILLS)
def test_distribution(text, family, std):
    t = nn.Parameter(tenon.empty(SHAPE))
    assert eval("init." + text) is t
    assert t.requires_grad and t.is_leaf and t.grad_fn is None
    if family is stats.uniform:
        expected = stats.uniform(-math.sqrt(3) * std, 2 * math.sqrt(3) * std)
    else:
        expected = stats.norm(0, std)
    assert stats.kstest(values(t), expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [tenon.float32, tenon.float64, tenon.bfloat16])
@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (0.5, 0.7), (1.0, 9.0)])
def test_cut_normal(bounds, dtype):
    t = tenon.empty(3000, dtype=dtype)
    init.trunc_normal_(t, 0.2, 1.5, *bounds)
    low, high = tenon.tensor(bounds, dtype=dtype).double().tolist()
    got = values(t)
    assert got.min() >= low and got.max() <= high
    if dtype != tenon.bfloat16:
        ends = [(x - 0.2) / 1.5 for x in bounds]
        assert stats.kstest(got, stats.truncnorm(*ends, 0.2, 1.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (6, 6), (4, 3, 5), (1, 1)])
def test_orthogonal(shape):
    w = init.orthogonal_(tenon.empty(shape, dtype=tenon.float64), 1.5).flatten(1).numpy() / 1.5
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-12)


def test_dirac_hands_the_input_on():
    x = tenon.randn(2, 6, 5, 5)
    w = init.dirac_(tenon.empty(6, 3, 3, 3), groups=2)
    assert tenon.equal(nn.functional.conv2d(x, w, padding=1, groups=2), x)
    assert float(init.dirac_(tenon.empty(4, 2, 3)).sum()) == 2.0


def test_eye_and_sparse():
    assert init.eye_(tenon.empty(3, 5)).tolist() == np.eye(3, 5).tolist()
    t = init.sparse_(tenon.empty(50, 20), 0.33, std=2.0)
    assert ((t == 0).sum(0) == math.ceil(0.33 * 50)).all()
    assert stats.kstest(values(t)[values(t) != 0], stats.norm(0, 2).cdf).pvalue > 1e-3


WRONG = [
    ("kaiming_uniform_(tenon.empty(3))", "fewer than 2 dimensions"),
    ("kaiming_uniform_(tenon.empty(3, 2), mode='both')", "Mode both not supported"),
    ("kaiming_normal_(tenon.empty(3, 2), nonlinearity='cosine')", "Unsupported nonlinearity"),
    ("orthogonal_(tenon.empty(3))", "2 or more dimensions"),
    ("eye_(tenon.empty(3))", "Only tensors with 2 dimensions"),
    ("sparse_(tenon.empty(3), 0.1)", "Only tensors with 2 dimensions"),
    ("sparse_(tenon.empty(3, 2), 1.5)", "between 0 and 1"),
    ("sparse_(tenon.empty(3, 2), -0.5)", "between 0 and 1"),
    ("dirac_(tenon.empty(3, 2))", "3, 4, or 5 dimensions"),
    ("dirac_(tenon.empty(3, 2, 2), groups=2)", "divisible by groups"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        eval("init." + text)


BITS = [
    *(text for text, _, _ in FILLS),
    "trunc_normal_(t, std=0.02)",
    "trunc_normal_(t, a=0.5, b=0.7)",
    "trunc_normal_(t, 0.3, 2.0, -0.1, 3.0)",
    "sparse_(t.view(40, 75), 0.3)",
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", BITS)
def test_bits_are_those_of_pytorch(text, dtype):
    def drawn(lib):
        lib.manual_seed(5)
        t = lib.empty(SHAPE, dtype=getattr(lib, dtype))  # noqa: F841  (the text names it)
        eval("lib.nn.init." + text, {"lib": lib, "t": t})
        return t

    tenon.set_rng("torch")
    try:
        mine = drawn(tenon)
    finally:
        tenon.set_rng("philox")
    stored.same(mine, stored.of_torch(drawn), 0, 0)


def test_the_fan_of_a_name():
    weight = tenon.empty(2, 3, 5)
    assert nn.init._calculate_correct_fan(weight, "FAN_IN") == 15
    assert nn.init._calculate_correct_fan(weight, "fan_out") == 10
    with pytest.raises(ValueError, match="Mode fan not supported"):
        nn.init._calculate_correct_fan(weight, "fan")
