"""How often each class comes up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Classes
from tenon.distributions.binomial import Binomial
from tenon.distributions.categorical import Categorical

__all__ = ["Multinomial"]


class Multinomial(_Classes):
    """How often each class comes up in a number of draws."""

    _derived = ("probs", "logits")

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        shape = self._take(probs, logits)
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def _expand_rest(self, new: Any) -> None:
        new.total_count = self.total_count

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            drawn = self._draw(self.total_count * Size(sample_shape).numel())
            drawn = drawn.reshape((self.total_count, *sample_shape, *self._batch_shape))
            index = drawn.movedim(0, -1)
            counts = self._param.new_zeros(self._extended_shape(sample_shape))
            ones = tenon.ones_like(index, dtype=counts.dtype)
            return counts.scatter_add_(-1, index, ones)

    def entropy(self) -> Tensor:
        draws = tenon.tensor(float(self.total_count), dtype=self._param.dtype)
        single = Binomial(self.total_count, probs=self.probs)
        counts = single.enumerate_support(expand=False)[1:]
        repeats = (single.log_prob(counts).exp() * (counts + 1).lgamma()).sum([0, -1])
        alone = Categorical(probs=self.probs).entropy()
        return draws * alone - (draws + 1).lgamma() + repeats

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        logits = tenon.where((value == 0) & (logits == -float("inf")), 0.0, logits)
        ways = tenon.lgamma(value.sum(-1) + 1) - tenon.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)
