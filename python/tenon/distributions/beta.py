"""Shares between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.dirichlet import sample_dirichlet
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """Shares between 0 and 1."""

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True
    _derived = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.size(), (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        both = tenon.stack([self.concentration1, self.concentration0], -1)
        return sample_dirichlet(both.expand(*shape, 2)).select(-1, 0)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = (a - 1) / (a + b - 2)
        edge = tenon.where(a < b, 0.0, 1.0).to(a.dtype)
        flat = (a == 1) & (b == 1)
        edge = tenon.where(((a < 1) & (b < 1)) | flat, math.nan, edge)
        return tenon.where((a > 1) & (b > 1), inner, edge)

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return tenon.lgamma(a) + tenon.lgamma(b) - tenon.lgamma(a + b)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return (a - 1) * value.log() + (b - 1) * tenon.log1p(-value) - self._log_beta()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (
            self._log_beta()
            - (a - 1) * tenon.digamma(a)
            - (b - 1) * tenon.digamma(b)
            + (a + b - 2) * tenon.digamma(a + b)
        )
