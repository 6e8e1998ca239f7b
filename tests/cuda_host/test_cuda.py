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
    done = harness.run(*args, TENON_TEST_DEVICE="cuda")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@needs_harness
def test_the_device_has_its_name() -> None:
    harness.script("""
assert tn.cuda.is_available() and tn.cuda.device_count() == 2
assert "Tenon CUDA host harness (no GPU)" in tn.cuda.get_device_name()
x = tn.arange(6.0, device="cuda:1").reshape(2, 3)
assert str(x.device) == "cuda:1"
assert (x + x.t().contiguous().t()).tolist() == [[0, 2, 4], [6, 8, 10]]
""")


@needs_harness
def test_layouts_of_every_width() -> None:
    """Numbers, broadcast and strided operands, odd sizes and starts: as on the CPU."""
    harness.script("""
import itertools
for dtype, n in itertools.product(("uint8", "float16", "int32", "float64"), (1, 3, 257, 1030)):
    x = (tn.arange(4.0 * n).reshape(4, n) % 50).to(getattr(tn, dtype))
    d = x.to("cuda")
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, 1:], lambda t: t[1:, ::2],
                 lambda t: t[2, 0], lambda t: t[:1].expand(7, n), lambda t: t.flip(1)):
        a, b = view(x), view(d)
        assert tn.equal(b.cpu(), a) and tn.equal((b + 3).cpu(), a + 3)
        assert tn.equal((b * b[..., :1] if b.ndim else b * b).cpu(),
                        a * a[..., :1] if a.ndim else a * a)
        assert tn.equal(b.to(tn.float32).cpu(), a.to(tn.float32))
""")


# ---- Failures ------------------------------------------------------------------------------------

LATE = """
import ctypes as c
x = tn.ones(1000, device="cuda")
tn.cuda.synchronize()
c.CDLL("libcuda.so.1").cuMemFree_v2(c.c_uint64(x.data_ptr()))  # behind Tenon's back
try:
    y = x.relu()
    z = tn.ones(2, device="cuda") + 1
    tn.cuda.synchronize()
except RuntimeError as err:
    print(err)
"""


@needs_harness
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_a_late_failure_names_an_operator(blocking: str) -> None:
    said = harness.script(LATE, TENON_LAUNCH_BLOCKING=blocking, TENON_MEMORY_CACHE="0")
    assert "illegal memory access" in said and "'relu' was launched first" in said
    assert ("found by relu;" in said) == (blocking == "1")


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


@pytest.mark.skipif(not TOOLKITS, reason="no CUDA toolkit")
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_our_facts_are_those_of_the_toolkit(tmp_path: Path) -> None:
    source = tmp_path / "facts.c"
    source.write_text(FACTS, encoding="utf-8")
    command = [
        "cc",
        "-c",
        "-D__CUDA_API_VERSION_INTERNAL",
        f"-I{TOOLKITS[-1].parent}",
        f"-I{CUDA}",
        source,
    ]
    done = subprocess.run([*command, "-o", tmp_path / "facts.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
@pytest.mark.parametrize("options", [["copy.cu"], ["cast.cu", "-DTMPL_DTYPE=7"]])
def test_nvcc_has_no_complaint(tmp_path: Path, options: list[str]) -> None:
    includes = [f"-I{CUDA / 'kernels'}", f"-I{CUDA.parent / 'common'}"]
    source, *defines = options
    command = [sys.executable, CUDA / "compile.py", shutil.which("nvcc"), "dev"]
    command += [CUDA / "kernels" / source, tmp_path / "out.fatbin", *includes, *defines]
    command += ["-Werror", "all-warnings"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "out.fatbin.log").read_text(encoding="utf-8")
    assert " registers" in log and "0 bytes spill stores" in log
