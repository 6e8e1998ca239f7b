"""What goes wrong around the CUDA plugin, on the host harness: a device that is lost, libraries of
another version, indices that do not exist, forks, exits. Errors are clear, and the CPU works."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


def build(folder: Path, name: str, text: str) -> None:
    source = folder / "library.c"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", folder / name], check=True)


# ---- A device that is lost -----------------------------------------------------------------------

LOST = """
import pytest
x = tn.ones(1000, device="cuda")
other = tn.ones(3, device="cuda:1")
side = tn.cuda.Stream()
event = tn.cuda.Event()
p = tn.ones(5).pin_memory()
lost = "cuda:0: unknown error.*nothing on this device can be used"
with pytest.raises(RuntimeError, match=lost):
    for _ in range(20):
        x = (x * 2).sqrt()
    x.cpu()
for ask in (lambda: x + 1, x.cpu, tn.cuda.synchronize, lambda: tn.ones(3, device="cuda"),
            lambda: p.to("cuda", non_blocking=True), side.synchronize, tn.cuda.mem_get_info,
            lambda: tn.empty(1 << 20, device="cuda") + 1, lambda: event.record(side)):
    try:
        ask()
    except RuntimeError as err:
        assert "cuda:0" in str(err), err
graph = tn.cuda.CUDAGraph()
with pytest.raises(RuntimeError, match="cuda:0"):
    with tn.cuda.graph(graph):
        x + 1
assert not tn.cuda.is_current_stream_capturing()
assert (other + 1).tolist() == [2.0] * 3  # the other device, and the CPU
assert (tn.ones(3) + 1).tolist() == [2.0] * 3 and p.sum().item() == 5
del x, side, event, graph
tn.cuda.empty_cache()
print("fine")
"""


@pytest.mark.parametrize("cache", ["0", "1"])
def test_a_lost_device(cache: str) -> None:
    said = harness.script(LOST, devices=2, TENON_CUDA_HOST_LOST="9", TENON_MEMORY_CACHE=cache)
    assert said == "fine\n"


def test_a_device_that_is_lost_in_backward() -> None:
    harness.script(
        """
import pytest
from tenon import nn
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
x = tn.randn(4, 8)
want = net(x).sum()
want.backward()
far = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
y = far(x.cuda()).sum()
with pytest.raises(RuntimeError, match="cuda:0"):
    for _ in range(10):
        y.backward(retain_graph=True)
        tn.cuda.synchronize()
net.zero_grad()
net(x).sum().backward()
assert net[0].weight.grad.abs().sum() > 0
""",
        TENON_CUDA_HOST_LOST="30",
    )


# ---- Libraries of another version ----------------------------------------------------------------


@needs_cc
def test_a_driver_that_lacks_a_function(tmp_path: Path) -> None:
    text = "int cuDriverGetVersion(int *v) { *v = 12020; return 0; }\n"
    build(tmp_path, "libcuda.so.1", text + "int cuInit(unsigned f) { return (int)f; }\n")
    done = harness.run(
        "-c",
        "import tenon as tn\n"
        "assert not tn.cuda.is_available() and tn.ones(2).sum().item() == 2\n"
        "try:\n    tn.ones(2, device='cuda')\n"
        "except RuntimeError as err:\n    print(err)\n",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    words = "libcuda.so.1 (CUDA 12.2) lacks the function cuGetErrorString; install a newer driver"
    assert words in done.stdout, done.stdout


@needs_cc
def test_a_cublas_that_lacks_a_function(tmp_path: Path) -> None:
    """Products fail and say so; everything else goes on."""
    build(tmp_path, "libcublas.so.13", "int cublasCreate_v2(void **h) { *h = 0; return 0; }\n")
    (tmp_path / "libcuda.so.1").symlink_to(harness.FOLDER / "libcuda.so.1")
    (tmp_path / "libnvrtc.so.13").symlink_to(harness.FOLDER / "libnvrtc.so.13")
    done = harness.run(
        "-c",
        "import tenon as tn\n"
        "x = tn.ones(3, 3, device='cuda')\n"
        "try:\n    x @ x\n"
        "except RuntimeError as err:\n    print(err)\n"
        "assert (x + x).sum().item() == 18 and (tn.ones(2, 2) @ tn.ones(2, 2)).sum() == 8\n",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "cuBLAS lacks the function cublas" in done.stdout, done.stdout


# ---- Indices -------------------------------------------------------------------------------------


def test_indices_that_do_not_exist() -> None:
    harness.script(
        """
