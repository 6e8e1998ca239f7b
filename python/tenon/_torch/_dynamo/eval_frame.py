"""The class of compiled modules, where packages look for it."""

from tenon.compiler import OptimizedModule

__all__ = ["OptimizedModule"]
