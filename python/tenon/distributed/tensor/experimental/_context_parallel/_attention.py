"""Sequences that are cut among the processes of a mesh: tensors that lie by parts meanwhile, and
attention that sees all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor.experimental._context_parallel import _ring
from tenon.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _LoadBalancer,
)
from tenon.distributed.tensor.experimental._context_parallel._options import (
    _cp_options,
    _RotateMethod,
)
from tenon.distributed.tensor.parallel.style import ParallelStyle
from tenon.nn import _attention as plain
from tenon.nn.attention.flex_attention import BlockMask, create_block_mask
from tenon.nn.modules.module import Module
from tenon.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]


@contextmanager
def _attending(mesh: DeviceMesh) -> Iterator[None]:
    """scaled_dot_product_attention is that of parts of a sequence."""
    before = plain._of_parts
    plain._of_parts = functools.partial(_ring.attention, mesh)
    try:
        yield
    finally:
        plain._of_parts = before


# ---- Parts ---------------------------------------------------------------------------------------


def _default(length: int, ranks: int, device: Any) -> _LoadBalancer | None:
    wanted = _cp_options.enable_load_balance
    return _HeadTailLoadBalancer(length, ranks, device) if wanted else None


def _ordered(name: str, whole: Tensor, dim: int, indices: Tensor | None) -> Tensor:
    """A tensor in another order along a dimension; samples are along dimension 0."""
    if indices is None:
        return whole
    if indices.shape[1] != whole.shape[dim]:
        raise ValueError(
            f"{name}: a buffer of shape {tuple(whole.shape)} has {whole.shape[dim]} tokens along "
            f"dimension {dim}, the load balancer {indices.shape[1]}"
        )
    if indices.shape[0] == 1:
        return whole.index_select(dim, indices[0])
    if dim == 0 or whole.shape[0] != indices.shape[0]:
        raise ValueError(
            f"{name}: a buffer of shape {tuple(whole.shape)} does not have the load balancer's "
            f"{indices.shape[0]} samples along dimension 0"
        )
    rows = zip(whole, indices, strict=True)
    return tenon.stack([one.index_select(dim - 1, order) for one, order in rows])


def _part(name: str, mesh: DeviceMesh, whole: Any, dim: int, balancer: _LoadBalancer | None) -> Any:
    """This rank's of a buffer."""
    indices = None if balancer is None else balancer._generate_indices()
    if isinstance(whole, BlockMask):
        return _part_of_mask(mesh, whole, indices)
    if not isinstance(whole, Tensor):
        raise ValueError(f"{name}: a buffer is a tensor or a BlockMask, not {type(whole)}")
    dim = dim % whole.ndim
    length, size = whole.shape[dim], mesh.size()
    if length % size:
        raise ValueError(
            f"{name}: a buffer of shape {tuple(whole.shape)} is not cut into {size} equal parts "
            f"along dimension {dim}"
        )
    mine = _ordered(name, whole, dim, indices).chunk(size, dim)[mesh.get_local_rank()]
    return mine.clone(memory_format=tenon.contiguous_format)


