"""The place where programs look for ASGD; see _rules.py."""

from tenon.optim._rules import ASGD

__all__ = ["ASGD"]
