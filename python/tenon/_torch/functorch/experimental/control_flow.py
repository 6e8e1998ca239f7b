"""Control flow as functions."""

from tenon import cond
from tenon._program.scans import map

__all__ = ["cond", "map"]
