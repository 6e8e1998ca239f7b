"""vmap and gradients of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.func import grad, grad_and_value, vmap

__all__ = ["chunk_vmap", "grad", "grad_and_value", "vmap"]


def chunk_vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
    chunks: int = 2,
) -> Callable[..., Any]:  # fmt: skip
    """vmap in so many steps, each over a part of the elements."""
    if chunks == 1:
        return vmap(func, in_dims=in_dims, out_dims=out_dims, randomness=randomness)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        from tenon.utils._pytree import tree_leaves

        sizes = [
            leaf.shape[dim]
            for leaf, dim in zip(tree_leaves(args), _dims_of(in_dims, args), strict=True)
            if dim is not None
        ]
        size = -(-sizes[0] // chunks)
        return vmap(
            func, in_dims=in_dims, out_dims=out_dims, randomness=randomness, chunk_size=size
        )(*args, **kwargs)

    return mapped


def _dims_of(in_dims: Any, args: Any) -> list[Any]:
    """The mapped dimension of each leaf of the arguments."""
    from tenon.utils._pytree import tree_leaves

    if not isinstance(in_dims, tuple | list):
        return [in_dims] * len(tree_leaves(args))
    return [dim for part, arg in zip(in_dims, args, strict=True) for dim in _dims_of(part, (arg,))]
