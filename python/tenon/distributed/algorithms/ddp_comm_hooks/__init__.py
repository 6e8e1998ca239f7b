"""Communication hooks of DistributedDataParallel by their names."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from tenon._submodules import on_demand
from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(Enum):
    """The hooks that need no more than a process group as their state."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = partial(powerSGD_hook.powerSGD_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Registers a hook by its name."""
    model.register_comm_hook(state, comm_hook_type.value)


on_demand(globals())
