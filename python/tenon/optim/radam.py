"""The place where programs look for RAdam; see _rules.py."""

from tenon.optim._rules import RAdam

__all__ = ["RAdam"]
