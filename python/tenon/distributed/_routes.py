"""The memory of an operation, as an engine takes it.

An engine sees packed memory: of the CPU and of few dtypes, or that of its own kind of device, as
NCCL's does. What is elsewhere, strided or of another dtype goes through a copy of its own, and the
result comes back when the operation is waited for. Sums of half-precision numbers are computed in
float32, those of bool and int16 in int32, unless the device's engine adds them as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributed import _engine
from tenon.distributed._groups import ProcessGroup

__all__ = ["Route", "back", "copy"]

_WIDER = {
    tenon.float16: tenon.float32, tenon.bfloat16: tenon.float32, tenon.int16: tenon.int32,
    tenon.bool: tenon.int32,
}  # fmt: skip


def copy(target: Tensor, source: Tensor) -> None:
    """Copies a result, without a word to autograd."""
    with tenon.no_grad():
        target.copy_(source)


def back(target: Tensor, staged: Tensor) -> Callable[[], None] | None:
    """Copies a result to where it belongs, unless it is there."""
    if staged is target:
        return None
    return lambda: copy(target, staged)


def _slot(dtype: Any) -> int:
    """The number of a dtype."""
    return _engine.library().lib.tn_dtype_find(str(dtype).rpartition(".")[2].encode())


def _only_device(tensors: Sequence[Tensor]) -> Any:
    """The device of all tensors; None: they lie on several."""
    devices = {t.device for t in tensors}
    return devices.pop() if len(devices) == 1 else None


@cache
def _warn_of_another(device: Any) -> None:
    """Once for each device."""
    warnings.warn(
        f"tensors of {device} go through the host's memory, as the process group uses another GPU: "
        "that of LOCAL_RANK, of cuda.set_device before init_process_group, or of its device_id",
        stacklevel=5,
    )


class Route:
    """How one operation of a group goes: through memory of the CPU, or on the tensors' device."""

    def __init__(
        self, group: ProcessGroup, kind: int, *tensors: Tensor, op: int | None = None
    ) -> None:
        """op: of reductions, which are made in a dtype of the engine's, and not as bytes."""
        assert group._world is not None
        self.world, self.device, self._group = group._world, None, group
        self._kind, self._op = kind, op or 0
        given = tensors[0].dtype
        self._element = _slot(given)
        real = tenon.view_as_real(tensors[0][:0]).dtype if given.is_complex else given
        self.dtype = _WIDER.get(real, real)
        there, device = group._there, _only_device(tensors)
        if there is None or device is None or device.type != there.device:
            return
        for dtype in (real, self.dtype):
            if there.takes(kind, self._op, 1 if op is None else _slot(dtype), device.index):
                self.world, self.device, self.dtype = there, device, dtype
                return
        if not there.takes(_engine.BROADCAST, 0, 1, device.index):
            _warn_of_another(device)

    def packed(self, tensor: Tensor) -> Tensor:
        """The tensor itself where an engine takes it, else a copy that it does."""
        return tensor.contiguous() if self.device is not None else tensor.cpu().contiguous()

    def numbers(self, tensor: Tensor) -> Tensor:
        """A packed tensor of a dtype that the engine reduces, with the values of the tensor."""
        real = tenon.view_as_real(tensor) if tensor.dtype.is_complex else tensor
        return self.packed(real.to(self.dtype))

    def empty(self, count: int, dtype: Any) -> Tensor:
        """Packed memory for a result."""
        where = "cpu" if self.device is None else self.device  # whatever a program's default is
        return tenon.empty(count, dtype=dtype, device=where)

    def reduce(self, later: bool, count: int, **what: Any) -> _engine.Operation:
        """Starts a reduction of numbers."""
        return self._start(later, count=count, dtype=_slot(self.dtype), op=self._op, **what)

    def move(self, later: bool, packed: Tensor, **what: Any) -> _engine.Operation:
        """Starts a movement of as many bytes as a packed tensor has."""
        return self._start(later, count=packed.numel() * packed.element_size(), **what)

    def spread(
        self, later: bool, source: Tensor, target: Tensor, given: list[int], wanted: list[int],
        after: Callable[[], None] | None,
    ) -> _engine.Operation:  # fmt: skip
        """ALL_TO_ALL of packed tensors; sizes are bytes."""
        return self._start(
            later, input=source, output=target, in_counts=given, out_counts=wanted, after=after
        )

    def _start(self, later: bool, **what: Any) -> _engine.Operation:
        return self.world.start(
            self._kind, self._group._seconds, later=later, element=self._element,
            device=self.device, **what,
        )  # fmt: skip
