"""replicate: a module whose gradients are averaged over processes, without a module around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon.distributed.fsdp import FSDPModule
from tenon.nn.modules.module import Module
from tenon.nn.parallel import DistributedDataParallel

__all__ = ["replicate"]


class _State:
    """What averages a module's gradients; it is made with the first call."""

    def __init__(self, ignored: set[Module], options: dict[str, Any]) -> None:
        self.ignored, self.options = ignored, options
        self.ddp: DistributedDataParallel | None = None
        self.hooks: list[tuple[Any, Any]] = []
        self.syncs = True
        self.exchanges = False  # the pass that goes on

    def made(self, module: Module) -> DistributedDataParallel:
        if self.ddp is None:
            inner = [(n, m) for n, m in module.named_modules() if m in self.ignored]
            module._ddp_params_and_buffers_to_ignore = [  # type: ignore[assignment]
                f"{prefix}.{name}"
                for prefix, m in inner
                for name, _ in [*m.named_parameters(), *m.named_buffers()]
            ]
            self.ddp = DistributedDataParallel(module, **self.options)
            for state, hook in self.hooks:
                self.ddp.register_comm_hook(state, hook)
        self.ddp.require_backward_grad_sync = self.syncs
        return self.ddp

    def before(self, module: Module, inputs: Any) -> None:
        self.exchanges = self.made(module)._pre_forward()

    def after(self, module: Module, inputs: Any, output: Any) -> Any:
        return self.made(module)._post_forward(output, self.exchanges)


class _Replicated:
    """What a module is, too, after replicate."""

    _replicate_state: _State

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether backward exchanges gradients, or keeps them for a later one."""
        self._replicate_state.syncs = requires_gradient_sync

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """`DistributedDataParallel.register_comm_hook`."""
        own = self._replicate_state
        if own.ddp is None:
            own.hooks.append((state, hook))
        else:
            own.ddp.register_comm_hook(state, hook)

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError(
            "DDP does not support deepcopy. Please use state dict for serialization."
        )


def replicate(
    module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any
) -> Module:
    """Lets processes train a module as one, in place: parameters and buffers are those of the first
    process, gradients are averaged.

    ignored_modules: those below it whose parameters stay alone. kwargs: those of
    `DistributedDataParallel`; device_id is a device, or None.
    """
    if isinstance(module, _Replicated):
        raise AssertionError(
            "Each distinct composable distributed API can only be applied to a module once. "
            "replicate was"
        )
    if isinstance(module, FSDPModule):
        raise RuntimeError(
            "Cannot apply `replicate()` on a Module already managed by `fully_shard`"
        )
    mesh = kwargs.get("device_mesh")
    if mesh is not None and mesh.ndim != 1:
        raise RuntimeError(f"replicate: expected a mesh of one dimension, got {mesh}")
    device = kwargs.pop("device_id", None)
    if device is not None and getattr(device, "type", None) != "cpu":
        kwargs["device_ids"] = [device]
    state, cls = _State(set(ignored_modules or ()), kwargs), type(module)
    module.__class__ = type(f"DDP{cls.__name__}", (_Replicated, cls), {})
    module.__dict__["_replicate_state"] = state
    module.register_forward_pre_hook(state.before)
    module.register_forward_hook(state.after)
    return module


def _state_of(module: Module) -> _State | None:
    """What replicate keeps of a module; None where it was not applied."""
    return module._replicate_state if isinstance(module, _Replicated) else None


replicate.state = _state_of  # type: ignore[attr-defined]
