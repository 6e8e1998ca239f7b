"""Reading and writing at indices on the host harness: moves, sums by atomic additions and in order,
against NumPy."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(0)
def send(x):
    return tn.from_numpy(np.ascontiguousarray(x)).to("cuda")
def check(got, want, tolerance=1e-12):
    got = got.detach().cpu().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype, (got.dtype, want.dtype)
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance), np.abs(got - want).max()
def ran_natively(*ops):
    for op in ops:
        assert tn.cuda.fallback_count(op) == (0, 0), op
"""

BOTH = pytest.mark.parametrize("ordered", [False, True])


@BOTH
def test_advanced_indexing(ordered: bool) -> None:
    """One index tensor or several, of any rank, anywhere; negative ones; values that broadcast."""
    harness.script(
        START
        + f"tn.use_deterministic_algorithms({ordered})"
        + """
x = rng.standard_normal((5, 6, 7))
i = rng.integers(-5, 5, (3, 4))
j = rng.integers(-6, 6, (3, 4))
k = rng.integers(-7, 7, 4)
full = slice(None)
keys = ((i,), (full, j), (full, full, k), (i, j), (i[:, :1], j), (full, j, k), (i, j, k), (2, j),
        (i, full, k), (full, j[0], slice(1, 6, 2)))
for dtype in (np.float64, np.float32, np.int8, np.bool_):
    y = x.astype(dtype) if dtype is not np.bool_ else x > 0
    for device in (send(y), send(y.transpose(2, 1, 0)).permute(2, 1, 0)):
        for key in keys:
            at = tuple(send(p) if isinstance(p, np.ndarray) else p for p in key)
            check(device[at], y[key])
            want, got = y.copy(), device.clone()
            if all(isinstance(p, tn.Tensor) for p in at):
                values = (rng.standard_normal(y[key].shape) * 3).astype(dtype)
                np.add.at(want, key, values)
                check(got.index_put_(at, send(values), accumulate=True), want, 1e-5)
            got[at] = 1
            want[key] = 1
            check(got[at], want[key])
perm = rng.permutation(210)
want, got = np.zeros(210), tn.zeros(210, dtype=tn.float64, device="cuda")
want[perm] = np.arange(210.0)
got[send(perm)] = tn.arange(210, dtype=tn.float64, device="cuda")
check(got, want)
d = send(x).requires_grad_()
g = rng.standard_normal((3, 4, 7))
d[send(i), send(j)].backward(send(g))
want = np.zeros_like(x)
np.add.at(want, (i, j), g)
check(d.grad, want)
assert send(x)[tn.zeros(0, dtype=tn.int64, device="cuda")].shape == (0, 6, 7)
ran_natively("_index", "_index_put_")
"""
    )


@BOTH
def test_rows_are_moved_whole(ordered: bool) -> None:
    """Rows of every size and alignment, which go in items of up to 16 bytes; dimensions that
    overlap."""
    harness.script(
        START
        + f"tn.use_deterministic_algorithms({ordered})"
        + """
i, j, k = (rng.integers(-n, n, 9) for n in (5, 6, 6))
once = rng.permutation(6)[:4]
for dtype in (np.uint8, np.float16, np.float32, np.float64, np.complex128):
    for width in (1, 3, 6, 8, 16):
        base = (rng.standard_normal((5, 6, 2, 32)) * 9).astype(dtype)
        for cut in (slice(0, width), slice(1, width + 1), slice(8, width + 8)):
            x, d = base[..., cut], send(base)[..., cut]
            for y, e in ((x, d), (x.transpose(0, 1, 3, 2), d.transpose(2, 3))):
                check(e[send(i)], y[i])
                check(e[:, send(j)], y[:, j])
                check(e[send(i), send(j)], y[i, j])
                check(e.index_select(1, send(j % 6)), y[:, j % 6])
                want, got = base.copy(), send(base)
                want[..., cut][:, once] = x[:, :4]
                got[..., cut].index_copy_(1, send(once), d[:, :4])
                check(got, want)
                want[..., cut][i[0], once] = x[0, :4]
                got[..., cut][tn.tensor(int(i[0]), device="cuda"), send(once)] = d[0, :4]
                check(got, want)
            if dtype in (np.float16, np.float32):
                want, got = base.copy(), send(base)
                np.add.at(want, (slice(None), j % 6, slice(None), cut), x[:, k % 6])
                got[..., cut].index_add_(1, send(j % 6), d[:, k % 6])
                check(got, want, 2e-2 if dtype is np.float16 else 1e-5)
flat = np.arange(400.0, dtype=np.float32)
for strides in ((1, 3, 1), (4, 3, 1), (3, 4, 1), (8, 4, 1)):
    overlap = np.lib.stride_tricks.as_strided(flat, (20, 20, 8), [4 * n for n in strides])
    d = send(flat).as_strided((20, 20, 8), strides)
    check(d[send(i), send(j)], overlap[i, j])
    check(d[send(i)], overlap[i])
weight, at = rng.standard_normal((7, 12)).astype(np.float32), rng.integers(0, 7, (3, 4))
check(tn.nn.functional.embedding(send(at), send(weight)), weight[at])
ran_natively("_index", "index_select", "index_add_", "embedding")
"""
    )


