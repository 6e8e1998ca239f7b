"""The index of one class of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Classes

__all__ = ["Categorical"]


class Categorical(_Classes):
    """The index of one class."""

    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        shape = self._take(probs, logits)
        self._num_events = shape[-1]
        super().__init__(shape[:-1], (), validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._num_events = self._num_events

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter, classes included."""
        return self._param.size()

    @property
    def mean(self) -> Tensor:
        return tenon.full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return tenon.full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            drawn = self._draw(Size(sample_shape).numel())
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, logits = tenon.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = tenon.arange(self._num_events, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
