"""Modules as functions of their parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tenon import Tensor
from tenon.func import functional_call
from tenon.nn import Module

__all__ = ["make_functional", "make_functional_with_buffers"]


def _values(tensors: Any, detached: bool) -> tuple[Tensor, ...]:
    return tuple(t.detach() if detached else t for t in tensors)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[Callable[..., Any], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A function of (parameters, buffers, *args), and the two."""
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    stateless = copy.deepcopy(model).to("meta")

    def function(
        params: Sequence[Tensor], state: Sequence[Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        given = {
            **dict(zip(parameters, params, strict=True)),
            **dict(zip(buffers, state, strict=True)),
        }
        return functional_call(stateless, given, args, kwargs)

    detached = disable_autograd_tracking
    return function, _values(parameters.values(), detached), tuple(buffers.values())


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """A function of (parameters, *args), and these; for modules without buffers."""
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    function, parameters, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return lambda params, *args, **kwargs: function(params, (), *args, **kwargs), parameters
