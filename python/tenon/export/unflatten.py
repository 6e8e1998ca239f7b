"""unflatten: an exported program as modules like those that it was recorded from."""

from __future__ import annotations

import operator
from typing import Any

from tenon import fx, jit
from tenon._program import PARAMETER, as_fx
from tenon._program.traced import Layout
from tenon.export.exported_program import ExportedProgram
from tenon.nn import Module
from tenon.nn.parameter import Parameter

__all__ = ["InterpreterModule", "UnflattenedModule", "unflatten"]

Scope = tuple[tuple[str, int], ...]


class InterpreterModule(fx.GraphModule):
    """One module of an unflattened program: it runs the part of the graph recorded in it."""

    def __init__(self, graph: fx.Graph, name: str = "InterpreterModule") -> None:
        Module.__init__(self)  # what the graph names is put in afterwards
        type(self).__name__ = name
        self.meta: dict[str, Any] = {}
        fx.GraphModule.graph.fset(self, graph)  # a module would become a submodule of that name

    def _put_at(self, path: str, value: Any, persistent: bool) -> None:
        """Puts a parameter, buffer or module at a path."""
        owner: Module = self
        *prefix, name = path.split(".")
        for part in prefix:
            if part not in owner._modules:
                owner.add_module(part, InterpreterModule(fx.Graph()))
            owner = owner._modules[part]
        if isinstance(value, Module):
            if name in owner._modules:  # it was on the way to another one
                value._modules.update(owner._modules[name]._modules)
            owner.add_module(name, value)
        elif isinstance(value, Parameter):
            owner.register_parameter(name, value)
        else:
            owner.register_buffer(name, value, persistent=persistent)


class UnflattenedModule(InterpreterModule):
    """The outermost one: it takes and gives what the exported module did."""

    def __init__(self, graph: fx.Graph, note: dict[str, Any], program: Any) -> None:
        self.__dict__["_takes"], self.__dict__["_gives"] = jit._Runs(), Layout.load(note["outputs"])
        self._takes._adopt(program, note)
        super().__init__(graph, "UnflattenedModule")

    def recompile(self) -> Any:
        code = super().recompile()
        self.__dict__["_body"] = type(self).forward
        type(self).forward = UnflattenedModule._call
        return code

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        tensors = self._takes._tensors(args, kwargs)
        return self._gives.build(self._body(self, *tensors))


class _Part:
    """Takes a graph apart into calls of modules."""

    def __init__(self, names: dict[str, list[str]], weights: dict[fx.Node, str]) -> None:
        self.names, self.weights = names, weights
        self.modules: dict[str, Any] = {}  # by place, in the order of the calls
        self.held: dict[str, str] = {}  # place -> name of the weight that a graph reads there

    def own(self, node: fx.Node, path: str) -> str | None:
        """Where a weight lies within the module at `path`."""
        name = self.weights[node]
        if name.startswith("_constant"):
            return name
        for known in (name, *self.names.get(name, ())):
            if not path or known.startswith(f"{path}."):
                return known[len(path) + 1 :] if path else known
        return None

    def graph(
        self, nodes: list[fx.Node], scope: Scope, place: str, takes: Any, gives: list[fx.Node]
    ) -> fx.Graph:
        """What a call of a module, which is put at `place`, does."""
        graph, made = fx.Graph(), {}
        path = scope[-1][0] if scope else ""

        def read(used: Any) -> None:
            for node in used:
                if node in self.weights and node not in made:
                    name = str(self.own(node, path))
                    self.held[f"{place}.{name}".lstrip(".")] = self.weights[node]
                    made[node] = graph.get_attr(name)

        for node in takes:
            made[node] = graph.placeholder(node.name)
        for group, inner in _grouped(nodes, len(scope)):
            if inner is None:
                read(group[0].all_input_nodes)
                made[group[0]] = graph.node_copy(group[0], made.__getitem__)
                continue
            inside = set(group)
            used = dict.fromkeys(u for n in group for u in n.all_input_nodes if u not in inside)
            given = [u for u in used if u not in self.weights or self.own(u, inner[-1][0]) is None]
            results = [n for n in group if any(u not in inside for u in n.users)]
            target = self._call(group, inner, path, place, given, results)
            read(given)
            call = graph.call_module(target, tuple(made[n] for n in given))
            for i, node in enumerate(results):  # none where it was called for what it writes
                part = (
                    call if len(results) == 1 else graph.call_function(operator.getitem, (call, i))
                )
                made[node] = part
        read(gives)
        out = tuple(made[n] for n in gives)
        graph.output(out[0] if scope and len(out) == 1 else out)
        return graph

    def _call(
        self, group: list[fx.Node], scope: Scope, path: str, place: str, takes: Any, gives: Any
    ) -> str:
        """Makes the module that a call in the one at `path` calls; its place within that."""
        inner = scope[-1][0]
        first = target = inner[len(path) + 1 :] if inner.startswith(f"{path}.") else inner
        count, outer = 0, f"{place}." if place else ""
        while f"{outer}{target}" in self.modules:
            count += 1
            target = f"{first}@{count}"
        self.modules[f"{outer}{target}"] = None
        graph = self.graph(group, scope, f"{outer}{target}", takes, gives)
        self.modules[f"{outer}{target}"] = InterpreterModule(graph)
        if count and self._merge(f"{outer}{first}", f"{outer}{target}"):
            return first
        return target

    def _merge(self, first: str, second: str) -> bool:
        """Drops the second of two calls of a module if it does what the first one does."""
        parts = [{p[len(place) :]: m for p, m in self.modules.items() if p == place or
                  p.startswith(f"{place}.")} for place in (first, second)]  # fmt: skip
        if parts[0].keys() != parts[1].keys() or not all(
            _same(m.graph, parts[1][p].graph) for p, m in parts[0].items()
        ):
            return False
        for table in (self.modules, self.held):
            for place in [p for p in table if p == second or p.startswith(f"{second}.")]:
                del table[place]
        return True


