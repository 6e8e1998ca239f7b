"""Graphs of calls, and the Python code that they stand for."""

from __future__ import annotations

import builtins
import contextlib
import copy
import keyword
import math
import operator
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import tenon
from tenon.fx import _pytree as fx_pytree
from tenon.fx.node import Argument, Node, Target, map_arg, qualified_name, target_text
from tenon.utils import _pytree

_INFIX = {
    operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}",
    operator.truediv: "{} / {}", operator.floordiv: "{} // {}", operator.mod: "{} % {}",
    operator.matmul: "{} @ {}", operator.pow: "{} ** {}", operator.lt: "{} < {}",
    operator.le: "{} <= {}", operator.gt: "{} > {}", operator.ge: "{} >= {}",
    operator.eq: "{} == {}", operator.ne: "{} != {}", operator.and_: "{} & {}",
    operator.or_: "{} | {}", operator.xor: "{} ^ {}", operator.lshift: "{} << {}",
    operator.rshift: "{} >> {}", operator.getitem: "{}[{}]", operator.neg: "-{}",
    operator.pos: "+{}", operator.invert: "~{}",
}  # fmt: skip
_IN_PLACE = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
    operator.ifloordiv: "//=", operator.imod: "%=", operator.iand: "&=", operator.ior: "|=",
    operator.ixor: "^=", operator.ipow: "**=", operator.ilshift: "<<=", operator.irshift: ">>=",
    operator.imatmul: "@=",
}  # fmt: skip

# The same by the operators' names, for tracers and generators of code of a program's own.
_alone = ("eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert")
reflectable_magic_methods = {
    f.__name__: text for f, text in _INFIX.items() if f.__name__ not in _alone
} | {"div": "{} / {}"}
magic_methods = {
    f.__name__: text for f, text in _INFIX.items() if f.__name__ in _alone
} | reflectable_magic_methods
inplace_methods = {f.__name__: f"{{}} {sign} {{}}" for f, sign in _IN_PLACE.items()} | {
    "setitem": "{}[{}] = {}"
}


BodyTransformer = Callable[[list[str]], list[str]]


@dataclass
class PythonCode:
    """Source of a forward function, and the globals that it needs."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None


class PyTreeInfo(NamedTuple):
    """Names of a function's arguments, and the containers that they and its results are."""

    orig_args: list[str]
    in_spec: _pytree.TreeSpec
    out_spec: _pytree.TreeSpec | None


class CodeGen:
    """How signature and results are written: as they are. Classes of one's own say other lines."""

    pytree_info: PyTreeInfo | None = None
    body_transformer: BodyTransformer | None = None  # of the lines between them

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The lines with which the function begins; free_vars are its parameters beside self."""
        return f"def forward({', '.join(['self', *free_vars])}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument) -> str:
        """The statement that returns the results, not indented."""
        return f"return {output_args!r}"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that these lines use, and what they stand for."""
        return []

    def process_inputs(self, *args: Any) -> Any:
        """Values of the placeholders."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a caller gets."""
        return outputs


class _PyTreeCodeGen(CodeGen):
    """Placeholders are the leaves of arguments that are containers."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        self.pytree_info: PyTreeInfo = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        return _pytree.tree_leaves(args)

    def process_outputs(self, outputs: Any) -> Any:
        return _pytree.tree_unflatten(outputs, self.pytree_info.out_spec)


class _Namespace:
    """Names of values, none of them twice."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def name(self, wanted: str) -> str:
        wanted = re.sub(r"\W+", "_", wanted) or "_"
        if wanted[0].isdigit():
            wanted = f"_{wanted}"
        base, count = wanted, 0
        if match := re.fullmatch(r"(.*)_(\d+)", wanted):
            base, count = match[1], int(match[2])
        taken = keyword.iskeyword(wanted) or wanted in _RESERVED
        while wanted in self.used or taken:
            count += 1
            wanted, taken = f"{base}_{count}", False
        self.used.add(wanted)
        return wanted


# `_` is there where somebody has looked at a value at the prompt.
_RESERVED = {"self", "torch", "tenon", "inf", "nan", "operator", *dir(builtins)} - {"_"}


