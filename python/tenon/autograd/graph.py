"""The recorded graph: its nodes, hooks on several tensors, and what is saved for backward."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tenon import _C
from tenon._C import Node, Tensor
from tenon._tape.graph import AccumulateGrad, accumulate_grad
from tenon._tape.hooks import Handles, RemovableHandle

__all__ = [
    "AccumulateGrad",
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """A result of a node, as the place where its gradient goes."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The node that computes the gradient of a tensor, and which of its results it is."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    if tensor.grad_fn is None:
        return GradientEdge(accumulate_grad(tensor), 0)
    return GradientEdge(tensor.grad_fn, tensor.output_nr)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Says that tensors were written: what is saved of them for backward is out of date."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _C._note_write(t)


_state = threading.local()  # message: why hooks of saved tensors are switched off


class saved_tensors_hooks(_C._Region):
    """Tensors saved for backward go through pack_hook, and when used through unpack_hook."""

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def _region(self) -> tuple[Any, ...]:
        message = getattr(_state, "message", None)
        if message is not None:
            raise RuntimeError(message)
        return _C._push_saved_hooks, (self.pack_hook, self.unpack_hook), _C._pop_saved_hooks, ()


class save_on_cpu(saved_tensors_hooks):
    """What is saved for backward waits in the memory of the CPU, pinned if pin_memory holds."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            saved = tensor.detach().to("cpu", copy=True)
            return tensor.device, saved.pin_memory() if pin_memory else saved

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Entering saved_tensors_hooks fails with the message."""
    before = getattr(_state, "message", None)
    _state.message = error_message
    try:
        yield
    finally:
        _state.message = before


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """fn sees the gradients of the tensors when all have come (mode "all"), or the first ("any").

    Of tensors that a pass does not reach the gradient is None. fn runs once in each pass.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    running = 0  # the pass that `left` and `grads` belong to
    left = 0  # gradients that are still to come
    grads: list[Tensor | None] = []

    def all_hook(index: int, grad: Tensor) -> None:
        nonlocal running, left, grads
        now, _ = _C._current_pass()
        with lock:
            if now != running:
                running, grads = now, [None] * len(tensors)
                left = sum(_C._pass_reaches(t) for t in tensors)
            grads[index] = grad
            left -= 1
            complete = grads if left == 0 else None
        if complete is not None:
            fn(complete)

    def any_hook(grad: Tensor) -> None:
        nonlocal running
        now, _ = _C._current_pass()
        with lock:
            first, running = now != running, now
        if first:
            fn(grad)

    if mode == "any":
        return Handles([t.register_hook(any_hook) for t in tensors])
    return Handles([t.register_hook(partial(all_hook, i)) for i, t in enumerate(tensors)])


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """What is saved for backward may be written meanwhile: a copy of it is kept."""
    with saved_tensors_hooks(lambda t: t.detach().clone(), lambda kept: kept):
        yield
