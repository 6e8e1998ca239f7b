"""Shares between 0 and 1 whose distribution has a short form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.transforms import AffineTransform, PowerTransform
from tenon.distributions.uniform import Uniform
from tenon.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """(1 - u ** (1 / concentration0)) ** (1 / concentration1) of uniform u."""

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        one = tenon.ones_like(self.concentration0)
        base = Uniform(tenon.zeros_like(one), one, validate_args=validate_args)
        steps = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -one),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        new.concentration1 = self.concentration1.expand(batch_shape)
        new.concentration0 = self.concentration0.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    def _moment(self, n: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        part = 1 + n / a
        return (part.lgamma() + b.lgamma() - (part + b).lgamma()).exp() * b

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = a.reciprocal() * (-b).log1p() - (-a * b).log1p()
        return tenon.where((a < 1) | (b < 1), tenon.nan, log_mode.exp())

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        t1, t0 = 1 - a.reciprocal(), 1 - b.reciprocal()
        harmonic = (b + 1).digamma() + euler_constant
        return t0 + t1 * harmonic - a.log() - b.log()
