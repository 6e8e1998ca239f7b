"""Optimizers on a device that has kernels for the parts of their steps, and none for the steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")

PROBLEM = """
tn.manual_seed(0)
start = [tn.randn(4, 3, dtype=tn.float64), tn.randn(5, dtype=tn.float64)]
grads = [[tn.randn(p.shape, dtype=tn.float64) for p in start] for _ in range(8)]

def train(kind, device, dtype=tn.float64, **options):
    params = [p.clone().to(dtype).to(device).requires_grad_() for p in start]
    opt = getattr(tn.optim, kind)(params, **options)
    for some in grads:
        for p, g in zip(params, some):
            p.grad = g.to(dtype).to(device)
        opt.step()
    return [p.detach().cpu().double().numpy() for p in params]
"""

RULES = [
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.02, "maximize": True}),
    ("NAdam", {"lr": 0.02, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.02, "betas": (0.8, 0.9)}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "t0": 2.0, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.01}),
]


def test_steps_are_made_of_their_parts(folder: Path) -> None:
    """The CPU's steps, which other tests compare with PyTorch, are the reference."""
    script(
        folder,
        PROBLEM
        + f"""
for kind, options in {RULES!r}:
    for more in ({{}}, {{"capturable": True}})[: 1 if kind == "Adagrad" else 2]:
        there, here = train(kind, "sim", **options, **more), train(kind, "cpu", **options)
        assert all(abs(a - b).max() < 1e-7 for a, b in zip(there, here)), (kind, there, here)
""",
    )


def test_half_precision_does_not_reach_bias_corrections(folder: Path) -> None:
    """beta2 is 1 in float16, so a correction in half precision would be 0."""
    script(
        folder,
        PROBLEM
        + """
import numpy as np
def by_numpy(lr=0.01, beta1=0.9, beta2=0.9999, eps=1e-8):
    values = []
    for k, p in enumerate(start):
        w, m, v = p.numpy().copy(), 0.0, 0.0
        for t, some in enumerate(grads, 1):
            g = some[k].numpy()
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            w -= lr * m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)
        values.append(w)
    return values
for dtype, tol in ((tn.float16, 4e-3), (tn.bfloat16, 3e-2), (tn.float32, 1e-5)):
    for capturable in (False, True):
        found = train("Adam", "sim", dtype, lr=0.01, betas=(0.9, 0.9999), capturable=capturable)
        for a, b in zip(found, by_numpy()):
            assert abs(a - b).max() < tol, (dtype, capturable, abs(a - b).max())
""",
        LEVEL=3,
    )


@pytest.mark.parametrize("level", [2, 3])
def test_what_the_host_counts_is_not_captured(folder: Path, level: int) -> None:
    """A replay would repeat one step, on a device that core records for and on one that records."""
    script(
        folder,
        """
for kind in ("NAdam", "RMSprop"):
    w = tn.ones(3, device="sim").requires_grad_()
    w.grad = tn.ones_like(w)
    opt = getattr(tn.optim, kind)([w], lr=0.01)
    opt.step()
    before = w.tolist()
    try:
        with tn.sim.graph(tn.Graph()):
            opt.step()
    except RuntimeError as error:
        assert kind == "NAdam" and "on the host" in str(error), error
    else:
        assert kind == "RMSprop"
    assert w.tolist() == before
""",
        LEVEL=level,
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_rate_of_the_device_is_not_kept(folder: Path, dtype: str) -> None:
    """One of another dtype than steps read it in is converted for each of them."""
    script(
        folder,
        f"""
import gc
w = tn.ones(3, device="sim").requires_grad_()
w.grad = tn.ones_like(w)
tn.sim.synchronize()
before = tn.sim.memory_allocated()
opt = tn.optim.SGD([w], lr=tn.tensor(0.125, device="sim", dtype=tn.{dtype}), fused=True)
for _ in range(3):
    opt.step()
assert w.tolist() == [0.625] * 3
del opt
gc.collect()
assert tn.sim.memory_allocated() == before
""",
        cache=0,
    )
