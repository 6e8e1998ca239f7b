"""Pickling and copying of tensors and generators.

A tensor is pickled as the part of its memory that it looks at, with its strides; tensors that share
memory inside one pickle do not share it afterwards. Subclasses keep their class and attributes.
Copies share memory as the tensors do: `copy.copy` with the original, what one `copy.deepcopy` made
among themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenon import _C
from tenon._C import Generator, Tensor, device, dtype


def rebuild(
    kind: dtype, shape: tuple[int, ...], strides: tuple[int, ...] | None, data: bytes,
    where: str, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """The tensor that `reduce_tensor` took apart; the data are those of a packed tensor where there
    are no strides."""
    if where == "meta":
        place = device("meta")
        if strides is None:
            t = _C._ops.empty(shape, dtype=kind, device=place)
        else:
            t = _C._ops.empty_strided(shape, strides, dtype=kind, device=place)
    elif strides is None:
        t = _C._ops.empty(shape, dtype=kind, device="cpu")
        t._from_bytes(data)
    else:
        row = _C._ops.empty(len(data) // kind.itemsize, dtype=kind, device="cpu")
        row._from_bytes(data)
        t = _C._ops.empty(0, dtype=kind, device="cpu").set_(row, 0, shape, strides)
    if where not in ("cpu", "meta"):
        t = t.to(device(where))
    return t.requires_grad_() if requires_grad else t


def rebuild_sparse(
    layout: Any, parts: tuple[Tensor, ...], shape: tuple[int, ...], coalesced: bool,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """The sparse tensor that `reduce_tensor` took apart; its indices are checked."""
    from tenon._tensor import sparse

    if layout is _C.sparse_coo:
        t = sparse.sparse_coo_tensor(*parts, shape, is_coalesced=coalesced, check_invariants=True)
    else:
        t = sparse.sparse_compressed_tensor(*parts, shape, layout=layout)
    return t.requires_grad_() if requires_grad else t


def _sparse_parts(t: Tensor, requires_grad: bool) -> tuple[Any, ...]:
    """The arguments of rebuild_sparse."""
    from tenon._tensor import print as printing

    parts = tuple(printing.components(t.detach()).values())
    return t.layout, parts, tuple(t.shape), t.is_sparse and t.is_coalesced(), requires_grad


def rebuild_subclass(cls: type, t: Tensor, requires_grad: bool, state: dict[str, Any]) -> Tensor:
    """An instance of a subclass with its attributes."""
    result = Tensor._make_subclass(cls, t, requires_grad)
    if state:
        result.__dict__.update(state)
    return result


def _rebuild_from_type_v2(
    func: Callable[..., Tensor], new_type: type, args: tuple[Any, ...], state: Any
) -> Tensor:
    """A tensor with attributes or of a class of its own, as checkpoints tell it."""
    result = func(*args)
    if type(result) is not new_type:
        result = Tensor._make_subclass(new_type, result, result.requires_grad)
    if hasattr(new_type, "__setstate__"):
        result.__setstate__(state)
    elif state:
        result.__dict__.update(state)
    return result


def _seen(t: Tensor) -> Tensor:
    """The memory from a tensor's first element to its last, as a row."""
    span = 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))
    row = _C._ops.empty(0, dtype=t.dtype, device=t.device)
    return row.set_(t, t.storage_offset(), (span if t.numel() else 0,), (1,))


_here = threading.local()


@contextmanager
def reducing(form: Callable[[Tensor], Any]) -> Iterator[None]:
    """Within the block `form` says what pickles of this thread keep of tensors."""
    before = getattr(_here, "form", None)
    _here.form = form
    try:
        yield
    finally:
        _here.form = before


def reduce_tensor(t: Tensor, protocol: int) -> tuple[Any, ...]:
    """`Tensor.__reduce_ex__`."""
    del protocol
    form = getattr(_here, "form", None)
    if form is not None:
        return form(t)
    requires_grad = t.requires_grad and type(t) is Tensor
    if t.layout is not _C.strided:
        return _reduced(t, rebuild_sparse, _sparse_parts(t, requires_grad))
    plain = t.detach()
    strides, packed = None, plain
    if not t.is_contiguous():
        strides, packed = t.stride(), _seen(plain)
    data = b"" if t.is_meta else packed.cpu()._to_bytes()
    parts = (
        t.dtype, tuple(t.shape), strides, data, str(t.device), requires_grad,
    )  # fmt: skip
    return _reduced(t, rebuild, parts)


def _reduced(t: Tensor, make: Any, parts: tuple[Any, ...]) -> tuple:
    """What a pickle keeps of a tensor that `make(*parts)` makes."""
    state = t.__dict__
    if type(t) is not Tensor:
        return rebuild_subclass, (type(t), make(*parts), t.requires_grad, state)
    return (make, parts, state) if state else (make, parts)


def copy_tensor(t: Tensor) -> Tensor:
    """`Tensor.__copy__`: a leaf over the same memory, with the same attributes."""
    if type(t) is Tensor:
        copy = t.detach().requires_grad_(t.requires_grad)
    else:
        copy = Tensor._make_subclass(type(t), t.detach(), t.requires_grad)
    if t.__dict__:
        copy.__dict__.update(t.__dict__)
    return copy


def _own_memory(t: Tensor, memo: dict[Any, Any]) -> Tensor:
    """The tensor over a copy of its whole memory, the same for all tensors there."""
    copies = memo.setdefault("tenon", {})
    key = t._storage_id()
    if key not in copies:
        row = _C._ops.empty(0, dtype=_C.uint8, device=t.device)
        copies[key] = row.set_(t, 0, (t._storage_bytes(),), (1,)).clone()
    copy = _C._ops.empty(0, dtype=t.dtype, device=t.device)
    return copy.set_(copies[key], t.storage_offset(), tuple(t.shape), t.stride())


def deepcopy_tensor(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """`Tensor.__deepcopy__`: new memory, same geometry, class and attributes; leaves only."""
    if id(t) in memo:
        return memo[id(t)]
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. If you were attempting to deepcopy a module, this may be "
            "because of a module attribute that is the result of a computation."
        )
    from copy import deepcopy

    plain = t.detach()
    copy = _own_memory(plain, memo) if t._storage_bytes() else plain.clone()
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


def rebuild_generator(where: str, seed: int, state: Tensor) -> Generator:
    """The generator that `reduce_generator` took apart."""
    return Generator(device(where)).manual_seed(seed).set_state(state)


def reduce_generator(g: Generator) -> tuple[Any, ...]:
    """`Generator.__reduce__`: device, seed and state."""
    return rebuild_generator, (str(g.device), g.initial_seed(), g.get_state())


def clone_generator(g: Generator) -> Generator:
    """`Generator.clone_state`."""
    return rebuild_generator(*reduce_generator(g)[1])
