"""Sums of squares of normal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """Sums of `df` squares of standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_anew(Chi2, _instance, self.df.expand(batch_shape))
