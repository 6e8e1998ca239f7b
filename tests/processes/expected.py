"""What programs that run in several processes share: mistakes that are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def expect(kind: type[BaseException], text: str, call: Callable[[], Any]) -> None:
    """The call raises an error of this class with these words."""
    try:
        call()
    except kind as err:
        assert text in str(err), err
    else:
        raise AssertionError(f"nothing was said of {text!r}")
