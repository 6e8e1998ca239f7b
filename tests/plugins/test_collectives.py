"""Devices of one process exchange data: over the host, and by themselves ("tn.collectives/1" of the
simulated device). Expected values are NumPy's."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import COUNTS, HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


PROGRAM = """
import numpy as np
from tenon import comm

def on(arrays, devices, dtype):
    return [tn.tensor(a).to(dtype).to(d) for a, d in zip(arrays, devices)]

def numbers(ts):
    return [t.cpu().double().numpy() for t in ts]

REDUCE = {comm.SUM: np.sum, "prod": np.prod, comm.MIN: np.min, "max": np.max, "avg": np.mean}

def check(devices, dtype):
    n = len(devices)
    rng = np.random.default_rng(0)
    whole = not dtype.is_floating_point
    arrays = [rng.integers(1, 5, (n, 3)).astype("f8") for _ in range(n)]
    stack = np.stack(arrays)
    for op, function in REDUCE.items():
        want = function(stack, axis=0)
        want = np.trunc(want) if whole else want
        want = tn.tensor(want).to(dtype).double().numpy()
        inputs, outputs = on(arrays, devices, dtype), on(arrays, devices, dtype)
        comm.all_reduce(inputs, outputs, op)
        for got, same in zip(numbers(outputs), numbers(inputs)):
            assert np.array_equal(got, want), (op, got, want)
        assert all(np.array_equal(a, b) for a, b in zip(numbers(inputs), arrays))
        comm.all_reduce(inputs, op=op)
        assert all(np.array_equal(got, want) for got in numbers(inputs))
        inputs = on(arrays, devices, dtype)
        parts = [tn.empty(3, dtype=dtype, device=d) for d in devices]
        comm.reduce_scatter(inputs, parts, op)
        for i, got in enumerate(numbers(parts)):
            assert np.array_equal(got, want[i]), (op, i)
    inputs = on(arrays, devices, dtype)
    gathered = [tn.empty(n, n, 3, dtype=dtype, device=d) for d in devices]
    comm.all_gather(inputs, gathered)
    assert all(np.array_equal(got, stack) for got in numbers(gathered))
    comm.broadcast(inputs, root=n - 1)
    assert all(np.array_equal(got, arrays[-1]) for got in numbers(inputs))
    inputs = on(arrays, devices, dtype)
    comm.reduce(inputs, root=1)
    assert np.array_equal(numbers(inputs)[1], stack.sum(0))
    assert np.array_equal(numbers(inputs)[0], arrays[0])
"""
DTYPES = "(tn.float32, tn.float64, tn.float16, tn.bfloat16, tn.int64, tn.int32, tn.uint8)"


@pytest.mark.parametrize(
    ("devices", "switches"),
    [
        (["cpu", "cpu", "cpu"], {}),
        (["acme:0", "acme:1"], {}),
        (["sim:0", "cpu", "acme:1"], {}),
        (["sim:0", "sim:1"], {"LEVEL": 0}),
        (["sim:2", "sim:0", "sim:1"], {"LEVEL": 3, "COUNT": 3, "DELAY": 200}),
        (["sim:0", "sim:1"], {"LEVEL": 3, "POINTERS": "opaque"}),
    ],
)
def test_values(folder: Path, devices: list[str], switches: dict[str, str | int]) -> None:
    text = f"for dtype in {DTYPES}:\n    check({devices!r}, dtype)\n"
    script(folder, PROGRAM + text, **switches)


def test_the_device_does_it(folder: Path) -> None:
    """And waits for nothing: what comes before and after is queued on the streams in force."""
    text = """
from tenon import comm
x = [tn.ones(1000, device=f"sim:{i}") for i in range(2)]
streams = [tn.Stream(f"sim:{i}") for i in range(2)]
tn.sim.synchronize(0), tn.sim.synchronize(1)
with streams[0], streams[1]:
    for _ in range(20):
        y = [t * 0.5 for t in x]
        comm.all_reduce(y)
        x = y
    assert [t.tolist() for t in x] == [[1.0] * 1000] * 2
