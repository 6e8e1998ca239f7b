"""vmap."""

from tenon.func import vmap

__all__ = ["vmap"]