def _part_of_mask(mesh: DeviceMesh, whole: BlockMask, indices: Tensor | None) -> BlockMask:
    """The rows of this rank; keys lie as they are gathered."""
    rows, columns = whole.seq_lengths
    mine = rows // mesh.size()
    first = mine * mesh.get_local_rank()

    def place(b: Tensor, at: Tensor) -> Tensor:
        if indices is None:
            return at
        return indices[0][at] if indices.shape[0] == 1 else indices[b][at]

    def sees(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return whole.mask_mod(b, h, place(b, q_idx + first), place(b, kv_idx))

    samples, heads = whole.kv_num_blocks.shape[:2]
    device = whole.kv_num_blocks.device
    return create_block_mask(sees, samples, heads, mine, columns, device, whole.BLOCK_SIZE)


def _checked(name: str, buffers: Sequence[Any], dims: Sequence[int]) -> None:
    if len(buffers) != len(dims):
        raise ValueError(f"{name}: `seq_dims` must have the same number of elements as `buffers`.")


def _context_parallel_shard(
    mesh: DeviceMesh, buffers: Any, seq_dims: Any, load_balancer: _LoadBalancer | None = None
) -> Any:
    """The parts of this rank of tensors and block masks in a list or a dictionary, cut along
    seq_dims, in the order of a load balancer."""
    flat, form = tree_flatten(buffers)
    dims, _ = tree_flatten(seq_dims)
    _checked("_context_parallel_shard", flat, dims)
    _cp_options.enable_load_balance = load_balancer is not None
    _cp_options.load_balancer = load_balancer
    parts = [
        _part("_context_parallel_shard", mesh, b, dim, load_balancer)
        for b, dim in zip(flat, dims, strict=True)
    ]
    return tree_unflatten(parts, form)


@contextmanager
@tenon.no_grad()
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: list[Tensor] | None = None,
    buffer_seq_dims: list[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
) -> Iterator[None]:
    """Inside it, buffers are the parts of this process, cut along buffer_seq_dims, and
    scaled_dot_product_attention sees the keys and values of all processes of the mesh. After it
    they are whole as before, but for no_restore_buffers."""
    buffers, dims = list(buffers or ()), list(buffer_seq_dims or ())
    _checked("context_parallel", buffers, dims)
    left = {id(b) for b in no_restore_buffers or ()}
    if left - {id(b) for b in buffers}:
        raise ValueError("context_parallel: `no_restore_buffers` must be a subset of `buffers`.")
    options = (_cp_options.enable_load_balance, _cp_options.load_balancer)
    parts = []
    for b, dim in zip(buffers, dims, strict=True):
        balancer = _default(b.shape[dim], mesh.size(), b.device)
        parts.append(_part("context_parallel", mesh, b, dim, balancer))
    wholes = [None if id(b) in left else b.clone() for b in buffers]
    for b, part in zip(buffers, parts, strict=True):
        b.resize_(part.shape)
        b.copy_(part)
    _cp_options.load_balancer = None
    try:
        with _attending(mesh):
            yield
    finally:
        _cp_options.enable_load_balance, _cp_options.load_balancer = options
        for b, whole in zip(buffers, wholes, strict=True):
            if whole is not None:
                b.resize_(whole.shape)
                b.copy_(whole)


@tenon.no_grad()
def context_parallel_unshard(
    mesh: DeviceMesh,
    buffers: list[Tensor],
    seq_dims: list[int],
    load_balancer: _LoadBalancer | None = None,
) -> list[Tensor]:
    """The whole of parts that were cut by context_parallel, or by a load balancer."""
    _checked("context_parallel_unshard", buffers, seq_dims)
    wholes = []
    for part, given in zip(buffers, seq_dims, strict=True):
        dim = given % part.ndim
        everyone = [tenon.empty_like(part.contiguous()) for _ in range(mesh.size())]
        distributed.all_gather(everyone, part.contiguous(), mesh.get_group())
        whole = tenon.cat(everyone, dim)
        balancer = load_balancer or _default(whole.shape[dim], mesh.size(), part.device)
        back = None if balancer is None else balancer._generate_indices(restore=True)
        wholes.append(_ordered("context_parallel_unshard", whole, dim, back))
    return wholes


# ---- Modules -------------------------------------------------------------------------------------


class _ContextParallel(ParallelStyle):
    """A module that calls attention with the parts of a sequence."""

    class AttentionType(Enum):
        FLEX = "flex_attention"
        SDPA = "scaled_dot_product_attention"

    def __init__(self, seq_dim: int, attention_type: AttentionType) -> None:
        self.seq_dim, self.attention_type = seq_dim, attention_type

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """flex_attention's module is called with the keys and values of all."""
        call = module.forward

        @functools.wraps(call)
        def of_parts(*args: Any, **kwargs: Any) -> Any:
            with _attending(device_mesh):
                return call(*args, **kwargs)

        @functools.wraps(call)
        def with_all_keys(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **kwargs: Any
                          ) -> Any:  # fmt: skip
            group, dim = device_mesh.get_group(), self.seq_dim
            key, value = (
                _ring.gathered(t.movedim(dim, -2), group).movedim(-2, dim) for t in (key, value)
            )
            return call(query, key, value, *rest, **kwargs)

        is_flex = self.attention_type is self.AttentionType.FLEX
        module.forward = with_all_keys if is_flex else of_parts
        return module


def _enable_context_parallel_dispatcher() -> None:
    """Taken: modules of _ContextParallel need no more."""


def _disable_context_parallel_dispatcher() -> None:
    """Taken, as _enable_context_parallel_dispatcher."""


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values come: "allgather", all at once, or "alltoall", from process to process,
    which takes less memory."""
    methods = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in methods:
        raise NotImplementedError(
            f"Context Parallel does not support using {rotate_method} for kv shards rotation"
        )
    _cp_options.rotate_method = methods[rotate_method]
