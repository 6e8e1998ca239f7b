"""Attention on the host harness against NumPy in float64: every width of head that has a kernel,
heads that share keys, rests of tiles, layouts; without a call on the CPU."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
import numpy as np
rng = np.random.default_rng(0)
F = tn.nn.functional
TOLERANCE = {tn.float64: 1e-11, tn.float32: 2e-5, tn.float16: 1e-2, tn.bfloat16: 6e-2}

def expected(q, k, v, g, causal, scale, bias):
    share = q.shape[1] // k.shape[1]
    kk, vv = np.repeat(k, share, 1), np.repeat(v, share, 1)
    s = q @ kk.swapaxes(-1, -2) * scale + bias
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    seen = s.max(-1, keepdims=True) > -np.inf
    p = np.exp(np.where(seen, s - s.max(-1, keepdims=True, where=seen, initial=-1e300), -np.inf))
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)
    dp = g @ vv.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    fold = lambda x: x.reshape(x.shape[0], -1, share, *x.shape[2:]).sum(2)
    return p @ vv, ds @ kk, fold(ds.swapaxes(-1, -2) @ q), fold(p.swapaxes(-1, -2) @ g)

def check(dtype, shapes, causal, view=lambda t: t, mask=None):
    # `mask`: an array, bool or to be added
    q, k, v, g = (tn.from_numpy(rng.standard_normal(s)).to(dtype) for s in shapes)
    bias, there = 0, None
    if mask is not None:
        there = tn.from_numpy(mask) if mask.dtype == bool else tn.from_numpy(mask).to(dtype)
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else there.to(tn.float64).numpy()
        there = there.to("cuda")
    want = expected(*(t.to(tn.float64).numpy() for t in (q, k, v, g)), causal, 0.2, bias)
    d = [view(t.to("cuda")).detach().requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*d, there, is_causal=causal, scale=0.2, enable_gqa=True)
    y.backward(view(g.to("cuda")))
    for got, w in zip((y, *(t.grad for t in d)), want):
        got = got.detach().cpu().to(tn.float64).numpy()
        assert np.abs(got - w).max() < TOLERANCE[dtype] * max(1, np.abs(w).max()), shapes

def shapes(n, heads, key_heads, queries, keys, width, value_width):
    return ((n, heads, queries, width), (n, key_heads, keys, width),
            (n, key_heads, keys, value_width), (n, heads, queries, value_width))
"""


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_attention_of_every_width(dtype: str) -> None:
    harness.script(
        CHECK
        + f"""
dtype = tn.{dtype}
for sizes in ((2, 2, 2, 5, 7, 3, 4), (1, 4, 2, 70, 35, 64, 64), (1, 2, 1, 33, 66, 72, 128),
              (1, 2, 2, 17, 20, 200, 256), (1, 1, 1, 130, 140, 64, 40)):
    for causal in (False, True):
        check(dtype, shapes(*sizes), causal)
wide = 1 if dtype == tn.float64 else 0  # whose tiles of such heads do not fit
for op in ("_flash_attention", "_flash_attention_backward"):
    assert (tn.cuda.fallback_count(op)[1] > 0) == bool(wide), op
"""
    )


def test_layouts() -> None:
    """Heads inside of the rows, columns that are apart: none is copied first."""
    harness.script(
        CHECK
        + """
size = shapes(2, 3, 3, 9, 11, 8, 8)
for view in (lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
             lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
             lambda t: tn.cat([t, t], 3)[..., ::2].copy_(t)):
    check(tn.float32, size, True, view)
"""
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masks(dtype: str) -> None:
    """Both kinds, of every shape that broadcasts; whole tiles that a row does not see."""
    harness.script(
        CHECK
        + f"""
dtype = tn.{dtype}
size = shapes(2, 4, 2, 70, 99, 24, 24)
late = np.arange(99) > np.arange(70)[:, None] % 3 * 40
late[69], late[7] = np.arange(99) < 3, False  # one that sees few, and one that sees none
for mask in (late, late[None, None], rng.standard_normal((2, 1, 70, 99)),
             np.where(late, rng.standard_normal((2, 4, 70, 99)), -np.inf),
             rng.random((2, 1, 1, 99)) < 0.5):
    check(dtype, size, False, mask=mask)
for op in ("_flash_attention", "_flash_attention_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
q = tn.randn(1, 1, 3, 4, device="cuda")
none = F.scaled_dot_product_attention(q, q, q, tn.zeros(3, 3, dtype=tn.bool, device="cuda"))
assert none.tolist() == [[[[0] * 4] * 3]]
bias = tn.zeros(3, 3, device="cuda", requires_grad=True)  # its gradient takes products
F.scaled_dot_product_attention(q, q, q, bias).sum().backward()
assert bias.grad.shape == (3, 3)
"""
    )


def test_no_scores_in_memory() -> None:
    """Nor does the order of sums change."""
    harness.script(
        """
F = tn.nn.functional
x = tn.randn(1, 2, 600, 16, device="cuda").requires_grad_()
def both():
    y = F.scaled_dot_product_attention(x, x, x)
    return y.detach().cpu(), *(g.cpu() for g in tn.autograd.grad(y.sum(), x))
assert all(tn.equal(a, b) for a, b in zip(both(), both()))
""",
        TENON_CUDA_HOST_MEMORY=str(2 << 20),  # the scores alone would have 2.8 MB
        TENON_MEMORY_CACHE="0",
    )
