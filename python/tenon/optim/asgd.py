"""The place where programs look for ASGD and its step as a function; see _rules.py."""

from tenon.optim._functional import asgd
from tenon.optim._rules import ASGD

__all__ = ["ASGD", "asgd"]
