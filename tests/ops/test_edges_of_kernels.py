"""Where kernels and composites end: behind the last element, at spans of partial sums, at equal
numbers, at sizes of zero and one, at elements of other widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F

RNG = np.random.default_rng(11)
REDUCTIONS = {
    "argmax": np.argmax, "argmin": np.argmin, "amax": np.max, "amin": np.min, "sum": np.sum,
    "mean": np.mean, "prod": np.prod, "median": lambda x: np.sort(x)[(x.size - 1) // 2],
    "std": lambda x: np.std(x, ddof=1), "norm": np.linalg.norm,
    "count_nonzero": np.count_nonzero, "any": np.any, "all": np.all, "nansum": np.nansum,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("behind", ["most", "least", "nan"])
def test_what_lies_behind_a_tensor_is_not_read(behind: str, dtype: str) -> None:
    """Parts of a buffer with something else before and after them, of each length near a vector."""
    whole = np.issubdtype(dtype, np.integer)
    if behind == "nan" and whole:
        return
    around = {"most": 200, "least": 0 if dtype == "uint8" else -200, "nan": np.nan}[behind]
    for n in [*range(1, 36), 63, 64, 65, 130]:
        buffer = np.full(n + 80, around, dtype=dtype)
        buffer[40 : 40 + n] = RNG.permutation(n) % 90 + 3
        x, part = tn.tensor(buffer)[40 : 40 + n], buffer[40 : 40 + n]
        for name, want in REDUCTIONS.items():
            if whole and name in ("mean", "std", "norm", "prod"):
                continue
            if (name == "std" and n == 1) or (name == "prod" and n > 8):
                continue
            got = getattr(x, name)().item()
            assert got == pytest.approx(float(want(part.astype(float))), rel=1e-5), (name, n)
        assert x.max(0).indices.item() == np.argmax(part), n
        assert x.cumsum(0)[-1].item() == part.sum() and x.sort().values.tolist() == sorted(part)
        if not whole:
            np.testing.assert_allclose(x.softmax(0).sum().item(), 1, rtol=1e-5)
            want = np.log(np.exp(part.astype(float) - 90).sum()) + 90
            assert x.logsumexp(0).item() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_of_what_is_a_number(dtype: str) -> None:
    """Rows and columns of each length near a vector, and their slopes."""
    for m, n in ((1, 1), (3, 63), (40, 65), (5, 300), (200, 3), (70, 1030)):
        x = RNG.integers(-4, 5, (m, n)).astype(dtype)
        x[RNG.random((m, n)) < 0.3] = np.nan
        t = tn.tensor(x, requires_grad=True)
        for dim in (0, 1, None):
            got = t.nansum(dim, keepdim=True) if dim is not None else t.nansum()
            want = np.nansum(x, dim, keepdims=dim is not None)
            np.testing.assert_array_equal(got.detach().numpy(), want)
            np.testing.assert_array_equal(tn.tensor(x.T).nansum(dim).numpy(), np.nansum(x.T, dim))
            wide = tn.tensor(x).nansum(dim, dtype=tn.float64)
            np.testing.assert_array_equal(wide.numpy(), np.nansum(x, dim, dtype=np.float64))
        (t.nansum(0) * 3).sum().backward()
        np.testing.assert_array_equal(t.grad.numpy(), np.where(np.isnan(x), 0, 3))
    x = tn.tensor([np.inf, np.nan, 1.0], requires_grad=True)
    x.nansum().backward()
    assert x.grad.tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 32])
def test_few_of_many(k: int, dtype: str) -> None:
    """The first of equal elements, NaN of both signs as the largest; rows rise or fall."""
    x = RNG.permutation(np.arange(3000) % 251).reshape(6, 500).astype("float64")
    x[0].sort()
    x[1] = np.sort(x[1])[::-1]
    if "float" in dtype:
        x[2:] -= 125
        x[3, RNG.integers(0, 500, 40)] = np.nan
        x[4, RNG.integers(0, 500, 9)] = np.copysign(np.nan, -1)
        x[5, ::3] = -0.0
    keys = np.where(np.isnan(x), np.inf, x)
    t = tn.tensor(x).to(getattr(tn, dtype))
    for largest in (True, False):
        want = np.argsort(-keys if largest else keys, 1, kind="stable")[:, :k]
        for row in (t, tn.stack([t, t], -1).flatten(-2)[..., ::2]):
            got = row.topk(k, 1, largest)
            np.testing.assert_array_equal(got.indices.numpy(), want)
            values = got.values.double().numpy()
            np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8"])
def test_running_extremes(dtype: str) -> None:
    """Of equal elements the last is named; a NaN stays until the next."""
    for n in (1, 2, 33, 500):
        for nans in (False, True):
            x = RNG.integers(0, 40, (5, n)).astype(dtype)
            if nans and dtype.startswith("float"):
                x[RNG.random((5, n)) < 2 / n] = np.nan
            for name, accumulate in (("cummax", np.maximum), ("cummin", np.minimum)):
                want = accumulate.accumulate(x, 1)
                hits = (x == want) | (np.isnan(x) if nans else False)
                places = np.maximum.accumulate(np.where(hits, np.arange(n), 0), 1)
                for t in (tn.tensor(x), tn.tensor(x.T.copy()).T):
                    got = getattr(tn, name)(t, 1)
                    np.testing.assert_array_equal(got.values.numpy(), want)
                    np.testing.assert_array_equal(got.indices.numpy(), places)


@pytest.mark.parametrize("n", [1, 4095, 4096, 4097, 8191, 8192, 12289])
def test_losses_over_spans_of_partial_sums(n: int) -> None:
    x, y = RNG.standard_normal(n), RNG.standard_normal(n)
    a, b = tn.tensor(x), tn.tensor(y)
    gap = np.abs(x - y)
    for got, want in (
        (F.mse_loss(a, b, reduction="sum"), (gap**2).sum()),
        (F.mse_loss(a, b), (gap**2).mean()),
        (F.l1_loss(a, b, reduction="sum"), gap.sum()),
        (F.smooth_l1_loss(a, b), np.where(gap < 1, gap**2 / 2, gap - 0.5).mean()),
    ):
        assert got.item() == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33])
def test_gradients_of_every_class(classes: int) -> None:
    x, t = RNG.standard_normal((5, classes)), RNG.integers(0, classes, 5)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    want = p - np.eye(classes)[t]
    for dtype, near in ((tn.float64, 1e-12), (tn.float32, 2e-6)):
        logits = tn.tensor(x, dtype=dtype, requires_grad=True)
        F.cross_entropy(logits, tn.tensor(t), reduction="sum").backward()
        np.testing.assert_allclose(logits.grad.numpy(), want, rtol=near, atol=near)


@pytest.mark.parametrize("value", [0.0, 3.5, -1000.0, 700.0])
def test_running_sums_of_equal_exponentials(value: float) -> None:
    for dtype in (tn.float64, tn.float32):
        x = tn.full((40,), value, dtype=dtype)
        want = value + np.log(np.arange(1, 41))
        np.testing.assert_allclose(x.logcumsumexp(0).numpy(), want, rtol=1e-6)
    for end in (np.inf, -np.inf):
        assert tn.full((3,), end).logcumsumexp(0).tolist() == [end] * 3


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (2, 1)])
def test_areas_below_samples(shape: tuple[int, ...]) -> None:
    y = RNG.standard_normal(shape)
    for dim in range(-len(shape), len(shape)):
        x = np.cumsum(RNG.random(shape[dim]) + 0.1)
        for got, want in (
            (tn.trapezoid(tn.tensor(y), dim=dim), np.trapezoid(y, axis=dim)),
            (tn.trapezoid(tn.tensor(y), dx=0.25, dim=dim), np.trapezoid(y, dx=0.25, axis=dim)),
            (tn.trapezoid(tn.tensor(y), tn.tensor(x), dim=dim), np.trapezoid(y, x, axis=dim)),
            (tn.trapz(tn.tensor(y), tn.tensor(x), dim=dim), np.trapezoid(y, x, axis=dim)),
        ):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-14)
        running = tn.cumulative_trapezoid(tn.tensor(y), tn.tensor(x), dim=dim)
        assert running.shape[dim] == shape[dim] - 1
        if shape[dim] > 1:
            last = running.select(dim, -1).numpy()
            np.testing.assert_allclose(last, np.trapezoid(y, x, axis=dim), rtol=1e-12, atol=1e-14)
    assert tn.trapezoid(tn.zeros(2, 0)).tolist() == [0, 0]
    assert tn.trapezoid(tn.zeros(2, 0), tn.zeros(0)).tolist() == [0, 0]
    for call in (lambda: tn.trapezoid(tn.tensor(1.0), dim=0),
                 lambda: tn.cumulative_trapezoid(tn.tensor(1.0), dim=0)):  # fmt: skip
        with pytest.raises((IndexError, RuntimeError)):
            call()


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_elements_of_every_width_move(item: int) -> None:
    """Strided on either side or on none."""
    dtype = {1: np.int8, 2: np.int16, 4: np.float32, 8: np.float64, 16: np.complex128}[item]
    base = (RNG.integers(-100, 100, (6, 10)) + (1j if item == 16 else 0)).astype(dtype)
    x, rows, columns = tn.tensor(base), [4, 0, 4, 2], [9, 1, 0, 1, 5]
    i, j = tn.tensor(rows), tn.tensor(columns)
    for a, want in ((x, base), (x.T, base.T), (x[:, ::3], base[:, ::3]), (x[::2], base[::2])):
        k = i % a.shape[0]
        assert a.index_select(0, k).tolist() == want[k.numpy()].tolist()
        assert a[k].tolist() == want[k.numpy()].tolist()
        m = j % a.shape[1]
        assert a.index_select(1, m).tolist() == want[:, m.numpy()].tolist()
        assert a[:, m].tolist() == want[:, m.numpy()].tolist()
        assert a.tril(-1).tolist() == np.tril(want, -1).tolist()
        assert a.triu(2).tolist() == np.triu(want, 2).tolist()
        into, wanted = a.clone(), want.copy()
        into[:, m[:1]] = a[:, :1]
        wanted[:, m.numpy()[:1]] = want[:, :1]
        assert into.tolist() == wanted.tolist()
        hit = tn.arange(a.numel()).view(a.shape) % 3 == 0
        assert a.masked_select(hit).tolist() == want[hit.numpy()].tolist()
        source = a.T.reshape(-1)[: int(hit.sum())]  # exactly as many as are taken
        wanted = want.copy()
        wanted[hit.numpy()] = source.numpy()
        assert a.masked_scatter(hit, source).tolist() == wanted.tolist()
        with pytest.raises(RuntimeError):
            a.masked_scatter(hit, source[:-1])


def test_numbers_at_their_ends() -> None:
    x = tn.tensor([3.0, 1.0, 2.0])
    for q, want in ((0.0, 1), (0.5, 2), (1.0, 3), (tn.tensor(1.0), 3), (tn.tensor([0.0, 1.0]), 0)):
        got = tn.quantile(x, q).tolist()
        assert got == ([1, 3] if want == 0 else want) and tn.nanquantile(x, q).tolist() == got
    for q in (-1e-6, 1.000001, float("nan")):
        with pytest.raises(RuntimeError, match="range"):
            tn.quantile(x, q)
    for n, m in ((3, 0), (0, 3), (0, 0), (1, 1), (2, 3), (3, 1)):
        assert tn.eye(n, m).tolist() == np.eye(n, m).tolist()
    for args in ((-1,), (2, -1)):
        with pytest.raises(RuntimeError, match="greater or equal to 0"):
            tn.eye(*args)
    low, high = tn.aminmax(tn.tensor([3.0]))
    assert low.item() == high.item() == 3
    with pytest.raises(RuntimeError):
        tn.aminmax(tn.zeros(0))
    with pytest.raises(ValueError, match="at most 65536"):
        tn.mvlgamma(tn.tensor(1e6), 65537)
    got = tn.histogram(x, tn.tensor([0.0, 2.5]))
    assert got.hist.tolist() == [2] and got.bin_edges.tolist() == [0, 2.5]
    for edges in (tn.tensor([1.0]), tn.tensor([[0.0, 1.0]])):
        with pytest.raises(RuntimeError):
            tn.histogram(x, edges)
    with pytest.raises(RuntimeError, match="negative integer powers"):
        tn.tensor([2, 3]) ** -1
    assert (tn.tensor([2, 3]) ** tn.tensor([-1, 2])).tolist() == [0, 9]  # each by itself
    assert (tn.tensor([2.0]) ** -1).tolist() == [0.5]


def test_ends_that_are_tensors() -> None:
    a, b = tn.tensor(1.0), tn.tensor(3.0)
    for start, end in ((a, b), (a, 3), (1, b)):
        assert tn.linspace(start, end, 5).tolist() == [1, 1.5, 2, 2.5, 3]
        assert tn.logspace(start, end, 3, base=2).tolist() == [2, 4, 8]
    for make in (tn.linspace, tn.logspace):
        for start, end in ((tn.ones(1), b), (a, tn.ones(2)), (tn.ones(1), 3), (1, tn.ones(1))):
            with pytest.raises(RuntimeError, match="0-dimensional"):
                make(start, end, 3)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (2, 3, 2, 5)])
def test_sums_of_singular_values(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    want = np.linalg.norm(x, "nuc", axis=(-2, -1))
    np.testing.assert_allclose(tn.linalg.norm(tn.tensor(x), "nuc", (-2, -1)), want, rtol=1e-12)
    np.testing.assert_allclose(tn.norm(tn.tensor(x), "nuc", (-2, -1)), want, rtol=1e-12)
    kept = tn.linalg.matrix_norm(tn.tensor(x), "nuc", keepdim=True)
    np.testing.assert_allclose(kept.numpy()[..., 0, 0], want, rtol=1e-12)
    if len(shape) == 2:
        assert tn.norm(tn.tensor(x), "nuc").item() == pytest.approx(float(want))
    else:
        with pytest.raises((RuntimeError, ValueError)):
            tn.norm(tn.tensor(x), "nuc")


@pytest.mark.parametrize("unbiased", [False, True])
def test_spreads_by_a_truth_value(unbiased: bool) -> None:
    x = RNG.standard_normal((3, 4))
    t, ddof = tn.tensor(x), int(unbiased)
    for name, spread in (("std", np.std), ("var", np.var)):
        got = getattr(tn, f"{name}_mean")(t, unbiased)
        assert [g.item() for g in got] == pytest.approx([spread(x, ddof=ddof), x.mean()])
        assert got[0].dim() == got[1].dim() == 0
        assert getattr(tn, name)(t, unbiased).item() == pytest.approx(spread(x, ddof=ddof))


DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "bool",
          "complex64"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_likes_have_the_dtype_that_is_asked(dtype: str) -> None:
    kind = getattr(tn, dtype)
    for other in (tn.int16, tn.float64, tn.bool):
        x = tn.zeros(2, 3, dtype=other)
        for make in (tn.zeros_like, tn.ones_like, tn.empty_like,
                     lambda x, **o: tn.full_like(x, 1, **o)):  # fmt: skip
            assert make(x, dtype=kind).dtype is kind and make(x).dtype is other
        for make in (x.new_zeros, x.new_ones, x.new_empty):
            assert make(2, dtype=kind).dtype is kind and make(2).dtype is other


def test_searching_rows_that_do_not_fit() -> None:
    rows = tn.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert tn.searchsorted(rows, tn.tensor([[2.0], [7.0]])).tolist() == [[1], [3]]
    assert tn.searchsorted(rows[0], tn.tensor([[2.0], [7.0]])).tolist() == [[1], [3]]
    for values in (tn.zeros(2), tn.zeros(2, 1, 1), tn.zeros(3, 1), tn.zeros(1, 2, 1)):
        with pytest.raises(RuntimeError):
            tn.searchsorted(rows, values)
    for index in (tn.tensor([[0]]), tn.tensor([[[0]]])):
        with pytest.raises(RuntimeError):
            tn.ones(3).gather(0, index)
    assert tn.tensor(5.0).gather(0, tn.tensor([0])).tolist() == [5]
    assert tn.tensor([5.0]).gather(0, tn.tensor(0)).item() == 5


def test_a_write_by_a_tensor_is_counted() -> None:
    x = tn.zeros(3)
    for write in (lambda: x.fill_(tn.tensor(2.0)), lambda: x.fill_(2.0),
                  lambda: x.masked_fill_(x > 1, tn.tensor(1.0)), lambda: x.copy_(tn.ones(3)),
                  lambda: x.index_fill_(0, tn.tensor([0]), tn.tensor(3.0))):  # fmt: skip
        before: Any = x._version
        write()
        assert x._version == before + 1
    assert x.tolist() == [3, 1, 1]


def test_parts_of_tensors_of_few_dimensions() -> None:
    x = np.arange(24.0).reshape(4, 3, 2)
    row, whole = tn.tensor(x[:, 0, 0]), tn.tensor(x)
    assert [p.tolist() for p in row.chunk(1)] == [row.tolist()]
    with pytest.raises(RuntimeError, match="greater than 0"):
        row.chunk(0)
    for t, a in ((row, x[:, 0, 0]), (whole, x), (whole[:, :, 0], x[:, :, 0])):
        for parts in (2, [1, 2]):
            want = [p.tolist() for p in np.array_split(a, parts)]
            assert [p.tolist() for p in t.tensor_split(parts)] == want
        assert [p.tolist() for p in t.hsplit([1])] == [p.tolist() for p in np.hsplit(a, [1])]
        if a.ndim > 1:
            assert [p.tolist() for p in t.vsplit(2)] == [p.tolist() for p in np.vsplit(a, 2)]
    assert [p.tolist() for p in whole.dsplit(2)] == [p.tolist() for p in np.dsplit(x, 2)]
    for call in (lambda t: t.tensor_split(2), lambda t: t.hsplit(1), lambda t: t.chunk(1)):
        with pytest.raises(RuntimeError):
            call(tn.tensor(1.0))
    assert whole.sum_to_size(3, 2).tolist() == x.sum(0).tolist()
    assert whole.sum_to_size(3, 1).tolist() == x.sum((0, 2))[:, None].tolist()
    assert whole.sum_to_size(1, 3, 2).tolist() == x.sum(0, keepdims=True).tolist()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40])
def test_bytes_compared_with_numbers(n: int) -> None:
    x = (np.arange(n) * 7 % 256).astype(np.uint8)
    t = tn.tensor(x)
    for number in (0, 7, 255, 2.5, -0.5, 254.5, True, float("nan"), float("inf")):
        wide, value = x.astype(float), float(number)
        for got, want in (
            (t < number, wide < value), (t <= number, wide <= value), (t > number, wide > value),
            (t >= number, wide >= value), (t == number, wide == value),
            (t != number, wide != value),
        ):  # fmt: skip
            assert got.tolist() == want.tolist(), number


def test_results_that_share_a_part_of_their_operands_memory_are_refused() -> None:
    for dtype in (tn.float64, tn.float32, tn.int16, tn.uint8):
        y = tn.arange(16).to(dtype)
        for start in (1, 2, 5, 6):
            with pytest.raises(RuntimeError, match="single memory location"):
                tn.add(y[start : start + 4], 1, out=y[3:7])
        tn.add(y[7:11], 1, out=y[3:7])
        assert y[3:7].tolist() == [8, 9, 10, 11]


def test_chances_of_nothing_and_of_all() -> None:
    for n in (1, 2, 33):
        x = tn.ones(n)
        for p in (0.0, 1.0):
            assert tn.bernoulli(x, p=p).tolist() == [p] * n
            assert x.clone().bernoulli_(p).tolist() == [p] * n
            got, kept = tn.native_dropout(x, p, True)
            assert got.tolist() == [1 - p] * n and kept.tolist() == [p == 0] * n
        for p in (-0.01, 1.01):
            with pytest.raises(RuntimeError, match="p"):
                tn.bernoulli(x, p=p)


@pytest.mark.parametrize("n", [1, 5, 16, 33, 64, 257, 1030, 4099, 70000])
def test_one_element_decides_all_and_any(n: int) -> None:
    places = {0, n - 1, n // 2, *RNG.integers(0, n, 12).tolist()}
    for at in places:
        x = tn.ones(n, dtype=tn.bool)
        x[at] = False
        for part in (x, x.to(tn.float32), x.to(tn.int64)):
            assert not part.all() and (n == 1 or part.any())
            assert (~part.bool()).any() and (n == 1 or not (~part.bool()).all())
    if n > 5000:
        return
    where = RNG.integers(0, n, 7)
    x = tn.ones(7, n, dtype=tn.bool)
    x[tn.arange(6), tn.from_numpy(where[:6])] = False  # the last row stays
    for rows, dim in ((x, 1), (x.t().contiguous(), 0), (x.t(), 0)):
        assert rows.all(dim).tolist() == [False] * 6 + [True]
        assert (~rows).any(dim).tolist() == [True] * 6 + [False]


def test_neighbours_of_every_bfloat16() -> None:
    """Beside the sorted list of them all."""
    bits = tn.arange(-(1 << 15), 1 << 15).to(tn.int16).view(tn.bfloat16)
    every = bits[~bits.isnan() & ~((bits == 0) & bits.signbit())].sort().values
    assert every.numel() == 2 * (0x7F80 + 1) - 1
    inf = tn.full_like(every[1:], float("inf"))
    assert tn.nextafter(every[:-1], inf).equal(every[1:])
    assert tn.nextafter(every[1:], -inf).equal(every[:-1])
    assert tn.nextafter(every, every).equal(every)
    nan = tn.full_like(every, float("nan"))
    assert tn.nextafter(every, nan).isnan().all() and tn.nextafter(nan, every).isnan().all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_whole_numbers_are_rounded_in_front_of_the_point(dtype: str) -> None:
    numbers = [*range(-128, 128)]
    for digits in (-1, -2, 0, 2):
        want = np.array([round(n, digits) for n in numbers]).astype(dtype)
        got = tn.tensor(numbers, dtype=getattr(tn, dtype)).round(decimals=digits)
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_near_zero_and_beyond(dtype: str) -> None:
    near = 1e-6 if dtype == "complex64" else 1e-13
    parts = [0.0, 1e-9, -1e-5, 0.3, -0.4, 0.6, -2.5, 3.0]
    z = np.array([complex(a, b) for a in parts for b in parts]).astype(dtype)
    a, b = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    got = tn.log1p(tn.from_numpy(z)).numpy()
    np.testing.assert_allclose(got.real, np.log1p(a * (2 + a) + b * b) / 2, rtol=near, atol=1e-16)
    np.testing.assert_allclose(got.imag, np.arctan2(b, 1 + a), rtol=near)
    ends = [complex(a, b) for a in (1.5, np.inf, -np.inf, np.nan) for b in (-2, np.inf, -np.inf)]
    bad = np.array(ends).astype(dtype)
    got = tn.nan_to_num(tn.from_numpy(bad), 7.0, 8.0, -9.0).numpy()
    np.testing.assert_array_equal(got, np.nan_to_num(bad, nan=7.0, posinf=8.0, neginf=-9.0))
    leaf = tn.from_numpy(z).requires_grad_()
    y = F.silu(leaf)
    s = 1 / (1 + np.exp(-z.astype(np.complex128)))
    np.testing.assert_allclose(y.detach().numpy(), z * s, rtol=9 * near, atol=1e-12)
    (got,) = tn.autograd.grad(y, leaf, tn.ones_like(y))
    np.testing.assert_allclose(got.numpy(), np.conj(s * (1 + z * (1 - s))), rtol=9 * near)
    top = tn.tensor([complex(np.inf, 0)], dtype=getattr(tn, dtype))
    assert tn.logaddexp(top, top).real.item() == np.inf
    assert tn.logaddexp(-top, -top).real.item() == -np.inf


@pytest.mark.parametrize("weighted", [False, True])
def test_densities_of_uneven_bins(weighted: bool) -> None:
    draw = np.random.default_rng(8)
    x, weight = draw.uniform(0, 5, 40), draw.uniform(0.5, 2, 40) if weighted else None
    edges = np.array([0.0, 0.5, 2.5, 3.0, 5.0])
    given = None if weight is None else tn.from_numpy(weight)
    for density in (False, True):
        got = tn.histogram(tn.from_numpy(x), tn.from_numpy(edges), weight=given, density=density)
        want, _ = np.histogram(x, edges, weights=weight, density=density)
        np.testing.assert_allclose(got.hist.numpy(), want, rtol=1e-13)
