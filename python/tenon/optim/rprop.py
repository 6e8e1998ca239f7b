"""The place where programs look for Rprop and its step as a function; see _rules.py."""

from tenon.optim._functional import rprop
from tenon.optim._rules import Rprop

__all__ = ["Rprop", "rprop"]
