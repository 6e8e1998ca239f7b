"""Join: training of processes that have different numbers of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import tenon
from tenon import distributed

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process that has no more inputs does for something that takes part."""

    def main_hook(self) -> None:
        """Once for each iteration of the others: takes part in what they exchange."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all have ended. is_last_joiner: this process was one of the last."""


class _Config:
    """What a Join has told something that takes part."""

    def __init__(self, enable: bool = False, throws: bool = False, is_first: bool = False) -> None:
        self.enable, self.throw_on_early_termination = enable, throws
        self.is_first_joinable = is_first


class Joinable(ABC):
    """Something that exchanges data in each iteration: a model, an optimizer, a counter."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _Config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What to do for it; kwargs are those of Join, of everything that takes part."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where its tensors are."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group that exchanges."""


class Join:
    """`with Join([model, optimizer]):` a process that has left it takes part in what the others
    exchange until they have left it, too.

    throw_on_early_termination: the first process without inputs ends the others by an error.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        groups = {id(j.join_process_group): j.join_process_group for j in joinables}
        if len(groups) > 1:
            raise ValueError(
                "Using join context manager with multiple process groups is not supported"
            )
        self._joinables = list(joinables)
        self._group = next(iter(groups.values()))
        self._enable, self._throws = enable, throw_on_early_termination
        self._hooks = [j.join_hook(**kwargs) for j in joinables]

    def __enter__(self) -> None:
        for i, joinable in enumerate(self._joinables):
            joinable._join_config = _Config(self._enable, self._throws, i == 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _Config()

    def _shadow(self) -> None:
        is_last = True
        while _count(self._group, 0) > 0:
            if self._throws:
                _count(self._group, 1)  # the others hear of it
                rank = distributed.get_rank(self._group)
                raise RuntimeError(f"Rank {rank} exhausted all inputs.")
            is_last = False
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last)

    @staticmethod
    def notify_join_context(joinable: Any) -> Any:
        """Says that this process has another iteration, before anything is exchanged in it. Only
        the first of those that take part does; the work's result is how many processes have one."""
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return None
        group = joinable.join_process_group
        work = distributed.all_reduce(tenon.ones(1), group=group, async_op=True)
        if config.throw_on_early_termination:
            work.wait()
            if work.result()[0].item() < distributed.get_world_size(group):
                _count(group, 0)
                raise RuntimeError(
                    "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
        return work


def _count(group: Any, mine: int) -> int:
    number = tenon.tensor([float(mine)])
    distributed.all_reduce(number, group=group)
    return int(number.item())
