"""Operators whose forward and backward are written in Python."""

from __future__ import annotations

from typing import Any

from tenon._tape.function import (
    BackwardCFunction,
    Function,
    FunctionCtx,
    FunctionMeta,
    once_differentiable,
)

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "once_differentiable",
]


class InplaceFunction(Function):
    """A Function that may be told to work in place; `inplace` is for the subclass to read."""

    def __init__(self, inplace: bool = False, *args: Any) -> None:
        super().__init__()
        self.inplace = inplace
