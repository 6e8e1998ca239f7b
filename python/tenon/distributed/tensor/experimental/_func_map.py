"""Functions of plain tensors, called with the parts of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon.distributed.tensor._api import DTensor
from tenon.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["local_map"]


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Any:
    """A function that runs on the parts of the DTensors among its arguments, and whose results are
    DTensors again.

    out_placements: a list of placements for the only result, or a tuple with one for each of the
    flattened results, None for those that are no tensors. in_placements: the same of the flattened
    arguments, which have to lie so, or are brought to it where redistribute_inputs says so.
    in_grad_placements: how the gradients of the parts lie, where not like these. device_mesh: that
    of the results, else that of the first DTensor. Without a DTensor among the arguments, func is
    called as it is. Usable as a decorator, without func.
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements,
            in_grad_placements=in_grad_placements, device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        flat, spec = tree_flatten(args)
        _check_count("in_placements", in_placements, len(flat))
        _check_count("in_grad_placements", in_grad_placements, len(flat))
        mesh, parts = device_mesh, []
        for i, arg in enumerate(flat):
            if isinstance(arg, DTensor):
                mesh = arg.device_mesh if mesh is None else mesh
                grads = None if in_grad_placements is None else in_grad_placements[i]
                arg = _laid(arg, i, in_placements, redistribute_inputs).to_local(
                    grad_placements=grads
                )
            parts.append(arg)
        result = func(*tree_unflatten(parts, spec), **kwargs)
        if not any(isinstance(arg, DTensor) for arg in flat):
            return result
        wanted = out_placements if isinstance(out_placements, tuple) else (out_placements,)
        return _whole(result, mesh, wanted)

    return call


def _check_count(name: str, given: Any, arguments: int) -> None:
    if given is not None and len(given) != arguments:
        raise AssertionError(
            f"local_map: {name} has {len(given)} entries, there are {arguments} arguments"
        )


def _whole(result: Any, mesh: Any, placements: tuple[Any, ...]) -> Any:
    """The results as DTensors that lie so."""
    found, shape = tree_flatten(result)
    if len(placements) != len(found):
        raise AssertionError(
            "local_map requires one PlacementType be provided for each output value, got "
            f"{len(placements)} for {len(found)}"
        )
    made = []
    for value, layout in zip(found, placements, strict=True):
        if isinstance(value, Tensor):
            value = DTensor.from_local(value, mesh, layout)
        elif layout is not None:
            raise AssertionError(
                f"Non-tensor output expects None placements but received {layout}!"
            )
        made.append(value)
    return tree_unflatten(made, shape)


def _laid(x: DTensor, at: int, in_placements: Any, redistributes: bool) -> DTensor:
    wanted = None if in_placements is None else in_placements[at]
    if in_placements is not None and wanted is None:
        raise AssertionError(f"local_map: argument {at} is a DTensor; in_placements has None")
    if wanted is None or tuple(wanted) == x.placements:
        return x
    if not redistributes:
        raise ValueError(
            f"local_map: argument {at} lies as {x.placements}, expected {tuple(wanted)}; "
            "redistribute_inputs=True brings it there"
        )
    return x.redistribute(placements=wanted)
