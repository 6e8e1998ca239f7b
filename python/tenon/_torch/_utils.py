"""Helpers of PyTorch that programs import from `torch._utils`."""

from __future__ import annotations

import sys
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import tenon
from tenon import Tensor
from tenon.nn import parameter

_rebuild_parameter = parameter._rebuild_parameter


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of the tensors, one after the other."""
    return tenon.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` in the shapes of the tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(p.view(t.shape) for p, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Groups of tensors of one dtype and device whose bytes stay near the limit."""
    groups: dict[Any, list[Tensor]] = defaultdict(list)
    sizes: dict[Any, int] = defaultdict(int)
    for t in tensors:
        kind, size = (t.dtype, t.device), t.numel() * t.element_size()
        if sizes[kind] and sizes[kind] + size > size_limit:
            yield groups[kind]
            groups[kind], sizes[kind] = [], 0
        groups[kind].append(t)
        sizes[kind] += size
    yield from (g for g in groups.values() if g)


def _element_size(dtype: tenon.dtype) -> int:
    """Bytes of one element."""
    return dtype.itemsize


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device: that of `cuda:1` is 1, of a device without one the current one."""
    if device is None and not optional:
        raise ValueError("Expected a device with an index, but got None")
    if isinstance(device, int):
        return device
    if device is None:
        return tenon.cuda.current_device()
    found = tenon.device(device) if isinstance(device, str) else device
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    if found.index is not None:
        return found.index
    if not optional:
        raise ValueError(f"Expected a device with an index, but got: {device}")
    return tenon.cuda.current_device()


def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a storage."""
    return tenon.empty(0, dtype=storage.dtype, device=storage.device).set_(
        storage, offset, size, stride
    )


def _rebuild_tensor_v2(
    storage: Any,
    offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool = False,
    backward_hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """A tensor over a storage, as pickles of PyTorch tell it."""
    del backward_hooks, metadata
    return _rebuild_tensor(storage, offset, size, stride).requires_grad_(requires_grad)


def _get_available_device_type() -> str | None:
    """The kind of device that computes beside the CPU, None without one."""
    found = tenon.accelerator.current_accelerator(check_available=True)
    return None if found is None else found.type


def _get_device_module(device_type: str) -> Any:
    """`torch.cuda` for "cuda"."""
    return getattr(tenon, device_type)


class KeyErrorMessage(str):
    """Text that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception on its way to another thread or process, with its traceback as text."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = info[0]
        self.exc_msg = "".join(traceback.format_exception(*info))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raises an exception of the same type that tells where it came up."""
        name = self.exc_type.__name__
        text = f"Caught {name} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:  # its constructor wants other arguments
            raise RuntimeError(text) from None
        raise error