@BOTH
def test_slices(ordered: bool) -> None:
    """index_add, index_copy, index_fill along each dimension, in every dtype."""
    harness.script(
        START
        + f"tn.use_deterministic_algorithms({ordered})"
        + """
for dtype in (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.uint8, np.bool_):
    x = (rng.standard_normal((5, 6, 7)) * 9).astype(dtype)
    tolerance = {np.float16: 2e-2, np.float32: 1e-5}.get(dtype, 1e-12)
    for dim in range(3):
        n = x.shape[dim]
        i = rng.integers(0, n, 9)
        shape = [9 if d == dim else x.shape[d] for d in range(3)]
        source = (rng.standard_normal(shape) * 9).astype(dtype)
        for short in (np.int64, np.int32):
            want, key = x.copy(), (slice(None),) * dim + (i,)
            np.add.at(want, key, source * 2 if dtype is not np.bool_ else source)
            got = send(x).index_add_(dim, send(i.astype(short)), send(source),
                                     alpha=2 if dtype is not np.bool_ else 1)
            check(got, want, tolerance)
        once = rng.permutation(n)[:3]
        key = (slice(None),) * dim + (once,)
        want = x.copy()
        want[key] = np.take(source, range(3), dim)
        check(send(x).index_copy_(dim, send(once), send(np.take(source, range(3), dim))), want)
        want[key] = 1
        check(send(x).index_fill_(dim, send(once), 1), want)
scalar = tn.tensor(3.0, device="cuda")
first = tn.tensor([0], device="cuda")
assert scalar.index_add(0, first, tn.tensor(2.0, device="cuda")).item() == 5
c = tn.tensor([1 + 2j, 3j], device="cuda").index_select(0, tn.tensor([1, 0], device="cuda"))
assert c.tolist() == [3j, 1 + 2j]
ran_natively("index_add_", "index_copy_", "index_select")
"""
    )


@BOTH
def test_scatter(ordered: bool) -> None:
    harness.script(
        START
        + f"tn.use_deterministic_algorithms({ordered})"
        + """
at = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
for dtype in (np.float64, np.float32, np.int64, np.int8):
    x = rng.integers(-5, 6, (8, 6, 4)).astype(dtype)
    for dim in range(3):
        shape = [min(n, 5) for n in x.shape]
        shape[dim] = 13
        i = rng.integers(0, x.shape[dim], shape)
        source = rng.integers(-3, 4, shape).astype(dtype)
        where = list(np.indices(shape))
        where[dim] = i
        for how, f in at.items():
            want = x.copy()
            f.at(want, tuple(where), source)
            for d in (send(x), send(x.transpose(1, 0, 2)).transpose(0, 1)):
                got = d.scatter_reduce(dim, send(i), send(source), how)
                check(got, want)
        want = x.copy()
        np.add.at(want, tuple(where), source)
        check(send(x).scatter_add_(dim, send(i), send(source)), want)
y = tn.zeros(2, 3, device="cuda").scatter_(1, tn.tensor([[2], [0]], device="cuda"), 1.0)
assert y.tolist() == [[0, 0, 1], [1, 0, 0]]
nan = tn.tensor([1.0, float("nan")], device="cuda")
got = tn.zeros(1, device="cuda").scatter_reduce(0, tn.tensor([0, 0], device="cuda"), nan, "amax")
assert got.isnan().item()
counts = tn.bincount(send(rng.integers(0, 9, 4000)))
assert counts.sum().item() == 4000
ran_natively("_scatter_", "gather")
"""
    )


