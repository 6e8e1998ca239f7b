"""Ready-made parametrisations: weights of a given length, of a given largest singular value, and
orthogonal ones."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules.conv import _ConvTransposeNd
from tenon.nn.modules.module import Module
from tenon.nn.utils.parametrize import register_parametrization
from tenon.nn.utils.weight_norm import _norm_except, scaled

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """Length times direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim
        self._over = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_v, weight_g, self._over)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _norm_except(weight, self._over), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Trains the length (original0) and the direction (original1) of a weight by themselves."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Files of the older weight_norm call the two by the names that it gave them."""
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """The weight over its largest singular value, which one power iteration per call follows."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            with tenon.no_grad():
                matrix = self._matrix(weight)
                for name, size in zip(("_u", "_v"), matrix.shape):
                    start = matrix.new_empty(size).normal_(0, 1)
                    self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with tenon.no_grad():
            for _ in range(count):
                u = F.normalize(tenon.mv(matrix, self._v), dim=0, eps=self.eps)
                self._u.copy_(u)
                v = F.normalize(tenon.mv(matrix.t(), self._u), dim=0, eps=self.eps)
                self._v.copy_(v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies: the next call changes the vectors, and backward of this one needs them.
        u, v = self._u.clone(), self._v.clone()
        return weight / tenon.dot(u, tenon.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keeps the largest singular value of a weight at 1."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if isinstance(module, _ConvTransposeNd) else 0
    function = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, function)


def _near_orthogonal(q: Tensor) -> bool:
    """Whether the columns are orthonormal, up to rounding."""
    eye = tenon.eye(q.size(-1), dtype=q.dtype, device=q.device)
    return tenon.allclose(q.mH @ q, eye, atol=10 * q.size(-2) * tenon.finfo(q.dtype).eps)


def _made_orthogonal(matrix: Tensor) -> Tensor:
    """Q of the decomposition whose R has a positive diagonal."""
    q, r = tenon.linalg.qr(matrix)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _reflected(vectors: Tensor, factors: Tensor) -> Tensor:
    """The first columns of the product of reflections I - factor v v^H, where v has zeros above
    its one on the diagonal."""
    rows, columns = vectors.shape[-2:]
    lower = vectors.tril(-1) + tenon.eye(rows, columns, dtype=vectors.dtype, device=vectors.device)
    eye = tenon.eye(rows, columns, dtype=vectors.dtype, device=vectors.device)
    q = eye.expand(*vectors.shape[:-2], -1, -1)
    for k in reversed(range(columns)):
        v = lower[..., k : k + 1]
        q = q - factors[..., k, None, None] * (v @ (v.mH @ q))
    return q


def _vectors_and_signs(matrix: Tensor) -> Tensor:
    """The vectors of the reflections that make Q of a matrix, below a diagonal of the signs of
    Q's columns. A column that no reflection touched is turned once more: `_reflected` makes one
    out of a vector of zeros too."""
    vectors, factors = tenon.geqrf(matrix)
    signs = vectors.diagonal(dim1=-2, dim2=-1)
    signs.sign_()
    signs[factors == 0.0] *= -1
    return vectors


class _Orthogonal(Module):
    """An orthogonal matrix for each lower triangular or skew-symmetric one, times a base that is
    chosen when a value is assigned."""

    base: Tensor

    def __init__(
        self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:  # noqa: N803 - PyTorch's name
        wide = X.size(-2) < X.size(-1)
        matrix = X.mT if wide else X
        rows, columns = matrix.shape[-2:]
        if self.orthogonal_map == "householder":
            below = matrix.tril(-1)
            factors = 2.0 / (1.0 + (below * below).sum(-2))
            q = _reflected(below, factors)
            q = q * matrix.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            lower = matrix.tril()
            if rows != columns:
                zeros = lower.new_zeros(*lower.shape[:-1], rows - columns)
                lower = tenon.cat([lower, zeros], dim=-1)
            skew = lower - lower.mH
            if self.orthogonal_map == "matrix_exp":
                q = tenon.matrix_exp(skew)
            else:
                eye = tenon.eye(rows, dtype=skew.dtype, device=skew.device)
                q = tenon.linalg.solve(eye - skew / 2, eye + skew / 2)
            q = q[..., :columns]
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    @tenon.no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:  # noqa: N803 - PyTorch's name
        """The matrix that stands for a given one, which becomes the base."""
        if self.shape != Q.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        wide = Q.size(-2) < Q.size(-1)
        matrix = Q.mT if wide else Q
        if not hasattr(self, "base"):
            if self.orthogonal_map == "householder":
                vectors = _vectors_and_signs(matrix)
                return vectors.mT if wide else vectors
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        rows, columns = matrix.shape[-2:]
        if rows != columns:
            more = tenon.randn(
                *matrix.shape[:-1], rows - columns, dtype=matrix.dtype, device=matrix.device
            )
            matrix = _made_orthogonal(tenon.cat([matrix, more], dim=-1))
        elif not _near_orthogonal(matrix):
            matrix = _made_orthogonal(matrix)
        self.base = matrix.clone()
        minus = tenon.zeros_like(Q)
        minus.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return minus


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keeps the columns of a weight, or its rows where there are fewer of them, orthonormal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    function = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, function, unsafe=True)
