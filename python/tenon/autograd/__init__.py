"""Gradients: backward, grad, operators written in Python, checks and derivatives of functions."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon import _C, Tensor
from tenon._C import enable_grad, inference_mode, no_grad, set_grad_enabled
from tenon._submodules import imported as _imported
from tenon._submodules import on_demand
from tenon._tape import carriers, overridable
from tenon._tape.call_modes import entered
from tenon.autograd import forward_ad, function, functional, graph
from tenon.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from tenon.autograd.function import Function
from tenon.autograd.gradcheck import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def __getattr__(name: str) -> Any:
    if name == "set_multithreading_enabled":
        return _imported("tenon.autograd.grad_mode").set_multithreading_enabled
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_checkpoint_valid() -> bool:
    """Whether a backward pass that runs now may be made of several: not while gradients of given
    tensors alone are computed."""
    return not _C._current_pass()[1]


class _VariableMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class _Engine:
    """What programs ask of that which runs backward passes."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        """Calls it when the backward pass that runs has ended, after those queued before; a pass
        that fails forgets it. RuntimeError outside of backward."""
        _C._queue_callback(callback)


class Variable(metaclass=_VariableMeta):
    """The old way to make a tensor that records gradients: a leaf over the same memory."""

    _execution_engine = _Engine()

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)


def _placed(value: Any) -> Any:
    """A tensor at a GradientEdge's place; everything else as it is."""
    if not isinstance(value, graph.GradientEdge):
        return value
    if isinstance(value.node, graph.AccumulateGrad):
        return value.node.variable
    return _C._edge_tensor(value.node, value.output_nr)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, graph.GradientEdge):
        return (_placed(value),)
    return tuple(map(_placed, value))


def _gradients_of(outputs: Sequence[Tensor], grads: Any) -> tuple[Tensor | None, ...] | None:
    if grads is None:
        return None
    grads = (grads,) if isinstance(grads, Tensor) else tuple(grads)
    if len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    if (several := _of_several_processes()) is None:
        return grads
    return tuple(several.gradient_part(t, g) for t, g in zip(outputs, grads, strict=True))


# Classes of tensors that were found to be neither asked nor made of others.
_plain: set[type] = {Tensor}


def _is_special(cls: type) -> bool:
    """Whether tensors of a class are asked, or made of others."""
    return overridable._takes_over(cls) or carriers.is_made_of_others(cls)


def _special(tensors: Sequence[Any]) -> list[Any]:
    """The tensors among them that are special."""
    found = [t for t in tensors if type(t) not in _plain and _is_special(type(t))]
    if not found:
        _plain.update(map(type, tensors))
    return found


def _of_several_processes() -> Any:
    """The module of DTensors, where a program has it."""
    return sys.modules.get("tenon.distributed.tensor._api")


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of `tensors` to the .grad of the leaves (or of `inputs`)."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    roots = _as_tuple(tensors)
    retain = create_graph if retain_graph is None else retain_graph
    wanted = None if inputs is None else _as_tuple(inputs)
    if wanted is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors_given = (*roots, *(wanted or ()))
    if entered[0] or (not _plain.issuperset(map(type, tensors_given)) and _special(tensors_given)):
        made = overridable.asked(
            backward, tensors_given, tensors, grad_tensors=grad_tensors,
            retain_graph=retain_graph, create_graph=create_graph, inputs=wanted,
        )  # fmt: skip
        if made is not NotImplemented:
            return
        given = None if grad_tensors is None else _as_tuple(grad_tensors)
        roots, grad_tensors = carriers.spread_roots(roots, given)
        wanted = None if wanted is None else tuple(carriers.spread(wanted))
    _C._backward(roots, _gradients_of(roots, grad_tensors), retain, create_graph, wanted)


