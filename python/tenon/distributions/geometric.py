"""Failures before the first success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Binary
from tenon.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(_Binary):
    """Failures before the first success."""

    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs of distribution {self!r} to be positive, "
                f"but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            tiny = tenon.finfo(self.probs.dtype).tiny
            u = self.probs.new_empty(shape).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = tenon.broadcast_tensors(value, self.probs)
        sure = (probs == 1) & (value == 0)
        return value * tenon.where(sure, 0.0, -probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        logits, probs = self.logits, self.probs
        return binary_cross_entropy_with_logits(logits, probs, reduction="none") / probs
