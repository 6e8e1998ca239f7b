"""The place where programs look for NAdam and its step as a function; see _rules.py."""

from tenon.optim._functional import nadam
from tenon.optim._rules import NAdam

__all__ = ["NAdam", "nadam"]
