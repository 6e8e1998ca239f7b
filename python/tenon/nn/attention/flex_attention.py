"""Attention whose scores and masks are functions of positions.

A function of scores is mapped over every batch, head, query and key (`vmap`), and the scores, a
matrix of queries by keys for each head, are formed whole: what it computes is that of PyTorch
without its compiler. Block masks say which blocks of keys a block of queries looks at.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import tenon
from tenon import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexKernelOptions(TypedDict, total=False):
    """Options of kernels that PyTorch's compiler makes: taken, and of no effect here."""


class AuxRequest(NamedTuple):
    """What flex_attention gives beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The logarithm of each query's sum of exponentials, and its largest score."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


# ---- Masks ---------------------------------------------------------------------------------------


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Every query sees every key."""
    return batch.new_ones(size=(), dtype=tenon.bool, device=batch.device)


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what any of the masks lets through."""
    return _joined(mask_mods, False, lambda a, b: a | b)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what all of the masks let through."""
    return _joined(mask_mods, True, lambda a, b: a & b)


def _joined(masks: tuple[MaskMod, ...], start: bool, join: Callable[..., Any]) -> MaskMod:
    if not all(callable(m) for m in masks):
        raise RuntimeError(f"All inputs should be callable mask_mods: {masks}")

    def mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_full((), start, dtype=tenon.bool)
        for m in masks:
            result = join(result, m(b, h, q_idx, kv_idx))
        return result

    return mask


def _mapped(fn: Callable[..., Tensor], scored: bool) -> Callable[..., Tensor]:
    """fn over grids of keys, queries, heads and batches; over scores too if `scored`."""
    score = (0,) if scored else ()
    for grid in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None)):
        fn = tenon.vmap(fn, in_dims=score + grid)
    return tenon.vmap(fn, in_dims=(*score, 0, None, None, None))


def _positions(sizes: tuple[int, ...], device: Any) -> list[Tensor]:
    return [tenon.arange(n, dtype=tenon.int32, device=device) for n in sizes]


