"""Checkpoints of several processes as one file of torch.save, and back."""

from __future__ import annotations

import os
from typing import Any

import tenon
from tenon import distributed, serialization
from tenon.distributed.checkpoint._nested_dict import flatten_state_dict
from tenon.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from tenon.distributed.checkpoint.filesystem import FileSystemReader, done
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from tenon.distributed.checkpoint.planner_helpers import _create_chunk_list
from tenon.distributed.checkpoint.state_dict_loader import _load_state_dict
from tenon.distributed.checkpoint.state_dict_saver import save
from tenon.distributed.checkpoint.storage import StorageReader
from tenon.distributed.checkpoint.utils import narrow_tensor_by_index
from tenon.futures import Future

__all__ = [
    "BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save",
    "torch_save_to_dcp",
]  # fmt: skip


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of torch.save on one rank, which sends each tensor to the others; beside it
    goes a DynamicMetaLoadPlanner. For tensors only."""

    def __init__(
        self, checkpoint_id: str | os.PathLike[str] | None = None, coordinator_rank: int = 0
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.coordinator_rank = coordinator_rank
        self.is_coordinator = False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({})

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self.is_coordinator = is_coordinator
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        if is_coordinator and rank != self.coordinator_rank:
            raise AssertionError(
                f"Coordinator rank mismatch: expected {self.coordinator_rank}, got {rank}"
            )
        if self.checkpoint_id is None:
            raise AssertionError("checkpoint_id must be set before setting up storage reader")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise RuntimeError(
                    f"Non-tensor value identified at {item.storage_index.fqn}. "
                    f"At this time {type(self).__name__} only supports loading Tensors."
                )
        stored: dict[str, Any] = {}
        if self.is_coordinator:
            assert self.checkpoint_id is not None
            stored = serialization.load(self.checkpoint_id, map_location="cpu")
            if getattr(planner, "flatten_state_dict", True):
                stored, _ = flatten_state_dict(stored)
        metadata: Metadata = planner.metadata  # type: ignore[attr-defined]
        for fqn, told in metadata.state_dict_metadata.items():
            assert isinstance(told, TensorStorageMetadata)
            whole = tenon.empty(told.size, dtype=told.properties.dtype, device="cpu")
            if self.is_coordinator:
                whole.copy_(stored[fqn])
            if distributed.is_initialized():
                distributed.broadcast(whole, src=self.coordinator_rank)
            for item in (i for i in plan.items if i.storage_index.fqn == fqn):
                starts = zip(item.storage_index.offset or (), item.storage_offsets, strict=True)
                part = narrow_tensor_by_index(whole, [a + b for a, b in starts], item.lengths)
                target = planner.resolve_tensor(item).detach()
                target.copy_(part)
                planner.commit_tensor(item, target)
        return done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes for granted that the file has what the state has: tensors only."""

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        super().set_up_planner(state_dict, metadata, is_coordinator)
        found: dict[str, Any] = {}
        for key, value in self.state_dict.items():
            if not isinstance(value, tenon.Tensor):
                raise RuntimeError(
                    f"Non-tensor value identified at {key}. "
                    f"At this time {type(self).__name__} only supports loading Tensors."
                )
            found[key] = TensorStorageMetadata(
                TensorProperties(dtype=value.dtype), value.size(), _create_chunk_list(value)
            )
        self.metadata = Metadata(found)


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
