"""Proxies: values of a function that is being traced; what is done to them becomes nodes."""

from __future__ import annotations

import dataclasses
import dis
import enum
import operator
import sys
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import tenon
from tenon._tensor import aten
from tenon.fx import traceback
from tenon.fx.graph import Graph
from tenon.fx.node import BASE_TYPES, Argument, Node, Target, map_aggregate, map_arg
from tenon.fx.operator_schemas import check_for_mutable_operation


class TraceError(ValueError):
    """The function does what a graph has no node for."""


class ProxyableClassMeta(type):
    """Of a class whose constructor is a node when it is given proxies, and whose instances are
    attributes of the root when they stand among arguments."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = _proxies_in((args, kwargs))
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class TracerBase:
    """Makes nodes of what is called on proxies."""

    graph: Graph
    # Modules that are being called, the outermost first: each one's path and class.
    module_stack: dict[str, tuple[str, type]] = MappingProxyType({})  # type: ignore[assignment]
    check_mutable_operations = False  # functions that write to their arguments are refused
    record_stack_traces = False
    param_shapes_constant = False
    trace_asserts = False
    traced_func_name = "forward"  # of a module

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        traceback.note(node)
        return node

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node of a call on proxies, as a proxy."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Argument:
        """What stands for a value among a node's arguments. Tracers that change it are asked about
        containers and about what is in them."""
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if hasattr(type(a), "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            parts = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), parts)
        return self._leaf(a)

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        made = self.create_arg(key)
        map_arg(made, _refuse_key)
        return made

    def _leaf(self, a: Any) -> Argument:
        if isinstance(a, Proxy):
            return a.node
        known = (tenon.dtype, tenon.device, tenon.layout, tenon.memory_format, Node, enum.Enum)
        if isinstance(a, BASE_TYPES + known) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The parts of a value that is unpacked into names: how many there are, the code says."""
        frame = sys._getframe(2)
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return iter([obj[i] for i in range(instruction.arg or 0)])
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. How many parts there are is known "
            "only where it is unpacked into names: a, b = x"
        )

    def keys(self, obj: Proxy) -> Any:
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends what is called on its proxies to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Stands for a value that is not there yet."""

    takes_whole_functions = True  # those of Python are nodes, too (_tape/overridable.py)

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node = node
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __index__(self) -> int:
        raise TraceError("a traced value cannot be used as an index or as the end of a range")

    def __int__(self) -> int:
        raise TraceError("a traced value is no number: int() cannot be traced")

    def __float__(self) -> float:
        raise TraceError("a traced value is no number: float() cannot be traced")

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError("'in' asks for a value, and a traced one has none")

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tracer = _proxies_in((args, kwargs))[0].tracer
        name = getattr(orig_method, "__name__", "")
        if _is_tensor_method(orig_method, name):
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


aten.proxies.append(Proxy)


def _is_tensor_method(fn: Any, name: str) -> bool:
    return bool(name) and getattr(tenon.Tensor, name, None) is fn


def _proxies_in(tree: Any) -> list[Proxy]:
    found: list[Proxy] = []
    map_aggregate(tree, lambda a: found.append(a) if isinstance(a, Proxy) else None)
    return found


def _refuse_key(node: Node) -> None:
    raise RuntimeError(
        f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {node}"
    )


class Attribute(Proxy):
    """An attribute of a proxy; called, it is a method and needs no node of its own."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose sizes are those that it has."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _operator(name: str, target: Any, reflected: bool = False) -> None:
    def method(self: Proxy, *others: Any) -> Proxy:
        args = (*others, self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", target, args, {})

    setattr(Proxy, name, method)


for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "pow", "and_", "or_", "xor",
    "lshift", "rshift",
):  # fmt: skip
    _plain = _name.rstrip("_")
    _operator(f"__{_plain}__", getattr(operator, _name))
    _operator(f"__r{_plain}__", getattr(operator, _name), reflected=True)
for _name in (
    "lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "invert", "getitem", "abs",
):  # fmt: skip
    _operator(f"__{_name}__", getattr(operator, _name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
