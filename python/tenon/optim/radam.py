"""The place where programs look for RAdam and its step as a function; see _rules.py."""

from tenon.optim._functional import radam
from tenon.optim._rules import RAdam

__all__ = ["RAdam", "radam"]
