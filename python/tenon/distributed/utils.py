"""Helpers of PyTorch's distributed packages, by its names."""

from __future__ import annotations

import traceback
from typing import Any

from tenon import distributed
from tenon.nn.modules.module import Module

__all__: list[str] = []


def _p_assert(cond: Any, s: str, raise_assertion_error: bool = True) -> None:
    """AssertionError with the message s unless cond holds, also where assert does nothing; said
    with the stack, as errors in backward may lose it."""
    if not cond:
        print(s)
        traceback.print_stack()
        if raise_assertion_error:
            raise AssertionError(s)


def _sync_module_states(
    module: Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Any,
    broadcast_buffers: bool = True,
) -> None:
    """All processes get the parameters and buffers of process src."""
    tensors = [
        p.detach() for n, p in module.named_parameters() if n not in params_and_buffers_to_ignore
    ]
    if broadcast_buffers:
        tensors += [
            b.detach() for n, b in module.named_buffers() if n not in params_and_buffers_to_ignore
        ]
    _sync_params_and_buffers(process_group, tensors, broadcast_bucket_size, src)


def _sync_params_and_buffers(
    process_group: Any, module_states: list[Any], broadcast_bucket_size: int, src: int
) -> None:
    """All processes get the tensors of process src."""
    works = [distributed.broadcast(t, src, process_group, True) for t in module_states]
    for work in works:
        if work is not None:
            work.wait()
