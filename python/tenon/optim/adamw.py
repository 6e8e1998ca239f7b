"""The place where programs look for AdamW; see _steps.py."""

from tenon.optim._steps import AdamW

__all__ = ["AdamW"]
