"""Values of PyTorch as values of Tenon and back, and PyTorch's functions by Tenon's names."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import tenon as tn
import torch


class Absent(Exception):
    """Tenon has no function of that name, or no such dtype or layout."""


def dtype_to_tenon(dtype: torch.dtype) -> Any:
    name = str(dtype).removeprefix("torch.")
    if not hasattr(tn, name):
        raise Absent(f"there is no dtype {name}")
    return getattr(tn, name)


def tensor_to_tenon(t: torch.Tensor, known: dict[Any, Any] | None = None) -> tn.Tensor:
    """A leaf with t's values, dtype, strides and requires_grad, in memory of its own, or of those
    known tensors that share theirs with t."""
    dtype = dtype_to_tenon(t.dtype)
    if t.is_meta:
        return tn.empty_strided(tuple(t.shape), t.stride(), dtype=dtype, device="meta")
    plain = t.detach().resolve_conj().resolve_neg()
    if t.layout is not torch.strided:
        return sparse_to_tenon(plain).requires_grad_(t.requires_grad)
    memory = plain.as_strided((plain.untyped_storage().nbytes() // plain.itemsize,), (1,), 0)
    key = (plain.untyped_storage().data_ptr(), t.dtype)
    if t.is_conj() or t.is_neg():  # in memory that lasts no longer than this call
        known = None
    out = None if known is None else known.get(key)
    if out is None:
        out = tn.from_dlpack(memory.clone()).clone()
        if known is not None and memory.numel():
            known[key] = out
    out = out.as_strided(tuple(plain.shape), tuple(plain.stride()), plain.storage_offset())
    return out.requires_grad_(t.requires_grad)


def sparse_to_tenon(t: torch.Tensor) -> tn.Tensor:
    if t.layout is torch.sparse_coo:
        parts = [tensor_to_tenon(part) for part in (t._indices(), t._values())]
        return tn.sparse_coo_tensor(*parts, tuple(t.shape), is_coalesced=t.is_coalesced())
    by_rows = t.layout in (torch.sparse_csr, torch.sparse_bsr)
    parts = [t.crow_indices(), t.col_indices()] if by_rows else [t.ccol_indices(), t.row_indices()]
    layout = getattr(tn, str(t.layout).removeprefix("torch."))
    given = [tensor_to_tenon(part) for part in (*parts, t.values())]
    return tn.sparse_compressed_tensor(*given, tuple(t.shape), layout=layout)


def to_tenon(value: Any, known: dict[Any, Any] | None = None) -> Any:
    """Arguments of PyTorch as those of Tenon; what both share stays, and one tensor stays one."""
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            made = tensor_to_tenon(value, known)
            if isinstance(value, torch.nn.Parameter):
                made = tn.nn.Parameter(made.detach(), requires_grad=value.requires_grad)
            known[id(value)] = made
        return known[id(value)]
    if isinstance(value, torch.Size):
        return tn.Size(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(to_tenon(v, known) for v in value)
    if isinstance(value, dict):
        return type(value)((k, to_tenon(v, known)) for k, v in value.items())
    if isinstance(value, torch.dtype):
        return dtype_to_tenon(value)
    if isinstance(value, torch.device):
        return tn.device(str(value))
    if isinstance(value, (torch.layout, torch.memory_format)):
        name = str(value).removeprefix("torch.")
        if not hasattr(tn, name):
            raise Absent(f"there is no {name}")
        return getattr(tn, name)
    if isinstance(value, torch.Generator):
        return tn.Generator()
    if isinstance(value, torch.nn.Module):
        return module_to_tenon(value)
    if callable(value) and (getattr(value, "__module__", None) or "").startswith("torch"):
        return function_to_tenon(value)
    return value


def module_to_tenon(module: torch.nn.Module) -> Any:
    """A module with the same settings, parameters and parts, made without its constructor."""
    names = [c.__name__ for c in type(module).__mro__ if c is not torch.nn.Module]
    cls = find(f"nn.{next((n for n in names if hasattr(tn.nn, n)), names[0])}")
    mine = cls.__new__(cls)
    tn.nn.Module.__init__(mine)
    own = vars(torch.nn.Module())
    for name, value in vars(module).items():
        if name not in own or name == "training":
            setattr(mine, name, to_tenon(value))
    for name, value in module._parameters.items():
        mine.register_parameter(name, to_tenon(value))
    for name, value in module._buffers.items():
        mine.register_buffer(name, to_tenon(value))
    for name, part in module._modules.items():
        mine.add_module(name, None if part is None else module_to_tenon(part))
    return mine


def tensor_to_torch(t: tn.Tensor) -> torch.Tensor:
    plain = t.detach().resolve_conj()
    plain = plain if plain.layout == tn.strided else plain.to_dense()
    return (
        torch.from_dlpack(plain.clone())
        if plain.numel()
        else torch.empty(tuple(t.shape), dtype=getattr(torch, str(t.dtype).split(".")[-1]))
    )


def find(path: str) -> Any:
    """tn's attribute of that dotted path."""
    at: Any = tn
    for part in path.split("."):
        if not hasattr(at, part):
            raise Absent(f"there is no {path}")
        at = getattr(at, part)
    return at


def rebound(function: types.FunctionType) -> types.FunctionType:
    """The same code, in which `torch` is Tenon."""
    scope = dict(function.__globals__)
    scope["torch"] = tn
    scope["wrapper_set_seed"] = seeded
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def processed(process: Any) -> Any:
    """What a sample makes of its result before gradients are taken, for Tenon's result."""
    return rebound(process) if ".testing." in (process.__module__ or "") else process


def seeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    tn.manual_seed(42)
    return op(*args, **kwargs)


def function_to_tenon(function: Any) -> Any:
    """What a function of PyTorch or of its databases is called in Tenon."""
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, types.FunctionType) and ".testing." in module:
        return rebound(function)
    name = getattr(function, "__qualname__", getattr(function, "__name__", ""))
    if module in ("torch.functional", "torch._tensor"):
        module = "torch"
    return find(".".join([*module.split(".")[1:], name]))


def operator(info: Any) -> Callable[..., Any]:
    """Tenon's function for an entry of op_db: by its code, its name, or as a method."""
    if isinstance(info.op, types.FunctionType) and ".testing." in info.op.__module__:
        return rebound(info.op)
    name = info.name.removeprefix("torch.")
    if name.startswith("ops."):
        raise Absent(f"{name} is PyTorch's own")
    if name.startswith("_"):  # a public function by the name of its schema
        name = getattr(info.op, "__name__", name)
    method = getattr(tn.Tensor, name, None)
    try:
        function = find(name)
    except Absent:
        if method is None:
            raise
        return method
    return function if callable(function) or method is None else method


def variant(info: Any, theirs: Any) -> Callable[..., Any]:
    """Tenon's method or in-place form for one of PyTorch's."""
    if isinstance(theirs, types.FunctionType) and ".testing." in theirs.__module__:
        return rebound(theirs)
    if isinstance(theirs, functools.partial):
        return functools.partial(function_to_tenon(theirs.func), *theirs.args, **theirs.keywords)
    name = theirs.__name__
    mine = getattr(tn.Tensor, name, None)
    if mine is None:
        raise Absent(f"there is no Tensor.{name}")
    return mine


def tensors(value: Any, kind: type) -> Iterator[Any]:
    """Every tensor in a nest of tuples, lists and dicts, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v, kind)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors(v, kind)
