"""batch_norm in training by cuDNN, on the host harness, against NumPy in float64: which calls go
there, the running statistics, and when our own kernels take over."""

from __future__ import annotations

from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


@pytest.fixture(autouse=True)
def small_tensors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_CUDNN_NORM_LEAST", "0")


START = """
import ctypes
import numpy as np
F, nn = tn.nn.functional, tn.nn
rng = np.random.default_rng(0)

def count(what):
    ask = ctypes.CDLL("libcudnn.so.9").cudnnHostCount
    ask.restype = ctypes.c_long
    return ask(what.encode())

def close(got, want, tolerance=2e-5):
    got = got.detach().cpu().to(tn.float64).numpy()
    assert np.abs(got - want).max() <= tolerance * max(1, np.abs(want).max()), (
        np.abs(got - want).max())

def reference(x, g, w, b, eps):
    axes = tuple(d for d in range(x.ndim) if d != 1)
    shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
    rstd = (1 / np.sqrt(x.var(axes) + eps)).reshape(shape)
    hat = (x - x.mean(axes).reshape(shape)) * rstd
    gw, gb = (g * hat).sum(axes), g.sum(axes)
    gx = g - (gb.reshape(shape) + hat * gw.reshape(shape)) / (x.size // x.shape[1])
    return hat * w.reshape(shape) + b.reshape(shape), gx * rstd * w.reshape(shape), gw, gb

def last(t):
    return t.contiguous(memory_format=tn.channels_last if t.ndim == 4 else tn.channels_last_3d)

def send(x, dtype=tn.float32):
    return tn.from_numpy(x).to("cuda", dtype)

def check(shape, executed, layout=last, dtype=tn.float32, affine=True, training=True,
          tolerance=2e-5):
    before, c, axes = count("execute"), shape[1], tuple(d for d in range(len(shape)) if d != 1)
    x, g = (rng.standard_normal(shape).astype(np.float32) * 2 + 1 for _ in range(2))
    x, g = (tn.from_numpy(v).to(dtype).to(tn.float64).numpy() for v in (x, g))
    w, b, mean, var = (np.round(rng.uniform(0.5, 2, c) * 64) / 64 for _ in range(4))
    d, dg = layout(send(x, dtype)).requires_grad_(), layout(send(g, dtype))
    dw, db = (send(v, dtype).requires_grad_() if affine else None for v in (w, b))
    dmean, dvar = send(mean, dtype), send(var, dtype)
    y = F.batch_norm(d, dmean, dvar, dw, db, training, 0.25, 1e-3)
    y.backward(dg)
    assert count("execute") == before + executed, (shape, count("execute") - before)
    if not training:
        return
    one, zero = np.ones(c), np.zeros(c)
    wy, gx, gw, gb = reference(x, g, w if affine else one, b if affine else zero, 1e-3)
    for got, want in ((y, wy), (d.grad, gx)) + (((dw.grad, gw), (db.grad, gb)) if affine else ()):
        close(got, want, tolerance)
    close(dmean, 0.75 * mean + 0.25 * x.mean(axes), tolerance)
    close(dvar, 0.75 * var + 0.25 * x.var(axes, ddof=1), tolerance)
"""


def test_training() -> None:
    """Planes and volumes; a batch of two, single positions."""
    harness.script(
        START
        + """
for shape in ((3, 8, 5, 7), (2, 4, 1, 1), (5, 36, 3, 3), (2, 12, 2, 3, 4), (1, 64, 9, 8)):
    check(shape, 2)
assert tn.cuda.fallback_count("native_batch_norm") == (0, 0)
"""
    )


def test_other_calls_are_left_to_own_kernels() -> None:
    harness.script(
        START
        + """
check((3, 8, 5, 7), 0, layout=lambda t: t)
check((3, 6, 5, 7), 0)
check((3, 8), 0, layout=lambda t: t)
check((3, 8, 5, 7), 0, affine=False)
check((3, 8, 5, 7), 0, training=False)
check((3, 8, 5, 7), 0, dtype=tn.float64)
check((3, 8, 5, 7), 0, dtype=tn.bfloat16, tolerance=2e-2)
with tn.backends.cudnn.flags(enabled=False):
    check((3, 8, 5, 7), 0)
x = last(tn.randn(3, 8, 5, 7, device="cuda")).requires_grad_()
w, b = tn.ones(2, 8, device="cuda")
F.batch_norm(x, None, None, w, b, True).sum().backward()  # forward alone: no gradient of w
assert count("execute") == 1 and x.grad.abs().max().item() < 1e-4
"""
    )


