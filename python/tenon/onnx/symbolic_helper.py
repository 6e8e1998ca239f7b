"""What packages use to write rules for `register_custom_op_symbolic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parse_args(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates such a rule with the kinds of its arguments, which come as they are: values of the
    model, and Python's numbers, lists and texts."""
    del kinds
    return lambda rule: rule
