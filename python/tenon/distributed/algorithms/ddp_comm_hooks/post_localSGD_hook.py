"""Gradients averaged over all processes for a while, then within a smaller group only."""

from __future__ import annotations

from typing import Any

from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Counts steps; from start_localSGD_iter on gradients stay within `subgroup`."""

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,  # noqa: N803 - PyTorch's name
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Counts a step at its last bucket."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Any:  # noqa: N802 - PyTorch's name
    """The hook, for DistributedDataParallel.register_comm_hook."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        from tenon.futures import Future

        future: Any = Future()
        future.set_result(bucket.buffer())
        return future
    return default_hooks.allreduce_hook(state.subgroup, bucket)
