"""vmap, and the parts of it that packages put together themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon._torch._functorch._C_functorch import _add_batch_dim, _remove_batch_dim
from tenon.func import vmap
from tenon.utils._pytree import TreeSpec, _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "Tensor", "TreeSpec", "_add_batch_dim", "_broadcast_to_and_flatten", "_get_name",
    "_maybe_remove_batch_dim", "_remove_batch_dim", "tree_flatten", "tree_unflatten", "vmap",
]  # fmt: skip


def _get_name(func: Callable[..., Any]) -> str:
    """What errors call a function."""
    return getattr(func, "__name__", None) or repr(func)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """A result of a mapped function with its elements at `out_dim`; None: it is one for all."""
    if out_dim is None:
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type "
            f"{type(batched_output)}. Did you mean to set out_dims= to None for output?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
