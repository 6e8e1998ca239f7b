"""Calls of operators on DTensors.

A rule looks at layouts and says which layout each tensor needs, and which the results have; then
the operator runs on the parts. An operator without a rule runs on the whole tensors, in every
process. Either way the numbers are those of one process.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tenon
from tenon import Tensor
from tenon._tape.overridable import asks_classes
from tenon._tensor.called import name_of, writes_first, written_by
from tenon._tensor.methods import DisableTorchFunctionSubclass
from tenon.distributed.tensor._redistribute import Layout, Spec, move, redistribute, spread
from tenon.distributed.tensor.placement_types import Placement, Replicate, _StridedShard

__all__: list[str] = []

_modes = threading.local()


@contextmanager
def implicit_replication() -> Iterator[None]:
    """Inside it tensors beside DTensors count as replicated."""
    before = getattr(_modes, "implicit", False)
    _modes.implicit = True
    try:
        yield
    finally:
        _modes.implicit = before


@dataclass
class Call:
    """One call of an operator: its name without the underscore of in-place forms, and arguments."""

    func: Callable[..., Any]
    name: str
    inplace: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[Any]  # DTensors among the arguments, in order
    mesh: Any

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its place or its name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


@dataclass
class Plan:
    """What a rule says. `wanted`: a layout for each tensor; `layout` and `shape`: those of each
    result; `run`: what is called with the parts instead of the operator."""

    wanted: list[Layout]
    layout: Layout
    shape: tuple[int, ...] | list[tuple[int, ...]]
    run: Callable[..., Any] | None = None


EQUAL_PARTS: Any = object()  # as the shape of a plan: a batch of equal parts

# A rule returns a plan, or None: the whole tensors are needed. A composite returns the result.
RULES: dict[str, Callable[[Call], Plan | None]] = {}
COMPOSITES: dict[str, Callable[..., Any]] = {}
TAKE_PLAIN: set[str] = set()  # functions of Python that take tensors that every process has
# Operators that work element by element on lists, or on what has one layout.
_ON_PARTS = frozenset((
    "_adam_", "_sgd_", "_lists_", "_rule_", "_scale_", "_unscale_", "requires_grad_", "detach_",
    "retain_grad", "is_same_size", "is_pinned", "is_shared", "share_memory_", "is_set_to",
    "record_stream",
))  # fmt: skip
_LIKE = frozenset(("zeros_like", "ones_like", "empty_like", "full_like"))
_VIEWS = frozenset(("squeeze", "unsqueeze", "transpose", "swapaxes", "swapdims", "t"))
_RANDOM = frozenset((
    "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "geometric_",
    "log_normal_",
))  # fmt: skip


def _dtensor() -> Any:
    from tenon.distributed.tensor import _api

    return _api


def _mapped(value: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, dict):
        return {k: _mapped(v, fn) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) is not tenon.Size:
        items = [_mapped(v, fn) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _as_dtensor(t: Tensor, mesh: Any, name: str) -> Any:
    api = _dtensor()
    if isinstance(t, api.DTensor):
        if t.device_mesh is not mesh and t.device_mesh != mesh:
            raise RuntimeError(f"{name}(): the DTensors lie on different meshes")
        return t
    if t.ndim == 0 or getattr(_modes, "implicit", False):
        return api.make(t, Spec(mesh, (Replicate(),) * mesh.ndim, tuple(t.shape)))
    raise RuntimeError(
        f"{name}(): got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
        "DTensor before calling distributed operators!"
    )


def own_part(whole: Tensor, spec: Spec) -> Tensor:
    """This rank's part of what every rank has."""
    replicated = spec.with_layout((Replicate(),) * len(spec.placements))
    return move(whole, replicated, spec.placements)


def wrap(result: Any, mesh: Any, layout: Layout, shape: Any = None) -> Any:
    """The tensors of a result as DTensors of a layout; shapes are the parts' unless given."""
    make = _dtensor().make
    if isinstance(result, Tensor):
        if shape is EQUAL_PARTS:  # dimension 0 is cut into them
            parts = math.prod(n for n, p in zip(mesh.shape, layout, strict=True) if p.is_shard(0))
            shape = (result.shape[0] * parts, *result.shape[1:])
        return make(result, Spec(mesh, layout, tuple(result.shape) if shape is None else shape))
    if isinstance(result, (list, tuple)) and type(result) is not tenon.Size:
        shapes = shape if isinstance(shape, list) else [shape] * len(result)
        items = [wrap(r, mesh, layout, s) for r, s in zip(result, shapes, strict=True)]
        return type(result)(items)
    return result


