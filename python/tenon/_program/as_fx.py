"""Programs as fx graphs: every node a call of an operator."""

from __future__ import annotations

import inspect
import keyword
import operator
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import tenon
from tenon import _C, fx
from tenon._program import Program, number_of_sizes
from tenon._program.foreign import Call
from tenon._program.guards import Unfit
from tenon._tensor import aten
from tenon.utils import _pytree

_FORMS = {  # operators whose name here is a form's there
    "max_dim": ("max", "dim"), "min_dim": ("min", "dim"), "movedim_int": ("movedim", "int"),
    "squeeze_dim": ("squeeze", "dim"), "squeeze_dims": ("squeeze", "dims"),
    "view_size": ("view", "default"),
}  # fmt: skip
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


@cache
def op(name: str) -> Callable[..., Any]:
    """The function of an operator, the same one each time."""
    return _C._op(name)


def call_in_modes(
    no_grad: bool, autocast: Any, fn: Callable[..., Any], *args: Any, **kw: Any
) -> Any:
    """Calls fn as the program did: with gradients off, under autocast."""
    with tenon.set_grad_enabled(tenon.is_grad_enabled() and not no_grad):
        if autocast is None:
            return fn(*args, **kw)
        with tenon.autocast(_device_type(args, kw), dtype=autocast):
            return fn(*args, **kw)


def _device_type(args: Any, kw: Any) -> str:
    """Of the tensors of a call, also those in lists; of one without any, where its result lies."""
    for leaf in _pytree.tree_leaves((args, kw)):
        if isinstance(leaf, tenon.Tensor):
            return leaf.device.type
    return tenon.device(kw.get("device") or tenon.get_default_device()).type


def value(data: Any, special: Callable[[str, dict[str, Any]], Any]) -> Any:
    """An argument of a node as Python has it; special(kind, data): tensors, sizes, generators."""
    if isinstance(data, list):
        return [value(d, special) for d in data]
    if not isinstance(data, dict):
        return data
    kind = next(iter(data))
    if kind in ("v", "s", "steps", "generator"):
        return special(kind, data)
    if kind == "dtype":
        return getattr(tenon, data["dtype"])
    if kind == "device":
        return tenon.device(data["device"])
    if kind == "format":
        return getattr(tenon, _FORMATS[data["format"]])
    if kind == "c":
        return complex(*data["c"])
    return float(data["f"])


def _overload(name: str, args: Any, kwargs: Any) -> Any:
    """`ops.aten`'s name of an operator of the table, None: it has none."""
    if name in _FORMS:
        packet, form = _FORMS[name]
        return getattr(getattr(aten.namespace, packet), form)
    known = hasattr(tenon.Tensor if name.endswith("_") else _C._ops, name)
    if not known and not hasattr(_C._nn, name):
        return None
    shown = [tenon.empty(0, device="meta") if isinstance(a, fx.Node) else a for a in args]
    return aten.overload_for(name, tuple(shown), kwargs)


@cache
def _defaults(fn: Callable[..., Any]) -> dict[str, Any]:
    """By position and name, what an operator takes where nothing is said."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters}


def _is_default(value: Any, default: Any, own_format: Any) -> bool:
    if default is None:
        return value is None or value is own_format
    if isinstance(value, list) and isinstance(default, int):
        return bool(value) and all(_is_default(v, default, None) for v in value)
    return type(value) is type(default) and value == default


def _said(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments without those at the end, and those by name, that are an operator's defaults."""
    known = _defaults(fn)
    places = list(known.values())
    compact = fn.__name__ == "contiguous"
    own_format = tenon.contiguous_format if compact else tenon.preserve_format
    last = len(args) - 1
    while 0 <= last < len(places) and _is_default(args[last], places[last], own_format):
        last -= 1
    return args[: last + 1], {
        k: v
        for k, v in kwargs.items()
        if k not in known or not _is_default(v, known[k], own_format)
    }


_STEPS = {"Mul": operator.mul, "Div": operator.floordiv, "Add": operator.add}


