"""Modes below `__torch_function__`, and what packages ask about them."""

from __future__ import annotations

from typing import Any

from tenon._tape import call_modes
from tenon._tape.call_modes import TorchDispatchMode


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, None where there is none."""
    stack = call_modes.dispatch()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The thread's modes, the innermost last."""
    return list(call_modes.dispatch())


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor's class is one made of other tensors."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


__all__ = ["TorchDispatchMode"]
