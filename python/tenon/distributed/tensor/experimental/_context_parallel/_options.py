"""What programs choose of attention over a sequence that is cut."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tenon.distributed.tensor.experimental._context_parallel._load_balancer import _LoadBalancer

__all__: list[str] = []


class _RotateMethod(Enum):
    ALL_TO_ALL = auto()
    ALL_GATHER = auto()


@dataclass
class _Options:
    """convert_to_f32: taken; half precision is summed up in float32."""

    convert_to_f32: bool = True
    enable_load_balance: bool = True
    rotate_method: _RotateMethod = _RotateMethod.ALL_GATHER
    load_balancer: _LoadBalancer | None = None  # that of the program, by which it has cut


_cp_options = _Options()
