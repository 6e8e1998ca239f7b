"""The place where programs look for Adam and its step as a function; see _steps.py."""

from tenon.optim._functional import adam
from tenon.optim._steps import Adam

__all__ = ["Adam", "adam"]
