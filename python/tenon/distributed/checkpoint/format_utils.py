"""Checkpoints of several processes as one file of torch.save, and back."""

from __future__ import annotations

import os
from typing import Any

from tenon import serialization
from tenon.distributed.checkpoint._state import save
from tenon.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from tenon.distributed.checkpoint.filesystem import FileSystemReader
from tenon.distributed.checkpoint.state_dict_loader import _load_state_dict

__all__ = ["_EmptyStateDictLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Writes all that a checkpoint has into one file."""
    state: dict[str, Any] = {}
    reader = FileSystemReader(dcp_checkpoint_dir)
    _load_state_dict(state, reader, no_dist=True, planner=_EmptyStateDictLoadPlanner())
    serialization.save(state, torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Writes a file of torch.save as a checkpoint."""
    save(serialization.load(torch_save_path), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
