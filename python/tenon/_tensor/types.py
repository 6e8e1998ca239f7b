"""Names that the stubs of the operators use."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from tenon._C import Generator, Tensor, device, dtype, layout, memory_format

__all__ = [
    "DTypeLike", "DeviceLike", "Generator", "Number", "Operand", "SupportsArray", "Tensor",
    "device", "dtype", "layout", "memory_format",
]  # fmt: skip

Number: TypeAlias = bool | int | float | complex
DTypeLike: TypeAlias = dtype | type[bool] | type[int] | type[float] | type[complex]
DeviceLike: TypeAlias = device | str | int


class SupportsArray(Protocol):
    """An array of another library."""

    def __array__(self) -> Any: ...


Operand: TypeAlias = Tensor | Number | SupportsArray
