"""jit: functions and modules as programs that are recorded, kept in files, run without Python.

`trace` calls a function once and keeps the operators that it called (docs/graphs.md). `script`
looks through a function's source and runs it as Python; its file holds the text.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import json
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tenon
from tenon import _C, _program
from tenon._program import (
    BUFFER,
    COMMON,
    DEAD,
    FOLD,
    FREEZE,
    PARAMETER,
    Program,
    foreign,
    jit_names,
    methods,
    script_file,
)
from tenon._program import note as _notes
from tenon._program import script as _script
from tenon._program.jit_names import (  # noqa: F401 - PyTorch's names
    Attribute,
    CompilationUnit,
    Error,
    Final,
    Future,
    _overload,
    _overload_method,
    _unwrap_optional,
    annotate,
    enable_onednn_fusion,
    fork,
    fuser,
    onednn_fusion_enabled,
    optimized_execution,
    run_frozen_optimizations,
    set_fusion_strategy,
    strict_fusion,
    wait,
)
from tenon._program.script import NotSupportedError, UnsupportedNodeError
from tenon._program.trace_check import check_again, constants_of, same_constants
from tenon._program.traced import Layout, Recording, TracerWarning, warn_of_constants
from tenon._program.weak_cache import weakly_cached
from tenon._program.widen import Origin, take_weights
from tenon.io import atomic
from tenon.io.errors import FileFormatError
from tenon.nn import Module
from tenon.utils import _pytree

__all__ = [
    "Attribute", "CompilationUnit", "Error", "enable_onednn_fusion", "fuser",
    "onednn_fusion_enabled", "optimized_execution", "run_frozen_optimizations",
    "set_fusion_strategy", "strict_fusion",
    "Final", "Future", "NotSupportedError", "RecursiveScriptModule", "ScriptFunction",
    "ScriptModule", "TopLevelTracedModule", "TracedModule", "TracerWarning",
    "UnsupportedNodeError", "annotate", "export", "fork", "freeze", "ignore", "interface",
    "is_scripting", "is_tracing", "isinstance", "load",
    "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip


class TracingCheckError(RuntimeError):
    """A traced program computes something else than the function."""


def is_scripting() -> bool:
    """Whether a script runs."""
    return _scripts.depth > 0


def is_tracing() -> bool:
    """Whether the calling thread's operators are being recorded."""
    return _C._program_is_recording()


# ---- What was traced -----------------------------------------------------------------------------


class _Scripts(threading.local):
    """Scripts that were called while the thread traced, and how often each looked at values."""

    def __init__(self) -> None:
        self.called: dict[str, int] = {}
        self.depth = 0


_scripts = _Scripts()


@contextlib.contextmanager
def _script_called(name: str) -> Iterator[None]:
    """Notes a script's call in a trace: its conditions and loops are part of what is traced."""
    before = _program.looks()
    _scripts.depth += 1
    try:
        yield
    finally:
        _scripts.depth -= 1
        if not _scripts.depth and is_tracing():
            count = _program.looks() - before
            _scripts.called[name] = _scripts.called.get(name, 0) + count


class _Scripted:
    """A function that was traced through scripts. Where these look at values the program is what
    they did once, and the function is called in its stead."""

    def __init__(self, fn: Callable[..., Any], called: dict[str, int]) -> None:
        self.fn = fn
        self.looks = [name for name, count in called.items() if count]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Scripted:
        return self


