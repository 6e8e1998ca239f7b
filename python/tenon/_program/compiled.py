"""Compiled functions with a backend: graphs that stand for calls as long as guards hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenon
from tenon import _program
from tenon._program import COMMON, DEAD
from tenon._program.as_fx import graph_module
from tenon._program.traced import Layout, input_names, weights_of
from tenon._program.watch import Watch, closure_token, token

_MOST = 8  # graphs of one function; beyond that it runs as Python


@dataclass
class Entry:
    """A graph and when it stands for a call."""

    key: Any
    globals: list[tuple[dict[str, Any], str, Any]]
    outputs: Layout
    run: Callable[..., Any]
    graph: Any

    def holds(self, key: Any) -> bool:
        return self.key == key and all(token(g.get(n)) == t for g, n, t in self.globals)


@dataclass
class Report:
    """What a compiled function has done so far."""

    graphs: list[Any] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    op_count: int = 0


def _tensor_key(t: Any) -> Any:
    return t.dtype, tuple(t.shape), t.stride(), t.device, t.requires_grad


def _modes() -> Any:
    cast = tenon.is_autocast_enabled("cpu") and tenon.get_autocast_dtype("cpu")
    return (
        tenon.is_grad_enabled(),
        tenon.is_inference_mode_enabled(),
        cast,
        tenon.get_default_dtype(),
    )


def _has_effects(program: Any) -> bool:
    """Whether a second run would change something again: writes, random numbers."""
    return any(
        node["random"] or node["in_place"] or node["wrote"] or any(g >= 0 for g in node["given"])
        for node in program.data["nodes"]
    )


class Compiled:
    """Calls of one function by graphs that a backend has seen."""

    def __init__(
        self, fn: Callable[..., Any], backend: Callable[..., Any], fullgraph: bool, options: Any
    ) -> None:
        self.fn, self.backend, self.fullgraph, self.options = fn, backend, fullgraph, options
        self.entries: list[Entry] = []
        self.report = Report()
        self.given_up = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.given_up or tenon._C._program_is_recording():
            return self.fn(*args, **kwargs)
        try:
            layout, tensors = Layout.of((args, kwargs), "arguments")
        except RuntimeError as err:
            return self._as_python(str(err), args, kwargs)
        if len({id(t) for t in tensors}) != len(tensors):
            return self._as_python("one tensor comes twice", args, kwargs)
        key = (
            layout.spec, [(type(v), v) for v in layout.fixed], layout.tensors,
            [_tensor_key(t) for t in tensors], _modes(), closure_token(self.fn),
        )  # fmt: skip
        for entry in self.entries:
            if entry.holds(key):
                return entry.outputs.build(entry.run(*tensors))
        if len(self.entries) >= _MOST:
            self.given_up = True
            return self.fn(*args, **kwargs)
        return self._record(key, args, kwargs, tensors)

    def _as_python(self, reason: str, args: Any, kwargs: Any) -> Any:
        if self.fullgraph:
            from tenon._torch._dynamo.exc import Unsupported

            raise Unsupported(f"fullgraph=True, and the function is no graph: {reason}")
        if reason not in self.report.breaks:
            self.report.breaks.append(reason)
        return self.fn(*args, **kwargs)

    def _record(self, key: Any, args: Any, kwargs: Any, tensors: Sequence[Any]) -> Any:
        kept: list[Any] = []

        def call() -> list[Any]:
            with watch:
                result = self.fn(*args, **kwargs)
            kept.append(result)
            layout, flat = Layout.of(result, "results")
            kept.append(layout)
            return flat

        watch = Watch()
        owner = getattr(self.fn, "__self__", self.fn)
        names = input_names(self.fn, args, kwargs)
        if len(names) != len(tensors):
            names = [f"x{i}" for i in range(len(tensors))]
        known = {id(t) for t in tensors}
        weights = [w for w in weights_of(owner) if id(w[2]) not in known]
        try:
            program, flat = _program.record(call, dict(zip(names, tensors, strict=True)), weights)
        except RuntimeError as err:
            if not kept:
                raise
            watch.reason = watch.reason or str(err)
        else:
            count, where = program.reads
            if count:
                watch.reason = f"a value was looked at: {where}"
        if watch.reason is not None:
            if self.fullgraph:
                return self._as_python(watch.reason, args, kwargs)
            if watch.reason not in self.report.breaks:
                self.report.breaks.append(watch.reason)
            self.given_up = True
            return kept[0]
        if not program.data["nodes"]:
            return kept[0]
        return self._compile(key, program, kept, tensors, watch)

    def _compile(
        self, key: Any, program: Any, kept: list[Any], tensors: Sequence[Any], watch: Watch
    ) -> Any:
        effects = _has_effects(program)
        program.optimize(COMMON | DEAD)
        gm = graph_module(program)
        run = self.backend(gm, list(tensors), **({"options": self.options} if self.options else {}))
        if not callable(run):
            raise TypeError(
                f"the backend returned {type(run).__name__}, and not what can be called"
            )
        seen = [(g, n, token(g.get(n))) for g, n, _ in watch.values()]
        entry = Entry(key, seen, kept[1], run, gm)
        self.entries.append(entry)
        self.report.graphs.append(gm)
        self.report.op_count += len(program.data["nodes"])
        return kept[0] if effects else kept[1].build(run(*tensors))
