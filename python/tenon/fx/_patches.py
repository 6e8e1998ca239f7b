"""Functions that stand in the place of others while a program is traced."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

__all__ = ["_Patcher"]

_MARK = "__fx_already_patched"


class _Patcher:
    """Puts functions in names' places. At its end what was there is back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._visited: set[int] = set()

    def patch(
        self, frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any],
        deduplicate: bool = True,
    ) -> None:  # fmt: skip
        """Among a module's names; deduplicate: later calls leave this function there."""
        setattr(new_fn, _MARK, deduplicate)
        if name not in frame_dict and hasattr(builtins, name):
            self._undo.append(lambda: frame_dict.pop(name))
        elif getattr(frame_dict[name], _MARK, False):
            return
        else:
            old = frame_dict[name]
            self._undo.append(lambda: frame_dict.update({name: old}))
        frame_dict[name] = new_fn

    def patch_method(
        self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        """In a class."""
        setattr(new_fn, _MARK, deduplicate)
        old = getattr(cls, name)
        if not getattr(old, _MARK, False):
            self._undo.append(lambda: setattr(cls, name, old))
            setattr(cls, name, new_fn)

    def visit_once(self, thing: object) -> bool:
        """Whether it was not asked about the thing before."""
        known = id(thing) in self._visited
        self._visited.add(id(thing))
        return not known

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()
        self._visited.clear()