def _takes_scores(fn: Callable[..., Any]) -> bool:
    given = inspect.signature(fn).parameters.values()
    count = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in given)
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """The mask of a function as booleans (B, H, Q_LEN, KV_LEN); of scores, where none is -inf."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    grid = _positions(sizes, device)
    if _takes_scores(mod_fn):
        scores = tenon.zeros(sizes, device=device)
        return ~tenon.isneginf(_mapped(mod_fn, True)(scores, *grid))
    return _mapped(mod_fn, False)(*grid).expand(sizes)


# ---- Blocks --------------------------------------------------------------------------------------


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has, and which: those first, then the others."""
    order = tenon.argsort(blocks.to(tenon.int32), dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(tenon.int32), order.to(tenon.int32).contiguous()


def _dense(count: Tensor, indices: Tensor) -> Tensor:
    """Zeros and ones of the blocks that each row has."""
    columns = indices.shape[-1]
    kept = tenon.arange(columns, device=count.device) < count[..., None]
    return tenon.zeros_like(indices).scatter(-1, indices.long(), kept.to(tenon.int32))


def _turned(count: Tensor | None, indices: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The same blocks, told by keys instead of queries."""
    if count is None or indices is None:
        return None, None
    return _ordered(_dense(count, indices).transpose(-2, -1))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


def _lost(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask: set the mask_mod of the part to a function "
        "of its own places"
    )


class BlockMask:
    """Which blocks of keys each block of queries looks at, in part (`kv_indices`) or whole
    (`full_kv_indices`), and the function that says which elements inside."""

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE,) * 2,
        mask_mod: MaskMod = noop_mask,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """A mask from what each block of queries looks at."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        size = _pair(BLOCK_SIZE)
        if seq_lengths is None:
            rows, columns = kv_indices.shape[-2:]
            seq_lengths = (rows * size[0], columns * size[1])
        queries = _turned(kv_num_blocks, kv_indices) if compute_q_blocks else (None, None)
        full = (None, None)
        if compute_q_blocks:
            full = _turned(full_kv_num_blocks, full_kv_indices)
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            *queries, *full, size, mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Elements of the mask."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """Ones for the blocks that are looked at, in part or whole."""
        found = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return found
        return found | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def sparsity(self) -> float:
        """The percentage of elements outside of the blocks that are looked at."""
        seen = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            seen = seen + self.full_kv_num_blocks.sum()
        return 100 * (1 - int(seen) * math.prod(self.BLOCK_SIZE) / self.numel())

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The parts, in the order of the constructor."""
        sizes = (*self.seq_lengths,) if flatten else (self.seq_lengths,)
        blocks = (*self.BLOCK_SIZE,) if flatten else (self.BLOCK_SIZE,)
        return (*sizes, *(getattr(self, n) for n in _TENSORS), *blocks, self.mask_mod)

    def _with(self, change: Callable[[Tensor], Tensor]) -> BlockMask:
        parts = [getattr(self, n) for n in _TENSORS]
        changed = [None if p is None else change(p) for p in parts]
        return type(self)(self.seq_lengths, *changed, self.BLOCK_SIZE, self.mask_mod)

    def to(self, device: Any) -> BlockMask:
        """The mask on another device."""
        return self._with(lambda t: t.to(device))

    def __getitem__(self, index: Any) -> BlockMask:
        """The blocks of some batches, heads and rows; the function, which knows no such places,
        must be set again."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        parts = [getattr(self, n) for n in _TENSORS[:4]]
        kept = [None if p is None else p[index] for p in parts]
        return type(self).from_kv_blocks(
            *kept, self.BLOCK_SIZE, _lost, self.seq_lengths, self.q_indices is not None
        )

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The blocks that a function's mask needs."""
    if _takes_scores(mask_mod):
        raise AssertionError(
            "create-block_mask requires a mask_mod function! Got a function of scores"
        )
    if device is None:
        device = tenon.accelerator.current_accelerator() or "cpu"
    rows, columns = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = tenon.nn.functional.pad(mask.to(tenon.int32), (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    cut = mask.unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows))
    seen = cut.sum(dim=(-3, -1))
    full = (seen == rows * columns) & separate_full_blocks
    whole = _ordered(full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(
        *_ordered((seen > 0) & ~full), *whole, (rows, columns), mask_mod, (Q_LEN, KV_LEN)
    )


# ---- Attention -----------------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    if not query.dim() == key.dim() == value.dim() == 4:
        raise ValueError("Expected query, key, and value to be 4D tensors")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.size(-1)} and E={key.size(-1)}."
        )
    heads, shared = query.size(1), key.size(1)
    if not enable_gqa and heads != shared:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and "
            f"Hkv={shared}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and (not shared or heads % shared):
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={shared}."
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(scale * query @ key^T, b, h, q, k)) @ value over (B, H, L, E).

    score_mod takes a score and its place; block_mask leaves out what its function refuses. A query
    that sees no key gives zeros. With return_lse, the logarithm of the sum of exponentials too.
    """
    del kernel_options
    _check(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux.")
    if scale is None:
        scale = 1.0 / math.sqrt(query.size(-1))
    if enable_gqa:
        groups = query.size(1) // key.size(1)
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    working = tenon.float64 if query.dtype == tenon.float64 else tenon.float32
    scores = (query @ key.transpose(-2, -1)).to(working) * scale
    grid = _positions((scores.size(0), *scores.shape[1:]), query.device)
    if score_mod is not None:
        scores = _mapped(score_mod, True)(scores, *grid).to(working)
    if block_mask is not None:
        mask = _mapped(block_mask.mask_mod, False)(*grid)
        scores = scores.masked_fill(~mask, -math.inf)
    blind = (scores == -math.inf).all(dim=-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)
    out = weights.to(query.dtype) @ value
    if return_lse:
        return out, scores.logsumexp(dim=-1)
    if return_aux is None:
        return out
    return out, AuxOutput(
        scores.logsumexp(dim=-1) if return_aux.lse else None,
        scores.amax(dim=-1) if return_aux.max_scores else None,
    )
