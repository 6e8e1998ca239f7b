"""A share of the elements of a pipe: what one of several processes or workers gets."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from tenon.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


class SHARDING_PRIORITIES(IntEnum):
    """Among whom elements are shared: processes first, and each one's share among its workers."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


class _ShardingIterDataPipe(IterDataPipe):
    """What `apply_sharding` of graph_settings looks for."""

    def apply_sharding(
        self,
        num_of_instances: int,
        instance_id: int,
        sharding_group: SHARDING_PRIORITIES,
    ) -> None:
        """Says how many there are, and which of them this is."""
        raise NotImplementedError


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_ShardingIterDataPipe):
    """Every n-th element, once a loader, or apply_sharding, has said how many share them."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(
        self,
        num_of_instances: int,
        instance_id: int,
        sharding_group: SHARDING_PRIORITIES = SHARDING_PRIORITIES.DEFAULT,
    ) -> None:
        """Says how many there are in a group, and which of them this is."""
        if instance_id >= num_of_instances:
            raise ValueError(
                f"instance_id({instance_id}) should be smaller than "
                f"num_of_instances({num_of_instances})"
            )
        plain = SHARDING_PRIORITIES.DEFAULT
        mixed = plain not in self.groups if sharding_group == plain else plain in self.groups
        if self.groups and mixed:
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = num_of_instances, instance_id
        wanted = self.sharding_group_filter
        kept = sorted((k for k in self.groups if wanted is None or k == wanted), reverse=True)
        self.num_of_instances, self.instance_id = 1, 0
        for key in kept:
            count, own = self.groups[key]
            self.instance_id += self.num_of_instances * own
            self.num_of_instances *= count

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(self.source_datapipe):
            if i % self.num_of_instances == self.instance_id:
                yield item

    def __len__(self) -> int:
        whole, more = divmod(self._length_of(self.source_datapipe), self.num_of_instances)
        return whole + (self.instance_id < more)
