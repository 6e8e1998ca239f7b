"""Questions about tensors inside `vmap`, and the way into it and out of it."""

from __future__ import annotations

from typing import Any

from tenon._transform.vmap import Batched, batched


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for one element of a mapped one."""
    return isinstance(tensor, Batched)


is_functorch_wrapped_tensor = is_batchedtensor


def is_legacy_batchedtensor(tensor: Any) -> bool:
    """No tensor is one of the first kind of vmap."""
    return False


def is_gradtrackingtensor(tensor: Any) -> bool:
    """grad() runs on the tape of all tensors: none is wrapped for it."""
    return False


def get_unwrapped(tensor: Any) -> Any:
    """The tensor of all elements behind a mapped one, the tensor itself for others."""
    return tensor._batch if is_batchedtensor(tensor) else tensor


def maybe_get_bdim(tensor: Any) -> int:
    """The dimension of the elements behind a mapped tensor, -1 for others."""
    return 0 if is_batchedtensor(tensor) else -1


def maybe_get_level(tensor: Any) -> int:
    """The number of the vmap that a tensor belongs to, -1 for none."""
    return tensor._level if is_batchedtensor(tensor) else -1


def _add_batch_dim(tensor: Any, in_dim: int, level: int) -> Any:
    """A tensor as one element, whose dimension `in_dim` is mapped."""
    return batched(tensor.movedim(in_dim, 0), level)


def _remove_batch_dim(tensor: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """The opposite; a tensor that is not mapped there is the same for all elements."""
    if is_batchedtensor(tensor) and tensor._level == level:
        return tensor._batch.movedim(0, out_dim)
    return tensor.expand(batch_size, *tensor.shape).movedim(0, out_dim)
