"""Cross entropy of logits whose classes are cut among processes, without gathering them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenon.distributed.tensor import _dispatch
from tenon.distributed.tensor.placement_types import Partial, Replicate

__all__ = ["loss_parallel"]


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside it cross_entropy and log_softmax leave classes where they are."""
    before = dict(_dispatch.COMPOSITES)
    plain = set(_dispatch.TAKE_PLAIN)
    _dispatch.COMPOSITES.update(cross_entropy=_cross_entropy, log_softmax=_log_softmax)
    _dispatch.TAKE_PLAIN.add("cross_entropy")  # targets
    try:
        yield
    finally:
        _dispatch.COMPOSITES.clear()
        _dispatch.COMPOSITES.update(before)
        _dispatch.TAKE_PLAIN.intersection_update(plain)


def _whole(x: Any) -> Any:
    """The reduction of what the ranks have."""
    return x.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in x.placements]
    )  # fmt: skip


def _log_softmax(
    input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Any:  # fmt: skip
    if dim is None or not any(p.is_shard(dim % input.ndim) for p in input.placements):
        return NotImplemented
    x = input if dtype is None else input.to(dtype)
    largest = x.detach().amax(dim, keepdim=True)
    x = x - _whole(largest)
    return x - _whole(x.exp().sum(dim, keepdim=True)).log()


def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    from tenon.distributed.tensor import DTensor

    dim = 1 if input.ndim > 1 else 0
    cut = [d for d, p in enumerate(input.placements) if p.is_shard(dim)]
    plain = weight is None and not label_smoothing and reduction in ("mean", "sum", "none")
    if not cut or not plain or size_average is not None or reduce is not None:
        return NotImplemented
    mesh = input.device_mesh
    others = [Replicate() if d in cut else p for d, p in enumerate(input.placements)]
    if not all(p.is_replicate() for p in others):
        return NotImplemented
    if isinstance(target, DTensor):
        target = target.full_tensor()
    logs = _log_softmax(input, dim)
    # Each rank looks up the classes that it has; the others' terms are zeros.
    first, count = logs._spec.local[1][dim], logs._spec.local[0][dim]
    known = target != ignore_index
    if bool(((target < 0) | (target >= input.shape[dim]))[known].any()):
        raise IndexError(f"cross_entropy(): a target is none of {input.shape[dim]} classes")
    own = known & (target >= first) & (target < first + count)
    local = logs.to_local()
    index = (target - first).clamp(0, max(count - 1, 0)).unsqueeze(dim)
    found = local.gather(dim, index).squeeze(dim) if count else local.sum(dim)
    terms = -found.masked_fill(~own, 0.0)
    partial = [Partial() if d in cut else Replicate() for d in range(mesh.ndim)]
    loss = _whole(DTensor.from_local(terms, mesh, partial))
    if reduction == "none":
        return loss
    total = loss.sum()
    return total / int(known.sum()) if reduction == "mean" else total
