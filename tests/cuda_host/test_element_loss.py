"""Losses of elements, and rms_norm, on the CUDA host harness; next to the CPU."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

LOSSES = """
F = tn.nn.functional
def inputs(shape, dtype):
    tn.manual_seed(0)
    x, t = tn.randn(shape, dtype=tn.float64), tn.rand(shape, dtype=tn.float64)
    x.view(-1)[:1] = t.view(-1)[:1]  # a difference of 0
    return x.to(dtype), t.to(dtype)
CASES = [
    (F.mse_loss, {}), (F.l1_loss, {}), (F.smooth_l1_loss, {}), (F.smooth_l1_loss, {"beta": 0.3}),
    (F.smooth_l1_loss, {"beta": 0.0}), (F.huber_loss, {"delta": 0.7}),
    (F.binary_cross_entropy, {}), (F.binary_cross_entropy_with_logits, {}),
    (F.kl_div, {}), (F.kl_div, {"log_target": True}),
]
def value(loss, options, device, x, t, **more):
    if loss is F.binary_cross_entropy:
        x = x.sigmoid()
    x = x.detach().clone().to(device).requires_grad_()
    more = {k: v.to(device) if isinstance(v, tn.Tensor) else v for k, v in more.items()}
    y = loss(x, t.to(device), **options, **more)
    (y * 1.5).backward()
    return y.detach().cpu().double(), x.grad.cpu().double()
def agree(some, others, tol):
    return all(tn.allclose(a, b, rtol=tol, atol=tol) for a, b in zip(some, others))
"""


@pytest.mark.parametrize("dtype, tol", [("float64", 1e-12), ("float32", 2e-5), ("bfloat16", 2e-2)])
def test_losses_are_those_of_the_cpu(dtype: str, tol: float) -> None:
    """In float64 there; of one block and of several, with and without whole groups."""
    harness.script(
        LOSSES
        + f"""
for shape in ((), (3, 5), (64, 40), (70001,)):
    x, t = inputs(shape, tn.{dtype})
    for loss, options in CASES:
        for reduction in ("mean", "sum"):
            if reduction == "sum" and len(shape) == 1 and tn.{dtype} == tn.bfloat16:
                continue  # beyond what the type can count
            found = value(loss, options, "cuda", x, t, reduction=reduction)
            if loss is F.binary_cross_entropy and tn.{dtype} != tn.float64:
                wanted = value(loss, options, "cpu", x, t, reduction=reduction)
            else:
                wanted = value(loss, options, "cpu", x.double(), t.double(), reduction=reduction)
            scale = max(1.0, float(wanted[0].abs()))
            assert abs(found[0] - wanted[0]) < {tol} * scale, (loss, shape, reduction)
            assert tn.allclose(found[1], wanted[1], rtol={tol}, atol={tol}), (loss, shape)
for op in ("_element_loss", "_element_loss_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0)
"""
    )


def test_losses_take_weights_views_and_other_reductions() -> None:
    harness.script(
        LOSSES
        + """
x, t = inputs((6, 40), tn.float64)
w, pos = tn.rand(6, 40, dtype=tn.float64), tn.rand(40, dtype=tn.float64) * 3
for loss in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits):
    for weight in (w, w[:1], w[:, :1], w[0, 0]):
        pair = [value(loss, {}, d, x, t, weight=weight) for d in ("cuda", "cpu")]
        assert agree(*pair, 1e-12), loss
loss = F.binary_cross_entropy_with_logits
for more in ({"pos_weight": pos}, {"pos_weight": pos, "weight": w}):
    assert agree(*(value(loss, {}, d, x, t, **more) for d in ("cuda", "cpu")), 1e-12)
for loss, options in CASES:
    pair = []
    for device in ("cuda", "cpu"):
        far = tn.zeros(40, 12, dtype=tn.float64, device=device)
        far[:, ::2] = (x.sigmoid() if loss is F.binary_cross_entropy else x).to(device).t()
        far.requires_grad_()
        near = t.to(device)[:1].expand(6, 40)
        y = loss(far[:, ::2].t(), near, **options)
        y.backward()
        pair.append((y.detach().cpu(), far.grad.cpu()))
    assert agree(*pair, 1e-12), loss
assert agree(*(value(F.kl_div, {}, d, x, t, reduction="batchmean") for d in ("cuda", "cpu")), 1e-12)
for loss in (F.mse_loss, F.huber_loss):
    assert agree(*(value(loss, {}, d, x, t, weight=w) for d in ("cuda", "cpu")), 1e-12)
none = tn.zeros(0, 3, device="cuda")
assert F.mse_loss(none, none).isnan().item() and F.mse_loss(none, none, reduction="sum").item() == 0
assert tuple(F.mse_loss(x.cuda(), t.cuda(), reduction="none").shape) == (6, 40)
try:
    F.mse_loss(x.cuda(), t.cuda(), reduction="some")