def _prepare(call: Call, plan: Plan) -> list[Tensor]:
    """The parts of the tensors as the plan wants them."""
    prepared = []
    for t, wanted in zip(call.tensors, plan.wanted, strict=True):
        local = redistribute(t.as_subclass(Tensor), t._spec, wanted)
        groups = [
            (call.mesh.get_group(d), out.is_partial("avg"))
            for d, (mine, out) in enumerate(zip(wanted, plan.layout, strict=True))
            if mine.is_replicate() and not out.is_replicate()
        ]
        prepared.append(spread(local, groups))
    return prepared


def execute(call: Call, plan: Plan) -> Any:
    """Runs the operator on parts."""
    run = plan.run or call.func
    with DisableTorchFunctionSubclass():
        parts = _prepare(call, plan)
        if call.inplace:
            parts[0] = call.args[0]
        rest = iter(parts)
        args, kwargs = _mapped((call.args, call.kwargs), lambda t: next(rest))
        result = run(*args, **kwargs)
        if call.inplace:
            return call.args[0]
        return wrap(result, call.mesh, plan.layout, plan.shape)


def whole_plan(call: Call) -> Plan:
    """Every process has all of the tensors."""
    layout: Layout = (Replicate(),) * call.mesh.ndim
    return Plan([layout] * len(call.tensors), layout, None)  # type: ignore[arg-type]


def _fits(call: Call, plan: Plan) -> bool:
    """Whether the parts of a tensor can be written to as they lie."""
    target = call.args[0]
    layouts = (plan.wanted[0], plan.layout)
    return layouts == (target.placements,) * 2 and plan.shape == target._spec.shape


def _view_in_place(call: Call, plan: Plan | None) -> Any:
    """A tensor takes other dimensions, all of which lie where they lay."""
    target = call.args[0]
    if plan is None and not target.ndim:
        plan = Plan([], target.placements, ())
    elif plan is None or plan.wanted[0] != target.placements:
        raise RuntimeError(
            f"{call.name}_(): a dimension that is cut does not stay so; "
            f"use {call.name}(), which may move it"
        )
    args = call.args
    if call.name == "squeeze":  # parts may be of one row where the whole is not
        shape = target._spec.shape
        given = call.argument(1, "dim", tuple(range(len(shape))))
        dims = given if isinstance(given, (tuple, list)) else (given,)
        args = (target, tuple(d for d in dims if not shape or shape[d] == 1))
    with DisableTorchFunctionSubclass():
        call.func(*args, **({} if call.name == "squeeze" else call.kwargs))
    target._spec = Spec(call.mesh, plan.layout, plan.shape)  # type: ignore[arg-type]
    return target


def _execute_whole(call: Call) -> Any:
    """An operator without a rule."""
    if not call.inplace:
        return execute(call, whole_plan(call))
    target = call.args[0]
    with DisableTorchFunctionSubclass():
        whole = (Replicate(),) * call.mesh.ndim
        wholes = [redistribute(t.as_subclass(Tensor), t._spec, whole) for t in call.tensors]
        wholes[0] = wholes[0].clone()
        rest = iter(wholes)
        args, kwargs = _mapped((call.args, call.kwargs), lambda t: next(rest))
        result = call.func(*args, **kwargs)
        if "::" in call.name and result is not None:
            raise _no_place(call.name)
        changed = args[0] if result is None else result
        if tuple(changed.shape) != target._spec.shape:
            raise RuntimeError(f"{call.name}_(): the shape of a DTensor cannot change in place")
        spec = Spec(call.mesh, (Replicate(),) * call.mesh.ndim, tuple(changed.shape))
        Tensor.copy_(target, redistribute(changed, spec, target.placements))
    return None if result is None else target


def _no_place(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name}(): an operator of a plugin that writes to DTensors writes to its first argument "
        "and returns nothing; call this one on whole tensors, full_tensor()"
    )


def _initial(func: Any) -> bool:
    """Whether a function gives a tensor its first numbers, of which nothing is recorded."""
    place = getattr(func, "__module__", None)
    return name_of(func).startswith("_init_") or place == "tenon.nn.init"


