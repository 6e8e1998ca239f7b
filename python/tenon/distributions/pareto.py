"""Powers of shares, scaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.exponential import Exponential
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.transforms import AffineTransform, ExpTransform
from tenon.distributions.utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """scale * exp(x) of exponential x with rate alpha."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        parameters = (self.scale.expand(batch_shape), self.alpha.expand(batch_shape))
        return self._expand_anew(Pareto, _instance, *parameters)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
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
