"""Numbers at the ends of what an operator takes: zeros with a sign, integers below a bound, values
that are no probabilities, text with a null in it."""

from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16, tn.float32, tn.float64])
@pytest.mark.parametrize("op", [tn.tanh, tn.erfinv, tn.relu, tn.erf, tn.sin], ids=str)
def test_a_zero_keeps_its_sign(op: Any, dtype: Any) -> None:
    for n in (1, 33):  # alone, and in whole vectors
        x = tn.tensor([-0.0, 0.0] * n, dtype=dtype)
        signs = np.signbit(op(x).double().numpy())
        np.testing.assert_array_equal(signs, [True, False] * n)


def test_relu_lets_a_nan_through() -> None:
    assert tn.relu(tn.tensor([float("nan"), -1.0])).isnan().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [tn.uint8, tn.int8, tn.int64])
def test_logit_of_integers_does_not_wrap(dtype: Any) -> None:
    got = tn.logit(tn.tensor([0, 1, 3], dtype=dtype)).tolist()
    assert got[:2] == [-np.inf, np.inf] and np.isnan(got[2])


@pytest.mark.parametrize("bad", [1.5, -0.25, float("nan")])
def test_cross_entropy_of_what_is_no_probability(bad: float) -> None:
    fine = tn.tensor([0.0, 1.0, 0.5])
    assert F.binary_cross_entropy(fine, fine).item() == pytest.approx(np.log(2) / 3)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(tn.tensor([0.5, bad]), tn.ones(2))
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(tn.ones(2), tn.tensor([0.5, bad]))
    assert F.binary_cross_entropy(tn.ones(0), tn.ones(0), reduction="sum").item() == 0


def test_text_is_not_cut_at_a_null() -> None:
    with pytest.raises(ValueError, match="embedded null character"):
        F.mse_loss(tn.ones(2), tn.ones(2), reduction="mean\0sum")


@pytest.mark.parametrize("scale", [1e20, 1e-30, 1e37])
@pytest.mark.parametrize("n", [3, 257])
def test_layer_norm_where_squares_are_beyond_float(scale: float, n: int) -> None:
    x = np.sin(np.arange(2 * n)).reshape(2, n).astype("float32") * np.float32(scale)
    wide = x.astype("float64")
    spread = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    want = (wide - wide.mean(-1, keepdims=True)) / spread
    got, mean, rstd = tn.native_layer_norm(tn.from_numpy(x), (n,), None, None, 1e-5)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rstd.numpy(), 1 / spread, rtol=1e-5)
    np.testing.assert_allclose(mean.numpy(), wide.mean(-1, keepdims=True), rtol=1e-2)
    odd = F.layer_norm(tn.tensor([1.0, float("inf"), 2.0]), (3,))
    assert odd.isnan().all().item()
