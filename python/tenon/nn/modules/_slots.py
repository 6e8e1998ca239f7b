"""The dictionaries behind a module's parameters, buffers and children.

Note [Mirrored attributes]: PyTorch finds `module.weight` in `module._parameters` by way of
__getattr__, which Python tries only after a failed look-up. Here each of the three dictionaries
also writes its entries into the module's own __dict__, so that reading a parameter is an ordinary
attribute access. The dictionary stays the authority: every change goes through it, whoever makes
it. It refers to its module weakly, so a module is still freed by its last reference.
A class with a __getattr__ of its own expects to be asked for parameters, buffers and children at
each reading: nothing is mirrored in its modules, and its super().__getattr__ finds the entries.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

SLOT_NAMES = frozenset(("_parameters", "_buffers", "_modules"))
_MISSING = object()


class SlotsMixin:
    """The look-up of names that are no attributes; see Note [Mirrored attributes]."""

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for slot in SLOT_NAMES:
            if name in own.get(slot, ()):
                return own[slot][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class Slots(dict[Any, Any]):
    """A dictionary whose entries are also attributes of the module that owns it."""

    __slots__ = ("_owner",)
    _is_node_of = dict  # for trees (utils/_pytree.py) it is one

    def __new__(cls, owner: Any = (), entries: Any = ()) -> Any:
        # type(slots)(entries): a plain dictionary, which libraries of trees go into.
        return super().__new__(cls) if isinstance(owner, SlotsMixin) else dict(owner)

    def __init__(self, owner: Any, entries: Mapping[str, Any] | Iterable[Any] = ()) -> None:
        super().__init__(entries)
        mirrored = type(owner).__getattr__ is SlotsMixin.__getattr__
        self._owner = weakref.ref(owner) if mirrored else None
        if self:
            self._attributes().update(self)

    def _attributes(self) -> dict[str, Any]:
        owner = None if self._owner is None else self._owner()
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
