"""A module whose methods are traced beside forward: a program for each, of the same weights."""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tenon._program.traced import Layout, TracerWarning
from tenon.utils import _pytree

_CONSTANT = (
    " at the output of the tracer might cause the trace to be incorrect, this is only valid if the "
    "container structure does not change based on the module's inputs. Consider using a constant "
    "container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` "
    "instead). If you absolutely need this and know the side effects, pass strict=False to trace() "
    "to allow this behavior."
)


def _with_forward(module: Any, name: str) -> Any:
    """A module of the same parameters, buffers and parts whose forward is that method."""
    method = getattr(module, name)
    twin = copy.copy(module)
    if hasattr(method, "__func__"):
        method = types.MethodType(method.__func__, twin)
    twin.__dict__["forward"] = method
    return twin


def trace_each(trace: Callable[..., Any], module: Any, inputs: dict[str, Any], **how: Any) -> Any:
    """What was traced of forward, with the other methods as attributes."""
    traces = {name: trace(_with_forward(module, name), x, **how) for name, x in inputs.items()}
    made = traces.pop("forward", None)
    if made is None:
        made = trace(_with_forward(module, next(iter(inputs))), next(iter(inputs.values())), **how)
        made.__dict__["forward"] = functools.partial(_no_forward, made.original_name)
    made.__dict__.update(traces, _methods=tuple(traces))
    return made


def refuse_several(made: Any, what: str) -> None:
    """An error for what has methods beside forward, of which what is written would lose them."""
    others = getattr(made, "_methods", ())
    if others:
        raise NotImplementedError(
            f"{what}: {made.original_name} was traced with {', '.join(others)} beside forward, and "
            "what is written holds one program: trace each method for itself"
        )


def refuse_to_write(made: Any, what: str) -> None:
    """An error for that, and for what was read from PyTorch's own format."""
    refuse_several(made, what)
    if getattr(made, "_archive_kind", None) is not None:
        raise RuntimeError(
            f"{what}: {made.original_name} comes from a TorchScript archive, which is read and not "
            "written: save what jit.trace makes of it"
        )


def _no_forward(name: str, *args: Any, **kwargs: Any) -> Any:
    raise AttributeError(f"'{name}' object has no attribute 'forward': it was not traced")


def keep_parts(made: Any, module: Any, is_script: Callable[[Any], bool]) -> None:
    """Scripts that were traced through stay parts of what was traced, with their code."""
    for path, part in module.named_modules():
        owner = made.get_submodule(path.rpartition(".")[0]) if path else None
        if owner is not None and is_script(part) and not is_script(owner):
            owner._modules[path.rpartition(".")[2]] = part


def _containers(spec: _pytree.TreeSpec) -> Iterator[type]:
    """The kinds of containers in a structure."""
    if not spec.is_leaf():
        yield spec.type
        for child in spec.children():
            yield from _containers(child)


def check_results(results: Layout, strict: bool) -> None:
    """A warning of lists among a trace's results, whose length may change. RuntimeError: there is
    no tensor, or a dict, whose keys may."""
    if not results.tensors:
        raise RuntimeError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from "
            "traced functions"
        )
    kinds = set(_containers(results.spec)) if strict else set()
    if dict in kinds:
        raise RuntimeError("Encountering a dict" + _CONSTANT)
    if list in kinds:
        warnings.warn("Encountering a list" + _CONSTANT, TracerWarning, stacklevel=3)
