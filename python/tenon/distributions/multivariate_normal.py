"""Normal vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import lazy_property

__all__ = ["MultivariateNormal"]


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The Cholesky factor of a covariance from its inverse, without that inverse."""
    turned = tenon.linalg.cholesky(P.flip((-2, -1))).flip((-2, -1)).mT
    eye = tenon.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return tenon.linalg.solve_triangular(turned, eye, upper=False)


class MultivariateNormal(Distribution):
    """Vectors with a mean and a covariance, which is given as such, by its inverse (the precision),
    or by its Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }  # fmt: skip
        named = [(name, matrix) for name, matrix in given.items() if matrix is not None]
        if len(named) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        name, matrix = named[0]
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional")
        batch = tenon.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        if name == "precision_matrix":
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = tenon.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = matrix

    # The forms that were not given are computed when they are asked for.

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangle L with L L^T = covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._whole(
            tenon.linalg.inv(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)
        )

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        size = self._event_shape[0]
        new.loc = self.loc.expand((*batch_shape, size))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "precision_matrix", "scale_tril"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand((*batch_shape, size, size)))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (
            self._unbroadcasted_scale_tril.pow(2)
            .sum(-1)
            .expand(self._batch_shape + self._event_shape)
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        eps = tenon.empty(shape, dtype=self.loc.dtype, device=self.loc.device).normal_()
        return self.loc + (self._unbroadcasted_scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc).unsqueeze(-1)
        whitened = tenon.linalg.solve_triangular(
            self._unbroadcasted_scale_tril, distance, upper=False
        )
        square = whitened.squeeze(-1).pow(2).sum(-1)
        size = self._event_shape[0]
        return -0.5 * (size * math.log(2 * math.pi) + square) - self._half_log_det()

    def entropy(self) -> Tensor:
        size = self._event_shape[0]
        value: Any = 0.5 * size * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return value.expand(self._batch_shape)
