"""Checkpointing: forward is run again in backward instead of keeping its intermediate tensors.

Note [Two ways]: without `use_reentrant` the call is recorded as ever, but what it saves for
backward is a number each; whoever asks for one of them has the function run again, and gets what
was saved under that number then. With it the call is one node of the graph whose backward runs the
function again and starts a backward pass of its own.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._tensor.aten import OpOverload, OpOverloadPacket
from tenon.autograd import _is_checkpoint_valid
from tenon.autograd.graph import saved_tensors_hooks
from tenon.utils._pytree import tree_leaves

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "set_device_states",
    "set_checkpoint_early_stop",
]


class CheckpointError(RuntimeError):
    """The function did not do the same when it was run again."""


class _Enough(Exception):
    """Everything that is needed has been computed again."""


_early_stop = True


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether a function that runs again is left when the last tensor needed has been saved."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs on which tensors among the arguments are, and the states of their generators."""
    leaves = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
    devices = [x.device.index or 0 for x in leaves if x.device.type == "cuda"]
    return devices, [tenon.cuda.get_rng_state(d) for d in devices]


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Restores what `get_device_states` gave."""
    if device_type in (None, "cuda"):
        for device, state in zip(devices, states, strict=False):
            tenon.cuda.set_rng_state(state, device)


class _Run:
    """A function with its arguments, and the random state that it started from."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        preserve_rng_state: bool,
        context_fn: Callable[[], tuple[Any, Any]],
    ) -> None:
        self.function = function
        self.args = list(args)
        self.versions = [
            a._version if isinstance(a, Tensor) and not a.is_inference() else None for a in args
        ]
        self.kwargs = kwargs
        self.state = tenon.get_rng_state() if preserve_rng_state else None
        self.first, self.second = context_fn()
        devices = {"cpu", *(a.device.type for a in args if isinstance(a, Tensor))}
        self.regions = [(name, *_C._autocast_set(name)) for name in sorted(devices)]

    def call(self) -> Any:
        with self.first:
            return self.function(*self.args, **self.kwargs)

    def again(self, args: Sequence[Any]) -> Any:
        now = tenon.get_rng_state()
        if self.state is not None:
            tenon.set_rng_state(self.state)
        try:
            with ExitStack() as stack:
                for name, enabled, dtype, cache in self.regions:
                    stack.enter_context(
                        tenon.autocast(name, dtype, bool(enabled), cache_enabled=bool(cache))
                    )
                stack.enter_context(tenon.enable_grad())
                stack.enter_context(self.second)
                return self.function(*args, **self.kwargs)
        finally:
            if self.state is not None:
                tenon.set_rng_state(now)

    def check_args(self) -> None:
        """That nobody has written to the arguments, from which the function starts again."""
        for i, (a, version) in enumerate(zip(self.args, self.versions, strict=True)):
            if version is not None and a._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: argument {i} of the checkpointed function, a Tensor of "
                    f"shape {list(a.shape)}, is at version {a._version}; expected version "
                    f"{version} instead. A function that is computed again must find its arguments "
                    "as they were: clone what is written to."
                )


# ---- Numbers in the place of tensors ------------------------------------------------------------


def _facts(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


class _Slots:
    """What one call saves: facts about each tensor, and the tensors while a pass needs them."""

    def __init__(self, run: _Run, early_stop: bool, compare: bool) -> None:
        self.run = run
        self.early_stop = early_stop
        self.compare = compare
        self.facts: list[dict[str, Any]] = []
        self.values: dict[int, Tensor] = {}
        self.used: set[int] = set()

    def pack(self, t: Tensor) -> int:
        self.facts.append(_facts(t))
        return len(self.facts) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.values:
            self._compute()
        value = self.values[number]
        self.used.add(number)
        if len(self.used) == len(self.facts):
            self.values.clear()
            self.used.clear()
        return value

    def _compute(self) -> None:
        self.run.check_args()
        values: dict[int, Tensor] = {}
        count = 0

        def keep(t: Tensor) -> Tensor:
            nonlocal count
            if count < len(self.facts):
                values[count] = t.detach()
            count += 1
            if self.early_stop and count == len(self.facts):
                raise _Enough
            return t.detach()

        try:
            with saved_tensors_hooks(keep, lambda t: t):
                self.run.again(self.run.args)
        except _Enough:
            pass
        if count != len(self.facts):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.facts)}\n"
                f"Number of tensors saved during recomputation: {count}"
            )
        different = [i for i, t in values.items() if _facts(t) != self.facts[i]]
        if self.compare and different:
            lines = [
                f"tensor at position {i}:\nsaved metadata: {self.facts[i]}\n"
                f"recomputed metadata: {_facts(values[i])}"
                for i in different
            ]
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(lines)
            )
        self.values = values


