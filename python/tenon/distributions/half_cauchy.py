"""Absolute values of Cauchy numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions._half import _Half
from tenon.distributions.cauchy import Cauchy
from tenon.distributions.transforms import AbsTransform

__all__ = ["HalfCauchy"]


class HalfCauchy(_Half):
    """|x| of a Cauchy x."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return tenon.full_like(self.scale, math.inf)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return super().log_prob(tenon.as_tensor(value, dtype=self.scale.dtype))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_anew(HalfCauchy, _instance, self.scale.expand(batch_shape))
