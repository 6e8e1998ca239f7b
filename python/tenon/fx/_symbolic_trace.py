"""Tracing: calls a function or module with proxies, and keeps what is done to them."""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import inspect
import itertools
import math
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import tenon
from tenon._program.jit_names import ScriptObject  # noqa: F401 - PyTorch's name
from tenon._tape import overridable
from tenon.fx._compatibility import compatibility  # noqa: F401 - PyTorch's name
from tenon.fx._patches import _Patcher
from tenon.fx.graph import Graph, PyTreeInfo, _PyTreeCodeGen
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import BASE_TYPES, Argument
from tenon.fx.proxy import ParameterProxy, Proxy, ProxyableClassMeta, TracerBase
from tenon.nn import Module, Sequential
from tenon.nn.modules._slots import SLOT_NAMES
from tenon.nn.parameter import Parameter
from tenon.utils import _pytree

_orig_module_call, _orig_module_getattr = Module.__call__, Module.__getattr__
_wrapped: list[tuple[dict[str, Any], str]] = []  # globals of a module, and the function's name


class PHBase:
    """Among concrete_args: this part stays a placeholder."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Makes a global function a node of its own, where it would be traced through.

    At the top level of a module: `wrap("len")`, or as a decorator.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped.append((frame.f_globals, name))
    return fn_or_name


def is_wrapped(fn: Any) -> bool:
    """Whether a function was given to wrap."""
    name = getattr(fn, "__name__", None)
    return any(
        n == name and (space[n] if n in space else getattr(builtins, n, None)) is fn
        for space, n in _wrapped
    )


def _assert_is_none(value: Any, msg: str) -> Any:
    """Of a proxy, a node; else an AssertionError unless the value is None."""
    if isinstance(value, Proxy):
        return value.tracer.create_proxy("call_function", _assert_is_none, (value, msg), {})
    assert value is None, msg
    return None


def _annotations(fn: Any) -> dict[str, Any]:
    """What a function says of its arguments and result, as the program wrote it; of our own
    modules, which say it in text, the types, and nothing where anything may be given."""
    fn = inspect.unwrap(fn)
    said = getattr(fn, "__annotations__", {})
    if not (getattr(fn, "__module__", None) or "").startswith("tenon."):
        return said
    kinds = {name: kind for name, kind in typing.get_type_hints(fn).items() if kind is not Any}
    return {} if said and next(iter(said)) not in kinds else kinds


def _positional(fn: Any) -> Callable[..., Any]:
    """The function with `*args`, `**kwargs` and keywords as plain positional arguments."""
    if isinstance(fn, MethodType):
        return functools.partial(_positional(fn.__func__), fn.__self__)
    code = fn.__code__
    variadic = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & variadic).bit_count()
    made = code.replace(
        co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0,
        co_flags=code.co_flags & ~variadic,
    )  # fmt: skip
    return FunctionType(made, fn.__globals__, fn.__name__, None, fn.__closure__)


def is_fx_tracing() -> bool:
    return _Tracing.depth > 0


class _Tracing:
    depth = 0


class Tracer(TracerBase):
    """Traces a module or function. Subclasses say what is a leaf and what arguments become."""

    proxy_buffer_attributes = False  # buffers that are read are nodes; else values, as others

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_search = list(autowrap_modules)
        told = (f for m in autowrap_modules for n, f in vars(m).items() if n[0] != "_")
        # Functions that are nodes by themselves: asked for, or of the package.
        found = (*told, *autowrap_functions, *_library().values())
        self._autowrap_function_ids = {id(f) for f in found}
        self.param_shapes_constant = param_shapes_constant
        self.module_stack, self.num_calls = {}, {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Modules of Python are the same ones."""
        made = type(self).__new__(type(self))
        for name, value in vars(self).items():
            shared = name == "_autowrap_search"
            vars(made)[name] = value if shared else copy.deepcopy(value, memo)
        return made

    # ---- What subclasses change ------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module becomes one node: those of tenon.nn do, Sequential does not."""
        place = m.__module__
        ours = place.startswith(("tenon.nn", "torch.nn"))
        return ours and not isinstance(m, Sequential)

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        path = self.path_of_module(m)
        with self._within(m, path):
            if not self.is_leaf_module(m, path):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", path, args, kwargs)

    @contextlib.contextmanager
    def _within(self, m: Module, path: str) -> Iterator[None]:
        """The call of a module: nodes that are made say which; a second call has a mark."""
        before, count = self.module_stack, self.num_calls.get(path, 0)
        self.num_calls[path] = count + 1
        key = f"{path}@{count}" if count else path
        self.module_stack = {**before, key: (path, type(m))}
        try:
            yield
        finally:
            self.module_stack = before

    def path_of_module(self, mod: Module) -> str:
        for name, found in self.root.named_modules(remove_duplicate=False):
            if found is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Parameters of the root, when the function reads them, become get_attr."""
        if isinstance(attr_val, Parameter):
            members = self.root.named_parameters
        elif self.proxy_buffer_attributes and isinstance(attr_val, tenon.Tensor):
            members = self.root.named_buffers
        else:
            return attr_val
        for name, value in members():
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    factory = functools.partial(ParameterProxy, self, name=name, param=attr_val)
                    known = self.param_shapes_constant and isinstance(attr_val, Parameter)
                    parameter_proxy_cache[name] = self.create_proxy(
                        "get_attr", name, (), {}, **({"proxy_factory_fn": factory} if known else {})
                    )
                return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a: Any) -> Argument:
        if isinstance(a, Module):
            for name, found in self.root.named_modules():
                if found is a:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            items = tuple(self.create_arg(x) for x in a)
            return self.create_node("call_function", type(a), items, {})
        return super().create_arg(a)

    def _leaf(self, a: Any) -> Argument:
        if isinstance(a, tenon.Tensor):
            return self.create_node("get_attr", self._tensor_name(a), (), {})
        if isinstance(type(a), ProxyableClassMeta):
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super()._leaf(a)

    def _tensor_name(self, t: Any) -> str:
        """Where a tensor stands in the root; one that does not becomes an attribute of it."""
        for name, value in (*self.root.named_parameters(), *self.root.named_buffers()):
            if value is t:
                return name
        if t in self.tensor_attrs:
            return self.tensor_attrs[t]
        if isinstance(t, Parameter):
            raise NameError("parameter is not a member of this module")
        name = self.get_fresh_qualname("_tensor_constant")
        setattr(self.root, name, t)
        self.tensor_attrs[t] = name
        return name

    def get_fresh_qualname(self, prefix: str) -> str:
        """The prefix with a number, under which the root has nothing yet."""
        return next(
            name for i in itertools.count() if not hasattr(self.root, name := f"{prefix}{i}")
        )

    # ---- Tracing ---------------------------------------------------------------------------------

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """The graph of a call. Arguments in concrete_args have these values, others are traced."""
        if isinstance(root, Module):
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in "
                    f"{type(root).__name__}"
                )
            self.root, fn = root, getattr(type(root), self.traced_func_name)
        else:
            self.root, fn = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs: dict[Any, str] = {}
        self.module_stack, self.num_calls = {}, {}
        traced, kind = fn, _annotations(fn).get("return")
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        with self._patched(traced):
            result = fn(*args)
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=kind)
        return self.graph

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """What to call, and with which values."""
        fn, concrete = root_fn, concrete_args or {}
        seen = inspect.unwrap(fn)
        found = list(inspect.signature(seen).parameters.values())
        if is_module:
            if not found or found[0].kind is inspect.Parameter.VAR_POSITIONAL:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            found = found[1:]
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        plain = [p for p in found if p.kind not in stars]
        names = [p.name for p in plain]
        kinds = _annotations(fn)
        given = [self._argument(p, concrete, kinds) for p in plain]
        own = [self.root] if is_module else []
        rest = [stars[p.kind] + p.name for p in found if p.kind in stars]
        more = [self.create_proxy("placeholder", n, (), {}) for n in rest]
        if rest or any(p.kind is p.KEYWORD_ONLY for p in plain):
            fn = _positional(seen)
        flat, in_spec = _pytree.tree_flatten(tuple(given))
        if all(child.is_leaf() for child in in_spec.children_specs):
            return fn, [*own, *given, *more]

        def flattened(*args: Any) -> Any:
            out, out_spec = _pytree.tree_flatten(fn(*args))
            info = PyTreeInfo([*names, *rest], in_spec, out_spec)
            self.graph.set_codegen(_PyTreeCodeGen(info))
            return out

        return flattened, [*own, *given, *more]

    def _argument(
        self, p: inspect.Parameter, concrete: dict[str, Any], kinds: dict[str, Any]
    ) -> Any:
        default = () if p.default is p.empty else (p.default,)
        if p.name not in concrete:
            kind = kinds.get(p.name)
            return self.create_proxy("placeholder", p.name, default, {}, type_expr=kind)
        count = itertools.count(1)

        def part(v: Any) -> Any:
            made = self.create_proxy("placeholder", f"{p.name}_{next(count)}", default, {})
            if isinstance(v, PHBase):
                return made
            told = f"{p.name} has been specialized to have value {v} but got another value"
            if v is None:
                _assert_is_none(made, told)
            elif isinstance(v, BASE_TYPES):
                tenon._assert(made == v, told)
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {p.name} to "
                    "specialized function. It is up to the user to make sure that your inputs "
                    "match the inputs you specialized the function with.",
                    stacklevel=overridable.users_level(),
                )
            return v

        return _pytree.tree_map(part, concrete[p.name])

    @contextlib.contextmanager
    def _patched(self, fn: Callable[..., Any]) -> Iterator[None]:
        """Modules, attributes of modules and wrapped functions report to the tracer. Parameters are
        plain attributes (Note [Mirrored attributes]), which __getattr__ is not asked for."""
        call, look = Module.__call__, Module.__getattribute__
        cache: dict[str, Any] = {}

        @functools.wraps(call)
        def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(mod, *args, **kwargs)

            return self.call_module(mod, forward, args, kwargs)

        def module_read(mod: Module, name: str) -> Any:
            try:
                value = look(mod, name)
            except AttributeError:
                value = type(mod).__getattr__(mod, name)
            own = look(mod, "__dict__")
            held = any(name in own.get(slot, ()) for slot in SLOT_NAMES)
            return self.getattr(name, value, cache) if held else value

        Module.__call__, Module.__getattribute__ = module_call, module_read  # type: ignore
        try:
            with self._functions_patched([type(m).forward for m in self.root.modules()] + [fn]):
                yield
        finally:
            Module.__call__ = call  # type: ignore[method-assign]
            del Module.__getattribute__

    @contextlib.contextmanager
    def _functions_patched(self, callers: Iterable[Any]) -> Iterator[None]:
        """Functions that are nodes by themselves report to the tracer when callers call them."""
        spaces = [vars(m) for m in self._autowrap_search] + _spaces(callers)
        with _Patcher() as patcher:
            _patch_wrapped_functions(patcher)
            for space in spaces:
                _autowrap_check(patcher, space, self._autowrap_function_ids)
            _Tracing.depth += 1
            try:
                yield
            finally:
                _Tracing.depth -= 1


def _create_wrapped_func(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is a node where it is given what stands for values."""
    declared = isinstance(fn, FunctionType) and fn.__module__.startswith(_DECLARED)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves = _pytree.tree_leaves((args, kwargs))
        proxy = next((a for a in leaves if isinstance(a, Proxy)), None)
        if proxy is None:
            return fn(*args, **kwargs)
        if declared:
            args, kwargs = _named(fn, args, kwargs)
        return proxy.tracer.create_proxy("call_function", fn, args, kwargs)

    return wrapped


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Makes nodes of calls of what was given to `wrap`, and of the package's functions."""
    for place, name in (*_wrapped, *((vars(m), n) for m, n in _library())):
        fn = place[name] if name in place else getattr(builtins, name)
        patcher.patch(place, name, _create_wrapped_func(fn))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Makes nodes of calls of the functions with these ids, by the names they have there."""
    if not patcher.visit_once(frame_dict):
        return
    for name, value in list(frame_dict.items()):
        if callable(value) and id(value) in function_ids:
            patcher.patch(frame_dict, name, _create_wrapped_func(value))


def _spaces(callers: Iterable[Any]) -> list[dict[str, Any]]:
    """Globals of functions, but for the package's own."""
    spaces = {id(g): g for f in callers if (g := getattr(inspect.unwrap(f), "__globals__", None))}
    ours = {id(vars(place)) for place, _ in _library()}
    return [g for i, g in spaces.items() if i not in ours]


