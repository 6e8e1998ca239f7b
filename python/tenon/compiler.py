"""compile: functions and modules for which a compiler may stand in.

A call is recorded, and its program stands for the function as long as nothing that it depended
on has changed. A backend that is a function gets an fx.GraphModule with example inputs instead
(docs/graphs.md), and what it returns stands for the function.
"""

from __future__ import annotations

import functools
import re
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenon._C import _quick_call, _quick_stop, _QuickFunction
from tenon.nn import Module

if TYPE_CHECKING:
    from tenon._program.compiled import Compiled

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "compile",
    "cudagraph_mark_step_begin", "disable", "explain", "get_default_backend", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region",
    "register_backend", "reset", "set_default_backend", "set_stance", "wrap_numpy",
]  # fmt: skip

_BACKENDS = ("aot_eager", "cudagraphs", "eager", "inductor")
_AS_PYTHON = ("aot_eager", "eager")  # what they are given runs as it is
_MODES = ("default", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead")


class _State(threading.local):
    stance = "default"
    whole = False  # a graph that ends is an error
    as_python = 0  # functions that are running and are not to be compiled


_state = _State()
_registered: dict[str, Callable[..., Any]] = {}
_tags: dict[str, tuple[str, ...]] = dict.fromkeys(_AS_PYTHON, ("debug",))
_compiled: weakref.WeakSet[Any] = weakref.WeakSet()


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names that `compile(backend=...)` knows, without those that have one of the tags."""
    unwanted = set(exclude_tags or ())
    return sorted(b for b in (*_BACKENDS, *_registered) if not unwanted & set(_tags.get(b, ())))


def register_backend(
    compiler_fn: Callable[..., Any] | None = None, name: str | None = None, tags: Any = ()
) -> Any:
    """Gives a backend a name for `compile(backend=...)`; a decorator, too."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    known = name or compiler_fn.__name__
    if known in list_backends(()):
        raise RuntimeError(f"register_backend: there is a backend '{known}' already")
    _registered[known] = compiler_fn
    _tags[known] = tuple(tags)
    return compiler_fn


def lookup_backend(compiler_fn: Any) -> Any:
    """The function behind a backend's name."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    _check(compiler_fn, None, None)
    return _registered.get(compiler_fn, lambda gm, example_inputs: gm.forward)


def is_compiling() -> bool:
    """Whether the caller is being recorded for a backend."""
    from tenon import _C

    return _C._program_is_recording() and not _state.as_python


is_dynamo_compiling = is_compiling


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function: whatever operators it calls are recorded."""
    return fn


assume_constant_result = allow_in_graph


def nested_compile_region(fn: Callable[..., Any] | None = None, **_: Any) -> Callable[..., Any]:
    """Returns the function: its operators are recorded wherever it is called."""
    return nested_compile_region if fn is None else fn


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of NumPy as one of tensors."""
    from tenon.utils import _pytree

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import numpy as np

        import tenon

        args, kwargs = _pytree.tree_map_only(tenon.Tensor, lambda t: t.numpy(), (args, kwargs))
        made = fn(*args, **kwargs)
        return _pytree.tree_map_only((np.ndarray, np.generic), tenon.as_tensor, made)

    return wrapped


_default: list[Any] = ["inductor"]


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """What `compile` without a backend takes from here on; None: as at first."""
    _default[0] = "inductor" if backend is None else backend


def get_default_backend() -> str | Callable[..., Any]:
    """What `compile` without a backend takes."""
    return _default[0]


def is_exporting() -> bool:
    """Whether the caller is being exported or traced."""
    return is_compiling()


class OptimizedModule(Module):
    """A module whose calls a compiler may take over; all else is the module's."""

    _orig_mod: Module

    def __init__(self, mod: Module, call: Compiled | None, whole: bool = False) -> None:
        super().__init__()
        self.__dict__.pop("training", None)  # the module's own is asked
        self._modules["_orig_mod"] = mod
        self.__dict__["_ways"] = [] if call is None else call.ways
        self.__dict__["_call"] = _long_way(mod, call, whole)

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" in modules:
            modules["_orig_mod"].training = value

    def _call_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        """Hooks of its own run around the call, those of all modules in the module alone."""
        own = self._forward_hooks or self._forward_pre_hooks
        if own or self._backward_hooks or self._backward_pre_hooks:
            return self._hooked_call(args, kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = _quick_call(self._ways, args, kwargs)
        return self._call(*args, **kwargs) if result is NotImplemented else result

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod":
            return modules["_orig_mod"]
        return getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        wrapping = "_orig_mod" not in self.__dict__.get("_modules", {})
        if wrapping or name == "_orig_mod":
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod, None)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]


