"""Norms that return their statistics: values, and that statistics have no history."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn

rng = np.random.default_rng(3)


def test_group_norm():
    a, w, b = rng.standard_normal((2, 6, 5)), rng.standard_normal(6), rng.standard_normal(6)
    y, mean, rstd = tn.native_group_norm(tn.tensor(a), tn.tensor(w), tn.tensor(b), 2, 6, 5, 3, 1e-3)
    rows = a.reshape(2, 3, 10)
    np.testing.assert_allclose(mean.numpy(), rows.mean(-1))
    np.testing.assert_allclose(rstd.numpy(), 1 / np.sqrt(rows.var(-1) + 1e-3))
    hat = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(y.numpy(), hat.reshape(a.shape) * w[:, None] + b[:, None])


def test_group_norm_refuses():
    x = tn.ones(2, 4, 3)
    with pytest.raises(RuntimeError, match="num_groups=3"):
        tn.native_group_norm(x, None, None, 2, 4, 3, 3, 1e-5)
    with pytest.raises(RuntimeError, match="HxW=2"):
        tn.native_group_norm(x, None, None, 2, 4, 2, 2, 1e-5)


def test_statistics_have_no_history():
    """A gradient of theirs would be zero without a word; so there is none."""
    x = tn.tensor(rng.standard_normal((3, 4, 2)), requires_grad=True)
    ones = tn.ones(4, dtype=tn.float64)
    for y, *statistics in (
        tn.native_layer_norm(x, (2,), None, None, 1e-5),
        tn.native_batch_norm(x, ones, ones, None, None, True, 0.1, 1e-5),
        tn.native_group_norm(x, ones, ones, 3, 4, 2, 2, 1e-5),
    ):
        assert y.requires_grad and y.grad_fn is not None
        for t in statistics:
            assert not t.requires_grad and t.grad_fn is None
            with pytest.raises(RuntimeError, match="does not require grad"):
                t.sum().backward()
        (grad,) = tn.autograd.grad((y * y.detach()).sum(), x)
        assert np.isfinite(grad.numpy()).all()


def test_norms_take_parameters_of_their_dtype_or_the_wide_one() -> None:
    """As PyTorch: those of half precision may be float32, all others have the input's dtype."""
    calls: list[Callable[[Any, Any], Any]] = [
        lambda x, w: tn.nn.functional.layer_norm(x, (3,), w, w),
        lambda x, w: tn._C._ops._rms_norm(x, [3], w, 1e-5),
    ]
    for call in calls:
        for of_input, of_weight in (
            (tn.float32, tn.float64),
            (tn.float32, tn.float16),
            (tn.float16, tn.float64),
        ):
            with pytest.raises(RuntimeError, match="expected weight of dtype"):
                call(tn.ones(2, 3, dtype=of_input), tn.ones(3, dtype=of_weight))
    x = tn.tensor([[1.0, 2.0, 4.5]], dtype=tn.float16)
    got = calls[0](x, tn.tensor([1.0, 2.0, 3.0]))
    flat = np.asarray([1.0, 2.0, 4.5])
    want = (flat - flat.mean()) / np.sqrt(flat.var() + 1e-5) * [1, 2, 3] + [1, 2, 3]
    assert got.dtype == tn.float16
    np.testing.assert_allclose(got.numpy()[0].astype(float), want, atol=4e-3)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm", "batch_norm"])
def test_long_rows_lose_nothing(name: str) -> None:
    """Statistics and gradients over millions of elements are float64's to float32's digits."""
    f = tn.nn.functional
    call: Callable[[tn.Tensor], tn.Tensor] = {
        "layer_norm": lambda x: f.layer_norm(x, x.shape[1:]),
        "group_norm": lambda x: f.group_norm(x, 1),
        "instance_norm": f.instance_norm,
        "batch_norm": lambda x: f.batch_norm(x, None, None, training=True),
    }[name]
    draw = np.random.default_rng(0)
    a = (draw.standard_normal((1, 1, 1500, 2000)) + 3).astype(np.float32)
    g = (draw.standard_normal(a.shape) + 1).astype(np.float32)
    found = []
    for dtype in (np.float32, np.float64):
        x = tn.from_numpy(a.astype(dtype)).requires_grad_()
        y = call(x)
        y.backward(tn.from_numpy(g.astype(dtype)))
        found.append((y.detach().numpy(), x.grad.numpy()))
    for short, long in zip(*found, strict=True):
        np.testing.assert_allclose(short, long, rtol=0, atol=3e-6)
