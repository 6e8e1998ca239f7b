"""export: modules as programs with a contract: which sizes are free, what is computed, one file.

`export(module, args)` records one call (docs/graphs.md), refuses what a recording cannot keep, and
returns an ExportedProgram. Files are those of `jit.save`: C programs run both.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import tenon
from tenon import jit
from tenon._program import COMMON, CONSTANT, DEAD, FOLD
from tenon._program import note as _notes
from tenon._program.errors import GuardOnDataDependentSymNode, UserError, UserErrorType
from tenon._program.traced import (
    NumbersDiffer,
    Recording,
    free_size,
    restored,
    unchanged,
    warn_of_constants,
)
from tenon._program.turns import Turn
from tenon._submodules import on_demand
from tenon.export import exported_program, graph_signature
from tenon.export.decompositions import default_decompositions
from tenon.export.dynamic_shapes import (
    AdditionalInputs,
    Dim,
    FreeSize,
    ShapesCollection,
    dims,
    free_sizes,
)
from tenon.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
)
from tenon.export.graph_signature import ExportGraphSignature
from tenon.export.unflatten import InterpreterModule, UnflattenedModule, unflatten
from tenon.io import atomic
from tenon.io.errors import FileFormatError
from tenon.nn import Module
from tenon.utils import _pytree

__all__ = [
    "AdditionalInputs", "Dim", "ExportGraphSignature", "ExportedProgram", "InterpreterModule",
    "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule",
    "default_decompositions", "dims", "draft_export", "export", "export_for_training",
    "exported_program", "graph_signature", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip


# ---- Recording -----------------------------------------------------------------------------------


class _Scopes:
    """Which module each node was called in: ways from the root, each step a path and which call."""

    def __init__(self, root: Module) -> None:
        self.paths = {id(m): n for n, m in root.named_modules() if n}
        self.known: list[tuple[tuple[str, int], ...]] = [()]

    @contextlib.contextmanager
    def __call__(self, set_scope: Callable[[int], None]) -> Iterator[None]:
        plain, inside, counts = Module.__call__, [0], dict.fromkeys(self.paths, 0)

        def called(module: Module, *args: Any, **kwargs: Any) -> Any:
            path = self.paths.get(id(module))
            if path is None:
                return plain(module, *args, **kwargs)
            self.known.append((*self.known[inside[-1]], (path, counts[id(module)])))
            counts[id(module)] += 1
            inside.append(len(self.known) - 1)
            set_scope(inside[-1])
            try:
                return plain(module, *args, **kwargs)
            finally:
                inside.pop()
                set_scope(inside[-1])

        Module.__call__ = called  # type: ignore[method-assign]
        try:
            yield
        finally:
            Module.__call__ = plain  # type: ignore[method-assign]


def _ties(mod: Module) -> dict[str, str]:
    """Other names of parameters and buffers, and the ones that they are recorded under."""
    found: dict[str, str] = {}
    for members in (mod.named_parameters, mod.named_buffers):
        first = {id(t): n for n, t in members()}
        found |= {n: first[id(t)] for n, t in members(remove_duplicate=False)
                  if first[id(t)] != n}  # fmt: skip
    return found


def _names_of_constants(mod: Module, weights: Any) -> list[str]:
    """What the module calls tensors that are neither parameters nor buffers; '': nothing."""
    names: dict[int, str] = {}
    for path, m in mod.named_modules():
        for name, held in vars(m).items():
            if isinstance(held, tenon.Tensor):
                names.setdefault(id(held), f"{path}.{name}".lstrip("."))
    return [names.get(id(t), "") for _, kind, t in weights if kind == CONSTANT]


def _transient(mod: Module) -> list[str]:
    """Buffers that are no part of a state_dict."""
    return [
        f"{path}.{name}".lstrip(".")
        for path, m in mod.named_modules()
        for name in sorted(m._non_persistent_buffers_set)
    ]


def _record(
    mod: Module, args: Any, kwargs: Any, scopes: Any = None, numbers: bool = False
) -> Recording:
    inputs = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, tenon.Tensor)]
    with unchanged(mod), restored(inputs):
        return Recording(mod, args, kwargs, scopes, numbers)


class _Violation(UserError, NotImplementedError):
    """A size that cannot be free; what it is for a lack of a rule, too."""


@contextlib.contextmanager
def _as_violations(sizes: list[FreeSize]) -> Iterator[None]:
    """Says why a size cannot be free as PyTorch does."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as err:
        if type(err) not in (RuntimeError, NotImplementedError, Turn, NumbersDiffer) or not sizes:
            raise
        kind = UserErrorType.CONSTRAINT_VIOLATION
        made = UserError if type(err) is not NotImplementedError else _Violation
        text = str(err)
        if not text.startswith("Constraints violated"):
            text = f"Constraints violated! {text}"
        raise made(kind, text) from err


def _free(recording: Recording, mod: Module, tensors: list[Any], size: FreeSize) -> None:
    dim = size.dim
    rule = (getattr(dim, "times", 1), getattr(dim, "plus", 0))
    low, high = size.bounds or (max(dim.min, 0), dim.max)
    try:
        free_size(
            recording, mod, tensors, size.places, size.name or dim.__name__, low, high, rule,
            rules=size.rules,
        )  # fmt: skip
    except Turn as err:
        # A hint is free where it can be. 0 and 1 may always be sizes that are others.
        least = size.hint is None and (err.low > max(2, dim.min) or err.high != high)
        if least or not err.narrower(low, high):
            raise
        size.bounds = err.low, err.high
        raise _Anew from err


class _Anew(Exception):
    """The recording has to be made again."""