def test_ordered_writes_have_the_same_bits_every_time() -> None:
    """And are those of a loop: sums begin with what is there, the last write stays."""
    harness.script(
        START
        + """
tn.use_deterministic_algorithms(True)
assert tn.are_deterministic_algorithms_enabled()
i = rng.integers(0, 40, 5000)
s = rng.standard_normal((5000, 3)).astype(np.float32)
want = np.zeros((40, 3), np.float32)
for k, row in zip(i, s):
    want[k] += row
for _ in range(3):
    got = tn.zeros(40, 3, device="cuda").index_add_(0, send(i), send(s))
    assert np.array_equal(got.cpu().numpy(), want)
    got = tn.zeros(40, 3, device="cuda").index_put_((send(i),), send(s), accumulate=True)
    assert np.array_equal(got.cpu().numpy(), want)
    got = tn.zeros(40, 3, device="cuda").scatter_add_(0, send(i[:, None].repeat(3, 1)), send(s))
    assert np.array_equal(got.cpu().numpy(), want)
last = np.zeros((40, 3), np.float32)
last[i] = s
got = tn.zeros(40, 3, device="cuda")
got[send(i)] = send(s)
assert np.array_equal(got.cpu().numpy(), last)
got = tn.zeros(40, 3, device="cuda").index_copy_(0, send(i), send(s))
assert np.array_equal(got.cpu().numpy(), last)
got = tn.zeros(40, 3, device="cuda").scatter_(0, send(i[:, None].repeat(3, 1)), send(s))
assert np.array_equal(got.cpu().numpy(), last)
ran_natively("index_add_", "_index_put_", "_scatter_", "index_copy_")
"""
    )


def test_gradients_of_embedding() -> None:
    harness.script(
        START
        + """
F = tn.nn.functional
table = rng.standard_normal((30, 17))
for shape, top in (((7, 9), 30), ((3000,), 3), ((2, 3, 4), 30)):
    index = rng.integers(0, top, shape).T
    g = rng.standard_normal((*index.shape, 17))
    for padding, average in ((None, False), (2, False), (None, True), (29, True)):
        w = send(table).requires_grad_()
        F.embedding(send(index), w, padding, scale_grad_by_freq=average).backward(send(g))
        want = np.zeros_like(table)
        np.add.at(want, index, g)
        if average:
            want /= np.maximum(np.bincount(index.ravel(), minlength=30), 1)[:, None]
        if padding is not None:
            want[padding] = 0
        check(w.grad, want)
ones = tn.ones(4000, 2, dtype=tn.float16, device="cuda")
w = tn.zeros(3, 2, dtype=tn.float16, device="cuda", requires_grad=True)
F.embedding(tn.zeros(4000, dtype=tn.int64, device="cuda"), w).backward(ones)
assert w.grad.tolist() == [[4000, 4000], [0, 0], [0, 0]]
w = send(table).requires_grad_()
y = F.embedding(send(np.array([1, 2, 2])), w, 1)
g = tn.ones(3, 17, dtype=tn.float64, device="cuda", requires_grad=True)
(first,) = tn.autograd.grad(y, w, g, create_graph=True)
(second,) = tn.autograd.grad(first, g, tn.ones_like(first))
assert second[:, 0].tolist() == [0, 1, 1]
ran_natively("embedding", "_embedding_backward", "_embedding_gather")
"""
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("x[tn.tensor([5], device='cuda')]", "'_index': index 5 is out of range for size 5"),
        ("x[tn.tensor([-6], device='cuda')]", "'_index': index -6 is out of range for size 5"),
        ("x.gather(0, tn.tensor([-1], device='cuda'))", "'gather': index -1 is out of range"),
        ("x.index_add(0, tn.tensor([7], device='cuda'), x[:1])", "'index_add_': index 7"),
        ("x.scatter_add(0, tn.tensor([9], device='cuda'), x)", "'_scatter_': index 9"),
    ],
)
@BOTH
def test_bad_indices_are_reported_and_harm_nothing(call: str, words: str, ordered: bool) -> None:
    said = harness.script(f"""
tn.use_deterministic_algorithms({ordered})
x = tn.arange(5.0, device="cuda")
try:
    print({call}.tolist())
except RuntimeError as err:
    print(err)
assert x.tolist() == [0, 1, 2, 3, 4]
""")
    assert words in said, said


