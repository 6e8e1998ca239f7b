"""The place where programs look for SGD; see _steps.py."""

from tenon.optim._steps import SGD

__all__ = ["SGD"]
