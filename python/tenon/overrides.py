"""The protocol `__torch_function__`: classes and modes that take part in calls of operators.

A class with a class method `__torch_function__(func, types, args, kwargs)` among the arguments of a
call decides what the call does. Subclasses of Tensor have one that runs the call and makes the
results instances of the subclass. A mode (TorchFunctionMode) sees every call while it is entered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

import tenon
from tenon import _C
from tenon._tape import asked_functions, call_modes
from tenon._tape.call_modes import BaseTorchFunctionMode, TorchFunctionMode
from tenon._tensor.methods import DisableTorchFunctionSubclass

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

_OFF = _C._disabled_torch_function_impl
_FUNCTION, _METHOD, _INPLACE = range(3)


# ---- Who overrides -------------------------------------------------------------------------------


def _protocol(o: Any) -> Any:
    """The class method of an object's class, None for what takes no part."""
    if type(o) is tenon.Tensor:
        return None
    found = getattr(type(o), "__torch_function__", None)
    return None if found is _OFF else found


def _mode_enabled() -> bool:
    """Whether a mode is entered."""
    return bool(call_modes.functions())


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether some argument's class, or a mode, overrides what is called."""
    if call_modes.functions():
        return True
    return _C._disable_overrides(0) == 0 and any(_protocol(a) is not None for a in relevant_args)


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function of the arguments."""
    return has_torch_function(args)


def is_tensor_like(inp: Any) -> bool:
    """Whether inp is a tensor or an object with __torch_function__."""
    return isinstance(inp, tenon.Tensor) or hasattr(inp, "__torch_function__")


def _overloaded(relevant: Iterable[Any]) -> list[Any]:
    """One argument of each class that overrides, subclasses before their bases."""
    found: list[Any] = []
    for arg in relevant:
        cls = type(arg)
        if _protocol(arg) is None:
            continue
        if not found:
            found.append(arg)
            continue
        if any(type(f) is cls for f in found):
            continue
        at = next((i for i, f in enumerate(found) if issubclass(cls, type(f))), len(found))
        found.insert(at, arg)
    return found


# ---- Calls ---------------------------------------------------------------------------------------


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Asks the innermost mode, then the classes of the relevant arguments, for the result of
    public_api."""
    return _handle(public_api, _overloaded(relevant_args), args, kwargs)


def _handle(
    public_api: Callable[..., Any],
    overloaded: list[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    types = tuple([type(a) for a in overloaded])
    if call_modes.functions():
        with call_modes.outside(call_modes.functions()) as mode:
            result = mode.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
        if not overloaded:
            raise TypeError(
                f"{type(mode).__name__}.__torch_function__ returned NotImplemented for "
                f"{resolve_name(public_api) or public_api}"
            )
    for arg in overloaded:
        result = arg.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = getattr(public_api, "__qualname__", repr(public_api))
    lines = "\n".join(f"  - tensor subclass {t}" for t in types)
    raise TypeError(
        f"Multiple dispatch failed for '{_package()}.{name}'; all __torch_function__ handlers "
        f"returned NotImplemented:\n\n{lines}"
    )


_OF_NN = ("group_norm", "layer_norm", "rms_norm")  # called there more than by their other name


@cache
def _public(name: str, form: int) -> Callable[..., Any]:
    """What a program calls the operator by: the `func` that classes see."""
    if "::" in name:
        return _C._added_op(name)
    if form == _INPLACE:
        return getattr(tenon.Tensor, f"{name}_")
    if form == _METHOD:
        return getattr(tenon.Tensor, name)
    first = (tenon.nn.functional,) if name in _OF_NN else ()
    for place in (*first, tenon, tenon.nn.functional, _C._ops, _C._nn):
        # A function of Python that folds arguments would misread those of the operator.
        if hasattr(place, name) and not hasattr(getattr(place, name), "_folds"):
            return getattr(place, name)
    from tenon._program.as_fx import op

    return op(name)  # a form that has no name of its own: graphs call it so


def _call(
    name: str, form: int, relevant: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What the extension calls when an argument of an operator overrides, or a mode is entered."""
    function = _public(name, form)
    overloaded = _overloaded(relevant)
    if not overloaded and not call_modes.functions():  # a mode of another thread, or one that left
        return function(*args, **kwargs)
    names = _named_behind(function)
    if names is not None:  # the arguments come in the operator's order
        first, rest = names
        kwargs = {**dict(zip(rest, args[first:])), **kwargs}
        args = args[:first]
    return _handle(function, overloaded, args, kwargs)


def _ask_modes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the extension calls when a mode is entered and a function is called that is no
    operator: the mode's result, NotImplemented where it does not see such functions."""
    if not call_modes.functions()[-1].sees_members:
        return NotImplemented
    return _handle(getattr(tenon, name), [], args, kwargs)


_LEGACY = ("size_average", "reduce")  # of losses, which no operator has


@cache
def _named_behind(function: Callable[..., Any]) -> tuple[int, list[str]] | None:
    """How many arguments come before PyTorch's former ones, and the names of the others."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    if _LEGACY[0] not in names:
        return None
    first = names.index(_LEGACY[0])
    return first, [n for n in names[first:] if n not in _LEGACY]


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name by which programs call a function ("torch.add", "torch.Tensor.add",
    "torch.Tensor.shape.__get__"), None for what is no function of tensors."""
    if type(f).__name__ in ("OpOverload", "OpOverloadPacket"):
        return str(f)
    name = asked_functions.name_of(f)
    return None if name is None else f"{_package()}.{name}"


def _package() -> str:
    return str(tenon.float32).split(".")[0]


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that ask classes of their arguments, by the module or class that has them."""
    return {place: list(found) for place, found in asked_functions.overridable_functions().items()}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that ask no class: those that make tensors, and settings."""
    return set(asked_functions.ignored_functions())


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each overridable function one with its signature, which returns -1."""
    return dict(asked_functions.stand_ins())


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Makes a function overridable; dispatcher says which of its arguments count."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


# ---- Subclasses of Tensor ------------------------------------------------------------------------


@cache
def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results a subclass leaves as they are."""
    names = ("_base", "grad", "_grad")
    return {getattr(tenon.Tensor, n).__get__ for n in names if hasattr(tenon.Tensor, n)}


@cache
def _members() -> set[Any]:
    members = (getattr(tenon.Tensor, n) for n in dir(tenon.Tensor) if n != "__hash__")
    return {member for member in members if callable(member)}  # not __dict__, which has no hash


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether func is a method of Tensor, or the getter of one of its attributes."""
    return getattr(func, "__name__", "") == "__get__" or func in _members()


def _convert(result: Any, cls: type) -> Any:
    """The tensors of a result as instances of cls."""
    if cls is tenon.Tensor:
        return result
    if isinstance(result, tenon.Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [_convert(r, cls) for r in result]
        return type(result)(items if type(result) in (tuple, list) else tuple(items))
    return result


def _default(
    cls: type, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Tensor.__torch_function__: runs func; tensors among the results become instances of cls."""
    for t in types:
        if not issubclass(cls, t):
            return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in get_default_nowrap_functions() else _convert(result, cls)