def test_nonzero() -> None:
    """Of every layout and dtype; masks, which are made of it; one wait for each."""
    harness.script(
        START
        + """
for shape in ((1,), (5, 7), (3, 1, 9), (2000,), (40, 130), (3, 4, 5, 6)):
    x = rng.integers(-1, 2, shape)
    for dtype in (np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_):
        y = x.astype(dtype)
        for a, d in ((y, send(y)), (y.T, send(y).permute(*range(y.ndim - 1, -1, -1))),
                     (y[..., ::2], send(y)[..., ::2])):
            check(d.nonzero(), np.argwhere(a))
for n in (4095, 4096, 9000):
    y = rng.random(n) > 0.3
    check(send(y).nonzero(), np.argwhere(y))
    check(send(y.reshape(-1, 1)).expand(-1, 3).nonzero(), np.argwhere(np.repeat(y[:, None], 3, 1)))
    values, inverse, counts = (t.cpu().numpy() for t in send(np.sort(rng.integers(0, n, n)))
                               .unique_consecutive(return_inverse=True, return_counts=True))
    assert (np.diff(values) > 0).all() and counts.sum() == n
    assert (np.repeat(np.arange(len(values)), counts) == inverse).all()
mask, x = rng.random((30, 70)) > 0.5, rng.standard_normal((30, 70))
check(send(x)[send(mask)], x[mask])
check(send(x).masked_select(send(mask)), x[mask])
odd = tn.tensor([0.0, -0.0, float("nan"), 1e-45, 0.0], device="cuda")
assert odd.nonzero().tolist() == [[2], [3]]
assert tn.zeros(0, 3, device="cuda").nonzero().shape == (0, 2)
assert tn.zeros(4000, device="cuda").nonzero().shape == (0, 1)
assert tn.tensor(3, device="cuda").nonzero().shape == (1, 0)
assert tn.tensor(0, device="cuda").nonzero().shape == (0, 0)
ran_natively("nonzero")
"""
    )


def test_sequences() -> None:
    harness.script(
        START
        + """
for dtype in (tn.float64, tn.float32, tn.float16, tn.bfloat16, tn.int64, tn.uint8):
    for n in (0, 1, 2, 7, 1000):
        for start, end in ((0, 50), (9.5, 2), (3, 3)):
            got = tn.linspace(start, end, n, dtype=dtype, device="cuda").cpu()
            assert tn.equal(got, tn.linspace(start, end, n, dtype=dtype)), (dtype, n, start)
check(tn.linspace(-3, 5, 301, dtype=tn.float64, device="cuda"), np.linspace(-3, 5, 301))
assert tn.arange(2, 9, 2, device="cuda").tolist() == [2, 4, 6, 8]
assert tn.arange(0.0, 1.0, 0.25, device="cuda").tolist() == [0, 0.25, 0.5, 0.75]
whole = tn.arange(0, 6, 1.5, dtype=tn.int64, device="cuda")
assert whole.tolist() == tn.arange(0, 6, 1.5, dtype=tn.int64).tolist()
ran_natively("_linspace_")
"""
    )
