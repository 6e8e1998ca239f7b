"""Functions and modules whose forward and backward passes are graphs; autograd goes on as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tenon
from tenon import Tensor
from tenon.cuda import _base
from tenon.cuda.graphs import CUDAGraph, graph
from tenon.cuda.streams import Stream, current_stream, stream


def _tensors(value: Any, where: str) -> list[Tensor]:
    """The tensors of nested tuples, lists and dictionaries, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        raise TypeError(
            f"make_graphed_callables: {where} must be tensors, or tuples, lists and dictionaries "
            f"of them, not {type(value).__name__}"
        )
    return [t for part in value for t in _tensors(part, where)]


def _rebuild(like: Any, tensors: Iterator[Tensor]) -> Any:
    """A structure like `like`, of other tensors."""
    if isinstance(like, Tensor):
        return next(tensors)
    if isinstance(like, dict):
        return type(like)((key, _rebuild(part, tensors)) for key, part in like.items())
    parts = [_rebuild(part, tensors) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def _check_module(module: tenon.nn.Module) -> None:
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise RuntimeError(
                "make_graphed_callables: the module has hooks; register them afterwards"
            )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError("make_graphed_callables: a buffer of the module requires a gradient")


class _Graphed:
    """One callable: what its two graphs read and write, and how autograd calls them."""

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...], unused: bool) -> None:
        self.call, self.args, self.unused = call, args, unused
        self.inputs = _tensors(args, "sample_args")
        params = list(call.parameters()) if isinstance(call, tenon.nn.Module) else []
        self.surface = [*self.inputs, *params]
        self.wanted = [t for t in self.surface if t.requires_grad]
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        self.grads: list[Tensor | None] = [None] * len(self.surface)

    def _grads_of(self, outputs: list[Tensor], grads: list[Tensor]) -> Any:
        return tenon.autograd.grad(outputs, self.wanted, grads, allow_unused=self.unused)

    def warm_up(self) -> None:
        outputs = [t for t in _tensors(self.call(*self.args), "results") if t.requires_grad]
        if outputs and self.wanted:
            self._grads_of(outputs, [tenon.zeros_like(t) for t in outputs])

    def capture(self, where: Stream, pool: Any) -> None:
        with graph(self.forward, pool, where):
            result = self.call(*self.args)
        made = _tensors(result, "results")
        self.output_grads = [tenon.zeros_like(t) if t.requires_grad else None for t in made]
        outputs = [t for t in made if t.requires_grad]
        if outputs and self.wanted:
            given = [g for g in self.output_grads if g is not None]
            with graph(self.backward, pool, where):
                grads = iter(self._grads_of(outputs, given))
            self.grads = [next(grads) if t.requires_grad else None for t in self.surface]
        self.outputs = [t.detach() for t in made]
        self.result = _rebuild(result, iter(self.outputs))

    def run_forward(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, new in zip(self.inputs, given):
            if own.data_ptr() != new.data_ptr() or own.stride() != new.stride():
                own.detach().copy_(new)
        self.forward.replay()
        return tuple(t.detach() for t in self.outputs)

    def run_backward(self, given: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for own, new in zip(self.output_grads, given):
            if own is not None and new is not None:
                own.copy_(new)
        self.backward.replay()
        # Leaves copy what they keep, since the memory is not theirs alone.
        return tuple(None if g is None else g.detach() for g in self.grads)

    def check(self, given: list[Tensor]) -> None:
        if len(given) != len(self.inputs):
            raise TypeError(
                f"the graphed callable takes {len(self.inputs)} tensors, got {len(given)}"
            )
        for i, (own, new) in enumerate(zip(self.inputs, given)):
            if (own.shape, own.dtype, own.device) != (new.shape, new.dtype, new.device):
                raise ValueError(
                    f"the graphed callable was captured with {tuple(own.shape)}, {own.dtype} on "
                    f"{own.device} as tensor {i}, got {tuple(new.shape)}, {new.dtype} on "
                    f"{new.device}"
                )

    def function(self) -> Callable[..., Any]:
        graphed = self

        class Graphed(tenon.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
                made = graphed.run_forward(given)
                pairs = zip(made, graphed.output_grads)
                ctx.mark_non_differentiable(*(t for t, grad in pairs if grad is None))
                return made

            @staticmethod
            @tenon.autograd.function.once_differentiable
            def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
                return graphed.run_backward(given)

        def run(*args: Any) -> Any:
            given = _tensors(args, "the arguments of a graphed callable")
            graphed.check(given)
            rest = graphed.surface[len(graphed.inputs) :]
            return _rebuild(graphed.result, iter(Graphed.apply(*given, *rest)))

        return run


def _replace_forward(module: tenon.nn.Module, graphed: Callable[..., Any]) -> tenon.nn.Module:
    """The module runs the graphs in the mode in which it was captured, else what it always ran."""
    training, plain = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == training and not kwargs:
            return graphed(*args)
        return plain(*args, **kwargs)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """A function or module, or a tuple of them, whose forward and backward passes are replayed.

    `sample_args` are the arguments of one call, for a tuple those of each: later calls must have
    tensors of the same shapes, dtypes and device, and want gradients of the same ones. A module
    itself runs the graphs from then on, as long as it is in the mode (training or not) in which it
    was captured. What a call returns is overwritten by the next call. `num_warmup_iters` calls come
    first, and count for running statistics.
    """
    _base.require("make_graphed_callables")
    several = isinstance(callables, tuple)
    calls = callables if several else (callables,)
    samples = sample_args if several else (sample_args,)
    if len(calls) != len(samples):
        raise ValueError(
            f"make_graphed_callables: {len(calls)} callables and {len(samples)} sample_args"
        )
    for call in calls:
        if isinstance(call, tenon.nn.Module):
            _check_module(call)
    made = []
    side = Stream()
    for call, args in zip(calls, samples):
        graphed = _Graphed(call, tuple(args), allow_unused_input)
        side.wait_stream(current_stream())
        with stream(side):
            for _ in range(num_warmup_iters):
                graphed.warm_up()
        current_stream().wait_stream(side)
        graphed.capture(side, pool)
        run = graphed.function()
        made.append(_replace_forward(call, run) if isinstance(call, tenon.nn.Module) else run)
    return tuple(made) if several else made[0]
