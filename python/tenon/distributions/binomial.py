"""Counts of successes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import broadcast_all, lazy_property, probs_to_logits

__all__ = ["Binomial"]


class Binomial(Distribution):
    """How many of total_count trials succeed."""

    has_enumerate_support = True
    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, value = ("probs", probs) if logits is None else ("logits", logits)
        self.total_count, parameter = broadcast_all(total_count, value)
        self.total_count = self.total_count.to(parameter.dtype)
        setattr(self, name, parameter)
        super().__init__(parameter.shape, (), validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """How probable it is that a trial succeeds."""
        return self.logits.sigmoid()

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        count = self.total_count.to(self.probs.dtype).expand(shape)
        with tenon.no_grad():
            return tenon.binomial(count, self.probs.expand(shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max())
        if self.total_count.min() != most:
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        values = tenon.arange(1 + most, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view(-1, *(1 for _ in self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def entropy(self) -> Tensor:
        if self.total_count.min() != self.total_count.max():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        logs = self.log_prob(self.enumerate_support(False))
        return -(logs.exp() * logs).sum(0)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self.__dict__.get("probs", self.__dict__.get("logits")).size()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # n log(1 + exp(logits)), whose exp cannot overflow
        return ways + value * logits - n * tenon.nn.functional.softplus(logits)
