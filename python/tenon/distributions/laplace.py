"""Two exponentials, back to back."""

from __future__ import annotations

from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon.distributions._parameters import _LocScale

__all__ = ["Laplace"]


class Laplace(_LocScale):
    """Two exponentials back to back."""

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
