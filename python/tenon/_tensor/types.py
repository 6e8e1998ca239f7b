"""Names that the stubs of the operators use."""

from __future__ import annotations

from tenon._C import Generator, Tensor, device, dtype, memory_format

__all__ = ["Generator", "Number", "Tensor", "device", "dtype", "memory_format"]

Number = bool | int | float | complex
