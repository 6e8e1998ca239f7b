"""Distributions of real numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import (
    Distribution,
    ExponentialFamily,
    broadcast,
    shape_of,
)

_LOG_2PI = math.log(2 * math.pi)


class Normal(ExponentialFamily):
    """Bell curves."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(loc + scale)
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            return tenon.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        eps = tenon.empty(shape, dtype=self.loc.dtype, device=self.loc.device).normal_()
        return self.loc + eps * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) ** 2
        return -distance / (2 * self.scale**2) - self.scale.log() - _LOG_2PI / 2

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) * self.scale.reciprocal() / math.sqrt(2)
        return 0.5 * (1 + tenon.erf(z))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * tenon.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * _LOG_2PI + tenon.log(self.scale)


class Uniform(Distribution):
    """Every value of [low, high) alike."""

    has_rsample = True
    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(low + high)
        self.low, self.high = broadcast(low, high)
        super().__init__(shape, (), validate_args)
        if self._validate_args and not tenon.lt(self.low, self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    @property
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rand = tenon.rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + rand * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low.le(value) & self.high.gt(value)).to(self.low.dtype)
        return tenon.log(inside) - tenon.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return tenon.log(self.high - self.low)


class Exponential(ExponentialFamily):
    """Waiting times at a constant rate."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(rate)
        (self.rate,) = broadcast(rate)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.rate.new_empty(shape).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - tenon.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -tenon.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - tenon.log(self.rate)


class Laplace(Distribution):
    """Two exponentials back to back."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(loc + scale)
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = tenon.finfo(self.loc.dtype).eps - 1
        u = self.loc.new_empty(shape).uniform_(low, 1)
        return self.loc - self.scale * u.sign() * tenon.log1p(-u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -tenon.log(2 * self.scale) - tenon.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * tenon.expm1(-distance.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * tenon.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + tenon.log(2 * self.scale)


class Cauchy(Distribution):
    """The ratio of two normal numbers; it has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(loc + scale)
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return tenon.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        eps = self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + eps * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = ((value - self.loc) / self.scale) ** 2
        return -math.log(math.pi) - self.scale.log() - z.log1p()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tenon.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(Distribution):
    """The largest of many numbers with exponential tails."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(loc + scale)
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * 0.57721566490153286060

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # PyTorch draws from [tiny, 1 - eps), and so is the same stream of numbers used here.
        info = tenon.finfo(self.loc.dtype)
        shape = self._extended_shape(sample_shape)
        u = self.loc.new_empty(shape).uniform_(info.tiny, 1 - info.eps)
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + 0.57721566490153286060)


def standard_gamma(a: Tensor) -> Tensor:
    """Draws from Gamma(a, 1), without a gradient.

    Squeeze of a cube of a normal number: candidates are accepted element by element until none is
    left. Below 1 the draw for a + 1 is scaled by a power of a uniform number.
    """
    info = tenon.finfo(a.dtype)
    boost = tenon.where(a < 1, tenon.rand_like(a).clamp(min=info.tiny) ** (1 / a), 1.0)
    d = tenon.where(a < 1, a + 1, a) - 1 / 3
    c = 1 / (9 * d).sqrt()
    result = tenon.zeros_like(a)
    open_ = tenon.ones_like(a, dtype=tenon.bool)
    while open_.any():
        x, u = tenon.randn_like(a), tenon.rand_like(a).clamp(min=info.tiny)
        v = (1 + c * x) ** 3
        bound = 0.5 * x * x + d * (1 - v + v.clamp(min=info.tiny).log())
        good = open_ & (v > 0) & (u.log() < bound)
        result = tenon.where(good, d * v, result)
        open_ = open_ & ~good
    return (result * boost).clamp(min=info.tiny)


class Gamma(ExponentialFamily):
    """Sums of waiting times."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(concentration + rate)
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            return standard_gamma(self.concentration.expand(shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration, self.rate
        power = tenon.where(a == 1, tenon.zeros_like(value), (a - 1) * value.log())
        return a * b.log() + power - b * value - tenon.lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + tenon.lgamma(a) + (1.0 - a) * tenon.digamma(a)


class Beta(ExponentialFamily):
    """Shares between 0 and 1."""

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        shape = shape_of(concentration1 + concentration0)
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            one = standard_gamma(self.concentration1.expand(shape))
            zero = standard_gamma(self.concentration0.expand(shape))
            return one / (one + zero)

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return tenon.lgamma(a) + tenon.lgamma(b) - tenon.lgamma(a + b)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return (a - 1) * value.log() + (b - 1) * tenon.log1p(-value) - self._log_beta()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (
            self._log_beta()
            - (a - 1) * tenon.digamma(a)
            - (b - 1) * tenon.digamma(b)
            + (a + b - 2) * tenon.digamma(a + b)
        )


class Dirichlet(ExponentialFamily):
    """Several shares that sum to one."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        rest = total - self.concentration
        return self.concentration * rest / (total.pow(2) * (total + 1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            parts = standard_gamma(self.concentration.expand(shape))
            return parts / parts.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        powers = ((a - 1) * value.log()).sum(-1)
        return powers + tenon.lgamma(a.sum(-1)) - tenon.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        k, total = a.size(-1), a.sum(-1)
        return (
            tenon.lgamma(a).sum(-1)
            - tenon.lgamma(total)
            - (k - total) * tenon.digamma(total)
            - ((a - 1) * tenon.digamma(a)).sum(-1)
        )
