"""Operands in every order of their dimensions, large enough for tiles, blocks and threads: what
small samples of the table do not reach."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import tenon as tn

SHAPES = [(37, 129), (64, 64), (300, 8), (70, 1030), (3, 40, 50), (40, 9, 33)]
DTYPES = ["float16", "float32", "float64", "uint8", "int16", "int64", "complex64", "complex128"]


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small integers, whose sums and products are exact in every type."""
    return np.random.default_rng(seed).integers(1, 15, shape).astype(dtype)


def orders(x: np.ndarray) -> Iterator[tn.Tensor]:
    """Tensors equal to x whose dimensions lie in memory in every order."""
    for order in itertools.permutations(range(x.ndim)):
        back = [int(d) for d in np.argsort(order)]
        yield tn.tensor(np.ascontiguousarray(x.transpose(order))).permute(*back)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pointwise(shape: tuple[int, ...], dtype: str) -> None:
    """Turned operands beside packed, broadcast and turned ones; and the packed copy."""
    x, y = draw(shape, dtype, 1), draw(shape, dtype, 2)
    packed = tn.tensor(y)
    for turned in orders(x):
        np.testing.assert_array_equal(turned.contiguous().numpy(), x)
        np.testing.assert_array_equal((packed + turned).numpy(), y + x)
        np.testing.assert_array_equal((packed * turned).numpy(), y * x)
        np.testing.assert_array_equal((packed[..., :1] * turned).numpy(), y[..., :1] * x)
        np.testing.assert_array_equal((turned + packed[:1]).numpy(), x + y[:1])
        chosen = tn.where(packed == turned, packed, turned)
        np.testing.assert_array_equal(chosen.numpy(), x)


# Shapes, orders of their dimensions, and steps through the last: few elements side by side in the
# result, runs that are items of 2 to 16 bytes, more of them than one band of the first cache holds.
MOVES = [
    ((3, 2, 2, 9, 7), (0, 3, 1, 4, 2), 1),
    ((2, 700, 3), (0, 2, 1), 1),
    ((3, 20000), (1, 0), 1),
    ((2, 9000), (1, 0), 2),
    ((17, 40), (1, 0), 1),
    ((5, 3, 30, 4), (1, 2, 0, 3), 1),
    ((5, 3, 30, 4), (1, 2, 0, 3), 2),
    ((4, 6, 8, 2), (2, 0, 1, 3), 1),
    ((1, 2, 5, 1, 3), (4, 1, 3, 2, 0), 1),
    ((0, 2, 3), (2, 0, 1), 1),
    ((6, 1, 3), (2, 1, 0), 3),
]


@pytest.mark.parametrize("dtype", ["bool", *DTYPES])
def test_short_rows(dtype: str) -> None:
    """Copies whose innermost dimension is short, out of steps of any length, of repeated and of
    turned elements, and into views."""
    before = tn.get_num_threads()
    try:
        for (shape, order, step), threads in itertools.product(MOVES, (1, 3)):
            tn.set_num_threads(threads)
            x = draw((*shape[:-1], shape[-1] * step), dtype, 3)
            a, t = x[..., ::step].transpose(order), tn.tensor(x)[..., ::step].permute(*order)
            np.testing.assert_array_equal(t.contiguous().numpy(), a)
            np.testing.assert_array_equal(t.flip(-1, 0).numpy(), a[::-1, ..., ::-1])
            wide = tn.zeros((*a.shape[:-1], a.shape[-1] + 1), dtype=t.dtype)
            wide[..., 1:] = t
            np.testing.assert_array_equal(wide[..., 1:].numpy(), a)
            assert not wide[..., 0].any()
    finally:
        tn.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["bool", *DTYPES])
def test_repeated_elements(dtype: str) -> None:
    """Each element beside itself: runs shorter and longer than vectors and blocks."""
    x = draw((3, 47), dtype, 4)
    for n in [*range(1, 40), 63, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1025, 5000]:
        got = tn.tensor(x).repeat_interleave(n, 1)
        np.testing.assert_array_equal(got.numpy(), x.repeat(n, 1))
        np.testing.assert_array_equal(got.mT.contiguous().numpy(), x.repeat(n, 1).T)


