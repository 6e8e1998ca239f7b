"""What distributions share: parameters of one shape, probabilities and logits, properties that are
computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number
from typing import Any

import tenon
from tenon import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060
LOG_2PI = math.log(2 * math.pi)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the tensors' dtype."""
    if not all(isinstance(v, Number) or tenon.overrides.is_tensor_like(v) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, "
            "torch.Tensor or objects implementing __torch_function__."
        )
    like = next((v for v in values if tenon.overrides.is_tensor_like(v)), None)
    kind = tenon.get_default_dtype() if like is None else like.dtype
    where = None if like is None else like.device
    tensors = [
        v if tenon.overrides.is_tensor_like(v) else tenon.tensor(v, dtype=kind, device=where)
        for v in values
    ]
    return tuple(tenon.broadcast_tensors(*tensors))


def one_of(probs: Any, logits: Any) -> None:
    """Refuses both parameters, and none."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return tenon.empty(shape, dtype=dtype, device=device).normal_()


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities far enough from 0 and 1 to have a finite logarithm."""
    eps = tenon.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """sigmoid of logits of two classes, softmax of those of several."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of logits_to_probs."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


class lazy_property:  # noqa: N801 - PyTorch's name
    """A property that is computed when it is first asked for and then kept in the instance."""

    def __init__(self, wrapped: Callable[[Any], Tensor]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with tenon.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Vectors as the lower triangles of matrices, row by row."""
    count = vec.shape[-1]
    n = (
        -(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5
    ) / 2
    if round(n) - n > tenon.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    size = round(n)
    mask = tenon.ones(size, size, dtype=tenon.bool, device=vec.device).tril(diag)
    rows, columns = mask.nonzero(as_tuple=True)
    flat = vec.new_zeros((*vec.shape[:-1], size * size))
    index = (rows * size + columns).expand(vec.shape)
    return flat.scatter(-1, index, vec).reshape((*vec.shape[:-1], size, size))


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of matrices as vectors, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    mask = tenon.ones(n, n, dtype=tenon.bool, device=mat.device).tril(diag)
    index = mask.flatten().nonzero().flatten()
    return mat.reshape((*mat.shape[:-2], n * n)).index_select(-1, index)


def multigammaln(a: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function."""
    steps = 0.5 * tenon.arange(p, dtype=a.dtype, device=a.device)
    return (a.unsqueeze(-1) - steps).lgamma().sum(-1) + 0.25 * p * (p - 1) * math.log(math.pi)
