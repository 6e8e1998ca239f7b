"""Distributions of positive numbers and of numbers with heavy tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions._continuous import Cauchy, Exponential, Gamma, Normal
from tenon.distributions._derived import TransformedDistribution
from tenon.distributions.distribution import Distribution, broadcast, shape_of
from tenon.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
)

__all__ = ["Chi2", "HalfCauchy", "HalfNormal", "Pareto", "StudentT", "Weibull"]


class Chi2(Gamma):
    """Sums of `df` squares of standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (value,) = broadcast(df)
        super().__init__(0.5 * value, tenon.full_like(value, 0.5), validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2

    def expand(self, batch_shape: Sequence[int]) -> Chi2:
        return Chi2(self.df.expand(batch_shape), validate_args=False)


class _Half(TransformedDistribution):
    """The absolute value of a number that is spread evenly around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    @property
    def scale(self) -> Tensor:
        """The scale of the whole distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.scale)

    def expand(self, batch_shape: Sequence[int]) -> Any:
        return type(self)(self.scale.expand(batch_shape), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        result = self.base_dist.log_prob(value) + math.log(2)
        return tenon.where(value >= 0, result, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """|x| of a normal x."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """|x| of a Cauchy x."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return tenon.full_like(self.scale, math.inf)


class Weibull(TransformedDistribution):
    """scale * x ** (1 / concentration) of exponential x."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast(scale, concentration)
        base = Exponential(tenon.ones_like(self.scale), validate_args=False)
        power = PowerTransform(self.concentration.reciprocal())
        super().__init__(base, [power, AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Sequence[int]) -> Weibull:
        return Weibull(
            self.scale.expand(batch_shape), self.concentration.expand(batch_shape),
            validate_args=False,
        )  # fmt: skip

    def _moment(self, n: int) -> Tensor:
        return (1 + n / self.concentration).lgamma()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1).exp()

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (self._moment(2).exp() - (2 * self._moment(1)).exp())

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        euler = 0.57721566490153286060
        return euler * (1 - inverse) + (self.scale * inverse).log() + 1


class Pareto(TransformedDistribution):
    """scale * exp(x) of exponential x with rate alpha."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Sequence[int]) -> Pareto:
        return Pareto(
            self.scale.expand(batch_shape), self.alpha.expand(batch_shape), validate_args=False
        )

    @property
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite up to 1
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)  # infinite up to 2
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class StudentT(Distribution):
    """Student's t: a normal number over the root of a mean of `df` squares of such."""

    arg_constraints = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }  # fmt: skip
    support = constraints.real

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(shape_of(df + loc + scale), (), validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._chi2 = Chi2(new.df)

    @property
    def mean(self) -> Tensor:
        return tenon.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        spread = self.scale.pow(2) * self.df / (self.df - 2)
        spread = tenon.where(self.df > 2, spread, math.inf)
        return tenon.where(self.df > 1, spread, math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            x = tenon.empty(shape, dtype=self.df.dtype, device=self.df.device).normal_()
            z = self._chi2.sample(sample_shape)
            return self.loc + self.scale * x * (z / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        norm = (
            self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
            + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()
        )  # fmt: skip
        return -0.5 * (self.df + 1) * (y.pow(2) / self.df).log1p() - norm

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        digammas = more.digamma() - half.digamma()
        return self.scale.log() + more * digammas + 0.5 * self.df.log() + log_beta
