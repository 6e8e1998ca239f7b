"""map, where PyTorch keeps it."""

from tenon._program.scans import map

__all__ = ["map"]
