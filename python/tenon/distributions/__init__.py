"""Probability distributions: draws, probabilities, entropies and divergences.

Draws follow PyTorch's stream of random numbers where tenon.set_rng("torch") is on, except those of
Gamma, Beta and Dirichlet, which have the right distribution but other numbers and no gradient.
"""

from tenon.distributions import constraints, kl, transforms
from tenon.distributions._continuous import (
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    Laplace,
    Normal,
    Uniform,
)
from tenon.distributions._counts import (
    Binomial,
    MixtureSameFamily,
)
from tenon.distributions._derived import Independent, LogNormal, TransformedDistribution
from tenon.distributions._discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from tenon.distributions._heavy import (
    Chi2,
    HalfCauchy,
    HalfNormal,
    Pareto,
    StudentT,
    Weibull,
)
from tenon.distributions.constraint_registry import biject_to, transform_to
from tenon.distributions.distribution import Distribution, ExponentialFamily
from tenon.distributions.kl import kl_divergence, register_kl
from tenon.distributions.multivariate_normal import MultivariateNormal
from tenon.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential",
    "ExponentialFamily", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal",
    "Independent", "IndependentTransform", "Laplace", "LogNormal", "LowerCholeskyTransform",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "PowerTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
    "StickBreakingTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "Weibull", "biject_to", "constraints",
    "identity_transform", "kl", "kl_divergence", "register_kl", "transform_to", "transforms",
]  # fmt: skip
