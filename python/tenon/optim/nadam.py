"""The place where programs look for NAdam; see _rules.py."""

from tenon.optim._rules import NAdam

__all__ = ["NAdam"]
