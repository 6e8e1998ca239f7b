"""Gradients of convolutions by their input or weight, without the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import Tensor, enable_grad, is_grad_enabled
from tenon.autograd import grad
from tenon.nn import functional as F

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
    "conv3d_weight",
]  # fmt: skip


def _by(
    convolution: Callable[..., Tensor], wanted: int, tensors: list[Tensor], grad_output: Tensor,
    options: tuple[Any, ...],
) -> Tensor:  # fmt: skip
    """The gradient by one of input and weight; of the one that is wanted only the size counts."""
    other = tensors[1 - wanted]
    recorded = is_grad_enabled() and (other.requires_grad or grad_output.requires_grad)
    with enable_grad():
        tensors[wanted] = tensors[wanted].detach().requires_grad_()
        tensors[1 - wanted] = other if recorded else other.detach()
        stride, padding, dilation, groups = options
        out = convolution(*tensors, None, stride, padding, dilation, groups)
    return grad(out, tensors[wanted], grad_output, create_graph=recorded)[0]


def _input_gradient(convolution: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def gradient(
        input_size: Any, weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        if input_size is None:
            raise ValueError(f"grad.{name} requires specifying an input_size")
        tensors = [weight.new_empty(tuple(input_size)), weight]
        return _by(convolution, 0, tensors, grad_output, (stride, padding, dilation, groups))

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {convolution.__name__} by an input of the size input_size."
    return gradient


def _weight_gradient(convolution: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def gradient(
        input: Tensor, weight_size: Any, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        tensors = [input, input.new_empty(tuple(weight_size))]
        return _by(convolution, 1, tensors, grad_output, (stride, padding, dilation, groups))

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {convolution.__name__} by a weight of that size."
    return gradient


conv1d_input = _input_gradient(F.conv1d, "conv1d_input")
conv2d_input = _input_gradient(F.conv2d, "conv2d_input")
conv3d_input = _input_gradient(F.conv3d, "conv3d_input")
conv1d_weight = _weight_gradient(F.conv1d, "conv1d_weight")
conv2d_weight = _weight_gradient(F.conv2d, "conv2d_weight")
conv3d_weight = _weight_gradient(F.conv3d, "conv3d_weight")
