"""Layers that are made of other operators, on the host harness: values and gradients are those of
the CPU, whose tests compare them with PyTorch."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
F = tn.nn.functional
tn.manual_seed(0)

def check(f, *shapes):
    near = [tn.randn(*shape, dtype=tn.float64) for shape in shapes]
    far = [x.to("cuda").requires_grad_() for x in near]
    near = [x.requires_grad_() for x in near]
    want, got = f(*near), f(*far)
    g = tn.ones_like(want).uniform_()
    want.backward(g)
    got.backward(g.to("cuda"))
    assert got.device.type == "cuda"
    assert tn.allclose(got.detach().cpu(), want.detach(), atol=1e-10), f
    for a, b in zip(near, far):
        assert tn.allclose(b.grad.cpu(), a.grad, atol=1e-10), f
"""


def test_resizing_and_pooling() -> None:
    harness.script(
        CHECK
        + """
for mode, size, shape in (("bicubic", (9, 8), (1, 2, 5, 6)),
                          ("nearest-exact", (9, 3), (1, 2, 5, 6)),
                          ("linear", 9, (1, 2, 5)), ("trilinear", (7, 3, 5), (1, 2, 4, 5, 3)),
                          ("nearest", (7, 3, 5), (1, 2, 4, 5, 3))):
    check(lambda x: F.interpolate(x, size=size, mode=mode), shape)
check(lambda x: F.max_pool3d(x, 2, 1), (2, 2, 5, 4, 3))
check(lambda x: F.avg_pool3d(x, 2, padding=1), (2, 2, 5, 4, 3))
check(lambda x: F.adaptive_max_pool2d(x, (3, 2)), (2, 2, 7, 5))
check(lambda x: F.adaptive_avg_pool3d(x, 2), (2, 2, 5, 4, 3))
check(lambda x: F.lp_pool2d(x.abs(), 3, 2), (2, 2, 6, 4))
check(lambda x: F.unfold(x, 3, padding=1), (2, 2, 5, 4))
check(lambda x: F.fold(x, (6, 6), 3), (2, 18, 16))
check(lambda x: F.pixel_shuffle(x, 2), (2, 8, 3, 4))
check(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (2, 2, 6, 4))
"""
    )


def test_tables_and_others() -> None:
    harness.script(
        CHECK
        + """
on = lambda x, *values: tn.tensor(values, device=x.device)
for mode in ("sum", "mean", "max"):
    check(lambda w: F.embedding_bag(on(w, 4, 1, 1, 0, 3), w, on(w, 0, 2), mode=mode), (5, 4))
check(lambda w: F.embedding(on(w, 4, 1, 1), w), (5, 4))
check(lambda x: F.ctc_loss(x.log_softmax(2), tn.tensor([[1, 2], [2, 3]], device=x.device),
                           tn.tensor([6, 6]), tn.tensor([2, 2])), (6, 2, 5))
check(lambda x, y, z: F.triplet_margin_loss(x, y, z), (3, 4), (3, 4), (3, 4))
check(lambda x: F.group_norm(x, 2), (2, 4, 3))
check(lambda x: F.local_response_norm(x, 2), (2, 4, 3))
x = tn.randn(50, device="cuda")
y = F.rrelu(x, training=True)
assert tn.equal(y[x >= 0], x[x >= 0]) and (y[x < 0] / x[x < 0]).max().item() <= 1 / 3
"""
    )
