"""Bell curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon.distributions._parameters import _LocScale
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import LOG_2PI

__all__ = ["Normal"]


class Normal(_LocScale, ExponentialFamily):
    """Bell curves."""

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
        return -distance / (2 * self.scale**2) - self.scale.log() - LOG_2PI / 2

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) * self.scale.reciprocal() / math.sqrt(2)
        return 0.5 * (1 + tenon.erf(z))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * tenon.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * LOG_2PI + tenon.log(self.scale)
