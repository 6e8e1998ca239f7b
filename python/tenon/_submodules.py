"""Submodules that are imported when they are named: `tenon.utils.dlpack` after `import tenon`."""

from __future__ import annotations

import importlib
from typing import Any


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
                return importlib.import_module(f"{package}.{name}")
            except ModuleNotFoundError as err:
                if err.name != f"{package}.{name}":
                    raise
        if before is not None:
            return before(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names["__getattr__"] = look_up
