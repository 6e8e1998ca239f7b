"""The place where programs look for RMSprop; see _rules.py."""

from tenon.optim._rules import RMSprop

__all__ = ["RMSprop"]
