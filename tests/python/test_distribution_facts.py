"""What distributions, transforms and sets say of themselves, with every family and every pair of
families, against PyTorch's answers: moments, modes, entropies, densities, divergences, shapes."""

from __future__ import annotations

from typing import Any

import pytest
import stored
import tenon

REFUSED = (NotImplementedError, ValueError, RuntimeError, IndexError, TypeError, AttributeError)
ONE = [
    "Bernoulli(t([0.3, 0.8, 0.5]))", "Bernoulli(logits=t([-0.4, 1.2]))", "Beta(t([2.0, 0.5]), 3.0)",
    "Binomial(t([9.0, 4.0, 3.0]), t([0.3, 0.9, 0.5]))", "Binomial(9, logits=t([-0.4, 2.0]))",
    "Cauchy(t([0.3, 1.0]), 1.2)", "Chi2(t([3.0, 1.0, 2.0]))",
    "ContinuousBernoulli(t([0.3, 0.5, 0.9]))", "Exponential(t([1.5, 0.2]))",
    "FisherSnedecor(t([5.0, 1.5]), t([7.0, 3.0]))", "Gamma(t([2.5, 0.5]), t([1.5, 2.0]))",
    "Geometric(t([0.4, 0.9]))", "Geometric(logits=t([0.4, -0.9]))", "Gumbel(t([0.3, 1.0]), 1.2)",
    "HalfCauchy(t([0.8, 2.0]))", "HalfNormal(t([1.7, 0.3]))",
    "InverseGamma(t([4.5, 1.5, 0.5]), 2.0)",
    "Kumaraswamy(t([2.0, 0.5, 1.0, 3.0]), t([3.0, 2.0, 1.0, 0.5]))", "Laplace(t([-1.0, 0.5]), 0.7)",
    "LogNormal(t([0.1, 1.0]), 0.6)", "NegativeBinomial(t([4.0, 1.0, 0.5]), t([0.3, 0.5, 0.7]))",
    "NegativeBinomial(4.0, logits=t([0.3, -0.5]))", "Normal(t([0.5, -1.0]), t([2.0, 0.3]))",
    "Pareto(t([1.5, 0.2]), t([3.5, 1.0]))", "Poisson(t([3.5, 0.4]))",
    "StudentT(t([4.5, 1.0, 2.0, 0.5]), 0.3, 1.2)", "Uniform(t([-1.0, 0.0]), t([3.0, 0.5]))",
    "VonMises(t([0.5, -1.0]), t([1.5, 30.0]))", "Weibull(t([1.5, 0.7]), t([2.5, 1.0]))",
    "Categorical(t([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))", "Categorical(logits=t([0.2, -0.3, 0.5]))",

    "RelaxedBernoulli(t(0.7), logits=t([0.2, -0.6]))",
    "MixtureSameFamily(Categorical(t([0.3, 0.7])), Normal(t([-1.0, 2.0]), t([0.5, 1.0])))",
    "TransformedDistribution(Normal(t([0.0, 1.0]), 1.0), "
    "[ExpTransform(), AffineTransform(1.0, 2.0)])",
]  # fmt: skip
SEVERAL = [
    "Dirichlet(t([[0.5, 2.0, 1.0], [3.0, 2.0, 4.0]]))",
    "OneHotCategorical(t([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]))",
    "OneHotCategoricalStraightThrough(logits=t([0.2, 0.3, 0.5]))",
    "Multinomial(6, t([0.2, 0.3, 0.5]))", "Multinomial(6, logits=t([0.2, 0.3, 0.5]))",
    "MultivariateNormal(t([1.0, -1.0, 0.5]), scale_tril=t(LOWER))",
    "MultivariateNormal(t([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0]]), covariance_matrix=t(SPREAD))",
    "MultivariateNormal(t([1.0, -1.0, 0.5]), precision_matrix=t(SPREAD))",
    "MultivariateNormal(t([1.0, -1.0, 0.5]), precision_matrix=t([SPREAD, SPREAD]))",
    "MultivariateNormal(t([1.0, -1.0, 0.5]), covariance_matrix=t([[SPREAD], [SPREAD]]))",
    "MultivariateNormal(t([1.0, -1.0, 0.5]), scale_tril=t([[SPREAD], [SPREAD]]).tril())",
    "LowRankMultivariateNormal(t([1.0, -1.0, 0.5]), t([[1.0], [0.5], [-1.0]]), t([0.5, 1.0, 3.0]))",
    "Independent(Normal(t([[1.0, -1.0, 0.5]]), 2.0), 1)",
    "Independent(Bernoulli(t([0.3, 0.5, 0.5])), 0)",
    "RelaxedOneHotCategorical(t(0.7), probs=t([0.2, 0.3, 0.5]))",
    "LogisticNormal(t([0.1, -0.2]), t([1.0, 0.5]))", "LKJCholesky(3, t(1.5))",
    "Wishart(t(4.5), covariance_matrix=t(SPREAD))", "Wishart(t([3.5, 6.0]), scale_tril=t(LOWER))",
    "MixtureSameFamily(Categorical(t([0.3, 0.7])), "
    "Independent(Normal(t([[-1.0, 2.0, 0.0], [1.0, 1.0, 1.0]]), 1.0), 1))",
    "TransformedDistribution(Normal(t([0.0, 1.0, 2.0]), 1.0), [SoftmaxTransform()])",
]  # fmt: skip
# Where a formula has an edge, or its terms cancel above.
EDGES = [
    "ContinuousBernoulli(t([0.32, 0.58, 0.502]), lims=(0.3, 0.7))",
    "ContinuousBernoulli(t([0.502, 0.4995]))", "ContinuousBernoulli(logits=t([-1.3, 2.5]))",
    "VonMises(t([0.3, 0.1]), t([3.5, 4.0]))",
    "Geometric(t([1.0, 0.5]))", "HalfNormal(t([0.5, 2.0]), validate_args=False)",
]  # fmt: skip
EDGES_OF_SEVERAL = [
    "Dirichlet(t([0.5, 2.0, 1.0]))", "Wishart(t([4.0, 4.5]), covariance_matrix=t(SPREAD))",
    "MultivariateNormal(t([0.5, 1.0, 0.0]), scale_tril=t([[LOWER, TALL]]))",
    "Wishart(t(4.5), scale_tril=t([[LOWER, TALL]]))",
]  # fmt: skip
# The quantiles of 0 and 1 are infinite; PyTorch's end where its uniform numbers do.
LESS = {"Gumbel(": ["icdf 1", "icdf 3"]}
# What PyTorch answers and Tenon does not: shapes that do not go together, and a few families.
LESS_PAIRS = {
    "Beta": "Pareto Uniform", "Chi2": "Beta Pareto Uniform", "ContinuousBernoulli": "Pareto",
    "Exponential": "ContinuousBernoulli Gumbel Pareto",
    "Gamma": "ContinuousBernoulli Gumbel Pareto",
    "Gumbel": "Chi2 ContinuousBernoulli", "Laplace": "Chi2 ContinuousBernoulli",
    "Normal": "Chi2 ContinuousBernoulli", "Pareto": "ContinuousBernoulli",
    "Poisson": "Bernoulli Binomial", "Uniform": "Beta Exponential Gamma Gumbel Pareto",
}  # fmt: skip
LOWER = [[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.1, 0.7]]
TALL = [[2.0, 0.0, 0.0], [0.1, 0.5, 0.0], [0.4, -0.6, 3.0]]
SPREAD = [[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]]
POINTS = [-1.5, 0.0, 0.3, 1.0, 2.0, 4.0]
ROWS = [[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0], [-1.0, 0.5, 2.0], LOWER, SPREAD,
        [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]]  # fmt: skip
