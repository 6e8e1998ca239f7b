"""Programs with their contract: names, kinds, bounds, and what runs them."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tenon
from tenon import _program, fx, jit
from tenon._program import BUFFER, PARAMETER, Program, as_fx
from tenon._program import note as _notes
from tenon._program.apart import take_apart
from tenon._program.traced import Layout, key_text
from tenon.export.decompositions import names_of
from tenon.export.dynamic_shapes import _ANY
from tenon.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tenon.nn import Module
from tenon.nn.parameter import Parameter
from tenon.utils import _pytree

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ValueRanges"]


@dataclass
class ModuleCallSignature:
    """The structure of arguments and results."""

    in_spec: _pytree.TreeSpec
    out_spec: _pytree.TreeSpec


@dataclass
class ModuleCallEntry:
    """A module that the program calls; the signature is kept for the outermost one."""

    fqn: str
    signature: ModuleCallSignature | None = None


class ValueRanges(NamedTuple):
    """The bounds of a free size."""

    lower: int
    upper: int

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper >= _ANY else self.upper}]"


_KINDS = {
    PARAMETER: (InputKind.PARAMETER, "p_"),
    BUFFER: (InputKind.BUFFER, "b_"),
    _program.CONSTANT: (InputKind.CONSTANT_TENSOR, "c_"),
}


class ExportedProgram:
    """A module's call as a graph, with its weights."""

    def __init__(self, program: Program, example_inputs: Any = None) -> None:
        self.program = program
        self.example_inputs = example_inputs
        self._note = json.loads(program.note)
        _notes.claim_parameters(program, self._note)
        self._lifted: tuple[fx.GraphModule, ExportGraphSignature] | None = None
        self._report: Any = None  # draft_export's

    @property
    def graph_module(self) -> fx.GraphModule:
        """The program as a GraphModule that takes weights and inputs and gives a tuple."""
        return self._graph()[0]

    @property
    def graph(self) -> fx.Graph:
        return self.graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What the placeholders and outputs of the graph are."""
        return self._graph()[1]

    def _graph(self) -> tuple[fx.GraphModule, ExportGraphSignature]:
        if self._lifted is None:
            self._lifted = _lifted(self)
        return self._lifted

    @property
    def code(self) -> str:
        return str(self.program)

    # ---- Weights ---------------------------------------------------------------------------------

    def _weights(self, kind: int) -> dict[str, Any]:
        """By name, and by the other names that the module has for them."""
        found = {n: t for n, k, t in self.program.weights if k == kind}
        return {n: found[o] for n, o in self._names(kind) if o in found}

    def _names(self, kind: int) -> list[tuple[str, str]]:
        own = [n for n, k, _ in self.program.weights if k == kind]
        return [*((n, n) for n in own), *sorted(self._note.get("ties", {}).items())]

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        yield from self._weights(PARAMETER).items()

    def parameters(self) -> Iterator[Any]:
        yield from self._weights(PARAMETER).values()

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        yield from self._weights(BUFFER).items()

    def buffers(self) -> Iterator[Any]:
        yield from self._weights(BUFFER).values()

    @property
    def state_dict(self) -> dict[str, Any]:
        found = {**self._weights(PARAMETER), **self._weights(BUFFER)}
        return {n: t for n, t in found.items() if n not in self._transient}

    @property
    def _transient(self) -> list[str]:
        return self._note.get("transient", [])

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors that are no parameters, and buffers that a state_dict leaves out."""
        plain = [t for _, kind, t in self.program.weights if kind not in (PARAMETER, BUFFER)]
        buffers = self._weights(BUFFER)
        return {
            **{n: buffers[n] for n in self._transient if n in buffers},
            **dict(zip(self._constant_names(), plain, strict=True)),
        }

    def _constant_names(self) -> list[str]:
        """What the module calls them, for what it has no name of its own a number."""
        count = sum(kind not in (PARAMETER, BUFFER) for _, kind, _ in self.program.weights)
        names = [*self._note.get("constants", []), *[""] * count][:count]
        numbers = iter(range(count))
        return [name or f"lifted_tensor_{next(numbers)}" for name in names]

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return self.constants

    # ---- The contract ----------------------------------------------------------------------------

    @property
    def call_spec(self) -> ModuleCallSignature:
        note = self._note
        return ModuleCallSignature(
            _pytree.treespec_loads(note["inputs"]["spec"]),
            _pytree.treespec_loads(note["outputs"]["spec"]),
        )

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """Modules in the order of their first call."""
        first = ModuleCallEntry("", self.call_spec)
        paths = [path for scope in self._note.get("scopes", []) for path, _ in scope]
        return [first, *(ModuleCallEntry(p) for p in dict.fromkeys(paths))]

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        """The bounds of each free size."""
        return {s["name"]: ValueRanges(s["low"], s["high"]) for s in self.program.data["symbols"]}

    def run_decompositions(
        self, decomp_table: Mapping[Any, Callable[..., Any]] | None = None
    ) -> ExportedProgram:
        """The program with operators that consist of others as those, with the same weights.

        `decomp_table` has the operators to take apart (`default_decompositions()`, less what is to
        stay), by default all. What writes, looks at values or makes tensors by no operator stays.
        RuntimeError: the parts do not follow a free size.
        """
        names = None if decomp_table is None else names_of(decomp_table)
        made = take_apart(self.program, names, self._examples())
        return ExportedProgram(made, self.example_inputs)

    def _examples(self) -> list[Any]:
        """The tensors that the program was recorded with; none: it comes from a file."""
        return [t for t in _pytree.tree_leaves(self.example_inputs) if isinstance(t, tenon.Tensor)]

    @property
    def dialect(self) -> str:
        """PyTorch's name of programs that hold every operator as it was called."""
        return "TRAINING"

    def validate(self) -> None:
        """RuntimeError when the graph is not well formed."""
        self.graph.lint()

    def module(self, check_guards: bool = True) -> ExportedModule:
        """What runs the program, called as the module was. Once its graph was changed the sizes of
        its inputs are checked as before, or not at all without `check_guards`."""
        return ExportedModule(self.program, check_guards)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False)
        code, signature = (t.replace("\n", "\n    ") for t in (code, str(self.graph_signature)))
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {signature}\n"
            f"Range constraints: {self.range_constraints}\n"
        )


