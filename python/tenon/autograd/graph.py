"""The recorded graph: its nodes, and what is saved for backward."""

from __future__ import annotations

from tenon._C import Node, Tensor
from tenon._graph import AccumulateGrad

__all__ = ["AccumulateGrad", "Node", "get_gradient_edge"]


def get_gradient_edge(tensor: Tensor) -> tuple[object, int]:
    """The node that computes the gradient of a tensor, and which of its results it is."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    if tensor.grad_fn is None:
        return AccumulateGrad(tensor), 0
    return tensor.grad_fn, tensor.output_nr
