"""Images at the places of a grid, on the device without the CPU's help: values, gradients and
second gradients are the CPU's, whose tests compare them with PyTorch; sums written out in NumPy."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
import itertools
F = tn.nn.functional
tn.manual_seed(3)
modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")

def run(device, x, grid, g, h, *how):
    x, grid = (t.to(device).requires_grad_() for t in (x, grid))
    y = F.grid_sample(x, grid, *how)
    first = tn.autograd.grad(y, (x, grid), g.to(device), create_graph=True)
    second = tn.autograd.grad(first, (x, grid), [t.to(device) for t in h], allow_unused=True)
    return [None if t is None else t.detach().cpu() for t in (y, *first, *second)]

def check(x, grid, *how, dtype=tn.float64, far=1e-10):
    g = tn.randn(x.shape[0], x.shape[1], *grid.shape[1:-1], dtype=tn.float64)
    h = [tn.randn(*t.shape, dtype=tn.float64) for t in (x, grid)]
    with tn.random.fork_rng():
        want = run("cpu", x, grid, g, h, *how)
    got = run("cuda", *(t.to(dtype) for t in (x, grid, g)), [t.to(dtype) for t in h], *how)
    for a, b in zip(got, want):
        assert (a is None) == (b is None), how
        assert a is None or a.dtype == dtype
        assert a is None or tn.allclose(a.double(), b, rtol=far, atol=far), (how, a, b)
"""


def test_grids_as_the_cpu() -> None:
    harness.script(
        CHECK
        + """
for how in itertools.product(modes, paddings, (True, False)):
    check(tn.randn(2, 5, 4, 5, dtype=tn.float64), tn.randn(2, 7, 2, 2, dtype=tn.float64), *how)
    if how[0] != "bicubic":
        x = tn.randn(2, 2, 3, 4, 5, dtype=tn.float64)
        check(x, tn.randn(2, 3, 2, 4, 3, dtype=tn.float64), *how)
check(tn.randn(1, 2, 1, 1, dtype=tn.float64), tn.randn(1, 9, 33, 2, dtype=tn.float64) * 3)
x = tn.randn(2, 4, 6, 3, dtype=tn.float64).transpose(1, 3)
check(x, tn.randn(2, 2, 5, 4, dtype=tn.float64).transpose(1, 3), "bicubic", "border", True)
x = tn.randn(2, 5, 4, 5).double()
grid = tn.randn(2, 7, 6, 2).half().double().clamp(-0.7, 0.7)
check(x, grid, "bilinear", "zeros", False, dtype=tn.float32, far=1e-4)
for name in ("_grid_sample", "_grid_sample_input", "_grid_sample_grid", "_grid_sample_curve"):
    assert tn.cuda.fallback_count(name) == (0, 0), name
for shape, places in (((0, 2, 3, 3), (0, 2, 2, 2)), ((2, 0, 3, 3), (2, 4, 4, 2)),
                      ((2, 3, 3, 3), (2, 0, 4, 2))):
    x, grid = tn.ones(*shape, device="cuda"), tn.zeros(*places, device="cuda")
    x, grid = x.requires_grad_(), grid.requires_grad_()
    F.grid_sample(x, grid).sum().backward()
    assert x.grad.abs().sum().item() == 0 and grid.grad.abs().sum().item() == 0
    assert x.grad.shape == x.shape and grid.grad.shape == grid.shape
bad = tn.tensor([float("nan"), float("inf"), -1e30, 0.0], device="cuda").view(1, 1, 2, 2)
image = tn.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 2, 2)
for mode, padding in itertools.product(modes, paddings):
    got = F.grid_sample(image.to("cuda"), bad, mode, padding, True).cpu()
    want = F.grid_sample(image, bad.cpu(), mode, padding, True)
    assert tn.allclose(got, want, equal_nan=True), (mode, padding, got, want)
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_half_precision_sums_in_float32() -> None:
    """As the same operator on the rounded operands in float64, rounded once."""
    harness.script(
        CHECK
        + """
for dtype, far in ((tn.float16, 2e-3), (tn.bfloat16, 2e-2)):
    x, grid = tn.randn(2, 5, 4, 5).to(dtype), tn.randn(2, 9, 31, 2).to(dtype).clamp(-0.9, 0.9)
    leaves = [t.to("cuda").requires_grad_() for t in (x, grid)]
    wide = [t.double().requires_grad_() for t in (x, grid)]
    g = tn.randn(2, 5, 9, 31).to(dtype)
    for mode in ("bilinear", "bicubic"):
        for leaf in leaves + wide:
            leaf.grad = None
        got = F.grid_sample(*leaves, mode, "border", False)
        want = F.grid_sample(*wide, mode, "border", False)
        assert got.dtype == dtype and tn.allclose(got.detach().cpu().double(), want, far, far)
        got.backward(g.to("cuda"))
        want.backward(g.double())
        # places are computed in float32 from rounded numbers: one may be in the next cell
        most = want.abs().amax().item()
        for a, b in zip(leaves, wide):
            scale = b.grad.abs().amax().item()
            assert (a.grad.cpu().double() - b.grad).abs().amax().item() < far * scale, (dtype, mode)
""",
        TENON_FALLBACK="error",
    )


def test_what_meets_in_an_element_is_added_in_one_order() -> None:
    """Many places read few elements; their sum has the same bits each time, also where images are
    taken apart."""
    harness.script(
        CHECK
        + """
import numpy as np
x = tn.zeros(3, 5, 2, 2, device="cuda", requires_grad=True)
grid, g = tn.randn(3, 40, 50, 2, device="cuda"), tn.randn(3, 5, 40, 50, device="cuda")
F.grid_sample(x, grid, "nearest", "border", True).backward(g)
first = x.grad.clone()
for _ in range(3):
    x.grad = None
    F.grid_sample(x, grid, "nearest", "border", True).backward(g)
    assert tn.equal(x.grad, first)
at = np.rint(np.clip((grid.cpu().numpy() + 1) / 2, 0, 1)).astype(int)
want = np.zeros((3, 5, 2, 2))
for n in range(3):
    for i, j in np.ndindex(40, 50):
        column, row = at[n, i, j]
        want[n, :, row, column] += g[n, :, i, j].cpu().double().numpy()
assert np.allclose(first.cpu().numpy(), want, atol=1e-3)
""",
        TENON_FALLBACK="error",
    )
