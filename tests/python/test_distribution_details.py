"""What distributions promise beside numbers: what is refused, functions that keep their last value,
families and sets of one's own, draws and gradients of single families."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tenon
from tenon import distributions as D
from tenon.distributions import constraints as c
from tenon.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from tenon.distributions.utils import clamp_probs, lazy_property, logits_to_probs, probs_to_logits


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    tenon.set_default_dtype(tenon.float64)
    yield
    tenon.set_default_dtype(tenon.float32)


def t(x: Any) -> Any:
    return tenon.tensor(x, dtype=tenon.float64)


def made(text: str) -> Any:
    return eval(text, {**vars(D), **vars(D.transforms), "t": t, "c": c, "D": D})


# ---- Transforms ----------------------------------------------------------------------------------

KEEPING = [
    "ExpTransform()", "PowerTransform(t(2.0))", "SigmoidTransform()", "AffineTransform(1.0, 2.5)",
    "LowerCholeskyTransform()", "IndependentTransform(ExpTransform(), 1)",
    "ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])",
    "CatTransform([ExpTransform(), AbsTransform()], 0, [1, 2])",
    "StackTransform([ExpTransform(), SigmoidTransform(), TanhTransform()], 0)",
    "ReshapeTransform((3,), (3, 1))", "CumulativeDistributionTransform(Normal(0.0, t(2.0)))",
    "SigmoidTransform().inv",
]  # fmt: skip


@pytest.mark.parametrize("text", KEEPING)
def test_a_transform_keeps_its_last_pair(text: str) -> None:
    plain = made(text)
    assert plain.with_cache(0) is plain
    keeping = plain.with_cache()
    assert keeping is not plain and type(keeping) is type(plain)
    assert keeping.with_cache(1) is keeping
    x = t([0.2, 0.3, 0.5]) if "Lower" not in text else t([[0.2, 0.3], [0.5, 0.1]])
    y = keeping(x)
    np.testing.assert_array_equal(y.numpy(), plain(x).numpy())
    if not text.startswith(("Cat", "Stack")):  # those keep what their parts are given
        assert keeping(x) is y and keeping.inv(y) is x
        other = y.clone()
        back = keeping.inv(other)
        assert back is not x and keeping.inv(other) is back and keeping(back) is other


def test_a_transform_needs_its_functions() -> None:
    with pytest.raises(NotImplementedError):
        D.Transform()(t(1.0))
    with pytest.raises(NotImplementedError):
        D.Transform().inv(t(1.0))

    class Shifted(D.Transform):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

    with pytest.raises(NotImplementedError, match="with_cache is not implemented"):
        Shifted(1.0).with_cache()


FEW = [
    "IndependentTransform(ExpTransform(), 1)(t(1.0))",
    "IndependentTransform(ExpTransform(), 1).inv(t(1.0))",
    "ReshapeTransform((6,), (2, 3)).forward_shape(())",
    "SoftmaxTransform().forward_shape(())", "StickBreakingTransform().forward_shape(())",
    "StickBreakingTransform().inverse_shape(())", "CorrCholeskyTransform().forward_shape(())",
    "CorrCholeskyTransform().inverse_shape((3,))",
]  # fmt: skip
WRONG = {text: "Too few dimensions on input" for text in FEW} | {
    "ReshapeTransform((6,), (2, 3)).event_dim": "use either .domain.event_dim or .codomain",
    "CatTransform([ExpTransform(), AbsTransform()], 0, [1, 2])(t([1.0]))": "size 1, and the parts",
    "StackTransform([ExpTransform(), AbsTransform()], 0)(t([1.0]))": "size 1, for 2 transforms",
    "c.stack([c.positive, c.real], 0).check(t([1.0, 1.0, 1.0]))": "",
    "c.dependent.check(t(1.0))": "Cannot determine validity",
    "Geometric(t([0.5, 0.0]))": "probs .* to be positive",
    "Bernoulli()": "must be specified, but not both",
    "Bernoulli(0.5, 0.5)": "must be specified, but not both",
    "Categorical()": "must be specified, but not both",
    "NegativeBinomial(2.0)": "must be specified, but not both",
    "LKJCholesky(1)": "greater than or equal to 2",
    "D.Distribution.set_default_validate_args(2)": "",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=WRONG[text]):
        made(text)


@pytest.mark.parametrize("joined", [c.cat, c.stack])
def test_only_constraints_are_joined(joined: Any) -> None:
    with pytest.raises(AssertionError, match="a constraint is expected, not 3"):
        joined([c.positive, 3])


def test_event_dimensions_of_a_chain() -> None:
    assert made("ExpTransform()").event_dim == 0
    chain = made("ComposeTransform([ReshapeTransform((2, 3), (6,)), ExpTransform()])")
    assert (chain.domain.event_dim, chain.codomain.event_dim) == (2, 1)
    assert c.stack([c.positive, c.real], dim=-1).event_dim == 1
    assert c.stack([c.positive, c.real], dim=0).event_dim == 0
    pair = D.Independent(D.Normal(t([0.0, 1.0]), 1.0), 1)
    one = D.TransformedDistribution(pair, D.ExpTransform())
    assert one.support.event_dim == 1


def test_names_of_what_is_made_of_others() -> None:
    parts = "[ExpTransform(), AffineTransform(1.0, 2.0)]"
    assert repr(made(f"ComposeTransform({parts})")) == (
        "ComposeTransform(\n    ExpTransform(),\n    AffineTransform()\n)"
    )
    assert repr(made("IndependentTransform(ExpTransform(), 1)")) == (
        "IndependentTransform(ExpTransform(), 1)"
    )
    text = repr(made("MixtureSameFamily(Categorical(t([0.5, 0.5])), Normal(t([0.0, 1.0]), 1.0))"))
    assert text.startswith("MixtureSameFamily(\n  Categorical(probs: ") and ",\n  Normal(" in text


def test_far_numbers_stay_inside() -> None:
    eps = tenon.finfo(tenon.float64).eps
    far = t([-800.0, 0.0, 800.0])
    shares = D.SigmoidTransform()(far)
    assert ((shares > 0) & (shares < 1)).all() and shares[1] == 0.5
    assert D.CorrCholeskyTransform()(far).isfinite().all()
    assert clamp_probs(t([0.0, 0.5, 1.0])).tolist() == [eps, 0.5, 1 - eps]
    assert probs_to_logits(t([0.0, 1.0])).isfinite().all()
    assert probs_to_logits(t([0.0, 1.0]), is_binary=True).isfinite().all()


def test_batches_of_correlations_and_parts() -> None:
    tenon.manual_seed(0)
    for text in (
        "CorrCholeskyTransform()",
        "CatTransform([ExpTransform(), SigmoidTransform()], -1, [1, 2])",
    ):
        transform, x = made(text), tenon.rand(2, 4, 3)
        y = transform(x)
        slopes = transform.log_abs_det_jacobian(x, y)
        for i in range(2):
            np.testing.assert_allclose(transform(x[i]).numpy(), y[i].numpy(), rtol=1e-12)
            alone = transform.log_abs_det_jacobian(x[i], y[i])
            np.testing.assert_allclose(alone.numpy(), slopes[i].numpy(), rtol=1e-12)
    parts, x = (
        made("CatTransform([ExpTransform(), TanhTransform()], 0, [1, 2])"),
        t([0.2, 0.3, 0.5]),
    )
    slopes = parts.log_abs_det_jacobian(x, parts(x)).numpy()
    np.testing.assert_allclose(slopes, [0.2, *np.log(1 - np.tanh([0.3, 0.5]) ** 2)])


def test_logits_and_shares() -> None:
    x = t([[[0.3, -0.5], [1.0, 2.0]], [[0.0, 0.1], [-3.0, 0.2]]])
    e = np.exp(x.numpy())
    np.testing.assert_allclose(logits_to_probs(x).numpy(), e / e.sum(-1, keepdims=True))
    np.testing.assert_allclose(logits_to_probs(x, is_binary=True).numpy(), e / (1 + e))
    p = np.array([0.3, 0.9])
    relaxed = LogitRelaxedBernoulli(t(0.7), t(p))
    np.testing.assert_allclose(relaxed.logits.numpy(), np.log(p / (1 - p)))
    assert D.Bernoulli(t(p)).param_shape == D.Bernoulli(logits=t(p)).param_shape == (2,)
    signs = [made(f"AffineTransform(1.0, {s})").sign for s in (2.0, 0.5, 0.0, -0.5)]
    assert signs == [1, 1, 0, -1]


# ---- Classes of one's own ------------------------------------------------------------------------


class Falling(D.ExponentialFamily):
    """Exponential numbers, with nothing said but the normalizer."""

    arg_constraints = {"rate": c.positive}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self.rate = rate
        super().__init__(rate.size(), validate_args=validate_args)

    @c.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return c.greater_than_eq(0.0 * self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -(-x).log()

    _mean_carrier_measure = 0


def test_a_family_of_ones_own() -> None:
    d = Falling(t([0.5, 2.0]))
    np.testing.assert_allclose(d.entropy().detach().numpy(), 1 - np.log([0.5, 2.0]))
    assert Falling.support.event_dim == 0 and Falling.support.is_discrete is False
    assert d.support.check(t([1.0, -1.0])).tolist() == [True, False]
    with pytest.raises(NotImplementedError):
        d.rsample()
    with pytest.raises(NotImplementedError):
        d.log_prob(t(1.0))
    plain = D.ExponentialFamily((), validate_args=False)
    for read in (plain.entropy, lambda: plain._log_normalizer(t(1.0))):
        with pytest.raises(NotImplementedError):
            read()
    with pytest.raises(ValueError, match="rate"):
        Falling(t([-1.0]))

    @D.register_kl(Falling, Falling)
    def _(p: Falling, q: Falling) -> Any:
        return (p.rate / q.rate).log() + q.rate / p.rate - 1

    assert float(D.kl_divergence(Falling(t(2.0)), Falling(t(1.0)))) == pytest.approx(
        math.log(2) - 0.5
    )
    with pytest.raises(TypeError, match="Expected a Distribution subclass"):
        D.register_kl(d, Falling)


def test_a_set_of_ones_own() -> None:
    class Even(c.Constraint):
        is_discrete = True

    with pytest.raises(NotImplementedError):
        Even().check(t(2.0))

    @D.biject_to.register(Even)
    def _(constraint: Even) -> Any:
        return D.AffineTransform(0.0, 2.0)

    assert float(D.biject_to(Even())(t(3.0))) == 6.0
    D.transform_to.register(Even(), lambda _: D.AffineTransform(2.0, 2.0))
    assert float(D.transform_to(Even())(t(3.0))) == 8.0
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        D.transform_to.register(int, lambda _: D.ExpTransform())


def test_what_an_unknown_set_says() -> None:
    with pytest.raises(NotImplementedError, match="is_discrete"):
        _ = c.dependent.is_discrete
    known = c.dependent(is_discrete=True)(event_dim=2)
    assert known.is_discrete is True and known.event_dim == 2
    assert known(is_discrete=False).is_discrete is False and known(event_dim=1).event_dim == 1


def test_what_is_computed_once() -> None:
    class Circle:
        count = 0

        def __init__(self, r: Any) -> None:
            self.r = r

        @lazy_property
        def area(self) -> Any:
            """pi r^2."""
            Circle.count += 1
            return math.pi * self.r**2

    circle = Circle(t(2.0).requires_grad_())
    with tenon.no_grad():
        assert circle.area.requires_grad
    assert circle.area is circle.area and Circle.count == 1
    assert Circle.area.__doc__ == "pi r^2."


def test_whether_numbers_are_checked() -> None:
    D.Distribution.set_default_validate_args(False)
    try:
        assert D.Normal(0.0, 1.0).log_prob(t(math.nan)).isnan()
        with pytest.raises(ValueError, match="support"):
            D.Normal(0.0, 1.0, validate_args=True).log_prob(t(math.nan))
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="support"):
        D.Normal(0.0, 1.0).log_prob(t(math.nan))


FREE = [
    "LKJCholesky(3, t(1.5), validate_args=False)", "LogNormal(t(0.0), -1.0, validate_args=False)",
    "Independent(Normal(t([-1.0]), 1.0, validate_args=False), 1, validate_args=False)",
    "LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0], [2.0]]), t([1.0, 2.0]), "
    "validate_args=False)",
    "MultivariateNormal(t([math.nan, 0.0]), scale_tril=t([[1.0, 0.0], [0.0, 1.0]]), "
    "validate_args=False)",
    "RelaxedOneHotCategorical(t(0.7), t([0.3, 0.7]), validate_args=False).base_dist",
    "Normal(t(0.0), t(-1.0), validate_args=False)",
]  # fmt: skip


@pytest.mark.parametrize("text", FREE)
def test_what_is_not_checked_stays_so_when_expanded(text: str) -> None:
    d = eval(text, {**vars(D), "t": t, "math": math}).expand((2,))
    assert d.log_prob(tenon.full((2, *d.event_shape), math.nan)).isnan().all()


CHECKING = [
    "LKJCholesky(3, t(1.5))", "Independent(Normal(t([1.0]), 1.0), 1)",
    "LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0], [2.0]]), t([1.0, 2.0]))",
    "MultivariateNormal(t([1.0, 0.0]), scale_tril=t([[1.0, 0.0], [0.0, 1.0]]))",
    "RelaxedOneHotCategorical(t(0.7), t([0.3, 0.7])).base_dist", "Normal(t(0.0), t(1.0))",
]  # fmt: skip


@pytest.mark.parametrize("text", CHECKING)
def test_what_is_checked_stays_so_when_expanded(text: str) -> None:
    d = made(text).expand((2,))
    with pytest.raises(ValueError, match="support"):
        d.log_prob(tenon.full((2, *d.event_shape), math.nan))


# ---- Single families -----------------------------------------------------------------------------


def test_all_values_of_several_parts() -> None:
    coin = D.Bernoulli(t([0.3]))
    alone, joined = D.Independent(coin, 0), D.Independent(coin, 1)
    assert alone.has_enumerate_support and alone.enumerate_support().tolist() == [[0.0], [1.0]]
    assert not joined.has_enumerate_support
    with pytest.raises(NotImplementedError, match="cartesian product"):
        joined.enumerate_support()
    with pytest.raises(NotImplementedError):
        D.kl_divergence(alone, joined)


def test_modes_and_edges() -> None:
    assert D.HalfNormal(-1.0, validate_args=False).expand((2,)).batch_shape == (2,)
    a, b = t([1.0, 1.0, 2.0, 0.5, 3.0, 1.0, 0.5]), t([1.0, 2.0, 1.0, 0.5, 2.0, 0.5, 1.0])
    modes = [math.nan, 0, 1, math.nan, 2 / 3, 1, 0]
    np.testing.assert_allclose(D.Beta(a, b).mode.numpy(), modes)
    assert D.LKJCholesky(2).event_shape == (2, 2)
    assert D.HalfNormal(1.0, validate_args=False).log_prob(t(-1.0)) == -math.inf
    assert D.Uniform(t([0.0, 1.0]), 2.0).mode.isnan().all()
    assert D.Geometric(t(1.0)).log_prob(t([0.0, 1.0])).tolist() == [0.0, -math.inf]
    z = D.GeneralizedPareto(t(0.5), t(2.0), t([0.2, 0.0]))
    want = [-math.log1p(0.2 * 1.5) / 0.2, -1.5]  # (1 + c y) ** (-1 / c), exp(-y) in the limit
    np.testing.assert_allclose(z.log_survival_function(t(3.5)).numpy(), want)
    with pytest.raises(ValueError, match="support"):
        z.log_survival_function(t(0.4))


def test_gradients_straight_through() -> None:
    p, weights = t([0.2, 0.3, 0.5]).requires_grad_(), t([1.0, 2.0, 4.0])
    draws = D.OneHotCategoricalStraightThrough(p).rsample((50,))
    assert ((draws == 0) | (draws == 1)).all() and (draws.sum(-1) == 1).all()
    (draws[0] * weights).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), weights.numpy() - 2.8)  # w - w.p, as p sums to 1


def test_draws_of_batches() -> None:
    tenon.manual_seed(0)
    p = t([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9]])
    hot = D.OneHotCategorical(p).sample((4000, 1))
    assert hot.shape == (4000, 1, 2, 3) and (hot.sum(-1) == 1).all()
    np.testing.assert_allclose(hot.mean((0, 1)).numpy(), p.numpy(), atol=0.03)
    soft = D.RelaxedOneHotCategorical(t(0.5), t([[0.4, 0.6], [0.9, 0.1]])).rsample((3, 4))
    np.testing.assert_allclose(soft.sum(-1).numpy(), np.ones((3, 4, 2)))
    # Next to no concentration: all angles alike, whose mean direction is 0 within 4 / sqrt(2 n).
    angles = D.VonMises(t(0.0), t(1e-6)).sample((4000,))
    assert angles.cos().mean().abs() < 0.045 and angles.sin().mean().abs() < 0.045


@pytest.mark.parametrize("concentration", [1e9, 1e30, float("inf"), float("nan")])
def test_a_circle_that_is_concentrated_ends(concentration: float) -> None:
    """The rejection of PyTorch's sampler accepts nothing where float64 has no digits left."""
    d = tenon.distributions.VonMises(
        tenon.zeros(2000, dtype=tenon.float64), tenon.tensor(concentration), validate_args=False
    )
    x = d.sample().numpy()
    if math.isnan(concentration):
        assert np.isnan(x).all()
    elif concentration == 1e9:  # scipy.stats.vonmises(1e9).std() is 1 / sqrt(1e9)
        assert 0.9 < x.std() * math.sqrt(concentration) < 1.1
    else:
        assert np.abs(x).max() < 1e-12


