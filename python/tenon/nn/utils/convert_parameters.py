"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import tenon
from tenon import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other."""
    return tenon.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes every parameter look at its part of vec."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        n = param.numel()
        param.data = vec[start : start + n].view_as(param).data
        start += n
