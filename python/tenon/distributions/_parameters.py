"""What distributions share that have the same parameters: loc and scale, or probs or logits."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
)


class _LocScale(Distribution):
    """What distributions over all numbers share that a shift and a factor give."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class _EitherParameter(Distribution):
    """What distributions share that are given probs or logits."""

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()


class _Chance(_EitherParameter):
    """What distributions share whose parameter is one probability."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """sigmoid(logits)."""
        return logits_to_probs(self.logits, is_binary=True)

    def _take(self, probs: Any, logits: Any) -> Size:
        """Keeps the parameter; returns its shape."""
        one_of(probs, logits)
        if probs is None:
            (self.logits,) = broadcast_all(logits)
        else:
            (self.probs,) = broadcast_all(probs)
        return self.param_shape


class _Binary(_Chance, ExponentialFamily):
    """What distributions over a probability share that have no other parameter."""

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(self._take(probs, logits), (), validate_args)


class _Classes(_EitherParameter):
    """What distributions over classes share: the last dimension holds the classes."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def _take(self, probs: Tensor | None, logits: Tensor | None) -> Size:
        """Keeps the normalised parameter; returns its shape."""
        one_of(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        return given.size()

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs)."""
        return clamp_probs(self.probs).log()

    @lazy_property
    def probs(self) -> Tensor:
        """softmax(logits)."""
        return self.logits.softmax(-1)

    def _draw(self, count: int) -> Tensor:
        """(count, batch elements) classes."""
        probs = self.probs.reshape(-1, self.probs.size(-1))
        return tenon.multinomial(probs, count, True).t()

    def _entropy(self) -> Tensor:
        logits = self.logits.clamp(min=tenon.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)


class _Relaxed(TransformedDistribution):
    """What distributions share that come near one over classes as the temperature falls."""

    @property
    def temperature(self) -> Any:
        """How far draws stay from those of a single class."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The parameter as logits."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The parameter as probabilities."""
        return self.base_dist.probs
