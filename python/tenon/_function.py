"""autograd.Function: operators whose forward and backward are written in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon import _C
from tenon._C import FunctionCtx

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class Function:
    """Base of operators written in Python.

    A subclass has the static methods `forward(ctx, *args)` and `backward(ctx, *grads)`, or
    `forward(*args)` and `setup_context(ctx, inputs, output)`. Call it through `apply`.
    """

    setup_context: Callable[..., None] | None = None

    @staticmethod
    def forward(*args: Any) -> Any:
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward and records the call."""
        return _C._apply(cls, args)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that cannot itself be differentiated: doing so raises."""

    @functools.wraps(fn)
    def wrapper(ctx: FunctionCtx, *grads: Any) -> Any:
        recording = _C.is_grad_enabled()
        with _C.no_grad():
            results = fn(ctx, *grads)
        wanted = any(isinstance(g, _C.Tensor) and g.requires_grad for g in grads)
        if not recording or not wanted:
            return results
        single = not isinstance(results, tuple)
        marked = [_Refuse.apply(r, *_roots(grads)) if isinstance(r, _C.Tensor) else r
                  for r in ((results,) if single else results)]  # fmt: skip
        return marked[0] if single else tuple(marked)

    return wrapper


def _roots(grads: tuple[Any, ...]) -> list[Any]:
    return [g for g in grads if isinstance(g, _C.Tensor) and g.requires_grad]


class _Refuse(Function):
    """Passes a tensor on; differentiating it fails."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Any, *roots: Any) -> Any:
        ctx.count = 1 + len(roots)
        return value.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
