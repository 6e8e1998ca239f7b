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


def laid_as(result: Any, input: Any) -> Any:
    """The result, channels last where the input's images lie so."""
    last = _LAST.get(input.dim())
    if last is None or input.is_contiguous() or not input.is_contiguous(memory_format=last):
        return result
    return result.contiguous(memory_format=last)


def image(result: Any, input: Any, name: str) -> Any:
    """Both."""
    return known_as(laid_as(result, input), name)
