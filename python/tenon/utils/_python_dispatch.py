"""Modes and classes below `__torch_function__`, and what packages ask about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenon import Tensor
from tenon._tape import call_modes
from tenon._tape.call_modes import TorchDispatchMode

__all__ = ["TorchDispatchMode"]


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, None where there is none."""
    stack = call_modes.dispatch()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The thread's modes, the innermost last."""
    return list(call_modes.dispatch())


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is entered."""
    del include_infra_modes  # every mode is a program's
    return bool(call_modes.dispatch())


@contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """The innermost mode, which does not see what is called meanwhile."""
    del k
    with call_modes.outside(call_modes.dispatch()) as mode:
        yield mode


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """No mode sees what is called meanwhile."""
    modes = _get_current_dispatch_mode_stack()
    for mode in reversed(modes):
        mode.__exit__(None, None, None)
    try:
        yield modes
    finally:
        for mode in modes:
            mode.__enter__()


# ---- Classes of tensors that are made of others -------------------------------------------------


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor's class is one made of other tensors."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class of tensors is one made of other tensors."""
    return issubclass(t, Tensor) and is_traceable_wrapper_subclass(t)


def transform_subclass(
    t: Any,
    callback: Callable[[str, Any], Any],
    outer_size: Any = None,
    outer_stride: Any = None,
) -> Any:
    """Another tensor of t's class, made of what callback makes of t's tensors."""
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(inner, context, size, stride)
    if tuple(made.shape) != tuple(size):
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to "
            f"{tuple(size)}, but got: {tuple(made.shape)}"
        )
    return made


def return_and_correct_aliasing(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any
) -> Any:
    """What `__torch_dispatch__` returns of a call: of an in-place form the tensor that it wrote."""
    name = func.overloadpacket.__name__
    if (kwargs or {}).get("out") is not None:
        return (kwargs or {})["out"]
    inplace = name.endswith("_") and not name.endswith("__")
    return args[0] if inplace else out
