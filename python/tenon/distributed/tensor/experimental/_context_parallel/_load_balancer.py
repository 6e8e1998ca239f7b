"""In which order tokens are cut among processes, so that causal attention costs each the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import tenon
from tenon import Tensor

__all__: list[str] = []


class _LoadBalancer(ABC):
    """An order of tokens."""

    @abstractmethod
    def _generate_indices(self, restore: bool = False) -> Tensor | None:
        """A row of indices for all samples, or one for each: `x[indices]` is what is cut. restore:
        those that bring it back."""


def _head_and_tail(start: int, length: int, ranks: int, device: Any) -> Tensor:
    """Of 2 `ranks` equal pieces the first and the last, the second and the last but one, ..."""
    if length % (2 * ranks):
        raise ValueError(
            f"context_parallel: a sequence of {length} tokens is not cut into {2 * ranks} equal "
            f"pieces, two for each of {ranks} processes"
        )
    pieces = tenon.arange(start, start + length, device=device).view(2 * ranks, -1)
    return tenon.stack([pieces[:ranks], pieces[ranks:].flip(0)], 1).view(-1)


class _HeadTailLoadBalancer(_LoadBalancer):
    """Each process has a piece from the front and one from the back of the sequence."""

    def __init__(self, seq_length: int, world_size: int, device: Any) -> None:
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        order = _head_and_tail(0, self.seq_length, self.world_size, self.device)
        return (order.argsort() if restore else order).unsqueeze(0)


class _PerDocumentHeadTailLoadBalancer(_LoadBalancer):
    """The same for every document of a sequence; a list of lengths for all samples or for each."""

    def __init__(self, seq_length_per_doc: list[list[int]], world_size: int, device: Any) -> None:
        self.seq_length_per_doc = seq_length_per_doc
        self.world_size, self.device = world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        rows = []
        for lengths in self.seq_length_per_doc:
            found, start = [], 0
            for length in lengths:
                found.append(_head_and_tail(start, length, self.world_size, self.device))
                start += length
            rows.append(tenon.cat(found))
        order = tenon.stack(rows)
        return order.argsort(-1) if restore else order
