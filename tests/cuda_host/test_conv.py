"""Convolutions on the CUDA host harness: by our own kernels and cuBLAS, and by cuDNN."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

# conv(x, w, b, stride, pad, dilation, groups) by sums over windows in float64, and the gradients of
# sum(y * g), which are linear in x and in w: y's sums read the other way.
ORACLE = """
import itertools
import numpy as np
F = tn.nn.functional
rng = np.random.default_rng(0)

def walk(x, w, y, stride, pad, dilation, groups):
    \"\"\"Pairs of a tap and the parts of x and y that meet there.\"\"\"
    dims = range(len(stride))
    for tap in itertools.product(*(range(n) for n in w.shape[2:])):
        xs, ys = [], []
        for d in dims:
            at = np.arange(y.shape[d + 2]) * stride[d] - pad[d] + tap[d] * dilation[d]
            inside = (at >= 0) & (at < x.shape[d + 2])
            xs.append(at[inside])
            ys.append(np.flatnonzero(inside))
        for g in range(groups):
            co, ci = w.shape[0] // groups, w.shape[1]
            c, o = np.arange(g * ci, (g + 1) * ci), np.arange(g * co, (g + 1) * co)
            n = np.arange(x.shape[0])
            taken = (slice(g * co, (g + 1) * co), slice(None), *tap)
            yield taken, np.ix_(n, c, *xs), np.ix_(n, o, *ys)

def conv(x, w, stride, pad, dilation, groups):
    size = [(x.shape[d + 2] + 2 * pad[d] - dilation[d] * (w.shape[d + 2] - 1) - 1) // stride[d] + 1
            for d in range(len(stride))]
    y = np.zeros((x.shape[0], w.shape[0], *size))
    for tap, at, to in walk(x, w, y, stride, pad, dilation, groups):
        y[to] += np.einsum("nc...,oc->no...", x[at], w[tap])
    return y

def gradients(x, w, g, stride, pad, dilation, groups):
    gx, gw = np.zeros(x.shape), np.zeros(w.shape)
    for tap, at, to in walk(x, w, g, stride, pad, dilation, groups):
        gx[at] += np.einsum("no...,oc->nc...", g[to], w[tap])
        axes = (0, *range(2, x.ndim))
        gw[tap] += np.tensordot(g[to], x[at], (axes, axes))
    return gx, gw

