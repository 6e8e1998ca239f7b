"""Numbers that the CUDA plugin goes by, and settings that modules have.

The numbers may be set before a GPU is used: the plugin takes them from environment variables when
it is loaded, so that a program that never uses one may still fork.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

frozen = False  # whether settings change in a `with` statement only


_said: dict[str, str] = {}  # by this process, of which programs that list os.environ see nothing


def text(variable: str) -> str | None:
    """What a variable says; None: nothing."""
    return _said.get(variable, os.environ.get(variable))


def say(variable: str, value: int) -> None:
    """Sets a variable for a plugin that is loaded later."""
    _said[variable] = str(value)
    os.putenv(variable, _said[variable])


def get(variable: str, default: int) -> int:
    """The value of an option: the default, as for the plugin, where it is no number of 31 bits."""
    try:
        value = int(text(variable) or default)
    except ValueError:
        return default
    return value if 0 <= value < 2**31 else default


def put(name: str, variable: str, value: int) -> None:
    """Sets it, for a plugin that is in use and for one that is loaded later."""
    import tenon

    say(variable, int(value))
    if any(p["name"] == "tenon-cuda" and p["active"] for p in tenon.plugins()):
        tenon.cuda._settings().set_option(name.encode(), int(value))


@contextmanager
def thawed() -> Iterator[None]:
    """A with statement in which settings may be assigned, whatever `disable_global_flags` said."""
    global frozen
    before, frozen = frozen, False
    try:
        yield
    finally:
        frozen = before


def setting(get: Callable[[], Any], put: Callable[[Any], None], doc: str) -> property:
    """A module's setting, which cannot be assigned while settings are frozen."""

    def assign(module: ModuleType, value: Any) -> None:
        if frozen:
            raise RuntimeError(
                f"not allowed to set {module.__name__} flags after disable_global_flags; "
                "please use flags() context manager instead"
            )
        put(value)

    return property(lambda _module: get(), assign, doc=doc)


def kept(values: dict[str, Any], name: str, doc: str) -> property:
    """A setting that is remembered among `values`."""

    def put(value: Any) -> None:
        values[name] = value

    return setting(lambda: values[name], put, doc)


def assign(module: str, wanted: dict[str, Any]) -> tuple[Any, ...]:
    """Sets what is not None, and gives what all of them were."""
    owner = sys.modules[module]
    before = tuple(getattr(owner, name) for name in wanted)
    for name, value in wanted.items():
        if value is not None:
            setattr(owner, name, value)
    return before


@contextmanager
def assigned(module: str, wanted: dict[str, Any]) -> Iterator[None]:
    """A with statement in which a module's settings are these; then they are what they were."""
    with thawed():
        before = assign(module, wanted)
    try:
        yield
    finally:
        with thawed():
            assign(module, dict(zip(wanted, before, strict=True)))
