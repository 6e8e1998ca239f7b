"""Modules whose forward runs again in backward, or whose saved tensors wait on the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from tenon.autograd.graph import save_on_cpu
from tenon.distributed.fsdp.wrap import _Policy, _recursive_wrap, _wrap_by_policy
from tenon.distributed.fsdp.wrap import lambda_auto_wrap_policy as _by_function
from tenon.nn.modules.module import Module
from tenon.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper",
    "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip

_PREFIX = "_checkpoint_wrapped_module."


class CheckpointImpl(Enum):
    """Which of the two ways of utils.checkpoint."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module, ABC):
    """A module inside another one, which does not show in names of parameters."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), param

    @staticmethod
    def _without_prefix(module: Module, state: Any, prefix: str, *args: Any) -> Any:
        for key in [k for k in state if k.startswith(prefix + _PREFIX)]:
            state[prefix + key[len(prefix + _PREFIX) :]] = state.pop(key)
        return state

    @staticmethod
    def _with_prefix(module: Module, state: Any, prefix: str, *args: Any) -> None:
        whole = prefix + _PREFIX
        for key in [k for k in state if k.startswith(prefix) and not k.startswith(whole)]:
            state[whole + key[len(prefix) :]] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """A module whose forward runs again in backward."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl == CheckpointImpl.REENTRANT
            self.checkpoint_fn: Any = partial(
                checkpoint, use_reentrant=reentrant, **checkpoint_fn_kwargs
            )
        else:
            self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpoint_impl == CheckpointImpl.REENTRANT and kwargs:
            # A node of the graph has tensors as arguments by position alone.
            names, positions = tuple(kwargs), len(args)

            def run(*inputs: Any) -> Any:
                named = dict(zip(names, inputs[positions:], strict=True))
                return self._checkpoint_wrapped_module(*inputs[:positions], **named)

            return self.checkpoint_fn(run, *args, *kwargs.values())
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """A module whose tensors for backward wait on the CPU."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def offload_wrapper(module: Module) -> Module:
    """The module in an OffloadWrapper."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """The module in a CheckpointWrapper."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def _every(module: Module) -> bool:
    return True


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = _every,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Wraps those modules inside the model of which check_fn or the policy says so."""
    policy: Any = auto_wrap_policy or partial(_by_function, lambda_fn=check_fn)
    if isinstance(policy, _Policy):
        _wrap_by_policy(model, policy, set(), checkpoint_wrapper_fn, {})
    else:
        _recursive_wrap(model, policy, checkpoint_wrapper_fn, set(), set(), True)
