"""What results of functions that are made of several operators look like from outside."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import _C

_LAST = {4: tenon.channels_last, 5: tenon.channels_last_3d}


def floats_alone(name: str, *inputs: Any) -> None:
    """What PyTorch has no code for in other dtypes."""
    for input in inputs:
        if not input.is_floating_point():
            raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')


def known_as(result: Any, name: str) -> Any:
    """The result, whose grad_fn goes by this name."""
    return _C._known_as(result, name)


def format_of(input: Any) -> Any:
    """The memory format of results that follow `input`: channels last where its strides rise in
    that order, whatever lies between its elements."""
    return _LAST[input.dim()] if input._lies_channels_last() else tenon.contiguous_format


def laid_as(result: Any, input: Any) -> Any:
    """The result, channels last where the input's images lie so."""
    form = format_of(input)
    return result if form is tenon.contiguous_format else result.contiguous(memory_format=form)


def image(result: Any, input: Any, name: str) -> Any:
    """Both."""
    return known_as(laid_as(result, input), name)
