"""Classes that C++ libraries register with PyTorch. None of them load here: every class that is
named says that it does not exist, as PyTorch does of one whose library was not loaded.
"""

from __future__ import annotations

from typing import Any

from tenon.ops import load_library as load_library


class Namespace:
    """The classes of one library."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate class '{self.name}.{name}', but it does not exist! Classes of "
            "C++ libraries for PyTorch cannot be used"
        )


def __getattr__(name: str) -> Namespace:
    if name.startswith("__"):
        raise AttributeError(name)
    return Namespace(name)
