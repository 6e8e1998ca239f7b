"""Powers of waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.exponential import Exponential
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.transforms import AffineTransform, PowerTransform
from tenon.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """scale * x ** (1 / concentration) of exponential x."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(tenon.ones_like(self.scale), validate_args=False)
        power = PowerTransform(self.concentration.reciprocal())
        super().__init__(base, [power, AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        parameters = (self.scale.expand(batch_shape), self.concentration.expand(batch_shape))
        return self._expand_anew(Weibull, _instance, *parameters)

    def _moment(self, n: int) -> Tensor:
        return (1 + n / self.concentration).lgamma()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1).exp()

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (self._moment(2).exp() - (2 * self._moment(1)).exp())

    @property
    def mode(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return self.scale * (1 - inverse) ** inverse

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        euler = euler_constant
        return euler * (1 - inverse) + (self.scale * inverse).log() + 1
