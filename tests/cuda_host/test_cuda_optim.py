"""Lists of tensors on the CUDA host harness: steps, norms, scaling; next to NumPy and the CPU."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

LISTS = """
import numpy as np
rng = np.random.default_rng(0)
shapes = [(3, 4), (0,), (5000,), (), (9000,), (2, 3, 4)] + [(7,)] * 100
def lists(dtype=tn.float32):
    whole = [rng.standard_normal(s) for s in shapes]
    return whole, [tn.from_numpy(np.asarray(x)).to(dtype).to("cuda") for x in whole]
"""


def test_gradients_are_clipped_without_a_wait() -> None:
    """More tensors than one launch takes, empty ones and long ones among them."""
    harness.script(
        LISTS
        + """
clip = tn.nn.utils.clip_grad_norm_
for order in (1.0, 2.0, float("inf")):
    for dtype, tol in ((tn.float64, 1e-12), (tn.float32, 1e-5), (tn.bfloat16, 2e-2)):
        whole, grads = lists(dtype)
        params = [tn.zeros_like(g).requires_grad_() for g in grads]
        for p, g in zip(params, grads):
            p.grad = g
        flat = np.concatenate([x.ravel() for x in whole])
        want = np.linalg.norm(flat, order)
        total = clip(params, 0.25 * want, order)
        assert abs(float(total) - want) < tol * want, (order, dtype)
        factor = 0.25 * want / (want + 1e-6)
        for p, x in zip(params, whole):
            assert np.allclose(p.grad.double().cpu().numpy(), factor * x, rtol=2 * tol, atol=tol)
        kept = [p.grad.cpu() for p in params]
        clip(params, 1e9, order)  # small already: not a bit changes
        assert all(tn.equal(p.grad.cpu(), k) for p, k in zip(params, kept))
bad = tn.ones(5, device="cuda").requires_grad_()
bad.grad = tn.tensor([1.0, float("nan"), 2.0, 3.0, 4.0], device="cuda")
for order in (1.0, 2.0, float("inf")):
    assert clip([bad], 1.0, order).isnan().item()
for op in ("_norms_step", "_scale_step"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


def test_the_scaler_unscales_in_one_launch() -> None:
    harness.script(
        LISTS
        + """
for spoiled in (None, float("inf"), float("nan")):
    whole, grads = lists()
    params = [tn.zeros_like(g).requires_grad_() for g in grads]
    for p, g in zip(params, grads):
        p.grad = g
    if spoiled is not None:
        params[4].grad[8999] = spoiled
    opt = tn.optim.SGD(params, lr=1.0)
    scaler = tn.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(tn.ones((), device="cuda"))
    scaler.unscale_(opt)
    for p, x in list(zip(params, whole))[:4]:
        assert np.allclose(p.grad.cpu().numpy(), x / 4, rtol=1e-6)
    scaler.step(opt)
    scaler.update()
    moved = any(p.detach().abs().sum().item() > 0 for p in params)
    assert moved == (spoiled is None) and scaler.get_scale() == (4.0 if moved else 2.0)
assert tn.cuda.fallback_count("_unscale_step") == (0, 0)
"""
    )


def test_amsgrad_steps_on_the_device() -> None:
    harness.script("""
def train(device):
    tn.manual_seed(0)
    w = tn.randn(40, 3).to(device).requires_grad_()
    opt = tn.optim.Adam([w], lr=0.1, amsgrad=True, weight_decay=0.01)
    for i in range(8):
        opt.zero_grad()
        ((w * (i - 3)).sin() ** 2).sum().backward()
        opt.step()
    return w.detach().cpu()
assert tn.allclose(train("cuda"), train("cpu"), atol=1e-5)
assert tn.cuda.fallback_count("_adam_step") == (0, 0)
""")
