"""Calls that are refused, each with the words of the check that is meant: a call that another check
refuses does not show that this one is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import stored
import tenon as tn

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


def check_beside(words: str, call: Callable[[Any], Any]) -> None:
    """call(tenon) is refused with these words, and of the class of PyTorch's error."""
    check((Exception, words, lambda: call(tn)))
    stored.same(outcome(call, tn), stored.of_torch(lambda torch: outcome(call, torch)))


def part(lib: Any, *names: str) -> Any:
    """A module of a library."""
    return importlib.import_module(".".join([lib.__name__, *names]))


def private(lib: Any, *names: str) -> Any:
    """The same among PyTorch's private modules."""
    return part(lib, *(["_torch", *names] if lib is tn else names))
