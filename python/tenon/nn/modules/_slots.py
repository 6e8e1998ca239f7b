"""The dictionaries behind a module's parameters, buffers and children.

Note [Mirrored attributes]: PyTorch finds `module.weight` in `module._parameters` by way of
__getattr__, which Python tries only after a failed look-up. Here each of the three dictionaries
also writes its entries into the module's own __dict__, so that reading a parameter is an ordinary
attribute access. The dictionary stays the authority: every change goes through it, whoever makes
it. It refers to its module weakly, so a module is still freed by its last reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

SLOT_NAMES = frozenset(("_parameters", "_buffers", "_modules"))
_MISSING = object()


class Slots(dict):
    """A dictionary whose entries are also attributes of the module that owns it."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, entries: Mapping[str, Any] | Iterable = ()) -> None:
        super().__init__(entries)
        self._owner = weakref.ref(owner)
        if self:
            owner.__dict__.update(self)

    def _attributes(self) -> dict[str, Any]:
        owner = self._owner()
        return {} if owner is None else owner.__dict__

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._attributes()[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._attributes().pop(name, None)

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        if name not in self and default is not _MISSING:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name, value = super().popitem()
        self._attributes().pop(name, None)
        return name, value

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Slots:
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Copies and pickles are plain dictionaries; Module.__setstate__ binds them to their module.
        return dict, (), None, None, iter(self.items())
