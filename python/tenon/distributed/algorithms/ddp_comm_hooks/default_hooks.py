"""Hooks that average a bucket, in its own dtype or in half precision on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, distributed

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook",
    "fp16_compress_wrapper",
]  # fmt: skip


def _averaged(group: Any, tensor: Tensor) -> Any:
    tensor.div_(distributed.get_world_size(group))
    work = distributed.all_reduce(tensor, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """What happens without a hook."""
    return _averaged(process_group, bucket.buffer())


def _compressed(group: Any, bucket: Any, dtype: tenon.dtype) -> Any:
    small = bucket.buffer().to(dtype)
    return _averaged(group, small).then(lambda done: done.value().to(bucket.buffer().dtype))


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Gradients travel as float16; they are summed in float32."""
    return _compressed(process_group, bucket, tenon.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Gradients travel as bfloat16; they are summed in float32."""
    return _compressed(process_group, bucket, tenon.bfloat16)


def _wrapper(hook: Callable[[Any, Any], Any], dtype: tenon.dtype) -> Callable[[Any, Any], Any]:
    def wrapped(state: Any, bucket: Any) -> Any:
        bucket.set_buffer(bucket.buffer().to(dtype))
        return hook(state, bucket).then(lambda done: done.value().to(bucket.buffer().dtype))

    return wrapped


def fp16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A hook that sees gradients rounded to float16."""
    return _wrapper(hook, tenon.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A hook that sees gradients rounded to bfloat16."""
    return _wrapper(hook, tenon.bfloat16)
