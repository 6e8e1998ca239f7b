"""Functions of existing C libraries, called by their declarations: no compiler, no plugin.

    erf = tenon.ffi.bind("libm.so.6", "double erf(double x)", derivative="2/sqrt(pi)*exp(-x*x)")
    erf(0.5), erf(tenon.randn(3, 4))

A function of numbers that returns a number becomes an operator on tensors, `tenon.ops.ffi.erf`, and
is called directly when all its arguments are numbers. Any other function takes tensors as arrays.
Everything needs libffi; without it `bind` and `library` raise ImportError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tenon import _C, ops
from tenon._C import FfiCallback as Callback
from tenon._C import FfiFunction as Function
from tenon._C import FfiPointer as Pointer
from tenon._C import FfiStruct as Struct

__all__ = ["Callback", "Function", "Library", "Pointer", "Struct", "bind", "library", "unbind"]

_Path = str | os.PathLike[str] | None
_Derivative = str | Callable[..., Any] | Mapping[str, Any] | None


def _qualified(fn: Function) -> str:
    """The operator's name with its version, "ffi::erf@1"."""
    name = fn.op.__name__ if "@" in fn.op.__name__ else f"{fn.op.__name__}@1"
    return f"{fn.op.__module__.removeprefix('tenon.ops.')}::{name}"


def _formula(scope: Any, fn: str, full: str, names: list[str], param: str, given: Any) -> str:
    """The derivative with respect to one parameter, as the text of a formula."""
    if isinstance(given, str):
        return f"({given})"
    if isinstance(given, Function):
        if given.op is None:
            raise ValueError(f"{fn}: the derivative '{given.__name__}' is no operator on tensors")
        name = _qualified(given)
    elif callable(given):
        name = scope.composite(fn, f"{full}_d_{param}", given)
    else:
        kind = type(given).__name__
        raise TypeError(f"{fn}: a derivative is a formula, a function or None, not {kind}")
    return f"{name}({', '.join(names)})"


def _gradient(scope: Any, fn: str, full: str, derivative: _Derivative) -> str | None:
    """What a descriptor's `gradient` says: "x: grad * (...); n: none"."""
    if derivative is None:
        return None
    _, params = scope.describe(fn)
    names = [name for name, _ in params]
    floating = [name for name, is_floating in params if is_floating]
    if not isinstance(derivative, Mapping):
        if len(floating) != 1:
            raise ValueError(
                f"{fn}: with {len(floating)} floating parameters, derivative is a dict: "
                "{'x': formula, ...}"
            )
        derivative = {floating[0]: derivative}
    unknown = [name for name in derivative if name not in names]
    if unknown:
        raise ValueError(f"{fn}: derivative names '{unknown[0]}', which is no parameter")
    parts = {name: "none" for name in names if name not in floating}
    for name, given in derivative.items():
        text = None if given is None else _formula(scope, fn, full, names, name, given)
        parts[name] = "none" if text is None else f"grad * {text}"
    return "; ".join(f"{name}: {text}" for name, text in parts.items())


def _lengths_text(lengths: Mapping[str, Any]) -> str:
    """{"x": "n", "a": ("rows", "columns")} as "x[n],a[rows][columns]"."""
    shapes = {k: v if isinstance(v, (tuple, list)) else (v,) for k, v in lengths.items()}
    return ",".join(k + "".join(f"[{n}]" for n in shape) for k, shape in shapes.items())


def _function(
    scope: Any,
    declared: str,
    *,
    name: str | None = None,
    namespace: str = "ffi",
    derivative: _Derivative = None,
    dtype: Any = None,
    lengths: Mapping[str, Any] | None = None,
    returns: str = "value",
    status_text: Any = None,
    nullable: Iterable[str] = (),
    release_gil: bool = False,
    copy: bool = False,
) -> Function:
    elementwise, _ = scope.describe(declared)
    full = f"{namespace}::{name or declared}"
    if lengths:
        scope.set_lengths(declared, _lengths_text(lengths))
    op = None
    if elementwise and returns == "value":
        gradient = _gradient(scope, declared, full, derivative)
        bound = scope.operator(declared, full, dtype, gradient, None)
        ops.forget()
        op = _C._added_op(bound)
    elif derivative is not None or dtype is not None:
        what = "derivative" if derivative is not None else "dtype"
        raise ValueError(f"{declared}: {what} goes with functions of numbers that return a number")
    text_of = status_text.get if isinstance(status_text, Mapping) else status_text
    names = (nullable,) if isinstance(nullable, str) else tuple(nullable)
    options = (op, returns, text_of, names, release_gil, copy)
    return scope.function(declared, options)


