"""Pooling, resampling, padding and triangles of planes on the host harness: values and gradients
are those of the CPU, and no call goes there."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
F = tn.nn.functional
tn.manual_seed(0)
TOLERANCE = {tn.float64: 1e-11, tn.float32: 1e-5, tn.float16: 4e-3, tn.bfloat16: 4e-2}
VIEWS = (lambda t: t, lambda t: t.transpose(-1, -2), lambda t: t[..., 1:, ::2])

def check(f, shape, views=VIEWS, dtypes=tuple(TOLERANCE)):
    for dtype in dtypes:
        for view in views:
            x = tn.randn(*shape).to(dtype)
            c = view(x).detach().requires_grad_()
            d = view(x.to("cuda")).detach().requires_grad_()
            want, got = f(c), f(d)
            g = tn.randn(*want.shape).to(dtype)
            want.backward(g)
            got.backward(g.to("cuda"))
            near = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
            assert tn.allclose(got.detach().cpu(), want.detach(), **near), (shape, dtype)
            assert tn.allclose(d.grad.cpu(), c.grad, **near), (shape, dtype)

def stays(*ops):
    for op in ops:
        assert tn.cuda.fallback_count(op) == (0, 0), op
"""


def test_pooling() -> None:
    """Strides, padding, dilation and shapes that leave a rest; windows for a thread and a warp."""
    harness.script(
        CHECK
        + """
for kw in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2},
           {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2},
           {"kernel_size": (3, 2), "stride": (1, 3), "ceil_mode": True}):
    check(lambda x: F.max_pool2d(x, **kw), (2, 3, 13, 12))
check(lambda x: F.max_pool2d(x, 3, 1), (3, 40, 20), VIEWS[:1])
check(lambda x: F.max_pool1d(x, 3, 2), (2, 3, 13), VIEWS[:1])
for kw in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (9, 10), "stride": 1},
           {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True,
            "count_include_pad": False},
           {"kernel_size": 2, "divisor_override": 3}, {"kernel_size": 3, "stride": 4}):
    check(lambda x: F.avg_pool2d(x, **kw), (2, 3, 23, 22))
for size in (1, (3, 4), (7, 2), (30, 31)):
    check(lambda x: F.adaptive_avg_pool2d(x, size), (2, 3, 23, 22))
nan = tn.ones(1, 1, 4, 4, device="cuda")
nan[0, 0, 0, 1] = nan[0, 0, 1, 1] = float("nan")  # the last counts
y, at = F.max_pool2d(nan, 2, return_indices=True)
assert y.isnan().tolist() == [[[[True, False], [False, False]]]] and at[0, 0, 0, 0].item() == 5
assert F.max_pool2d(tn.zeros(0, 3, 4, 4, device="cuda"), 2).shape == (0, 3, 2, 2)
stays("max_pool2d_with_indices", "_max_pool2d_backward", "avg_pool2d", "_avg_pool2d_backward",
      "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward")
"""
    )


def test_places_of_maxima() -> None:
    """The first of equal ones, NaN above all, for each size of window and every layout."""
    harness.script(
        CHECK
        + """
x = tn.randint(-1, 3, (2, 3, 13, 12)).float()
x[tn.rand(2, 3, 13, 12) < 0.1] = float("nan")
x[:, :, 7:] = float("-inf")
for kernel in (1, 2, 3, 4, (2, 3)):
    for kw in ({}, {"stride": 1}, {"stride": (1, 3), "padding": (0, 1) if kernel != 1 else 0},
               {"stride": 2, "dilation": (2, 1)}, {"stride": 2, "ceil_mode": True}):
        for dtype in TOLERANCE:
            for view in VIEWS:
                want = F.max_pool2d(view(x.to(dtype)), kernel, return_indices=True, **kw)
                got = F.max_pool2d(view(x.to(dtype).to("cuda")), kernel, return_indices=True, **kw)
                assert tn.equal(got[1].cpu(), want[1]), (kernel, kw, dtype)
                assert tn.allclose(got[0].cpu(), want[0], equal_nan=True), (kernel, kw, dtype)
y, at = F.max_pool2d(tn.ones(1, 4, 4, device="cuda"), 2, padding=1, dilation=(5, 1),
                     return_indices=True)
assert y.max().item() == float("-inf") and at.max().item() == -1  # all taps in the padding
"""
    )


def test_maxima_of_large_and_of_many_planes() -> None:
    """Planes of several blocks, blocks of several planes, and hundreds of chunks to a plane: sums
    are the CPU's, bit by bit, since they have its order; also where positions were moved."""
    harness.script(
        CHECK
        + """
def same(shape, dtype, kernel, view=VIEWS[0], move=False, **kw):
    x = tn.randint(0, 9, shape).to(dtype)
    grads, g = [], None
    for device in ("cpu", "cuda"):
        d = view(x.to(device)).detach().requires_grad_()
        y, at = F.max_pool2d(d, kernel, return_indices=True, **kw)
        g = tn.randn(*y.shape).to(dtype) if g is None else g
        if move:  # behind the back of autograd: into other tiles, and to one place
            at.data[..., 1, ::2] = d.shape[-1] * d.shape[-2] - 1
            at.data[..., -1, :] = 3
        y.backward(g.to(device))
        grads.append(d.grad.cpu())
    assert tn.equal(*grads), (shape, dtype)
for dtype in TOLERANCE:
    same((2, 2, 90, 101), dtype, 3, stride=2, padding=1)
    same((2, 90, 101), dtype, 3, stride=2, padding=1, move=True)
    same((60, 5, 7, 5), dtype, 2, stride=1)
    same((60, 5, 7, 5), dtype, 3, view=VIEWS[1], stride=2, padding=1, move=True)
same((1, 2, 70, 80), tn.float32, (9, 4), view=VIEWS[1], stride=1)
same((1, 290, 300), tn.float32, 2, stride=1)
same((1, 290, 300), tn.float16, 2, view=VIEWS[2], stride=1, move=True)
stays("max_pool2d_with_indices", "_max_pool2d_backward")
"""
    )


