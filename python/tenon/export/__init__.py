"""export: modules as programs with a contract: which sizes are free, what is computed, one file.

`export(module, args)` records one call (docs/graphs.md), refuses what a recording cannot keep, and
returns an ExportedProgram. Files are those of `jit.save`: C programs run both.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import tenon
from tenon import _program, jit
from tenon._program import BUFFER, COMMON, DEAD, FOLD, PARAMETER, Program
from tenon._program.traced import Recording, free_size
from tenon._submodules import on_demand
from tenon.nn import Module
from tenon.utils import _pytree

__all__ = [
    "Dim", "ExportGraphSignature", "ExportedProgram", "ModuleCallSignature", "dims", "export",
    "load", "save",
]  # fmt: skip

_ANY = (1 << 62) - 1


class _Hint(Enum):
    AUTO = 1
    STATIC = 2
    DYNAMIC = 3


class Dim:
    """A size that may differ, by name, within bounds."""

    AUTO, STATIC, DYNAMIC = _Hint.AUTO, _Hint.STATIC, _Hint.DYNAMIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not str(name).isidentifier():
            raise ValueError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min, self.max = 0 if min is None else min, _ANY if max is None else max
        if self.max <= self.min:
            raise ValueError(f"Cannot create Dim with inconsistent min={min}, max={max}")

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several of them."""
    return tuple(Dim(name, min=min, max=max) for name in names)


# ---- Which sizes are free ------------------------------------------------------------------------


def _of_tensor(given: Any, rank: int, where: str) -> dict[int, Any]:
    """Dimension -> Dim or hint, for one tensor."""
    if given is None:
        return {}
    if isinstance(given, (tuple, list)):
        if len(given) != rank:
            raise ValueError(f"dynamic_shapes{where}: {len(given)} sizes for {rank} dimensions")
        given = dict(enumerate(given))
    if not isinstance(given, dict):
        raise ValueError(f"dynamic_shapes{where} is a dict, a tuple or None, not {given!r}")
    found = {}
    for dim, free in given.items():
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ValueError(f"dynamic_shapes{where}: there is no dimension {dim} of {rank}")
        if isinstance(free, int) or free is None or free is Dim.STATIC:
            continue
        if not isinstance(free, (Dim, _Hint)):
            raise ValueError(f"dynamic_shapes{where}[{dim}] is a Dim, not {free!r}")
        found[dim % rank] = free
    return found


def _match(example: Any, given: Any, where: str, out: list[dict[int, Any]]) -> None:
    """Walks arguments and dynamic_shapes together; one entry for each tensor."""
    if isinstance(example, tenon.Tensor):
        out.append(_of_tensor(given, example.ndim, where))
    elif isinstance(example, dict):
        for key, part in example.items():
            _match(part, (given or {}).get(key), f"{where}[{key!r}]", out)
    elif isinstance(example, (tuple, list)):
        parts = given if given is not None else [None] * len(example)
        if not isinstance(parts, (tuple, list)) or len(parts) != len(example):
            raise ValueError(f"dynamic_shapes{where} has another structure than the argument")
        for i, (a, b) in enumerate(zip(example, parts, strict=True)):
            _match(a, b, f"{where}[{i}]", out)


def _free_sizes(
    fn: Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any
) -> dict[str, tuple[Dim, list[tuple[int, int]]]]:
    """Name -> the Dim and where it stands: (tensor, dimension)."""
    if given is None:
        return {}
    import inspect

    bound = inspect.signature(fn.forward).bind(*args, **kwargs).arguments
    if isinstance(given, (tuple, list)):
        if len(given) != len(bound):
            raise ValueError(f"dynamic_shapes has {len(given)} entries for {len(bound)} arguments")
        given = dict(zip(bound, given, strict=True))
    unknown = set(given) - set(bound)
    if unknown:
        raise ValueError(
            f"dynamic_shapes names '{sorted(unknown)[0]}', and the arguments are "
            f"{', '.join(map(repr, bound))}"
        )
    found: list[dict[int, Any]] = []
    for name, example in bound.items():
        _match(example, given.get(name), f"['{name}']", found)
    sizes: dict[str, tuple[Dim, list[tuple[int, int]]]] = {}
    for i, free in enumerate(found):
        for dim, wanted in free.items():
            if isinstance(wanted, _Hint):
                wanted = Dim(f"s{i}_{dim}", min=1)
            sizes.setdefault(wanted.__name__, (wanted, []))[1].append((i, dim))
    return sizes


# ---- The exported program ------------------------------------------------------------------------


@dataclass
class ExportGraphSignature:
    """Names of what goes into and comes out of a graph."""

    user_inputs: tuple[str, ...]
    user_outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]


