"""Largest of many numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon.distributions._parameters import _LocScale
from tenon.distributions.utils import euler_constant

__all__ = ["Gumbel"]


class Gumbel(_LocScale):
    """The largest of many numbers with exponential tails."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # PyTorch draws from [tiny, 1 - eps), and so is the same stream of numbers used here.
        info = tenon.finfo(self.loc.dtype)
        shape = self._extended_shape(sample_shape)
        u = self.loc.new_empty(shape).uniform_(info.tiny, 1 - info.eps)
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