def test_maxima_share_places_in_one_order() -> None:
    """Windows that overlap add to one place: the same bits every time."""
    harness.script("""
x = tn.rand(2, 60, 60, device="cuda").requires_grad_()
g = tn.randn(2, 51, 51, device="cuda")
def grad():
    (r,) = tn.autograd.grad(tn.nn.functional.max_pool2d(x, 10, 1), x, g)
    return r.cpu()
first = grad()
assert tn.equal(first, grad())
assert abs(first.sum().item() - g.sum().item()) < 1e-3
""")


def test_a_wrong_position_is_reported() -> None:
    said = harness.script("""
x = tn.ones(1, 1, 4, 4, device="cuda").requires_grad_()
y, at = tn.nn.functional.max_pool2d(x, 2, return_indices=True)
at.data[0, 0, 1, 0] = 16  # behind the back of autograd
try:
    y.sum().backward()
    tn.cuda.synchronize()
except RuntimeError as err:
    print(err)
assert (x.detach() + 1).sum().item() == 32
""")
    assert "'_max_pool2d_backward': index 16 is out of range for size 16" in said, said


def test_resampling() -> None:
    harness.script(
        CHECK
        + """
for size in ((7, 3), (40, 41), (13, 12), (1, 1), (5, 26)):
    for kw in ({}, {"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}):
        check(lambda x: F.interpolate(x, size=size, **kw), (2, 3, 13, 12))
for factor in (2, 0.5, 1.7, 3.3):
    for mode in ("nearest", "bilinear"):
        check(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), (2, 3, 13, 12))
for size in ((1, 9), (9, 1), (14, 13)):  # planes of one row, and weights of 0
    for kw in ({}, {"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}):
        check(lambda x: F.interpolate(x, size=size, **kw), (1, 2, 1, 5), VIEWS[:1])
x = tn.zeros(1, 1, 2, 2, device="cuda").requires_grad_()
y = F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True)
y.backward(tn.tensor([[[[float("inf"), 1, 1], [1, 1, 1], [1, 1, 1]]]], device="cuda"))
assert x.grad.isfinite().tolist() == [[[[False, True], [True, True]]]]  # 0 * inf is left out
stays("upsample_nearest2d", "_upsample_nearest2d_backward", "upsample_bilinear2d",
      "_upsample_bilinear2d_backward")
"""
    )


def test_padding() -> None:
    """Every mode, one side and both, cut and widened; gradients are gathered."""
    harness.script(
        CHECK
        + """
for pad in ((1, 2), (3, 0, 2, 4), (-1, 2), (1, -1, 0, 3), (0, 0, 0, 0, 1, 1)):
    check(lambda x: F.pad(x, pad, value=1.5), (2, 3, 7, 6), dtypes=(tn.float64, tn.float16))
for mode in ("reflect", "replicate", "circular"):
    for shape, pad in (((3, 7), (1, 2)), ((2, 3, 7, 8), (2, 0, 1, 2)),
                       ((2, 2, 3, 5, 6), (1, 1, 0, 2, 2, 2))):
        check(lambda x: F.pad(x, pad, mode=mode), shape, VIEWS[:1], (tn.float64, tn.bfloat16))
check(lambda x: F.pad(x, (5, 9), mode="replicate"), (2, 1, 1), VIEWS[:1], (tn.float64,))
for dtype in (tn.bool, tn.int8, tn.int16, tn.int64, tn.complex64, tn.complex128):
    x = (tn.arange(12).reshape(3, 4) % 5).to(dtype)
    for value in (1, 0):
        got = F.pad(x.to("cuda"), (1, -2, 0, 3), value=value)
        assert tn.equal(got.cpu(), F.pad(x, (1, -2, 0, 3), value=value)), dtype
assert F.pad(tn.zeros(0, 3, device="cuda"), (1, 1)).shape == (0, 5)
assert F.pad(tn.zeros(2, 0, device="cuda"), (1, 1), value=2).tolist() == [[2, 2], [2, 2]]
stays("constant_pad_nd", "_pad")
assert tn.cuda.fallback_count("_pad_backward") == (0, 0)
"""
    )


def test_triangles() -> None:
    harness.script(
        CHECK
        + """
for dtype in (tn.bool, tn.int16, tn.float32, tn.int64, tn.complex128):
    x = (tn.arange(60).reshape(3, 4, 5) % 7).to(dtype)
    for view in VIEWS[:1] + (lambda t: t.transpose(0, 2), lambda t: t[1], lambda t: t[:, :, ::2]):
        for diagonal in (-9, -1, 0, 2, 9):
            for f in (tn.tril, tn.triu):
                got = f(view(x.to("cuda")), diagonal)
                assert tn.equal(got.cpu(), f(view(x), diagonal)), (dtype, diagonal)
y = tn.ones(3, 3, device="cuda").tril_()
assert y.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
stays("tril", "triu")
"""
    )