SAID = ["batch_shape", "event_shape", "mean", "mode", "variance", "stddev", "has_enumerate_support",
        "has_rsample", "probs", "logits", "covariance_matrix", "precision_matrix", "scale_tril",
        "loc", "scale", "concentration"]  # fmt: skip


@pytest.fixture(autouse=True)
def double() -> Any:
    tenon.set_default_dtype(tenon.float64)
    yield
    tenon.set_default_dtype(tenon.float32)


def made(m: Any, text: str) -> Any:
    names = {**vars(m.distributions), **vars(m.distributions.transforms)}
    names |= {"LOWER": LOWER, "TALL": TALL, "SPREAD": SPREAD, "c": m.distributions.constraints}
    return eval(text, names | {"t": lambda x: m.tensor(x, dtype=m.float64)})


def answer(read: Any) -> Any:
    """What is read: a tensor, numbers of a shape, a truth; "refused"."""
    try:
        value = read()
    except REFUSED:
        return "refused"
    return list(value) if isinstance(value, tuple) else value


def facts(m: Any, text: str, rows: list[Any]) -> dict[str, Any]:
    d = made(m, text)
    found = {name: answer(lambda name=name: getattr(d, name)) for name in SAID}
    found["entropy"] = answer(d.entropy)
    found["support"] = answer(lambda: [d.support.is_discrete, d.support.event_dim])
    for expand in (True, False):
        found[f"enumerated {expand}"] = answer(lambda e=expand: d.enumerate_support(e))
    wide = answer(lambda: d.expand((2, *([1] * (len(d.batch_shape) - 1)), *d.batch_shape[-1:])))
    parts = {"": d} if isinstance(wide, str) else {"": d, "expanded ": wide}
    for word, e in parts.items():
        for name in SAID[:5]:
            found[word + name] = answer(lambda e=e, name=name: getattr(e, name))
        for i, row in enumerate(rows):
            x = m.tensor(row, dtype=m.float64)
            for name in ("log_prob", "cdf", "icdf"):
                found[f"{word}{name} {i}"] = answer(lambda e=e, n=name, x=x: getattr(e, n)(x))
            if not word:
                found[f"member {i}"] = answer(lambda e=e, x=x: e.support.check(x))
    return found