def _together(
    size: FreeSize, hints: list[FreeSize], tensors: list[Any], anywhere: bool = False
) -> FreeSize:
    """A hinted size with all others of the same value in the same dimension, or in any."""
    (i, dim), made = size.places[0], FreeSize(size.dim, size.hint)
    for other in hints:
        for j, d in other.places:
            if (anywhere or d == dim) and tensors[j].shape[d] == tensors[i].shape[dim]:
                made.places.append((j, d))
    return made


def _free_hints(
    again: Callable[[], Recording], mod: Module, tensors: list[Any], sizes: list[FreeSize]
) -> Recording:
    """Frees sizes that must be free, and of those that may all that can. A size that is not free
    alone may be so together with its equals; a failed attempt costs a recording."""
    done = [s for s in sizes if s.hint is None]
    hints = [s for s in sizes if s.hint is not None]

    def attempt(wanted: list[FreeSize]) -> Recording:
        while True:
            recording = again()
            try:
                for size in wanted:
                    _free(recording, mod, tensors, size)
            except _Anew:
                continue
            return recording

    recording = attempt(done)
    for size in hints:
        taken = {place for s in done for place in s.places}
        if set(size.places) <= taken:
            continue
        rest = [h for h in hints if not set(h.places) <= taken]
        groups = [size, _together(size, rest, tensors), _together(size, rest, tensors, True)]
        for wanted in groups:
            try:
                recording = attempt([*done, wanted])
            except MemoryError:
                raise
            except NumbersDiffer:
                raise
            except Exception as err:
                failed = err
                continue
            done.append(wanted)
            break
        else:
            if size.hint and size.hint.kind is Dim.DYNAMIC.kind:
                raise failed
    return recording


def free_hinted(again: Callable[[], Recording], fn: Any, tensors: list[Any]) -> Recording:
    """A recording whose sizes are free wherever they can be."""
    sizes = [
        FreeSize(Dim(f"s{i}_{d}", min=1), Dim.AUTO, [(i, d)])
        for i, t in enumerate(tensors) for d in range(t.ndim) if t.shape[d] > 1
    ]  # fmt: skip
    return _free_hints(again, fn, tensors, sizes)


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
    return exported(mod, args, kwargs, dynamic_shapes)


def exported(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    dynamic_shapes: Any,
    values_fixed: bool = False,
) -> ExportedProgram:
    """export; with `values_fixed` what follows from values that the module looks at is a constant,
    as in a trace, with a warning."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `nn.Module`, got {type(mod)}.")
    if isinstance(mod, jit.ScriptModule):
        raise ValueError("Exporting a ScriptModule is not supported: export the module itself")
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
        )
    kwargs = _in_order(mod, args, kwargs or {})
    sizes = free_sizes(mod, args, kwargs, dynamic_shapes)
    tensors = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, tenon.Tensor)]

    def again() -> Recording:
        nonlocal scopes
        scopes = _Scopes(mod)
        recording = _record(mod, args, kwargs, scopes, counted)
        count, where = recording.program.reads
        if count and not values_fixed:
            raise GuardOnDataDependentSymNode(
                "export: the module looks at values of tensors, so that its course or a constant "
                "may depend on them: use tenon.where, or compute it outside"
                + (f"\n{where}" if where else "")
            )
        return recording

    scopes, counted = _Scopes(mod), False
    with _as_violations(sizes):
        try:
            recording = _free_hints(again, mod, tensors, sizes)
        except NumbersDiffer:
            counted = True
            recording = _free_hints(again, mod, tensors, sizes)
    if recording.program.reads[0]:
        warn_of_constants(recording.program, stacklevel=4)
    recording.program.optimize(FOLD | COMMON | DEAD)
    jit._wrap(mod, recording)
    note = json.loads(recording.program.note)
    note["ties"], note["transient"] = _ties(mod), _transient(mod)
    note["constants"] = _names_of_constants(mod, recording.program.weights)
    used = [n["scope"] for n in recording.program.data["nodes"]]
    numbers = {scope: i for i, scope in enumerate(dict.fromkeys(used))}
    note["scopes"] = [scopes.known[s] for s in numbers]
    note["scope_of"] = [numbers[s] for s in used]
    recording.program.note = json.dumps(note, sort_keys=True)
    return ExportedProgram(recording.program, (args, kwargs))


def _in_order(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Named arguments in the order of the signature."""
    try:
        bound = inspect.signature(mod.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return kwargs
    return {k: kwargs[k] for k in dict.fromkeys([*bound, *kwargs]) if k in kwargs}


export_for_training = export


def draft_export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """What export gives, with a report, and with sizes fixed that cannot be free; the report says
    which and why. A module that looks at values is an error here, too."""
    failures: list[str] = []
    try:
        made = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes)
    except UserError as err:
        if err.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        failures.append(str(err))
        made = export(mod, args, kwargs)
    made._report = DraftExportReport(failures)
    return made


class DraftExportReport:
    """What export would have refused."""

    def __init__(self, failures: list[str]) -> None:
        self.failures = failures

    def successful(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        return "\n".join(self.failures or ["No issues are found: export gives the same program."])


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
        atomic.replace(f, data)
    else:
        f.write(data)


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """What save, or jit.save, wrote. A file that is damaged is a RuntimeError
    (serialization.FileFormatError)."""
    program = _notes.read(f, "export.load")
    note = _notes.of(program)
    if note["kind"] == "script":
        raise FileFormatError("export.load: the file holds a script, which jit.load reads")
    with _notes.refused("export.load: the file holds a program that export has not made"):
        jit._Runs()._adopt(program, note)
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
        serialized_type_name=serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=lambda x: (
            [(_pytree.GetAttrKey(n), getattr(x, n)) for n in names],
            None,
        ),
        to_dumpable_context=lambda c: c,
        from_dumpable_context=lambda c: c,
    )


on_demand(globals())
