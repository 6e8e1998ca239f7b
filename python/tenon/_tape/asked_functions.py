"""Which functions ask `__torch_function__` about their arguments, and what they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import tenon
from tenon import _C
from tenon._tape import asking_members
from tenon._tape.overridable import asks_classes

Function = Callable[..., Any]

_BESIDE = ("linalg", "fft", "special")
_OPERATORS = (_C._ops.__name__, _C._nn.__name__)
_MAKERS = frozenset(  # operators without a tensor among their arguments
    "arange bartlett_window blackman_window empty empty_permuted empty_strided eye fft_fftfreq "
    "fft_rfftfreq full hamming_window hann_window kaiser_window linspace logspace ones rand "
    "randint randn randperm range tril_indices triu_indices zeros".split()
)
# Methods of every object, and those that make the protocol itself.
_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
_UNASKED = (frozenset(dir(object)) - _COMPARISONS) | frozenset(
    "__torch_function__ __torch_dispatch__ _make_subclass _make_wrapper_subclass as_subclass "
    "new __dict__ __module__ __dlpack__ __dlpack_device__ __array_wrap__".split()
)


def _places() -> list[tuple[str, Any]]:
    """Where programs find functions; the first place of an object gives it its name."""
    beside = [(f"{n}.", getattr(tenon, n)) for n in _BESIDE]
    return [("nn.functional.", tenon.nn.functional), ("", tenon), *beside]


def _asks(f: Any) -> bool:
    """Whether classes of the arguments of a function are asked."""
    if getattr(f, "__module__", None) in _OPERATORS:
        return getattr(f, "__name__", "") not in _MAKERS
    if asks_classes(f) or f in _members() or f in (tenon.einsum, tenon.embedding_bag):
        return True
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(str(p.annotation).startswith("Tensor") for p in parameters)


def _functions(place: Any) -> list[Function]:
    """The public functions of a module, without classes and modules."""
    names = getattr(place, "__all__", dir(place))
    found = (getattr(place, n, None) for n in names if not n.startswith("_"))
    return [f for f in found if callable(f) and not isinstance(f, (type, ModuleType))]


@cache
def _members() -> dict[Function, str]:
    """Methods of Tensor and the getters of its attributes, by the names that are read."""
    found: dict[Function, str] = {}
    for name in dir(tenon.Tensor):
        member = asking_members.original(name)
        if name in _UNASKED or isinstance(member, (staticmethod, classmethod)):
            continue
        if callable(member):
            found.setdefault(member, f"Tensor.{name}")
        elif hasattr(member, "__get__"):
            found.setdefault(member.__get__, f"Tensor.{name}.__get__")
    return found


@cache
def overridable_functions() -> dict[Any, list[Function]]:
    """By the module or class where programs find them, the functions that ask."""
    found = {place: [f for f in _functions(place) if _asks(f)] for _, place in _places()}
    found[tenon.Tensor] = list(_members())
    return found


@cache
def ignored_functions() -> set[Function]:
    """Public functions that take part in no call of a class's."""
    return {f for _, place in _places() for f in _functions(place) if not _asks(f)}


@cache
def _names() -> dict[Function, str]:
    """The name below the package that stands for a function, whether it asks or not."""
    found: dict[Function, str] = {}
    hidden = ("_", *(f"{n}_" for n in _BESIDE))
    for prefix, place in _places():
        for name in sorted(dir(place)):
            f = getattr(place, name, None)
            if callable(f) and not isinstance(f, ModuleType) and not name.startswith(hidden):
                try:
                    found.setdefault(f, prefix + name)
                except TypeError:  # an object without a hash is no function
                    continue
    return {**_members(), **found}


def name_of(f: Any) -> str | None:
    """What a program writes below the package for a function."""
    try:
        return _names().get(f)
    except TypeError:
        return None


@cache
def stand_ins() -> dict[Function, Function]:
    """For each function that asks one with its signature, which does nothing and returns -1."""
    return {f: _stand_in(f) for group in overridable_functions().values() for f in group}


def _stand_in(f: Function) -> Function:
    def stand_in(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        stand_in.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        stand_in.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return stand_in
