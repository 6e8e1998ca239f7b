"""The place where programs look for SGD and its step as a function; see _steps.py."""

from tenon.optim._functional import sgd
from tenon.optim._steps import SGD

__all__ = ["SGD", "sgd"]