@pytest.mark.parametrize("dtype", ["bool", *DTYPES])
def test_places_of_what_is_not_zero(dtype: str) -> None:
    """Nothing, some and everything, more than the pieces in which they are collected."""
    for shape in [(0,), (1,), (511,), (513,), (4097,), (9000,), (3, 1367), (50, 2, 41)]:
        for share in (0.0, 0.5, 1.0):
            rng = np.random.default_rng(5)
            x = (draw(shape, dtype, 6) * (rng.random(shape) < share)).astype(dtype)
            t = tn.tensor(x)
            np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(x))
            np.testing.assert_array_equal(t[t != 0].numpy(), x[x != 0])
            got = tn.zeros_like(t).masked_scatter(t != 0, t.flatten())
            want = np.zeros_like(x)
            want[x != 0] = x.ravel()[: np.count_nonzero(x)]
            np.testing.assert_array_equal(got.numpy(), want)


def test_integer_division_by_a_zero_in_a_turned_operand() -> None:
    """A zero divisor is found wherever it lies."""
    x = np.ones((40, 50), dtype=np.int64)
    x[33, 47] = 0
    turned = tn.tensor(np.ascontiguousarray(x.T)).t()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        tn.ones((40, 50), dtype=tn.int64) // turned


COMPUTE = {
    "add turned": lambda x: x + x.t(),
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(dim=1),
    "sum of columns": lambda x: x.sum(dim=0),
    "variance": lambda x: x.var(dim=0),
    "norm": lambda x: x.norm(),
    "argmax": lambda x: x.argmax(),
    "max": lambda x: x.max(dim=0).values,
    "gelu": lambda x: tn.nn.functional.gelu(x),
    "softmax": lambda x: x.softmax(dim=1),
    "product": lambda x: x @ x,
    "running sum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(dim=1).indices,
    "gather": lambda x: x.gather(1, (x * 100).long().remainder(600)),
    "scatter": lambda x: x.scatter_add(1, (x * 100).long().remainder(600), x),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", COMPUTE)
def test_threads_do_not_change_bits(name: str, dtype: str) -> None:
    """One, two and three threads give the same bits."""
    x = tn.tensor(np.random.default_rng(3).standard_normal((600, 600)).astype(dtype))
    before = tn.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            results.append(COMPUTE[name](x).numpy().tobytes())
    finally:
        tn.set_num_threads(before)
    assert results[0] == results[1] == results[2]


SIZES = [
    (1, 300, 5000),
    (1, 1, 70),
    (5, 600, 300),
    (32, 40, 4100),
    (33, 40, 64),
    (90, 3, 70),
    (4, 5, 0),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_in_half_precision(sizes: tuple[int, int, int], dtype: str) -> None:
    """Few rows by many and many by few, in every order: sums are exact and rounded once."""
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = rng.integers(-2, 3, (m, k)).astype("f4"), rng.integers(-2, 3, (k, n)).astype("f4")
    c = rng.integers(-9, 10, (m, n)).astype("f4")
    half = getattr(tn, dtype)
    product = a.astype("f8") @ b.astype("f8")
    expected = [
        tn.tensor(e.astype("f4")).to(half).float().numpy() for e in (product, 2 * product - c / 2)
    ]
    addend = tn.tensor(c).to(half)
    for left, right in itertools.product(orders(a), orders(b)):
        x, y = left.to(half), right.to(half)
        np.testing.assert_array_equal((x @ y).float().numpy(), expected[0])
        sums = tn.addmm(addend, x, y, beta=-0.5, alpha=2)
        np.testing.assert_array_equal(sums.float().numpy(), expected[1])
        pairs = tn.bmm(tn.stack([x, -x]), tn.stack([y, y]))
        np.testing.assert_array_equal(pairs[1].float().numpy(), -expected[0])
        np.testing.assert_array_equal((tn.stack([x, x]) @ y)[1].float().numpy(), expected[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, np.complex128])
def test_elements_backwards_into_every_step(dtype: type) -> None:
    """Whatever the steps are, no element but those of the target is written."""
    for step in range(1, 10):
        source = np.arange(1, 64).astype(dtype)[::-step]
        taken = tn.from_dlpack(source)
        for into in range(1, 10):
            target = tn.zeros(len(source) * into, dtype=taken.dtype)
            target[::into].copy_(taken)
            wanted = np.zeros(len(source) * into, dtype)
            wanted[::into] = source
            assert np.array_equal(target.numpy(), wanted), (step, into)
