"""The place where programs look for Adamax and its step as a function; see _rules.py."""

from tenon.optim._functional import adamax
from tenon.optim._rules import Adamax

__all__ = ["Adamax", "adamax"]