class _Builder:
    aten = False  # nodes call `ops.aten.add.Tensor` where that is an operator's name

    def __init__(self, program: Program) -> None:
        self.data, self.graph = program.data, fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.root: dict[str, Any] = {}
        self.sizes: dict[str, fx.Node] = {}
        self.weights = program.weights
        self.targets: set[str] = set()
        self.acting: list[fx.Node] = []  # whatever becomes of their results

    def placeholder(self, name: str) -> fx.Node:
        """One whose target is a name that no other one has."""
        made = self.graph.placeholder(name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in self.targets:
            made.target = made.name
        self.targets.add(made.target)
        return made

    def weight(self, i: int, name: str, tensor: Any) -> None:
        path = name or f"_constant{len(self.root)}"
        self.root[path] = tensor
        self.nodes[i] = self.graph.get_attr(path)

    def size(self, data: dict[str, Any]) -> Any:
        """A number that follows from sizes."""

        def apply(step: str, size: Any, by: Any) -> Any:
            return self.graph.call_function(_STEPS[step], (size, by))

        return number_of_sizes(data, self._symbol, apply)

    def _symbol(self, name: str) -> Any:
        if name not in self.sizes:
            for i in self.data["inputs"]:
                shape = self.data["values"][i]["shape"]
                if name in shape and name not in self.sizes:
                    at = (self.nodes[i], shape.index(name))
                    self.sizes[name] = self.graph.call_method("size", at)
        return self.sizes[name]

    def argument(self, data: Any) -> Any:
        def special(kind: str, data: dict[str, Any]) -> Any:
            if kind == "generator":
                raise Unfit("random numbers from a generator of the program's own")
            return self.nodes[data["v"]] if kind == "v" else self.size(data)

        return value(data, special)

    def node(self, node: dict[str, Any]) -> None:
        parts = list(node["args"].items())
        count = node["positional"]
        args = tuple(self.argument(v) for _, v in parts[:count])
        kwargs = {k: self.argument(v) for k, v in parts[count:] if v is not None}
        given = [None if g < 0 else self.nodes[g] for g in node["given"]]
        # relu_ is relu that is given its own input, and takes no `out`.
        own = f"{node['op']}_"
        itself = len(given) == 1 and given[0] is not None and args and given[0] is args[0]
        in_place = itself and hasattr(tenon.Tensor, own) and not node["in_place"]
        if any(g is not None for g in given) and not node["in_place"] and not in_place:
            kwargs["out"] = given[0] if len(given) == 1 else tuple(given)
        fn: Any = getattr(tenon.Tensor, own) if in_place else op(node["op"])
        name = node["op"].strip("_").split("::")[-1]
        if self.aten:
            fn = _overload(own if in_place else node["op"], args, kwargs) or fn
        if isinstance(fn, aten.OpOverload):
            args, kwargs = _said(fn.op, args, kwargs)
            name = fn.overloadpacket.__name__
        if node["no_grad"] or node["autocast"]:
            dtype = getattr(tenon, node["autocast"]) if node["autocast"] else None
            args, fn = (node["no_grad"], dtype, fn, *args), call_in_modes
        made = self.graph.call_function(fn, args, kwargs, name=name)
        if itself or (node["in_place"] and isinstance(parts[0][1], dict)):
            made.meta["itself"] = self.argument(parts[0][1])  # what it writes to and returns
        outs = node["outs"]
        if node["random"] or node["in_place"] or node["wrote"] or any(given):
            self.acting.append(made)
            made.meta["acts"] = True
        if not node["list"] and len(outs) == 1:
            self.nodes[outs[0]] = made
            self.note(made, outs[0])
            return
        for i, out in enumerate(outs):
            if out >= 0:
                self.nodes[out] = self.graph.call_function(operator.getitem, (made, i))
                self.note(self.nodes[out], out)

    def note(self, node: fx.Node, i: int) -> None:
        fact = self.data["values"][i]
        node.meta["tensor"] = {k: fact[k] for k in ("dtype", "shape", "device")}

    def call(self, call: Call) -> None:
        """A call that was taken whole: of a custom operator, of an autograd.Function."""
        args, kwargs = call.arguments.build([self.nodes[i] for i in call.takes])
        name = getattr(call.fn, "__name__", type(call.fn).__name__)
        made = self.graph.call_function(call.fn, tuple(args), dict(kwargs), name=name)
        self.acting.append(made)
        for path, at in zip(call.results.paths(), call.gives, strict=True):
            part = made
            for key in path:
                part = self.graph.call_function(operator.getitem, (part, key))
            self.nodes[at] = part
            self.note(part, at)

    def build(
        self,
        begin: int,
        end: int,
        takes: Sequence[int],
        gives: Sequence[int],
        calls: Sequence[Call],
    ) -> fx.GraphModule:
        values = self.data["values"]
        for i in takes:
            name = values[i]["name"] or f"v{i}"
            self.nodes[i] = self.placeholder(name)
            self.note(self.nodes[i], i)
        places = [i for i, v in enumerate(values) if v["role"] == "weight"]
        for i, (name, _, tensor) in zip(places, self.weights, strict=True):
            self.weight(i, name, tensor)
        for position in range(begin, end + 1):
            for call in calls:
                if call.position == position:
                    self.call(call)
            if position < end:
                before = len(self.graph.nodes)
                self.node(self.data["nodes"][position])
                made = len(self.graph.nodes) - before
                for node in islice(reversed(self.graph.nodes), made):
                    node.meta["position"] = position
        self.graph.output(tuple(self.nodes[i] for i in gives))
        return fx.GraphModule(self.root, self.graph)


class _AtenBuilder(_Builder):
    aten = True


def graph_module(program: Program, aten: bool = False) -> fx.GraphModule:
    """A GraphModule that takes the program's inputs and returns a tuple of its outputs; `aten`:
    its nodes call what `ops.aten` has under PyTorch's names."""
    data = program.data
    return (_AtenBuilder if aten else _Builder)(program).build(
        0, len(data["nodes"]), data["inputs"], data["outputs"], ()
    )


def part_module(
    program: Program,
    begin: int,
    end: int,
    takes: Sequence[int],
    gives: Sequence[int],
    calls: Sequence[Call],
) -> fx.GraphModule:
    """Nodes from `begin` to `end` as a GraphModule that takes and gives these values."""
    builder = _Builder(program)
    made = builder.build(begin, end, takes, gives, calls)
    stays = (*builder.acting, *made.graph.find_nodes(op="placeholder"), made.graph.output_node())
    made.graph.eliminate_dead_code(set(stays).__contains__)
    made.recompile()
    return made


def traced_module(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    record: Callable[[], Any] | None = None,
    aten: bool = True,
    suffix: str = "_1",
) -> fx.GraphModule:
    """The operators that a call runs, as a GraphModule that is called as the function is. `record`
    makes the recording; `aten`: nodes call what `ops.aten` has. Placeholders have the names of
    parameters, with a suffix."""
    from tenon._program.traced import Recording

    recording = Recording(fn, args, {}) if record is None else record()
    made = graph_module(recording.program, aten)
    takes, gives = recording.layout, recording.outputs
    flat = all(child.is_leaf() for child in takes.spec.child(0).children())
    if not flat and len(takes.fixed) > len(takes.tensors):
        raise NotImplementedError("make_fx: arguments are tensors, or containers of them")
    values: list[Any] = list(gives.fixed)
    result = made.graph.output_node()
    for i, value in zip(gives.tensors, result.args[0], strict=True):
        values[i] = value
    if flat:
        _name_arguments(made.graph, fn, takes.tensors, len(args), suffix)
        result.args = (gives.spec.unflatten(values),)
    else:
        names = [f"arg{i}" for i in range(len(args))]
        info = fx.graph.PyTreeInfo(names, takes.spec.child(0), gives.spec)
        result.args = (values,)
        made.graph.set_codegen(fx.graph._PyTreeCodeGen(info))
    made.recompile()
    return made


def _name_arguments(
    graph: fx.Graph, fn: Callable[..., Any], tensors: Sequence[int], count: int, suffix: str
) -> None:
    """Names placeholders as PyTorch does; those of what is no tensor are there and not used."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = len(parameters) >= count and all(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters[:count]
    )
    found = dict(zip(tensors, graph.find_nodes(op="placeholder"), strict=True))
    taken = {n.name for n in graph.nodes} - {n.name for n in found.values()}
    before: fx.Node | None = None
    for i in range(count):
        name = f"{parameters[i].name}{suffix}" if plain else f"arg{i}_1"
        if i in found:
            before = found[i]
            if name not in taken:
                before.name = before.target = name
            continue
        first = next(iter(graph.nodes))
        put = graph.inserting_before(first) if before is None else graph.inserting_after(before)
        with put:
            before = graph.placeholder(name)