def _same(a: fx.Graph, b: fx.Graph) -> bool:
    """Whether two graphs differ in names of nodes alone."""
    made: dict[fx.Node, fx.Node] = {}
    if len(a.nodes) != len(b.nodes):
        return False
    for x, y in zip(a.nodes, b.nodes, strict=True):
        made[x] = y
        alike = x.op == y.op and (x.op == "placeholder" or x.target == y.target)
        if not alike or fx.map_arg((x.args, x.kwargs), made.__getitem__) != (y.args, y.kwargs):
            return False
    return True


def _grouped(nodes: list[fx.Node], depth: int) -> list[tuple[list[fx.Node], Scope | None]]:
    """Nodes of a module's own, and runs of those that one call within it made."""
    found: list[tuple[list[fx.Node], Scope | None]] = []
    for node in nodes:
        scope: Scope = node.meta["scope"]
        inner = scope[: depth + 1] if len(scope) > depth else None
        if inner is not None and found and found[-1][1] == inner:
            found[-1][0].append(node)
        else:
            found.append(([node], inner))
    return found


def _name_what_is_written(graph: fx.Graph) -> None:
    """Who uses the result of a write uses what was written to: a module that writes to its
    arguments or buffers gives nothing more for it, so that another one can be put in its place."""
    for node in graph.nodes:
        written = node.meta.get("itself")
        while isinstance(written, fx.Node) and "itself" in written.meta:
            written = written.meta["itself"]
        if isinstance(written, fx.Node):
            node.replace_all_uses_with(written)


def unflatten(module: ExportedProgram, flat_args_adapter: Any = None) -> UnflattenedModule:
    """The program as a tree of modules with the names, parameters and buffers of the exported
    one, whose parts can be called, looked at and replaced. A second call of a module is another
    one, `name@1`, with the same weights. The tree has weights of its own."""
    program, note = module.program, module._note
    if "scope_of" not in note:
        raise RuntimeError("unflatten: the program was traced and not exported")
    flat = as_fx.graph_module(program)
    _name_what_is_written(flat.graph)
    scopes = [tuple((p, int(i)) for p, i in s) for s in note["scopes"]]
    for node in flat.graph.nodes:
        at = node.meta.get("position")
        node.meta["scope"] = () if at is None else scopes[note["scope_of"][at]]
    weights = {n: str(n.target) for n in flat.graph.nodes if n.op == "get_attr"}
    others: dict[str, list[str]] = {}
    for name, own in note.get("ties", {}).items():
        others.setdefault(own, []).append(name)
    part = _Part(others, weights)
    takes = [n for n in flat.graph.nodes if n.op == "placeholder"]
    inner = [n for n in flat.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    gives = list(flat.graph.output_node().args[0])
    made = UnflattenedModule(part.graph(inner, (), "", takes, gives), note, program)
    for place, inside in part.modules.items():
        made._put_at(place, inside, True)
    tensors: dict[str, Any] = {}
    lasting = module.state_dict.keys()
    for name, kind, t in program.weights:
        if not name:
            continue
        tensors[name] = tensor = t.detach().clone()
        if kind == PARAMETER:
            tensors[name] = tensor = Parameter(tensor, t.requires_grad)
        for place in (name, *others.get(name, ())):
            made._put_at(place, tensor, name in lasting)
            part.held.pop(place, None)
    for place, name in part.held.items():  # read where it is not at home: no state of the module
        owner, _, last = place.rpartition(".")
        vars(made.get_submodule(owner))[last] = (
            tensors[name] if name in tensors else getattr(flat, name)
        )
    return made
