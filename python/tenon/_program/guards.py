"""What a call depends on, as values that are equal when a later call takes the same course."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import tenon
from tenon.nn import Module

_PLAIN = (bool, int, str, bytes, type(None))
_MEMBERS = ("_parameters", "_buffers", "_modules")


class Same:
    """An object that must be the very same; it is held, so that no other one gets its address."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def token(value: Any, depth: int = 4) -> Any:
    """Something that is equal for values with which a call takes the same course."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, (float, complex)):
        return type(value), repr(value)  # tells 0.0 from -0.0, and knows nan
    if isinstance(value, tenon.Tensor):
        return Same(value), value.dtype, tuple(value.shape), value.requires_grad
    if isinstance(value, (ModuleType, type)) or depth == 0:
        return Same(value)
    if isinstance(value, (tuple, list)):
        return type(value), tuple(token(v, depth - 1) for v in value)
    if isinstance(value, dict):
        return type(value), tuple((token(k, 1), token(v, depth - 1)) for k, v in value.items())
    if isinstance(value, Module):
        return tuple(_of_module(m, depth - 1) for m in value.modules())
    if isinstance(value, FunctionType):
        cells = tuple(_cell(c, depth - 1) for c in value.__closure__ or ())
        defaults = token(value.__defaults__, depth - 1), token(value.__kwdefaults__, depth - 1)
        return Same(value.__code__), cells, defaults
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict) and not callable(value):
        return Same(value), token(fields, depth - 1)
    return Same(value)


def _cell(cell: Any, depth: int) -> Any:
    try:
        return token(cell.cell_contents, depth)
    except ValueError:  # not filled yet
        return None


def _of_module(module: Module, depth: int) -> Any:
    own = {k: v for k, v in module.__dict__.items() if k not in _MEMBERS}
    held = [(k, token(v)) for kind in _MEMBERS[:2] for k, v in getattr(module, kind).items()]
    return Same(module), token(own, depth), tuple(held)


def of_function(fn: Callable[..., Any]) -> Any:
    """What a function or method holds by itself, and what is called around every module."""
    owner = getattr(fn, "__self__", None)
    inner = getattr(fn, "__func__", fn)
    return token(owner), token(inner), _global_hooks()


def _global_hooks() -> Any:
    from tenon.nn.modules import _calls

    held = {n: v for n, v in vars(_calls).items() if n.startswith("_global")}
    return token(held, 3)


def of_modes(tensors: Sequence[Any]) -> Any:
    """The thread's modes that operators, or what is recorded of them, depend on."""
    kinds = sorted({t.device.type for t in tensors} | {"cpu"})
    casts = [(k, tenon.is_autocast_enabled(k) and tenon.get_autocast_dtype(k)) for k in kinds]
    return (
        tenon.is_grad_enabled(),
        tenon.is_inference_mode_enabled(),
        casts,
        tenon.get_default_dtype(),
    )


def of_tensor(t: Any) -> Any:
    """All that is known of an input but its sizes."""
    order = None if t.is_contiguous() else t.stride()
    return type(t), t.dtype, t.ndim, order, t.device, t.requires_grad, t.is_leaf


def memory(t: Any) -> int:
    """Where the memory behind a tensor begins; 0: there is none to share."""
    return t.untyped_storage().data_ptr() if t.numel() else 0


def sharing(places: Sequence[int]) -> tuple[int, ...]:
    """For each tensor the first one that has the same memory."""
    return tuple(places.index(p) if p else i for i, p in enumerate(places))


def tensors_in(found: Any) -> Iterator[Any]:
    """The tensors that a token is about."""
    if isinstance(found, (tuple, list)):
        for part in found:
            yield from tensors_in(part)
    elif isinstance(found, Same) and isinstance(found.it, tenon.Tensor):
        yield found.it
