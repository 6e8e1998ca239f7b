"""Types for annotations, by PyTorch's names."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from tenon._C import Size, Tensor, device, dtype
from tenon._tensor.storage import UntypedStorage as Storage

_int, _float, _bool = builtins.int, builtins.float, builtins.bool
_dtype, _device, _size = dtype, device, Size | Sequence[builtins.int]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | Any
PySymType: TypeAlias = int | float | bool
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool
py_sym_types = ()


class _Symbol:
    """A number that is not known yet: the class of none, since sizes here are numbers."""

    def __init__(self, *args: Any) -> None:
        raise TypeError(f"{type(self).__name__}: sizes are numbers here, never symbols")


class SymInt(_Symbol):
    """A whole number that is not known yet."""


class SymFloat(_Symbol):
    """A float that is not known yet."""


class SymBool(_Symbol):
    """A condition that is not known yet."""


__all__ = [
    "Device",
    "FileLike",
    "Number",
    "Size",
    "Storage",
    "SymBool",
    "SymFloat",
    "SymInt",
    "Tensor",
]