def _check_options(options: dict[str, Any]) -> None:
    known = _function.__kwdefaults__
    for name in options:
        if name not in known:
            raise TypeError(f"bind() has no option '{name}'; there are {', '.join(known)}")


def _bind(scope: Any, declaration: str, options: dict[str, Any]) -> Function:
    _check_options(options)
    names = scope.declare(declaration)
    if len(names) != 1:
        raise ValueError(
            f"bind takes the declaration of one function, and this has {len(names)}: "
            f"{declaration!r}; library(path).cdef(text) takes several"
        )
    return _function(scope, names[0], **options)


def bind(library: _Path, declaration: str, **options: Any) -> Function:
    """Binds the C function that `declaration` declares; `library` None is the program itself.

    A function of numbers that returns a number is an operator on tensors as well:

    namespace, name  it is `tenon.ops.<namespace>.<name>`; "ffi" and the function's own name. Of
                     several bindings of a name this is the newest; each function keeps its own.
    derivative       a formula over the parameters, a Python function of them, or another bound
                     function; for several parameters a dict of these. Parameters without a name
                     are called x, y, z, w.
    dtype            of the result. Without it, floating tensors keep their dtype, integers become
                     the default float, and an integer result has its C type's dtype.

    Any other function takes tensors for pointers:

    lengths          {"x": "n", "a": ("rows", "columns")}, as the declaration `double x[n]` says it.
                     Lengths that are not given are taken from the tensors, others are checked.
    returns          what the result means: "value"; "errno": -1 or NULL raises OSError; "status":
                     what is not 0 raises RuntimeError; "null": NULL raises
    status_text      a dict or a function that puts a status into words
    nullable         names of pointer parameters that may be None
    release_gil      run other Python threads meanwhile
    copy             copy tensors that are on a device or not contiguous, and back
    """
    _C._ffi_available()
    path = None if library is None else os.fspath(library)
    return _bind(_C.FfiScope(path), declaration, options)


def unbind(fn: Function | str) -> None:
    """Withdraws the operator of a bound function, or all that are called "ffi::erf"."""
    if isinstance(fn, Function):
        if fn.op is None:
            raise ValueError(f"'{fn.__name__}' is no operator on tensors")
        fn = _qualified(fn)
    _C._ffi_unbind(fn)
    ops.forget()


def library(path: _Path = None) -> Library:
    """The library of that name or path, for `cdef` and `bind`; None: the program itself."""
    return Library(path)


class Library:
    """A C library and what was declared of it; functions, structs and constants are attributes."""

    def __init__(self, path: _Path = None) -> None:
        _C._ffi_available()
        self._path = None if path is None else os.fspath(path)
        self._scope = _C.FfiScope(self._path)
        self._found: dict[str, Any] = {}

    def cdef(self, text: str, **options: Any) -> Library:
        """Declares functions, structs, enums and typedefs; the options of `bind` go for all of the
        functions. Returns the library."""
        _check_options(options)
        for name in self._scope.declare(text):
            self._found[name] = _function(self._scope, name, **options)
        self._found.update(self._scope.constants())
        for name in self._scope.struct_names():
            self._found.setdefault(name, _maker(self._scope, name))
        return self

    def bind(self, declaration: str, **options: Any) -> Function:
        """`tenon.ffi.bind` with the library's structs and types at hand."""
        return _bind(_C.FfiScope(self._path, self._scope), declaration, options)

    def callback(self, function: str, parameter: str, fn: Callable[..., Any]) -> Callback:
        """`fn` as a C function that C may keep, for as long as you keep the object."""
        return self._scope.callback(function, parameter, fn)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_found"][name]
        except KeyError:
            raise AttributeError(f"'{name}' is not declared; cdef() does it") from None

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._found])

    def __repr__(self) -> str:
        return f"<C library {self._path or 'of the program'}: {', '.join(sorted(self._found))}>"


def _maker(scope: Any, name: str) -> Callable[..., Struct]:
    """The function that makes structs of one type, from values by position or by name."""

    def make(*values: Any, **fields: Any) -> Struct:
        made = scope.new_struct(name)
        names = made.__dir__()
        if len(values) > len(names):
            raise TypeError(f"{name}() takes {len(names)} values, not {len(values)}")
        for key, value in [*zip(names, values), *fields.items()]:
            setattr(made, key, value)
        return made

    make.__name__ = name
    make.__doc__ = f"A struct {name}, zero where no value is given."
    return make
