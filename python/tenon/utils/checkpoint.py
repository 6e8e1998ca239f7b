"""Checkpointing: forward is run again in backward instead of keeping its intermediate tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import tenon
from tenon import Tensor

__all__ = ["checkpoint", "checkpoint_sequential"]


class _Checkpoint(tenon.autograd.Function):
    """The call of a function whose insides are not recorded until backward needs them."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: Tensor) -> Any:
        ctx.run = run
        ctx.save_for_backward(*tensors)
        with tenon.no_grad():
            return run.call(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        tensors = [
            t.detach().requires_grad_(needed)
            for t, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:])
        ]
        outputs = ctx.run.again(tensors)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (out, grad)
            for out, grad in zip(outputs, grads)
            if isinstance(out, Tensor) and out.requires_grad and grad is not None
        ]
        if pairs:
            tenon.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])
        return (None, *(t.grad for t in tensors))


class _Run:
    """A function with its other arguments, and the random state that it started from."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        preserve_rng_state: bool,
        context_fn: Callable[[], tuple[Any, Any]],
    ) -> None:
        self.function = function
        self.kwargs = kwargs
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.args = [None if isinstance(a, Tensor) else a for a in args]
        self.state = tenon.get_rng_state() if preserve_rng_state else None
        self.first, self.second = context_fn()

    def call(self, tensors: Sequence[Tensor]) -> Any:
        with self.first:
            return self._run(tensors)

    def _run(self, tensors: Sequence[Tensor]) -> Any:
        args = list(self.args)
        for place, tensor in zip(self.places, tensors):
            args[place] = tensor
        return self.function(*args, **self.kwargs)

    def again(self, tensors: Sequence[Tensor]) -> Any:
        now = tenon.get_rng_state()
        if self.state is not None:
            tenon.set_rng_state(self.state)
        try:
            with tenon.enable_grad(), self.second:
                return self._run(tensors)
        finally:
            if self.state is not None:
                tenon.set_rng_state(now)


def _no_contexts() -> tuple[Any, Any]:
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = _no_contexts,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), computed again in backward instead of kept.

    Gradients reach the tensors among the positional arguments and the parameters that the
    function uses.
    """
    run = _Run(function, args, kwargs, preserve_rng_state, context_fn)
    tensors = [args[i] for i in run.places]
    if not tenon.is_grad_enabled():
        return run.call(tensors)
    if not any(t.requires_grad for t in tensors):
        # Parameters inside the function still need a node to be reached from.
        tensors.append(tenon.zeros((), requires_grad=True))
    return _Checkpoint.apply(run, *tensors)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Runs modules one after the other in `segments` parts, all but the last checkpointed."""
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children() if isinstance(functions, tenon.nn.Module) else functions)
    size = len(steps) // segments
    checkpointed = size * (segments - 1)

    def part(chosen: Sequence[Callable]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in chosen:
                x = step(x)
            return x

        return run

    for start in range(0, checkpointed, max(size, 1)):
        input = checkpoint(
            part(steps[start : start + size]), input, preserve_rng_state=preserve_rng_state
        )
    return part(steps[checkpointed:])(input)
