"""Calls that are refused, each with the words of the check that is meant: a call that another check
refuses does not show that this one is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

# The exception, some of its words, the call.
Refusal = tuple[type[BaseException], str, Callable[[], Any]]


def by_name(**groups: Sequence[Refusal]) -> dict[str, Refusal]:
    """All of them, by their group and number."""
    return {f"{name} {k}": case for name, cases in groups.items() for k, case in enumerate(cases)}


def check(case: Refusal) -> None:
    kind, words, call = case
    with pytest.raises(kind, match=re.escape(words)):
        call()


def outcome(call: Callable[[Any], Any], lib: Any) -> str:
    """The class of what a library refuses a call with, "taken" where it takes it."""
    try:
        call(lib)
    except Exception as e:
        return type(e).__name__
    return "taken"