import pytest
x = tn.ones(2)
there = tn.cuda.device_count()
for ask in (lambda: tn.ones(2, device="cuda:2"), lambda: x.to("cuda:5"), lambda: x.cuda(3),
            lambda: tn.cuda.Stream(2), lambda: tn.cuda.synchronize(9),
            lambda: tn.cuda.get_device_properties(2), lambda: tn.cuda.memory_allocated("cuda:7"),
            lambda: tn.cuda.current_stream(2), lambda: tn.cuda.get_rng_state(4)):
    with pytest.raises(RuntimeError, match=rf"'cuda' has no index \\d \\(there are {there}\\)"):
        ask()
for bad in ("cuda:-1", "cuda:", "cuda:01", "cuda:1x", "cuda:1:0", "cuda:99999999999"):
    with pytest.raises(RuntimeError, match="Invalid device string|has no index"):
        tn.ones(2, device=bad)
with pytest.raises(ValueError, match="expected a device of the kind 'cuda'"):
    tn.cuda.synchronize("cpu")
""",
        devices=harness.most(),
    )


# ---- Forks and exits -----------------------------------------------------------------------------


def test_a_forked_child_computes_on_the_cpu() -> None:
    """It is told that CUDA is gone, gives nothing back, and ends well."""
    said = harness.script("""
import os, sys
x = tn.ones(3000, device="cuda")
s, e = tn.cuda.Stream(), tn.cuda.Event()
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    y = x + 1
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    told = 0
    for ask in (lambda: x + 1, x.cpu, lambda: tn.ones(2, device="cuda:0"), tn.cuda.synchronize,
                g.replay, e.record, s.synchronize, lambda: tn.cuda.Stream()):
        try:
            ask()
        except RuntimeError as err:
            told += "forked" in str(err) and "spawn" in str(err)
    del x, y, s, e, g
    tn.cuda.empty_cache()
    print(told, (tn.ones(4) * 2).sum().item(), flush=True)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
g.replay()
assert y.sum().item() == 6000
""")
    assert said == "8 8.0\n"


ENDS = {
    "while a graph is captured": "tn.cuda.CUDAGraph().capture_begin()\ny = x.exp()\n",
    "while a graph runs": (
        "g = tn.cuda.CUDAGraph()\nwith tn.cuda.graph(g):\n    y = x.exp()\n"
        "for _ in range(10):\n    g.replay()\n"
    ),
    "with streams and threads at work": (
        # Modules first: CPython 3.11 crashes where a daemon imports while the process ends.
        "import threading\ntn.cuda.synchronize()\nready = threading.Barrier(4)\n"
        "def work():\n"
        "    ready.wait()\n"
        "    with tn.cuda.stream(tn.cuda.Stream()):\n"
        "        for _ in range(100):\n            y = x.exp().sum()\n"
        "[threading.Thread(target=work, daemon=True).start() for _ in range(3)]\n"
        "ready.wait()\n"
    ),
    "with copies on their way": (
        "p = tn.ones(1 << 16).pin_memory()\n"
        "for _ in range(10):\n    d = p.to('cuda', non_blocking=True)\n    x = d.sum()\n"
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_process_may_end(end: str) -> None:
    text = 'x = tn.ones(3000, device="cuda")\n' + ENDS[end]
    harness.script(text, TENON_CUDA_HOST_DELAY="2000")
    done = harness.run("-c", "import tenon as tn\n" + text + "raise SystemExit(3)")
    assert done.returncode == 3, done.stderr