def _plain(name: str) -> str:
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def _snake(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", text).lower()


class _Nodes:
    """The nodes in order."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return self._graph._count

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._backwards else node._next

    def __reversed__(self) -> _Nodes:
        return _Nodes(self._graph, not self._backwards)


class Graph:
    """Calls in order, from placeholders to the output."""

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None
    ) -> None:
        self._root = Node(self, "", "placeholder", "", (), {})
        self._root.op = "root"  # before the first node and behind the last
        self._count = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._namespace = _Namespace()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._codegen = CodeGen()

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[BodyTransformer | None], BodyTransformer | None]
    ) -> Any:
        """From now on the lines of generated code go through the function that make_transformer
        returns, which is given the one before; at the end of a `with` that one is back."""
        codegen = self._codegen
        before = codegen.body_transformer
        codegen.body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def region() -> Iterator[None]:
            try:
                yield
            finally:
                codegen.body_transformer = before

        return region()

    def process_inputs(self, *args: Any) -> Any:
        """Values of the placeholders for a call's arguments."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What a call returns, of the output's value."""
        return self._codegen.process_outputs(out)

    @property
    def nodes(self) -> _Nodes:
        return _Nodes(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    def output_node(self) -> Node:
        last = self._root._prev
        if last.op != "output":
            raise AssertionError("the graph has no output")
        return last

    # ---- Building --------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node at the place of insertion: the end, unless inserting_before or _after."""
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        own = self._namespace.name(name or self._default_name(op, target))
        node = Node(self, own, op, target, args, kwargs, type_expr)
        self._insert(node)
        self._count += 1
        return node

    def _check_member(self, node: Node) -> None:
        if node.graph is not self:
            raise AssertionError(f"{node.name} is a node of another graph")

    def _default_name(self, op: str, target: Target) -> str:
        if isinstance(target, str):
            return _snake(_plain(target.replace(".", "_")))
        return _snake(_plain(getattr(target, "__name__", "call")))

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def _inserting(self, insert: Callable[[Node], None]) -> contextlib.ExitStack:
        """Takes effect at once, so that it may be called without a `with`, for good."""
        until = contextlib.ExitStack()
        until.callback(setattr, self, "_insert", self._insert)
        self._insert = insert
        return until

    def inserting_before(self, n: Node | None = None) -> Any:
        """New nodes come in front of n inside the `with`, in order; without n in front of all
        nodes, the last one first."""
        if n is None:
            return self._inserting(self._root.append)
        self._check_member(n)
        return self._inserting(n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """New nodes come right behind n inside the `with`, the last one next to it; without n at
        the end, in order."""
        if n is None:
            return self._inserting(self._root.prepend)
        self._check_member(n)
        return self._inserting(n.append)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """A copy of another graph's node; arg_transform says what its inputs are here."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument:
        """Copies all nodes of g but its output; what g returns, here. val_map is filled."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        made._codegen = copy.copy(self._codegen)
        values: dict[Node, Node] = {}
        for node in self.nodes:
            values[node] = made.node_copy(node, lambda n: values[n])
        return made

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that nobody uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._set((), {})
        to_erase._unlink()
        to_erase._erased = True
        self._count -= 1

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that nobody uses and that change nothing; whether there were any."""
        before = self._count
        impure = is_impure_node or Node.is_impure
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
        return self._count < before

    def lint(self) -> None:
        """RuntimeError when the graph is not well formed."""
        seen: dict[Node, None] = {}
        names: set[str] = set()
        for node in self.nodes:
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but "
                        "was used as an argument! If you are copying nodes from another graph, "
                        "make sure to use ``arg_transform`` on node_copy() to remap values\n"
                        f"{self}"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen[node] = None
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._check_target(node)

    def _check_target(self, node: Node) -> None:
        found = self.owning_module
        for part in str(node.target).split("."):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {part} of "
                    f"{type(found).__name__}"
                )
            found = getattr(found, part)

    # ---- Text ------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(["graph():", *(f"    {n.format_node()}" for n in self.nodes)])

    def print_tabular(self) -> None:
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            (n.op, n.name, target_text(n.target), str(n.args), str(n.kwargs)) for n in self.nodes
        ]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
        lines.insert(1, "  ".join("-" * w for w in widths))
        print("\n".join(line.rstrip() for line in lines))

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The forward function of a module with this graph."""
        return _Writer(self, root_module).write(verbose)


class _Writer:
    """Writes one graph as a function."""

    def __init__(self, graph: Graph, root: str) -> None:
        self.graph, self.root, self.codegen = graph, root, graph._codegen
        self.tree = self.codegen.pytree_info
        self.globals: dict[str, Any] = {"inf": math.inf, "nan": math.nan}
        self.globals.update(self.codegen.additional_globals())
        self.wrapped: dict[str, None] = {}
        self.last_use: dict[Node, Node] = {}
        self.verbose = False  # with what is known of values, where they have no annotation
        self.parameters = self.parameter_names()
        for node in graph.nodes:
            for used in node.all_input_nodes:
                self.last_use[used] = node

    def parameter_names(self) -> dict[Node, str]:
        """The targets of placeholders, where they can be names that no other parameter has.
        Targets come from files, too: they must say nothing else."""
        found: dict[Node, str] = {}
        taken = {self.root}
        for node in self.graph.nodes:
            if node.op != "placeholder":
                continue
            name = str(node.target).lstrip("*")
            if not name.isidentifier() or keyword.iskeyword(name) or name in taken:
                name = node.name
            taken.add(name)
            stars = re.match(r"\*{0,2}", str(node.target))
            found[node] = (stars[0] if stars else "") + name
        return found

    def named(self, fn: Any) -> str:
        """What stands for an object in the code."""
        name = qualified_name(fn)
        if name is None or (name in vars(builtins) and vars(builtins)[name] is not fn):
            place = getattr(fn, "__module__", None)
            wanted = getattr(fn, "__name__", type(fn).__name__)
            wanted = f"{place}.{wanted}" if place else wanted
            return self.add_global(re.sub(r"\W", "_", wanted), fn)
        head = name.split(".")[0]
        if head == "operator":
            return self.add_global(f"_{name.replace('.', '_')}", fn)
        if "." in name:
            self.globals[head] = tenon
        return name

    def called(self, fn: Any) -> str:
        """What stands for a function; one that was wrapped is a node when the code is traced."""
        name = self.named(fn)
        if _is_wrapped(fn):
            self.wrapped[name] = None
        return name

    def annotation(self, kind: Any) -> str:
        if isinstance(kind, str):
            return repr(kind)
        origin = typing.get_origin(kind)
        if origin is not None:
            parts = [self.annotation(a) for a in typing.get_args(kind)]
            return f"{self.annotation(origin)}[{','.join(parts)}]"
        if kind is type(None):
            return "None"
        return self.named(kind) if hasattr(kind, "__module__") else repr(kind)

    def typed(self, node: Node) -> str:
        if self.verbose:
            value = next((node.meta[k] for k in _MADE if k in node.meta), None)
            short = short_dtype(value.dtype) if hasattr(value, "dtype") else ""
            if short:
                return f': "{short}[{", ".join(map(str, value.shape))}]"'
        return "" if node.type is None else f" : {self.annotation(node.type)}"

    def add_global(self, wanted: str, value: Any) -> str:
        name, count = wanted, 0
        while (name in self.globals and self.globals[name] is not value) or (
            name in self.graph._namespace.used or name in _RESERVED
        ):
            count += 1
            name = f"{wanted}_{count}"
        self.globals[name] = value
        return name

    def text(self, a: Argument) -> str:
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.named(type(a))}({', '.join(map(self.text, a))})"
        if isinstance(a, tuple):
            return "(" + ", ".join(map(self.text, a)) + ("," if len(a) == 1 else "") + ")"
        if isinstance(a, list):
            return "[" + ", ".join(map(self.text, a)) + "]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if isinstance(a, tenon.dtype):
            self.globals[repr(a).split(".")[0]] = tenon
            return repr(a)
        if isinstance(a, tenon.device):
            return self.add_global("device_" + re.sub(r"\W", "_", str(a)), a)
        if isinstance(a, (bool, int, float, complex, str, type(None), type(...), range)):
            return repr(a)
        if callable(a):
            return self.named(a)
        return self.add_global(f"_{type(a).__name__.lower()}", a)

    def arguments(self, node: Node, args: tuple[Argument, ...] | None = None) -> str:
        parts = [self.text(a) for a in (node.args if args is None else args)]
        return ", ".join(parts + [f"{k} = {self.text(v)}" for k, v in node.kwargs.items()])

    def attribute(self, path: str) -> str:
        text = self.root
        for part in path.split("."):
            text += f".{part}" if part.isidentifier() and not keyword.iskeyword(part) else ""
            if not part.isidentifier() or keyword.iskeyword(part):
                quoted = f'"{part}"' if re.fullmatch(r"\w+", part) else repr(part)
                text = f"getattr({text}, {quoted})"
        return text

    def call(self, node: Node) -> str:
        if node.op == "get_attr":
            return self.attribute(str(node.target))
        if node.op == "call_module":
            return f"{self.attribute(str(node.target))}({self.arguments(node)})"
        if node.op == "call_method":
            owner = self.text(node.args[0])
            owner = owner if isinstance(node.args[0], Node) else f"({owner})"
            return f"{owner}.{node.target}({self.arguments(node, node.args[1:])})"
        pattern = _INFIX.get(node.target)
        if pattern is not None and not node.kwargs and len(node.args) == pattern.count("{}"):
            return pattern.format(*(self.text(a) for a in node.args))
        if node.target is getattr and len(node.args) == 2 and isinstance(node.args[1], str):
            if node.args[1].isidentifier() and isinstance(node.args[0], Node):
                return f"{self.text(node.args[0])}.{node.args[1]}"
        return f"{self.called(node.target)}({self.arguments(node)})"

    def statement(self, node: Node) -> str | None:
        if node.op == "placeholder":
            raw = self.parameters[node].lstrip("*")
            return None if raw == node.name or self.tree else f"{node.name} = {raw}"
        if node.op == "output":
            value = self.text(node.args[0])
            if self.tree:
                value = f"pytree.tree_unflatten({value}, self._out_spec)"
            elif type(self.codegen).generate_output is not CodeGen.generate_output:
                return self.codegen.generate_output(node.args[0])
            return f"return {value}"
        sign = _IN_PLACE.get(node.target) if node.op == "call_function" else None
        if sign and len(node.args) == 2 and isinstance(node.args[0], Node):
            left, right = node.args[0].name, self.text(node.args[1])
            return f"{left} {sign} {right};  {node.name} = {left}"
        return f"{node.name}{self.typed(node)} = {self.call(node)}"

    def released(self, node: Node) -> list[str]:
        """Values that nobody needs after the node."""
        if node.op in ("placeholder", "output"):
            return []
        done = [n.name for n in node.all_input_nodes if self.last_use[n] is node]
        return done if node.users else [*done, node.name]

    def parameter(self, node: Node) -> str:
        name = f"{self.parameters[node]}{self.typed(node)}"
        return f"{name} = {self.text(node.args[0])}" if node.args else name

    def signature(self) -> tuple[list[str], list[str]]:
        """Parameters, and the statements that take them apart."""
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        if self.tree is None:
            return [self.parameter(n) for n in inputs], []
        self.globals.update(fx_pytree=fx_pytree, pytree=_pytree)
        names = self.tree.orig_args
        leaves = "".join(f"{n.name}, " for n in inputs)
        given = f"[{', '.join(names)}]"
        return names, [f"    {leaves}= fx_pytree.tree_flatten_spec({given}, self._in_spec)"]

    def write(self, verbose: bool = False) -> PythonCode:
        self.verbose = verbose
        wanted, lines = self.signature()
        result, told = "", not verbose
        for node in self.graph.nodes:
            if node.op == "output" and node.type is not None:
                result = f" -> {self.annotation(node.type)}"
            line = self.statement(node)
            if not told and node.op not in ("placeholder", "output"):
                lines.append("\n    # No stacktrace found for following nodes")
                told = True
            if line is None:
                continue
            free = self.released(node)
            lines.append(f"    {line}" + (f";  {' = '.join(free)} = None" if free else ""))
        change = self.codegen.body_transformer
        if change is not None:
            body = "".join(change([f"{line[4:]}\n" for line in lines]))
            lines = [f"    {line}" for line in body.splitlines()]
        if not lines:
            lines.append("    pass")
        wraps = "\n".join(f'{_MARK}.wrap("{name}")' for name in self.wrapped)
        if wraps:
            self.globals[_MARK.split(".")[0]] = tenon
        head = f"def forward({', '.join([self.root, *wanted])}){result}:"
        if self.root == "self":
            head = self.codegen.gen_fn_def(wanted, result)
        return PythonCode(f"\n{wraps}\n\n" + "\n".join([head, *lines, "    "]), self.globals)


# What a pass has noted of a node's value.
_MADE = ("val", "tensor_meta", "example_value")


def short_dtype(dtype: Any) -> str:
    """f32, bf16, i64, b8; no text for what is no dtype."""
    kind = re.fullmatch(r"\w+\.(b?float|complex|u?int|bool)(.*)", str(dtype))
    if kind is None:
        return ""
    return f"{kind[1][: 2 if kind[1].startswith('bf') else 1]}{kind[2].replace('_', '') or 8}"


_MARK = f"{str(tenon.float32).split('.')[0]}.fx._symbolic_trace"


def _is_wrapped(fn: Any) -> bool:
    from tenon.fx._symbolic_trace import is_wrapped

    return is_wrapped(fn)
