"""What is exchanged, and how often."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tenon import ops
from tenon.distributed._watch import watchers

__all__ = ["CommDebugMode"]

# Functions that a program calls, and the operators under which PyTorch counts them.
_KINDS = {
    "all_gather": "all_gather_into_tensor", "all_gather_into_tensor": "all_gather_into_tensor",
    "all_reduce": "all_reduce", "all_to_all": "all_to_all_single",
    "all_to_all_single": "all_to_all_single", "broadcast": "broadcast",
    "reduce_scatter": "reduce_scatter_tensor", "reduce_scatter_tensor": "reduce_scatter_tensor",
}  # fmt: skip


# What a program calls itself PyTorch counts under the operators that write.
_WRITING = {
    "_allgather_base_": "all_gather_into_tensor", "_reduce_scatter_base_": "reduce_scatter_tensor",
    "allreduce_": "all_reduce", "broadcast_": "broadcast",
}  # fmt: skip


class _Counts(Counter[Any]):
    """Numbers by operators of `c10d_functional`; those of `c10d` stand for the same exchanges."""

    def __missing__(self, key: Any) -> int:
        name = next((n for w, n in _WRITING.items() if key == getattr(ops.c10d, w)), None)
        return 0 if name is None else self[getattr(ops.c10d_functional, name)]


class CommDebugMode:
    """Counts the exchanges of this process while it is entered, those of DTensors among them.

        with CommDebugMode() as comm:
            model(x)
        comm.get_comm_counts()[torch.ops.c10d_functional.all_reduce]

    Exchanges of groups of several tensors count one by one.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> CommDebugMode:
        self._counts.clear()
        watchers.append(self._see)
        return self

    def __exit__(self, *exc: object) -> None:
        watchers.remove(self._see)

    def _see(self, name: str) -> None:
        self._counts[_KINDS[name]] += 1

    def get_comm_counts(self) -> dict[Any, int]:
        """How often each operator of torch.ops.c10d_functional was called; 0 for the others."""
        found = _Counts()
        for name, count in self._counts.items():
            found[getattr(ops.c10d_functional, name)] = count
        return found

    def get_total_counts(self) -> int:
        """How many exchanges there were."""
        return sum(self._counts.values())
