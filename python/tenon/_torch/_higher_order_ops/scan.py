"""Where programs import `scan` from."""

from tenon._program.scans import scan

__all__ = ["scan"]
