"""Classes of operators that packages import from `torch._ops`."""

from __future__ import annotations

from typing import Any

from tenon._tensor.aten import OpOverload, OpOverloadPacket


class HigherOrderOperator:
    """An operator whose arguments are functions: there are none, it only serves `isinstance`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"Tenon has no operator '{self._name}'")


__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket"]
