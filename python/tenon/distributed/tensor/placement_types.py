"""How a tensor lies along one dimension of a mesh: cut, whole everywhere, or as terms of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What a DTensor is along one dimension of its mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is cut, along a dimension where one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every rank has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the tensor is the reduction of what the ranks have."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


class Replicate(Placement):
    """Every rank has all of the tensor."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replicate)

    def __hash__(self) -> int:
        return hash(Replicate)

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


class Shard(Placement):
    """Rank i has the i-th part along a dimension, as `chunk` cuts it: the first parts are as large
    as any, the last ones may be smaller or empty."""

    def __init__(self, dim: int) -> None:
        if not isinstance(dim, int):
            raise TypeError(f"Shard: expected the number of a dimension, got {dim!r}")
        self.dim = dim

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Shard) and self.dim == other.dim

    def __hash__(self) -> int:
        return hash((Shard, self.dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(size: int, parts: int, rank: int) -> tuple[int, int]:
        """How many rows a rank has, and which is its first."""
        full = -(-size // parts)
        start = min(full * rank, size)
        return min(full, size - start), start

    def _local_shard_size_and_offset(self, size: int, parts: int, rank: int) -> tuple[int, int]:
        return self.local_shard_size_and_offset(size, parts, rank)

    def _split_tensor(
        self, tensor: Tensor, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True
    ) -> tuple[list[Tensor], list[int]]:
        """(the part of each rank, the rows of zeros behind each); with_padding: all parts get the
        size of the first one."""
        size = tensor.shape[self.dim]
        parts, padding, full = [], [], -(-size // num_chunks)
        for rank in range(num_chunks):
            rows, start = self.local_shard_size_and_offset(size, num_chunks, rank)
            part = tensor.narrow(self.dim, start, rows)
            if with_padding:
                padding.append(full - rows)
                zeros = [0, 0] * (tensor.ndim - 1 - self.dim % tensor.ndim) + [0, full - rows]
                part = tenon.nn.functional.pad(part, zeros) if full > rows else part
            parts.append(part.contiguous() if contiguous else part)
        return parts, padding


class _StridedShard(Shard):
    """A dimension that an inner mesh dimension has cut before an outer one."""

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.split_factor == getattr(other, "split_factor", None)

    def __hash__(self) -> int:
        return hash((_StridedShard, self.dim, self.split_factor))

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


def cut_order(placements: Sequence[Placement]) -> list[int]:
    """The dimensions of the mesh in the order in which they cut: as they stand, but for those that
    cut after the ones behind them."""
    dims = range(len(placements))
    late = [d for d in dims if isinstance(placements[d], _StridedShard)]
    return [d for d in dims if d not in late] + late


class Partial(Placement):
    """The tensor is the sum of what the ranks have, or their average, product, minimum, maximum."""

    def __init__(self, reduce_op: str = "sum") -> None:
        if reduce_op not in ("sum", "avg", "product", "min", "max"):
            raise ValueError(f"Partial: expected sum, avg, product, min or max, got {reduce_op!r}")
        self.reduce_op = reduce_op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partial) and self.reduce_op == other.reduce_op

    def __hash__(self) -> int:
        return hash((Partial, self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


_Partial: Any = Partial  # its name in earlier releases
