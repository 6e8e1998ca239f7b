"""Handles of registered hooks, and the identity functions that carry a module's backward hooks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor


class RemovableHandle:
    """Removes a hook from the dictionary it was put into; also a context manager."""

    next_id: int = 0
    hooks_dict_ref: weakref.ref[Any]
    extra_dict_ref: tuple[weakref.ref[Any], ...]

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        extras = extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self._keep(hooks_dict, [d for d in extras if d is not None])

    def _keep(self, hooks: Any, extras: Sequence[Any]) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self) -> None:
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.hooks_dict_ref(), *[ref() for ref in self.extra_dict_ref]), self.id

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        dicts, self.id = state
        hooks, *extras = [OrderedDict() if d is None else d for d in dicts]
        self._keep(hooks, extras)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class TensorHookHandle(RemovableHandle):
    """The handle of a hook on a tensor or a node, which the core keeps."""

    def __init__(self, hook: Any) -> None:
        super().__init__(OrderedDict())
        self._hook = hook

    def remove(self) -> None:
        self._hook.remove()


class Handles(RemovableHandle):
    """Several handles as one."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        super().__init__(OrderedDict())
        self._handles = tuple(handles)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def add_hook(
    hooks: OrderedDict[int, Callable[..., Any]],
    hook: Callable[..., Any],
    extra: dict[int, Any] | tuple[dict[int, Any], ...] = (),
    prepend: bool = False,
) -> RemovableHandle:
    """Puts `hook` into `hooks` and its id into every dictionary of `extra`."""
    extras = [extra] if isinstance(extra, dict) else list(extra)
    handle = RemovableHandle(hooks, extra_dict=extras)
    hooks[handle.id] = hook
    for marks in extras:
        marks[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _make_identity() -> type:
    class BackwardHookFunction(tenon.autograd.Function):
        """Returns its tensors; backward hands the gradients to `receive` and returns its answer.
        Those that are missing are zeros where `whole` says so."""

        @staticmethod
        def forward(
            ctx: Any, receive: Callable[..., Any], whole: bool, *tensors: Tensor
        ) -> tuple[Tensor, ...]:
            ctx.receive = receive
            ctx.set_materialize_grads(whole)
            passed = tuple(t.view_as(t) for t in tensors)
            ctx.mark_non_differentiable(
                *[p for p, t in zip(passed, tensors) if not t.requires_grad]
            )
            return passed

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            return (None, None, *ctx.receive(grads))

    return BackwardHookFunction


_identity: type | None = None


class BackwardHook:
    """Runs the full backward hooks of one call of a module.

    Note [Backward hooks]: the call's tensor arguments pass through one identity function and its
    tensor results through another. The backward of the results' identity runs first and sees the
    gradients of the outputs; that of the arguments' identity sees the gradients of the inputs. As
    in PyTorch an output without a gradient is None to the hooks, an input without one is zeros.
    """

    def __init__(
        self,
        module: Any,
        hooks: Sequence[Callable[..., Any]],
        pre_hooks: Sequence[Callable[..., Any]],
    ):
        self.module = module
        self.hooks = list(hooks)
        self.pre_hooks = list(pre_hooks)
        self.grad_outputs: tuple[Tensor | None, ...] | None = None
        self.input_places: list[int] | None = None
        self.n_inputs = 0
        self.output_places: list[int] = []
        self.n_outputs = 0

    @staticmethod
    def _spread(places: Sequence[int], values: Sequence[Any], size: int) -> tuple[Any, ...]:
        spread: list[Any] = [None] * size
        for place, value in zip(places, values):
            spread[place] = value
        return tuple(spread)

    def _pass_through(
        self, args: tuple[Any, ...], receive: Callable[..., Any], whole: bool
    ) -> tuple[tuple[Any, ...], list[int] | None]:
        global _identity
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if not tenon.is_grad_enabled() or not any(args[i].requires_grad for i in places):
            return args, None
        if _identity is None:
            _identity = _make_identity()
        passed = _identity.apply(receive, whole, *[args[i] for i in places])
        changed = list(args)
        for i, tensor in zip(places, passed):
            changed[i] = tensor
        return tuple(changed), places

    def setup_input(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.n_inputs = len(args)
        changed, self.input_places = self._pass_through(args, self._receive_inputs, True)
        return changed

    def setup_output(self, result: Any) -> Any:
        bare = not isinstance(result, tuple)
        args = (result,) if bare else result
        self.n_outputs = len(args)
        changed, places = self._pass_through(args, self._receive_outputs, False)
        if places is None:
            return result
        self.output_places = places
        if bare:
            return changed[0]
        return type(result)(*changed) if hasattr(result, "_fields") else changed

    def _receive_outputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        outputs = self._spread(self.output_places, grads, self.n_outputs)
        for hook in self.pre_hooks:
            answer = hook(self.module, outputs)
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            if len(answer) != len(outputs):
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(answer)}, but expected {len(outputs)}"
                )
            outputs = answer
        self.grad_outputs = outputs
        if self.input_places is None:
            # No input needs a gradient, so this is the only moment to run the hooks.
            nothing = self._spread([], [], self.n_inputs)
            for hook in self.hooks:
                answer = hook(self.module, nothing, outputs)
                if answer is not None and any(a is not None for a in answer):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires "
                        "gradient should always return None or None for all gradients."
                    )
            self.grad_outputs = None
        return tuple(outputs[i] for i in self.output_places)

    def _receive_inputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if self.grad_outputs is None:
            return grads  # not by way of the output, as second derivatives come
        places = self.input_places or []
        inputs = self._spread(places, grads, self.n_inputs)
        for hook in self.hooks:
            answer = hook(self.module, inputs, self.grad_outputs)
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            if len(answer) != len(inputs):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(answer)}, but expected {len(inputs)}"
                )
            inputs = answer
        self.grad_outputs = None
        return tuple(inputs[i] for i in places)
