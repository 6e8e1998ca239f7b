"""Tracing: calls a function or module with proxies, and keeps what is done to them."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tenon
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Argument
from tenon.fx.proxy import Proxy, TracerBase
from tenon.nn import Module, Sequential
from tenon.nn.parameter import Parameter
from tenon.utils import _pytree

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


def is_fx_tracing() -> bool:
    return _Tracing.depth > 0


class _Tracing:
    depth = 0


class Tracer(TracerBase):
    """Traces a module or function. Subclasses say what is a leaf and what arguments become."""

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._modules_to_wrap = autowrap_modules
        self._functions_to_wrap = autowrap_functions
        self.param_shapes_constant = param_shapes_constant

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
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def path_of_module(self, mod: Module) -> str:
        for name, found in self.root.named_modules(remove_duplicate=False):
            if found is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Parameters and buffers of the root, when the function reads them, become get_attr."""
        if not isinstance(attr_val, tenon.Tensor):
            return attr_val
        for members in (self.root.named_parameters, self.root.named_buffers):
            for name, value in members(remove_duplicate=False):
                if value is attr_val:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                    return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a: Any) -> Argument:
        if isinstance(a, Module):
            for name, found in self.root.named_modules():
                if found is a:
                    return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _leaf(self, a: Any) -> Argument:
        if isinstance(a, tenon.Tensor):
            return self.create_node("get_attr", self._tensor_name(a), (), {})
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
        count = 0
        while hasattr(self.root, f"_tensor_constant{count}"):
            count += 1
        name = f"_tensor_constant{count}"
        setattr(self.root, name, t)
        self.tensor_attrs[t] = name
        return name

    # ---- Tracing ---------------------------------------------------------------------------------

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """The graph of a call. Arguments in concrete_args have these values, others are traced."""
        if isinstance(root, Module):
            self.root, fn = root, type(root).forward
            self.module_stack_root = root
        else:
            self.root, fn = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs: dict[Any, str] = {}
        args, kwargs = self._arguments(fn, isinstance(root, Module), concrete_args or {})
        with self._patched():
            result = fn(*args, **kwargs)
        self.graph.output(self.create_arg(result))
        return self.graph

    def _arguments(
        self, fn: Callable[..., Any], bound: bool, concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        parameters = list(inspect.signature(inspect.unwrap(fn)).parameters.values())
        args: list[Any] = [self.root] if bound else []
        kwargs: dict[str, Any] = {}
        for p in parameters[1 if bound else 0 :]:
            if p.kind is p.VAR_POSITIONAL:
                args.append(self.create_proxy("placeholder", f"*{p.name}", (), {}))
                if not isinstance(args[-1], (tuple, list)):
                    args = [*args[:-1], *()]
                    raise TypeError(
                        f"'*{p.name}' cannot be traced: the number of its values is not known"
                    )
            if p.kind is p.VAR_KEYWORD:
                continue
            value = self._argument(p, concrete)
            if p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _argument(self, p: inspect.Parameter, concrete: dict[str, Any]) -> Any:
        if p.name in concrete:
            given = concrete[p.name]
            leaves, spec = _pytree.tree_flatten(given)
            made = [
                self.create_proxy("placeholder", f"{p.name}_{i + 1}", (), {}) if v is PH else v
                for i, v in enumerate(leaves)
            ]
            return spec.unflatten(made)
        default = () if p.default is p.empty else (p.default,)
        return self.create_proxy("placeholder", p.name, default, {})

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """Modules, attributes of modules and wrapped functions report to the tracer."""
        call, look = Module.__call__, Module.__getattr__
        cache: dict[str, Any] = {}

        @functools.wraps(call)
        def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(mod, *args, **kwargs)

            return self.call_module(mod, forward, args, kwargs)

        def module_getattr(mod: Module, name: str) -> Any:
            return self.getattr(name, look(mod, name), cache)

        saved: list[tuple[dict[str, Any], str, bool, Any]] = []
        for place, name in [*_wrapped, *self._autowrapped()]:
            known = name in place
            fn = place[name] if known else getattr(builtins, name)
            saved.append((place, name, known, fn))
            place[name] = self._recorded(fn)
        Module.__call__, Module.__getattr__ = module_call, module_getattr  # type: ignore
        _Tracing.depth += 1
        try:
            yield
        finally:
            _Tracing.depth -= 1
            Module.__call__, Module.__getattr__ = call, look  # type: ignore
            for place, name, known, fn in reversed(saved):
                if known:
                    place[name] = fn
                else:
                    del place[name]

    def _autowrapped(self) -> list[tuple[dict[str, Any], str]]:
        found = [
            (vars(m), n)
            for m in self._modules_to_wrap
            for n, f in vars(m).items()
            if not n.startswith("_") and callable(f)
        ]
        globals_of = [f.__globals__ for f in [getattr(self.root, "forward", None)] if f is not None
                      and hasattr(f, "__globals__")]  # fmt: skip
        for g in globals_of:
            found += [(g, n) for n, f in g.items() if any(f is w for w in self._functions_to_wrap)]
        return found

    def _recorded(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            leaves = _pytree.tree_leaves((args, kwargs))
            if not any(isinstance(a, Proxy) for a in leaves):
                return fn(*args, **kwargs)
            return self.create_proxy("call_function", fn, args, kwargs)

        return wrapped


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A GraphModule that does what root does, by nodes that can be looked at and changed."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
