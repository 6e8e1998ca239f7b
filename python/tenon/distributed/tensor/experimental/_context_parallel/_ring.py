"""Attention of this process's queries over the keys and values of all processes: gathered at once,
or passed from each to the next, so that none has more than one part besides its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon._C import _nn
from tenon.autograd import Function
from tenon.autograd.function import once_differentiable
from tenon.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
)
from tenon.distributed.tensor.experimental._context_parallel._options import (
    _cp_options,
    _RotateMethod,
)

__all__: list[str] = []


class _Gathered(Function):
    """The parts of all ranks, behind each other along dimension -2."""

    @staticmethod
    def forward(ctx: Any, group: Any, part: Tensor) -> Tensor:
        ctx.group = group
        size = distributed.get_world_size(group)
        everyone = part.new_empty((size, *part.shape))
        distributed.all_gather_into_tensor(everyone, part.contiguous(), group)
        return everyone.movedim(0, -3).flatten(-3, -2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        size = distributed.get_world_size(ctx.group)
        parts = grad.unflatten(-2, (size, -1)).movedim(-3, 0).contiguous()
        mine = parts.new_empty(parts.shape[1:])
        distributed.reduce_scatter_tensor(mine, parts, group=ctx.group)
        return None, mine


def gathered(part: Tensor, group: Any) -> Tensor:
    """The parts of all ranks, behind each other along dimension -2."""
    return _Gathered.apply(group, part)


class _Passing:
    """Tensors on their way to the next rank, and those of the one before."""

    def __init__(self, tensors: Sequence[Tensor], group: Any) -> None:
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        given = [t.contiguous() for t in tensors]
        self.come = [tenon.empty_like(t) for t in given]
        self.works = [
            work
            for tag, (out, into) in enumerate(zip(given, self.come, strict=True))
            for work in (
                distributed.isend(out, group=group, tag=tag, group_dst=(rank + 1) % size),
                distributed.irecv(into, group=group, tag=tag, group_src=(rank - 1) % size),
            )
        ]

    def wait(self) -> list[Tensor]:
        for work in self.works:
            if work is not None:
                work.wait()
        return self.come


def _around(tensors: Sequence[Tensor], group: Any) -> Iterator[tuple[int, Sequence[Tensor]]]:
    """The parts of each rank, this one's first; the next ones come while the caller computes."""
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    for i in range(size):
        coming = _Passing(tensors, group) if i + 1 < size else None
        yield (rank - i) % size, tensors
        if coming is not None:
            tensors = coming.wait()


class _Seen:
    """Which keys of another rank's part the queries of this one see."""

    def __init__(self, order: Tensor, rank: int, causal: bool) -> None:
        self.order, self.mine, self.causal = order, order[rank], causal

    def of(self, source: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Numbers of queries and keys that there are at all, and which are left out among them."""
        mask = self.mine[:, None] >= self.order[source]
        if not self.causal:
            mask = mask | True
        rows, columns = (mask.any(d).nonzero().view(-1) for d in (1, 0))
        hidden = ~mask[rows][:, columns]
        return rows, columns, hidden if bool(hidden.any()) else None


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.element_size() < 4 else x


def _repeated(x: Tensor, times: int) -> Tensor:
    """Heads of keys and values, each for `times` heads of queries."""
    return x.repeat_interleave(times, -3) if times > 1 else x


def _scores(q: Tensor, k: Tensor, scale: float, hidden: Tensor | None) -> Tensor:
    found = (q @ k.mT) * scale
    return found if hidden is None else found.masked_fill(hidden, -math.inf)


class _Ring(Function):
    """Parts of the softmax are summed up by their logarithms, in backward by that of the whole."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, seen: _Seen, group: Any
    ) -> Tensor:
        ctx.scale, ctx.seen, ctx.group = scale, seen, group
        ctx.times = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
        wide = _wide(q)
        out = wide.new_zeros((*q.shape[:-1], v.shape[-1]))
        total = wide.new_full(q.shape[:-1], -math.inf)
        for source, parts in _around((k, v), group):
            rows, columns, hidden = seen.of(source)
            if not len(rows):
                continue
            kk, vv = (_repeated(_wide(t[..., columns, :]), ctx.times) for t in parts)
            scores = _scores(wide[..., rows, :], kk, scale, hidden)
            more = scores.logsumexp(-1)
            before = total[..., rows]
            after = tenon.logaddexp(before, more)
            kept = (before - after).exp().unsqueeze(-1) * out[..., rows, :]
            out[..., rows, :] = kept + (scores - after.unsqueeze(-1)).exp() @ vv
            total[..., rows] = after
        result = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, result, total)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, total = ctx.saved_tensors
        wide, upper = _wide(q), _wide(grad)
        delta = (upper * _wide(out)).sum(-1, keepdim=True)
        to_q = tenon.zeros_like(wide)
        to_kv = [tenon.zeros_like(_wide(t)) for t in (k, v)]
        size = distributed.get_world_size(ctx.group)
        for source, parts in _around((k, v), ctx.group):
            rows, columns, hidden = ctx.seen.of(source)
            if len(rows):
                kk, vv = (_repeated(_wide(t[..., columns, :]), ctx.times) for t in parts)
                qq, up = wide[..., rows, :], upper[..., rows, :]
                scores = _scores(qq, kk, ctx.scale, hidden)
                shares = (scores - total[..., rows].unsqueeze(-1)).exp()
                slopes = shares * (up @ vv.mT - delta[..., rows, :]) * ctx.scale
                to_q[..., rows, :] += slopes @ kk
                for sums, more in zip(to_kv, (slopes.mT @ qq, shares.mT @ up), strict=True):
                    if ctx.times > 1:
                        more = more.unflatten(-3, (-1, ctx.times)).sum(-3)
                    sums[..., columns, :] += more
            if size > 1:
                to_kv = _Passing(to_kv, ctx.group).wait()  # with the next part, in the end home
        to_k, to_v = (s.to(t.dtype) for s, t in zip(to_kv, (k, v), strict=True))
        return to_q.to(q.dtype), to_k, to_v, None, None, None


