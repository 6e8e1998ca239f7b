"""Layouts in which an operator of a program works on parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon._tensor.called import name_of
from tenon.distributed.tensor import _dispatch
from tenon.distributed.tensor._dispatch import Call, Plan
from tenon.distributed.tensor._rules import _transposed
from tenon.distributed.tensor._rules_batch import _shapes
from tenon.distributed.tensor.placement_types import Placement, Shard
from tenon.utils._pytree import tree_leaves

__all__ = ["register_sharding"]


def _price(now: Placement, wanted: Placement) -> float:
    """What it takes to bring a tensor from one layout to another, next to a whole exchange."""
    if now == wanted:
        return 0.0
    return 0.1 if now.is_replicate() else 1.0


def _fits(wanted: Placement, shape: tuple[int, ...], parts: int) -> bool:
    return not isinstance(wanted, Shard) or (
        -len(shape) <= wanted.dim < len(shape) and shape[wanted.dim] >= parts
    )


def _chosen(call: Call, layouts: Any) -> Plan:
    """The cheapest of the layouts, along each dimension of the mesh."""
    flat = tree_leaves((call.args, call.kwargs))
    places = [i for i, x in enumerate(flat) if any(x is t for t in call.tensors)]
    options = []
    for outputs, inputs in layouts:
        made = {p for p in outputs if p is not None}
        if len(made) > 1:
            raise NotImplementedError(
                f"register_sharding: the results of {call.name} are to lie as {outputs}; layouts "
                "that differ are not there yet"
            )
        if len(inputs) <= places[-1]:
            raise AssertionError(
                f"register_sharding: {len(inputs)} input placements for the {len(flat)} arguments "
                f"of {call.name}"
            )
        options.append((next(iter(made)), [inputs[i] for i in places]))
    columns, layout = [], []
    for d in range(call.mesh.ndim):
        here = [t.placements[d] for t in call.tensors]
        open_ones = [
            (sum(_price(p, w) for p, w in zip(here, wanted, strict=True)), i)
            for i, (_, wanted) in enumerate(options)
            if all(_fits(w, t._spec.shape, call.mesh.size(d))
                   for w, t in zip(wanted, call.tensors, strict=True))
        ]  # fmt: skip
        if not open_ones:
            raise NotImplementedError(f"register_sharding: no layout of {call.name} fits the sizes")
        output, wanted = options[min(open_ones)[1]]
        columns.append(wanted)
        layout.append(output)
    return Plan(_transposed(columns), tuple(layout), _shapes(call))


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that says how an operator, or each of a list, works on parts. It is
    called with the operator's arguments and returns pairs of placements: those of the results, and
    those of the arguments, None for what is no tensor. The cheapest pair is taken for each
    dimension of the mesh."""
    found = op if isinstance(op, (list, tuple)) else [op]
    for one in found:
        if not callable(one):
            raise TypeError(f"register_sharding: expected an operator, not {type(one).__name__}")

    def register(layouts: Callable[..., Any]) -> Callable[..., Any]:
        def rule(call: Call) -> Plan:
            return _chosen(call, layouts(*call.args, **call.kwargs))

        for each in found:
            if getattr(each, "_written", ()):
                raise NotImplementedError(
                    f"register_sharding: {each._qualname} writes to its arguments, which are not "
                    "those of the program where they are brought to another layout"
                )
            name = getattr(each, "_qualname", None) or name_of(each)
            _dispatch.COMPOSITES.pop(name, None)
            _dispatch.RULES[name] = rule
        return layouts

    return register
