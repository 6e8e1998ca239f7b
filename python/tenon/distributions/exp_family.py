"""Distributions of the exponential family, whose entropy follows from their normalizer."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions.distribution import Distribution


class ExponentialFamily(Distribution):
    """Distributions whose density is exp of a product of statistics and natural parameters."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """By the derivative of the normalizer, where there is no shorter form."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*natural)
        slopes = tenon.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        events = len(self._event_shape)
        for p, slope in zip(natural, slopes, strict=True):
            term = p * slope
            result = (
                result - term.reshape((*self._batch_shape, -1)).sum(-1) if events else result - term
            )
        return result
