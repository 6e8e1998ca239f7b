"""The CUDA plugin on the host harness: the operator suite, failures, machines where something is
missing. The tests that need no harness run everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import harness
import pytest

needs_harness = pytest.mark.skipif(
    not harness.is_built(), reason="no C++ compiler: no CUDA harness"
)
CUDA = harness.ROOT / "backends" / "cuda"
TOOLKITS = sorted(Path("/usr/local").glob("cuda*/include/cuda.h"))


@needs_harness
def test_every_operator() -> None:
    """Values, layouts, out=, in-place forms and gradients of the whole table."""
    args = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_ops.py"]
    done = harness.run(*args, TENON_TEST_DEVICE="cuda", TENON_MEMORY_CACHE="0")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@needs_harness
def test_the_device_has_its_name() -> None:
    harness.script(
        """
assert tn.cuda.is_available() and tn.cuda.device_count() == 2
assert "Tenon CUDA host harness (no GPU)" in tn.cuda.get_device_name()
x = tn.arange(6.0, device="cuda:1").reshape(2, 3)
assert str(x.device) == "cuda:1"
assert (x + x.t().contiguous().t()).tolist() == [[0, 2, 4], [6, 8, 10]]
""",
        devices=2,
    )


@needs_harness
def test_layouts_of_every_width() -> None:
    """Numbers, broadcast and strided operands, odd sizes and starts: as on the CPU."""
    harness.script("""
import itertools
for dtype, n in itertools.product(("uint8", "float16", "int32", "float64"), (1, 3, 257, 1030)):
    x = (tn.arange(4.0 * n).reshape(4, n) % 50).to(getattr(tn, dtype))
    d = x.to("cuda")
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, 1:], lambda t: t[1:, ::2],
                 lambda t: t[2, 0], lambda t: t[:1].expand(7, n), lambda t: t.flip(1),
                 lambda t: t[:, 1:].flip(1), lambda t: t.flip(0, 1)):
        a, b = view(x), view(d)
        assert tn.equal(b.cpu(), a) and tn.equal((b + 3).cpu(), a + 3)
        assert tn.equal((b * b[..., :1] if b.ndim else b * b).cpu(),
                        a * a[..., :1] if a.ndim else a * a)
        assert tn.equal(b.to(tn.float32).cpu(), a.to(tn.float32))
""")


@needs_harness
def test_products_of_every_layout() -> None:
    """Rows, columns, neither packed; batches, broadcast additions; without a call on the CPU."""
    harness.script(
        """
import numpy as np
rng = np.random.default_rng(0)
def pair(*shape):
    x = rng.standard_normal(shape)
    return x, tn.from_numpy(x).to("cuda")
def check(got, want):
    assert np.abs(got.cpu().numpy() - want).max() < 1e-12
(a, da), (b, db), (c, dc) = pair(6, 10), pair(10, 8), pair(8)
for i, j in ((slice(None), slice(None)), (slice(1, None, 2), slice(0, 6, 3))):
    for k in (slice(None), slice(None, None, 2)):
        for left in (da[i, k], da.t().contiguous().t()[i, k]):
            check(left @ db[k, j], a[i, k] @ b[k, j])
            got = tn.addmm(dc[j], left, db[k, j], beta=2, alpha=3)
            check(got, 2 * c[j] + 3 * a[i, k] @ b[k, j])
            check(left @ dc[:1].expand(left.shape[1]), a[i, k] @ np.repeat(c[:1], left.shape[1]))
(x, dx), (y, dy) = pair(3, 4, 5), pair(3, 5, 2)
check(dx @ dy, x @ y)
check(dx.transpose(1, 2) @ dx, x.transpose(0, 2, 1) @ x)
check(dx[:1].expand(3, 4, 5) @ dy, x[:1] @ y)
check(tn.nn.functional.linear(dx, dx[0], dc[:4]), x @ x[0].T + c[:4])
check(dx[0, 0] @ dy[0, :, 0], x[0, 0] @ y[0, :, 0])
check(da[:, :0] @ db[:0], np.zeros((6, 8)))
nan = tn.full((6, 8), float("nan"), device="cuda", dtype=tn.float64)
check(tn.addmm(nan, da, db, beta=0), a @ b)
for op in ("mm", "addmm", "bmm", "mv", "dot", "linear"):
    assert fallbacks(op) == (0, 0), op
""".replace("fallbacks", "tn.cuda.fallback_count")
    )


BIASED = """
import ctypes
import numpy as np
F = tn.nn.functional
def count(what):
    ask = ctypes.CDLL("libcublasLt.so.13").cublasLtHostCount
    ask.restype = ctypes.c_long
    return ask(what.encode())
