"""Attention over sequences of several lengths that lie one after the other, without padding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import tenon
from tenon import Tensor
from tenon.nn import functional as F

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What is returned beside the result: lse, the logsumexp of the scores of every query."""

    lse: bool = False


class _Keys(NamedTuple):
    """Where the keys and values of sequences are."""

    starts: list[int] | None  # in rows; None: in pages alone
    used: list[int] | None
    pages: Tensor | None

    def of(self, i: int, t: Tensor) -> Tensor:
        """Those of sequence i, (length, heads, width)."""
        if self.pages is not None and self.used is not None:
            count = -(-self.used[i] // t.size(1))
            return t[self.pages[i, :count].long()].flatten(0, 1)[: self.used[i]]
        assert self.starts is not None
        rows = t[self.starts[i] : self.starts[i + 1]]
        return rows if self.used is None else rows[: self.used[i]]


def _ends(name: str, given: Tensor, total: int) -> list[int]:
    """Where sequences begin and the last one ends."""
    if given.dim() != 1 or given.is_floating_point():
        raise ValueError(f"varlen_attn: {name} must be a vector of integers, got {given.dtype} of "
                         f"shape {tuple(given.shape)}")  # fmt: skip
    ends = [int(n) for n in given.tolist()]
    if not ends or ends[0] != 0 or ends[-1] > total or ends != sorted(ends):
        raise ValueError(f"varlen_attn: {name} must rise from 0 to at most {total}, got {ends}")
    return ends


def _keys(
    key: Tensor, count: int, cu_seq_k: Tensor | None, seqused_k: Tensor | None,
    block_table: Tensor | None,
) -> _Keys:  # fmt: skip
    used = None if seqused_k is None else [int(n) for n in seqused_k.tolist()]
    if used is not None and (len(used) != count or min(used, default=0) < 0):
        raise ValueError(f"varlen_attn: seqused_k must have a length for each of {count} sequences")
    if block_table is not None:
        if used is None:
            raise ValueError("varlen_attn: block_table needs seqused_k")
        if max(used, default=0) > block_table.size(1) * key.size(1):
            raise ValueError("varlen_attn: seqused_k is longer than the pages of block_table")
        return _Keys(None, used, block_table)
    if cu_seq_k is None:
        raise ValueError("varlen_attn: cu_seq_k may be None only with block_table")
    starts = _ends("cu_seq_k", cu_seq_k, len(key))
    if len(starts) != count + 1:
        raise ValueError(f"varlen_attn: cu_seq_k has {len(starts) - 1} sequences, cu_seq_q {count}")
    return _Keys(starts, used, None)


def _window(queries: int, keys: int, window: tuple[int, int], like: Tensor) -> Tensor | None:
    """Which keys a query sees: the last query stands at the last key."""
    if window == (-1, -1):
        return None
    at = tenon.arange(queries, device=like.device)[:, None] + (keys - queries)
    other = tenon.arange(keys, device=like.device)
    left, right = window
    seen = tenon.ones(queries, keys, dtype=tenon.bool, device=like.device)
    if left >= 0:
        seen &= other >= at - left
    if right >= 0:
        seen &= other <= at + right
    return seen


def _check_heads(query: Tensor, heads: int, enable_gqa: bool) -> None:
    if not enable_gqa and query.size(1) != heads:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got "
            f"Hq={query.size(1)} and Hkv={heads}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and query.size(1) % heads != 0:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={query.size(1)} and Hkv={heads}."
        )


def _sequences(
    query: Tensor, key: Tensor, value: Tensor, starts: list[int], keys: _Keys
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, key and value of each sequence, (heads, length, width)."""
    for i, (first, end) in enumerate(zip(starts, starts[1:])):
        parts = (query[first:end], keys.of(i, key), keys.of(i, value))
        q, k, v = (t.transpose(0, 1) for t in parts)
        yield q, k, v


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """scaled_dot_product_attention of every sequence by itself.

    Shapes: query (all queries, heads, width), key and value (all keys, heads, width), cu_seq_q and
    cu_seq_k (sequences + 1,): where each begins and the last one ends. With block_table (sequences,
    pages) key and value are (all pages, length of a page, heads, width); seqused_k (sequences,):
    how many keys count. window_size: how many keys before and behind its own a query sees, -1: all;
    (-1, 0) is causal, and the last query stands at the last key. The result has query's shape, lse
    is (all queries, heads). max_q, max_k and num_splits steer kernels of GPUs alone.

    >>> q = tn.ones(3, 1, 2)
    >>> from tenon.nn.attention.varlen import varlen_attn
    >>> varlen_attn(q, q, q, tn.tensor([0, 1, 3]), tn.tensor([0, 1, 3]), 2, 2).shape
    tenon.Size([3, 1, 2])
    """
    _check_heads(query, key.size(-2), enable_gqa)
    starts = _ends("cu_seq_q", cu_seq_q, len(query))
    if starts[-1] != len(query):
        raise ValueError(f"varlen_attn: cu_seq_q ends at {starts[-1]} of {len(query)} queries")
    keys = _keys(key, len(starts) - 1, cu_seq_k, seqused_k, block_table)
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    wants_lse = return_aux is not None and return_aux.lse
    results, sums = [query[:0]], [query.new_zeros(0, query.size(1), dtype=tenon.float32)]
    for q, k, v in _sequences(query, key, value, starts, keys):
        seen = _window(q.size(1), k.size(1), (int(window_size[0]), int(window_size[1])), query)
        found = F.scaled_dot_product_attention(
            q, k, v, seen, scale=factor, enable_gqa=enable_gqa and q.size(0) != k.size(0)
        )
        results.append(found.transpose(0, 1))
        if wants_lse:
            scores = q.float() @ k.repeat_interleave(q.size(0) // k.size(0), 0).float().mT * factor
            if seen is not None:
                scores = scores.masked_fill(~seen, -math.inf)
            sums.append(scores.logsumexp(-1).T)
    out = tenon.cat(results)
    return (out, tenon.cat(sums)) if wants_lse else out


def varlen_attn_out(out: Tensor, *args: Any, **options: Any) -> Any:
    """varlen_attn with its result in `out`, without gradients."""
    with tenon.no_grad():
        found = varlen_attn(*args, **options)
        if isinstance(found, tuple):
            return out.copy_(found[0]), found[1]
        return out.copy_(found)
