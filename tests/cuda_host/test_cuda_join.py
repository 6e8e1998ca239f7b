"""Tensors beside each other, in one launch, against NumPy: layouts, sizes, many parts."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(0)
def launches(f):
    before = tn.cuda.counters()["launches"]
    result = f()
    return result, tn.cuda.counters()["launches"] - before
def same(got, want):
    got = got.cpu().numpy()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
def within(x, step):
    # x between other values, every step-th element of each dimension
    wide = np.ones([n * step + 2 for n in x.shape], x.dtype)
    places = tuple(slice(1, n * step + 1, step) for n in x.shape)
    wide[places] = x
    return tn.from_numpy(wide).to("cuda")[places]
def turned(x):
    order = rng.permutation(x.ndim)
    t = tn.from_numpy(np.ascontiguousarray(x.transpose(order))).to("cuda")
    return t.permute(*np.argsort(order).tolist())
def layout(x):
    how = rng.integers(5)
    if how == 0 and x.size:
        x[:] = x[:1]
        return tn.from_numpy(x[:1].copy()).to("cuda").expand(*x.shape)
    return turned(x) if how == 1 else within(x, 1) if how == 2 else within(x, 2) if how == 3 else (
        tn.from_numpy(x).to("cuda"))
def numbers(shape, dtype):
    return rng.integers(0, 100, shape).astype(dtype)
"""


def test_any_layout_in_one_launch() -> None:
    """Packed, turned, strided, broadcast and empty parts of all sizes of elements."""
    harness.script(
        START
        + """
DTYPES = ("bool", "int8", "float16", "float32", "int64", "complex128")
for turn in range(200):
    ndim = int(rng.integers(1, 5))
    dim = int(rng.integers(ndim))
    shape = rng.choice([1, 2, 3, 4, 8], ndim).tolist()
    one, dtype = turn % 2 == 0, DTYPES[turn % 6]
    parts = []
    for i in range(int(rng.choice([1, 2, 3, 9]))):
        own = shape if one else [*shape[:dim], int(rng.choice([0, 1, 2, 4, 8])), *shape[dim + 1 :]]
        parts.append(numbers(own, dtype))
    tensors = [layout(x) for x in parts]
    got, n = launches(lambda: tn.cat(tensors, dim))
    same(got, np.concatenate(parts, dim))
    assert n == (1 if got.numel() else 0), n
    if one:
        for at in range(ndim + 1):
            got, n = launches(lambda: tn.stack(tensors, at))
            same(got, np.stack(parts, at))
            assert n == 1
""",
        TENON_MEMORY_CACHE="0",
    )


def test_sizes() -> None:
    """Runs that 16 bytes divide and such that they do not, from one item to several blocks."""
    harness.script(
        START
        + """
for first in (1, 3, 4, 1024, 4099, 40000):
    for second in (1, 5, 8, 4100):
        for rows in (1, 3):
            parts = [numbers((rows, n), "float32") for n in (first, second, first)]
            got, n = launches(lambda: tn.cat([tn.from_numpy(x).to("cuda") for x in parts], 1))
            same(got, np.concatenate(parts, 1))
            assert n == 1
channels = [numbers((2, c, 3, 4), "float32") for c in (3, 4, 8)]
last = [tn.from_numpy(x).to("cuda").to(memory_format=tn.channels_last) for x in channels]
got = tn.cat(last, 1)
same(got, np.concatenate(channels, 1))
assert got.is_contiguous(memory_format=tn.channels_last)
""",
        TENON_MEMORY_CACHE="0",
    )