@pytest.mark.parametrize("first, low, high", [
    ("Exponential(1.5)", 0.0, 40.0), ("Gamma(2.5, 1.25)", 0.0, 60.0),
    ("Uniform(-0.5, 2.0)", -0.5, 2.0),
])  # fmt: skip
def test_distance_to_a_gumbel_is_its_integral(first: str, low: float, high: float) -> None:
    p, q = eval(f"D.{first}"), D.Gumbel(0.5, 2.0)
    edges = np.linspace(low, high, 200_001)
    x = tenon.tensor((edges[1:] + edges[:-1]) / 2)
    mine, other = p.log_prob(x).numpy(), (x.numpy() - 0.5) / 2
    log_q = -np.log(2.0) - other - np.exp(-other)
    want = (np.exp(mine) * (mine - log_q)).sum() * (edges[1] - edges[0])
    assert D.kl_divergence(p, q).item() == pytest.approx(want, rel=1e-6)


def test_good_samples_of_wishart_are_drawn_twice_as_by_pytorch() -> None:
    scale = tenon.eye(2).requires_grad_()
    one = D.Wishart(tenon.tensor(4.0), scale)
    tenon.manual_seed(0)
    got = one.rsample((3,))
    tenon.manual_seed(0)
    first, second = (one.rsample((3,), max_try_correction=0) for _ in range(2))
    assert tenon.equal(got, second) and not tenon.equal(got, first)
    assert tenon.linalg.eigvalsh(got).min() > 0
    (slope,) = tenon.autograd.grad(got.sum(), scale)
    assert slope.isfinite().all()
    two = D.Wishart(tenon.tensor([3.5, 6.0]), tenon.eye(2).expand(2, 2, 2))
    assert two.rsample((5,)).shape == (5, 2, 2, 2) and two.rsample().shape == (2, 2, 2)


def test_classes_beside_a_distribution_or_a_transform_are_made_too() -> None:
    class Shift(D.Transform, tenon.nn.Module):
        domain = codomain = c.real

        def __init__(self) -> None:
            super().__init__(cache_size=1)
            self.by = tenon.nn.Parameter(t([2.0]))

        def _call(self, x: Any) -> Any:
            return x + self.by

    class Point(D.Distribution, tenon.nn.Module):
        arg_constraints: dict[str, Any] = {}

        def __init__(self) -> None:
            super().__init__(event_shape=(1,))
            self.at = tenon.nn.Parameter(t([3.0]))

    assert Shift()(t([1.0])).tolist() == [3] and list(dict(Shift().named_parameters())) == ["by"]
    assert list(Point().state_dict()) == ["at"] and Point().event_shape == (1,)