def failed_guard(
    data: dict[str, Any], tensors: Sequence[Any], names: Sequence[str] | None = None
) -> str | None:
    """What a size would have to be for which a program was made; None: all are. `names`: those of
    the tensors, in place of the inputs' own."""
    bounds = {s["name"]: s for s in data["symbols"]}
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    names = [data["values"][i]["name"] for i in data["inputs"]] if names is None else names
    for i, name, t in zip(data["inputs"], names, tensors, strict=True):
        value = data["values"][i]
        if t.ndim != len(value["shape"]):
            return f"{name}.dim() == {len(value['shape'])}"
        for d, (size, now) in enumerate(zip(value["shape"], t.shape, strict=True)):
            where, bound = f"{name}.size()[{d}]", bounds.get(size)
            if size == -1:
                continue
            wanted = size if bound is None else sizes.setdefault(size, now)
            if bound and now != wanted:
                return f"{where} == {first[size]}"
            first.setdefault(size, where)
            if bound and now < bound["low"]:
                return f"{where} >= {bound['low']}"
            if bound and now > bound["high"]:
                return f"{where} <= {bound['high']}"
            if now != wanted:
                return f"{where} == {wanted}"
    for name, size in sizes.items():
        for i, d, rule in _program.places_of(data, name):
            now = tensors[i].shape[d]
            if size * rule["num"] % rule["den"] or now != _program.follow(rule, size):
                return f"{names[i]}.size()[{d}] == {_program.follow(rule, size)}"
    return None


class GuardError(AssertionError, RuntimeError):
    """Arguments are others than those that a program was exported for."""


class InputsError(ValueError, RuntimeError):
    """Arguments have another structure than those that a program was exported for."""