@dataclass
class ModuleCallSignature:
    """The structure of arguments and results."""

    in_spec: _pytree.TreeSpec
    out_spec: _pytree.TreeSpec


class ExportedProgram:
    """A module's call as a graph, with its weights."""

    def __init__(self, program: Program, example_inputs: Any = None) -> None:
        self.program = program
        self.example_inputs = example_inputs
        self._note = json.loads(program.note)
        self._graph_module: Any = None

    @property
    def graph_module(self) -> Any:
        """The program as a GraphModule that takes its tensors and gives a tuple."""
        if self._graph_module is None:
            from tenon._program.as_fx import graph_module

            self._graph_module = graph_module(self.program)
        return self._graph_module

    @property
    def graph(self) -> Any:
        return self.graph_module.graph

    @property
    def code(self) -> str:
        return str(self.program)

    def named_parameters(self) -> Any:
        return ((n, t) for n, kind, t in self.program.weights if kind == PARAMETER)

    def parameters(self) -> Any:
        return (t for _, t in self.named_parameters())

    def named_buffers(self) -> Any:
        return ((n, t) for n, kind, t in self.program.weights if kind == BUFFER)

    def buffers(self) -> Any:
        return (t for _, t in self.named_buffers())

    @property
    def state_dict(self) -> dict[str, Any]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    @property
    def constants(self) -> dict[str, Any]:
        plain = [t for _, kind, t in self.program.weights if kind not in (PARAMETER, BUFFER)]
        return {f"constant{i}": t for i, t in enumerate(plain)}

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return ExportGraphSignature(
            tuple(s[0] for s in self.program.inputs),
            tuple(n.name for n in self.graph.output_node().args[0]),
            tuple(n for n, _ in self.named_parameters()),
            tuple(n for n, _ in self.named_buffers()),
        )

    @property
    def call_spec(self) -> ModuleCallSignature:
        note = self._note
        return ModuleCallSignature(
            _pytree.treespec_loads(note["inputs"]["spec"]),
            _pytree.treespec_loads(note["outputs"]["spec"]),
        )

    @property
    def range_constraints(self) -> dict[str, tuple[int, int]]:
        """The bounds of each free size."""
        return {s["name"]: (s["low"], s["high"]) for s in self.program.data["symbols"]}

    def module(self) -> Module:
        """What runs the program, called as the module was."""
        made = jit._of_program(self.program)
        wanted = set(self._note.get("grads", ()))
        for name, p in made.named_parameters():
            p.requires_grad_(name in wanted)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self.program}"


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """The program of a call of `mod`. Sizes are fixed but for those that dynamic_shapes names."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `nn.Module`, got {type(mod)}.")
    if isinstance(mod, jit.ScriptModule):
        raise ValueError("Exporting a ScriptModule is not supported: export the module itself")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example inputs, got {type(args)}")
    kwargs = kwargs or {}
    sizes = _free_sizes(mod, args, kwargs, dynamic_shapes)
    recording = Recording(mod, args, kwargs)
    count, where = recording.program.reads
    if count:
        raise RuntimeError(
            "export: the module looks at values of tensors, so that its course or a constant may "
            "depend on them: use tenon.where, or compute it outside"
            + (f"\n{where}" if where else "")
        )
    tensors = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, tenon.Tensor)]
    for name, (dim, chosen) in sizes.items():
        free_size(recording, mod, tensors, chosen, name, max(dim.min, 0), dim.max)
    recording.program.optimize(FOLD | COMMON | DEAD)
    jit._wrap(mod, recording)
    return ExportedProgram(recording.program, (args, kwargs))


# ---- Files ---------------------------------------------------------------------------------------


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Writes the program as a .tng file, to a path or a file object."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got {type(ep)}"
        )
    note = {**ep._note, "extra": extra_files or {}}
    ep.program.note = json.dumps(note, sort_keys=True)
    data = ep.program.to_bytes()
    if isinstance(f, (str, os.PathLike)):
        Path(f).write_bytes(data)
    else:
        f.write(data)


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """What save, or jit.save, wrote."""
    source = f.read() if hasattr(f, "read") else f
    program = _program.load(source)
    ep = ExportedProgram(program)
    for name in extra_files or ():
        extra_files[name] = ep._note.get("extra", {}).get(name, "")  # type: ignore[index]
    return ep


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a container whose tensors are inputs or outputs."""
    import dataclasses

    names = [f.name for f in dataclasses.fields(cls)]
    _pytree.register_pytree_node(
        cls,
        lambda x: ([getattr(x, n) for n in names], None),
        lambda parts, _: cls(**dict(zip(names, parts, strict=True))),
        serialized_type_name=serialized_type_name,
        to_dumpable_context=lambda c: c,
        from_dumpable_context=lambda c: c,
    )


on_demand(globals())
