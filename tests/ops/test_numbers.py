"""Numbers that are easily wrong: half precision near its limits, derivatives where their formula
changes, numbers beside narrow integers, constants in double. Expected values are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tenon as tn
from table import Case, call, entries, make_case, tensor_args

F = tn.nn.functional
INF, NAN = math.inf, math.nan

# ---- Half precision: no intermediate in it ----------------------------------------------------

BIG = tn.tensor([300.0, 300.0, 300.0, 300.0])
APART = tn.tensor([600.0, -600.0, 600.0, -600.0])
HALF = {
    "rms_norm": (lambda x: F.rms_norm(x, (4,)), BIG, [1.0] * 4),
    "rms_norm weighted": (lambda x: F.rms_norm(x, (4,), x / 100), BIG, [3.0] * 4),
    "vector_norm": (tn.linalg.vector_norm, BIG, 600.0),
    "norm 3": (lambda x: tn.norm(x, 3), BIG, 300 * 4 ** (1 / 3)),
    "norm fro": (lambda x: tn.norm(x, p="fro"), BIG, 600.0),
    "normalize": (lambda x: F.normalize(x, dim=0), BIG, [0.5] * 4),
    "normalize 3": (lambda x: F.normalize(x, p=3.0, dim=0), BIG, [4 ** (-1 / 3)] * 4),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x, dim=0), BIG, 1.0),
    "std": (tn.std, APART, math.sqrt(480000.0)),
    "std_mean": (lambda x: tn.std_mean(x)[0], APART, math.sqrt(480000.0)),
    "dist": (lambda x: tn.dist(x, -x), BIG, 1200.0),
    "pairwise_distance": (lambda x: F.pairwise_distance(x, -x), BIG, 1200.0),
    "triplet": (lambda x: F.triplet_margin_loss(x, -x, -x / 3 * 2), BIG, 201.0),
    "embedding": (lambda x: F.embedding(tn.tensor([0]), x[None], max_norm=1.0)[0], BIG, [0.5] * 4),
    "gaussian": (lambda x: F.gaussian_nll_loss(x, 0 * x, x), BIG, (math.log(300) + 300) / 2),
    "cov": (lambda x: tn.cov(x / 3), APART, 160000.0 / 3),
    "soft_margin": (lambda x: F.soft_margin_loss(x / -15, x / x), BIG, 20.0),
    "logaddexp": (lambda x: tn.logaddexp(x, x), BIG, [300 + math.log(2)] * 4),
    "nanmean": (lambda x: tn.nanmean(x * 200), BIG, 60000.0),
    "sinc": (lambda x: tn.sinc(x / 200), BIG, [math.sin(1.5 * math.pi) / (1.5 * math.pi)] * 4),
}


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
@pytest.mark.parametrize("name", HALF)
def test_large_halves(name: str, dtype: Any) -> None:
    fn, x, want = HALF[name]
    got = fn(x.to(dtype))
    assert got.dtype == dtype
    rtol = 2e-3 if dtype == tn.float16 else 1.2e-2
    np.testing.assert_allclose(got.float().tolist(), want, rtol=rtol)


def halves(row: dict[str, Any]) -> bool:
    return "float16" in row["dtypes"] and "float64" in row["dtypes"] and not row.get("random")


# Between their parts stands a sum or a product that float16 cannot hold, or the result is chaotic.
NOT_LARGE = {"complex", "polar"}


@pytest.mark.parametrize("row", [r for r in entries() if halves(r)], ids=lambda r: r["name"])
def test_every_operator_on_large_halves(row: dict[str, Any]) -> None:
    """At a hundred times its samples' values, an operator in float16 gives what float64 gives for
    the same numbers, wherever float16 can hold that."""
    if row["name"] in NOT_LARGE:
        pytest.skip("takes no half precision")
    for sample in row["samples"]:
        case = make_case(row, sample, "float16")
        for n in case.tensors:
            if case.args[n].dtype == np.float16 and not row["domain"].get(n):
                case.args[n] = np.asarray(case.args[n] * 100).astype(np.float16)
        wide = Case(row, "float64", {
            n: np.asarray(v, np.float64) if n in case.tensors and v.dtype == np.float16 else v
            for n, v in case.args.items()
        })  # fmt: skip
        if any(isinstance(v, list) and v and isinstance(v[0], np.ndarray)
               for v in case.args.values()):  # fmt: skip
            continue
        got, want = call(row, tensor_args(case)), call(row, tensor_args(wide))
        if not isinstance(got, tn.Tensor) or not got.is_floating_point():
            continue
        if not got.numel():
            continue
        g, w = got.double().numpy(), want.double().numpy()
        held = np.isfinite(w) & (np.abs(w) < 6e4)
        reach = max([float(np.abs(v).max()) for v in wide.args.values()
                     if isinstance(v, np.ndarray) and v.size], default=1.0)  # fmt: skip
        np.testing.assert_allclose(g[held], w[held], rtol=4e-3, atol=2e-6 * reach * reach + 2e-3)


# ---- Derivatives where their formula changes ---------------------------------------------------

KINKS: dict[str, tuple[Any, list[float], list[float]]] = {
    "selu": (F.selu, [0.0, NAN], [1.6732632423543772 * 1.0507009873554805, 1.0507009873554805]),
    "celu": (F.celu, [0.0, NAN], [1.0, 1.0]),
    "elu": (F.elu, [0.0, -INF, NAN], [1.0, 0.0, 1.0]),
    "logsigmoid": (F.logsigmoid, [0.0, INF, -INF], [0.5, 0.0, 1.0]),
    "hardswish": (F.hardswish, [-3.0, 3.0, 0.0, NAN], [0.0, 1.0, 0.5, 1.0]),
    "hardtanh": (F.hardtanh, [-1.0, 1.0, 0.0, NAN], [0.0, 0.0, 1.0, 1.0]),
    "relu6": (F.relu6, [0.0, 6.0, 3.0, NAN], [0.0, 0.0, 1.0, 1.0]),
    "hardsigmoid": (F.hardsigmoid, [-3.0, 3.0, 0.0], [0.0, 0.0, 1 / 6]),
    "threshold": (lambda x: F.threshold(x, 0.5, 2.0), [0.5, 0.6, NAN], [0.0, 1.0, 1.0]),
    "abs": (tn.abs, [0.0, -0.0, -INF, NAN], [0.0, 0.0, -1.0, 0.0]),
    "clamp": (lambda x: tn.clamp(x, -1, 1), [-1.0, 1.0, 2.0, NAN], [1.0, 1.0, 0.0, 0.0]),
    "logit": (tn.logit, [-1.0, 0.5, 2.0], [NAN, 4.0, NAN]),
    "logit eps": (lambda x: tn.logit(x, 0.25), [-1.0, 0.0, 0.25, 0.5], [0.0, 0.0, 16 / 3, 4.0]),
    "median": (tn.median, [0.0, 1.0, 1.0], [0.0, 0.5, 0.5]),
    "nanmedian": (tn.nanmedian, [0.0, 1.0, 1.0, NAN], [0.0, 0.5, 0.5, 0.0]),
    "max": (tn.max, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
    "logcumsumexp": (lambda x: tn.logcumsumexp(x, 0), [1e4, 1.0, -2.0], [3.0, 0.0, 0.0]),
    "atan2 x": (lambda x: tn.atan2(x, tn.zeros_like(x)), [0.0], [0.0]),
    "atan2 y": (lambda x: tn.atan2(tn.zeros_like(x), x), [0.0], [0.0]),
    "lerp": (lambda x: tn.lerp(x, 2 * x.detach(), 0.3), [1.0], [0.7]),
    "pow": (lambda x: x**0.3, [2.0], [0.3 * 2.0**-0.7]),
    "norm": (tn.norm, [0.0, 0.0], [0.0, 0.0]),
    "prod": (tn.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name: str) -> None:
    fn, at, want = KINKS[name]
    x = tn.tensor(at, dtype=tn.float64, requires_grad=True)
    fn(x).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), want, rtol=1e-12, atol=1e-300)


def test_second_derivatives_beside_kinks() -> None:
    x = tn.tensor([-3.5, -3.0, -2.9, 0.0, 2.9, 3.0, 3.5], dtype=tn.float64, requires_grad=True)
    (slope,) = tn.autograd.grad(F.hardswish(x).sum(), x, create_graph=True)
    slope.sum().backward()
    np.testing.assert_allclose(x.grad, [0, 0, 1 / 3, 1 / 3, 1 / 3, 0, 0], rtol=1e-14)


def test_second_derivative_of_celu_far_from_zero() -> None:
    """Where exp(x / alpha) is infinite, on the side that does not use it, too."""
    x = tn.tensor([-INF, -1.0, 0.0, 1.0, 1e3, INF], dtype=tn.float64, requires_grad=True)
    (slope,) = tn.autograd.grad(F.celu(x, 0.5).sum(), x, create_graph=True)
    slope.sum().backward()
    np.testing.assert_allclose(x.grad, [0, 2 * math.exp(-2), 0, 0, 0, 0], rtol=1e-14)


SLOPES: dict[str, Any] = {
    "mish": F.mish, "hardswish": F.hardswish, "silu": F.silu, "gelu": F.gelu, "elu": F.elu,
    "softplus": F.softplus, "logsigmoid": F.logsigmoid, "hardsigmoid": F.hardsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0), "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.3),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_of_halves_are_rounded_once(name: str, dtype: Any) -> None:
    """At every number of the dtype between -8 and 8, among them those next to a threshold."""
    x = tn.arange(-32768, 32768, dtype=tn.int16).view(dtype)
    x = x[x.float().abs() < 8].requires_grad_()
    wide = x.detach().float().requires_grad_()
    SLOPES[name](x).sum().backward()
    SLOPES[name](wide).sum().backward()
    eps = tn.finfo(dtype).eps
    np.testing.assert_allclose(x.grad.float(), wide.grad, rtol=1.5 * eps, atol=eps / 512)


def test_derivative_of_the_value_that_fills() -> None:
    value = tn.tensor(2.0, requires_grad=True)
    tn.index_fill(tn.zeros(3), 0, tn.tensor([1, 1]), value).sum().backward()
    assert value.grad.item() == 1.0


def test_division_in_place_before_another_write() -> None:
    y = tn.tensor([2.0], requires_grad=True)
    w = tn.tensor([4.0], requires_grad=True)
    z = w * 1
    z.div_(y)
    z.add_(1)
    z.sum().backward()
    assert (w.grad.item(), y.grad.item()) == (0.5, -1.0)


def directions(case: Case) -> list[str]:
    """Tensor arguments in double that a derivative may be taken along."""
    return [n for n in case.tensors if case.args[n].dtype == np.float64 and case.args[n].size]


def along(row: dict[str, Any], case: Case, h: float, moves: dict[str, np.ndarray]) -> float:
    """The sum of the weighted results with every argument moved by h times its direction."""
    args = {n: np.asarray(v + h * moves[n]) if n in moves else v for n, v in case.args.items()}
    return weighted(call(row, tensor_args(Case(row, case.dtype, args))))


def weighted(out: Any) -> Any:
    weights = np.random.default_rng(1).uniform(0.5, 1.5, tuple(out.shape))
    total = (out * tn.from_numpy(np.asarray(weights))).sum()
    return total if total.requires_grad else total.item()


# Flat, without a gradient, of symmetric matrices alone, too steep for differences, or steps
# that gradients pass as if there were none.
ROUGH = {"round", "floor_divide", "cholesky", "inverse", "fake_quantize_per_tensor_affine"}


@pytest.mark.parametrize(
    "row",
    [r for r in entries() if "float64" in r["dtypes"] and r["name"] not in ROUGH],
    ids=lambda r: r["name"],
)
def test_gradients_in_double(row: dict[str, Any]) -> None:
    """Differences of sixth order are good to eleven digits: a constant that passed through float32
    is seen."""
    weights = ((-1 / 60, -3), (9 / 60, -2), (-45 / 60, -1), (45 / 60, 1), (-9 / 60, 2), (1 / 60, 3))
    for sample in row["grad_samples"] or row["samples"]:
        case = make_case(row, sample, "float64")
        names = directions(case)
        args = tensor_args(case)
        gaps = row["grad"] if isinstance(row["grad"], dict) else dict.fromkeys(names, row["grad"])
        names = [n for n in names if gaps.get(n) != "missing"]
        for n in names:
            args[n].requires_grad_()
        out = call(row, args)
        if not names or not isinstance(out, tn.Tensor) or not out.requires_grad or out.is_complex():
            continue
        weighted(out).backward()
        rng = np.random.default_rng(2)
        moves = {
            n: rng.uniform(-1, 1, case.args[n].shape) for n in names if args[n].grad is not None
        }
        got = sum(float((args[n].grad.numpy() * v).sum()) for n, v in moves.items())
        h = 1e-3
        want = sum(c * along(row, case, k * h, moves) for c, k in weights) / h
        assert got == pytest.approx(want, rel=2e-10, abs=2e-10), case.label()


# ---- Numbers beside narrow integers ------------------------------------------------------------

U8, I8 = tn.tensor([5, 200], dtype=tn.uint8), tn.tensor([1, 2], dtype=tn.int8)
PICK = tn.tensor([True, False])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tn.clamp(U8, -1, 300),
        lambda: tn.clamp(U8, max=300),
        lambda: tn.pow(I8, 300),
        lambda: U8.masked_fill(PICK, 300),
        lambda: tn.where(PICK, U8, 300),
        lambda: tn.index_fill(U8, 0, tn.tensor([0]), 300),
        lambda: F.threshold(I8, 300, 5),
        lambda: F.hardtanh(I8, -300, 300),
        lambda: tn.add(U8, U8, alpha=300),
        lambda: tn.addcmul(U8, U8, U8, value=300),
        lambda: F.pad(U8, (1, 1), value=300),
    ],
)
def test_numbers_that_do_not_fit(wrong: Any) -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        wrong()


def test_numbers_beside_integers() -> None:
    with pytest.raises(RuntimeError, match="alpha must not be a floating point"):
        tn.add(U8, U8, alpha=0.5)
    assert tn.xlogy(I8, 300).tolist() == pytest.approx([math.log(300), 2 * math.log(300)])
    assert math.isnan(tn.logit(U8)[0].item())
    assert tn.add(U8, 300).tolist() == [49, 244]  # sums wrap, as in PyTorch
    assert tn.square(tn.tensor([True])).dtype == tn.int64
    assert tn.max(tn.tensor([3, 7]), tn.tensor(5)).tolist() == [5, 7]
    assert tn.min(tn.tensor([3, 7]), tn.tensor(5)).tolist() == [3, 5]


def test_sequences_of_integers() -> None:
    assert tn.arange(0.5, 4.9, 1.5, dtype=tn.int64).tolist() == [0, 1, 2, 3]
    assert tn.arange(2.5, dtype=tn.int64).tolist() == [0, 1]
    assert tn.arange(-0.5, 2.5, dtype=tn.int32).tolist() == [0, 1, 2]
    assert tn.logspace(0, 2.5, 4, dtype=tn.int64).tolist() == [1, 4, 21, 100]


# ---- The rest of a kind ------------------------------------------------------------------------


def test_circular_padding_of_what_is_left() -> None:
    x = tn.arange(16.0).reshape(1, 1, 4, 4)
    rows = np.arange(16.0).reshape(4, 4)[2:, 1:]
    want = np.pad(rows, ((0, 1), (0, 1)), mode="wrap")
    got = F.pad(x, (-1, 1, -2, 1), mode="circular")[0, 0]
    np.testing.assert_array_equal(got.numpy(), want)


def test_products_over_nothing_and_of_nan() -> None:
    got = tn.addmv(tn.tensor([1.0, 2.0]), tn.zeros(2, 0), tn.zeros(0), beta=3)
    assert got.tolist() == [3.0, 6.0]
    assert tn.addr(tn.full((1, 1), NAN), tn.ones(1), tn.ones(1), beta=0).item() == 1.0


def test_signs_and_conjugates() -> None:
    assert tn.sign(tn.tensor([NAN])).item() == 0.0
    assert tn.resolve_conj(tn.tensor([1 + 2j])).tolist() == [1 + 2j]
    assert tn.take_along_dim(tn.tensor([[1, 2, 3]]), tn.tensor([[-1]]), 1).item() == 3
    both = tn.tensor([[True, False]])
    assert tn.all(both, dim=()).tolist() == tn.any(both, dim=()).tolist() == [[True, False]]
    got = tn.logaddexp(tn.ones(1), tn.ones(1, dtype=tn.float64)).item()
    assert got == pytest.approx(1 + math.log(2), rel=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_transposed_convolution_beyond_a_stride(n: int) -> None:
    fn = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][n - 1]
    x = tn.rand((1, 1) + (2,) * n, dtype=tn.float64, requires_grad=True)
    w = tn.rand((1, 1) + (2,) * n, dtype=tn.float64, requires_grad=True)
    got = fn(x, w, output_padding=1, dilation=2)
    assert tuple(got.shape[2:]) == (5,) * n
    np.testing.assert_array_equal(
        got[(0, 0) + (slice(0, 4),) * n].detach(), fn(x, w, dilation=2)[0, 0].detach()
    )
    assert got.sum().item() == pytest.approx((x.sum() * w.sum()).item())
    assert tn.autograd.gradcheck(lambda x, w: fn(x, w, output_padding=1, dilation=2), (x, w))


def test_layers_on_the_edge() -> None:
    var = tn.ones(1, 3)
    assert F.gaussian_nll_loss(tn.ones(2, 3), tn.ones(2, 3), var).item() == 0.0
    assert F.prelu(tn.tensor(-1.0), tn.tensor([0.5])).shape == ()


@pytest.mark.parametrize("dtype", [tn.bool, tn.uint8, tn.int64])
def test_whole_numbers_are_all_numbers(dtype: tn.dtype) -> None:
    x = tn.tensor([0, 1, 1, 0], dtype=dtype)
    for got in (x.nan_to_num(5.0, 6.0, 7.0), tn._C._ops._nan_to_num(x, 5.0, 6.0, 7.0)):
        assert got.dtype is dtype and got.tolist() == x.tolist()
