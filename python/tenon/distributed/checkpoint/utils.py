"""What went wrong with a checkpoint, under the name of its module in PyTorch."""

from __future__ import annotations

from tenon.distributed.checkpoint.api import CheckpointException

__all__ = ["CheckpointException"]
