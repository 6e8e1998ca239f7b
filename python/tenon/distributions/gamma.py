"""Sums of waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """Sums of waiting times."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), (), validate_args)

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
        draws = tenon._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return draws.clamp(min=tenon.finfo(draws.dtype).tiny)

    def log_prob(self, value: Any) -> Tensor:
        value = tenon.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
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
