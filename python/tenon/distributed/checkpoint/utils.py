"""Boxes of tensors in a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import Tensor
from tenon.distributed.checkpoint.api import CheckpointException
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE, MetadataIndex

__all__ = ["CheckpointException", "find_state_dict_object", "find_tensor_shard"]


def find_tensor_shard(tensor: Tensor, index: MetadataIndex) -> Tensor:
    """The memory of a box that this rank has; a class may say it itself."""
    from tenon.distributed.tensor import DTensor

    if hasattr(tensor, "__get_tensor_shard__"):
        return tensor.__get_tensor_shard__(index)
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    if index.offset is not None and any(index.offset):
        raise ValueError(
            f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'"
        )
    return tensor


def find_state_dict_object(state_dict: STATE_DICT_TYPE, index: MetadataIndex) -> Any:
    """The entry, or this rank's box of it."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    obj = state_dict[index.fqn]
    if isinstance(obj, Tensor):
        return find_tensor_shard(obj, index)
    if index.offset is not None:
        raise ValueError(
            f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'"
        )
    return obj


def narrow_tensor_by_index(tensor: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The box of a tensor, which shares its memory."""
    return tensor[tuple(slice(a, a + n) for a, n in zip(offsets, sizes, strict=True))]
