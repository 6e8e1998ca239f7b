"""Normal vectors whose covariance is a diagonal and a few directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import LOG_2PI, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _capacitance(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + W^T D^-1 W, a matrix as small as the rank."""
    inner = factor.mT @ (factor / diagonal.unsqueeze(-1))
    size = inner.shape[-1]
    return tenon.linalg.cholesky(inner + tenon.eye(size, dtype=inner.dtype, device=inner.device))


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance W W^T + D: cov_factor is W, cov_diag the diagonal of D."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {tuple(event)}")
        batch = tenon.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc = loc.expand((*batch, -1))
        self.cov_factor = cov_factor.expand((*batch, -1, -1))
        self.cov_diag = cov_diag.expand((*batch, -1))
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _capacitance(cov_factor, cov_diag)
        super().__init__(batch, event, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        new.loc = self.loc.expand((*batch_shape, *self._event_shape))
        new.cov_diag = self.cov_diag.expand((*batch_shape, *self._event_shape))
        new.cov_factor = self.cov_factor.expand((*batch_shape, *self.cov_factor.shape[-2:]))
        for name in ("cov_factor", "cov_diag"):
            setattr(new, f"_unbroadcasted_{name}", getattr(self, f"_unbroadcasted_{name}"))
        new._capacitance_tril = self._capacitance_tril
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        spread = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return spread.expand(self._batch_shape + self._event_shape)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    def _covariance(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed()

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangle L with L L^T = covariance."""
        return self._whole(tenon.linalg.cholesky(self._covariance()))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W W^T + D."""
        return self._whole(self._covariance())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        diagonal = self._unbroadcasted_cov_diag
        scaled = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        inner = tenon.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._whole(diagonal.reciprocal().diag_embed() - inner.mT @ inner)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        wide = shape[:-1] + self.cov_factor.shape[-1:]
        like = {"dtype": self.loc.dtype, "device": self.loc.device}
        along = tenon.empty(wide, **like).normal_()
        alone = tenon.empty(shape, **like).normal_()
        turned = (self._unbroadcasted_cov_factor @ along.unsqueeze(-1)).squeeze(-1)
        return self.loc + turned + self._unbroadcasted_cov_diag.sqrt() * alone

    def _log_det(self) -> Tensor:
        inner = self._capacitance_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return 2 * inner + self._unbroadcasted_cov_diag.log().sum(-1)

    def _square(self, distance: Tensor) -> Tensor:
        """distance^T covariance^-1 distance."""
        scaled = distance / self._unbroadcasted_cov_diag
        along = self._unbroadcasted_cov_factor.mT @ scaled.unsqueeze(-1)
        inner = tenon.linalg.solve_triangular(self._capacitance_tril, along, upper=False)
        return (distance * scaled).sum(-1) - inner.squeeze(-1).pow(2).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        constant = self._event_shape[0] * LOG_2PI
        return -0.5 * (constant + self._log_det() + self._square(value - self.loc))

    def entropy(self) -> Tensor:
        value = 0.5 * (self._event_shape[0] * (1.0 + LOG_2PI) + self._log_det())
        return value.expand(self._batch_shape)
