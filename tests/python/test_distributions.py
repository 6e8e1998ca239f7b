"""Distributions against SciPy's, and draws against PyTorch's where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import stored
import tenon
from tenon import distributions as D

stats = pytest.importorskip("scipy.stats", reason="no SciPy to compare with")

# Ours, SciPy's, values to ask about.
CONTINUOUS = [
    ("Normal(0.5, 2.0)", "norm(0.5, 2.0)", [-3.0, 0.0, 1.25]),
    ("Uniform(-1.0, 3.0)", "uniform(-1.0, 4.0)", [-0.5, 0.0, 2.5]),
    ("Exponential(1.5)", "expon(scale=1 / 1.5)", [0.1, 1.0, 4.0]),
    ("Laplace(-1.0, 0.7)", "laplace(-1.0, 0.7)", [-4.0, -1.0, 2.0]),
    ("Cauchy(0.3, 1.2)", "cauchy(0.3, 1.2)", [-5.0, 0.0, 2.0]),
    ("Gumbel(0.3, 1.2)", "gumbel_r(0.3, 1.2)", [-1.0, 0.0, 2.0]),
    ("Gamma(2.5, 1.5)", "gamma(2.5, scale=1 / 1.5)", [0.2, 1.0, 3.0]),
    ("Gamma(0.5, 2.0)", "gamma(0.5, scale=0.5)", [0.2, 1.0, 3.0]),
    ("Beta(2.0, 3.0)", "beta(2.0, 3.0)", [0.1, 0.4, 0.9]),
    ("LogNormal(0.1, 0.6)", "lognorm(0.6, scale=np.exp(0.1))", [0.3, 1.0, 2.0]),
    ("Chi2(3.0)", "chi2(3.0)", [0.2, 1.0, 6.0]),
    ("HalfNormal(1.7)", "halfnorm(scale=1.7)", [0.0, 0.5, 3.0]),
    ("HalfCauchy(0.8)", "halfcauchy(scale=0.8)", [0.1, 0.5, 9.0]),
    ("Weibull(1.5, 2.5)", "weibull_min(2.5, scale=1.5)", [0.1, 1.0, 2.0]),
    ("Pareto(1.5, 3.5)", "pareto(3.5, scale=1.5)", [1.6, 2.0, 9.0]),
    ("StudentT(4.5, 0.3, 1.2)", "t(4.5, 0.3, 1.2)", [-2.0, 0.3, 5.0]),
    ("FisherSnedecor(5.0, 7.0)", "f(5.0, 7.0)", [0.2, 1.0, 3.0]),
    ("InverseGamma(4.5, 2.0)", "invgamma(4.5, scale=2.0)", [0.2, 0.6, 3.0]),
    ("GeneralizedPareto(0.5, 2.0, 0.2)", "genpareto(0.2, 0.5, 2.0)", [0.6, 2.0, 9.0]),
    ("GeneralizedPareto(0.5, 2.0, -0.3)", "genpareto(-0.3, 0.5, 2.0)", [0.6, 2.0, 5.0]),
    ("GeneralizedPareto(0.5, 2.0, 0.0)", "genpareto(0.0, 0.5, 2.0)", [0.6, 2.0, 5.0]),
]
DISCRETE = [
    ("Bernoulli(0.3)", "bernoulli(0.3)", [0.0, 1.0]),
    ("Geometric(0.4)", "geom(0.4, loc=-1)", [0.0, 1.0, 5.0]),
    ("Binomial(9, 0.3)", "binom(9, 0.3)", [0.0, 4.0, 9.0]),
    ("Poisson(3.5)", "poisson(3.5)", [0.0, 3.0, 11.0]),
    ("Poisson(130.0)", "poisson(130.0)", [90.0, 130.0]),
    ("NegativeBinomial(4.0, 0.3)", "nbinom(4.0, 0.7)", [0.0, 2.0, 7.0]),
    ("Binomial(9, logits=-0.4)", "binom(9, 1 / (1 + np.exp(0.4)))", [0.0, 4.0, 9.0]),
]


@pytest.fixture(autouse=True)
def double():
    tenon.set_default_dtype(tenon.float64)
    yield
    tenon.set_default_dtype(tenon.float32)


def _or_none(read):
    try:
        return read()
    except (NotImplementedError, AttributeError):
        return None


@pytest.mark.parametrize(("ours", "theirs", "values"), CONTINUOUS + DISCRETE)
def test_against_scipy(ours, theirs, values):
    d = eval("D." + ours)
    s = eval("stats." + theirs)
    x = tenon.tensor(values)
    want = s.logpdf(values) if (ours, theirs, values) in CONTINUOUS else s.logpmf(values)
    np.testing.assert_allclose(d.log_prob(x).numpy(), want, rtol=1e-9)
    entropy, share = _or_none(d.entropy), _or_none(lambda: d.cdf(x))
    if entropy is not None:
        np.testing.assert_allclose(float(entropy), s.entropy(), rtol=1e-9)
    if np.isfinite(s.mean()):
        np.testing.assert_allclose(float(d.mean), s.mean(), rtol=1e-9)
        np.testing.assert_allclose(float(d.variance), s.var(), rtol=1e-9)
    if share is not None:
        np.testing.assert_allclose(share.numpy(), s.cdf(values), rtol=1e-9)
    q = tenon.tensor([0.1, 0.5, 0.8])
    quantiles = _or_none(lambda: d.icdf(q))
    if quantiles is not None:
        np.testing.assert_allclose(quantiles.numpy(), s.ppf(q.numpy()), rtol=1e-9)


@pytest.mark.parametrize(("ours", "theirs", "values"), CONTINUOUS)
def test_draws_have_the_distribution(ours, theirs, values):
    tenon.manual_seed(0)
    d = eval("D." + ours)
    for draws in (d.sample((4000,)), d.rsample((4000,)), d.expand((4000,)).sample()):
        assert stats.kstest(draws.numpy(), eval("stats." + theirs).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("ours", "theirs", "values"), CONTINUOUS + DISCRETE)
def test_what_is_no_value_is_refused(ours, theirs, values):
    d, nan = eval("D." + ours), tenon.tensor(float("nan"))
    with pytest.raises(ValueError, match="support"):
        d.log_prob(nan)
    if _or_none(lambda: d.cdf(tenon.tensor(values[0]))) is not None:
        with pytest.raises(ValueError, match="support"):
            d.cdf(nan)


def test_classes():
    p = tenon.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    d = D.Categorical(p)
    assert d.batch_shape == (2,) and d.event_shape == ()
    index = tenon.tensor([2, 0])
    np.testing.assert_allclose(d.log_prob(index).exp().numpy(), [0.5, 0.6], rtol=1e-12)
    np.testing.assert_allclose(d.entropy().numpy(), stats.entropy(p.numpy().T), rtol=1e-12)
    tenon.manual_seed(0)
    share = tenon.nn.functional.one_hot(d.sample((5000,)), 3).double().mean(0)
    np.testing.assert_allclose(share.numpy(), p.numpy(), atol=0.03)
    hot = D.OneHotCategorical(logits=p.log())
    assert (hot.sample((7,)).sum(-1) == 1).all()
    np.testing.assert_allclose(hot.log_prob(tenon.eye(3)[index]).exp().numpy(), [0.5, 0.6])
    counts = D.Multinomial(6, p[0])
    np.testing.assert_allclose(
        float(counts.log_prob(tenon.tensor([1.0, 2.0, 3.0]))),
        stats.multinomial(6, p[0].numpy()).logpmf([1, 2, 3]),
        rtol=1e-9,
    )
    assert counts.sample((5,)).sum(-1).tolist() == [6.0] * 5
    x = tenon.tensor([0.2, 0.3, 0.5])
    np.testing.assert_allclose(
        float(D.Dirichlet(tenon.tensor([0.5, 2.0, 1.0])).log_prob(x)),
        stats.dirichlet([0.5, 2.0, 1.0]).logpdf(x.numpy()),
        rtol=1e-9,
    )


PAIRS = [
    ("Normal(0.0, 1.0)", "Normal(0.5, 2.0)"),
    ("Exponential(1.0)", "Exponential(2.5)"),
    ("Laplace(0.0, 1.0)", "Laplace(1.0, 0.5)"),
    ("Gamma(2.0, 1.0)", "Gamma(3.0, 2.0)"),
    ("Uniform(0.0, 1.0)", "Uniform(-1.0, 2.0)"),
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_divergence_is_the_integral(p, q):
    from scipy.integrate import quad

    p, q = eval("D." + p), eval("D." + q)

    def term(x: float) -> float:
        t = tenon.tensor(x)
        logp = float(p.log_prob(t))
        return np.exp(logp) * (logp - float(q.log_prob(t))) if logp > -700 else 0.0

    low, high = (0.0, 1.0) if isinstance(p, D.Uniform) else (0.0, 60.0)
    if isinstance(p, (D.Normal, D.Laplace)):
        low = -60.0
    want = quad(term, low, high, points=[0.0, 1.0] if low < 0 else None, limit=200)[0]
    np.testing.assert_allclose(float(D.kl_divergence(p, q)), want, rtol=1e-5)


def test_divergence_of_classes():
    a, b = tenon.tensor([0.2, 0.3, 0.5]), tenon.tensor([0.6, 0.3, 0.1])
    want = stats.entropy(a.numpy(), b.numpy())
    np.testing.assert_allclose(float(D.kl_divergence(D.Categorical(a), D.Categorical(b))), want)
    one = D.kl_divergence(D.Bernoulli(a), D.Bernoulli(b))
    two = [stats.entropy([x, 1 - x], [y, 1 - y]) for x, y in zip(a.tolist(), b.tolist())]
    np.testing.assert_allclose(one.numpy(), two, rtol=1e-9)
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\)"):
        D.kl_divergence(D.Categorical(a), D.Bernoulli(b))


def test_functions_of_draws():
    base = D.Normal(tenon.zeros(3), tenon.ones(3))
    squashed = D.TransformedDistribution(
        D.Independent(base, 1), [D.AffineTransform(0.5, 2.0), D.TanhTransform(cache_size=1)]
    )
    y = squashed.rsample((4,))
    assert y.shape == (4, 3) and (y.abs() < 1).all()
    x = np.arctanh(y.numpy())
    want = stats.norm(0.5, 2.0).logpdf(x) - np.log(1 - y.numpy() ** 2)
    np.testing.assert_allclose(squashed.log_prob(y).numpy(), want.sum(-1), rtol=1e-6)


def test_gradients_reach_the_parameters():
    loc, scale = tenon.zeros(2, requires_grad=True), tenon.ones(2, requires_grad=True)
    D.Normal(loc, scale).rsample((3,)).sum().backward()
    assert loc.grad.tolist() == [3.0, 3.0] and scale.grad is not None
    logits = tenon.zeros(4, requires_grad=True)
    D.Categorical(logits=logits).log_prob(tenon.tensor(1)).backward()
    np.testing.assert_allclose(logits.grad.numpy(), [-0.25, 0.75, -0.25, -0.25])


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="Expected parameter scale .* of distribution Normal"):
        D.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="Expected parameter logits"):
        D.Categorical(logits=tenon.tensor([float("nan"), 0.0]))
    with pytest.raises(ValueError, match="to be within the support"):
        D.Bernoulli(0.5).log_prob(tenon.tensor(2.0))
    with pytest.raises(ValueError, match="not broadcastable"):
        D.Normal(tenon.zeros(3), 1.0).log_prob(tenon.zeros(2))
    D.Normal(0.0, -1.0, validate_args=False)


INVALID = (
    "HalfCauchy(-1.0)", "HalfNormal(-1.0)", "LogNormal(0.0, -1.0)", "Gumbel(0.0, -1.0)",
    "Weibull(-1.0, 1.0)", "Weibull(1.0, -1.0)", "Pareto(-1.0, 1.0)", "Kumaraswamy(-1.0, 1.0)",
    "InverseGamma(-1.0, 1.0)", "Chi2(-1.0)",
    "VonMises(0.0, -1.0)", "Laplace(0.0, -1.0)", "Poisson(-1.0)", "Exponential(-1.0)",
    "GeneralizedPareto(0.0, -1.0, 1.0)", "Gamma(1.0, -1.0)", "Beta(-1.0, 1.0)", "Cauchy(0.0, -1.0)",
)  # fmt: skip


@pytest.mark.parametrize("text", INVALID)
def test_parameters_outside_their_set(text):
    places = {name: getattr(D, name) for name in D.__all__}
    with pytest.raises(ValueError, match="Expected parameter"):
        eval(text, places)
    made = eval(f"{text[:-1]}, validate_args=False)", places)
    assert isinstance(made, D.Distribution)


def test_expand():
    d = D.Categorical(tenon.tensor([0.25, 0.75])).expand((5, 2))
    assert d.batch_shape == (5, 2) and d.sample().shape == (5, 2)
    n = D.Independent(D.Normal(tenon.zeros(3), 1.0), 1).expand((4,))
    assert n.log_prob(n.sample()).shape == (4,)


def test_expand_of_a_class_that_names_other_parameters() -> None:
    class Steps(D.Categorical):
        arg_constraints = {"at": D.constraints.real}

        def __init__(self, at, validate_args=None):
            self.at = at
            super().__init__(tenon.stack([at, 1 - at], -1), validate_args=validate_args)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Steps, _instance)
            new.at = self.at.expand(batch_shape)
            return super().expand(batch_shape, new)

    wide = Steps(tenon.tensor([0.25, 0.5])).expand((3, 2))
    got = wide.log_prob(tenon.tensor(0)).exp()
    assert tenon.allclose(got, tenon.tensor([0.25, 0.5]).expand(3, 2))
    assert wide.at.shape == (3, 2)


DRAWS = [
    "Normal(lib.zeros(3), lib.ones(3) * 2).rsample((2,))",
    "Normal(lib.zeros(3), lib.ones(3) * 2).sample((2,))",
    "Uniform(lib.zeros(3), 2.0).sample((2,))",
    "Categorical(logits=lib.tensor([[1.0, 2.0, 3.0], [0.0, 0.5, 0.0]])).sample((5,))",
    "Bernoulli(lib.tensor([0.2, 0.7])).sample((4,))",
    "Exponential(lib.tensor([0.2, 0.7])).sample((4,))",
    "Laplace(lib.tensor([0.2, 0.7]), 1.0).sample((4,))",
    "Cauchy(lib.tensor([0.2, 0.7]), 1.0).sample((4,))",
    "Geometric(lib.tensor([0.2, 0.7])).sample((4,))",
    "OneHotCategorical(lib.tensor([0.2, 0.7, 0.1])).sample((4,))",
    "Multinomial(5, lib.tensor([0.2, 0.7, 0.1])).sample((2,))",
    "LogNormal(lib.tensor([0.2, 0.7]), 1.0).sample((4,))",
    "Gumbel(lib.tensor([0.2, 0.7]), 1.0).sample((4,))",
    "OneHotCategorical(lib.tensor([[0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])).sample((2, 2))",
    "RelaxedOneHotCategorical(0.7, lib.tensor([[0.2, 0.8], [0.9, 0.1]])).rsample((3,))",
    "MultivariateNormal(lib.ones(2), scale_tril=lib.tensor([[2.0, 0.0], [1.0, 0.5]])).sample((3,))",
]


@pytest.mark.parametrize("text", DRAWS)
def test_draws_are_those_of_pytorch(text):
    def drawn(lib):
        lib.manual_seed(7)
        return eval("lib.distributions." + text, {"lib": lib})

    want = stored.of_torch(drawn)
    before = tenon.get_rng_state()
    tenon.set_default_dtype(tenon.float32)
    tenon.set_rng("torch")
    try:
        stored.same(drawn(tenon), want, 2e-6, 1e-6)
    finally:
        tenon.set_rng("philox")
        tenon.set_rng_state(before)


@pytest.mark.parametrize("ours", [row[0] for row in DISCRETE])
def test_draws_of_counts_have_the_moments(ours):
    tenon.manual_seed(0)
    d = eval("D." + ours)
    draws = d.sample((20000,))
    error = float(d.variance.sqrt()) / 20000**0.5
    assert abs(float(draws.mean()) - float(d.mean)) < 4 * error
    assert float(draws.var()) == pytest.approx(float(d.variance), rel=0.1)
    wide = d.expand((2, 3))
    assert wide.sample((4,)).shape == (4, 2, 3) and wide.mean.shape == (2, 3)


MATRIX = [[2.0, 0.3, -0.4], [0.3, 1.0, 0.2], [-0.4, 0.2, 1.5]]


@pytest.mark.parametrize("form", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_normal_vectors(form):
    loc, matrix = tenon.tensor([0.5, -1.0, 2.0]), tenon.tensor(MATRIX)
    given = {
        "covariance_matrix": matrix, "precision_matrix": tenon.linalg.inv(matrix),
        "scale_tril": tenon.linalg.cholesky(matrix),
    }  # fmt: skip
    d = D.MultivariateNormal(loc, **{form: given[form]})
    s = stats.multivariate_normal(loc.numpy(), matrix.numpy())
    x = tenon.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 3.0]])
    np.testing.assert_allclose(d.log_prob(x).numpy(), s.logpdf(x.numpy()), rtol=1e-10)
    np.testing.assert_allclose(float(d.entropy()), s.entropy(), rtol=1e-10)
    for name in given:
        np.testing.assert_allclose(getattr(d, name).numpy(), given[name].numpy(), atol=1e-10)
    tenon.manual_seed(1)
    draws = d.sample((20000,)).numpy()
    np.testing.assert_allclose(np.cov(draws.T), matrix.numpy(), atol=0.06)
    np.testing.assert_allclose(draws.mean(0), loc.numpy(), atol=0.04)
    assert d.expand((2,)).log_prob(x).shape == (2,)
    with pytest.raises(ValueError, match="Exactly one"):
        D.MultivariateNormal(loc)
    with pytest.raises(ValueError, match="constraint PositiveDefinite"):
        D.MultivariateNormal(loc, -matrix)


def test_mixture():
    weights, means = tenon.tensor([0.2, 0.5, 0.3]), tenon.tensor([-2.0, 0.0, 3.0])
    d = D.MixtureSameFamily(D.Categorical(weights), D.Normal(means, 0.5 * tenon.ones(3)))
    x = np.array([-1.0, 0.2, 4.0])
    parts = stats.norm.pdf(x[:, None], means.numpy(), 0.5) @ weights.numpy()
    np.testing.assert_allclose(d.log_prob(tenon.tensor(x)).numpy(), np.log(parts), rtol=1e-10)
    mean = float((weights * means).sum())
    assert float(d.mean) == pytest.approx(mean)
    want = float((weights * (0.25 + means**2)).sum()) - mean**2
    assert float(d.variance) == pytest.approx(want)
    tenon.manual_seed(0)
    draws = d.sample((20000,))
    assert float(draws.mean()) == pytest.approx(mean, abs=0.06)
    with pytest.raises(ValueError, match="mixture_distribution component"):
        D.MixtureSameFamily(D.Categorical(weights), D.Normal(means[:2], 1.0))


SETS = [
    (D.constraints.real, ()), (D.constraints.positive, ()), (D.constraints.greater_than(2.0), ()),
    (D.constraints.less_than(-1.0), ()), (D.constraints.unit_interval, ()),
    (D.constraints.interval(-2.0, 3.0), ()), (D.constraints.simplex, (4,)),
    (D.constraints.lower_cholesky, (3, 3)), (D.constraints.real_vector, (3,)),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "shape"), SETS)
def test_free_numbers_become_members_of_a_set(constraint, shape):
    tenon.manual_seed(0)
    x = tenon.randn(5, *shape)
    for registry in (D.transform_to, D.biject_to):
        function = registry(constraint)
        y = function(x)
        assert constraint.check(y).all()
        np.testing.assert_allclose(function(function.inv(y)).numpy(), y.numpy(), rtol=1e-6)
    assert function.inv.inv is function
    with pytest.raises(NotImplementedError, match="Boolean"):
        D.transform_to(D.constraints.boolean)


@pytest.mark.parametrize(
    "text",
    [
        "SoftplusTransform()",
        "PowerTransform(1.7)",
        "StickBreakingTransform()",
        "SigmoidTransform()",
    ],
)
def test_jacobians_of_transforms(text):
    tenon.manual_seed(0)
    transform = eval("D." + text)
    x = tenon.rand(3) + 0.2
    jacobian = tenon.autograd.functional.jacobian(transform, x)
    y = transform(x)
    got = transform.log_abs_det_jacobian(x, y)
    if text.startswith("Stick"):
        want = tenon.linalg.slogdet(jacobian[:-1])[1]
    else:
        want = jacobian.diagonal().abs().log()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-8)


FAMILIES = [
    "Kumaraswamy(lib.tensor([0.7, 2.5]), lib.tensor([1.3, 0.8]))",
    "ContinuousBernoulli(lib.tensor([0.3, 0.5, 0.9]))",
    "ContinuousBernoulli(logits=lib.tensor([-1.3, 2.5]))",
    "VonMises(lib.tensor([0.3, -1.0]), lib.tensor([0.7, 9.0]))",
    "RelaxedBernoulli(lib.tensor(0.7), lib.tensor([0.3, 0.9]))",
    "RelaxedOneHotCategorical(lib.tensor(0.7), lib.tensor([0.3, 0.5, 0.2]))",
    "LogisticNormal(lib.tensor([0.3, -0.5]), lib.tensor([0.7, 1.5]))",
    "LKJCholesky(3, lib.tensor([0.7, 2.0]))",
    "Wishart(lib.tensor(5.0), lib.tensor([[2.0, 0.3], [0.3, 1.0]]))",
    "Wishart(lib.tensor([4.0, 5.0]), precision_matrix=lib.tensor([[2.0, 0.3], [0.3, 1.0]]))",
    "LowRankMultivariateNormal(lib.zeros(3), lib.tensor([[1.0], [0.5], [-2.0]]), lib.ones(3) / 2)",
    "Independent(Kumaraswamy(lib.ones(2, 3), 2.0), 1)",
    "TransformedDistribution(Normal(lib.zeros(2, 6), 1.0), [ReshapeTransform((6,), (2, 3))])",
    "TransformedDistribution(Normal(lib.zeros(3), 1.0), [CorrCholeskyTransform()])",
    "TransformedDistribution(Uniform(lib.zeros(2), 1.0), [SigmoidTransform().inv,"
    " AffineTransform(lib.ones(3, 2), -2.0)])",
    "MixtureSameFamily(Categorical(lib.ones(2)), Beta(lib.tensor([1.5, 2.0]), 3.0))",
]


@pytest.mark.parametrize("text", FAMILIES)
def test_families_are_those_of_pytorch(text):
    torch = pytest.importorskip("torch", reason="no PyTorch to compare with")
    ours = eval(text, {"lib": tenon, **vars(D)})
    torch.set_default_dtype(torch.float64)
    try:
        theirs = eval(text, {"lib": torch, **vars(torch.distributions)})
        assert ours.batch_shape == theirs.batch_shape and ours.event_shape == theirs.event_shape
        assert repr(ours.support) == repr(theirs.support)
        assert ours.has_rsample == theirs.has_rsample
        torch.manual_seed(3)
        values = theirs.sample((4,))
        x = tenon.tensor(values.numpy())
        reads = {
            "log_prob": (lambda: ours.log_prob(x), lambda: theirs.log_prob(values)),
            "cdf": (lambda: ours.cdf(x), lambda: theirs.cdf(values)),
            "wide": (
                lambda: ours.expand((3, *ours.batch_shape)).log_prob(x.unsqueeze(1)),
                lambda: theirs.expand((3, *theirs.batch_shape)).log_prob(values.unsqueeze(1)),
            ),
        }
        for name in ("mean", "mode", "variance"):
            reads[name] = (lambda n=name: getattr(ours, n), lambda n=name: getattr(theirs, n))
        reads["entropy"] = (ours.entropy, theirs.entropy)
        for name, (mine, want) in reads.items():
            got, expected = _or_none(mine), _or_none(want)
            assert (got is None) == (expected is None), name
            if got is not None:
                np.testing.assert_allclose(
                    got.detach().numpy(), expected.numpy(), rtol=1e-7, atol=1e-10, err_msg=name
                )
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("text", [t for t in FAMILIES if "Transformed" not in t])
def test_draws_of_families(text):
    tenon.manual_seed(0)
    d = eval(text, {"lib": tenon, **vars(D)})
    draws = d.sample((6000,))
    assert d.support.check(draws).all()
    mean = _or_none(lambda: d.mean)
    if mean is not None:
        angles = isinstance(d, D.VonMises)
        got = tenon.atan2(draws.sin().mean(0), draws.cos().mean(0)) if angles else draws.mean(0)
        np.testing.assert_allclose(got.numpy(), mean.numpy(), atol=0.35 if "Wish" in text else 0.09)


def test_correlations_are_spread_as_they_should():
    tenon.manual_seed(0)
    factor = D.LKJCholesky(3, 2.0).sample((8000,))
    r = (factor @ factor.mT)[:, 0, 1].numpy()
    # One correlation of a matrix of size n: Beta(a, a) on (-1, 1), a = concentration - 1 + n / 2.
    assert stats.kstest((r + 1) / 2, stats.beta(2.5, 2.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("a", [0.3, 1.0, 4.0, 250.0])
def test_gradients_of_gamma_draws_keep_the_share(a):
    from scipy.special import gammainc, gammaincinv

    tenon.manual_seed(1)
    shape = tenon.full((50,), a, requires_grad=True)
    z = D.Gamma(shape, 1.0).rsample()
    z.sum().backward()
    share, h = gammainc(a, z.detach().numpy()), 1e-5 * a
    inside = (share > 1e-6) & (share < 1 - 1e-6)
    want = (gammaincinv(a + h, share) - gammaincinv(a - h, share)) / (2 * h)
    np.testing.assert_allclose(shape.grad.numpy()[inside], want[inside], rtol=1e-5)


CONSTRAINTS = {
    "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.7]]],
    "lower_triangular": [[[1.0, 0.0], [0.6, -0.8]], [[1.0, 0.1], [0.6, 0.7]]],
    "symmetric": [[[1.0, 2.0], [2.0, 0.0]], [[1.0, 2.0], [2.1, 0.0]]],
    "positive_semidefinite": [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
    "positive_integer": [3.0, 0.0],
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_members_of_sets(name):
    inside, outside = CONSTRAINTS[name]
    constraint = getattr(D.constraints, name)
    assert bool(constraint.check(tenon.tensor(inside)))
    assert not bool(constraint.check(tenon.tensor(outside)))


def test_sets_of_parts():
    c = D.constraints
    parts = c.cat([c.positive, c.real], dim=-1, lengths=[1, 2])
    assert parts.check(tenon.tensor([1.0, -1.0, 2.0])).tolist() == [True] * 3
    assert parts.check(tenon.tensor([-1.0, -1.0, 2.0])).tolist() == [False, True, True]
    rows = c.stack([c.positive, c.real], dim=0)
    assert rows.check(tenon.tensor([[-1.0], [-1.0]])).tolist() == [[False], [True]]
    tenon.manual_seed(0)
    for constraint, shape in ((parts, (5, 3)), (rows, (2, 4)), (c.corr_cholesky, (6,)),
                              (c.positive_definite, (3, 3))):  # fmt: skip
        function = D.transform_to(constraint)
        y = function(tenon.randn(shape))
        assert constraint.check(y).all()
        np.testing.assert_allclose(function(function.inv(y)).numpy(), y.numpy(), atol=1e-8)
    with pytest.raises(NotImplementedError, match="event_dim cannot be determined"):
        _ = c.dependent.event_dim
    assert c.dependent(event_dim=1).event_dim == 1
    assert D.Uniform.support.event_dim == 0 and not D.Uniform.support.is_discrete


VECTOR_PAIRS = [
    ("MultivariateNormal(zeros(3), 2 * eye(3))", "MultivariateNormal(ones(3), eye(3))"),
    ("MultivariateNormal(zeros(3), 2 * eye(3))",
     "LowRankMultivariateNormal(ones(3), ones(3, 1), ones(3))"),
    ("Dirichlet(tensor([0.5, 2.0, 1.0]))", "Dirichlet(tensor([1.5, 1.0, 3.0]))"),
    ("Beta(2.0, 3.0)", "Beta(1.0, 0.5)"), ("Cauchy(0.0, 1.0)", "Cauchy(1.0, 2.0)"),
    ("Poisson(2.0)", "Poisson(3.0)"), ("Binomial(4, 0.3)", "Binomial(4, 0.6)"),
    ("Gumbel(0.0, 1.0)", "Gumbel(1.0, 2.0)"), ("HalfNormal(1.0)", "HalfNormal(2.0)"),
    ("Pareto(2.0, 3.0)", "Pareto(1.0, 2.0)"), ("LogNormal(0.0, 1.0)", "LogNormal(1.0, 2.0)"),
    ("Normal(0.3, 1.0)", "Laplace(1.0, 2.0)"), ("Normal(0.3, 1.0)", "Gumbel(1.0, 2.0)"),
    ("Beta(2.0, 3.0)", "Gamma(2.0, 3.0)"), ("Uniform(0.0, 2.0)", "Normal(1.0, 3.0)"),
    ("Pareto(2.0, 3.0)", "Normal(1.0, 3.0)"), ("Exponential(2.0)", "Gamma(2.0, 3.0)"),
    ("Normal(0.0, 1.0)", "Beta(2.0, 3.0)"), ("Poisson(2.0)", "Bernoulli(0.3)"),
    ("Bernoulli(0.3)", "Poisson(2.0)"), ("Gamma(2.0, 3.0)", "Exponential(1.5)"),
    ("ContinuousBernoulli(0.3)", "ContinuousBernoulli(0.8)"),
]  # fmt: skip


@pytest.mark.parametrize(("p", "q"), VECTOR_PAIRS)
def test_divergences_are_those_of_pytorch(p, q):
    def divergence(lib):
        names = {n: getattr(lib, n) for n in ("zeros", "ones", "eye", "tensor")}
        names |= vars(lib.distributions)
        return lib.distributions.kl_divergence(eval(p, names), eval(q, names))

    def of_torch(torch):
        torch.set_default_dtype(torch.float64)
        try:
            return divergence(torch)
        finally:
            torch.set_default_dtype(torch.float32)

    stored.same(divergence(tenon), stored.of_torch(of_torch), 1e-7)
