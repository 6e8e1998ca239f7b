"""Writing of checkpoints."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tenon.distributed.checkpoint._state import AsyncSaveResponse, async_save, save

__all__ = [
    "AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict",
]  # fmt: skip


class AsyncCheckpointerType(Enum):
    """What writes in the background: a thread, whichever is asked for."""

    THREAD = "thread"
    PROCESS = "process"


def save_state_dict(
    state_dict: dict[str, Any], storage_writer: Any, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None,
) -> Any:  # fmt: skip
    """The earlier form of save."""
    del coordinator_rank
    return save(state_dict, storage_writer=storage_writer, process_group=process_group,
                no_dist=no_dist, planner=planner)  # fmt: skip
