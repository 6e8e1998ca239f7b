"""Where programs import `associative_scan` from."""

from tenon._program.scans import associative_scan

__all__ = ["associative_scan"]
