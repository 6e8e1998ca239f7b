"""Reading of checkpoints."""

from __future__ import annotations

from typing import Any

from tenon.distributed.checkpoint import _state
from tenon.distributed.checkpoint._state import load
from tenon.distributed.checkpoint.default_planner import DefaultLoadPlanner, check

__all__ = ["load", "load_state_dict"]


def load_state_dict(
    state_dict: dict[str, Any], storage_reader: Any, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None,
) -> None:  # fmt: skip
    """The earlier form of load."""
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: dict[str, Any], storage_reader: Any, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None,
) -> None:  # fmt: skip
    del coordinator_rank
    plan = check(planner, DefaultLoadPlanner)
    reader = _state._reader(None, storage_reader)
    _state.load_into(state_dict, reader, plan, _state._Ranks(process_group, no_dist))
