"""Names of PyTorch whose function is not there: importing one is no error, using it is."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["absent"]


def absent(module: str, name: str, instead: str = "") -> Any:
    """A class without instances, which stands for a class or a function of PyTorch.

    `instead` says what a program can do in its place.
    """

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        hint = f"; {instead}" if instead else ""
        raise NotImplementedError(f"{module}.{name}: Tenon does not have it yet{hint}")

    return type(name, (), {"__module__": module, "__new__": refuse, "__doc__": refuse.__doc__})
