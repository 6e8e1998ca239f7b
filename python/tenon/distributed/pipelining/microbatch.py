"""A batch as micro-batches, and their results as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor

__all__ = [
    "TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks", "sum_reducer",
]  # fmt: skip


class TensorChunkSpec:
    """A tensor is cut along a dimension."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        """One of each dimension."""
        return tuple(TensorChunkSpec(d) for d in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> dict[str, TensorChunkSpec]:
        """One of each dimension."""
        return {k: TensorChunkSpec(d) for k, d in chunk_dims.items()}


class _Replicate:
    """An argument is the same for all micro-batches."""


class _CustomReducer:
    """Results are reduced by a function, from a first value."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


sum_reducer = _CustomReducer(0.0, lambda a, b: a + b)


def _chunks(value: Any, count: int, spec: Any) -> list[Any]:
    if isinstance(value, Tensor) and not isinstance(spec, _Replicate) and value.ndim:
        dim = 0 if spec is None else spec.split_dim
        if value.shape[dim] < count:
            raise ValueError(
                f"{value.shape[dim]} elements along dimension {dim} are not {count} micro-batches"
            )
        return list(tenon.tensor_split(value, count, dim))
    if isinstance(value, (list, tuple)) and not isinstance(spec, _Replicate):
        parts = [_chunks(v, count, spec) for v in value]
        return [type(value)(p[i] for p in parts) for i in range(count)]
    return [value] * count


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...], kwargs: dict[str, Any] | None, chunks: int,
    args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:  # fmt: skip
    """Arguments of each micro-batch: tensors are cut along dimension 0 unless specs say another."""
    specs = [None] * len(args) if args_chunk_spec is None else list(args_chunk_spec)
    if len(specs) != len(args):
        raise ValueError(f"{len(args)} arguments, and {len(specs)} of args_chunk_spec")
    parts = [_chunks(a, chunks, s) for a, s in zip(args, specs, strict=True)]
    named = {
        k: _chunks(v, chunks, (kwargs_chunk_spec or {}).get(k)) for k, v in (kwargs or {}).items()
    }
    return (
        [tuple(p[i] for p in parts) for i in range(chunks)],
        [{k: p[i] for k, p in named.items()} for i in range(chunks)],
    )


def merge_chunks(chunks: list[Any], chunk_spec: Any = None) -> Any:
    """One result of those of the micro-batches."""
    first = chunks[0]
    if isinstance(chunk_spec, _CustomReducer):
        total = chunk_spec.init_value
        for c in chunks:
            total = chunk_spec.reduce_fn(total, c)
        return total
    if isinstance(first, Tensor):
        if first.ndim == 0:
            return tenon.stack(chunks)
        return tenon.cat(chunks, 0 if chunk_spec is None else chunk_spec.split_dim)
    if isinstance(first, (list, tuple)):
        specs = chunk_spec if isinstance(chunk_spec, (list, tuple)) else [chunk_spec] * len(first)
        merged = (
            merge_chunks([c[i] for c in chunks], specs[i]) for i in range(len(first))
        )  # fmt: skip
        return type(first)(merged)
    if isinstance(first, dict):
        specs = chunk_spec if isinstance(chunk_spec, dict) else {}
        return {k: merge_chunks([c[k] for c in chunks], specs.get(k)) for k in first}
    return first
