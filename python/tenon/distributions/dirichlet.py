"""Several shares that sum to one."""

from __future__ import annotations

from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


def sample_dirichlet(a: Tensor) -> Tensor:
    """Shares that sum to 1 along the last dimension, from gamma draws in double precision."""
    info = tenon.finfo(a.dtype)
    parts = tenon._standard_gamma(a.double())
    shares = (parts / parts.sum(-1, keepdim=True)).to(a.dtype)
    return shares.clamp(min=info.tiny, max=1 - info.eps / 2)


class Dirichlet(ExponentialFamily):
    """Several shares that sum to one."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        rest = total - self.concentration
        return self.concentration * rest / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, keepdim=True)
        best = self.concentration.argmax(-1)
        corner = tenon.nn.functional.one_hot(best, mode.shape[-1]).to(mode.dtype)
        return tenon.where((self.concentration < 1).all(-1, keepdim=True), corner, mode)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        powers = tenon.xlogy(a - 1, value).sum(-1)
        return powers + tenon.lgamma(a.sum(-1)) - tenon.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        k, total = a.size(-1), a.sum(-1)
        return (
            tenon.lgamma(a).sum(-1)
            - tenon.lgamma(total)
            - (k - total) * tenon.digamma(total)
            - ((a - 1) * tenon.digamma(a)).sum(-1)
        )
