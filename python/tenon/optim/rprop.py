"""The place where programs look for Rprop; see _rules.py."""

from tenon.optim._rules import Rprop

__all__ = ["Rprop"]
