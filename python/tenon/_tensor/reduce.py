"""Pickling and copying of tensors.

A tensor is pickled as its elements; tensors that share memory inside one pickle do not share it
afterwards. Subclasses keep their class and attributes.
"""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._C import Tensor, device, dtype


def rebuild(
    kind: dtype, shape: tuple[int, ...], strides: tuple[int, ...] | None, data: bytes,
    where: str, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """The tensor that `reduce_tensor` took apart."""
    if strides is None:
        t = _C._ops.empty(shape, dtype=kind)
    else:
        t = _C._ops.empty_strided(shape, strides, dtype=kind)
    t._from_bytes(data)
    if where != "cpu":
        t = t.to(device(where))
    return t.requires_grad_() if requires_grad else t


def rebuild_subclass(cls: type, t: Tensor, requires_grad: bool, state: dict[str, Any]) -> Tensor:
    """An instance of a subclass with its attributes."""
    result = Tensor._make_subclass(cls, t, requires_grad)
    if state:
        result.__dict__.update(state)
    return result


def reduce_tensor(t: Tensor, protocol: int) -> tuple:
    """`Tensor.__reduce_ex__`."""
    del protocol
    plain = t.detach()
    dense = not t.is_contiguous() and _is_dense(t)
    strides = t.stride() if dense else None
    subclass = type(t) is not Tensor
    parts = (
        t.dtype, tuple(t.shape), strides, plain.cpu()._to_bytes(), str(t.device),
        t.requires_grad and not subclass,
    )  # fmt: skip
    state = t.__dict__
    if subclass:
        return rebuild_subclass, (type(t), rebuild(*parts), t.requires_grad, state)
    return (rebuild, parts, state) if state else (rebuild, parts)


def deepcopy_tensor(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """`Tensor.__deepcopy__`: new memory, same class and attributes; leaves only."""
    if id(t) in memo:
        return memo[id(t)]
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. If you were attempting to deepcopy a module, this may be "
            "because of a module attribute that is the result of a computation."
        )
    from copy import deepcopy

    copy = t.detach().clone()
    if type(t) is not Tensor:
        copy = Tensor._make_subclass(type(t), copy, t.requires_grad)
    elif t.requires_grad:
        copy.requires_grad_()
    memo[id(t)] = copy
    if t.grad is not None:
        copy.grad = deepcopy_tensor(t.grad, memo)
    if t.__dict__:
        copy.__dict__.update(deepcopy(t.__dict__, memo))
    return copy


def _is_dense(t: Tensor) -> bool:
    """No gaps and no overlap, in some order of the dimensions."""
    expect = 1
    for step, size in sorted((s, n) for s, n in zip(t.stride(), t.shape) if n != 1):
        if step != expect:
            return False
        expect *= size
    return True
