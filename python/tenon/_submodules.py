"""Submodules that are imported when they are named: `tenon.utils.dlpack` after `import tenon`. One
thread at a time imports them: where modules need each other, Python shows a second thread that
comes from elsewhere half of what the first one makes, or finds a deadlock.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import RLock, local
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_turn = RLock()
_fork = local()


def _before_fork() -> None:
    """A child that is made while another thread imports would wait for that thread for ever."""
    _fork.has_turn = _turn.acquire(timeout=60)


def _after_fork() -> None:
    if _fork.has_turn:
        _turn.release()


def _begin_anew() -> None:
    """In the child no other thread imports anything."""
    global _turn
    _turn = RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_anew)


def _imports() -> bool:
    """Whether this thread runs the body of a module of ours. Others may wait for that module, so it
    waits for nobody's turn."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__") if frame.f_code.co_name == "<module>" else None
        if isinstance(name, str) and name.partition(".")[0] == _PACKAGE:
            return True
        frame = frame.f_back
    return False


def imported(name: str) -> Any:
    """The module of that full name, which is imported unless it is there."""
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    if _imports():
        return import_module(name)
    with _turn:
        return import_module(name)


def on_demand(names: dict[str, Any]) -> None:
    """Gives a package (its `globals()`) a `__getattr__` that imports its submodules.

    It is set and not written down as a function, so that type checkers go on to report names that
    a package does not have.
    """
    package = names["__name__"]
    before = names.get("__getattr__")

    def look_up(name: str) -> Any:
        if not name.startswith("__"):
            try:
                return imported(f"{package}.{name}")
            except ModuleNotFoundError as err:
                if err.name != f"{package}.{name}":
                    raise
        if before is not None:
            return before(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names["__getattr__"] = look_up
