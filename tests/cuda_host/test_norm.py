"""Normalisation and losses on the host harness: every layout and cut, against NumPy in float64."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
F = tn.nn.functional
rng = np.random.default_rng(0)
def send(x, dtype=tn.float64):
    return None if x is None else tn.from_numpy(x).to("cuda", dtype)
def check(got, want, tolerance=1e-11, what=None):
    got = got.detach().cpu().to(tn.float64).numpy()
    assert got.shape == want.shape, what
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True), (
        what, np.abs(got - want).max())
def ran_natively(*ops):
    for op in ops:
        assert tn.cuda.fallback_count(op)[1] == 0, op
"""


def test_layer_norm() -> None:
    """Rows shorter than a group and longer than a block, aligned or not; few and many of them."""
    harness.script(
        START
        + """
def reference(x, w, b, g, eps):
    n = x.shape[-1]
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    hat = (x - mean) * rstd
    gw = g if w is None else g * w
    gx = rstd * (gw - gw.mean(-1, keepdims=True) - hat * (gw * hat).mean(-1, keepdims=True))
    y = hat * (1 if w is None else w) + (0 if b is None else b)
    return y, gx, (g * hat).sum(0), g.sum(0)
for (m, n), dtype in (((5, 1), 0), ((3, 7), 0), ((200, 12), 0), ((2, 1300), 0), ((700, 40), 1),
                      ((9, 130), 2), ((1, 4099), 1), ((5, 64), 3)):
    dtype, tolerance = ((tn.float64, 1e-10), (tn.float32, 1e-4), (tn.float16, 2e-2),
                        (tn.bfloat16, 2e-1))[dtype]
    x, g = (tn.randn(m, n).to(dtype).to(tn.float64).numpy() for _ in range(2))
    w, b = (tn.randn(n).to(dtype).to(tn.float64).numpy() for _ in range(2))
    for weight, bias in ((w, b), (None, None), (w, None)):
        d, dw, db = send(x, dtype).requires_grad_(), send(weight, dtype), send(bias, dtype)
        for p in (dw, db):
            if p is not None:
                p.requires_grad_()
        y, gx, gw, gb = reference(x, weight, bias, g, 1e-5)
        got = F.layer_norm(d, (n,), dw, db, 1e-5)
        check(got, y, tolerance, ("y", m, n, dtype))
        got.backward(send(g, dtype))
        scale = max(1, m // 50)
        check(d.grad, gx, tolerance * 4, ("x", m, n, dtype))
        if dw is not None:
            check(dw.grad, gw, tolerance * scale * 8, ("w", m, n, dtype))
        if db is not None:
            check(db.grad, gb, tolerance * scale * 8, ("b", m, n, dtype))
half = send(tn.randn(4, 24).numpy(), tn.bfloat16)
wide = tn.ones(24, device="cuda")
check(F.layer_norm(half, (24,), wide, wide), F.layer_norm(half, (24,)).cpu().double().numpy() + 1,
      3e-2)
x, g = rng.standard_normal((2, 2, 4, 41, 60)) * 3 + 1  # groups of 9840 elements, which blocks share
d, w, b = send(x).requires_grad_(), send(rng.standard_normal(4)), send(rng.standard_normal(4))
y = F.group_norm(d, 1, w, b, 1e-5)
y.backward(send(g))
flat, gw = x.reshape(2, -1), (g * w.cpu().numpy().reshape(4, 1, 1)).reshape(2, -1)
hat, gx, *rest = reference(flat, None, None, gw, 1e-5)
scaled = hat.reshape(x.shape) * w.cpu().numpy().reshape(4, 1, 1) + b.cpu().numpy().reshape(4, 1, 1)
check(y, scaled)
check(d.grad, gx.reshape(x.shape))
x, g = rng.standard_normal((2, 300, 4100)) + 2  # too long, and too many
d = send(x).requires_grad_()
y = F.layer_norm(d, (4100,), eps=1e-5)
y.backward(send(g))
hat, gx, *rest = reference(x, None, None, g, 1e-5)
check(y, hat)
check(d.grad, gx)
shifted = tn.full((2, 3000), 1e4, device="cuda") + tn.arange(3000.0, device="cuda") % 2
check(F.layer_norm(shifted, (3000,), eps=0.0), np.tile([-1.0, 1.0], (2, 1500)), 1e-4)
assert F.layer_norm(tn.zeros(0, 3, device="cuda"), (3,)).shape == (0, 3)
ran_natively("native_layer_norm", "_layer_norm_backward")
"""
    )


