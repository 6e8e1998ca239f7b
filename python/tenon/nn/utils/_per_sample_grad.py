"""Gradients per sample of a whole module."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon.func import functional_call
from tenon.nn.modules.module import Module
from tenon.nn.utils._expanded_weights import ExpandedWeight
from tenon.utils import _pytree


def _size(inputs: Any, batch_first: bool) -> int:
    """How many samples all tensors of a call have."""
    size = None
    for data in _pytree.tree_leaves(inputs):
        if not isinstance(data, Tensor):
            continue
        here = data.shape[0 if batch_first else 1]
        if size is not None and size != here:
            raise RuntimeError(
                "When computing batch size, found at least one input with batch size "
                f"{size} and one with batch size {here}. Please specify it explicitly using the "
                "batch size kwarg in call_for_per_sample_grads"
            )
        size = here
    if size is None:
        raise RuntimeError(
            "Unable to find a tensor in the passed args and kwargs. They may not be pytree-able "
            "and so ExpandedWeights cannot compute the batch size from the inputs. Please specify "
            "it explicitly"
        )
    return size


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """A function that calls the module, and whose result's `backward` leaves the gradient of each
    sample in the parameters' `grad_sample`. "mean" undoes the division of a loss that is one."""
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}"
        )
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(
            f"Batch size passed must be None or an integer, got {type(batch_size).__name__}"
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for weight in module.parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                "Current Expanded Weights accumulates the gradients, which will be incorrect for "
                "multiple calls without clearing gradients. Please clear out the grad_sample "
                f"parameter of {weight}"
            )

    @functools.wraps(module.forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        size = _size((args, kwargs), batch_first) if batch_size is None else batch_size
        weights = {
            name: ExpandedWeight(p, size, loss_reduction) if p.requires_grad else p
            for name, p in module.named_parameters()
        }
        return functional_call(module, weights, args, kwargs)

    return wrapper
