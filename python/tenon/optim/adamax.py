"""The place where programs look for Adamax; see _rules.py."""

from tenon.optim._rules import Adamax

__all__ = ["Adamax"]