except ValueError as error:
    assert "some" in str(error)
else:
    raise AssertionError("a reduction that is none")
"""
    )


def test_losses_have_gradients_of_targets_and_of_gradients() -> None:
    harness.script(
        LOSSES
        + """
tn.manual_seed(1)
for loss, options in CASES:
    results = []
    for device in ("cuda", "cpu"):
        x, t = (v.to(device) for v in inputs((4, 5), tn.float64))
        if loss is F.binary_cross_entropy:
            x = x.sigmoid()
        for both in (False, True):
            p, q = x.clone().requires_grad_(), t.clone().requires_grad_(both)
            y = loss(p, q, **options)
            (g,) = tn.autograd.grad(y, p, create_graph=True)
            if g.requires_grad:
                (g.sin().sum() + y).backward()
                results.append(p.grad.cpu())
            if both and g.requires_grad:
                results.append(q.grad.cpu())
            results.append(g.detach().cpu())
    half = len(results) // 2
    assert half and agree(results[:half], results[half:], 1e-10), loss
"""
    )


def test_a_loss_is_two_launches() -> None:
    """For the sum and for the gradient; a third where blocks share the sum. Nobody waits."""
    harness.script(
        LOSSES
        + """
for shape, launches in (((64, 10), 1), ((70001,), 2)):
    for loss, options in CASES:
        x, t = (v.cuda() for v in inputs(shape, tn.float32))
        x = (x.sigmoid() if loss is F.binary_cross_entropy else x).requires_grad_()
        grad = tn.ones((), device="cuda")
        for i in range(2):
            tn.cuda.reset_counters()
            y = loss(x, t, **options)
            forward = tn.cuda.counters()["launches"]
            tn.autograd.grad(y, x, grad)
        counted = tn.cuda.counters()
        assert forward == launches, (loss, forward)
        assert counted["launches"] == launches + 1 and counted["waits"] == 0, (loss, counted)
"""
    )


def test_rms_norm_is_one_launch() -> None:
    harness.script("""
F = tn.nn.functional
def run(device, dtype, shape, normalized, weighted, weight_dtype=None):
    tn.manual_seed(0)
    x = tn.randn(shape, dtype=tn.float64).to(dtype).to(device).requires_grad_()
    w = tn.rand(normalized, dtype=tn.float64).to(weight_dtype or dtype).to(device).requires_grad_()
    y = F.rms_norm(x, normalized, w if weighted else None, 1e-5)
    (y * tn.arange(y.numel(), device=device).double().view(y.shape).sin()).sum().backward()
    return [v.detach().cpu().double() for v in (y, x.grad, w.grad) if v is not None]
cases = [((5, 7), [7]), ((2, 3, 40), [3, 40]), ((3, 3000), [3000]), ((600, 33), [33]), ((8,), [8])]
for dtype, tol in ((tn.float64, 1e-11), (tn.float32, 1e-4), (tn.float16, 2e-2)):
    for shape, normalized in cases:
        for weighted in (False, True):
            found = run("cuda", dtype, shape, normalized, weighted)
            wanted = run("cpu", dtype, shape, normalized, weighted)
            if dtype == tn.float16:
                wanted = run("cpu", tn.float64, shape, normalized, weighted)
            for a, b in zip(found, wanted):
                assert tn.allclose(a, b, rtol=tol, atol=tol * 10), (dtype, shape, weighted)
y = F.rms_norm(tn.ones(2, 4, dtype=tn.float16, device="cuda"), [4], tn.ones(4, device="cuda"))
assert y.dtype == tn.float16  # whatever the weight's
x = tn.randn(20, 64, device="cuda", requires_grad=True)
w = tn.ones(64, device="cuda", requires_grad=True)
g = tn.ones(20, 64, device="cuda")
for i in range(2):
    tn.cuda.reset_counters()
    y = F.rms_norm(x, [64], w)
    assert tn.cuda.counters()["launches"] == 1
    tn.autograd.grad(y, (x, w), g)
counted = tn.cuda.counters()  # one for the given gradient, which is copied
assert counted["launches"] == 3 and counted["waits"] == 0, counted
for op in ("_rms_norm", "_rms_norm_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0)
twice = []
for device in ("cuda", "cpu"):
    tn.manual_seed(3)
    x = tn.randn(4, 6, dtype=tn.float64).to(device).requires_grad_()
    w = tn.rand(6, dtype=tn.float64).to(device).requires_grad_()
    gx, gw = tn.autograd.grad(F.rms_norm(x, [6], w).sin().sum(), (x, w), create_graph=True)
    (gx.square().sum() + gw.sin().sum()).backward()
    twice.append([x.grad.cpu(), w.grad.cpu()])
assert all(tn.allclose(a, b, rtol=1e-10) for a, b in zip(*twice))
""")
