"""Optimizers that step on a parameter as soon as backward has its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon import Tensor
from tenon.utils.weak import WeakTensorKeyDictionary

__all__: list[str] = []

_optimizers: Any = WeakTensorKeyDictionary()  # of each parameter


def _apply_optimizer_in_backward(
    optimizer_class: Any, params: Iterable[Tensor], optimizer_kwargs: dict[str, Any],
    register_hook: bool = True,
) -> None:  # fmt: skip
    """Gives each parameter an optimizer of its own, which steps when backward has the gradient, and
    drops the gradient then. A parameter may get several, which step in this order.
    register_hook=False: only makes them, for `_get_in_backward_optimizers`."""

    def step(param: Tensor) -> None:
        for optimizer in _optimizers[param]:
            optimizer.step()
        param.grad = None

    for param in params:
        first = param not in _optimizers
        own = optimizer_class([param], **optimizer_kwargs)
        _optimizers.setdefault(param, []).append(own)
        if first and register_hook:
            param.register_post_accumulate_grad_hook(step)


def _get_in_backward_optimizers(module: Any) -> list[Any]:
    """The optimizers of a module's parameters."""
    return [o for p in module.parameters() for o in _optimizers.get(p, [])]
