"""Kernels that are made while the process runs, on the host harness, whose NVRTC compiles for the
processor: expressions of pointwise operators, and CUDA C of the user's."""

from __future__ import annotations

from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

# A plugin whose composites have pointwise parts only.
FUSE = '''
import os
SOURCE = r"""
#include <tenon/plugin.h>
#define OP(s, f) {.struct_size = sizeof(tn_op_desc), .schema = s, .formula = f, \\
                  .kind = TN_OP_COMPOSITE}
static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_op_desc ops[] = {
        OP("fuse::swish(Tensor x, float beta=1.0) -> Tensor", "x * sigmoid(beta * x)"),
        OP("fuse::pick(Tensor x, Tensor y) -> Tensor", "where(x > y * 2 - 1, x, tanh(y))"),
        OP("fuse::near(Tensor x, Tensor y) -> Tensor", "isclose(x, y)"),
        OP("fuse::both(Tensor x, Tensor y) -> Tensor", "logical_and(x > 0, y > 0)"),
        OP("fuse::square(Tensor x) -> Tensor", "x * x + 1"),
        OP("fuse::divide(Tensor x, Tensor y) -> Tensor", "floor_divide(x, y) + 1"),
        OP("fuse::five(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e) -> Tensor",
           "(a + b) * (c - d) / e"),
    };
    for (int i = 0; i < (int)(sizeof ops / sizeof ops[0]); i++) {
        tn_status st = host->register_op(txn, &ops[i]);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "fuse", "1.0", "composites", activate);
}
"""
tn.load_inline(name="fuse", source=SOURCE)
fuse = tn.ops.fuse
def made(call):
    """The result, and how many programs were compiled for it."""
    before = len(os.listdir(os.environ["TENON_CUDA_CACHE"]))
    result = call()
    return result, len(os.listdir(os.environ["TENON_CUDA_CACHE"])) - before
'''


def fuse(folder: Path, text: str) -> None:
    harness.script(FUSE + text, TENON_CUDA_CACHE=str(folder))


def test_one_kernel_with_the_bits_of_its_parts(tmp_path: Path) -> None:
    fuse(
        tmp_path,
        """
for dtype in (tn.float32, tn.bfloat16):
    x = tn.randn(5, 7).to(dtype).to("cuda")
    parts = x * tn.sigmoid(0.5 * x)
    y, n = made(lambda: fuse.swish(x, 0.5))
    assert n == 1 and tn.equal(y.cpu(), parts.cpu()), (dtype, n)
    y, n = made(lambda: fuse.swish(x[:2], 0.5))  # for all shapes
    assert n == 0 and tn.equal(y.cpu(), parts[:2].cpu())
assert fuse.swish(tn.ones(0, 7, device="cuda"), 0.5).shape == (0, 7)
big = tn.randn(1031, device="cuda")
assert tn.equal(fuse.swish(big, 0.5).cpu(), (big * tn.sigmoid(0.5 * big)).cpu())
""",
    )


def test_broadcasting_masks_defaults_and_integers(tmp_path: Path) -> None:
    fuse(
        tmp_path,
        """
x, y = tn.randn(4, 6), tn.randn(6)
dx, dy = x.to("cuda"), y.to("cuda")
z, n = made(lambda: fuse.pick(dx, dy))
assert n == 1 and tn.allclose(z.cpu(), fuse.pick(x, y), atol=1e-6)
assert tn.allclose(fuse.pick(dx[1:], dx[0]).cpu(), fuse.pick(x[1:], x[0]), atol=1e-6)
minus, beside = -dx, dx + 1e-9
z, n = made(lambda: fuse.near(dx, beside))  # three numbers that the schema knows
assert n == 1 and z.dtype == tn.bool and z.cpu().all().item()
assert not fuse.near(dx, dx + 1).cpu().any().item()
z, n = made(lambda: fuse.both(dx, minus))
assert n == 1 and not z.cpu().any().item()
i = tn.arange(1, 10)
di = i.to("cuda")
z, n = made(lambda: fuse.square(di))
assert n == 1 and tn.equal(z.cpu(), i * i + 1)
""",
    )


def test_what_does_not_fit_goes_operator_by_operator(tmp_path: Path) -> None:
    """Five inputs, and divisors that may be zero."""
    fuse(
        tmp_path,
        """
xs = [tn.randn(3) + 3 for _ in range(5)]
ds = [x.to("cuda") for x in xs]
(ds[0] + ds[1]) * (ds[2] - ds[3]) / ds[4]
y, n = made(lambda: fuse.five(*ds))
assert n == 0 and tn.allclose(y.cpu(), fuse.five(*xs))
i = tn.arange(1, 10)
assert tn.equal(fuse.divide(i.to("cuda"), i.to("cuda")).cpu(), fuse.divide(i, i))
try:
    fuse.divide(i.to("cuda"), (i * 0).to("cuda"))
    tn.cuda.synchronize()
except RuntimeError as err:
    assert "zero" in str(err).lower(), err
else:
    raise AssertionError("nothing was said")
""",
    )


def test_codes_of_another_process_are_read(tmp_path: Path) -> None:
    text = 'print(made(lambda: fuse.square(tn.ones(3, device="cuda")).tolist()))'
    fuse(tmp_path, text)
    said = harness.script(FUSE + text, TENON_CUDA_CACHE=str(tmp_path))
    assert "([2.0, 2.0, 2.0], 0)" in said, said


