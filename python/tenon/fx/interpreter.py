"""Interpreters: run graphs node by node, in a way that subclasses change."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tenon.fx import traceback
from tenon.fx._symbolic_trace import Tracer
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Argument, Node, Target, map_arg
from tenon.fx.proxy import Proxy
from tenon.nn import Module


class Interpreter:
    """Runs a GraphModule; each kind of node is a method."""

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self._last: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    self._last.setdefault(node, []).append(used)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The graph's result for these arguments; with enable_io_processing=False arguments and
        results are the leaves of the containers that the graph was traced with."""
        self.env = {} if initial_env is None else dict(initial_env)
        if enable_io_processing:
            args = tuple(self.graph.process_inputs(*args))
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                with traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}"):
                    self.env[node] = self.run_node(node)
            except Exception as err:
                where = f"While executing {node.format_node()}"
                said = f"{err.args[0]}\n\n{where}" if err.args else where
                err.args = (said, *err.args[1:])
                if isinstance(err, KeyError):  # which would show its text as a key
                    raise RuntimeError(*err.args) from err
                raise
            if self.garbage_collect_values:
                for used in self._last.get(node, ()):
                    del self.env[used]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """run with the placeholders' values; the list is emptied, so that they end as early as
        nobody needs them."""
        holes = self.graph.find_nodes(op="placeholder")
        if len(args_list) != len(holes):
            detail = "extra" if len(args_list) > len(holes) else "missing"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(holes)} arguments for placeholders but "
                f"received {len(args_list)} ({detail} arguments)"
            )
        known = dict(zip(holes, args_list, strict=True))
        args_list.clear()
        return self.run(initial_env=known)

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if isinstance(target, str) and target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(str(target))

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        owner, *rest = args
        return getattr(owner, str(target))(*rest, **kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        found: Any = self.module
        for i, part in enumerate(target.split(".")):
            if not hasattr(found, part):
                path = ".".join(target.split(".")[: i + 1])
                raise RuntimeError(f"Node referenced nonexistent target {path}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint()"
                )
            return self.env[used]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Makes a new GraphModule: each method returns what a node becomes."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(self.graph._codegen)
        self.tracer = Tracer()
        self.tracer.root, self.tracer.graph = module, self.new_graph
        self.tracer.tensor_attrs = {}

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        own = [f for f in vars(type(self)).values() if isinstance(f, FunctionType)]
        with self.tracer._functions_patched(own):
            result = self.run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_proxies(result))
        return GraphModule(self.module, self.new_graph)


def map_proxies(result: Any) -> Argument:
    from tenon.fx.node import map_aggregate

    return map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
