"""Attributes and methods of tensors that ask a program's class with `__torch_function__`.

Operators ask by themselves. What is no operator would have to look at every tensor's class; instead
a class of tensors that has a protocol of its own gets members that ask, when it is made, and Tensor
itself has them while a mode of a program is entered.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tenon import _C, Tensor
from tenon._tape import call_modes

_NAMES = (
    "H mH mT T real data grad _grad grad_fn _base _version device dtype layout shape ndim "
    "nbytes itemsize output_nr requires_grad retains_grad is_leaf is_cpu is_cuda is_ipu is_maia "
    "is_meta is_mkldnn is_mps is_mtia is_nested is_quantized is_sparse is_sparse_csr is_vulkan "
    "is_xla is_xpu __array_wrap__ __bool__ __complex__ __dir__ __dlpack__ __dlpack_device__ "
    "__float__ __format__ __index__ __int__ __len__ __pos__ __repr__ _is_view _nnz backward "
    "bfloat16 bool byte cdouble cfloat chalf char cpu cuda data_ptr dense_dim dequantize "
    "detach_ dim dim_order double element_size fill_diagonal_ float get_device half int "
    "is_coalesced is_complex is_conj is_contiguous is_floating_point is_inference is_neg "
    "is_nonzero is_pinned is_same_size is_set_to is_shared is_signed item long ndimension "
    "nelement numel numpy pin_memory register_hook register_post_accumulate_grad_hook "
    "requires_grad_ resize_as_ resolve_conj resolve_neg retain_grad set_ short size sparse_dim "
    "storage_offset stride to tolist type_as"
)


_lent: Counter[str] = Counter()  # by name, how many modes that see it are entered, in all threads
_lock = threading.Lock()


def _asks(x: Any, name: str) -> bool:
    """Whether somebody is to be asked about this member: a mode, or the class of x."""
    modes = call_modes.functions()
    if modes and (modes[-1].sees_members or name in modes[-1].some_members):
        return True
    cls = type(x)
    if cls is Tensor or _C._disable_overrides(0):
        return False
    return cls.__torch_function__ is not _C._disabled_torch_function_impl


def _ask(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from tenon import overrides

    return overrides._handle(function, overrides._overloaded(args), args, kwargs)


class _Attribute:
    """An attribute that asks about reading and writing, under the names of Tensor's own."""

    def __init__(self, name: str, member: Any) -> None:
        self.name = name
        self.member = member

    def __get__(self, x: Any, owner: Any = None) -> Any:
        if x is None:
            return self.member
        read = self.member.__get__
        return _ask(read, (x,), {}) if _asks(x, self.name) else read(x)

    def __set__(self, x: Any, value: Any) -> None:
        write = self.member.__set__
        if _asks(x, self.name):
            _ask(write, (x, value), {})
        else:
            write(x, value)

    def __delete__(self, x: Any) -> None:
        self.member.__delete__(x)


def _method(name: str, member: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(member)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and _asks(args[0], name):
            return _ask(member, args, kwargs)
        return member(*args, **kwargs)

    return call


@functools.cache
def _members() -> dict[str, tuple[Any, Any]]:
    """By name, Tensor's member and one that asks."""
    found = {}
    for name in _NAMES.split():
        member = inspect.getattr_static(Tensor, name, None)
        if member is not None:
            asking = _method if callable(member) else _Attribute
            found[name] = member, asking(name, member)
    return found


def give(cls: type) -> None:
    """Members that ask for a class, where it has Tensor's own."""
    for name, (member, asking) in _members().items():
        if inspect.getattr_static(cls, name) in (member, asking):
            setattr(cls, name, asking)


@functools.cache
def _lendable() -> dict[str, tuple[Any, Any, bool]]:
    """Those that programs write, and whether they are Tensor's own."""
    return {
        name: (*both, name in vars(Tensor)) for name, both in _members().items()
        if not name.startswith("_") or name.startswith("__")
    }  # fmt: skip


def lend(step: int, names: Iterable[str] | None = None) -> None:
    """A mode begins (1) or ends (-1) to see what is read and called of tensors: all members, or
    some."""
    known = _lendable()
    with _lock:
        for name in known if names is None else names:
            member, asking, own = known[name]
            before = _lent[name]
            _lent[name] += step
            if before and _lent[name]:
                continue
            if _lent[name]:
                setattr(Tensor, name, asking)
            elif own:
                setattr(Tensor, name, member)
            else:
                delattr(Tensor, name)


def original(name: str) -> Any:
    """Tensor's member, whether or not another one stands in its place."""
    known = _members().get(name)
    return inspect.getattr_static(Tensor, name) if known is None else known[0]
