"""Covariances of draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.chi2 import Chi2
from tenon.distributions.distribution import Distribution
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.utils import lazy_property, multigammaln

__all__ = ["Wishart"]

_FORMS = ("covariance_matrix", "precision_matrix", "scale_tril")


class Wishart(ExponentialFamily):
    """Sums of x x^T over df normal vectors x with a covariance, which is given as such, by its
    inverse (the precision), or by its Cholesky factor."""

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = dict(zip(_FORMS, (covariance_matrix, precision_matrix, scale_tril), strict=True))
        named = [(name, matrix) for name, matrix in given.items() if matrix is not None]
        if len(named) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        name, matrix = named[0]
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional")
        count = tenon.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = tenon.broadcast_shapes(matrix.shape[:-2], count.shape)
        event = matrix.shape[-2:]
        self.df = count.expand(batch)
        if self.df.le(event[-1] - 1).any():
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}."
            )
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        super().__init__(batch, event, validate_args)
        if name == "precision_matrix":
            matrix = tenon.linalg.inv(matrix)
        factor = matrix if name == "scale_tril" else tenon.linalg.cholesky(matrix)
        self._unbroadcasted_scale_tril = factor

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        for name in ("df", *_FORMS):
            if name in self.__dict__:
                event = () if name == "df" else self._event_shape
                setattr(new, name, self.__dict__[name].expand((*batch_shape, *event)))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangle L with L L^T = covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the vectors."""
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(tenon.linalg.inv(factor @ factor.mT))

    def _df(self, dims: int) -> Tensor:
        return self.df.reshape(self._batch_shape + (1,) * dims)

    @property
    def mean(self) -> Tensor:
        return self._df(2) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = tenon.where(factor <= 0, tenon.nan, factor)
        return factor.reshape((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        d = v.diagonal(dim1=-2, dim2=-1)
        return self._df(2) * (v.pow(2) + d.unsqueeze(-1) * d.unsqueeze(-2))

    def rsample(
        self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Samples. PyTorch draws those that are positive definite once more, and so does this, to
        give the same numbers; those that then are not are drawn anew, so many times, else 10."""
        sample = self._bartlett(sample_shape)
        again = self._definite(sample)
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not again.any():
                break
            new = self._bartlett(again[again].shape)
            sample[again] = new
            left = again.clone()  # what sample was indexed with is needed for its gradient
            left[again] = ~self._definite(new)
            again = left
        return sample

    def _definite(self, sample: Tensor) -> Tensor:
        """Which samples have a positive definite matrix in the batch."""
        good = self.support.check(sample)
        return good.amax(tuple(range(-len(self._batch_shape), 0))) if self._batch_shape else good

    def _bartlett(self, sample_shape: Sequence[int]) -> Tensor:
        # Bartlett: a triangle of normal numbers with roots of chi-squared ones on its diagonal.
        size = self._event_shape[-1]
        steps = tenon.arange(size, dtype=self.df.dtype, device=self.df.device)
        diagonal = Chi2(self.df.unsqueeze(-1) - steps).rsample(sample_shape).sqrt()
        rows, columns = tenon.tril_indices(size, size, offset=-1, device=self.df.device)
        below = diagonal.diag_embed()
        below[..., rows, columns] = tenon.randn(
            (*diagonal.shape[:-1], len(rows)), dtype=self.df.dtype, device=self.df.device
        )
        chol = self._unbroadcasted_scale_tril @ below
        return chol @ chol.mT

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        inner = tenon.linalg.solve_triangular(factor, value, upper=False)
        trace = tenon.linalg.solve_triangular(factor.mT, inner, upper=True)
        trace = trace.diagonal(dim1=-2, dim2=-1).sum(-1)
        norm = nu * (self._half_log_det() + p * math.log(2) / 2) + multigammaln(nu / 2, p)
        return (nu - p - 1) / 2 * tenon.linalg.slogdet(value).logabsdet - trace / 2 - norm

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        steps = 0.5 * tenon.arange(p, dtype=nu.dtype, device=nu.device)
        digammas = ((nu / 2).unsqueeze(-1) - steps).digamma().sum(-1)
        norm = (p + 1) * (self._half_log_det() + p * math.log(2) / 2) + multigammaln(nu / 2, p)
        return norm - (nu - p - 1) / 2 * digammas + nu * p / 2
