"""Reading of an optimizer's state."""

from __future__ import annotations

from typing import Any

from tenon.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from tenon.distributed.checkpoint.state_dict_loader import _load_state_dict

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any], optimizer_key: str, storage_reader: Any, planner: Any = None
) -> dict[str, Any]:
    """{optimizer_key: state}, whole, which optim_state_dict_to_load cuts."""
    del model_state_dict
    state: dict[str, Any] = {}
    _load_state_dict(
        state, storage_reader, planner=planner or _EmptyStateDictLoadPlanner({optimizer_key})
    )  # fmt: skip
    return state
