"""Where programs import `while_loop` from."""

from tenon._program.scans import while_loop

__all__ = ["while_loop"]
