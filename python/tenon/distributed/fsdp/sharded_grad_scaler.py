"""A gradient scaler for sharded gradients: no rank steps where one of them found an overflow."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import distributed
from tenon._device.scaler import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """GradScaler whose ranks agree on whether there was an infinity or NaN."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device, init_scale=init_scale, backoff_factor=backoff_factor,
            growth_factor=growth_factor, growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip
        self.process_group = process_group

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients; an infinity or NaN on one rank is one on all of them."""
        super().unscale_(optimizer)
        if not self._enabled or distributed.get_world_size(self.process_group) == 1:
            return
        state = self._per_optimizer_states[id(optimizer)]
        found = state["found_inf_per_device"]
        worst = tenon.tensor([max((float(f) for f in found.values()), default=0.0)], device="cpu")
        distributed.all_reduce(worst, distributed.ReduceOp.MAX, self.process_group)
        # A rank whose part is empty has no gradient, and steps as the others do.
        agreed = {d: worst.reshape(()).to(d) for d in found} or {tenon.device("cpu"): worst[0]}
        state["found_inf_per_device"] = agreed
