"""Normalised rows of every width on the host harness: held in registers or read in passes, aligned
or not, with parameters of either type, against NumPy in float64."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
F = tn.nn.functional
rng = np.random.default_rng(0)
TOLERANCE = {tn.float64: 1e-10, tn.float32: 1e-4, tn.float16: 1e-2, tn.bfloat16: 8e-2}
WIDTHS = [1, 5, 64, 768, 1000, 1023, 4096, 8193, 20000]
def host(t):
    return t.detach().cpu().to(tn.float64).numpy()
def check(got, want, tolerance, what):
    got = host(got)
    assert got.shape == want.shape, what
    scale = max(1.0, np.abs(want).max())
    assert np.abs(got - want).max() <= tolerance * scale, (what, np.abs(got - want).max())
def moved(t):
    # The same numbers, one element further on than an allocation begins.
    room = tn.zeros(t.numel() + 1, dtype=t.dtype, device=t.device)
    room[1:] = t.flatten()
    return room[1:].view(t.shape)
def reference(x, w, b, g, eps, centre):
    mean = x.mean(-1, keepdims=True) if centre else 0.0
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    hat = (x - mean) * rstd
    gw = g if w is None else g * w
    gx = rstd * (gw - (gw.mean(-1, keepdims=True) if centre else 0)
                 - hat * (gw * hat).mean(-1, keepdims=True))
    y = hat * (1 if w is None else w) + (0 if b is None else b)
    return y, gx, (g * hat).sum(0), g.sum(0)
def compare(m, n, dtype, weight, bias, centre, move=False):
    what, tolerance = (m, n, dtype, weight, bias, centre, move), TOLERANCE[dtype]
    place = moved if move else lambda t: t
    x, g = (place((tn.randn(m, n) + 2).to(dtype).to("cuda")).detach() for _ in range(2))
    w, b = (None if t is None else place(tn.randn(n).to(t).to("cuda")).detach()
            for t in (weight, bias))
    for t in (x, w, b):
        if t is not None:
            t.requires_grad_()
    y = F.layer_norm(x, (n,), w, b, 1e-5) if centre else F.rms_norm(x, (n,), w, 1e-5)
    y.backward(g)
    want = reference(host(x), w if w is None else host(w), b if b is None else host(b), host(g),
                     1e-5, centre)
    check(y, want[0], tolerance, ("y", *what))
    check(x.grad, want[1], tolerance * 2, ("x", *what))
    if w is not None:
        check(w.grad, want[2], tolerance * 2, ("w", *what))
    if b is not None:
        check(b.grad, want[3], tolerance * 2, ("b", *what))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_widths(dtype: str) -> None:
    harness.script(
        START
        + f"dtype = tn.{dtype}"
        + """
for n in WIDTHS:
    for m in (1, 3) + (40,) * (n < 1100):
        compare(m, n, dtype, dtype, dtype, True)
    compare(5, n, dtype, None, None, True)
    compare(5, n, dtype, dtype, None, False)
    compare(5, n, dtype, dtype, None, True, True)
    compare(5, n, dtype, dtype, None, False, True)
compare(3000, 16, dtype, dtype, dtype, True)
compare(600, 264, dtype, dtype, dtype, True, True)
for op in ("native_layer_norm", "_layer_norm_backward", "_rms_norm", "_rms_norm_backward"):
    assert tn.cuda.fallback_count(op)[1] == 0, op
"""
    )


def test_parameters_of_the_wider_type() -> None:
    """Weight and bias in float32 of rows in half precision, as autocast has them."""
    harness.script(
        START
        + """
for dtype in (tn.float16, tn.bfloat16):
    for n in (5, 64, 768, 1023, 9000):
        for move in (False, True):
            place = moved if move else lambda t: t
            x = (tn.randn(6, n) + 2).to("cuda", dtype)
            w, b = (place(tn.randn(n).to("cuda")) for _ in range(2))
            for weight, bias in ((w, b), (w, None), (w.to(dtype), b)):
                y = F.layer_norm(x, (n,), weight, bias)
                want = reference(host(x), host(weight), None if bias is None else host(bias),
                                 np.zeros(x.shape), 1e-5, True)
                check(y, want[0], TOLERANCE[dtype], (dtype, n, move))
"""
    )


def test_far_from_zero() -> None:
    """The variance is that of distances from the mean, in every kernel."""
    harness.script(
        START
        + """
for n in (64, 768, 8192, 12000):
    x = tn.full((3, n), 1e4, device="cuda") + tn.arange(float(n), device="cuda") % 2
    check(F.layer_norm(x, (n,), eps=0.0), np.tile([-1.0, 1.0], (3, n // 2)), 1e-4, n)
    x = x.reshape(1, 3, n).contiguous()
    y = F.batch_norm(x, None, None, None, None, True, 0.1, 1e-12)
    check(y, np.tile([-1.0, 1.0], (1, 3, n // 2)), 1e-4, n)
"""
    )


def test_bits_do_not_depend_on_alignment() -> None:
    harness.script(
        START
        + """
for dtype in (tn.float32, tn.float16):
    for n in (64, 768, 1023):
        x, g = (tn.randn(50, n).to("cuda", dtype) for _ in range(2))
        w, seen = tn.randn(n).to("cuda", dtype), set()
        for place in (moved, lambda t: t):
            d, dw = (place(t).detach().requires_grad_() for t in (x, w))
            y = F.layer_norm(d, (n,), dw)
            y.backward(place(g))
            seen.add(b"".join(t.detach().cpu().to(tn.float64).numpy().tobytes()
                              for t in (y, d.grad, dw.grad)))
        assert len(seen) == 1, (dtype, n)
    x, seen = tn.randn(3, 4, 2000).to("cuda", dtype), set()
    for place in (moved, lambda t: t):
        d = place(x).detach().requires_grad_()
        y = F.batch_norm(d, None, None, None, None, True)
        y.backward(place(x))
        seen.add(b"".join(t.detach().cpu().to(tn.float64).numpy().tobytes()
                          for t in (y, d.grad)))
    assert len(seen) == 1, dtype
"""
    )
