"""The version of the package, and of what it was built with."""

from tenon import _C

__version__: str = _C._version
cuda: str | None = None
hip: str | None = None
git_version: str = "unknown"
debug: bool = False
