"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.categorical import Categorical
from tenon.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Draws from one of several distributions of a family: the last batch dimension of
    component_distribution, chosen by a Categorical."""

    arg_constraints: dict[str, Any] = {}

    def __init__(
        self, mixture_distribution: Any, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The mixture distribution has to be an instance of Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The component distribution has to be an instance of Distribution")
        batch = component_distribution.batch_shape
        if not batch or mixture_distribution.probs.shape[-1] != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.probs.shape[-1]}) does "
                f"not equal `component_distribution.batch_shape[-1]` ({tuple(batch)[-1:]})"
            )
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        components = self.mixture_distribution.probs.shape[-1]
        return self._expand_anew(
            MixtureSameFamily,
            _instance,
            self.mixture_distribution.expand(batch_shape),
            self.component_distribution.expand((*batch_shape, components)),
        )

    def cdf(self, value: Tensor) -> Tensor:
        shares = self.component_distribution.cdf(value.unsqueeze(-1 - len(self._event_shape)))
        return (shares * self.mixture_distribution.probs).sum(-1)

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

    def __repr__(self) -> str:
        parts = (self.mixture_distribution, self.component_distribution)
        return "MixtureSameFamily(\n  " + ",\n  ".join(map(repr, parts)) + ")"
