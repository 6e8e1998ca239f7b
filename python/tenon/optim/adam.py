"""The place where programs look for Adam; see _steps.py."""

from tenon.optim._steps import Adam

__all__ = ["Adam"]