KERNELS = r"""
import ctypes as c
ADD = r'''
#include <stdint.h>
__device__ float twice(float x) { return x + x; }
__global__ void __launch_bounds__(256) add(const float *a, const float *b, /* read */
                                           float *out, int n, double scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = twice(a[i]) + b[i] * (float)scale;
}
'''
def fails(kind, words, call):
    try:
        call()
    except kind as err:
        assert words in str(err), err
    else:
        raise AssertionError(words)
compile_kernel = tn.cuda.compile_kernel
a, b = tn.randn(2, 1000, device="cuda")
out = tn.zeros(1000, device="cuda")
"""


def test_a_kernel_of_the_user() -> None:
    """Scalars of all widths, shared memory of both kinds, streams, other devices."""
    harness.script(
        KERNELS
        + r"""
add = compile_kernel(ADD, "add")
add(grid=(4, 1, 1), block=(256, 1, 1), args=[a, b, out, a.numel(), 0.5])
assert tn.equal(out, 2 * a + 0.5 * b) and "'add' on cuda:0" in repr(add)
total = compile_kernel(r'''
extern "C" __global__ void total(const float *x, float *out, long long n, float first) {
    __shared__ float part[8][32];
    extern __shared__ float ones[];
    float sum = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    part[threadIdx.x / 32][threadIdx.x % 32] = sum;
    ones[threadIdx.x] = 1.0f;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 0; i < 256; i++) first += part[i / 32][i % 32] * ones[i];
    *out = first;
}
''', "total")
stream = tn.cuda.Stream()
one = tn.zeros(1, device="cuda")
tn.cuda.synchronize()
total(1, 256, [a, one, c.c_int64(1000), c.c_float(7)], shared_mem=1024, stream=stream)
stream.synchronize()
assert abs(one.item() - 7 - a.sum().item()) < 1e-3
last = f"cuda:{tn.cuda.device_count() - 1}"
far = compile_kernel("__global__ void put(int *x, int n) { *x = n; }", "put", device=last)
x = tn.zeros(1, dtype=tn.int32, device=last)
far(args=[x, -3])
assert x.item() == -3
assert compile_kernel(ADD, "add")._handle.value == add._handle.value
two = r'''
// __global__ void one(int a, int b) would be wrong
extern "C" __global__ void zero(int *x) { *x = 0; }
__launch_bounds__(32) __global__ void one(int *x) { *x = ONE; }
'''
pinned = tn.full((1,), 5, dtype=tn.int32).pin_memory()
one = compile_kernel(two, "one", nvcc_options=["-std=c++17", "-DONE=1"])
one.set_shared_memory_config(1024)
one(args=[pinned])
tn.cuda.synchronize()
assert pinned.item() == 1
""",
        devices=harness.most(),
    )


def test_what_is_wrong_with_a_kernel_is_told() -> None:
    harness.script(
        KERNELS
        + r"""
add = compile_kernel(ADD, "add")
fails(RuntimeError, "'f' does not compile:\n",
      lambda: compile_kernel("__global__ void f(int x) { y = 1; }", "f"))
fails(RuntimeError, "error: ", lambda: compile_kernel("__global__ void f() { y = 1; }", "f"))
fails(ValueError, "has no kernel '__global__ void g(...)'",
      lambda: compile_kernel("__global__ void f() {}", "g"))
fails(ValueError, "kernel_name must be", lambda: compile_kernel(ADD, "a b"))
fails(TypeError, "kernel_source must be str", lambda: compile_kernel(3, "add"))
fails(ValueError, "compute_capability must be", lambda: compile_kernel(ADD, "add", "75"))
args = [a, b, out, 1000, 0.5]
fails(TypeError, "takes 5 arguments, but args has 4", lambda: add(1, 1, args[:4]))
on = "must be on the GPU of the kernel, cuda:0, or in pinned memory, but is on "
fails(ValueError, "args[1] " + on + "cpu", lambda: add(1, 1, [a, b.cpu(), out, 1, 1.0]))
if tn.cuda.device_count() > 1:
    far = [a.to("cuda:1"), *args[1:]]
    fails(ValueError, "args[0] " + on + "cuda:1", lambda: add(1, 1, far))
fails(TypeError, "args[3] must be a tensor", lambda: add(1, 1, [a, b, out, "n", 1.0]))
fails(ValueError, "args[3] = 1099511627776 does not", lambda: add(1, 1, [a, b, out, 2**40, 1.0]))
fails(ValueError, "grid must be within", lambda: add(0, 1, args))
fails(TypeError, "block must be one to three integers", lambda: add(1, (1, 1, 1, 1), args))
fails(ValueError, "block has more than 1024 threads", lambda: add(1, (32, 33), args))
fails(ValueError, "shared_mem must be", lambda: add(1, 1, args, shared_mem=-1))
fails(ValueError, "stream must be one of cuda:0", lambda: add(1, 1, args, stream=3))
assert add(1, 1, args) is None
""",
        devices=harness.most(),
    )


def test_an_access_out_of_bounds_is_found() -> None:
    """The harness sees it to the byte, a GPU where no memory is."""
    said = harness.script(
        KERNELS
        + r"""
far = compile_kernel("__global__ void far(float *x, long long i) { x[i] = 1; }", "far")
far(1, 1, [a, c.c_int64(999)])
tn.cuda.synchronize()
far(1, 1, [a, c.c_int64(1 << 44)])
fails(RuntimeError, "illegal memory access", tn.cuda.synchronize)
"""
    )
    assert not said
    if harness.ON_GPU:
        return
    said = harness.script(
        KERNELS
        + r"""
add = compile_kernel(ADD, "add")
add(4, 256, [a, b, out, 1024, 0.5])
fails(RuntimeError, "illegal memory access", tn.cuda.synchronize)
""",
        TENON_MEMORY_CACHE="0",
    )
    assert not said
