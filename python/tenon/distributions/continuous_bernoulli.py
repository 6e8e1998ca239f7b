"""Numbers between 0 and 1 whose density grows or falls exponentially."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Chance
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(_Chance, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x); series are used near 1/2."""

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        shape = self._take(probs, logits)
        if probs is not None:
            given = self.probs
            if validate_args is not None and not self.arg_constraints["probs"].check(given).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(given)
        self._lims = lims
        super().__init__(shape, (), validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """sigmoid(logits)."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _steep(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        """The probabilities, with another one where the series is used."""
        return tenon.where(self._steep(), self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of what makes the density integrate to 1."""
        cut = self._cut()
        one, two = cut.clamp(max=0.5), cut.clamp(min=0.5)
        ratio = tenon.where(cut < 0.5, (-2.0 * one).log1p(), (2.0 * two - 1.0).log())
        norm = ((-cut).log1p() - cut.log()).abs().log() - ratio
        x = (self.probs - 0.5).pow(2)
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return tenon.where(self._steep(), norm, series)

    @property
    def mean(self) -> Tensor:
        cut = self._cut()
        found = cut / (2.0 * cut - 1.0) + 1.0 / ((-cut).log1p() - cut.log())
        x = self.probs - 0.5
        return tenon.where(self._steep(), found, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        cut = self._cut()
        found = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2)
        found = found + 1.0 / ((-cut).log1p() - cut.log()).pow(2)
        x = (self.probs - 0.5).pow(2)
        series = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return tenon.where(self._steep(), found, series)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tenon.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        loss = tenon.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - loss

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        cut = self._cut()
        found = (cut.pow(value) * (1.0 - cut).pow(1.0 - value) + cut - 1.0) / (2.0 * cut - 1.0)
        found = tenon.where(self._steep(), found, value)
        return tenon.where(value <= 0.0, 0.0, tenon.where(value >= 1.0, 1.0, found))

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._cut()
        found = (-cut + value * (2.0 * cut - 1.0)).log1p() - (-cut).log1p()
        return tenon.where(self._steep(), found / (cut.log() - (-cut).log1p()), value)

    def entropy(self) -> Tensor:
        one, two = (-self.probs).log1p(), self.probs.log()
        return self.mean * (one - two) - self._cont_bern_log_norm() - one
