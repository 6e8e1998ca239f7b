"""Planners: who writes and reads what is settled by save and load; these carry their options."""

from __future__ import annotations

from typing import Any

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "LoadPlanner", "SavePlanner",
    "_EmptyStateDictLoadPlanner",
]  # fmt: skip


class SavePlanner:
    """Options of save."""


class LoadPlanner:
    """Options of load."""


class DefaultSavePlanner(SavePlanner):
    """A tensor that several ranks have is written by one of them."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        del flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching
        if not flatten_state_dict:
            raise NotImplementedError("DefaultSavePlanner: flatten_state_dict=False is not there")
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank


class DefaultLoadPlanner(LoadPlanner):
    """allow_partial_load: what the checkpoint does not have stays as it is."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        del flatten_sharded_tensors
        if not flatten_state_dict:
            raise NotImplementedError("DefaultLoadPlanner: flatten_state_dict=False is not there")
        self.allow_partial_load = allow_partial_load


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty state dict with all that the checkpoint has, or with the given keys."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = keys

    def wants(self, key: str, path: list[Any]) -> bool:
        """Whether an entry is read."""
        if self.keys is None or key in self.keys:
            return True
        prefixes = [".".join(map(str, path[: i + 1])) for i in range(len(path))]
        return any(p in self.keys for p in prefixes)


_SERVED = (DefaultSavePlanner, DefaultLoadPlanner, _EmptyStateDictLoadPlanner)


def check(planner: Any, expected: type) -> Any:
    """The planner, or a new one; a program's own planner is refused."""
    if planner is None:
        return expected()
    if type(planner) not in _SERVED or not isinstance(planner, expected):
        raise NotImplementedError(
            f"{type(planner).__name__}: planners of one's own are not there yet; "
            f"{expected.__name__} is"
        )
    return planner