class _Runs:
    """A program with structured inputs and outputs."""

    program: Program
    _inputs: Layout
    _outputs: Layout
    original_name: str
    _origin: Origin | None
    _scripted: _Scripted | None
    _differentiable: Callable[..., Any] | None  # what was traced, if it has gradients of its own
    _methods: tuple[str, ...]  # those that were traced beside forward

    def _adopt(self, program: Program, note: dict[str, Any]) -> None:
        self.__dict__["program"] = program
        self.__dict__.update(_origin=None, _scripted=None, _differentiable=None, _methods=())
        self.__dict__["_inputs"] = Layout.load(note["inputs"])
        self.__dict__["_outputs"] = Layout.load(note["outputs"])
        counts = len(self._inputs.tensors), len(self._outputs.tensors)
        if counts != (len(program.inputs), len(program.data["outputs"])):
            raise FileFormatError("the note of a program has other inputs or outputs than it takes")
        self.__dict__["original_name"] = note.get("name", "")
        self.__dict__["_names"] = note.get("arguments", [])

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        scripted = self._scripted
        if scripted is not None and scripted.looks:
            return scripted.fn(*args, **kwargs)
        tensors = self._tensors(args, kwargs)
        if self._differentiable is not None and self._wants_gradients(tensors):
            return self._differentiable(*args, **kwargs)
        try:
            results = self._run_program(tensors)
        except RuntimeError:
            if scripted is not None and not is_tracing():
                return scripted.fn(*args, **kwargs)
            results = self._run_otherwise(tensors)
            if results is None:
                raise
        return self._outputs.build(results)

    def _run_program(self, tensors: list[Any]) -> Any:
        """The program's results, recorded anew where these sizes need it."""
        try:
            return self.program(*tensors)
        except RuntimeError:
            if self._widen([t.shape for t in tensors]):
                return self.program(*tensors)
            raise

    def _wants_gradients(self, tensors: list[Any]) -> bool:
        if not tenon.is_grad_enabled() or is_tracing():
            return False
        return any(t.requires_grad for t in (*tensors, *(w for _, _, w in self.program.weights)))

    def _widen(self, shapes: list[Any] | None = None) -> bool:
        """Records anew with more sizes free: all that tensors of these shapes need, or all that
        the function takes. False: it takes none more, or is no longer what was traced."""
        origin = self._origin
        if origin is None or is_tracing():
            return False
        if shapes and [len(s) for s in shapes] != [t.ndim for t in origin.tensors]:
            return False
        wanted = origin.fixed(shapes)
        if not wanted or not origin.made(self.program):
            return False
        count = len(origin.free)
        recording = origin.free_sizes(wanted, origin.record())
        if len(origin.free) == count:
            return False
        program = recording.program
        program.optimize(DEAD)
        program.note = self.program.note
        take_weights(program, self.program)
        self.__dict__["program"] = program
        return not shapes or not origin.fixed(shapes)

    def _run_otherwise(self, tensors: list[Any]) -> Any:
        """The results by a program for such tensors alone; None: there is none."""
        origin = self._origin
        return None if origin is None else origin.run(tensors, self.program, self._outputs)

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call's arguments, which are like those of the recording."""
        given = self._arguments(args, kwargs)
        layout, tensors = Layout.of(given, "inputs of a program")
        if not layout.matches(self._inputs):
            given = _in_order(self._inputs.spec, given)
            layout, tensors = Layout.of(given, "inputs of a program")
        if not layout.matches(self._inputs):
            wanted = _pytree.treespec_pprint(self._inputs.spec)
            raise RuntimeError(
                f"{self.original_name}: the program was recorded for arguments like {wanted} (* is "
                f"a tensor or {[v for v in self._inputs.fixed if v is not None]}), and was called "
                f"with {_pytree.treespec_pprint(layout.spec)}"
            )
        return tensors

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Named arguments go where they were when the program was recorded."""
        args, kwargs = list(args), dict(kwargs)
        recorded = self._inputs.spec.child(1)
        for name in self._names[len(args) :]:
            if name in kwargs and name not in recorded.context:
                args.append(kwargs.pop(name))
        if recorded.context and not kwargs:  # recorded by name, called by position
            first = self._inputs.spec.child(0).num_children
            for name in recorded.context:
                place = self._names.index(name) if name in self._names else len(args)
                if first <= place < len(args):
                    kwargs[name] = args[place]
            args = args[: len(args) - len(kwargs)]
        if recorded.context and set(recorded.context) == set(kwargs):
            kwargs = {k: kwargs[k] for k in recorded.context}
        return tuple(args), kwargs

    @property
    def graph(self) -> Program:
        """The program, whose text shows every operator."""
        return self.program

    inlined_graph = graph

    @property
    def code(self) -> str:
        return str(self.program)

    def graph_for(self, *args: Any, **kwargs: Any) -> Program:
        """The program, which is the same for all arguments."""
        return self.program

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None) -> bytes:
        return _saved(self, _extra_files)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        methods.refuse_several(self, "copy.deepcopy")
        made = _of_program(_program.load(self.program.to_bytes()), type(self))
        memo[id(self)] = made
        return made.train(self.training) if isinstance(made, ScriptModule) else made


def _in_order(spec: Any, value: Any) -> Any:
    """The value, its dicts in the order of their keys in a structure."""
    if spec.type is dict and type(value) is dict and value.keys() == set(spec.context):
        pairs = zip(spec.context, spec.children(), strict=True)
        return {key: _in_order(child, value[key]) for key, child in pairs}
    if spec.type in (tuple, list) and type(value) is spec.type and len(value) == spec.num_children:
        return spec.type(map(_in_order, spec.children(), value))
    return value


class ScriptFunction(_Runs):
    """A function that was traced."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.original_name

    def __repr__(self) -> str:
        return f"<ScriptFunction {self.original_name}>"


class _Named(Module):
    """A module that prints as the one that it was traced from."""

    original_name: str

    def _get_name(self) -> str:
        return self.original_name

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"


class ScriptModule(_Runs, _Named):
    """A module that was traced: parameters and buffers have the names they had."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def _set_children(self, kinds: dict[str, str]) -> None:
        """The modules that were traced through, those without weights too."""
        for path, kind in kinds.items():
            owner, _, name = path.rpartition(".")
            child = _Named()
            child.__dict__["original_name"] = kind
            self.get_submodule(owner).add_module(name, child)

    def _set_weights(self, program: Program) -> None:
        for name, kind, tensor in program.weights:
            if not name:
                continue
            owner: Module = self
            *path, last = name.split(".")
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, Module())
                owner = owner._modules[part]
            if kind == PARAMETER:
                owner.register_parameter(last, tensor)
            elif kind == BUFFER:
                owner.register_buffer(last, tensor)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        raise RuntimeError(
            f"{self.original_name}: a program keeps the device and dtype it was recorded with; "
            "move the module and trace it again"
        )


RecursiveScriptModule = TracedModule = ScriptModule


class TopLevelTracedModule(ScriptModule):
    """What `trace` makes of a module."""


# ---- Tracing -------------------------------------------------------------------------------------


def _as_tuple(example: Any) -> tuple[Any, ...]:
    return tuple(example) if isinstance(example, (tuple, list)) else (example,)


def _free_batch(origin: Origin, recording: Recording) -> Recording:
    """Makes the first size of the inputs free where they share it and the function allows it."""
    sizes = {t.shape[0] for t in origin.tensors if t.ndim}
    places = tuple((i, 0) for i, t in enumerate(origin.tensors) if t.ndim)
    if len(sizes) != 1 or 0 in sizes:
        return recording
    return origin.free_sizes([places], recording)


def trace(
    func: Callable[..., Any],
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Calls `func` with the example inputs, and returns what runs the operators that it called.

    Python is left out from then on: its conditions and loops are what they were. The first size of
    the inputs may differ where it is the same for all of them and the function takes another. A
    call with other sizes, and `save`, record anew with the sizes free that the function takes.
    """
    if isinstance(func, _Runs) and not isinstance(func, (_Script, _ScriptedModule)):
        return func
    _scripts.called.clear()
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("trace() needs example_inputs")
    args = () if example_inputs is None else _as_tuple(example_inputs)
    kwargs = example_kwarg_inputs or {}
    own_gradients = foreign.state.gradients
    recording, origin = Recording(func, args, kwargs), None
    methods.check_results(recording.outputs, strict)
    own_gradients -= foreign.state.gradients
    first, constants = str(recording.program), constants_of(recording.program)
    count = recording.program.reads[0]
    scripts = dict(_scripts.called)
    if count > sum(scripts.values()):
        warn_of_constants(recording.program, stacklevel=3)
    elif not kwargs and not count:
        origin = Origin(func, recording.layout, Layout.of((args, {}), "inputs of a trace")[1])
        recording = _free_batch(origin, recording) if check_trace else recording
    if check_trace and not kwargs and not any(scripts.values()):
        again = check_again(recording, func, args, check_tolerance)
        if str(again) != first or not same_constants(constants_of(again), constants):
            raise TracingCheckError(
                "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n"
                "The function keeps state that is no parameter or buffer, or takes another course "
                "each time"
            )
        for more in check_inputs or ():
            check_again(recording, func, _as_tuple(more), check_tolerance)
    recording.program.optimize(DEAD)
    made = _wrap(func, recording)
    made.__dict__.update(_origin=origin, _scripted=_Scripted(func, scripts) if scripts else None)
    made.__dict__["_differentiable"] = func if own_gradients else None
    return made


def _argument_names(func: Any) -> list[str]:
    target = func.forward if isinstance(func, Module) else func
    try:
        return [
            p.name
            for p in inspect.signature(target).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
    except (TypeError, ValueError):
        return []


def _kind(module: Module) -> str:
    return getattr(module, "original_name", type(module).__name__)


def _wrap(func: Any, recording: Recording) -> Any:
    is_module = isinstance(func, Module)
    name = type(func).__name__ if is_module else getattr(func, "__name__", type(func).__name__)
    note = recording.note(
        kind="module" if is_module else "function",
        name=name,
        arguments=_argument_names(func),
        training=bool(getattr(func, "training", False)),
        modules=[(n, _kind(m)) for n, m in func.named_modules() if n] if is_module else [],
        grads=[n for n, p in func.named_parameters() if p.requires_grad] if is_module else [],
        extra={},
    )
    recording.program.note = note
    made = _of_program(recording.program, TopLevelTracedModule)
    if is_module:
        methods.keep_parts(made, func, lambda part: isinstance(part, _ScriptedModule))
    return made


def _of_program(program: Program, kind_of_module: type[ScriptModule] = ScriptModule) -> Any:
    note = _notes.of(program)
    if note["kind"] == "script":
        return script_file.read(program, note)
    made = kind_of_module() if note["kind"] == "module" else ScriptFunction()
    with _notes.refused("the file holds a program that jit has not made"):
        made._adopt(program, note)
        if isinstance(made, ScriptModule):
            made._set_children(dict(note.get("modules", ())))
            _notes.claim_parameters(program, note)
            made._set_weights(program)
            made.train(note.get("training", False))
    return made


def trace_module(mod: Module, inputs: dict[str, Any], **options: Any) -> Any:
    """trace of a module's methods, by name, each with its inputs. A file holds forward alone."""
    if set(inputs) != {"forward"}:
        return methods.trace_each(trace, mod, inputs, **options)
    return trace(mod, inputs["forward"], **options)


# ---- Files ---------------------------------------------------------------------------------------


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Writes what was traced or scripted as a .tng file, to a path or a file object; with it
    _extra_files, by name, which are bytes or texts."""
    texts = {
        k: v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v
        for k, v in (_extra_files or {}).items()
    }
    methods.refuse_to_write(m, "jit.save")
    if isinstance(m, (_Script, _ScriptedModule)):
        program, note = script_file.program_of(m, m.original_name)
    elif not isinstance(m, _Runs):
        what = getattr(m, "__name__", type(m).__name__)
        raise RuntimeError(f"jit.save: {what} was not traced: use jit.trace")
    elif m._scripted is not None and m._scripted.looks:
        return save(script(m._scripted.fn), f, _extra_files)
    else:
        if m._differentiable is not None:
            warnings.warn(
                f"jit.save: {m.original_name} calls an autograd.Function, whose backward no file "
                "holds: gradients of what is loaded follow from the operators of its forward",
                TracerWarning,
                stacklevel=2,
            )
        m._widen()
        program, note = m.program, json.loads(m.program.note)
    program.note = json.dumps({**note, "extra": texts}, sort_keys=True)
    try:
        data = program.to_bytes()
    finally:
        program.note = json.dumps(note, sort_keys=True)
    if isinstance(f, (str, os.PathLike)):
        atomic.replace(f, data)
    else:
        f.write(data)


def _saved(m: Any, extra_files: dict[str, Any] | None) -> bytes:
    file = io.BytesIO()
    save(m, file, extra_files)
    return file.getvalue()


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **options: Any
) -> Any:
    """What save wrote, here or in PyTorch. Weights of a path are mapped, and read when they are
    used. A file that is damaged, or of another program, is a serialization.FileFormatError."""
    from tenon._program import archive

    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    if archive.is_archive(f):
        return archive.load(f, map_location, _extra_files)
    if map_location is not None and tenon.device(map_location).type != "cpu":
        raise NotImplementedError(
            "jit.load: a program keeps its device; map_location can only be 'cpu'"
        )
    program = _notes.read(f, "jit.load")
    made = _of_program(program)
    note = json.loads(program.note)
    if _extra_files is not None:
        for name in _extra_files:
            text = note.get("extra", {}).get(name, "")
            _extra_files[name] = text.encode("utf-8", "surrogateescape")
    return made


def freeze(
    mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> Any:
    """A copy whose parameters are constants, with what depends on them alone computed where it was
    traced. Of what was scripted parameters that are preserved stay such."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    kept = list(preserved_attrs or ())
    if isinstance(mod, _ScriptedModule):
        twin = _script.copy_of(mod, _scripted_class, {}, layers=True)  # of the same memory
        jit_names.hidden_weights(twin, kept)
        return twin
    program = _program.load(mod.program.to_bytes())
    program.optimize(FREEZE | FOLD | COMMON | DEAD)
    made = _of_program(program)
    made.eval()
    return made


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """freeze."""
    return freeze(mod)


# ---- Scripts -------------------------------------------------------------------------------------


def _called(name: str, call: Any, source: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Calls a script. What it raises or asserts is an Error for those that are no scripts."""
    try:
        with _script_called(name):
            return call(*args, **kwargs)
    except Exception as err:
        if isinstance(err, TypeError):
            _check_arguments(source, args, kwargs)
        if _scripts.depth or not jit_names.is_raised(err):
            raise
        raise Error(f"{type(err).__name__}: {err}") from err


class _Script(ScriptFunction):
    """A function whose source is sound."""

    def __init__(self, fn: Callable[..., Any], source: Any) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._source = fn, source
        self.original_name = fn.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self.original_name, self._fn, self._fn, args, kwargs)

    @property
    def name(self) -> str:
        return self.original_name

    @property
    def code(self) -> str:
        return _script.text_of(self._source)

    @property
    def graph(self) -> Any:
        return _script.ScriptGraph(self._source.tree)

    inlined_graph = graph

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None) -> bytes:
        return _saved(self, _extra_files)

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        save(self, f, _extra_files)

    def __reduce__(self) -> Any:
        raise pickle.PickleError(f"{self.original_name} was scripted, and cannot be pickled")

    def __deepcopy__(self, memo: Any) -> _Script:
        return self


_Script.__name__ = _Script.__qualname__ = "ScriptFunction"


class _ScriptedModule:
    """What a scripted module has beside what its class gives it."""

    _apply = Module._apply

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(Module.__call__, self)  # type: ignore[arg-type]
        forward = self.forward  # type: ignore[attr-defined]
        return _called(self.original_name, call, forward, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy._reconstruct(self, memo, *self.__reduce_ex__(4))  # type: ignore[attr-defined]

    @property
    def original_name(self) -> str:
        return type(self).__name__

    @property
    def code(self) -> str:
        return _script.text_of(_script.forward_source(type(self).forward))

    @property
    def graph(self) -> Any:
        return _script.ScriptGraph(_script.forward_source(type(self).forward).tree)

    inlined_graph = graph

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        save(self, f, _extra_files)


@weakly_cached
def _scripted_class(kind: type) -> type:
    if issubclass(kind, _ScriptedModule):
        return kind
    bases = (ScriptModule,) if issubclass(ScriptModule, kind) else (kind, ScriptModule)
    return type(kind.__name__, (_ScriptedModule, *bases), {"__module__": kind.__module__})


def _check_arguments(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """RuntimeError, as scripts raise it, for a call with other arguments than fn has."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as err:
        raise RuntimeError(f"{fn.__name__}(): {err}") from None


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, or a module with the same parameters, once its source has been looked through.

    It runs as Python. What TorchScript has no words for is an error that shows the line.
    """
    if isinstance(obj, (_Runs, _ScriptedModule, type)):
        return obj
    if isinstance(obj, Module):
        _script.check_module(obj, set())
        made = _script.copy_of(obj, _scripted_class, {})
        jit_names.attributes_as_values(made)
        return made
    fn = _script.function_of(obj)
    return _Script(obj, _script.check(fn, set()))


def _marked(modifier: str, fn: Any) -> Any:
    if callable(fn) and hasattr(fn, "__dict__"):
        fn._torchscript_modifier = modifier
        return fn
    return lambda f: _marked(modifier, f)


def ignore(drop: Any = False, **options: Any) -> Any:
    """Marks a function that a script may call whatever it is made of; drop: that none calls."""
    if drop is True or options:
        return unused if drop else ignore
    return _marked("ignore", drop)


def unused(fn: Any) -> Any:
    """Marks a function that no script calls: one that does raises."""
    if isinstance(fn, property):
        return property(*(f and unused(f) for f in (fn.fget, fn.fset, fn.fdel)))
    if isinstance(fn, type) or not callable(fn):
        return _marked("unused", fn)
    return _marked("unused", jit_names.not_to_be_called(fn, lambda: _scripts.depth > 0))


def export(fn: Any) -> Any:
    """Marks a method that is looked through although forward does not call it."""
    return _marked("export", fn)


def script_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a method of a ScriptModule, whose source is looked through."""
    _script.Source(_script.function_of(fn)).check()
    return fn


def interface(obj: type) -> type:
    """Marks a class that says which methods others have: nothing is checked."""
    if not isinstance(obj, type):
        raise RuntimeError("interface must be applied to a class")
    return obj


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is a script where it is traced."""
    traced = _script_called(fn.__name__)(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (traced if is_tracing() else fn)(*args, **kwargs)

    return call


_script_if_tracing, _fork, _wait = script_if_tracing, fork, wait


def __getattr__(name: str) -> Any:
    if name == "isinstance":  # whose name the functions here mean Python's by
        from tenon._program.kinds import is_instance

        return is_instance
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
