"""Functions of the package that classes with `__torch_function__` may take over whole.

Operators ask the classes of their arguments by themselves; a function of Python that is made of
several would show them its parts. What the package's own classes do is said operator by operator,
so that only classes of programs are asked here, and those of ours with `takes_whole_functions`;
`takes_operators`: but for functions that are little more than one operator.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeVar

from tenon import _C
from tenon._tape.call_modes import entered, sees_whole_functions

_F = TypeVar("_F", bound=Callable[..., Any])
_PLAIN = {_C.Tensor, _C.dtype, _C.device, _C.Size, int, float, bool, str, type(None)}


def _is_number(value: Any, *methods: str) -> bool:
    if isinstance(value, _C.Tensor):
        return value.numel() == 1
    return any(hasattr(value, method) for method in methods)


# What arguments of these annotations are: the words of errors, and what such a value has.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("Tensor", lambda v: isinstance(v, _C.Tensor)),
    "int": ("int", lambda v: _is_number(v, "__index__", "__int__")),
    "float": ("float", lambda v: _is_number(v, "__index__", "__float__", "__complex__")),
    "str": ("str", lambda v: isinstance(v, str)),
    "Sequence[Tensor]": ("tuple of Tensors", lambda v: isinstance(v, (list, tuple))),
}
_OFF = _C._disabled_torch_function_impl
_asking: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


@functools.cache
def _takes_over(cls: type) -> bool:
    protocol = getattr(cls, "__torch_function__", None)
    if protocol is None or protocol is _OFF:
        return False
    ours = str(getattr(protocol, "__module__", "")).startswith("tenon.")
    return not ours or getattr(cls, "takes_whole_functions", False)


def _askable(values: Iterable[Any]) -> list[Any]:
    """Those among the values, and in the lists among them, whose class is to be asked."""
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += [v for v in value if _takes_over(type(v))]
        elif _takes_over(type(value)):
            found.append(value)
    return found


def users_level() -> int:
    """The stacklevel with which a warning of the caller points at the program's line."""
    level, frame = 1, sys._getframe(1)
    while str(frame.f_globals.get("__name__")).startswith("tenon.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _refusal(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TypeError | None:
    """What was wrong with a call that failed, if a number or something else stands in a tensor's
    place, or a text in that of a number: functions of Python meet that wherever they first ask it
    for something."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    at = 0
    for name, parameter in signature.parameters.items():
        several = parameter.kind is parameter.VAR_POSITIONAL
        for value in given.get(name, ()) if several else [given[name]] if name in given else []:
            at += 1
            kind = str(parameter.annotation).removeprefix("builtins.")
            known = _KINDS.get(kind.removesuffix(" | None"))
            if known is None or known[1](value) or (value is None and kind.endswith("None")):
                continue
            if name == "reduction":  # of losses: a ValueError, whatever it is
                continue
            place = f" (position {at})" if parameter.kind is not parameter.KEYWORD_ONLY else ""
            return TypeError(
                f"{function.__name__}(): argument '{name}'{place} must be {known[0]}, "
                f"not {type(value).__name__}"
            )
    return None


def _places(function: Callable[..., Any], flags: Iterable[str]) -> list[tuple[str, int, bool]]:
    """Which of the flags the function has: the name, the place, whether it may be None."""
    plain: Any = inspect.unwrap(function)
    code = plain.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    kinds = plain.__annotations__
    found = [(n, names.index(n), str(kinds.get(n)).endswith("None")) for n in flags if n in names]
    return [(n, at if at < code.co_argcount else sys.maxsize, none) for n, at, none in found]


def _check_flags(
    function: Callable[..., Any],
    flags: list[tuple[str, int, bool]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raises TypeError where a flag is no bool, as operators do: any value would be true or false
    to a function of Python."""
    for name, at, optional in flags:
        value = args[at] if at < len(args) else kwargs.get(name, True)
        if value is True or value is False or (optional and value is None):
            continue
        if type(value).__name__ not in ("bool", "bool_", "SymBool"):
            place = f" (position {at + 1})" if at < len(args) else ""
            raise TypeError(
                f"{function.__name__}(): argument '{name}'{place} must be bool, "
                f"not {type(value).__name__}"
            )


def _ask_mode(public: Any, given: Iterable[Any], args: Any, kwargs: Any) -> Any:
    """What a mode makes of a call; it is told the classes of programs among what was given."""
    from tenon.overrides import _handle, _overloaded

    return _handle(public, _overloaded(_askable(given)), args, kwargs)


def overridable(
    function: Callable[..., Any],
    public: Callable[..., Any] | None = None,
    flags: Iterable[str] = (),
) -> Callable[..., Any]:
    """The function, which asks classes of programs among its arguments first. They are told that
    `public` was called, or it itself. Those of its arguments that flags names have to be bools."""
    checked = _places(function, flags)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if entered[0] and sees_whole_functions():
            return _ask_mode(public or call, given, args, kwargs)
        if not _PLAIN.issuperset(map(type, given)):
            relevant = _askable(given)
            if relevant and _C._disable_overrides(0) == 0:
                from tenon.overrides import handle_torch_function

                return handle_torch_function(public or call, relevant, *args, **kwargs)
        try:
            if checked:
                _check_flags(function, checked, args, kwargs)
            return function(*args, **kwargs)
        except (AttributeError, IndexError, RuntimeError, ValueError) as err:
            refusal = _refusal(function, args, kwargs)
            if refusal is None:
                raise
            raise refusal from err

    call.check_flags = functools.partial(_check_flags, function, checked)  # type: ignore[attr-defined]
    _asking.add(call)
    return call


_NUMPY = {"axis": "dim", "keepdims": "keepdim"} | dict.fromkeys(("x", "a", "x1"), "input")
_NUMPY["x2"] = "other"


def named_as_numpy(function: _F) -> _F:
    """The function, whose arguments may have NumPy's names, too, as those of operators may."""
    code = inspect.unwrap(function).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    other = {n: own for n, own in _NUMPY.items() if own in names and n not in names}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in other.keys() & kwargs.keys():
            if other[name] not in kwargs:
                kwargs[other[name]] = kwargs.pop(name)
        return function(*args, **kwargs)

    return call if other else function  # type: ignore[return-value]


def seen_by_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, about which modes of programs are asked and no classes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if entered[0] and sees_whole_functions():
            return _ask_mode(call, (), args, kwargs)
        return function(*args, **kwargs)

    return call


def asked(public: Any, tensors: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
    """What a mode or the classes of programs among the tensors make of a call; NotImplemented where
    there are none. For functions that are called too often for overridable()."""
    if entered[0] and sees_whole_functions():
        return _ask_mode(public, tensors, args, kwargs)
    relevant = [t for t in _askable(tensors) if not getattr(type(t), "takes_operators", False)]
    if not relevant or _C._disable_overrides(0) != 0:
        return NotImplemented
    from tenon.overrides import handle_torch_function

    return handle_torch_function(public, relevant, *args, **kwargs)


def asks_classes(function: Any) -> bool:
    """Whether a function is one that overridable() made."""
    return isinstance(function, FunctionType) and function in _asking


def make_overridable(
    namespace: dict[str, Any],
    leave: Iterable[str] = (),
    flags: Iterable[str] = (),
    as_numpy: bool = False,
) -> None:
    """Makes the public functions that a module defines overridable, but those named. Arguments by
    the names in flags have to be bools; `as_numpy`: they are operators to PyTorch, which may be
    called by NumPy's names."""
    for name, value in list(namespace.items()):
        mine = isinstance(value, FunctionType) and value.__module__ == namespace["__name__"]
        if mine and not name.startswith("_") and name not in leave:
            taken = named_as_numpy(value) if as_numpy else value
            namespace[name] = overridable(taken, flags=flags)
