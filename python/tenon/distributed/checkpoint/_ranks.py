"""Steps of save and load that all ranks of a group make together."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from traceback import extract_tb
from typing import Any

from tenon import distributed
from tenon.distributed.checkpoint.api import CheckpointException

__all__: list[str] = []


def _portable(error: Exception) -> Exception:
    """An error that travels, pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class Ranks:
    """Exchange between the ranks of a group, or none."""

    def __init__(self, group: Any, alone: bool, coordinator: int = 0) -> None:
        self.on = not alone and distributed.is_initialized()
        self.on = self.on and distributed.get_world_size(group) > 1
        self.group = group
        self.rank = distributed.get_rank(group) if self.on else 0
        self.size = distributed.get_world_size(group) if self.on else 1
        self.coordinator = coordinator if self.on else 0

    @property
    def leads(self) -> bool:
        """Whether this rank makes the plan of all."""
        return self.rank == self.coordinator

    def beside(self) -> Ranks:
        """The same ranks as a group of their own, whose exchanges nothing else waits for."""
        if not self.on:
            return self
        group = distributed.split_group(self.group, [list(range(self.size))])
        return Ranks(group, False, self.coordinator)

    def gather(self, what: str, run: Callable[[], Any]) -> list[Any]:
        """What `run` gives on each rank; an error on one of them is one on all."""
        error, value = None, None
        try:
            value = run()
        except Exception as err:
            error = err
        failure = None if error is None else (error, extract_tb(error.__traceback__))
        told: list[Any] = [(value, failure)]
        if self.on:
            told = [None] * self.size
            plain = None if failure is None else (_portable(failure[0]), failure[1])
            distributed.all_gather_object(told, (value, plain), self.group)
        failures = {rank: e for rank, (_, e) in enumerate(told) if e is not None}
        if failures:
            raise CheckpointException(f"{what} has failed", failures) from error
        return [v for v, _ in told]

    def lead(self, what: str, run: Callable[[], Any]) -> Any:
        """What `run` gives on the coordinator, on all ranks."""
        return self.gather(what, lambda: run() if self.leads else None)[self.coordinator]
