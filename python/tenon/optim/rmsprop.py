"""The place where programs look for RMSprop and its step as a function; see _rules.py."""

from tenon.optim._functional import rmsprop
from tenon.optim._rules import RMSprop

__all__ = ["RMSprop", "rmsprop"]