def _fill_like_one_process(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Numbers in place, random ones: those that one process with the same seed would draw."""
    target, recorded = args[0], tenon.is_grad_enabled() and not _initial(func)
    with DisableTorchFunctionSubclass(), tenon.set_grad_enabled(recorded):
        whole = tenon.empty(target._spec.shape, dtype=target.dtype, device=target.device)
        func(whole, *args[1:], **kwargs)
        Tensor.copy_(target, own_part(whole, target._spec))
    return target


def _like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new tensor of the layout of another one; no terms, as each would count."""
    first = args[0]
    layout = tuple(Replicate() if p.is_partial() else p for p in first.placements)
    with DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    return _dtensor().leaf(result, first._spec.with_layout(layout), result.requires_grad)


def _decomposed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of Python: its operators are called. Tensors that it makes for itself are the
    same in every process."""
    tensors: list[Any] = []
    _mapped((args, kwargs), tensors.append)
    api = _dtensor()
    mesh = next(t.device_mesh for t in tensors if isinstance(t, api.DTensor))
    for t in tensors if name_of(func) not in TAKE_PLAIN else ():
        _as_dtensor(t, mesh, name_of(func))
    func.check_flags(args, kwargs)
    outer, _modes.inside = getattr(_modes, "inside", None), func
    try:
        with implicit_replication():
            result = func.__wrapped__(*args, **kwargs)
            return _mapped(result, lambda t: _as_dtensor(t, mesh, name_of(func)))
    finally:
        _modes.inside = outer


def _into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that writes to the tensors of `out`, which lie as they did."""
    given = kwargs.pop("out")
    found = func(*args, **kwargs)
    several = isinstance(given, (tuple, list))
    for target, result in zip(given, found, strict=True) if several else [(given, found)]:
        if target.shape != result.shape:
            raise RuntimeError(
                f"{name_of(func)}(): out has the shape {tuple(target.shape)}, the result "
                f"{tuple(result.shape)}: a DTensor cannot be resized"
            )
        target.copy_(result)
    return type(found)(given) if several else given


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """DTensor.__torch_function__."""
    api = _dtensor()
    name = name_of(func) or str(func)
    if kwargs.get("out") is not None:
        return _into(func, args, dict(kwargs))
    if name in _ON_PARTS:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    first = args[0] if args else None
    if name in _LIKE and isinstance(first, api.DTensor):
        return _like(func, args, kwargs)
    if name in _RANDOM or (_initial(func) and isinstance(first, api.DTensor)):
        return _fill_like_one_process(func, args, kwargs)
    if asks_classes(func) and func is not getattr(_modes, "inside", None):
        return _decomposed(func, args, kwargs)
    if name in COMPOSITES:
        found = COMPOSITES[name](*args, **kwargs)
        if found is not NotImplemented:
            return found
    tensors: list[Any] = []
    _mapped((args, kwargs), tensors.append)
    mesh = next(t.device_mesh for t in tensors if isinstance(t, api.DTensor))
    tensors = [_as_dtensor(t, mesh, name) for t in tensors]
    rest = iter(tensors)
    args, kwargs = _mapped((args, kwargs), lambda t: next(rest))
    inplace = writes_first(name)
    if len(written_by(name, args, kwargs)) > inplace:
        raise _no_place(name)
    call = Call(func, name.rstrip("_") if inplace and name != "__setitem__" else name, inplace,
                args, kwargs, tensors, mesh)  # fmt: skip
    rule = RULES.get(call.name)
    if any(_strided(t) for t in tensors):
        plan = _alike(call, rule)
    else:
        plan = rule(call) if rule is not None else None
    if inplace and call.name in _VIEWS:
        return _view_in_place(call, plan)
    if inplace and plan is not None and rule is not _rules.elementwise and not _fits(call, plan):
        plan = None
    return _execute_whole(call) if plan is None else execute(call, plan)


def run_own(op: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an operator that a program has written in Python, if it has given it a rule."""
    rule, tensors, api = RULES.get(name), [], _dtensor()
    if rule is not None:
        _mapped((args, kwargs), tensors.append)
    meshes = [t.device_mesh for t in tensors if isinstance(t, api.DTensor)]
    if rule is None or not meshes:
        return NotImplemented
    tensors = [_as_dtensor(t, meshes[0], name) for t in tensors]
    rest = iter(tensors)
    args, kwargs = _mapped((args, kwargs), lambda t: next(rest))
    call = Call(op, name, False, args, kwargs, tensors, meshes[0])
    return execute(call, rule(call) or whole_plan(call))


def _strided(t: Any) -> bool:
    return any(isinstance(p, _StridedShard) for p in t.placements)


def _alike(call: Call, rule: Any) -> Plan | None:
    """Tensors that an inner dimension of the mesh has cut first: rules do not know that, so only
    what works element by element on tensors that lie alike is done on parts."""
    first = call.tensors[0]
    whole = (Replicate(),) * call.mesh.ndim
    if rule is not _rules.elementwise or any(
        t.ndim and (t._spec.shape, t.placements) != (first._spec.shape, first.placements)
        for t in call.tensors
    ):
        return None
    wanted = [t.placements if t.ndim else whole for t in call.tensors]
    return Plan(wanted, first.placements, first._spec.shape)


def replicated(placements: tuple[Placement, ...]) -> bool:
    """Whether every process has all of it."""
    return all(p.is_replicate() for p in placements)


from tenon.distributed.tensor import _rules, _rules_batch, _rules_shape  # noqa: E402, F401 - they fill RULES
