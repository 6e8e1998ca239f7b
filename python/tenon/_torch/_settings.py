"""Modules of settings that nobody reads: programs set them for compilers that are not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Settings(ModuleType):
    """Accepts every name. One that was never set is False, an inner group of settings where it is
    used as one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unset(self, name)

    @contextmanager
    def patch(self, *args: Any, **changes: Any) -> Iterator[None]:
        """Settings for the length of a `with` block."""
        for arg in args:
            changes.update(arg if isinstance(arg, dict) else {})
        before = dict(self.__dict__)
        self.__dict__.update(changes)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)


class Unset:
    """A setting that nobody has set: false, and a group of such settings."""

    def __init__(self, owner: Any, name: str) -> None:
        self.__dict__.update(_owner=owner, _name=name)

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unset(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        setattr(self.__dict__["_owner"], self.__dict__["_name"], self)

    def __repr__(self) -> str:
        return f"<setting {self.__dict__['_name']!r}, not set>"


def accept(module: str) -> None:
    """Makes a module one of settings."""
    sys.modules[module].__class__ = Settings
