"""checkpoint: a module whose forward is computed again in backward."""

from __future__ import annotations

from typing import Any

from tenon.nn.modules.module import Module
from tenon.utils.checkpoint import checkpoint as run_again

__all__ = ["checkpoint"]


def checkpoint(module: Module, **kwargs: Any) -> Module:
    """Lets a module keep nothing of its forward but the inputs; backward computes it again.

    kwargs: those of `tenon.utils.checkpoint.checkpoint` without use_reentrant, which is False.
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError(
            "use_reentrant=True is not supported in composable checkpoint. "
            "Please use torch.utils.checkpoint.checkpoint instead."
        )
    if getattr(module, "_is_checkpointed", False):
        raise AssertionError(
            "Each distinct composable distributed API can only be applied to a module once. "
            "checkpoint was"
        )
    plain = module.forward

    def forward(*args: Any, **given: Any) -> Any:
        return run_again(plain, *args, use_reentrant=False, **kwargs, **given)

    module.forward = forward  # type: ignore[method-assign]
    module._is_checkpointed = True
    return module
