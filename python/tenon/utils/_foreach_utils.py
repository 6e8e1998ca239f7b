"""What optimizers outside of this package ask before they work on lists of tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

from tenon import Tensor

TensorListList: TypeAlias = list[list[Tensor | None]]
Indices: TypeAlias = list[int]
_foreach_supported_types = [Tensor]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Devices whose operators on lists are one kernel."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices whose optimizers are one kernel."""
    return ["cuda", "cpu"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: TensorListList, with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[TensorListList, Indices]]:
    """Lists of tensors that belong together, cut by the device and the dtype of the first."""
    grouped: dict[tuple[Any, Any], tuple[TensorListList, Indices]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        if first is None:
            raise RuntimeError("the tensors of the first list cannot be None")
        lists, indices = grouped.setdefault(
            (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
        )
        for to, source in zip(lists, tensorlistlist, strict=True):
            if source:
                to.append(source[i])
        if with_indices:
            indices.append(i)
    return grouped


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: list[Tensor], device: Any) -> bool:
    return _device_has_foreach_support(device) and all(
        t is None or type(t) in _foreach_supported_types for t in tensors
    )
