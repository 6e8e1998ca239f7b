"""The place where programs look for Adagrad; see _rules.py."""

from tenon.optim._rules import Adagrad

__all__ = ["Adagrad"]
