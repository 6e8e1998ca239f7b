"""What a call depends on, as values that are equal when a later call takes the same course."""

from __future__ import annotations

import enum
import functools
import gc
import re
import sys
import threading
import types
from _collections import _tuplegetter as tuplegetter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import tenon
from tenon import _C
from tenon._tape import call_modes
from tenon.nn import Module

_PLAIN = (bool, int, str, bytes, type(None))
_CONTAINERS = (tuple, list, dict, set, frozenset)
_MEMBERS = ("_parameters", "_buffers", "_modules")
_UNSEEN = {
    *_MEMBERS, "_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip # of a module: what no call asks for
_MOST = 20000  # objects that a call may depend on
# Nothing in these changes, or nothing that a call can see.
_FIXED = (
    types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.CodeType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, range, slice,
    type(...), type(NotImplemented), tuplegetter,
    re.Pattern, enum.Enum, PurePath, tenon.dtype, tenon.device,
    tenon.Generator,
)  # fmt: skip
OURS = ("tenon", "torch")
_ASIDE = {
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dataclass_params__",
    "__dict__", "__doc__", "__firstlineno__",
    "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__slotnames__", "__slots__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip
# Kinds of checks in C (python/src/quick.c).
ITEM, ATTRIBUTE, DICT, LIST, TENSOR, EMPTY = range(6)


class Unfit(RuntimeError):
    """A recording that cannot stand for later calls."""


class Same:
    """An object that must be the very same; it is held, so that no other one gets its address."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def _top(module: Any) -> str:
    return str(module or "").partition(".")[0]


def _is_the_programs(module: types.ModuleType) -> bool:
    """Whether a module is no library, which nobody changes."""
    if _top(module.__name__) in (*OURS, *sys.stdlib_module_names):
        return False
    return not {"site-packages", "dist-packages"} & {
        *PurePath(getattr(module, "__file__", None) or "").parts
    }


def is_ours(it: Any) -> bool:
    """Whether a function or class belongs to the package, which nobody changes."""
    return _top(getattr(it, "__module__", "")) in OURS


class Walk:
    """One look at all that is reached from a value. Beside tokens it gathers the checks that say
    the same by the identity of objects; `exact`: there are such checks for everything."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}
        self.dicts: dict[int, Any] = {}  # of attributes, which nobody looks into by themselves
        self.rows: list[tuple[int, Any, Any, Any]] = []
        self.empty: list[Any] = []  # dicts without items
        self.exact = True

    def checks(self) -> tuple[Any, ...]:
        """Rows for `_C._quick`."""
        return (*self.rows, (EMPTY, None, None, tuple(self.empty)))

    def token(self, value: Any) -> Any:
        """Something that is equal for values with which a call takes the same course."""
        if isinstance(value, _PLAIN):
            return type(value), value
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # tells 0.0 from -0.0, and knows nan
        if isinstance(value, tenon.Tensor):
            own = _C._quick_attributes(value)
            first = self._enter(value)
            if first:
                self.rows.append((TENSOR, value, tuple(value.shape), None))
            held = self._dict(own) if own and first else None
            return Same(value), value.dtype, tuple(value.shape), value.requires_grad, held
        if isinstance(value, types.ModuleType) and _is_the_programs(value):
            raise Unfit(f"an object holds the module {value.__name__}, whose names may change")
        if isinstance(value, _FIXED) or type(value) is object or not self._enter(value):
            return Same(value)
        return self._inside(value)

    def item(self, of: dict[str, Any], key: str) -> Any:
        """A name of a module, that of a builtin where there is none."""
        if key not in of:
            self.rows.append((ITEM, of, key, NotImplemented))
            return NotImplemented
        self.rows.append((ITEM, of, key, of.get(key)))
        return self._named(of.get(key))

    def _named(self, value: Any) -> Any:
        """A value that code has by name: of a module it names what it reads, too."""
        return Same(value) if isinstance(value, types.ModuleType) else self.token(value)

    def _attribute(self, of: Any, name: str) -> None:
        """One that a descriptor of the class gets."""
        self.rows.append((ATTRIBUTE, of, getattr(type(of), name), getattr(of, name)))

    def _enter(self, value: Any) -> bool:
        """Whether the value is looked into for the first time."""
        if id(value) in self.seen:
            return False
        if len(self.seen) == _MOST:
            raise Unfit(f"the call may depend on more than {_MOST} objects")
        self.seen[id(value)] = value
        return True

    def _inside(self, value: Any) -> Any:
        own = getattr(value, "__dict__", None) if isinstance(value, _CONTAINERS) else None
        if own:  # of a class of the program's
            return self._held(value), self._dict(own)
        return self._held(value)

    def _held(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            if isinstance(value, list):
                self.rows.append((LIST, value, None, tuple(value)))
            return type(value), tuple(map(self.token, value))
        if isinstance(value, dict):
            return type(value), self._dict(value)
        if isinstance(value, (set, frozenset)):
            self.exact = self.exact and isinstance(value, frozenset)
            return type(value), frozenset(map(self.token, value))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, _C._QuickFunction):
            return Same(value), self.token(value._torchdynamo_orig_callable)
        if isinstance(value, types.MethodType):
            return self.token(value.__self__), self.token(value.__func__)
        if isinstance(value, Module):
            return self._module(value)
        return self._object(value)

    def reaches(self, value: Any) -> bool:
        """Whether the look has come past an object."""
        return id(value) in self.seen or id(value) in self.dicts

    def _dict(self, value: dict[Any, Any]) -> Any:
        self.dicts[id(value)] = value
        if value:
            self.rows.append((DICT, value, tuple(value), tuple(value.values())))
        else:
            self.empty.append(value)
        return tuple((self.token(k), self.token(v)) for k, v in value.items())

    def _module(self, module: Module) -> Any:
        own = {k: v for k, v in module.__dict__.items() if k not in _UNSEEN}
        self.rows.append((DICT, module.__dict__, tuple(module.__dict__),
                          tuple(module.__dict__.values())))  # fmt: skip
        held = [self._dict(getattr(module, kind)) for kind in _MEMBERS]
        return (
            Same(module), tuple((k, self.token(v)) for k, v in own.items()), tuple(held),
            self.token(type(module)),
        )  # fmt: skip

    def _class(self, cls: type) -> Any:
        """The attributes of a class that the program wrote, and of those that it is made of."""
        found: list[Any] = [Same(cls)]
        for c in cls.__mro__:
            if is_ours(c) or _top(c.__module__) in sys.stdlib_module_names:
                continue
            behind = gc.get_referents(c.__dict__)
            if len(behind) == 1 and isinstance(behind[0], dict):
                self.rows.append((DICT, behind[0], tuple(behind[0]), tuple(behind[0].values())))
            else:
                self.exact = False
            found += [(k, self.token(v)) for k, v in vars(c).items() if k not in _ASIDE]
        return tuple(found)

    def _function(self, fn: types.FunctionType) -> Any:
        if _top(fn.__globals__.get("__name__")) in OURS:  # a decorator's has the function's names
            return Same(fn), self._dict(fn.__dict__) if fn.__dict__ else None
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._attribute(fn, name)
        cells = tuple(map(self._cell, fn.__closure__ or ()))
        more = self._dict(fn.__dict__) if fn.__dict__ else None
        return (
            Same(fn.__code__), cells, self.token(fn.__defaults__), self.token(fn.__kwdefaults__),
            more,
        )  # fmt: skip

    def _cell(self, cell: Any) -> Any:
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            self.exact = False
            return None
        self._attribute(cell, "cell_contents")
        return self._named(held)

    def _object(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return self.token(value.func), self.token(value.args), self.token(value.keywords)
        if isinstance(value, (classmethod, staticmethod)):
            return self.token(value.__func__)
        if isinstance(value, property):
            return tuple(map(self.token, (value.fget, value.fset, value.fdel)))
        kind, fields = type(value), getattr(value, "__dict__", None)
        slots = [n for c in kind.__mro__ for n in _names(vars(c).get("__slots__", ()))]
        if kind.__module__ == "typing" or (is_ours(kind) and callable(value)):
            return Same(value)
        if _hides(kind) or (not slots and not isinstance(fields, dict)):
            raise Unfit(f"what a {kind.__module__}.{kind.__qualname__} holds cannot be seen")
        found: list[Any] = [Same(value), self.token(kind)]
        for name in slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                self._attribute(value, name)
                found.append((name, self.token(getattr(value, name))))
        if isinstance(fields, dict):
            found.append(self._dict(fields))
        return tuple(found)


def _hides(kind: type) -> bool:
    """Whether a class is made of one of C that keeps what no attribute tells: arrays, memory."""
    return any(
        isinstance(vars(c).get("__new__"), types.BuiltinFunctionType) and not is_ours(c)
        for c in kind.__mro__
        if c not in (object, types.SimpleNamespace, threading.local)
    )


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def token(value: Any) -> Any:
    """What a value is, as something that can be compared with what it is later."""
    return Walk().token(value)


def of_function(fn: Callable[..., Any], walk: Walk | None = None) -> Any:
    """What a function or method holds by itself, and what is called around every module."""
    from tenon.nn.modules import _calls

    walk = walk or Walk()
    found = walk.token(getattr(fn, "__self__", None)), walk.token(getattr(fn, "__func__", fn))
    names = [n for n in vars(_calls) if n.startswith("_global")]
    if not _calls._global_any:  # nobody has hooked all modules
        walk.empty.append(_calls._global_any)
        return *found, None
    return *found, [walk.item(vars(_calls), n) for n in names]


def of_names(names: Sequence[tuple[dict[str, Any], str, Any]], walk: Walk | None = None) -> Any:
    """What names of modules stand for."""
    walk = walk or Walk()
    return [walk.item(g, n) for g, n, _ in names]


def of_modes(tensors: Sequence[Any]) -> Any:
    """The thread's modes that operators, or what is recorded of them, depend on."""
    kinds = sorted({t.device.type for t in tensors} | {"cpu"})
    casts = [(k, tenon.is_autocast_enabled(k) and tenon.get_autocast_dtype(k)) for k in kinds]
    return (
        tenon.is_grad_enabled(),
        tenon.is_inference_mode_enabled(),
        casts,
        tenon.get_default_dtype(),
        tenon.get_default_device(),
        tuple(map(Same, (*call_modes.functions(), *call_modes.dispatch()))),
    )


def of_tensor(t: Any) -> Any:
    """All that is known of an input but its sizes."""
    order = None if t.is_contiguous() else t.stride()
    own = attributes(t)
    held = token(own) if own else None
    return type(t), t.dtype, t.ndim, order, t.device, t.requires_grad, t.is_leaf, held


def attributes(t: Any) -> dict[str, Any]:
    """Those that the program has given a tensor; marks of its sizes are none."""
    own = _C._quick_attributes(t) or {}
    return {k: v for k, v in own.items() if not k.startswith("_dynamo")}


def memory(t: Any) -> int:
    """Where the memory behind a tensor begins; 0: there is none to share."""
    return t.untyped_storage().data_ptr() if t.numel() else 0


def sharing(places: Sequence[int]) -> tuple[int, ...]:
    """For each tensor the first one that has the same memory."""
    return tuple(places.index(p) if p else i for i, p in enumerate(places))


def tensors_in(found: Any) -> Iterator[Any]:
    """The tensors that a token is about."""
    if isinstance(found, (tuple, list, frozenset)):
        for part in found:
            yield from tensors_in(part)
    elif isinstance(found, Same) and isinstance(found.it, tenon.Tensor):
        yield found.it
