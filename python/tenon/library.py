"""Operators written in Python: `custom_op` and what goes with it, under PyTorch's names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from inspect import Parameter
from typing import Any

from tenon import _C, ops
from tenon._plugin import opcheck as _opcheck
from tenon._plugin import schema as _schema
from tenon._plugin.schema_parts import FunctionSchema
from tenon._tape.function import Function
from tenon._tensor.methods import Tensor

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "get_ctx", "impl", "impl_abstract",
    "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip

infer_schema = _schema.infer

_defined: dict[str, CustomOpDef] = {}
# Kernels that came before their operators, by name.
_early: dict[str, list[tuple[str, Callable[..., Any], str]]] = {}


class CustomOpDef:
    """An operator that is a Python function: called like one, and recorded by autograd as one."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any] | None,
        device_types: Iterable[str],
        mutates_args: str | Iterable[str] = (),
        schema: str | None = None,
    ) -> None:
        self._qualname = name
        self._kernels = {} if fn is None else dict.fromkeys(device_types, fn)
        self._recorded: Callable[..., Any] | None = None  # runs in place of a recorded call
        self._signature, written = _schema.signature_of(name, fn, schema, mutates_args)
        self._written = written
        self._of, self._text = fn, schema
        self._function: type[Function] | None = None
        self._fake: Callable[..., Any] | None = None
        self._autocast: dict[str, Any] = {}  # device: the dtype of arguments under autocast
        self._under: dict[str, Callable[..., Any]] = {}  # device: what runs under its autocast
        self._vmap: Callable[..., Any] | None = None
        self._kwonly: list[str] = []
        for p in self._signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise TypeError(f"custom_op: '{name}' takes *{p.name}, and arguments have names")
            if p.kind == p.KEYWORD_ONLY:
                self._kwonly.append(p.name)
        self._names = list(self._signature.parameters)
        self._defaults = [p.default for p in self._signature.parameters.values()]
        without = [i for i, default in enumerate(self._defaults) if default is Parameter.empty]
        self._least = without[-1] + 1 if without else 0  # so many arguments have no default
        self.__name__ = name.split("::")[1]
        self.__doc__ = fn.__doc__ if fn is not None else f"{name}{schema}"
        self.__signature__ = self._signature

    @property
    def default(self) -> CustomOpDef:
        """The one form that it has."""
        return self

    @cached_property
    def _schema(self) -> FunctionSchema:
        """Its arguments and results; `str` is the text of them."""
        if self._text is not None:
            return FunctionSchema(self._qualname + self._text)
        written = sorted(self._written)
        return FunctionSchema(infer_schema(self._of, mutates_args=written, op_name=self._qualname))

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _run(self, *args: Any) -> Any:
        first = next((a for a in args if isinstance(a, Tensor)), None)
        device = "cpu" if first is None else first.device.type
        fn = self._kernels.get(device)
        fn = fn or (self._fake if device == "meta" else None) or self._kernels.get("")
        if fn is None:
            raise NotImplementedError(
                f'"{self._qualname}" not implemented on device {device!r}; '
                f"register_kernel({device!r}) adds it"
            )
        # Announced writes are counted, which nobody does that come by NumPy or a foreign library.
        written = self._named(args) if self._written else []
        versions = [(t, t._version) for name, t in written if name in self._written]
        positional, named = self._apart(args)
        result = fn(*positional, **named)
        for tensor, before in versions:
            if tensor._version == before:
                _C._note_write(tensor)
        return result

    def _apart(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What is passed by position, and by name alone."""
        if not self._kwonly:
            return args, {}
        n = len(args) - len(self._kwonly)
        return args[:n], dict(zip(self._kwonly, args[n:], strict=True))

    def _named(self, args: tuple[Any, ...]) -> list[tuple[str, Tensor]]:
        """The tensors among the arguments, those in lists too."""
        found: list[tuple[str, Tensor]] = []
        for name, value in zip(self._names, args, strict=True):
            if isinstance(value, Tensor):
                found.append((name, value))
            elif isinstance(value, list | tuple):
                found += [(name, v) for v in value if isinstance(v, Tensor)]
        return found

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in."""
        if not kwargs and self._least <= len(args) <= len(self._names) - len(self._kwonly):
            return (*args, *self._defaults[len(args) :])
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            values = self._bind(args, kwargs)
        except TypeError as err:
            raise TypeError(f"{self._qualname}(): {err}") from None
        if self._autocast or self._under:
            return self._under_autocast(values)
        return self._dispatched(values, args, kwargs)

    def _under_autocast(self, values: tuple[Any, ...]) -> Any:
        """A call whose kernel for autocast runs, or whose arguments autocast may turn into another
        dtype, which then is off."""
        from tenon import amp

        for device, kernel in self._under.items():
            if amp.is_autocast_enabled(device):
                positional, named = self._apart(values)
                return kernel(*positional, **named)
        with ExitStack() as off:
            for device, dtype in self._autocast.items():
                if amp.is_autocast_enabled(device):
                    values = tuple(_lowered(v, device, dtype) for v in values)
                    off.enter_context(amp.autocast(device, enabled=False))
            return self._dispatched(values, *self._apart(values))

    def _dispatched(
        self, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if _C._program_is_recording():
            from tenon._program import foreign

            if foreign.is_open():
                return foreign.whole(self, args, kwargs)
        if "tenon._transform.vmap" in sys.modules:
            from tenon._transform import vmap

            if vmap.any_batched(values):
                written = [
                    v for n, v in zip(self._names, values, strict=True) if n in self._written
                ]
                return vmap.run_own(self._qualname, self._by_position, self._vmap, values, written)
        if "tenon.distributed.tensor._dispatch" in sys.modules and _C._disable_overrides(0) == 0:
            from tenon.distributed.tensor import _dispatch

            found = _dispatch.run_own(self, self._qualname, args, kwargs)
            if found is not NotImplemented:
                return found
        return self._by_position(*values)

    def _taken_apart(self, values: tuple[Any, ...], recorded: bool) -> Any:
        """The call in a program, which holds the operators that it runs and their derivatives."""
        from tenon._program import foreign

        foreign.state.gradients += 1
        before = _C._program_note_grad(recorded)
        try:
            with _C.no_grad():
                return self._run(*values)
        finally:
            _C._program_note_grad(before)

    def _by_position(self, *values: Any) -> Any:
        recorded = _C.is_grad_enabled()
        wanting = [name for name, t in self._named(values) if t.requires_grad] if recorded else []
        for name in wanting:
            if name in self._written:
                raise RuntimeError(
                    f"{self._qualname}(): argument '{name}' is written to and cannot require grad: "
                    "call it under no_grad, or make an operator that returns what it computes"
                )
        if not wanting:
            if _C._program_is_recording() and (self._function or self._recorded):
                return self._taken_apart(values, recorded)
            with _C.no_grad():
                return self._run(*values)
        if self._recorded is not None:
            positional, named = self._apart(values)
            return self._recorded(*positional, **named)
        return (self._function or _underivable(self)).apply(*values)

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., None] | None = None,
    ) -> None:
        """backward(ctx, *grads) -> a gradient per argument; setup_context(ctx, inputs, output)."""

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if setup_context is None:
                return
            more = {}
            if self._kwonly:
                inputs, more["keyword_only_inputs"] = self._apart(inputs)
            setup_context(ctx=ctx, inputs=inputs, output=output, **more)

        def run_backward(ctx: Any, *grads: Any) -> Any:
            found = backward(ctx, *grads)
            found = found if isinstance(found, tuple) else (found,)
            n = len(self._names) - len(self._kwonly)
            if len(found) != n:
                raise RuntimeError(
                    f"{self._qualname}: backward returned {len(found)} gradients for {n} arguments"
                )
            return *found, *(None for _ in self._kwonly)

        parts = {
            "forward": staticmethod(self._run),
            "setup_context": staticmethod(setup),
            "backward": staticmethod(run_backward),
        }
        self._function = type(self.__name__, (Function,), parts)
        self._recorded = None

    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Another function for tensors of these devices, of all for None and "default", or for
        dispatch keys ("CompositeExplicitAutograd"); a decorator when it is not given."""
        keys = ["default"] if device_types is None else device_types
        names = [keys] if isinstance(keys, str) else list(keys)

        def register(f: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                _implement("register_kernel", self, f, name)
            return f

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """A function that only makes results of the right shape and dtype: what a call with tensors
        without data runs. `opcheck` compares it with the operator."""
        self._fake = fn
        return fn

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Under autocast for a device its floating point arguments are cast to this dtype, and the
        operator runs without autocast."""
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        from tenon import amp

        if not amp.is_autocast_available(device_type):
            raise ValueError(f"Device type '{device_type}' does not support autocast.")
        self._autocast[device_type] = cast_inputs

    def register_vmap(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """fn(info, in_dims, *args) -> (result, out_dims): the operator on arguments that have a
        mapped dimension, in place of a call for each element."""
        if fn is None:
            return self.register_vmap
        self._vmap = fn
        return fn


def _lowered(value: Any, device: str, dtype: Any) -> Any:
    """A value with its tensors in the dtype that autocast wants; those of float64 stay."""
    if isinstance(value, Tensor):
        kept = value.dtype in (dtype, _C.float64) or not value.is_floating_point()
        return value if kept or value.device.type != device else value.to(dtype)
    if isinstance(value, list | tuple):
        return type(value)([_lowered(v, device, dtype) for v in value])
    return value


def _underivable(op: CustomOpDef) -> type[Function]:
    """What records an operator whose gradient was never registered."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            f"derivative for {op._qualname} is not implemented; register_autograd adds it"
        )

    parts = {
        "forward": staticmethod(op._run),
        "setup_context": staticmethod(lambda ctx, inputs, output: None),
        "backward": staticmethod(backward),
    }
    return type(op.__name__, (Function,), parts)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes an operator "namespace::name" of a function; `tenon.ops.namespace.name` calls it.

    `mutates_args` names the tensor arguments that the function writes to ("unknown": any). The
    arguments are those of the function, or of `schema`, "(Tensor x, float scale=1.0) -> Tensor",
    where an argument that is written is a "Tensor(a!)".
    """
    devices = [""] if device_types is None else device_types
    names = [devices] if isinstance(devices, str) else list(devices)

    def made(f: Callable[..., Any]) -> CustomOpDef:
        _check_name("custom_op", name)
        return _add(CustomOpDef(name, f, names, mutates_args, schema))

    _check_name("custom_op", name)
    return made if fn is None else made(fn)


def _check_name(caller: str, name: str) -> None:
    space, colons, rest = name.partition("::")
    parts = [space, *rest.split(".", 1)]  # a form of an operator is "namespace::name.form"
    if not colons or not all(p.isidentifier() for p in parts):
        raise ValueError(f"{caller}: a name is of the form 'namespace::name', not {name!r}")
    if name in _C._added_names():
        raise ValueError(f"{caller}: a plugin has added the operator '{name}'")


def _add(op: CustomOpDef) -> CustomOpDef:
    _defined[op._qualname] = op
    space, name = op._qualname.split("::")
    name, _, form = name.partition(".")
    first = _defined.get(f"{space}::{name}", op)
    if form:
        setattr(first, form, op)
    if first is op:
        ops.define(space, name, op)
    for caller, fn, key in _early.pop(op._qualname, ()):
        _implement(caller, op, fn, key)
    return op


def _find(op: str | CustomOpDef) -> CustomOpDef:
    found = _defined.get(op) if isinstance(op, str) else op
    if found is None:
        raise ValueError(f"there is no custom_op {op!r}")
    return found


def register_autograd(
    op: str | CustomOpDef,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., None] | None = None,
    lib: Library | None = None,
) -> None:
    """CustomOpDef.register_autograd, by name; `lib` is not needed."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef,
    device_types: str | Iterable[str] | None,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """CustomOpDef.register_kernel, by name; `lib` is not needed."""
    return _find(op).register_kernel(device_types, fn)


def register_fake(
    op: str | CustomOpDef,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """CustomOpDef.register_fake, by name; the last one counts, and `lib` is not needed."""
    return _find(op).register_fake if fn is None else _find(op).register_fake(fn)


def register_vmap(
    op: str | CustomOpDef,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """CustomOpDef.register_vmap, by name; `lib` is not needed."""
    return _find(op).register_vmap(fn)


impl_abstract = register_fake


def register_autocast(
    op: str | CustomOpDef, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> None:
    """CustomOpDef.register_autocast, by name; `lib` is not needed."""
    del lib
    _find(op).register_autocast(device_type, cast_inputs)


def triton_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    schema: str | None = None,
) -> Any:
    """custom_op for a function that launches kernels of Triton, by `wrap_triton`."""

    def made(f: Callable[..., Any]) -> CustomOpDef:
        op = custom_op(name, f, mutates_args=mutates_args, schema=schema)
        op.register_fake(f)
        return op

    return made if fn is None else made(fn)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """A kernel of Triton as a triton_op launches it: as it is, since nothing traces it."""
    kinds = ("JITFunction", "Autotuner", "InterpretedFunction")
    if type(triton_kernel).__name__ not in kinds or not hasattr(triton_kernel, "run"):
        raise RuntimeError(
            "wrap_triton only works on functions annotated with triton.jit or triton.autotune"
        )
    return triton_kernel


def get_ctx() -> Any:
    """What a register_fake function asks for new sizes: sizes are known here when it runs."""
    raise RuntimeError("get_ctx() can only be called inside of a fake impl")


# ---- Operators by schema, kernels by dispatch key ------------------------------------------------

# Where the kernels of PyTorch's dispatch keys go: to the tensors of a device, "" to those of all.
_DEVICES = {
    "": "", "CPU": "cpu", "CUDA": "cuda", "default": "",
    "CompositeExplicitAutograd": "", "CompositeExplicitAutogradNonFunctional": "",
}  # fmt: skip
_AUTOCAST = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda", "AutocastXPU": "xpu"}
_RECORDED = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def _implement(caller: str, op: CustomOpDef, fn: Callable[..., Any], key: str) -> None:
    if key == "Meta":
        op.register_fake(fn)
    elif key in _RECORDED:
        op._recorded = fn
        if key == "CompositeImplicitAutograd":
            op._kernels[""] = fn
    elif key in _AUTOCAST:
        op._under[_AUTOCAST[key]] = fn
    elif key in _DEVICES or key.islower():
        op._kernels[_DEVICES.get(key, key)] = fn
    else:
        known = sorted({*_DEVICES, *_AUTOCAST, *_RECORDED, "Meta"} - {""})
        raise ValueError(f"{caller}: no dispatch key {key!r}; there are {', '.join(known)}")


def _split_schema(caller: str, text: str) -> tuple[str, str]:
    name, brace, rest = text.partition("(")
    if not brace:
        raise ValueError(f"{caller}: a schema is of the form 'name(Tensor x) -> Tensor': {text!r}")
    return name.strip().removesuffix(".default"), brace + rest


class Library:
    """Operators of a namespace: `define` adds one by its schema, `impl` a kernel for a dispatch
    key.

    `kind` is "DEF" or "FRAGMENT" where operators are defined, "IMPL" where kernels are added to
    operators that are there. Those of the op table get kernels from plugins (docs/plugins.md).
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Unsupported library kind: {kind!r}; it is DEF, FRAGMENT or IMPL")
        if not ns.isidentifier() or ns in ("aten", "prims"):
            raise ValueError(
                f"Library: {ns!r} is no namespace for operators in Python; those of 'aten' get "
                "kernels from plugins"
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._own: list[str] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Adds an operator: "name(Tensor x, float scale=1.0) -> Tensor". Returns its name."""
        del alias_analysis, tags  # compilers of PyTorch's read them
        if self.kind == "IMPL":
            raise RuntimeError("Library.define: a library of kind IMPL only adds kernels")
        name, arguments = _split_schema("Library.define", schema)
        full = f"{self.ns}::{name.removeprefix(self.ns + '::')}"
        _check_name("Library.define", full)
        if full in _defined:
            raise RuntimeError(f"Library.define: the operator '{full}' is there already")
        _add(CustomOpDef(full, None, (), (), arguments))
        self._own.append(full)
        return name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Adds a kernel to an operator of the namespace."""
        if with_keyset:
            raise NotImplementedError("Library.impl: Tenon's kernels take no key sets")
        if not callable(fn):
            raise TypeError(f"Library.impl: the kernel must be callable, not {type(fn).__name__}")
        del allow_override  # the last one counts
        name = op_name._qualname if isinstance(op_name, CustomOpDef) else str(op_name)
        name = f"{self.ns}::{name.removeprefix(self.ns + '::').removesuffix('.default')}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        _implement("Library.impl", _find(name), fn, key)

    def _destroy(self) -> None:
        """Takes the operators away that it has defined."""
        for full in self._own:
            _defined.pop(full, None)
            ops.undefine(*full.split("::"))
        self._own.clear()


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """Adds an operator "namespace::name" by its schema, "(Tensor x) -> Tensor", for `impl`."""
    del lib, tags
    _check_name("define", qualname)
    name, arguments = _split_schema("define", schema)
    if name:
        raise ValueError(
            f"define: the schema of {qualname} starts with its arguments, not {name!r}"
        )
    _add(CustomOpDef(qualname, None, (), (), arguments))


def impl(
    qualname: str | CustomOpDef,
    types: str | Iterable[str],
    func: Callable[..., Any] | None = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Adds a kernel for devices ("cpu", "cuda", "default": all); a decorator without `func`."""
    del lib
    keys = [types] if isinstance(types, str) else list(types)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            if isinstance(qualname, str) and qualname not in _defined:
                _check_name("impl", qualname)
                _early.setdefault(qualname, []).append(("impl", fn, key))
            else:
                _implement("impl", _find(qualname), fn, key)
        return fn

    return register if func is None else register(func)


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Iterable[str] = _opcheck.TESTS,
    raise_exception: bool = True,
) -> dict[str, str]:
    """Tries an operator on sample arguments: what it says of writes, shapes and gradients holds.

    Returns "SUCCESS" or what went wrong for each of the tests; raises at the first unless told not.
    An operator of a plugin in C is tried like one of `custom_op`, by its function or its name.
    """
    found = op
    if isinstance(op, str):
        space, _, name = op.partition("::")
        found = _defined.get(op) or getattr(getattr(ops, space), name)
    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    return _opcheck.run(found, tuple(args), dict(kwargs or {}), names, raise_exception)
