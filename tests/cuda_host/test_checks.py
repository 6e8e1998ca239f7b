"""What the CUDA host harness finds out: kernels that each make one mistake (wrong.cu), launched
through the harness's own driver functions, must fail with the right words;
their right twins must not."""

from __future__ import annotations

import re

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

LAUNCH = """
import ctypes as c
import sys

class Args(c.Structure):
    _fields_ = [("data", c.c_uint64), ("n", c.c_int32), ("how", c.c_int32)]

cu = c.CDLL("libcuda.so.1")
def check(code):
    if code:
        print("code", code)
        sys.exit(0)

def launch(kernel, how, threads, n=256, blocks=1):
    context, module, function = c.c_void_p(), c.c_void_p(), c.c_void_p()
    check(cu.cuInit(0))
    check(cu.cuDevicePrimaryCtxRetain(c.byref(context), 0))
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuModuleLoadData(c.byref(module), b"image"))
    check(cu.cuModuleGetFunction(c.byref(function), module, kernel.encode()))
    data = c.c_uint64()
    check(cu.cuMemAlloc_v2(c.byref(data), c.c_size_t(4 * n)))
    ones = (c.c_int32 * n)(*[1] * n)
    check(cu.cuMemcpyHtoDAsync_v2(data, ones, c.c_size_t(4 * n), None))
    args = Args(data.value, n, how)
    params = (c.c_void_p * 1)(c.addressof(args))
    check(cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, None, params, None))
    check(cu.cuMemcpyDtoHAsync_v2(ones, data, c.c_size_t(4 * n), None))
    check(cu.cuCtxSynchronize())
    print("fine", ones[0])
"""


def launch(kernel: str, how: int, threads: int = 256) -> tuple[str, str]:
    done = harness.run("-c", LAUNCH + f"launch({kernel!r}, {how}, {threads})")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("kernel", "how", "threads", "result"),
    [
        ("wrong_global", -1, 256, 1),
        ("wrong_shared", 0, 256, 256),
        ("wrong_shared", 0, 64, 64),
        ("wrong_warp", 0, 32, 32),
    ],
)
def test_right_kernels_pass(kernel: str, how: int, threads: int, result: int) -> None:
    said, errors = launch(kernel, how, threads)
    wanted = 1 if kernel == "wrong_global" else result
    assert said == f"fine {wanted}", errors


@pytest.mark.parametrize(
    ("kernel", "how", "words"),
    [
        ("wrong_global", 0, "read of 4 bytes at .*0 bytes past the end of the nearest block"),
        ("wrong_global", -257, "read of 4 bytes at .*bytes before|bytes past"),
        ("wrong_shared", 1, "outside of every shared array"),
        ("wrong_shared", 2, "read of shared array 'sum' at byte 512, which nobody has written"),
        ("wrong_shared", 3, "divergence: of 256 threads 128 wait at a barrier"),
        ("wrong_shared", 4, "divergence: of 256 threads 256 wait at a barrier"),
        ("wrong_warp", 1, "(divergence: .* 16 for their warp|a lane of its warp that has ended)"),
    ],
)
def test_wrong_kernels_are_found(kernel: str, how: int, words: str) -> None:
    said, errors = launch(kernel, how)
    assert said == "code 700", (said, errors)
    assert re.search(f"kernel '{kernel}', block .*{words}", errors), errors


def test_an_unknown_kernel() -> None:
    said, errors = launch("no_such_kernel", 0)
    assert said == "code 500" and "there is no kernel 'no_such_kernel'" in errors
