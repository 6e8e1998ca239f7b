"""tenon.masked against NumPy's masked arrays, and parts of tensors against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from scipy import special
from tenon._torch.functions import _safe_softmax

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5))
MASK = RNG.random((3, 4, 5)) < 0.6
MASK[..., 0] = True  # something is left everywhere
M = np.ma.array(X, mask=~MASK)

REDUCTIONS: dict[str, Any] = {
    "sum": lambda m, d: m.sum(d), "prod": lambda m, d: m.prod(d), "mean": lambda m, d: m.mean(d),
    "amax": lambda m, d: m.max(d), "amin": lambda m, d: m.min(d),
    "std": lambda m, d: m.std(d, ddof=1), "var": lambda m, d: m.var(d, ddof=1),
    "norm": lambda m, d: np.sqrt((m * m).sum(d)),
    "logsumexp": lambda m, d: np.log(np.exp(m).sum(d)),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, -1, (0, 2)], ids=str)
def test_reductions(name: str, dim: Any) -> None:
    call = getattr(tn.masked, name)
    where = {"dim": dim, "mask": tn.tensor(MASK)}
    want = np.ma.filled(REDUCTIONS[name](M, dim), np.nan)
    np.testing.assert_allclose(call(tn.tensor(X), **where).numpy(), want, rtol=1e-12)
    kept = call(tn.tensor(X), keepdim=True, **where)
    assert kept.dim() == 3 and kept.numel() == want.size
    whole = REDUCTIONS[name](np.ma.array(X), dim)
    np.testing.assert_allclose(call(tn.tensor(X), dim=dim).numpy(), whole, rtol=1e-12)


def test_places_and_medians() -> None:
    x, mask = tn.tensor(X), tn.tensor(MASK)
    low, high = np.where(MASK, X, np.inf), np.where(MASK, X, -np.inf)
    assert tn.masked.argmax(x, 1, mask=mask).tolist() == high.argmax(1).tolist()
    assert tn.masked.argmin(x, 1, mask=mask).tolist() == low.argmin(1).tolist()
    want = np.sort(low, -1)
    at = (MASK.sum(-1) - 1) // 2  # the lower one of two
    want = np.take_along_axis(want, at[..., None], -1)[..., 0]
    np.testing.assert_array_equal(tn.masked.median(x, -1, mask=mask).numpy(), want)


def test_along_a_dimension() -> None:
    x, mask = tn.tensor(X), tn.tensor(MASK)
    high = np.where(MASK, X, -np.inf)
    soft = special.softmax(high, 1)
    np.testing.assert_allclose(tn.masked.softmax(x, 1, mask=mask).numpy(), soft, rtol=1e-12)
    want = special.log_softmax(high, 1)
    np.testing.assert_allclose(tn.masked.log_softmax(x, 1, mask=mask).numpy(), want, rtol=1e-12)
    want = special.softmax(np.where(MASK, -X, -np.inf), 1)
    np.testing.assert_allclose(tn.masked.softmin(x, 1, mask=mask).numpy(), want, rtol=1e-12)
    zeros, ones = np.where(MASK, X, 0), np.where(MASK, X, 1)
    want = zeros.cumsum(1)
    np.testing.assert_allclose(tn.masked.cumsum(x, 1, mask=mask).numpy(), want, atol=1e-12)
    want = ones.cumprod(1)
    np.testing.assert_allclose(tn.masked.cumprod(x, 1, mask=mask).numpy(), want, rtol=1e-12)
    want = zeros / np.sqrt((zeros**2).sum(1, keepdims=True))
    got = tn.masked.normalize(x, 2.0, 1, mask=mask)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    got = tn.masked.logaddexp(x, x, input_mask=mask).numpy()
    np.testing.assert_allclose(got, np.logaddexp(high, X), rtol=1e-12)


def test_nothing_left_and_refusals() -> None:
    x, none = tn.tensor([1.0, 2.0]), tn.tensor([False, False])
    assert tn.masked.sum(x, mask=none).item() == 0
    assert tn.masked.prod(x, mask=none).item() == 1
    assert tn.masked.amax(x, mask=none).item() == -np.inf
    assert tn.masked.mean(x, mask=none).isnan().item()
    assert tn.masked.sum(tn.ones(3, dtype=tn.int32)).dtype is tn.int64
    with pytest.raises(ValueError, match="Could not infer output dtype"):
        tn.masked.mean(tn.ones(3, dtype=tn.int32))
    with pytest.raises(IndexError, match="mask dimensionality higher"):
        tn.masked.sum(x, mask=none[None])
    with pytest.raises(ValueError, match="expects strided"):
        tn.masked.sum(x.to_sparse())
    with pytest.raises(ValueError, match="fully masked out rows"):
        tn.masked.median(tn.tensor([1, 2]), mask=none)


def test_gradients_reach_what_is_left() -> None:
    x, mask = tn.tensor(X, requires_grad=True), tn.tensor(MASK)
    tn.masked.var(x, 1, mask=mask).sum().backward()
    assert x.grad is not None
    assert not x.grad[~mask].any()
    count, mean = MASK.sum(1, keepdims=True), M.mean(1, keepdims=True)
    want = np.where(MASK & (count > 1), 2 * (X - mean) / np.maximum(count - 1, 1), 0)
    some = np.broadcast_to(count > 1, X.shape)
    np.testing.assert_allclose(x.grad.numpy()[some], want[some], atol=1e-12)


# ---- Segments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [False, True])
def test_histogramdd(density: bool) -> None:
    points = RNG.standard_normal((200, 2))
    weight = RNG.random(200)
    hist, edges = tn.histogramdd(tn.tensor(points), [3, 4], weight=tn.tensor(weight),
                                 density=density)  # fmt: skip
    want, borders = np.histogramdd(points, [3, 4], weights=weight, density=density)
    np.testing.assert_allclose(hist.numpy(), want, rtol=1e-10)
    for got, border in zip(edges, borders, strict=True):
        np.testing.assert_allclose(got.numpy(), border, rtol=1e-12)
    given = [tn.tensor([-1.0, 0.0, 1.0], dtype=tn.float64)] * 2
    want, _ = np.histogramdd(points, [np.array([-1.0, 0.0, 1.0])] * 2)
    np.testing.assert_array_equal(tn.histogramdd(tn.tensor(points), given).hist.numpy(), want)
    want, _ = np.histogramdd(points, 2, range=[(-1, 1), (0, 1)])
    got = tn.histogramdd(tn.tensor(points), 2, range=[-1.0, 1.0, 0.0, 1.0]).hist
    np.testing.assert_array_equal(got.numpy(), want)
    with pytest.raises(RuntimeError, match="expected 2 sequences"):
        tn.histogramdd(tn.tensor(points), [2, 2, 2])


def test_mask_of_an_input_beside_other_arguments() -> None:
    x, mask = tn.ones(2, 3), tn.tensor([True, False, True])
    want = [mask.tolist()] * 2
    assert tn.masked._input_mask(x, x, input_mask=None, mask=mask).tolist() == want
    assert tn.masked._input_mask(x, 1).tolist() == [[True] * 3] * 2


def test_nonzero_static() -> None:
    x = tn.tensor([[1, 0], [0, 3]])
    assert x.nonzero_static(size=3, fill_value=9).tolist() == [[0, 0], [1, 1], [9, 9]]
    assert tn.nonzero_static(x, size=1).tolist() == [[0, 0]]
    with pytest.raises(RuntimeError, match="non-negative"):
        tn.nonzero_static(x, size=-1)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "amax", "amin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_segment_reduce(name: str, axis: int) -> None:
    reduce = name.removeprefix("a")
    data = RNG.standard_normal((6, 6, 2))
    lengths = np.array([2, 0, 3, 1]) if axis == 0 else np.array([[2, 0, 3, 1]] * 6)
    call = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}[reduce]
    ends = np.cumsum([2, 0, 3, 1])
    parts = np.split(data, ends[:-1], axis)
    want = [call(p, axis) if p.shape[axis] else np.full((6, 2), 0.5) for p in parts]
    if reduce in ("max", "min"):
        join = np.maximum if reduce == "max" else np.minimum
        want = [join(w, 0.5) for w in want]
    start = {"sum": 0.0, "prod": 1.0}.get(reduce, 0.5)
    got = tn.segment_reduce(
        tn.tensor(data), name, lengths=tn.tensor(lengths), axis=axis,
        initial=None if reduce == "mean" else start,
    ).numpy()  # fmt: skip
    for i in (0, 2, 3):
        np.testing.assert_allclose(got.take(i, axis), want[i], rtol=1e-12)
    empty = np.nan if reduce == "mean" else start
    np.testing.assert_array_equal(got.take(1, axis), np.full((6, 2), empty))
    bounds = np.concatenate([np.zeros((*lengths.shape[:axis], 1), int), lengths.cumsum(axis)], -1)
    again = tn.segment_reduce(
        tn.tensor(data), name, offsets=tn.tensor(bounds), axis=axis,
        initial=None if reduce == "mean" else start,
    )  # fmt: skip
    np.testing.assert_array_equal(again.numpy(), got)


def test_segment_reduce_refuses() -> None:
    x = tn.ones(3)
    for given, words in (
        ({"reduce": "sum"}, "Either lengths or offsets"),
        ({"reduce": "any", "lengths": tn.tensor([3])}, "unsupported reduction"),
        ({"reduce": "sum", "lengths": tn.tensor([2])}, "to sum to"),
        ({"reduce": "sum", "lengths": tn.tensor([4, -1])}, "negative"),
    ):
        with pytest.raises(RuntimeError, match=words):
            tn.segment_reduce(x, **given)  # type: ignore[arg-type]


def test_logsumexp_of_complex_numbers() -> None:
    z = tn.tensor([[1 + 1j, 2 - 1j], [0.5j, 1]])
    mask = tn.tensor([[True, True], [False, False]])
    found = tn.masked.logsumexp(z, 1, mask=mask)
    np.testing.assert_allclose(found[0].item(), np.log(np.exp(z[0].numpy()).sum()), rtol=1e-6)
    assert found[1].real.item() == -np.inf
    assert tn.equal(tn.masked.logsumexp(z, 1), tn.logsumexp(z, 1))


def test_softmax_of_nothing_is_nothing() -> None:
    x = tn.tensor([[1.0, 2, -tn.inf], [-tn.inf] * 3], requires_grad=True)
    y = _safe_softmax(x, 1)
    assert tn.equal(y[0], x[0].softmax(0)) and y[1].tolist() == [0, 0, 0]
    (y * tn.tensor([1.0, 2, 3])).sum().backward()
    p = y[0, 0].item() * y[0, 1].item()
    np.testing.assert_allclose(x.grad.numpy(), [[-p, p, 0], [0, 0, 0]], rtol=1e-6)
    assert _safe_softmax(x.detach(), 0, dtype=tn.float64).dtype is tn.float64


# ---- Beside PyTorch ------------------------------------------------------------------------------

ALONG = ("softmax", "log_softmax", "softmin", "cumsum", "cumprod")
ALL = (*REDUCTIONS, *ALONG, "argmax", "argmin", "median", "normalize")


def asked(lib: Any, call: Any, numbers: Any, other: bool) -> list[Any]:
    """What a function gives of these numbers along dimensions, with masks of several shapes."""

    def outcome(**given: Any) -> Any:
        x = lib.tensor(numbers)
        try:
            return call(x.int() if x.dtype is lib.int64 else x, **given)
        except Exception as err:
            return f"{type(err).__name__} raised"

    one = [[True, False, True], [False, True, True]]
    masks = [None, *map(lib.tensor, (one, one[0], [[True], [True]], True))]
    kinds = (None, lib.float64, lib.float32) if other else (None,)
    return [outcome(dim=dim, mask=mask, dtype=kind)
            for dim in (0, -1, 1, -2, 2, -3) for mask in masks for kind in kinds]  # fmt: skip


def function(lib: Any, name: str) -> Any:
    call = getattr(lib.masked, name)
    return (lambda x, **given: call(x, 2.0, **given)) if name in ("norm", "normalize") else call


def method(lib: Any, name: str) -> Any:
    """A method of a tensor with a mask: what of its result counts, and the rest as 0."""

    def call(x: Any, dim: int, mask: Any, **given: Any) -> Any:
        mask = (x == x) if mask is None else mask.expand(x.shape)
        kept = lib.masked.masked_tensor(x, mask.clone())
        keywords = {k: v for k, v in given.items() if v is not None}
        found = getattr(kept, name)(dim=dim, **keywords)
        return [found.get_mask(), found.to_tensor(0)]

    return call


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "var",
                                  "softmax"])  # fmt: skip
def test_methods_as_pytorch(name: str) -> None:
    rows = [[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]]

    def ask(lib: Any) -> list[Any]:
        return asked(lib, method(lib, name), rows, False)

    stored.same(ask(tn), stored.of_torch(ask), 1e-5)


@pytest.mark.parametrize(("p", "order"), [(None, 2), (1, 1), ("fro", 2), (3, 3)])
def test_norms_of_what_counts(p: Any, order: int) -> None:
    kept = tn.masked.masked_tensor(tn.tensor(X), tn.tensor(MASK))
    given = () if p is None else (p,)
    want = (np.where(MASK, np.abs(X), 0) ** order).sum(1) ** (1 / order)
    found = kept.norm(*given, dim=1)
    np.testing.assert_allclose(found.to_tensor(0).numpy(), np.where(MASK.any(1), want, 0))
    whole = (np.where(MASK, np.abs(X), 0) ** order).sum() ** (1 / order)
    np.testing.assert_allclose(kept.norm(*given).to_tensor(0).item(), whole)


@pytest.mark.parametrize("name", ALL)
def test_functions_as_pytorch(name: str) -> None:
    ordered = name.startswith(("a", "soft", "log_"))
    numbers = ([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], [[3, -1, 2], [5, 4, -2]],
               [[1 + 2j, 0.5j, -1], [2, 3 - 1j, 1j]])  # fmt: skip
    for rows in numbers[:2] if ordered else numbers:

        def ask(lib: Any, rows: Any = rows) -> list[Any]:
            return asked(lib, function(lib, name), rows, True)

        stored.same(ask(tn), stored.of_torch(ask), 1e-5)


def test_dimensions_of_a_number() -> None:
    x = tn.tensor(2.0)
    assert [tn.masked.sum(x, d).item() for d in (0, -1)] == [2, 2]
    for d in (1, -2):
        with pytest.raises(IndexError, match=rf"\[-1, 0\], but got {d}\)"):
            tn.masked.sum(x, d)


def test_sums_of_exponentials_as_pytorch() -> None:
    def ask(lib: Any) -> list[Any]:
        mask, other = lib.tensor([True, False]), lib.tensor([[True, True], [False, True]])
        x, y = lib.tensor([[1.0, 2.0], [3.0, -1.0]]), lib.tensor([[0.5, 1.0], [2.0, 2.0]])
        return [lib.masked.logaddexp(x, y, dtype=kind, input_mask=a, other_mask=b)
                for kind in (None, lib.float64, lib.float16) for a in (None, mask)
                for b in (None, other)]  # fmt: skip

    stored.same(ask(tn), stored.of_torch(ask))
