"""The place where programs look for Adadelta; see _rules.py."""

from tenon.optim._rules import Adadelta

__all__ = ["Adadelta"]
