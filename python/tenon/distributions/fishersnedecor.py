"""Ratios of mean squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.gamma import Gamma
from tenon.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared numbers, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.size(), (), validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._gamma1 = Gamma(new.df1 * 0.5, new.df1)
        new._gamma2 = Gamma(new.df2 * 0.5, new.df2)

    @property
    def mean(self) -> Tensor:
        return tenon.where(self.df2 > 2, self.df2 / (self.df2 - 2), tenon.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return tenon.where(self.df1 > 2, found, tenon.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        spread = 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4))
        return tenon.where(b > 4, spread, tenon.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        one = self._gamma1.rsample(sample_shape)
        two = self._gamma2.rsample(sample_shape)
        tiny = tenon.finfo(two.dtype).tiny
        return (one / two.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        ways = (a + b).lgamma() - a.lgamma() - b.lgamma()
        powers = a * ratio.log() + (a - 1) * value.log()
        return ways + powers - (a + b) * (ratio * value).log1p()
