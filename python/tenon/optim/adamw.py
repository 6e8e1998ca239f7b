"""The place where programs look for AdamW and its step as a function; see _steps.py."""

from tenon.optim._functional import adamw
from tenon.optim._steps import AdamW

__all__ = ["AdamW", "adamw"]
