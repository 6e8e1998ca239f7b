"""Ratios of two normal numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon.distributions._parameters import _LocScale

__all__ = ["Cauchy"]


class Cauchy(_LocScale):
    """The ratio of two normal numbers; it has no mean."""

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self.loc, math.nan)

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