class ExportedModule(fx.GraphModule):
    """A module that runs a program; its graph can be changed, and runs after `recompile()`."""

    def __init__(self, program: Program, check_guards: bool = True) -> None:
        note = json.loads(program.note)
        self.__dict__.update(_runs=False, _checks=check_guards)
        made = as_fx.graph_module(program, aten=True)
        self.__dict__.update(_program=program, _note=note)
        self.__dict__["_takes"], self.__dict__["_gives"] = jit._Runs(), Layout.load(note["outputs"])
        self._takes._adopt(program, note)
        _notes.claim_parameters(program, note)
        weights = {n: t for n, _, t in program.weights if n}
        constants = {
            n.target: getattr(made, n.target) for n in made.graph.nodes
            if n.op == "get_attr" and n.target not in weights
        }  # fmt: skip
        super().__init__({**weights, **constants}, made.graph)
        for name, tensor in (*weights.items(), *constants.items()):
            self._hold(name, tensor)
        for name, other in sorted(note.get("ties", {}).items()):
            if other in weights:
                self._hold(name, weights[other])
        wanted = set(note.get("grads", ()))
        for name, p in self.named_parameters():
            p.requires_grad_(name in wanted)
        super().train(note.get("training", False))
        slots = [(*self._slot(n), t) for n, _, t in program.weights if n]
        self.__dict__.update(_slots=slots, _runs=True)
        type(self).forward = ExportedModule._call

    def train(self, mode: bool = True) -> ExportedModule:
        """The mode that the module was exported in; the other one would change nothing that the
        program does."""
        if mode != self._note.get("training", False):
            raise NotImplementedError(
                "Calling train() or eval() is not supported for exported models: export the "
                f"module again after {'train' if mode else 'eval'}()"
            )
        return super().train(mode)

    def _slot(self, path: str) -> tuple[dict[str, Any], str]:
        owner, _, name = path.rpartition(".")
        module = self.get_submodule(owner)
        return module._parameters if name in module._parameters else module._buffers, name

    def _hold(self, path: str, tensor: Any) -> None:
        owner, _, name = path.rpartition(".")
        module: Module = self
        for part in filter(None, owner.split(".")):
            if part not in module._modules:
                module.add_module(part, Module())
            module = module._modules[part]
        if isinstance(tensor, Parameter):
            module.register_parameter(name, tensor)
        else:
            kept = path not in self._note.get("transient", ()) and not path.startswith("_constant")
            module.register_buffer(name, tensor, persistent=kept)

    def recompile(self) -> Any:
        code = super().recompile()
        self.__dict__["_body"] = type(self).forward
        self.__dict__["_runs"] = False
        type(self).forward = ExportedModule._call
        return code

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """The program while the module holds its weights and graph, else the graph."""
        tensors = self._fitting(args, kwargs)
        if not self._runs or any(slots.get(name) is not t for slots, name, t in self._slots):
            failed = self._failed(tensors) if self._checks else None
            if failed is not None:
                raise GuardError(f"Guard failed: {failed}")
            return self._gives.build(self._body(self, *tensors))
        try:
            return self._gives.build(self._program(*tensors))
        except RuntimeError as err:
            failed = self._failed(tensors)
            if failed is None:
                raise
            raise GuardError(f"Guard failed: {failed}\n{err}") from None

    def _fitting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of arguments like those of the recording."""
        try:
            return self._takes._tensors(args, kwargs)
        except RuntimeError:
            given = Layout.of(self._takes._arguments(args, kwargs), "inputs of a program")[0]
            wanted = self._takes._inputs
            if given.spec != wanted.spec or given.tensors != wanted.tensors:
                raise InputsError(
                    "Trying to flatten user inputs with exported input tree spec: \n"
                    f"{wanted.spec}\nbut actually got inputs with tree spec of: \n{given.spec}.\n"
                    "Please check that the inputs have the same number and type of args and kwargs"
                ) from None
            leaves = zip(self._leaf_names(), wanted.fixed, given.fixed, strict=True)
            failed = next(f"{n} == {w!r}" for n, w, g in leaves if (type(w), w) != (type(g), g))
            raise GuardError(f"Guard failed: {failed}") from None

    def _leaf_names(self) -> list[str]:
        """How each leaf of the arguments is reached, as Python says it."""
        wanted, names = self._takes._inputs, self._takes._names
        tree = wanted.spec.unflatten(list(range(len(wanted.fixed))))
        found = [""] * len(wanted.fixed)
        for (side, first, *rest), i in _pytree.tree_leaves_with_path(tree):
            own, of_args = key_text(first), key_text(side) == "0"
            if of_args:
                own = names[int(own)] if int(own) < len(names) else f"args[{own}]"
            found[i] = own + _pytree.keystr(tuple(rest))
        return found

    def _failed(self, tensors: Sequence[Any]) -> str | None:
        """What a size of the arguments would have to be."""
        names = self._leaf_names()
        return failed_guard(
            self._program.data, tensors, [names[i] for i in self._takes._inputs.tensors]
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedModule:
        made = _restored(self._program.to_bytes(), self._checks)
        if not self._runs:
            made.graph = copy.deepcopy(self.graph)
        made.load_state_dict(self.state_dict())
        memo[id(self)] = made
        return made

    def __copy__(self) -> ExportedModule:
        return copy.deepcopy(self)

    def __reduce__(self) -> Any:
        if not self._runs:
            raise TypeError("a changed module of an exported program cannot be pickled")
        return _restored, (self._program.to_bytes(), self._checks)


ExportedModule.__name__ = "GraphModule"


def _restored(data: bytes, check_guards: bool) -> ExportedModule:
    return ExportedModule(_program.load(data), check_guards)


class _Lifted(as_fx._Builder):
    """A graph whose weights are placeholders."""

    aten = True

    def lift(self, i: int, name: str, kind: int) -> None:
        """A placeholder for a weight."""
        self.nodes[i] = self.placeholder(_KINDS[kind][1] + name.replace(".", "_"))
        self.note(self.nodes[i], i)


def _lifted(ep: ExportedProgram) -> tuple[fx.GraphModule, ExportGraphSignature]:
    builder = _Lifted(ep.program)
    data, values = builder.data, builder.data["values"]
    specs: list[InputSpec] = []
    places = [i for i, v in enumerate(values) if v["role"] == "weight"]
    order = {PARAMETER: 0, BUFFER: 1, _program.CONSTANT: 2}
    pairs = sorted(zip(places, builder.weights, strict=True), key=lambda p: order[p[1][1]])
    constants = iter(ep._constant_names())
    for i, (name, kind, _) in pairs:
        target = name if kind in (PARAMETER, BUFFER) else next(constants)
        builder.lift(i, target, kind)
        kept = target not in ep._transient if kind == BUFFER else None
        arg = TensorArgument(builder.nodes[i].name)
        specs.append(InputSpec(_KINDS[kind][0], arg, target, kept))
    given = Layout.load(ep._note["inputs"])
    inputs = iter(data["inputs"])
    tree = given.spec.unflatten(list(range(len(given.fixed))))
    paths = {i: path for path, i in _pytree.tree_leaves_with_path(tree)}
    names = ep._note.get("arguments", [])
    for at, fixed in enumerate(given.fixed):
        if at in given.tensors:
            i = next(inputs)
            builder.nodes[i] = builder.placeholder(values[i]["name"])
            builder.note(builder.nodes[i], i)
            arg: Any = TensorArgument(builder.nodes[i].name)
        else:
            side, first, *rest = (key_text(k) for k in paths[at])
            own = names[int(first)] if side == "0" and int(first) < len(names) else first
            arg = ConstantArgument(builder.placeholder("_".join([own, *rest])).name, fixed)
        specs.append(InputSpec(InputKind.USER_INPUT, arg, None))
    for node in data["nodes"]:
        builder.node(node)
    shown: list[Any] = list(Layout.load(ep._note["outputs"]).fixed)
    for at, i in zip(Layout.load(ep._note["outputs"]).tensors, data["outputs"], strict=True):
        shown[at] = builder.nodes[i]
    builder.graph.output(tuple(shown))
    outputs = [
        OutputSpec(
            OutputKind.USER_OUTPUT,
            TensorArgument(v.name) if isinstance(v, fx.Node) else ConstantArgument("", v),
            None,
        )
        for v in shown
    ]
    _note_values(ep, builder.graph, specs)
    return fx.GraphModule({}, builder.graph), ExportGraphSignature(specs, outputs)


def _note_values(ep: ExportedProgram, graph: fx.Graph, specs: list[InputSpec]) -> None:
    """Gives nodes a tensor without data like the example's, `meta["val"]`."""
    if ep.example_inputs is None:
        return
    given = iter(_pytree.tree_leaves(ep.example_inputs))
    weights = {**dict(ep.named_parameters()), **dict(ep.named_buffers()), **ep.constants}
    known = [
        next(given) if s.kind is InputKind.USER_INPUT else weights[str(s.target)] for s in specs
    ]
    values = _pytree.tree_map_only(tenon.Tensor, lambda t: t.detach().to("meta"), known)

    class Noting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            made = super().run_node(n)
            if n.op != "output":
                n.meta["val"] = made
            return made

    with contextlib.suppress(RuntimeError, TypeError, ValueError), tenon.no_grad():
        Noting(Module(), graph=graph).run(*values)
