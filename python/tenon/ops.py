"""Operators that plugins add: `tenon.ops.acme.gelu(x)` calls the operator "acme::gelu". Those of
the op table stand in `tenon.ops.aten`.

A namespace is there as soon as it is named; its operators appear when their plugin is loaded: by
`load_library`, `tenon.load_inline`, or when an operator that an installed plugin offers is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import _C
from tenon._plugin.inline import load_library as load_library
from tenon._submodules import imported as _imported

_namespaces: dict[str, Namespace] = {}
_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional")


class Namespace:
    """The operators whose names start with `name::`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._python: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}::{name}"
        try:
            op = self._python.get(name) or _C._added_op(full)
            why = "is its plugin loaded?"
        except ImportError as err:
            op, why = None, str(err)
        if op is None:
            others = f"'{self.__name__}' has {', '.join(dir(self))}; " if dir(self) else ""
            raise AttributeError(f"there is no operator '{full}'; {others}{why}")
        self.__dict__[name] = op  # the next look-up is an ordinary attribute
        return op

    def __dir__(self) -> list[str]:
        prefix = self.__name__ + "::"
        added = [n.removeprefix(prefix) for n in _C._added_names() if n.startswith(prefix)]
        return sorted({*(n.partition("@")[0] for n in added), *self._python})

    def __getitem__(self, name: str) -> Any:
        """`tenon.ops.acme["gelu@1"]`: a version of an operator, which is no Python name."""
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"<operators {self.__name__}::*: {', '.join(dir(self))}>"


def __getattr__(name: str) -> Namespace:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "aten":
        from tenon._tensor.aten import namespace

        return namespace
    if name not in _namespaces:
        _namespaces[name] = Namespace(name)
        globals()[name] = _namespaces[name]
        if name in _COLLECTIVES:
            _imported("tenon.distributed._operators")
        elif name == "profiler":
            _imported("tenon.profiler")
    return _namespaces[name]


def __dir__() -> list[str]:
    return sorted({"load_library", *_namespaces, *(n.split("::")[0] for n in _C._added_names())})


def define(space: str, name: str, op: Callable[..., Any]) -> None:
    """Puts an operator that is written in Python into its namespace."""
    namespace = __getattr__(space)
    namespace._python[name] = op
    vars(namespace).pop(name, None)


def undefine(space: str, name: str) -> None:
    """Takes such an operator out of its namespace."""
    namespace = __getattr__(space)
    namespace._python.pop(name, None)
    vars(namespace).pop(name, None)


def forget() -> None:
    """Looks operators up anew, after plugins were loaded or retired."""
    for namespace in _namespaces.values():
        for name in [n for n in vars(namespace) if not n.startswith("_")]:
            del vars(namespace)[name]