def test_layer_norm_is_the_same_every_time() -> None:
    harness.script("""
x, g = tn.randn(2, 900, 33).to("cuda")
seen = set()
for _ in range(3):
    w = tn.ones(33, device="cuda", requires_grad=True)
    tn.nn.functional.layer_norm(x, (33,), w).backward(g)
    seen.add(w.grad.cpu().numpy().tobytes())
assert len(seen) == 1
""")


def test_batch_norm_of_channels_side_by_side() -> None:
    """Packs of channels in one part and in many, of operands that lie elsewhere in 16 bytes, or in
    another layout than the input's; numbers far from 0."""
    harness.script(
        START
        + """
def run(x, g, w, b):
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    y = F.batch_norm(x, None, None, w, b, True)
    return [y.detach(), *tn.autograd.grad(y, (x, w, b), g)]
last = lambda t: t.contiguous(memory_format=tn.channels_last)
def apart(t):  # the same numbers, a number behind where 16 bytes begin
    n, c, h, w = t.shape
    room = tn.zeros(t.numel() + 1, device="cuda", dtype=t.dtype)[1:].reshape(n, h, w, c)
    room.copy_(t.permute(0, 2, 3, 1))
    return room.permute(0, 3, 1, 2)
for dtype, shape, tolerance in (
    (tn.float64, (3, 6, 30, 31), 1e-11), (tn.float32, (2, 24, 9, 8), 1e-5),
    (tn.float32, (3, 136, 20, 21), 1e-5), (tn.float16, (5, 16, 40, 41), 4e-3),
    (tn.bfloat16, (2, 272, 9, 8), 3e-2), (tn.bfloat16, (4, 8, 1, 3), 3e-2)):
    c, axes, by = shape[1], (0, 2, 3), (1, -1, 1, 1)
    x, g = (send(rng.standard_normal(shape), dtype) for _ in range(2))
    x = x + 30
    w, b = (send(rng.standard_normal(c), dtype) for _ in range(2))
    xs, gs, ws, bs = (t.cpu().double().numpy() for t in (x, g, w, b))
    rstd = (1 / np.sqrt(xs.var(axes) + 1e-5)).reshape(by)
    hat = (xs - xs.mean(axes).reshape(by)) * rstd
    gw, gb, n = (gs * hat).sum(axes), gs.sum(axes), xs.size // c
    gx = (gs - (gb.reshape(by) + hat * gw.reshape(by)) / n) * rstd * ws.reshape(by)
    want = [hat * ws.reshape(by) + bs.reshape(by), gx, gw, gb]
    first = run(last(x), last(g), w, b)
    for got, v in zip(first, want):
        check(got, v, tolerance * max(1, np.abs(v).max()), (dtype, shape))
    for again in (run(last(x), last(g), w, b), run(apart(x), apart(g), w, b)):
        assert all(tn.equal(p, q) for p, q in zip(first, again)), (dtype, shape)
    for got, v in zip(run(last(x), g.contiguous(), w, b), want):
        check(got, v, tolerance * max(1, np.abs(v).max()), (dtype, shape, "plain grad"))
large = tn.full((2, 8, 3, 3), 1e25, device="cuda")  # whose square is no float32
for x in (large, last(large)):
    check(F.batch_norm(x, None, None, None, tn.full((8,), 2.0, device="cuda"), True),
          np.full(x.shape, 2.0))
ran_natively("native_batch_norm", "_batch_norm_backward")
"""
    )


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool) -> None:
    """Planes, channels side by side, strides of all kinds; one part of a channel and many."""
    harness.script(
        START
        + f"training = {training}"
        + """
def reference(x, g, w, b, mean, var):
    axes = tuple(d for d in range(x.ndim) if d != 1)
    shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
    n = x.size // x.shape[1]
    if training:
        mean, var = x.mean(axes), x.var(axes)
    rstd = (1 / np.sqrt(var + 1e-5)).reshape(shape)
    hat = (x - mean.reshape(shape)) * rstd
    y = hat * w.reshape(shape) + b.reshape(shape)
    gw, gb = (g * hat).sum(axes), g.sum(axes)
    gx = g - (gb.reshape(shape) + hat * gw.reshape(shape)) / n if training else g
    return y, gx * rstd * w.reshape(shape), gw, gb
plain = lambda t: t
last = lambda t: t.contiguous(memory_format=tn.channels_last)
odd = lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2)
flat = lambda t: t.t().contiguous().t()
cut = lambda t: last(tn.cat([t, t, t[:, :3]], 1))[:, 6:12]  # of pixels of 15 numbers
for shape, layout in (((40, 3), plain), ((300, 70), plain), ((2, 3, 5, 4), plain), ((600, 2), flat),
                      ((3, 1, 9), plain), ((2, 5, 40, 41), plain), ((2, 5, 7, 6), last),
                      ((3, 40, 9, 8), last), ((2, 3, 4, 6), odd), ((4, 2, 3, 4, 5), odd),
                      ((2, 5, 30, 31), last), ((3, 8, 30, 31), last), ((2, 6, 3, 5), cut)):
    c = shape[1]
    x, g = rng.standard_normal(shape) + 3, rng.standard_normal(shape)
    w, b, mean = rng.standard_normal((3, c))
    var = rng.uniform(0.5, 2, c)
    d, dg = layout(send(x)).requires_grad_(), layout(send(g))
    dw, db, dmean, dvar = (send(v) for v in (w, b, mean, var))
    dw.requires_grad_(), db.requires_grad_()
    y, gx, gw, gb = reference(x, g, w, b, mean, var)
    got = F.batch_norm(d, dmean, dvar, dw, db, training, 0.3)
    check(got, y, what=shape)
    got.backward(dg)
    for t, want in ((d.grad, gx), (dw.grad, gw), (db.grad, gb)):
        check(t, want, 1e-10, shape)
    if training:
        axes = tuple(k for k in range(x.ndim) if k != 1)
        check(dmean, 0.7 * mean + 0.3 * x.mean(axes))
        check(dvar, 0.7 * var + 0.3 * x.var(axes, ddof=1))
    else:
        check(dmean, mean)
for dtype, tolerance in ((tn.float32, 1e-4), (tn.float16, 2e-2), (tn.bfloat16, 1e-1)):
    x = (tn.randn(6, 4, 50) + 100).to(dtype)
    want = x.double().numpy()
    axes = (0, 2)
    m, v = want.mean(axes, keepdims=True), want.var(axes, keepdims=True)
    if not training:
        m, v = np.full((1, 4, 1), 99.0), np.full((1, 4, 1), 1.5)
    r = (tn.full((4,), 99.0).to("cuda", dtype), tn.full((4,), 1.5).to("cuda", dtype))
    check(F.batch_norm(x.to("cuda"), *r, None, None, training), (want - m) / np.sqrt(v + 1e-5),
          tolerance)
assert F.batch_norm(tn.zeros(0, 3, device="cuda"), *tn.ones(2, 3, device="cuda"), None, None,
                    False).shape == (0, 3)
for shape, layout in (((4, 3, 5), plain), ((2, 40, 9, 8), last)):  # evaluations look at g alone
    d = layout(send(np.full(shape, np.nan))).requires_grad_()
    F.batch_norm(d, *tn.ones(2, shape[1], device="cuda", dtype=tn.float64)).sum().backward()
    check(d.grad, np.full(shape, (1 + 1e-5) ** -0.5))
ran_natively("native_batch_norm", "_batch_norm_backward")
"""
    )