def _batched(
    roots: tuple[Tensor, ...],
    wanted: tuple[Tensor, ...],
    gradients: tuple[Tensor | None, ...] | None,
    retain: bool,
    create_graph: bool,
    unused: bool,
    materialize: bool,
) -> tuple[Tensor | None, ...]:
    """For each entry along dimension 0 of the gradients; results stacked likewise."""
    given = [g for g in gradients or () if g is not None]
    if not given:
        raise RuntimeError("grad: is_grads_batched needs grad_outputs")
    if any(g.ndim == 0 for g in given):
        raise IndexError("grad: is_grads_batched maps dimension 0, and grad_outputs have a number")
    sizes = sorted({len(g) for g in given})
    if len(sizes) != 1:
        raise ValueError(f"grad: is_grads_batched needs grad_outputs of one size, got {sizes}")
    (count,) = sizes
    rows = _imported("tenon._transform.rows")
    found = rows.gradients(roots, wanted, gradients or (), retain, create_graph, unused)
    if materialize:
        return tuple(x.new_zeros((count, *x.shape)) if g is None else g
                     for g, x in zip(found, wanted))  # fmt: skip
    return tuple(found)


def _any_mapped(*tensors: Any) -> bool:
    """Whether vmap runs and has mapped one of them."""
    vmap = sys.modules.get("tenon._transform.vmap")
    return vmap is not None and vmap.any_batched(tensors)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of `outputs` with respect to `inputs`; .grad is left alone. Those of a dict of
    tensors are a dict."""
    if type(inputs) is dict:
        found = grad(
            outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, only_inputs,
            allow_unused, is_grads_batched, materialize_grads,
        )  # fmt: skip
        return dict(zip(inputs, found))
    if isinstance(inputs, Mapping):
        raise TypeError(
            f"`inputs` argument to `grad()` must be a dict, not {type(inputs).__name__}. Other "
            "Mapping types are not supported."
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    roots, wanted = _as_tuple(outputs), _as_tuple(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused
    tensors = (*roots, *wanted)
    if entered[0] or (not _plain.issuperset(map(type, tensors)) and _special(tensors)):
        options = {
            "retain_graph": retain_graph,
            "create_graph": create_graph,
            "is_grads_batched": is_grads_batched,
        }
        made = overridable.asked(
            grad, tensors, outputs, wanted, grad_outputs=grad_outputs,
            only_inputs=only_inputs, allow_unused=allow_unused,
            materialize_grads=materialize_grads, **options,
        )  # fmt: skip
        if made is not NotImplemented:
            return made
        if any(carriers.is_made_of_others(type(t)) for t in tensors):
            run = functools.partial(grad, allow_unused=True, **options)
            given = None if grad_outputs is None else _as_tuple(grad_outputs)
            return carriers.gradients(run, roots, wanted, given, unused, materialize_grads)
    gradients = _gradients_of(roots, grad_outputs)
    if is_grads_batched:
        return _batched(roots, wanted, gradients, retain, create_graph, unused, materialize_grads)
    level = forward_level()
    one_pass = _grad if level is None else level.grad
    return one_pass(roots, wanted, gradients, retain, create_graph, unused, materialize_grads)


def forward_level() -> Any:
    """The level of forward mode that has dual tensors."""
    forward = sys.modules.get("tenon.autograd.forward_ad")
    return forward and forward._level_in_use()


def _grad(
    roots: tuple[Tensor, ...],
    wanted: tuple[Tensor, ...],
    gradients: tuple[Tensor | None, ...] | None,
    retain: bool,
    create_graph: bool,
    unused: bool,
    materialize: bool = False,
) -> tuple[Tensor, ...]:
    """grad of one pass, which looks at no tangents."""
    if _any_mapped(roots, wanted, gradients):
        parts = _imported("tenon._transform.mapped_grad")
        results = parts.grad_of_elements(
            roots, wanted, gradients, retain, create_graph=create_graph, allow_unused=unused
        )
    else:
        results = _C._grad(roots, wanted, gradients, retain, create_graph, unused)
        if (several := _of_several_processes()) is not None:
            results = map(several.gradient_of, wanted, results)
    if materialize:
        results = tuple(x.new_zeros(x.shape).requires_grad_(create_graph) if g is None else g
                        for g, x in zip(results, wanted))  # fmt: skip
    return tuple(results)


on_demand(globals())
