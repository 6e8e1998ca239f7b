"""Nodes of graphs: one call, one value."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

import tenon
from tenon._plugin import schema_parts
from tenon._tensor import aten
from tenon._tensor.called import arguments_of, is_inplace, name_of
from tenon.fx.immutable_collections import immutable_dict, immutable_list

# What may stand among a node's arguments beside nodes and containers of them.
BASE_TYPES = (bool, int, float, complex, str, type(None), type(...), type(NotImplemented), range)
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
Target = Callable[..., Any] | str
Argument = Any


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The argument with fn of every node in it."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """The argument with fn of everything in it that is no tuple, list, dict or slice."""
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        parts = (a.start, a.stop, a.step)
        return slice(*(map_aggregate(x, fn) for x in parts))
    return fn(a)


_acting: set[Callable[..., Any]] = set()
_ACTING_NAMES = {
    "_assert", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_check",
    "_check_is_size", "_enter_autocast", "_exit_autocast", "_set_grad_enabled", "manual_seed",
    "set_grad_enabled", "setitem",
}  # fmt: skip


def _draws(target: Any) -> bool:
    """Whether an operator of `ops.aten` draws random numbers: the next ones would be others."""
    if not isinstance(target, aten.OpOverload):
        return False
    row = schema_parts.row_of(target.overloadpacket.__name__)
    return row is not None and row["random"]


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of the function stay though nobody uses what they return. A decorator, too."""
    _acting.add(fn)
    return fn


# Functions of nn.functional that PyTorch has in its extension module.
_BUILT_IN = {
    "avg_pool2d", "gelu", "linear", "logsigmoid", "one_hot", "scaled_dot_product_attention",
    "softplus", "softshrink",
}  # fmt: skip


def qualified_name(fn: Any) -> str | None:
    """How a program names a function, None: it has no such name."""
    name = getattr(fn, "__name__", None)
    if name is None:
        return None
    if getattr(builtins, name, None) is fn:
        return name
    prefix = str(tenon.float32).split(".")[0]
    if name in _BUILT_IN and getattr(tenon.nn.functional, name) is fn:
        return f"{prefix}._C._nn.{name}"
    for path, place in ((prefix, tenon), (f"{prefix}.nn.functional", tenon.nn.functional)):
        if getattr(place, name, None) is fn:
            return f"{path}.{name}"
    module = getattr(fn, "__module__", None) or ""
    if module.startswith("tenon.fx."):
        return f"{prefix}{module.removeprefix('tenon')}.{name}"
    if module.startswith("tenon.ops."):
        return f"{prefix}{module.removeprefix('tenon')}.{name}"
    if module in ("operator", "_operator"):
        return f"operator.{name}"
    return None


def full_name(thing: Any) -> str:
    """A function's or class's name with its module, where PyTorch has it."""
    known = qualified_name(thing)
    if known is None:
        module = getattr(thing, "__module__", None) or ""
        known = f"{module}.{getattr(thing, '__qualname__', type(thing).__name__)}".lstrip(".")
    head, dot, rest = known.partition(".")
    return f"{ {'tenon': 'torch', 'operator': '_operator'}.get(head, head) }{dot}{rest}"


class Node:
    """One call of a graph.

    `op` says which kind: placeholder, get_attr, call_function, call_method, call_module or output.
    """

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"'{op}' is no kind of node; kinds are {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target!r} has type "
                f"{type(target)} but a Callable is expected"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"a {op} node has a text as its target, not {target!r}")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self.meta: dict[str, Any] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        self._set(args, kwargs)

    # ---- Arguments -------------------------------------------------------------------------------

    def _set(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = {}

        def known(n: Node) -> Node:
            self._input_nodes.setdefault(n)
            return n

        self._args, self._kwargs = map_arg((tuple(args), dict(kwargs)), known)
        for new in self._input_nodes:
            new.users.setdefault(self)

    @property
    def args(self) -> tuple[Argument, ...]:
        return self._args

    @args.setter
    def args(self, value: tuple[Argument, ...]) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._set(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        self._set(
            *map_arg((self._args, self._kwargs), lambda n: new_input if n is old_input else n)
        )

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Whoever uses this node uses `replace_with` from now on; returns those that changed."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # ---- Place -----------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Puts x in front of this node."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        x._prev, x._next = self._prev, self
        self._prev._next = self._prev = x

    def append(self, x: Node) -> None:
        """Puts x behind this node."""
        self._next.prepend(x)

    # ---- Facts -----------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where the call stands in the user's program, if whoever made the node noted it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node must stay though nobody uses it."""
        if self.op in ("placeholder", "output"):
            return True
        name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
        if self.op == "call_module":
            module = self.graph.owning_module
            found = module.get_submodule(self.target) if module is not None else None
            return bool(getattr(found, "_is_impure", False))
        if self.op in ("call_function", "call_method"):
            if callable(self.target):
                name = name_of(self.target)
            in_place = is_inplace(name) or any(arguments_of(name).values())
            known = in_place or name in _ACTING_NAMES or "out" in self.kwargs
            drawing = impure_random and _draws(self.target)
            return known or drawing or self.target in _acting
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments of the call with all defaults, as (args, kwargs); None where the function
        has no signature that is known. `root` holds the modules."""
        from tenon.fx import operator_schemas as known

        only = normalize_to_only_use_kwargs
        if self.op == "call_function":
            return known.normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, only
            )
        if self.op == "call_module":
            return known.normalize_module(root, str(self.target), self.args, self.kwargs, only)
        return None

    def _pretty_print_target(self, target: Any) -> str:
        return target_text(target)

    def format_node(self, *_: Any, **__: Any) -> str:
        if self.op == "output":
            return f"return {self.args[0]}"
        kind = "" if self.type is None else f"{_type_text(self.type)} "
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        head = f"{head}[target={target_text(self.target)}]"
        if self.op == "placeholder":
            return head + (f"(default={self.args[0]})" if self.args else "")
        if self.op == "get_attr":
            return head
        return f"{head}(args = {_text(self.args)}, kwargs = {_text(self.kwargs)})"

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        order = list(self.graph.nodes)
        return order.index(self) < order.index(other)


def target_text(target: Any) -> str:
    """A function with the module that it is from."""
    if isinstance(target, str):
        return target
    known = qualified_name(target)
    if known is not None:
        return known if "." in known else f"builtins.{known}"
    name, place = getattr(target, "__name__", None), getattr(target, "__module__", None)
    if name is None:
        return repr(target)
    return f"{place}.{name}" if place else str(name)


def _type_text(kind: Any) -> str:
    """An annotation: a class with its module, anything else as it is printed."""
    if not isinstance(kind, type) or isinstance(kind, types.GenericAlias):
        return repr(kind)
    name, place = kind.__qualname__, kind.__module__
    if place.startswith("tenon"):
        place = str(tenon.float32).split(".")[0] + place.removeprefix("tenon")
    return name if place == "builtins" else f"{place}.{name}"


def _text(a: Argument) -> str:
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, tuple):
        return "(" + ", ".join(map(_text, a)) + ("," if len(a) == 1 else "") + ")"
    if isinstance(a, list):
        return "[" + ", ".join(map(_text, a)) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in a.items()) + "}"
    return str(a)
