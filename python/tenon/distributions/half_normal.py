"""Absolute values of normal numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenon import Tensor
from tenon.distributions._half import _Half
from tenon.distributions.normal import Normal
from tenon.distributions.transforms import AbsTransform

__all__ = ["HalfNormal"]


class HalfNormal(_Half):
    """|x| of a normal x."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_anew(HalfNormal, _instance, self.scale.expand(batch_shape))
