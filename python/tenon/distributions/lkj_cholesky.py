"""Correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.beta import Beta
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import broadcast_all, multigammaln

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices whose density is det ** (concentration - 1)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        self._beta = self._lengths(self.concentration)
        super().__init__(self.concentration.size(), (dim, dim), validate_args)

    def _lengths(self, concentration: Tensor) -> Beta:
        """The squared length of each row's part beside the diagonal."""
        rest = concentration + 0.5 * (self.dim - 2)
        steps = tenon.arange(self.dim - 1, dtype=concentration.dtype, device=concentration.device)
        steps = tenon.cat([steps.new_zeros((1,)), steps])
        return Beta(steps + 0.5, rest.unsqueeze(-1) - 0.5 * steps)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        new.dim = self.dim
        new.concentration = self.concentration.expand(batch_shape)
        new._beta = self._beta.expand((*batch_shape, self.dim))
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            direction = tenon.randn(shape, dtype=y.dtype, device=y.device).tril(-1)
            direction = direction / direction.norm(dim=-1, keepdim=True)
            direction[..., 0, :].fill_(0.0)  # the first row has nothing but its diagonal
            w = y.sqrt() * direction
            tiny = tenon.finfo(w.dtype).tiny
            diagonal = (1 - w.pow(2).sum(-1)).clamp(min=tiny).sqrt()
            return w + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = tenon.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        weight = (order * diagonal.log()).sum(-1)
        free = self.dim - 1
        alpha = self.concentration + 0.5 * free
        norm = 0.5 * free * math.log(math.pi) + multigammaln(alpha - 0.5, free)
        return weight - (norm - alpha.lgamma() * free)
