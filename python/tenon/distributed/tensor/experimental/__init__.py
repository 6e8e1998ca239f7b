"""What PyTorch may still change."""

from collections.abc import Callable
from typing import Any

from tenon.distributed._absent import absent
from tenon.distributed.tensor._dispatch import implicit_replication
from tenon.distributed.tensor.experimental._func_map import local_map

_MODULE = "torch.distributed.tensor.experimental"
context_parallel = absent(_MODULE, "context_parallel")

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of functions that say how an operator's DTensors may be sharded.

    They are not asked: operators of a program's own run on whole tensors in every process, and
    their results are replicated. The numbers are the same.
    """
    for one in op if isinstance(op, (list, tuple)) else [op]:
        if not callable(one):
            raise TypeError(f"register_sharding: expected an operator, not {type(one).__name__}")
    return lambda fn: fn
