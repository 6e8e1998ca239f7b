"""The place where programs look for Adagrad and its step as a function; see _rules.py."""

from tenon.optim._functional import adagrad
from tenon.optim._rules import Adagrad

__all__ = ["Adagrad", "adagrad"]