assert launches("all_reduce") == 20
z = [t.to(tn.complex64) for t in x]
comm.all_reduce(z)  # which the device declines
assert launches("all_reduce") == 20 and z[1].cpu()[0].item() == 2
"""
    script(folder, COUNTS + text, LEVEL=3, DELAY=300)


def test_half_precision_is_summed_in_float(folder: Path) -> None:
    text = """
from tenon import comm
x = [tn.full((4,), v, dtype=tn.bfloat16) for v in (256.0, 1.0, 1.0)]
comm.all_reduce(x)
assert x[0].tolist() == [258.0] * 4, x[0]
x = [tn.full((4,), v, dtype=tn.uint8) for v in (200, 202)]  # whose sum is no uint8
comm.all_reduce(x, op="avg")
assert x[1].tolist() == [201] * 4, x[1]
"""
    script(folder, text)


def test_mistakes_and_other_processes(folder: Path) -> None:
    text = """
from tenon import comm
def fails(kind, text, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
a, b = tn.ones(4, device="acme:0"), tn.ones(4, device="acme:1")
fails(ValueError, "contiguous tensor of float32 with 4", comm.all_reduce, [a, b[:3]])
fails(ValueError, "contiguous", comm.all_reduce, [a, tn.ones(8, device="acme:1")[::2]])
fails(ValueError, "float32", comm.all_reduce, [a, b.double()])
fails(RuntimeError, "device of its rank", comm.all_reduce, [a, b], [b, a])
fails(ValueError, "operation", comm.all_reduce, [a, b], op="xor")
fails(ValueError, "operation", comm.all_reduce, [a, b], op=9)
fails(ValueError, "8 elements", comm.all_gather, [a, b], [a, b])
fails(ValueError, "equal parts", comm.reduce_scatter, [a[:3], b[:3]], [a[:1], b[:1]])
fails(ValueError, "at least one", comm.all_reduce, [])
fails(TypeError, "list of tensors", comm.all_reduce, a)
fails(TypeError, "expected tensors", comm.all_reduce, [1, 2])
fails(TypeError, "one for each rank", comm.all_reduce, [a, b], [a])
fails(ValueError, "no rank 5", comm.broadcast, [a, b], root=5)
fails(NotImplementedError, "tn.collectives/1", comm.Group, ["acme:0"], world=2)
fails(NotImplementedError, "tn.collectives/1", comm.Group.unique_id, "cpu")
fails(ValueError, "at least as large", comm.Group, ["acme:0"], world=0)
assert a.tolist() == b.tolist() == [1.0] * 4
empty = [tn.ones(0), tn.ones(0)]
comm.all_reduce(empty)
"""
    script(folder, text)


def test_parts_and_sums(folder: Path) -> None:
    text = """
from tenon import comm
x = tn.arange(10.0)
parts = comm.scatter(x, ["acme:0", "acme:1", "cpu"], chunk_sizes=[2, 3, 5])
assert [str(p.device) for p in parts] == ["acme:0", "acme:1", "cpu"]
assert tn.equal(comm.gather(parts, destination="cpu"), x)
copies = comm.broadcast(x, ["acme:0", "acme:1"])
assert all(tn.equal(c.cpu(), x) for c in copies)
assert tn.equal(comm.reduce_add(copies, "cpu"), x * 2)
out = [tn.empty(10, device="acme:1")]
assert comm.broadcast(x, out=out)[0] is out[0] and tn.equal(out[0].cpu(), x)
from tenon.cuda import comm as older, nccl
many = older.broadcast_coalesced([x, x[:3]], ["cpu", "acme:0"])
pair = [x.clone(), x.to("acme:1")]
nccl.all_reduce(pair, op=nccl.MAX)
assert tn.equal(pair[1].cpu(), x)
assert not tn.cuda.is_current_stream_capturing()
try:
    tn.cuda.CUDAGraph()
except RuntimeError as error:
    assert tn.cuda.is_available() or "no CUDA device" in str(error), error
assert tn.equal(many[1][1].cpu(), x[:3])
"""
    script(folder, text)
