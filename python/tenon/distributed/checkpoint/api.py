"""What goes wrong with checkpoints of several processes."""

from __future__ import annotations

from typing import Any

__all__ = ["CheckpointException"]


class CheckpointException(Exception):  # noqa: N818 - PyTorch's name
    """Some ranks have failed; `failures` says by rank how. It is raised on all of them."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        self._failures = failures
        lines = [f"rank {rank}: {type(e).__name__}: {e}" for rank, e in sorted(failures.items())]
        super().__init__("\n".join([msg, *lines]))

    @property
    def failures(self) -> dict[int, Any]:
        """The error of each rank that has one."""
        return self._failures