_HOMES = tuple(f"tenon._tensor.{m}" for m in (
    "convolution", "functions", "indexed", "lowrank", "matrix", "reduce", "signal", "twins",
))  # fmt: skip


# Functions that record all their arguments: PyTorch's of these names are Python, too.
_DECLARED = ("tenon.nn.", "tenon._tensor.functions", "tenon._tensor.signal")


@functools.cache
def _library() -> dict[tuple[ModuleType, str], Callable[..., Any]]:
    """Functions of the package that are Python: they would be traced through, and are nodes."""
    later = [n for n, home in tenon._LATER.items() if f"tenon.{home}" in _HOMES]
    names = [(tenon, n) for n in (*vars(tenon), *later)]
    names += [(p, n) for p in (tenon.linalg, tenon.nn.functional) for n in vars(p)]
    found = {(p, n): getattr(p, n, None) for p, n in names if not n.startswith("_")}
    found.pop((tenon, "einsum"))  # which asks its operands itself, as it puts them in order first
    return {
        (p, n): f for (p, n), f in found.items()
        if isinstance(f, FunctionType)
        and (p is not tenon or n in later or f.__module__ in _HOMES)
    }  # fmt: skip


def _named(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the function declares them: those that have a default by name, and all."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    kinds = bound.signature.parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in kinds.values()):
        return args, kwargs
    bound.apply_defaults()
    plain = [n for n, p in kinds.items() if p.default is p.empty]
    rest = {n: v for n, v in bound.arguments.items() if n not in plain}
    return tuple(bound.arguments[n] for n in plain), rest


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A GraphModule that does what root does, by nodes that can be looked at and changed."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
