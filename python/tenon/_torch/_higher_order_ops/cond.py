"""Where programs import `cond` from."""

from tenon._program.control import cond

__all__ = ["cond"]