rng = np.random.default_rng(0)
def biased(dtype=tn.float32, rows=5, turn=False, skip=1):
    x, w, b = (rng.integers(-4, 5, s).astype(float) for s in ((rows, 6), (7, 6 * skip), (7,)))
    want = x @ w[:, ::skip].T + b
    d = [tn.from_numpy(v).to(dtype).to("cuda") for v in (x, w, b)]
    d[1] = d[1][:, ::skip]
    if turn:
        d[0] = d[0].t().contiguous().t()
    assert np.array_equal(F.linear(*d).double().cpu().numpy(), want)
    assert np.array_equal(tn.addmm(d[2], d[0], d[1].t()).double().cpu().numpy(), want)
"""


@needs_harness
def test_a_bias_is_added_in_the_same_step() -> None:
    """Its algorithm is searched for once per shape."""
    harness.script(
        BIASED
        + """
for dtype in (tn.float32, tn.float16, tn.bfloat16):
    biased(dtype)
assert (count("search"), count("product")) == (3, 6)
biased(turn=True)
assert (count("search"), count("product")) == (4, 8)
biased(skip=2)  # a weight that must be packed first
biased(rows=0)
biased(rows=1)
before = count("product")
biased(tn.float64)
c = tn.ones(7, device="cuda")
a, b = tn.ones(5, 6, device="cuda"), tn.ones(6, 7, device="cuda")
assert tn.addmm(c, a, b, beta=2).unique().tolist() == [8]
assert tn.addmm(c, a, b, alpha=2).unique().tolist() == [13]
assert tn.addmm(tn.ones(5, 1, device="cuda"), a, b).unique().tolist() == [7]
assert tn.addmm(c[::2].repeat(2)[:7], a[:, :0], b[:0]).unique().tolist() == [1]
assert count("product") == before
for op in ("linear", "addmm"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


@needs_harness
@pytest.mark.parametrize("trouble", ["no-handle", "no-algorithm", "unsupported"])
def test_without_a_way_to_add_a_bias(trouble: str) -> None:
    harness.script(BIASED + "biased()\nassert count('product') == 0", TENON_CUBLASLT_HOST=trouble)


@needs_harness
def test_a_failed_product_is_an_error() -> None:
    text = BIASED + "biased()"
    done = harness.run("-c", "import tenon as tn\n" + text, TENON_CUBLASLT_HOST="broken")
    assert "linear: cuBLASLt returned error 14" in done.stderr


@needs_harness
def test_reduced_precision_is_a_switch() -> None:
    harness.script("""
matmul = tn.backends.cuda.matmul
assert matmul.allow_fp16_reduced_precision_reduction
assert matmul.allow_bf16_reduced_precision_reduction
matmul.allow_bf16_reduced_precision_reduction = False  # before the plugin is loaded
import ctypes
def mode(dtype):
    x = tn.ones(2, 2, device="cuda", dtype=dtype)
    assert (x @ x).tolist() == [[2, 2], [2, 2]]
    return ctypes.CDLL("libcublas.so.13").cublasHostMathMode()
WIDE = 16
assert [mode(d) for d in (tn.float16, tn.bfloat16, tn.float32)] == [0, WIDE, WIDE]
matmul.allow_bf16_reduced_precision_reduction = True
matmul.allow_fp16_reduced_precision_reduction = False
assert [mode(d) for d in (tn.float16, tn.bfloat16)] == [WIDE, 0]
""")


@needs_harness
def test_reductions_of_every_cut() -> None:
    """Along rows and columns, one block and many, in both stages; twice the same bits."""
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
for shape in ((3, 40000), (40000, 3), (257, 300), (5, 1, 7, 33), (1,)):
    x = rng.standard_normal(shape)
    d = tn.from_numpy(x).to("cuda")
    for dim in (None, *range(len(shape)), (0, len(shape) - 1)):
        axes = {} if dim is None else {"dim": tuple({dim} if isinstance(dim, int) else set(dim))}
        at = axes.get("dim")
        for name, want in (("sum", np.sum), ("mean", np.mean), ("amax", np.max), ("amin", np.min)):
            got = getattr(d, name)(**axes)
            assert np.allclose(got.cpu().numpy(), want(x, axis=at), rtol=1e-12, atol=1e-10)
            assert tn.equal(got.cpu(), getattr(d, name)(**axes).cpu())
        if x.size > 1:
            got = d.var(**axes, correction=0).cpu().numpy()
            assert np.allclose(got, np.var(x, axis=at), rtol=1e-12)
        assert d.gt(2.5).any().item() == (x > 2.5).any()
n = tn.arange(300, device="cuda") % 7
assert n.sum().item() == int((np.arange(300) % 7).sum()) and n.amax().item() == 6
bad = tn.tensor([1.0, float("nan"), 2.0], device="cuda")
assert bad.amax().isnan().item() and bad.sum().isnan().item()
empty = tn.zeros(0, 4, device="cuda")
assert empty.sum(0).tolist() == [0.0] * 4 and empty.mean(0).isnan().all().item()
for op in ("sum", "mean", "amax", "amin", "_var"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


@needs_harness
def test_softmax_and_cross_entropy() -> None:
    harness.script("""
F = tn.nn.functional
tn.manual_seed(0)
for shape, dim in (((5, 7), 1), ((5, 7), 0), ((3, 40, 50), 1), ((4, 300), -1), ((40, 3, 33), 0)):
    x, g = tn.randn(2, *shape, dtype=tn.float64)
    c, d = x.clone().requires_grad_(), x.to("cuda").requires_grad_()
    for f in (tn.softmax, tn.log_softmax):
        want, got = f(c, dim), f(d, dim)
        assert tn.allclose(got.cpu(), want, atol=1e-13), (shape, dim)
        (want,), (got,) = tn.autograd.grad(want, c, g), tn.autograd.grad(got, d, g.to("cuda"))
        assert tn.allclose(got.cpu(), want, atol=1e-13), (shape, dim)
classes = tn.randint(0, 37, (50,))
classes[3] = -100
for reduction in ("mean", "sum", "none"):
    c = tn.randn(50, 37, dtype=tn.float64).requires_grad_()
    d = c.detach().to("cuda").requires_grad_()
    want = F.cross_entropy(c, classes, reduction=reduction)
    got = F.cross_entropy(d, classes.to("cuda"), reduction=reduction)
    assert tn.allclose(got.cpu(), want, atol=1e-12)
    want.sum().backward()
    got.sum().backward()
    assert tn.allclose(d.grad.cpu(), c.grad, atol=1e-12)
for op in ("softmax", "log_softmax", "_softmax_backward", "_log_softmax_backward",
           "_cross_entropy", "_cross_entropy_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


@needs_harness
def test_positions_from_indices() -> None:
    harness.script("""
x = tn.arange(210.0).reshape(5, 6, 7)
d = x.to("cuda")
for dtype in (tn.int64, tn.int32):
    i = (tn.arange(24).reshape(4, 3, 2) % 3).to(dtype)
    for dim in range(3):
        assert tn.equal(d.gather(dim, i.long().to("cuda")).cpu(), x.gather(dim, i.long()))
        for a, b in ((x, d), (x.transpose(0, 2), d.transpose(0, 2))):
            j = i[:, 0, 0]
            got = b.index_select(dim, j.to("cuda"))
            assert tn.equal(got.cpu(), a.index_select(dim, j)), dim
    got = tn.nn.functional.embedding(i.to("cuda"), d[0])
    assert tn.equal(got.cpu(), tn.nn.functional.embedding(i, x[0]))
z = tn.zeros(3, 5, device="cuda")
z.scatter_(1, tn.tensor([[0], [2], [4]], device="cuda"), tn.ones(3, 2, device="cuda"))
assert z.tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
assert tn.arange(2, 9, 2, device="cuda").tolist() == [2, 4, 6, 8]
for op in ("gather", "index_select", "embedding", "_scatter_", "_arange_"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


@needs_harness
def test_a_bad_index_is_a_late_failure_and_harms_nothing() -> None:
    said = harness.script("""
x = tn.arange(5.0, device="cuda")
y = x.index_select(0, tn.tensor([77], device="cuda"))
try:
    y.cpu()
except RuntimeError as err:
    print(err)
assert (x + 1).tolist() == [1, 2, 3, 4, 5]
""")
    assert "cuda:0: 'index_select': index 77 is out of range for size 5" in said


TRAIN = """
from tenon import nn
def train(device, make):
    tn.manual_seed(0)
    x = tn.randn(96, 20)
    y = (x[:, :10].sum(1) > x[:, 10:].sum(1)).long() + (x[:, 0] > 1).long()
    net = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 3)).to(device)
    opt = make(net.parameters())
    x, y = x.to(device), y.to(device)
    for _ in range(30):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    return loss.item(), [p.detach().cpu() for p in net.parameters()]
"""


@needs_harness
@pytest.mark.parametrize(
    "optimizer",
    ["SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)", "AdamW(p, lr=0.01)"],
)
def test_training_is_that_of_the_cpu(optimizer: str) -> None:
    """And every step of it runs on the device."""
    harness.script(
        TRAIN
        + f"""
make = lambda p: tn.optim.{optimizer}
(a, wa), (b, wb) = train("cpu", make), train("cuda", make)
assert a < 0.5 and abs(a - b) < 1e-4, (a, b)
assert all(tn.allclose(u, v, atol=1e-3) for u, v in zip(wa, wb))
for op in ("linear", "mm", "_gelu", "_gelu_backward", "sum", "_cross_entropy", "_copy",
           "_cross_entropy_backward", "_sgd_step", "_adam_step"):
    assert tn.cuda.fallback_count(op)[1] == 0, op
"""
    )


# ---- Failures ------------------------------------------------------------------------------------

LATE = """
import ctypes as c
x = tn.ones(1000, device="cuda")
tn.cuda.synchronize()
c.CDLL("libcuda.so.1").cuMemFree_v2(c.c_uint64(x.data_ptr()))  # behind Tenon's back
try:
    y = x.relu()
    print("launched")
    z = tn.ones(2, device="cuda") + 1
    tn.cuda.synchronize()
except RuntimeError as err:
    print(err)
"""


@needs_harness
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_a_late_failure_names_an_operator(blocking: str) -> None:
    said = harness.script(LATE, TENON_LAUNCH_BLOCKING=blocking, TENON_MEMORY_CACHE="0")
    assert "illegal memory access" in said and "'relu'" in said
    assert ("launched" in said) == (blocking == "0")


@needs_harness
def test_out_of_memory() -> None:
    text = """
x = tn.ones(1000, device="cuda")
try:
    tn.ones(2, 3000, device="cuda") * x.sum()
except MemoryError as err:
    print(err)
assert (x + 1).sum().item() == 2000
"""
    said = harness.script(text, TENON_CUDA_HOST_MEMORY="20000", TENON_MEMORY_CACHE="0")
    assert "cuda:0" in said and "out of memory" in said


@needs_harness
def test_a_forked_child_is_told() -> None:
    harness.script("""
import os, sys
x = tn.ones(3, device="cuda")
pid = os.fork()
if pid == 0:
    try:
        x + 1
    except RuntimeError as err:
        os._exit(0 if "forked" in str(err) else 1)
    os._exit(2)
assert os.waitpid(pid, 0)[1] == 0
assert (x + 1).tolist() == [2, 2, 2]
""")


@needs_harness
def test_the_process_may_end_with_work_in_flight() -> None:
    text = """
x = tn.ones(300000, device="cuda")
for _ in range(20):
    x = x.exp().log()
"""
    harness.script(text, TENON_CUDA_HOST_DELAY="20000")


@needs_harness
def test_tf32_is_a_switch() -> None:
    harness.script("""
matmul = tn.backends.cuda.matmul
assert not matmul.allow_tf32
matmul.allow_tf32 = True  # before the plugin is loaded
x = tn.ones(2, 2, device="cuda")
table = tn.cuda._settings()
assert matmul.allow_tf32 and table.is_tf32_allowed() == 1 and (x @ x).tolist() == [[2, 2], [2, 2]]
matmul.allow_tf32 = False
tn.set_float32_matmul_precision("high")
assert matmul.allow_tf32 and table.is_tf32_allowed() == 1
tn.set_float32_matmul_precision("highest")
assert table.is_tf32_allowed() == 0 and (x @ x).tolist() == [[2, 2], [2, 2]]
""")


@needs_harness
def test_doctor_names_the_libraries(tmp_path: Path) -> None:
    done = harness.run("-m", "tenon", "doctor")
    assert done.returncode == 0 and "cuda        cuBLAS 13" in done.stdout, done.stdout
    (tmp_path / "libcuda.so.1").symlink_to(harness.FOLDER / "libcuda.so.1")
    done = harness.run("-m", "tenon", "doctor", folder=tmp_path)
    if "cuBLAS is missing" in done.stdout:  # a machine may have its own
        assert "pip install nvidia-cublas" in done.stdout
    else:
        assert "cuda        cuBLAS 1" in done.stdout


# ---- Machines that lack something ----------------------------------------------------------------

ASK = """
import tenon as tn
assert not tn.cuda.is_available() and tn.cuda.device_count() == 0
assert tn.ones(2).sum().item() == 2
try:
    tn.ones(2, device="cuda")
except RuntimeError as err:
    print(err)
"""


def test_without_a_driver(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("this is no library")  # hides one that the machine has
    done = harness.run("-c", ASK, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "install NVIDIA's driver" in done.stdout


@needs_harness
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TENON_CUDA_HOST_VERSION": "11040"}, "the CUDA driver is too old: it knows CUDA 11.4"),
        ({"TENON_CUDA_HOST_DEVICES": "0"}, "the CUDA driver finds no GPU"),
    ],
)
def test_a_driver_that_does_not_serve(env: dict[str, str], words: str) -> None:
    done = harness.run("-c", ASK, **env)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


# ---- Against NVIDIA's own ------------------------------------------------------------------------

FACTS = """
#include <cuda.h>
#include "driver.h"
#define FUNCTION(member, symbol, params) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \\
                   __typeof__(((cuda_driver *)0)->member)), #symbol);
#define VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUDA_DRIVER_LIST(FUNCTION)
CUDA_RESULT_LIST(VALUE)
CUDA_ATTRIBUTE_LIST(VALUE)
CUDA_FLAG_LIST(VALUE)
"""


def include_folders() -> list[Path]:
    """Where NVIDIA's headers may lie: in a toolkit, with the system's own, in Python packages."""
    folders = [toolkit.parent for toolkit in reversed(TOOLKITS)]
    for path in sys.path:
        folders += sorted(Path(path).glob("nvidia/*/include"))
    return folders


def compile_facts(folder: Path, text: str, *headers: str) -> None:
    folders = include_folders()
    for header in headers:
        if not any((at / header).exists() for at in [*folders, Path("/usr/include")]):
            pytest.skip(f"there is no {header}: ./dev build --cuda")
    source = folder / "facts.c"
    source.write_text(text, encoding="utf-8")
    # Some of our files are called like NVIDIA's: quotes mean ours.
    command = ["cc", "-c", "-D__CUDA_API_VERSION_INTERNAL"]
    command += [f"-iquote{CUDA / room}" for room in ("host", "libs")]
    command += [*(f"-I{at}" for at in folders), source]
    done = subprocess.run([*command, "-o", folder / "facts.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_our_facts_are_those_of_the_toolkit(tmp_path: Path) -> None:
    compile_facts(tmp_path, FACTS, "cuda.h")


CUBLAS_FACTS = """
#include <cublas_v2.h>
#include "cublas.h"
#define FUNCTION(member, symbol, params) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \\
                   __typeof__(((cuda_cublas *)0)->member)), #symbol);
#define VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUBLAS_LIST(FUNCTION)
CUBLAS_VALUE_LIST(VALUE)
"""


CUBLASLT_FACTS = """
#include <cublas_v2.h>
#include <cublasLt.h>
#include "cublaslt.h"
#define FUNCTION(member, symbol, params) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \\
                   __typeof__(((cuda_cublaslt *)0)->member)), #symbol);
#define VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUBLASLT_LIST(FUNCTION)
CUBLASLT_VALUE_LIST(VALUE)
"""


CUDNN_FACTS = """
#include <cudnn_graph.h>
#include "cudnn.h"
#define FUNCTION(member, symbol, result, params) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \\
                   __typeof__(((cuda_cudnn *)0)->member)), #symbol);
#define VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUDNN_LIST(FUNCTION)
CUDNN_VALUE_LIST(VALUE)
"""


CUDNN_RNN_FACTS = """
#include <cudnn.h>
#include "cudnn_rnn.h"
#define FUNCTION(member, symbol, result, params) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \\
                   __typeof__(((cuda_cudnn_rnn *)0)->member)), #symbol);
#define VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUDNN_RNN_LIST(FUNCTION)
CUDNN_RNN_VALUE_LIST(VALUE)
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize(
    ("header", "facts"),
    [
        ("cublas_v2.h", CUBLAS_FACTS),
        ("cublasLt.h", CUBLASLT_FACTS),
        ("cudnn_graph.h", CUDNN_FACTS),
        ("cudnn_adv.h", CUDNN_RNN_FACTS),
    ],
)
def test_our_facts_are_those_of_the_library(tmp_path: Path, header: str, facts: str) -> None:
    compile_facts(tmp_path, facts, header, "cuda_runtime_api.h")


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
@pytest.mark.parametrize("options", [["copy.cu"], ["cast.cu", "-DTMPL_DTYPE=7"]])
def test_nvcc_has_no_complaint(tmp_path: Path, options: list[str]) -> None:
    folders = (CUDA / "kernels", CUDA / "kernels" / "args", CUDA.parent / "common")
    includes = [f"-I{folder}" for folder in folders]
    source, *defines = options
    command = [sys.executable, CUDA / "compile.py", shutil.which("nvcc")]
    command += [CUDA / "kernels" / source, tmp_path / "out.fatbin", *includes, *defines]
    command += ["-Werror", "all-warnings"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "out.fatbin.log").read_text(encoding="utf-8")
    assert " registers" in log and "0 bytes spill stores" in log