# ---- One node -----------------------------------------------------------------------------------


class CheckpointFunction(tenon.autograd.Function):
    """The call of a function whose insides are not recorded until backward needs them."""

    @staticmethod
    def forward(ctx: Any, run: _Run, places: Sequence[int], *tensors: Tensor) -> Any:
        ctx.run, ctx.places = run, places
        ctx.save_for_backward(*tensors)
        with tenon.no_grad():
            result = run.call()
        for place in places:
            run.args[place] = None  # saved_tensors has it
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if not _is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the "
                "`inputs` argument."
            )
        args = list(ctx.run.args)
        tensors = [
            t.detach().requires_grad_(needed)
            for t, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[2:])
        ]
        for place, tensor in zip(ctx.places, tensors):
            args[place] = tensor
        outputs = ctx.run.again(args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (out, grad)
            for out, grad in zip(outputs, grads)
            if isinstance(out, Tensor) and out.requires_grad and grad is not None
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        tenon.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])
        return (None, None, *(t.grad for t in tensors))


def _reentrant(run: _Run) -> Any:
    places = [i for i, a in enumerate(run.args) if isinstance(a, Tensor)]
    tensors = [run.args[i] for i in places]
    if tenon.is_grad_enabled() and not any(t.requires_grad for t in tensors):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3
        )
    return CheckpointFunction.apply(run, places, *tensors)


# ---- Functions ----------------------------------------------------------------------------------


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

    With use_reentrant gradients reach the tensors among the positional arguments and the parameters
    that the function uses, in `backward()` only; without it everything is as if the function had
    been called.
    """
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not _no_contexts or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return _reentrant(_Run(function, args, kwargs, preserve_rng_state, context_fn))
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    run = _Run(function, args, kwargs, preserve_rng_state, context_fn)
    if not tenon.is_grad_enabled():
        return run.call()
    # The call that a stop cuts short is no node of a program that is being recorded.
    early = early_stop and _early_stop and not _C._program_is_recording()
    slots = _Slots(run, early, determinism_check == "default")
    with saved_tensors_hooks(slots.pack, slots.unpack):
        return run.call()


class CheckpointPolicy(enum.Enum):
    """What a policy says of an operator: whether its results are to be kept or computed again."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """What `checkpoint(context_fn=...)` takes. A policy asks for less to be computed again; here
    everything is, which gives the same gradients."""
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    for op in policy_fn_or_list if isinstance(policy_fn_or_list, list) else ():
        if not isinstance(op, OpOverload):
            packet = isinstance(op, OpOverloadPacket)
            more = "; update the OpOverloadPacket to a specific OpOverload" if packet else ""
            raise ValueError(
                f"Expected op in `op_list` to be an OpOverload but got: {op} of type "
                f"{type(op)}{more}"
            )
    return nullcontext(), nullcontext()


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
    checkpointed = size * (segments - 1) if size > 0 else 0

    def part(chosen: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in chosen:
                x = step(x)
            return x

        return run

    for start in range(0, checkpointed, max(size, 1)):
        input = checkpoint(
            part(steps[start : start + size]),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve_rng_state,
        )
    return part(steps[checkpointed:])(input)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with leaves over the same memory in place of their tensors."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no argument needs a gradient, so that none will come."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )
