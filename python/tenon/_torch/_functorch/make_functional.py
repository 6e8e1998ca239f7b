"""Modules as functions of their parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.func import functional_call
from tenon.nn import Module

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble",
    "make_functional", "make_functional_with_buffers",
]  # fmt: skip


def _values(tensors: Any, detached: bool) -> tuple[Tensor, ...]:
    return tuple(t.detach() if detached else t for t in tensors)


def _places(named: Iterable[tuple[str, Tensor]]) -> list[list[str]]:
    """The names of every tensor; of one that stands in several places more than one."""
    found: dict[int, list[str]] = {}
    for name, t in named:
        found.setdefault(id(t), []).append(name)
    return list(found.values())


class FunctionalModuleWithBuffers(Module):
    """A module without values: a function of (parameters, buffers, *args)."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.stateless_model = copy.deepcopy(model).to("meta")
        # Tensors that were one are apart on "meta".
        self._of_params = _places(model.named_parameters(remove_duplicate=False))
        self._of_buffers = _places(model.named_buffers(remove_duplicate=False))
        self.param_names = [names[0] for names in self._of_params]
        self.buffer_names = [names[0] for names in self._of_buffers]

    def forward(
        self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        given = {
            name: value
            for places, values in ((self._of_params, params), (self._of_buffers, buffers))
            for names, value in zip(places, values, strict=True)
            for name in names
        }
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """The same of a module without buffers: a function of (parameters, *args)."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return super().forward(params, (), *args, **kwargs)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A function of (parameters, buffers, *args), and the two."""
    params = _values(model.parameters(), disable_autograd_tracking)
    return FunctionalModuleWithBuffers(model), params, tuple(model.buffers())


def _refuse_buffers(name: str, model: Module) -> None:
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            f"{name}(model): `model` has buffers. Please use {name}_with_buffers(model) instead."
        )


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """A function of (parameters, *args), and these; for modules without buffers."""
    _refuse_buffers("make_functional", model)
    return FunctionalModule(model), _values(model.parameters(), disable_autograd_tracking)


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A function of modules of one class, and their parameters and buffers, each stacked."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1 or len({type(m) for m in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to be of the same class and have "
            "the same training/eval mode."
        )
    made = [make_functional_with_buffers(m) for m in models]
    params, buffers = (
        tuple(tenon.stack(column) for column in zip(*columns, strict=True))
        for columns in ([m[1] for m in made], [m[2] for m in made])
    )
    return made[0][0], params, buffers
