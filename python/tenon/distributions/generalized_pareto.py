"""Excesses over a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """What lies beyond loc, with a tail that concentration makes heavy or ends."""

    arg_constraints = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), (), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        end = self.loc - self.scale / self.concentration
        upper = tenon.where(self.concentration < 0, end, tenon.full_like(self.loc, math.inf))
        return constraints.interval(self.loc, upper)

    def _flat(self) -> Tensor:
        """Where the tail is that of an exponential distribution."""
        return tenon.isclose(self.concentration, tenon.zeros_like(self.concentration))

    def _tail(self) -> Tensor:
        """The concentration, with something to divide by where it is 0."""
        return tenon.where(self._flat(), tenon.ones_like(self.concentration), self.concentration)

    @property
    def mean(self) -> Tensor:
        found = self.loc + self.scale / (1 - self.concentration)
        return tenon.where(self.concentration < 1, found, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        found = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return tenon.where(c < 0.5, found, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tenon.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y, c = (value - self.loc) / self.scale, self._tail()
        heavy = -self.scale.log() - (1 / c + 1) * (c * y).log1p()
        return tenon.where(self._flat(), -self.scale.log() - y, heavy)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log of the share of draws beyond a value."""
        if self._validate_args:
            self._validate_sample(value)
        y, c = (value - self.loc) / self.scale, self._tail()
        return tenon.where(self._flat(), -y, -(c * y).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log of the share of draws up to a value."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        c = self._tail()
        heavy = self.loc + self.scale * (1 / c) * ((-c * (-value).log1p()).exp() - 1)
        return tenon.where(self._flat(), self.loc - self.scale * (-value).log1p(), heavy)

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
