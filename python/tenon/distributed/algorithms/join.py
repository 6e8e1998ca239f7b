"""Join: training of processes that have different numbers of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

__all__ = ["Join"]


class Join:
    """`with Join([model]):` is `with model.join():` of a DistributedDataParallel."""

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **options: Any,
    ) -> None:
        if len(joinables) != 1:
            raise NotImplementedError(
                f"Join: one DistributedDataParallel is joined at a time, got {len(joinables)}"
            )
        self._context = joinables[0].join(
            enable=enable, throw_on_early_termination=throw_on_early_termination, **options
        )

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._context.__exit__(kind, value, trace)

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """A DistributedDataParallel says by itself that it still has inputs."""
