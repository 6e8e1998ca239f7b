"""The older names of tenon.profiler."""

from __future__ import annotations

from typing import Any

from tenon import profiler
from tenon.distributed._absent import absent
from tenon.profiler import EventList, FunctionEvent, FunctionEventAvg, record_function

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "emit_nvtx", "profile", "record_function",
]  # fmt: skip

emit_nvtx = absent("torch.autograd.profiler", "emit_nvtx", "cuda.nvtx marks ranges")


class profile(profiler.profile):  # noqa: N801 - PyTorch's name
    """`tenon.profiler.profile` by its older arguments, without steps."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        use_cpu: bool = True,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **others: Any,
    ) -> None:
        del use_cuda, use_device, use_cpu, others
        self.enabled = enabled
        super().__init__(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
            with_flops=with_flops, with_modules=with_modules,
        )  # fmt: skip

    def __enter__(self) -> profile:
        if self.enabled:
            self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self.stop()

    @property
    def function_events(self) -> list[FunctionEvent]:
        """What was recorded."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Times that contain others count once."""
        return self.key_averages().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg:
        """All of them as one."""
        return self.key_averages().total_average()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """As text, by name."""
        return self.key_averages().table(*args, **kwargs)

    def __str__(self) -> str:
        return self.table()
