"""Distributions of counts, and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution, broadcast

__all__ = ["Binomial", "MixtureSameFamily"]


class Binomial(Distribution):
    """How many of total_count trials succeed."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, value = ("probs", probs) if logits is None else ("logits", logits)
        self.total_count, parameter = broadcast(total_count, value)
        self.total_count = self.total_count.to(parameter.dtype)
        setattr(self, name, parameter)
        super().__init__(parameter.shape, (), validate_args)

    @cached_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        return tenon.logit(self.probs)

    @cached_property
    def probs(self) -> Tensor:
        """How probable it is that a trial succeeds."""
        return self.logits.sigmoid()

    def _expand_rest(self, new: Any) -> None:
        parameter = new.__dict__.get("probs", new.__dict__.get("logits"))
        new.total_count = self.total_count.expand(parameter.shape)

    @property
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
        most = int(self.total_count.max()) if self.total_count.numel() else 0
        with tenon.no_grad():
            draws = tenon.rand((most, *shape), dtype=self.probs.dtype, device=self.probs.device)
            number = tenon.arange(most, device=draws.device).view(-1, *[1] * len(shape))
            hits = (draws < self.probs) & (number < self.total_count)
            return hits.sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # n log(1 + exp(logits)), whose exp cannot overflow
        return ways + value * logits - n * tenon.nn.functional.softplus(logits)


class MixtureSameFamily(Distribution):
    """Draws from one of several distributions of a family: the last batch dimension of
    component_distribution, chosen by a Categorical."""

    def __init__(
        self, mixture_distribution: Any, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        batch = component_distribution.batch_shape
        if not batch or mixture_distribution.probs.shape[-1] != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.probs.shape[-1]}) does "
                f"not equal `component_distribution.batch_shape[-1]` ({tuple(batch)[-1:]})"
            )
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return self.component_distribution.support

    def _weights(self) -> Tensor:
        """The probability of each component, beside the dimensions of an event."""
        probs = self.mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        dim = -1 - len(self._event_shape)
        return (self._weights() * self.component_distribution.mean).sum(dim)

    @property
    def variance(self) -> Tensor:
        dim = -1 - len(self._event_shape)
        own, weights = self.component_distribution, self._weights()
        between = (own.mean - self.mean.unsqueeze(dim)).pow(2)
        return (weights * (own.variance + between)).sum(dim)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inner = self.component_distribution.log_prob(value.unsqueeze(-1 - len(self._event_shape)))
        return tenon.logsumexp(inner + self.mixture_distribution.logits.log_softmax(-1), dim=-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            which = self.mixture_distribution.sample(sample_shape)
            draws = self.component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self._batch_shape)
            at = which.reshape(which.shape + (1,) * (1 + len(self._event_shape)))
            at = at.expand(which.shape + (1, *self._event_shape))
            return draws.gather(dim, at).squeeze(dim)
