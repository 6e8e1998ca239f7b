"""Sums of waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import ExponentialFamily
from tenon.distributions.utils import broadcast_all, shape_of

__all__ = ["Gamma"]


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


class _StandardGamma(tenon.autograd.Function):
    """Draws from Gamma(a, 1). Their derivative keeps the share of draws below them, P(a, z): it is
    -(dP/da) / (dP/dz), with dP/da from the series z^(a+n) e^-z / Gamma(a+n+1), term by term."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        z = standard_gamma(a)
        ctx.save_for_backward(a, z)
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        a, z = (t.double() for t in ctx.saved_tensors)
        log_z = z.log()
        # Terms relative to the density z^(a-1) e^-z / Gamma(a), which is what they are divided by.
        term, slope, total = z / a, log_z - (a + 1).digamma(), 0.0
        past = (z - a).clamp(min=0)  # where the terms are largest
        for n in range(int((past + 12 * (z + 1).sqrt()).max()) + 40 if z.numel() else 0):
            total = total + term * slope
            term = term * (z / (a + (n + 1)))
            slope = slope - 1 / (a + (n + 1))
        return grad * (-total).to(grad.dtype)


class Gamma(ExponentialFamily):
    """Sums of waiting times."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        shape = shape_of(concentration + rate)
        self.concentration, self.rate = broadcast_all(concentration, rate)
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

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        draws = _StandardGamma.apply(self.concentration.expand(shape)) / self.rate.expand(shape)
        return draws.clamp(min=tenon.finfo(draws.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration, self.rate
        power = tenon.where(a == 1, tenon.zeros_like(value), (a - 1) * value.log())
        return a * b.log() + power - b * value - tenon.lgamma(a)

    def cdf(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + tenon.lgamma(a) + (1.0 - a) * tenon.digamma(a)
