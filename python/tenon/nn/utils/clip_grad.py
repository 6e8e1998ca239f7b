"""Cutting gradients to a norm or to a range."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from types import GeneratorType

import tenon
from tenon import Tensor
from tenon._C import _ops

# Norms that one pass over all tensors computes.
_FUSED_NORMS = (1.0, 2.0, math.inf)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors together."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return tenon.tensor(0.0)
    norm_type = float(norm_type)
    if norm_type in _FUSED_NORMS and all(t.is_floating_point() for t in tensors):
        norms = _ops._norms([t.detach() for t in tensors], norm_type)
        total = _ops._norms([norms], norm_type)[0]
    else:
        total = tenon.stack([t.detach().norm(norm_type) for t in tensors]).norm(norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from "
            "`parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scales the gradients so that a norm of total_norm becomes max_norm at most."""
    with tenon.no_grad():
        grads = _gradients(parameters)
        if not grads:
            return
        # 1 where the norm is small already; the product is exact then.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        if all(grad.is_floating_point() for grad in grads):
            _ops._scale_(grads, factor)
        else:
            for grad in grads:
                grad.mul_(factor.to(grad.device))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Cuts the norm of all gradients together to max_norm; returns the norm there was."""
    given = parameters
    parameters = [given] if isinstance(given, Tensor) else list(given)
    if not parameters and isinstance(given, GeneratorType):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    max_norm, norm_type = float(max_norm), float(norm_type)
    with tenon.no_grad():
        total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
        clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The older name of clip_grad_norm_."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cuts every element of the gradients to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with tenon.no_grad():
        for grad in _gradients(parameters):
            grad.clamp_(min=-clip_value, max=clip_value)
