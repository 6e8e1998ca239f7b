"""The place where programs look for Adadelta and its step as a function; see _rules.py."""

from tenon.optim._functional import adadelta
from tenon.optim._rules import Adadelta

__all__ = ["Adadelta", "adadelta"]