def _order(length: int, size: int, device: Any) -> Tensor:
    """The places of the tokens of each rank in the sequence, a row for each."""
    balancer = None
    if _cp_options.enable_load_balance:
        balancer = _cp_options.load_balancer or _HeadTailLoadBalancer(length, size, device)
    found = None if balancer is None else balancer._generate_indices()
    if found is None:
        return tenon.arange(length, device=device).view(size, -1)
    if found.shape[0] != 1:
        raise NotImplementedError(
            "context_parallel: scaled_dot_product_attention takes one order for all samples; "
            "flex_attention takes one for each"
        )
    return found.view(size, -1)


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """Where in a rank's part tokens stand one behind the other in the sequence, too."""
    start = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] != places[i - 1] + 1:
            yield start, i
            start = i


def _by_gathering(
    q: Tensor, k: Tensor, v: Tensor, order: Tensor, causal: bool, group: Any,
    options: dict[str, Any], drop: float,
) -> Tensor:  # fmt: skip
    k, v = gathered(k, group), gathered(v, group)
    if not causal:
        return _nn.scaled_dot_product_attention(q, k, v, None, drop, False, **options)
    back = order.view(-1).argsort()
    k, v = k.index_select(-2, back), v.index_select(-2, back)
    mine = order[distributed.get_rank(group)]
    places, found = mine.tolist(), []
    for start, end in _runs(places):
        last = places[end - 1] + 1
        mask = mine[start:end, None] >= tenon.arange(last, device=q.device)
        found.append(_nn.scaled_dot_product_attention(
            q[..., start:end, :], k[..., :last, :], v[..., :last, :], mask, drop, False, **options
        ))  # fmt: skip
    return tenon.cat(found, -2)


def attention(
    mesh: Any, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """scaled_dot_product_attention of parts of a sequence, which all ranks of a mesh call."""
    name, group = "scaled_dot_product_attention of a sequence that is cut", mesh.get_group()
    if attn_mask is not None:
        raise NotImplementedError(f"{name}: attn_mask is not there, is_causal is")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise NotImplementedError(
            f"{name}: is_causal requires the same query and context sequence lengths"
        )
    size = mesh.size()
    order = _order(key.shape[-2] * size, size, key.device)
    if _cp_options.rotate_method is _RotateMethod.ALL_GATHER:
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return _by_gathering(query, key, value, order, is_causal, group, options, dropout_p)
    if dropout_p > 0.0:
        raise NotImplementedError(f"{name}: dropout_p needs set_rotate_method('allgather')")
    heads = [t.shape[-3] if t.ndim > 2 else 1 for t in (query, key, value)]
    if heads[1] != heads[2] or (heads[0] % heads[1] if enable_gqa else heads[0] != heads[1]):
        raise RuntimeError(f"{name}: query, key and value have {heads} heads")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    seen = _Seen(order, distributed.get_rank(group), is_causal)
    return _Ring.apply(query, key, value, factor, seen, group)
