"""Convolutions of any number of dimensions, plain or transposed, as one operator, and its
gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon._C import Tensor
from tenon._tape import overridable


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    """conv1d to conv3d, or conv_transpose1d to conv_transpose3d, by the weight's dimensions."""
    dims = weight.dim() - 2
    if dims < 1:
        raise RuntimeError("convolution: weight should have at least three dimensions")
    if dims > 3:
        raise RuntimeError(f"convolution: weight has {weight.dim()} dimensions, of 5 at most")
    if transposed:
        function = getattr(tenon, f"conv_transpose{dims}d")
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(tenon, f"conv{dims}d")(input, weight, bias, stride, padding, dilation, groups)


def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients by input, weight and bias that output_mask asks for, None for the others."""
    del bias_sizes
    by: list[Tensor | None] = [None, None, None]
    plain = not transposed and input.dim() == weight.dim()
    if plain and output_mask[0]:
        by[0] = tenon._C._op("_conv_backward_input")(
            grad_output, weight, None, list(input.shape), stride, padding, dilation, groups
        )
    if plain and output_mask[1]:
        by[1] = tenon._C._op("_conv_backward_weight")(
            grad_output, input, list(weight.shape), stride, padding, dilation, groups
        )
    with tenon.enable_grad():
        x = input.detach().requires_grad_(bool(output_mask[0]))
        w = weight.detach().requires_grad_(bool(output_mask[1]))
        wanted = [i for i in (0, 1) if output_mask[i] and not plain]
        if wanted:
            out = convolution(
                x, w, None, stride, padding, dilation, transposed, output_padding, groups
            )
            found = tenon.autograd.grad(out, [(x, w)[i] for i in wanted], grad_output)
            for i, gradient in zip(wanted, found, strict=True):
                by[i] = gradient
    if output_mask[2]:
        by[2] = grad_output.sum([d for d in range(grad_output.dim()) if d != 1])
    return tuple(by)


overridable.make_overridable(globals())