class CompiledForward:
    """What Module.compile puts in the place of forward. A copy of the module compiles its own; a
    pickled one is not compiled."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.call = compile(_forward_of(module), *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledForward:
        return CompiledForward(memo[id(self.module)], self.args, self.kwargs)

    def __reduce__(self) -> Any:
        return _forward_of, (self.module,)


def _forward_of(module: Module) -> Any:
    return type(module).forward.__get__(module)


def _check(backend: Any, mode: str | None, options: dict[str, Any] | None) -> None:
    if isinstance(backend, str) and backend not in list_backends(()):
        from tenon._program.errors import InvalidBackend

        raise InvalidBackend(
            f"Invalid backend: '{backend}', see `torch._dynamo.list_backends()` for available "
            f"backends: {', '.join(list_backends(()))}"
        )
    if not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"compile: backend is a name or a function, not {type(backend).__name__}")
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function or module, to be called as before. Without one, a decorator."""
    backend = get_default_backend() if backend is None else backend
    _check(backend, mode, options)
    if model is None:
        return lambda fn: compile(
            fn, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
            disable=disable,
        )  # fmt: skip
    if not callable(model):
        raise RuntimeError(f"compile: expected a function or module, got {type(model).__name__}")
    if disable:
        return model
    call = None
    backend = _registered.get(backend, backend) if isinstance(backend, str) else backend
    if backend not in _AS_PYTHON:
        from tenon._program.compiled import Compiled

        own = isinstance(backend, str)
        call = Compiled(model, None if own else backend, fullgraph and not own, options, dynamic)
        _compiled.add(call)
    if isinstance(model, Module):
        return OptimizedModule(model, call, fullgraph)
    return _function(model, call, fullgraph)