def test_many_parts() -> None:
    """More than one launch takes; what is built on joining; a conversion of some."""
    harness.script(
        START
        + """
parts = [numbers((int(rng.integers(1, 9)), 3), "float32") for _ in range(500)]
tensors = [tn.from_numpy(x).to("cuda") for x in parts]
got, n = launches(lambda: tn.cat(tensors))
same(got, np.concatenate(parts))
assert n == 3, n
turned = [tn.from_numpy(np.ascontiguousarray(x.T)).to("cuda") for x in parts]
got, n = launches(lambda: tn.cat(turned, 1))
same(got, np.concatenate(parts).T)
assert n == 6, n
single = [tn.tensor(float(i), device="cuda") for i in range(400)]
got, n = launches(lambda: tn.stack(single))
same(got, np.arange(400, dtype="float32"))
assert n == 3, n
got, n = launches(lambda: tn.hstack(tensors[:1] * 100))
same(got, np.hstack(parts[:1] * 100))
assert n == 1
padded, n = launches(lambda: tn.nn.utils.rnn.pad_sequence(tensors, batch_first=True))
want = np.zeros((500, 8, 3), "float32")
for row, x in zip(want, parts):
    row[: len(x)] = x
same(padded, want)
assert n < 12, n  # the number that pads; then 500 sequences and what pads them
blocks, n = launches(lambda: tn.block_diag(*tensors[:3]))
assert n == 5, n
want = np.zeros(blocks.shape, "float32")
for i, x in enumerate(parts[:3]):
    top = sum(len(p) for p in parts[:i])
    want[top : top + len(x), 3 * i : 3 * i + 3] = x
same(blocks, want)
empty = tn.zeros(0, device="cuda")
same(tn.cat([empty, tensors[0], empty, tensors[1]]), np.concatenate(parts[:2]))
mixed = [tensors[0], tensors[1].to(tn.int32), tensors[2].double()]
same(tn.cat(mixed), np.concatenate([parts[0], parts[1], parts[2].astype("float64")]))
out = tn.zeros(20, 3, device="cuda")
tn.cat(tensors[:2], out=out[: len(parts[0]) + len(parts[1])])
same(out[: len(parts[0]) + len(parts[1])], np.concatenate(parts[:2]))
x = tn.arange(6.0, device="cuda")
try:
    tn.cat([x[:3], x[3:]], out=x)
except RuntimeError:
    pass
else:
    same(x, np.arange(6, dtype="float32"))
many = tn.ones([1] * 6 + [2] * 13, device="cuda").permute(*range(18, -1, -1))
same(tn.cat([many, many], 3), np.ones([2] * 3 + [4] + [2] * 9 + [1] * 6, "float32"))
""",
        TENON_MEMORY_CACHE="0",
    )


def test_gradients_of_cutting() -> None:
    """What split, chunk and unbind give back is joined in one launch, missing gradients too."""
    harness.script(
        START
        + """
x = tn.randn(60, 8, device="cuda", requires_grad=True)
for pieces in (x.split(4), x.split([10, 20, 30]), x.chunk(7, 1), x.unbind(0), x.unbind(1)):
    grads = [tn.randn(p.shape, device="cuda") for p in pieces]
    got, n = launches(lambda: tn.autograd.grad(pieces, x, grads, retain_graph=True)[0])
    assert n == 1, n
    dim = 0 if pieces[0].shape[-1] == 8 else 1
    join = np.stack if pieces[0].ndim == 1 else np.concatenate
    same(got, join([g.cpu().numpy() for g in grads], dim))
    (got,), n = launches(lambda: tn.autograd.grad(pieces[1], x, grads[1]))
    assert n <= 2, n
    zeros = [np.zeros(p.shape, "float32") for p in pieces]
    zeros[1] = grads[1].cpu().numpy()
    same(got, join(zeros, dim))
y = tn.randn(3, 4, device="cuda", dtype=tn.float64, requires_grad=True)
assert tn.autograd.gradgradcheck(lambda t: tn.cat([t, t * t, t.T.reshape(3, 4)], 1), (y,))
assert tn.autograd.gradcheck(lambda t: tn.stack(t.unbind(1)[:2], 1), (y,))
""",
    )


def test_captured() -> None:
    """A graph keeps the list of parts, not the tensors' values."""
    harness.script(
        START
        + """
parts = [tn.full((3, 2), float(i), device="cuda") for i in range(5)]
tn.cat(parts, 1)
tn.cuda.synchronize()
graph = tn.cuda.CUDAGraph()
with tn.cuda.graph(graph):
    whole = tn.cat(parts, 1)
for p in parts:
    p.add_(10)
graph.replay()
same(whole, np.repeat(np.arange(10, 15, dtype="float32"), 2)[None].repeat(3, 0))
"""
    )
