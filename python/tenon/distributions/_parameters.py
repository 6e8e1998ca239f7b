"""What distributions share that know their parameter as probs or as logits."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import broadcast_all, clamp_probs, lazy_property, one_of


class _Binary(ExponentialFamily):
    """What distributions over a probability share."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        given = logits if probs is None else probs
        (value,) = broadcast_all(given)
        if probs is None:
            self.logits = value
        else:
            self.probs = value
        super().__init__(value.size(), (), validate_args)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        probs = clamp_probs(self.probs)
        return probs.log() - (-probs).log1p()

    @lazy_property
    def probs(self) -> Tensor:
        """sigmoid(logits)."""
        return self.logits.sigmoid()


class _Classes(Distribution):
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

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()

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