def _long_way(
    fn: Callable[..., Any], call: Compiled | None, whole: bool = False
) -> Callable[..., Any]:
    """Calls what was compiled where no short way serves, or the function itself; `whole`: that is
    asked for no end of its graph."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if call is None or call.given_up or _stance() == "force_eager":
            return fn(*args, **kwargs)
        return call(*args, **kwargs)

    def without_breaks(*args: Any, **kwargs: Any) -> Any:
        before = _state.whole
        _state.whole = _stance() != "force_eager"
        try:
            return chosen(*args, **kwargs)
        finally:
            _state.whole = before

    return without_breaks if whole else fn if call is None else chosen


def refuse_break() -> None:
    """Raises where a graph ends in a function that was to be one."""
    if _state.whole:
        from tenon._program.errors import Unsupported

        raise Unsupported("Call to `torch._dynamo.graph_break()`: fullgraph=True")


class CompiledFunction(_QuickFunction):
    """A function for which a compiler may stand in."""

    _torchdynamo_orig_callable: Callable[..., Any]
    _compiled: Compiled | None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__  # as a function's: where it is found

    def __repr__(self) -> str:
        return f"<compiled {self._torchdynamo_orig_callable!r}>"


def _function(
    fn: Callable[..., Any], call: Compiled | None, whole: bool = False
) -> Callable[..., Any]:
    ways, other = [] if call is None else call.ways, _long_way(fn, call, whole)
    compiled = functools.update_wrapper(CompiledFunction(ways, other), fn)
    compiled._torchdynamo_orig_callable = fn
    compiled._compiled = call
    return compiled


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """The function as it was before it was compiled; whoever calls it runs as Python, too."""
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if isinstance(fn, OptimizedModule):
        return fn._orig_mod
    inner = _inner(fn)
    if isinstance(inner, (Module, type)) or not callable(inner):
        return inner

    @functools.wraps(inner)
    def as_python(*args: Any, **kwargs: Any) -> Any:
        from tenon import _C

        if _C._program_is_recording():
            from tenon._program import foreign

            name = getattr(inner, "__qualname__", type(inner).__name__)
            foreign.give_up(f"{name} is not to be compiled{f' ({reason})' if reason else ''},")
        _state.as_python += 1
        try:
            return inner(*args, **kwargs)
        finally:
            _state.as_python -= 1

    as_python._torchdynamo_orig_callable = inner  # type: ignore[attr-defined]
    as_python._torchdynamo_disable = True  # type: ignore[attr-defined]
    return as_python


def _inner(fn: Any) -> Any:
    """The function under what compile and disable have made of it."""
    if isinstance(fn, OptimizedModule):
        return fn._orig_mod
    return getattr(fn, "_torchdynamo_orig_callable", fn)


def reset() -> None:
    """Forgets all graphs."""
    for call in list(_compiled):
        call.reset()


class set_stance:  # noqa: N801 - PyTorch's name
    """What compiled functions do from here on, or in a `with`: "default"; "force_eager" runs them
    as they are; "eager_on_recompile" and "fail_on_recompile" where a call has no graph yet."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
                 force_backend: Any = None) -> None:  # fmt: skip
        known = ("default", "eager_on_recompile", "fail_on_recompile", "force_eager")
        if stance not in known:
            raise RuntimeError(
                f"invalid torch.compile stance '{stance}': one of {', '.join(known)}"
            )
        self.before = _stance()
        _set_stance(stance)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        _set_stance(self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a function run in that stance; outside of it the former one is back."""
        stance = _stance()
        _set_stance(self.before)

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return fn(*args, **kwargs)

        return wrapper


def _set_stance(stance: str) -> None:
    _state.stance = stance
    _quick_stop(stance == "force_eager")


def _stance() -> str:
    return _state.stance


def cudagraph_mark_step_begin() -> None:
    """Says that a step begins: no memory is shared between steps here."""


@dataclass
class GraphCompileReason:
    """Why a graph ends, and where in the program."""

    reason: str
    user_stack: list[traceback.FrameSummary]
    graph_break: bool = True

    @classmethod
    def of(cls, told: str) -> GraphCompileReason:
        """From a text that may hold a place: `FILE:LINE, in FUNCTION`, or as tracebacks have it."""
        place = re.search(r'(?: at |File ")(\S[^"\n]*?)(?::|", line )(\d+), in (\S+)', told)
        found = [traceback.FrameSummary(place[1], int(place[2]), place[3])] if place else []
        return cls(told, found)


class Explanation:
    """What became of a call: graphs, and why parts of it run as Python."""

    def __init__(self, report: Any) -> None:
        self.graphs = report.graphs
        self.break_reasons = [GraphCompileReason.of(told) for told in report.breaks]
        self.graph_count, self.graph_break_count = len(report.graphs), len(report.breaks)
        self.op_count = report.op_count
        self.ops_per_graph = [
            [n.target for n in gm.graph.nodes if n.op == "call_function"] for gm in report.graphs
        ]
        whole = len(report.programs) == 1 and not report.breaks
        self.fused: list[str] = report.programs[0].groups() if whole else []

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}"]
        lines += [f"Op Count: {self.op_count}", "Break Reasons:"]
        for i, broke in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {broke.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in broke.user_stack]
        lines.append("Ops per Graph:")
        for i, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {i}:", *(f"    {op}" for op in ops)]
        return "\n".join([*lines, *(f"  runs as {f}" for f in self.fused)]) + "\n"


def explain(fn: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(fn)(x)`: what was recorded of the call, and what was not and why."""
    from tenon._program.compiled import Compiled

    def inner(*args: Any, **kwargs: Any) -> Explanation:
        call = Compiled(_inner(fn), lambda gm, inputs: gm.forward, False, None)
        call(*args, **kwargs)
        return Explanation(call.report)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner
