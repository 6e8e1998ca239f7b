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
from tenon.distributions._derived import Independent, LogNormal, TransformedDistribution
from tenon.distributions._discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from tenon.distributions.distribution import Distribution, ExponentialFamily
from tenon.distributions.kl import kl_divergence, register_kl
from tenon.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Cauchy",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Geometric",
    "Gumbel",
    "Independent",
    "Laplace",
    "LogNormal",
    "Multinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "SigmoidTransform",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "constraints",
    "kl",
    "kl_divergence",
    "register_kl",
    "transforms",
]
