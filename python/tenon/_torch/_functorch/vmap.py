"""vmap, and the parts of it that packages put together themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon._torch._functorch._C_functorch import _add_batch_dim, _remove_batch_dim
from tenon._transform.vmap import _check
from tenon.func import vmap
from tenon.utils._pytree import TreeSpec, _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "Tensor", "TreeSpec", "_add_batch_dim", "_broadcast_to_and_flatten", "_create_batched_inputs",
    "_get_name", "_maybe_remove_batch_dim", "_process_batched_inputs", "_remove_batch_dim",
    "_unwrap_batched", "tree_flatten", "tree_unflatten", "vmap",
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


# ---- What packages replace -----------------------------------------------------------------------


def _process_batched_inputs(
    in_dims: Any, args: Any, func: Callable[..., Any]
) -> tuple[int, list[Any], list[Any], TreeSpec]:
    """The size that is mapped, and the arguments in a row with their dimensions."""
    values, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible "
            f"with the structure of `inputs`. in_dims has structure {tree_flatten(in_dims)[1]} but "
            f"inputs has structure {spec}."
        )
    size = _check(values, dims)
    dims = [d if d is None else d % v.dim() for v, d in zip(values, dims, strict=True)]
    return size, dims, values, spec


def _create_batched_inputs(
    flat_in_dims: list[Any], flat_args: list[Any], vmap_level: int, args_spec: TreeSpec
) -> Any:
    """The arguments as the function sees them."""
    pairs = zip(flat_in_dims, flat_args, strict=True)
    inside = [v if d is None else _add_batch_dim(v, d, vmap_level) for d, v in pairs]
    return tree_unflatten(inside, args_spec)


def _unwrap_batched(
    batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Callable[..., Any]
) -> Any:
    """The results with their elements at out_dims."""
    values, spec = tree_flatten(batched_outputs)
    single = isinstance(batched_outputs, Tensor) and isinstance(out_dims, tuple)
    dims = _broadcast_to_and_flatten(out_dims[0] if single else out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
            f"compatible with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    name = _get_name(func)
    out = [
        _maybe_remove_batch_dim(name, value, vmap_level, batch_size, dim)
        for value, dim in zip(values, dims, strict=True)
    ]
    return tree_unflatten(out, spec)


_PARTS = _process_batched_inputs, _create_batched_inputs, _unwrap_batched


def are_replaced() -> bool:
    """Whether a package has put functions of its own in the place of these."""
    return _PARTS != (_process_batched_inputs, _create_batched_inputs, _unwrap_batched)