CASES = [  # sizes of x and w, stride, padding, dilation, groups
    ((2, 3, 8), (4, 3, 3), (2,), (1,), (1,), 1),
    ((2, 4, 7, 6), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    ((3, 5, 5, 4), (7, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 6, 4, 5), (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 2),
    ((2, 3, 5, 4), (4, 3, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((2, 3, 9, 7), (6, 1, 3, 3), (2, 2), (1, 1), (1, 1), 3),
    ((5, 4, 6, 6), (4, 1, 3, 3), (1, 1), (2, 2), (2, 2), 4),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    ((2, 4, 3, 4, 5), (8, 1, 3, 2, 2), (2, 1, 2), (1, 0, 1), (1, 1, 1), 4),
    ((2, 3, 17, 19), (5, 3, 4, 4), (3, 3), (3, 2), (1, 1), 1),
    ((1, 1, 40, 33), (2, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1),
    ((3, 2, 23, 20), (4, 1, 5, 5), (1, 1), (2, 2), (1, 1), 2),
    ((2, 3, 13, 20), (3, 1, 5, 5), (2, 1), (3, 1), (1, 2), 3),
]

def check(got, want, dtype):
    limit = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-6, "float64": 1e-13}[dtype]
    error = np.abs(got.double().cpu().numpy() - want).max() if want.size else 0
    assert error <= limit * max(1, np.abs(want).max() if want.size else 0), error

def run(case, dtype, layout=lambda t: t):
    sizes, weights, stride, pad, dilation, groups = case
    kind = getattr(tn, dtype)
    name = f"conv{len(stride)}d"
    make = lambda *shape: tn.from_numpy(rng.standard_normal(shape)).to(kind)
    x, w, b = make(*sizes), make(*weights), make(weights[0])
    a, u = x.double().numpy(), w.double().numpy()
    want = conv(a, u, stride, pad, dilation, groups)
    g = make(*want.shape)
    dx, dw, db, dg = (layout(t.to("cuda")) for t in (x, w, b, g))
    for t in (dx, dw, db):
        t.requires_grad_()
    options = dict(stride=stride, padding=pad, dilation=dilation, groups=groups)
    y = getattr(F, name)(dx, dw, db, **options)
    check(y.detach(), want + b.double().numpy().reshape(-1, *[1] * len(stride)), dtype)
    check(getattr(F, name)(dx, dw, **options).detach(), want, dtype)
    gx, gw = gradients(a, u, g.double().numpy(), stride, pad, dilation, groups)
    for got, expected in zip(tn.autograd.grad(y, (dx, dw), dg), (gx, gw)):
        check(got, expected, dtype)
    # the transposed convolution: from g's size to x's
    extra = [sizes[d + 2] - ((g.shape[d + 2] - 1) * stride[d] - 2 * pad[d]
                             + dilation[d] * (weights[d + 2] - 1) + 1) for d in range(len(stride))]
    c = make(sizes[1])
    got = getattr(F, name.replace("conv", "conv_transpose"))(
        dg, dw.detach(), c.to("cuda"), output_padding=extra, **options)
    check(got, gx + c.double().numpy().reshape(-1, *[1] * len(stride)), dtype)

def served(*ops):
    for op in ops or ("_conv", "_conv_backward_input", "_conv_backward_weight"):
        assert tn.cuda.fallback_count(op) == (0, 0), (op, tn.cuda.fallback_count(op))
"""


BOTH = pytest.mark.parametrize("cudnn", ["0", "1"])


@BOTH
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype(dtype: str, cudnn: str) -> None:
    text = ORACLE + f"for case in CASES: run(case, {dtype!r})\nserved()"
    harness.script(text, TENON_CUDNN=cudnn)


@pytest.mark.parametrize("most", ["1", "300", "4000"])
def test_little_memory_cuts_the_work(most: str) -> None:
    """Into images, places or channels; half precision is still summed up in float32."""
    text = ORACLE + "for case in CASES: run(case, 'float64'); run(case, 'bfloat16')\nserved()"
    harness.script(text, TENON_CUDA_CONV_BYTES=most, TENON_CUDNN="0")


@BOTH
def test_layouts(cudnn: str) -> None:
    """Channels last, and memory that is not packed at all."""
    harness.script(
        ORACLE
        + """
def spread(t):
    return tn.stack([t, t + 1], -1)[..., 0]
def last(t):
    return t.to(memory_format=tn.channels_last) if t.ndim == 4 else t
def turned(t):
    return t.transpose(0, 1).contiguous().transpose(0, 1) if t.ndim > 1 else t
for case in CASES:
    for layout in (spread, last, turned):
        run(case, "float64", layout)
one = tn.randn(1, 1, 1, 1, dtype=tn.float64, device="cuda").expand(2, 3, 6, 5)
w = tn.randn(4, 3, 3, 3, dtype=tn.float64, device="cuda")
want = conv(one.cpu().numpy(), w.cpu().numpy(), (1, 1), (0, 0), (1, 1), 1)
check(F.conv2d(one, w), want, "float64")
served()
"""
    )


LAST = """
def last(t):
    format = {4: tn.channels_last, 5: tn.channels_last_3d}.get(t.ndim, tn.preserve_format)
    return t.to(memory_format=format)
"""


@BOTH
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_channels_last(dtype: str, cudnn: str) -> None:
    """Of images, of the filter alone, and into memory that is given."""
    harness.script(
        ORACLE
        + LAST
        + f"""
for case in CASES:
    run(case, {dtype!r}, last)
    run(case, {dtype!r}, lambda t, filter=case[1]: last(t) if t.shape == filter else t)
x = tn.randn(2, 8, 5, 6, device="cuda").to(tn.{dtype})
w, b = tn.randn(4, 8, 3, 3, device="cuda").to(x.dtype), tn.randn(4, device="cuda").to(x.dtype)
want = conv(x.double().cpu().numpy(), w.double().cpu().numpy(), (1, 1), (0, 0), (1, 1), 1)
for image, filter in ((last(x), w), (x, last(w)), (last(x), last(w))):
    y = F.conv2d(image, filter)
    assert y.stride() == last(y).stride() and not y.is_contiguous()
    check(y, want, {dtype!r})
    image = image.detach().requires_grad_()
    g = tn.autograd.grad(F.conv2d(image, filter), image, tn.ones_like(y))[0]
    assert g.stride() == last(x).stride()
served()
""",
        TENON_CUDNN=cudnn,
    )


def test_channels_last_are_taken_as_they_are() -> None:
    """Tensor cores want them so: of a packed filter alone, and of its gradient, there is a copy.
    Without tensor cores images and filters are packed, and results laid out again."""
    harness.script(
        """
F = tn.nn.functional
def count(call):
    before = tn.cuda.counters()
    made = call()
    after = tn.cuda.counters()
    return made, *(after[name] - before[name] for name in ("launches", "library_calls"))
for dtype, tf32, copies in ((tn.float16, True, 0), (tn.bfloat16, False, 0), (tn.float32, True, 0),
                            (tn.float32, False, 3)):
    with tn.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
        x = tn.randn(2, 8, 5, 6, device="cuda").to(dtype).to(memory_format=tn.channels_last)
        w = tn.randn(16, 8, 3, 3, device="cuda").to(dtype)
        f = w.to(memory_format=tn.channels_last)
        b = tn.randn(16, device="cuda").to(dtype)
        y, launches, calls = count(lambda: F.conv2d(x, f, padding=1))
        assert (launches, calls) == (copies, 1), (dtype, tf32, launches)
        if copies:
            continue
        assert count(lambda: F.conv2d(x, w, padding=1))[1:] == (1, 1)
        assert count(lambda: F.conv2d(x, f, b, padding=1))[1:] == (1, 1)
        assert count(lambda: F.conv_transpose2d(y, f, padding=1))[1:] == (0, 1)
        y = F.conv2d(x.requires_grad_(), w.requires_grad_(), padding=1)
        g = tn.ones_like(y)
        grads, launches, calls = count(lambda: tn.autograd.grad(y, (x, w), g))
        assert (launches, calls) == (2, 2), (dtype, launches, calls)
        assert grads[0].stride() == x.stride() and grads[1].is_contiguous()
"""
    )


@BOTH
def test_sizes_of_nothing(cudnn: str) -> None:
    """No images, no channels, images that are padding alone."""
    harness.script(
        ORACLE
        + """
for sizes, weights, groups in (((0, 3, 5, 4), (2, 3, 2, 2), 1), ((0, 3, 5, 4), (3, 1, 2, 2), 3),
                               ((2, 3, 0, 4), (2, 3, 2, 2), 1), ((2, 3, 0, 4), (6, 1, 1, 2), 3)):
    run((sizes, weights, (1, 1), (1, 1), (1, 1), groups), "float32")
b = tn.arange(2.0, device="cuda")
y = F.conv2d(tn.ones(2, 0, 5, 4, device="cuda"), tn.ones(2, 0, 2, 2, device="cuda"), b)
assert y.shape == (2, 2, 4, 3) and tn.equal(y, b.reshape(1, 2, 1, 1).expand(2, 2, 4, 3))
served()
"""
    )


@BOTH
def test_a_network_trains_as_on_the_cpu(cudnn: str) -> None:
    harness.script(
        """
from tenon import nn
def train(device):
    tn.manual_seed(0)
    x = tn.randn(16, 3, 12, 12)
    y = (x.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8),
                        nn.Conv2d(8, 16, 1), nn.ReLU(), nn.Conv2d(16, 8, 4, stride=2),
                        nn.Flatten(), nn.Linear(8 * 16, 2)).to(device)
    opt = tn.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = x.to(device), y.to(device)
    for _ in range(6):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    return loss.item(), [p.detach().cpu() for p in net.parameters()]
(a, wa), (b, wb) = train("cpu"), train("cuda")
assert abs(a - b) < 1e-4, (a, b)
assert all(tn.allclose(u, v, atol=1e-4) for u, v in zip(wa, wb))
for op in ("_conv", "_conv_backward_input", "_conv_backward_weight"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""",
        TENON_CUDNN=cudnn,
    )


@BOTH
def test_streams_devices_and_threads(cudnn: str) -> None:
    """Each call's work goes to its own stream, in its order."""
    text = (
        ORACLE
        + """
import threading
x = tn.randn(4, 3, 9, 8, dtype=tn.float64)
w = tn.randn(5, 3, 3, 3, dtype=tn.float64)
want = conv((x * 2 + 1).numpy(), w.numpy(), (1, 1), (1, 1), (1, 1), 1)
def work(device):
    for _ in range(5):
        with tn.cuda.stream(tn.cuda.Stream(device)):
            a, b = x.to(device), w.to(device)
            check(F.conv2d(a * 2 + 1, b, padding=1) * 1, want, "float64")
    done.append(device)
done, count = [], tn.cuda.device_count()
threads = [threading.Thread(target=work, args=(f"cuda:{i % count}",)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 4
served()
"""
    )
    devices = harness.most()
    harness.script(text, devices=devices, TENON_CUDNN=cudnn, TENON_CUDA_HOST_DELAY="500")


@BOTH
def test_second_derivatives(cudnn: str) -> None:
    harness.script(
        """
F = tn.nn.functional
def penalty(device):
    tn.manual_seed(0)
    x, w = (tn.randn(*s, dtype=tn.float64) for s in ((2, 4, 6, 5), (6, 2, 3, 3)))
    x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
    y = F.conv2d(x, w, stride=2, padding=1, groups=2)
    gx, gw = tn.autograd.grad((y * y * y).sum(), (x, w), create_graph=True)
    return [g.cpu() for g in tn.autograd.grad((gx * gx).sum() + (gw * gw).sum(), (x, w))]
for a, b in zip(penalty("cpu"), penalty("cuda")):
    assert tn.allclose(a, b, rtol=1e-10)
""",
        TENON_CUDNN=cudnn,
    )


# ---- cuDNN ---------------------------------------------------------------------------------------

COUNTS = (
    ORACLE
    + """
import ctypes
def count(what):
    ask = ctypes.CDLL("libcudnn.so.9").cudnnHostCount
    ask.restype = ctypes.c_long
    return ask(what.encode())
def convolve(dtype="float32", n=2):
    x = tn.ones(n, 3, 6, 5, dtype=getattr(tn, dtype), device="cuda")
    w = tn.ones(4, 3, 3, 3, dtype=x.dtype, device="cuda")
    y = F.conv2d(x, w)
    assert y.cpu().float().unique().tolist() == [27.0]
cudnn = tn.backends.cudnn
"""
)


def test_a_plan_is_searched_for_once() -> None:
    harness.script(
        COUNTS
        + """
for _ in range(5):
    convolve()
assert (count("search"), count("plan"), count("execute")) == (1, 1, 5)
convolve(n=3)
assert (count("search"), count("plan"), count("execute")) == (2, 2, 6)
alive = count("alive")
assert alive == 2 * 8  # three tensors, convolution, operation, graph, configuration, plan
for _ in range(5):
    convolve(n=3)
assert count("alive") == alive
"""
    )


def test_plans_are_kept_on_disk(tmp_path: Path) -> None:
    env = {"TENON_CUDA_CACHE": str(tmp_path)}
    harness.script(COUNTS + "convolve(); assert count('text') == 0", **env)
    (kept,) = tmp_path.glob("*.plan")
    text = COUNTS + "convolve(); assert (count('search'), count('text')) == (0, 1)"
    harness.script(text, **env)
    kept.write_bytes(kept.read_bytes()[:-400] + b"?")  # what is damaged is made again
    harness.script(COUNTS + "convolve(); assert count('search') == 1", **env)


def test_engines_compute_as_promised() -> None:
    """Of the harness: 0 has tensor cores and is not deterministic, 1 has tensor cores."""
    harness.script(
        COUNTS
        + """
cudnn.allow_tf32 = False
convolve()
assert count("engine") == 2
cudnn.allow_tf32 = True
convolve()
assert count("engine") == 0
cudnn.deterministic = True
convolve()
assert count("engine") == 1
convolve("float16")
assert count("engine") == 1
cudnn.deterministic = False
convolve("float16")
assert count("engine") == 0
tn.use_deterministic_algorithms(True)
convolve("float16")
assert count("engine") == 1
"""
    )


def test_benchmark_times_engines() -> None:
    harness.script(
        COUNTS
        + """
cudnn.benchmark = True
convolve("float16")  # three engines run twice each, and the best once more
assert count("execute") == 7 and count("plan") == 4
convolve("float16")
assert count("execute") == 8 and count("plan") == 4
cudnn.benchmark_limit = 1
convolve("float16", n=3)
assert count("execute") == 8 + 3
"""
    )


def test_a_recorded_graph_holds_convolutions() -> None:
    """Timing waits, so a stream that is recorded takes the first engine instead."""
    harness.script(
        COUNTS
        + """
cudnn.benchmark = True
x = tn.ones(2, 3, 6, 5, device="cuda")
w = tn.ones(4, 3, 3, 3, device="cuda")
graph = tn.cuda.CUDAGraph()
with tn.cuda.graph(graph):
    y = F.conv2d(x, w) + 1
assert (count("plan"), count("execute")) == (1, 1)
x.mul_(2)
graph.replay()
tn.cuda.synchronize()
assert y.unique().tolist() == [55.0]
"""
    )


def test_groups_of_one_channel_are_left_to_own_kernels() -> None:
    """But for half precision, which cuDNN has engines for."""
    harness.script(
        COUNTS
        + """
for dtype, executed in (("float32", 0), ("float64", 0), ("float16", 5)):
    run(CASES[5], dtype)
    assert count("execute") == executed, dtype
"""
    )


def test_groups_of_one_channel_in_many_planes() -> None:
    """Threads that make several pixels, and sums over images in several parts; as on the CPU."""
    harness.script("""
F = tn.nn.functional
for sizes, kernel, kw in (((2, 400, 24, 24), 3, {"padding": 1}), ((40, 3, 26, 27), 5, {}),
                          ((24, 3, 26, 27), 3, {"stride": 2, "padding": 1, "dilation": 2})):
    for layout in (tn.contiguous_format, tn.channels_last)[: 1 if sizes[1] > 3 else 2]:
        x, w = tn.randn(*sizes), tn.randn(sizes[1], 1, kernel, kernel)
        found = []
        for device in ("cpu", "cuda"):
            a, u = x.to(device).to(memory_format=layout).requires_grad_(), w.to(device)
            u.requires_grad_()
            y = F.conv2d(a, u, groups=sizes[1], **kw)
            found.append([y.detach(), *tn.autograd.grad(y, (a, u), tn.ones_like(y))])
        for want, got in zip(*found):
            assert tn.allclose(got.cpu(), want, rtol=1e-4, atol=1e-3), (sizes, layout)
for op in ("_conv", "_conv_backward_input", "_conv_backward_weight"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


def test_a_plan_of_the_last_resort() -> None:
    harness.script(COUNTS + "convolve(); assert count('engine') == 9", TENON_CUDNN_HOST="fallback")


@pytest.mark.parametrize("trouble", ["old", "no-handle", "no-engine", "unsupported"])
def test_own_kernels_take_over(trouble: str) -> None:
    text = COUNTS + "for case in CASES[:6]: run(case, 'float64')\nserved()"
    harness.script(text + "\nassert count('execute') == 0", TENON_CUDNN_HOST=trouble)


def test_a_failed_execution_is_an_error() -> None:
    said = harness.script(
        COUNTS
        + """
try:
    convolve()
except RuntimeError as err:
    print(err)
convolve()  # by own kernels: the plan is given up
""",
        TENON_CUDNN_HOST="broken",
    )
    assert "_conv: cuDNN returned error 5000 (the harness was asked to fail)" in said


def test_settings_reach_the_plugin() -> None:
    harness.script(
        f"least = {90000 if harness.ON_GPU else 92800}\n"
        + """
cudnn = tn.backends.cudnn
assert (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit) == (True, False, 10)
assert (cudnn.deterministic, cudnn.allow_tf32) == (False, True)
cudnn.allow_tf32 = False
cudnn.benchmark = True  # before the plugin is loaded
assert cudnn.is_available() and least <= cudnn.version() < least + 10000
option = tn.cuda._settings().option
assert option(b"cudnn_benchmark") == 1 and option(b"cudnn") == 1
cudnn.enabled = False
assert option(b"cudnn") == 0 and cudnn.enabled is False
with cudnn.flags(enabled=True, deterministic=True, benchmark_limit=3):
    assert option(b"cudnn") == option(b"cudnn_deterministic") == option(b"cudnn_allow_tf32") == 1
    assert option(b"cudnn_benchmark") == 0 and option(b"cudnn_benchmark_limit") == 3
assert option(b"cudnn") == option(b"cudnn_deterministic") == option(b"cudnn_allow_tf32") == 0
assert cudnn.benchmark and cudnn.benchmark_limit == 10
"""
    )


def test_doctor_says_what_is_wrong() -> None:
    said = harness.run("-m", "tenon", "doctor").stdout
    found = re.search(r"cuDNN (9\.\d+\.\d+)\n", said)
    assert found and (harness.ON_GPU or found[1] == "9.28.0"), said


def test_doctor_says_that_cudnn_is_old() -> None:
    said = harness.run("-m", "tenon", "doctor", TENON_CUDNN_HOST="old").stdout
    assert "cuDNN is older than 9.0" in said and "pip install nvidia-cudnn-cu13" in said


def link(folder: Path, *names: str) -> None:
    """A machine that has some of the libraries alone."""
    for name in ("libcuda.so.1", "libcublas.so.13", "libnvrtc.so.13", *names):
        (folder / name).symlink_to(harness.FOLDER / name)


def test_cudnn_is_not_touched_without_what_it_needs(tmp_path: Path) -> None:
    """It would end the process where cuBLASLt is missing."""
    link(tmp_path, "libcudnn.so.9")
    (tmp_path / "libcublasLt.so.13").write_text("this is no library")
    text = ORACLE + "run(CASES[1], 'float32')\nserved()\nassert tn.backends.cudnn.version() is None"
    done = harness.run("-c", "import tenon as tn\n" + text, folder=tmp_path, TENON_CUDA_PATH="")
    assert done.returncode == 0, done.stderr
    said = harness.run("-m", "tenon", "doctor", folder=tmp_path, TENON_CUDA_PATH="").stdout
    assert "cuDNN needs libcublasLt.so.13, which is missing" in said


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_library_that_lacks_functions(tmp_path: Path) -> None:
    """Convolutions run all the same, and doctor says why without cuDNN."""
    link(tmp_path)
    source = tmp_path / "half.c"
    source.write_text("unsigned long cudnnGetVersion(void) { return 92800; }\n", encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcudnn.so.9"), str(source)]
    subprocess.run(command, check=True)
    text = ORACLE + "run(CASES[1], 'float32')\nserved()\nassert tn.backends.cudnn.version() is None"
    done = harness.run("-c", "import tenon as tn\n" + text, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = harness.run("-m", "tenon", "doctor", folder=tmp_path).stdout
    assert "cuDNN lacks the function cudnnGetCudartVersion" in said