def compare(got: dict[str, Any], want: dict[str, Any], text: str) -> None:
    for name, value in want.items():
        if any(p in text and n in name for p, names in LESS.items() for n in names):
            continue
        stored.same(got[name], value, 1e-6, 1e-9, f"{text} {name}")


@pytest.mark.parametrize("text", ONE + SEVERAL + EDGES + EDGES_OF_SEVERAL)
def test_families(text: str) -> None:
    rows = POINTS if text in ONE + EDGES else ROWS
    want = stored.of_torch(lambda torch: facts(torch, text, rows))
    compare(facts(tenon, text, rows), want, text)


@pytest.mark.parametrize("p", ONE[:29] + SEVERAL[:14])
def test_divergences(p: str) -> None:
    """Of every other family with one from this."""
    others = [*ONE[:29], *SEVERAL[:14]]

    def found(m: Any) -> list[Any]:
        pairs = [(made(m, p), made(m, q)) for q in others]
        return [answer(lambda p=p, q=q: m.distributions.kl_divergence(p, q)) for p, q in pairs]

    want = stored.of_torch(found, brief=True)
    for q, mine, value in zip(others, found(tenon), want, strict=True):
        names = p.partition("(")[0], q.partition("(")[0]
        if names[1] not in LESS_PAIRS.get(names[0], "").split():
            stored.same(mine, value, 1e-6, 1e-9, f"{p} from {q}")


