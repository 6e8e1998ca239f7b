"""Where checkpoints lie: what save and load ask of a storage."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from tenon.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tenon.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from tenon.futures import Future

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """What was written: which box, how long, and what the storage keeps of it."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes checkpoints. save calls, in this order: reset where it knows the checkpoint's name,
    set_up_storage_writer and prepare_local_plan on all ranks, prepare_global_plan on the
    coordinator, write_data on all, and finish on the coordinator."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Another checkpoint begins."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Says which rank this is."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """What this rank writes, with what the storage adds."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """What each rank writes, with what the storage adds."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes the items of a plan, whose data the planner has."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Makes the checkpoint one, after all ranks have written."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a name of this storage."""

    def storage_meta(self) -> StorageMeta | None:
        """What the storage says of the checkpoint."""
        return None


class StorageReader(abc.ABC):
    """Reads checkpoints. load calls, in this order: reset where it knows the checkpoint's name,
    read_metadata, set_up_storage_reader and prepare_local_plan on all ranks, prepare_global_plan
    on the coordinator, and read_data on all."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Another checkpoint begins."""

    @abc.abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint says of itself."""

    @abc.abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Says which rank this is."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """What this rank reads, with what the storage adds."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """What each rank reads, with what the storage adds."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads the items of a plan into the memory that the planner has for them."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a name of this storage."""
