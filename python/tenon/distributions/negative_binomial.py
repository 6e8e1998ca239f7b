"""Successes before a number of failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Chance
from tenon.distributions.gamma import Gamma
from tenon.distributions.utils import broadcast_all, one_of

__all__ = ["NegativeBinomial"]


class NegativeBinomial(_Chance):
    """How many trials succeed before total_count of them failed."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        one_of(probs, logits)
        name, value = ("probs", probs) if logits is None else ("logits", logits)
        self.total_count, parameter = broadcast_all(total_count, value)
        self.total_count = self.total_count.type_as(parameter)
        setattr(self, name, parameter)
        super().__init__(parameter.size(), (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
            return tenon.poisson(rates.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        weight = n * tenon.nn.functional.logsigmoid(-self.logits)
        weight = weight + value * tenon.nn.functional.logsigmoid(self.logits)
        ways = (1.0 + value).lgamma() + n.lgamma() - (n + value).lgamma()
        ways = ways.masked_fill(n + value == 0.0, 0.0)
        return weight - ways