def test_losses_of_classes() -> None:
    """Rows, images and volumes of logits in any layout; weights, ignored targets, reductions."""
    harness.script(
        START
        + """
def reference(x, t, w, ignore, reduction, entropy):
    if entropy:
        top = x.max(1, keepdims=True)
        x = x - top - np.log(np.exp(x - top).sum(1, keepdims=True))
    used = t != ignore
    safe = np.where(used, t, 0)
    weight = np.where(used, 1.0 if w is None else w[safe], 0.0)
    loss = -weight * np.take_along_axis(x, safe[:, None], 1)[:, 0]
    hot = np.moveaxis(np.eye(x.shape[1])[safe], -1, 1) * weight[:, None]
    grad = np.exp(x) * weight[:, None] - hot if entropy else -hot
    if reduction == "none":
        return loss, grad
    scale = weight.sum() if reduction == "mean" else 1.0
    return loss.sum() / scale, grad / scale
for shape in ((5, 3), (700, 11), (4, 300), (3, 5, 7), (2, 7, 30, 9), (2, 3, 4, 2, 5)):
    c = shape[1]
    t = rng.integers(0, c, shape[:1] + shape[2:])
    t.reshape(-1)[::5] = -100
    w, x, classes = rng.uniform(0.5, 2, c), rng.standard_normal(shape), tn.from_numpy(t).to("cuda")
    back = tuple(range(x.ndim - 1, -1, -1))
    for layout in (send(x), send(x.swapaxes(1, -1)).transpose(1, -1), send(x.T).permute(*back)):
        for reduction in ("none", "mean", "sum"):
            for entropy, weight in ((True, None), (False, None), (False, w)):
                d = layout.detach().requires_grad_()
                f = F.cross_entropy if entropy else F.nll_loss
                got = f(d, classes, send(weight), reduction=reduction)
                loss, grad = reference(x, t, weight, -100, reduction, entropy)
                check(got, np.asarray(loss), 1e-11, (shape, reduction, entropy))
                got.sum().backward()
                check(d.grad, grad, 1e-11, (shape, reduction, entropy))
x = tn.randn(4, 3, device="cuda", dtype=tn.float64).requires_grad_()
t = tn.tensor([0, 2, 2, 1], device="cuda")
g = tn.ones((), device="cuda", dtype=tn.float64, requires_grad=True)
(first,) = tn.autograd.grad(F.nll_loss(x, t), x, g, create_graph=True)
(second,) = tn.autograd.grad(first, g, tn.ones_like(first))
assert abs(second.item() + 1) < 1e-12
none = F.nll_loss(tn.zeros(0, 3, device="cuda"), tn.zeros(0, dtype=tn.int64, device="cuda"))
assert none.isnan().item()
for dtype, tolerance in ((tn.float32, 1e-5), (tn.float16, 1e-2), (tn.bfloat16, 5e-2)):
    x = tn.randn(50, 9).to(dtype)
    t = rng.integers(0, 9, 50)
    want, grad = reference(x.double().numpy(), t, None, -100, "mean", True)
    d = x.to("cuda").requires_grad_()
    got = F.cross_entropy(d, tn.from_numpy(t).to("cuda"))
    check(got, np.asarray(want), tolerance)
    got.backward()
    check(d.grad, grad, tolerance)
ran_natively("_nll_loss", "_nll_loss_backward", "_nll_loss_gather", "_cross_entropy",
             "_cross_entropy_backward")
bad = F.nll_loss(tn.zeros(2, 3, device="cuda"), tn.tensor([1, 3], device="cuda"))
try:
    bad.item()
except RuntimeError as err:
    assert "'_nll_loss': index 3 is out of range for size 3" in str(err), err
else:
    raise AssertionError("nothing was said")
"""
    )