def test_small_tensors_make_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes half a second for each shape."""
    text = START + "check((3, 8, 5, 7), 0)\ncheck((2, 8, 9, 9), most)"
    harness.script("most = 2\n" + text, TENON_CUDNN_NORM_LEAST=str(2 * 8 * 9 * 9))
    monkeypatch.delenv("TENON_CUDNN_NORM_LEAST")
    harness.script("most = 0\n" + text)


def test_running_statistics_of_layers() -> None:
    """With a momentum, without (the mean of all batches), and none at all."""
    harness.script(
        START
        + """
batches = [rng.standard_normal((4, 8, 3, 5)).astype(np.float32) * s + s for s in (1, 3, 0.1)]
axes = (0, 2, 3)
means = np.stack([v.astype(float).mean(axes) for v in batches])
spreads = np.stack([v.astype(float).var(axes, ddof=1) for v in batches])
for momentum in (0.1, None):
    layer = nn.BatchNorm2d(8, momentum=momentum).to("cuda")
    mean, var = np.zeros(8), np.ones(8)
    for i, v in enumerate(batches):
        layer(last(send(v)))
        share = momentum or 1 / (i + 1)
        mean, var = (1 - share) * mean + share * means[i], (1 - share) * var + share * spreads[i]
    close(layer.running_mean, mean)
    close(layer.running_var, var)
    assert layer.num_batches_tracked.item() == 3
layer = nn.BatchNorm2d(8, track_running_stats=False).to("cuda")
layer(last(send(batches[0])))
assert count("execute") == 7
flat = last(tn.full((2, 4, 3, 3), 5.0, device="cuda"))  # no spread at all
layer = nn.BatchNorm2d(4, momentum=1.0).to("cuda")
assert layer(flat).abs().max().item() < 1e-3
assert layer.running_mean.tolist() == [5.0] * 4 and layer.running_var.abs().max().item() < 1e-9
flat[0, 1, 0, 0] = float("nan")
layer(flat)
assert layer.running_var.isnan().tolist() == [False, True, False, False]
"""
    )


def test_a_network_trains_as_on_the_cpu() -> None:
    harness.script(
        START
        + """
def train(device):
    tn.manual_seed(0)
    x = tn.randn(8, 4, 6, 6)
    net = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(),
                        nn.Linear(144, 1)).to(device)
    opt = tn.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(4):
        opt.zero_grad()
        loss = (net(last(x.to(device))) ** 2).mean()
        loss.backward()
        opt.step()
    return [p.detach().cpu() for p in net.state_dict().values()]
assert all(tn.allclose(u.double(), v.double(), atol=1e-4)
           for u, v in zip(train("cpu"), train("cuda")))
assert count("execute") >= 8
"""
    )


def test_second_derivatives() -> None:
    harness.script(
        START
        + """
def penalty(device):
    tn.manual_seed(0)
    x, w = last(tn.randn(3, 4, 2, 3)).to(device).requires_grad_(), tn.randn(4).to(device)
    y = F.batch_norm(x, None, None, w, tn.zeros(4, device=device), True)
    (g,) = tn.autograd.grad((y ** 3).sum(), x, create_graph=True)
    return tn.autograd.grad((g * g).sum(), x)[0].cpu()
assert tn.allclose(penalty("cpu"), penalty("cuda"), rtol=1e-3, atol=1e-2)
"""
    )


def test_plans_are_kept_on_disk(tmp_path: Path) -> None:
    env = {"TENON_CUDA_CACHE": str(tmp_path)}
    twice = START + "for _ in range(2): check((3, 8, 5, 7), 2)\n"
    harness.script(twice + "assert (count('search'), count('text')) == (2, 0)", **env)
    harness.script(twice + "assert (count('search'), count('text')) == (0, 2)", **env)


def test_a_recorded_graph_holds_it() -> None:
    harness.script(
        START
        + """
layer = nn.BatchNorm2d(8, momentum=0.5).to("cuda")
x = last(tn.randn(3, 8, 5, 7, device="cuda"))
graph = tn.cuda.CUDAGraph()
with tn.no_grad():
    layer(x)
    with tn.cuda.graph(graph):
        y = layer(x)
    x.mul_(2).add_(1)
    before = layer.running_mean.clone()
    graph.replay()
tn.cuda.synchronize()
assert count("execute") == 2
mean = x.mean((0, 2, 3))
assert tn.allclose(layer.running_mean, 0.5 * before + 0.5 * mean, atol=1e-5)
close(y, reference(*(x.cpu().double().numpy(),) * 2, np.ones(8), np.zeros(8), 1e-5)[0])
"""
    )


@pytest.mark.parametrize("trouble", ["old", "no-handle", "no-engine", "unsupported"])
def test_own_kernels_take_over(trouble: str) -> None:
    harness.script(START + "check((3, 8, 5, 7), 0)", TENON_CUDNN_HOST=trouble)
