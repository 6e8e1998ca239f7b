"""Reciprocals of sums of waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.gamma import Gamma
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """1 / x of an x from Gamma."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        minus = -base.rate.new_ones(())
        super().__init__(base, PowerTransform(minus), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(InverseGamma, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def concentration(self) -> Tensor:
        """The shape of the base."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the base, here a scale."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        return tenon.where(self.concentration > 1, self.rate / (self.concentration - 1), tenon.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        spread = self.rate.square() / ((a - 1).square() * (a - 2))
        return tenon.where(a > 2, spread, tenon.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
