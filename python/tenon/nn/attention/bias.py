"""Causal masks for queries and keys of different numbers: `attn_mask` of
`scaled_dot_product_attention`."""

from __future__ import annotations

import enum
from typing import Any

import tenon
from tenon import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the triangle of a mask that is not square stands."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask of (queries, keys), True where a query may look, that remembers how it was made."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        shift = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask = tenon.ones(seq_len_q, seq_len_kv, dtype=tenon.bool).tril(shift)
        made = mask.as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Results are plain tensors."""
        with tenon.overrides.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a plain tensor."""
        return self.as_subclass(Tensor).to(device or self.device)


def causal_upper_left(*size: int) -> CausalBias:
    """A mask whose first query sees the first key alone: what `is_causal` means.

    >>> nn.attention.bias.causal_upper_left(1, 2).tolist()
    [[True, False]]
    """
    return _of(CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """A mask whose last query sees all keys: what generating with a cache needs.

    >>> nn.attention.bias.causal_lower_right(1, 2).tolist()
    [[True, True]]
    """
    return _of(CausalVariant.LOWER_RIGHT, size)


def _of(variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"{variant.name.lower()} only supports 2D tensors")
    return CausalBias(variant, *size)
