"""The class of compiled modules, where packages look for it, and whether there are any."""

from tenon.compiler import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Whether programs are compiled here: they are recorded, see `tenon.compile`."""
    return True
