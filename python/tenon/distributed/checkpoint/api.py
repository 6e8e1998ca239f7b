"""What goes wrong with checkpoints of several processes."""

from __future__ import annotations

from traceback import StackSummary

__all__ = ["CheckpointException"]


class CheckpointException(Exception):  # noqa: N818 - PyTorch's name
    """Some ranks have failed; `failures` has by rank the error and where it came from. It is raised
    on all of them."""

    def __init__(self, msg: str, failures: dict[int, tuple[BaseException, StackSummary]]) -> None:
        self._failures = failures
        lines = [f"rank {r}: {type(e).__name__}: {e}" for r, (e, _) in sorted(failures.items())]
        super().__init__("\n".join([msg, *lines]))

    @property
    def failures(self) -> dict[int, tuple[BaseException, StackSummary]]:
        """The error of each rank that has one, and where it came from."""
        return self._failures