TRANSFORMS = [
    "ExpTransform()", "PowerTransform(t(2.0))", "PowerTransform(t(-0.5))", "SigmoidTransform()",
    "TanhTransform()", "SoftplusTransform()", "AbsTransform()", "AffineTransform(1.0, t(2.5))",
    "AffineTransform(t([1.0, 2.0, 3.0]), -2.5, event_dim=1)", "SoftmaxTransform()",
    "StickBreakingTransform()", "LowerCholeskyTransform()", "PositiveDefiniteTransform()",
    "CorrCholeskyTransform()", "IndependentTransform(ExpTransform(), 1)",
    "ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])",
    "ComposeTransform([AffineTransform(t([1.0, 2.0, 3.0]), 2.0, event_dim=1), ExpTransform()])",
    "ComposeTransform([ExpTransform(), StickBreakingTransform()])",
    "CatTransform([ExpTransform(), AbsTransform()], dim=0, lengths=[1, 2])",
    "StackTransform([ExpTransform(), SigmoidTransform(), AffineTransform(0.0, 3.0)], dim=0)",
    "ReshapeTransform((3,), (3, 1))", "CumulativeDistributionTransform(Normal(0.0, t(2.0)))",
    "ExpTransform().inv", "SigmoidTransform().inv",
]  # fmt: skip


@pytest.mark.parametrize("text", TRANSFORMS)
def test_transforms(text: str) -> None:
    def found(m: Any) -> dict[str, Any]:
        t = made(m, text)
        said: dict[str, Any] = {
            "bijective": answer(lambda: t.bijective),
            "sign": answer(lambda: t.sign),
            "dims": answer(lambda: [t.domain.event_dim, t.codomain.event_dim]),
            "discrete": answer(lambda: [t.domain.is_discrete, t.codomain.is_discrete]),
            "equal": [answer(lambda o=o: bool(t == made(m, o))) for o in TRANSFORMS],
        }
        for shape in ((3,), (2, 3), (3, 3), (6,), (3, 1), (1,), (4, 3, 3)):
            for name in ("forward_shape", "inverse_shape"):
                said[f"{name} {shape}"] = answer(lambda n=name, s=shape: getattr(t, n)(s))
        for i, row in enumerate([[0.2, 0.3, 0.5], [1.5, 0.7, 2.0], [-1.0, 0.5, 2.0], SPREAD]):
            x = m.tensor(row, dtype=m.float64)
            y = answer(lambda x=x: t(x))
            said[f"value {i}"] = y
            if not isinstance(y, str):
                said[f"back {i}"] = answer(lambda y=y: t.inv(y))
                said[f"slope {i}"] = answer(lambda x=x, y=y: t.log_abs_det_jacobian(x, y))
        return said

    compare(found(tenon), stored.of_torch(found), text)


SETS = [
    "boolean", "one_hot", "integer_interval(0, 2)", "nonnegative_integer", "positive_integer",
    "positive", "nonnegative", "real", "real_vector", "unit_interval", "interval(-1.0, 2.0)",
    "half_open_interval(0.0, 1.0)", "less_than(1.0)", "greater_than(1.0)", "greater_than_eq(1.0)",
    "simplex", "lower_cholesky", "lower_triangular", "corr_cholesky", "square", "symmetric",
    "positive_definite", "positive_semidefinite", "multinomial(6)", "independent(positive, 1)",
    "cat([positive, real, boolean], 0, [1, 1, 1])", "stack([positive, boolean, real], 0)",
]  # fmt: skip


@pytest.mark.parametrize("text", SETS)
def test_members(text: str) -> None:
    """Of sets, and what maps all numbers to them."""

    def found(m: Any) -> list[Any]:
        c = m.distributions.constraints
        s = eval(text, dict(vars(c)))
        said: list[Any] = [answer(lambda: s.is_discrete), answer(lambda: s.event_dim)]
        for row in [*ROWS, [-0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [1.0, 1.0, 1.0], [1.0, 2.0, 0.0],
                    [-1.0, 1.5, 2.0], [6.0, 0.0, 0.0]]:  # fmt: skip
            x = m.tensor(row, dtype=m.float64)
            said.append(answer(lambda x=x: s.check(x)))
            for to in (m.distributions.transform_to, m.distributions.biject_to):
                said.append(answer(lambda x=x, to=to: to(s)(x)))
        return said

    for mine, want in zip(found(tenon), stored.of_torch(found), strict=True):
        if want != "refused":  # PyTorch maps no vectors to triangles
            stored.same(mine, want, 1e-6, 1e-9, text)
